//! `portolan-bench live`: workloads through an API server in this process.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use portolan_cli::CommandError;
use portolan_cli::{Output, at_least_one};

use super::workload_files::{self, LiveSettings, Place, Selection};

/// Run Kubernetes' scheduler_perf workloads through an API server in this process.
///
/// Each workload gets an API server in memory and the scheduler of `portolan run`, which reads and binds over HTTP. The
/// objects of the workload are created inside the server. The exit status is 1 if a workload failed or missed the
/// threshold of its file.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// File of workloads, or a folder: every performance-config.yaml in it. Repeatable.
    #[arg(long, value_name = "FILE", required = true)]
    scheduler_perf: Vec<PathBuf>,
    /// Time that the server takes for each write of the scheduler, in milliseconds, as if it wrote to etcd.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 10)]
    write_delay: u64,
    /// Bindings in flight at once.
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = at_least_one::<NonZeroUsize>)]
    bindings: NonZeroUsize,
    /// Seed for breaking ties.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    selection: Selection,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let place = Place::ApiServer(LiveSettings {
        write_delay: Duration::from_millis(arguments.write_delay),
        bindings: arguments.bindings,
        seed: arguments.seed,
    });
    workload_files::run(&arguments.scheduler_perf, &arguments.selection, &place, arguments.output)
}
