//! The `portolan` program: schedules the pods of a Kubernetes cluster, replays workloads, explains pending pods and
//! answers what-if questions.
//!
//! A library only so that the measurements of `bench/` can share its parts. These are not for other crates.
#![allow(missing_docs)]

mod alloc;
mod arguments;
mod cluster;
mod columns;
mod compare;
mod creation;
mod error;
mod explain;
mod files;
mod html;
mod input;
mod inspect;
mod intake;
#[cfg(feature = "cluster")]
mod live;
mod manual;
mod metrics;
mod names;
mod output;
mod page;
mod pod_list;
mod policy;
mod random;
mod replacement;
mod replay;
mod resource_claims;
mod selection;
#[cfg(feature = "cluster")]
mod serve;
mod server;
mod simulation;
mod table;
mod targets;
mod terminal;
mod text;
mod what_if;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

#[doc(hidden)]
pub use alloc::{keep_freed_memory, live_bytes};
#[doc(hidden)]
pub use arguments::{at_least_one, complete};
#[doc(hidden)]
pub use error::CommandError;
#[doc(hidden)]
pub use files::Wrong;
#[doc(hidden)]
pub use input::read;
#[doc(hidden)]
pub use random::Random;
#[doc(hidden)]
pub use simulation::{closed, event};
#[doc(hidden)]
pub use table::{plain, right};
#[doc(hidden)]
pub use text::count;

/// Schedule the pods of a Kubernetes cluster, replay workloads, explain pending pods and answer what-if questions.
///
/// Exit status: 0 on success, 1 if a check failed, 2 if an argument or an input is invalid.
#[derive(Parser)]
#[command(name = "portolan", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Omit progress bars, and notes on standard error. The result, warnings and errors are still printed.
    #[arg(long, short, global = true)]
    quiet: bool,
}

/// The commands. Each takes its help text from its arguments.
#[derive(Subcommand)]
enum Command {
    Replay(replay::Arguments),
    Explain(explain::Arguments),
    Compare(compare::Arguments),
    WhatIf(Box<what_if::Arguments>),
    Dump(inspect::dump::Arguments),
    Audit(inspect::audit::Arguments),
    #[cfg(feature = "cluster")]
    Run(Box<live::run::Arguments>),
    #[cfg(feature = "cluster")]
    Shadow(live::shadow::Arguments),
    #[cfg(feature = "cluster")]
    Extender(live::extender::Arguments),
    #[cfg(feature = "cluster")]
    Demo(live::demo::Arguments),
    #[cfg(feature = "cluster")]
    Serve(Box<serve::Arguments>),
    /// Schedule the pods of a cluster (in builds with the feature cluster).
    #[cfg(not(feature = "cluster"))]
    Run(server::Absent),
    /// Compare the decisions of a cluster's scheduler with portolan's (in builds with the feature cluster).
    #[cfg(not(feature = "cluster"))]
    Shadow(server::Absent),
    /// Answer another scheduler as an extender (in builds with the feature cluster).
    #[cfg(not(feature = "cluster"))]
    Extender(server::Absent),
    /// Schedule pods through an API server in this process (in builds with the feature cluster).
    #[cfg(not(feature = "cluster"))]
    Demo(server::Absent),
    /// Answer questions about a cluster over HTTP (in builds with the feature cluster).
    #[cfg(not(feature = "cluster"))]
    Serve(server::Absent),
    Completions(manual::Completions),
    Man(manual::Man),
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Tables for people.
    Table,
    /// One JSON object for programs.
    Json,
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    main_with(std::env::args_os().skip(1))
}

/// Runs the program with these arguments. No thread may have been started.
#[doc(hidden)]
#[must_use]
pub fn main_with(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words = std::iter::once("portolan".into()).chain(words);
    let matches = arguments::complete(Arguments::command()).get_matches_from(words);
    let Arguments { command, quiet } =
        Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if !matches!(command, Command::Extender(_)) {
        // SAFETY: no thread has been started.
        #[allow(unsafe_code)]
        unsafe {
            alloc::keep_freed_memory();
        }
    }
    terminal::set_quiet(quiet);
    let result = match command {
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::WhatIf(arguments) => what_if::run(&arguments),
        Command::Dump(arguments) => inspect::dump::run(&arguments),
        Command::Audit(arguments) => inspect::audit::run(&arguments),
        #[cfg(feature = "cluster")]
        Command::Run(arguments) => live::run::run(&arguments),
        #[cfg(not(feature = "cluster"))]
        Command::Run(arguments) => arguments.run("portolan run"),
        #[cfg(feature = "cluster")]
        Command::Shadow(arguments) => live::shadow::run(&arguments),
        #[cfg(not(feature = "cluster"))]
        Command::Shadow(arguments) => arguments.run("portolan shadow"),
        #[cfg(feature = "cluster")]
        Command::Extender(arguments) => live::extender::run(&arguments),
        #[cfg(not(feature = "cluster"))]
        Command::Extender(arguments) => arguments.run("portolan extender"),
        #[cfg(feature = "cluster")]
        Command::Demo(arguments) => live::demo::run(&arguments),
        #[cfg(not(feature = "cluster"))]
        Command::Demo(arguments) => arguments.run("portolan demo"),
        #[cfg(feature = "cluster")]
        Command::Serve(arguments) => serve::run(&arguments),
        #[cfg(not(feature = "cluster"))]
        Command::Serve(arguments) => arguments.run("portolan serve"),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Man(arguments) => manual::man(&arguments),
    };
    exit_code(result)
}

/// Prints an error, and returns the exit status of the process.
#[doc(hidden)]
#[must_use]
pub fn exit_code(result: Result<ExitCode, CommandError>) -> ExitCode {
    match result {
        Ok(code) => code,
        // The reader closed the pipe early, as `head` does.
        Err(CommandError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(failure) => {
            terminal::error(&failure.text());
            ExitCode::from(2)
        }
    }
}

/// A histogram of nanoseconds, or of seconds of waiting time.
#[doc(hidden)]
pub fn histogram() -> Result<hdrhistogram::Histogram<u64>, CommandError> {
    let histogram = hdrhistogram::Histogram::new_with_bounds(1, 60_000_000_000, 3);
    histogram.map_err(|error| CommandError::Usage(error.to_string()))
}

/// Prints a result and a line break, whether or not `--quiet` is set.
#[doc(hidden)]
pub fn print(text: &str) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    let text = text::printable(text);
    out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).map_err(CommandError::Output)
}
