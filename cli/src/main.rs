//! The `portolan` program: replays workloads, checks answers against
//! kube-scheduler's, measures the engine.

mod alloc;
mod cluster;
mod compare;
mod conformance;
mod error;
mod explain;
mod files;
mod input;
mod inspect;
mod metrics;
mod output;
mod perf;
mod replay;
mod table;
mod vectors;
mod what_if;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use error::Failure;

/// What would happen if, why a pod is pending, how fast it is.
///
/// Exit status: 0 where all went well, 1 where a check failed, 2 where the
/// arguments or an input are unusable.
#[derive(Parser)]
#[command(name = "portolan", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Places a workload pod by pod, as a scheduler would.
    Replay(replay::Arguments),
    /// Says why a pod is pending, node by node, or where it would go.
    Explain(explain::Arguments),
    /// Places one workload under several configurations, and says what differs.
    Compare(compare::Arguments),
    /// Says what would become of pods if nodes went or came.
    WhatIf(what_if::Arguments),
    /// Prints what an engine knows of a cluster, store by store.
    Dump(inspect::dump::Arguments),
    /// Checks a cluster, and what an engine makes of it.
    Audit(inspect::audit::Arguments),
    /// Compares answers with those that kube-scheduler gave.
    Conformance(conformance::Arguments),
    /// Measures the engine.
    #[command(subcommand)]
    Perf(perf::Command),
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For programs: one object.
    Json,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::WhatIf(arguments) => what_if::run(&arguments),
        Command::Dump(arguments) => inspect::dump::run(&arguments),
        Command::Audit(arguments) => inspect::audit::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Perf(perf::Command::Cache(arguments)) => perf::cache::run(&arguments),
        Command::Perf(perf::Command::Sched(arguments)) => perf::sched::run(&arguments),
    };
    match result {
        Ok(code) => code,
        // Whoever reads us has seen enough.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("portolan: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Counts times in nanoseconds, or seconds of waiting.
fn histogram() -> Result<hdrhistogram::Histogram<u64>, Failure> {
    let histogram = hdrhistogram::Histogram::new_with_bounds(1, 60_000_000_000, 3);
    histogram.map_err(|error| Failure::Usage(error.to_string()))
}

/// Prints a result whole.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).map_err(Failure::Output)
}
