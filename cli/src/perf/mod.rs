//! `portolan perf`: measurements, each printed with its parameters.

pub(crate) mod cache;
mod queued;
mod rivals;
pub(crate) mod sched;
mod workloads;

/// The measurements. Each takes its help text from its arguments.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Cache(cache::Arguments),
    Sched(sched::Arguments),
}
