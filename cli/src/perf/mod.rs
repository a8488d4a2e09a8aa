//! `portolan perf`: measurements, each printed with its parameters.

pub(crate) mod cache;
mod check;
mod cycles;
pub(crate) mod live;
mod measure;
mod nofit;
mod processes;
mod queued;
mod results;
mod rivals;
pub(crate) mod sched;
mod workload_files;
mod workloads;

/// The measurements. Each takes its help text from its arguments.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Cache(cache::Arguments),
    Sched(Box<sched::Arguments>),
    Live(live::Arguments),
}
