//! Measures portolan, each figure printed with its parameters, and compares it with recorded answers of kube-scheduler.

mod cache;
mod conformance;
mod cycles;
mod drains;
mod measure;
mod nofit;
mod processes;
mod queued;
mod results;
mod sched;
mod serving;
mod threads;
mod vectors;
mod workloads;
mod writes;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use portolan_cli::Wrong;

/// Measure portolan, and compare it with recorded answers of kube-scheduler.
///
/// Exit status: 0 on success, 1 if a check failed, 2 if an argument or an input is invalid.
#[derive(Parser)]
#[command(name = "portolan-bench")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// The commands. Each takes its help text from its arguments.
#[derive(Subcommand)]
enum Command {
    Cache(cache::Arguments),
    Sched(Box<sched::Arguments>),
    Threads(threads::Arguments),
    Drains(drains::Arguments),
    Conformance(conformance::Arguments),
    Serve(serving::Arguments),
    /// Run the program `portolan`, as the server that is measured.
    #[command(hide = true)]
    Portolan {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    // SAFETY: no thread has been started.
    #[allow(unsafe_code)]
    unsafe {
        portolan_cli::keep_freed_memory();
    }
    let matches = portolan_cli::complete(Arguments::command()).get_matches();
    let Arguments { command } =
        Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    portolan_cli::exit_code(match command {
        Command::Cache(arguments) => cache::run(&arguments),
        Command::Sched(arguments) => sched::run(&arguments),
        Command::Threads(arguments) => threads::run(&arguments),
        Command::Drains(arguments) => drains::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Serve(arguments) => serving::run(&arguments),
        Command::Portolan { words } => return portolan_cli::main_with(words),
    })
}
