//! Measurements, each printed with what it was taken over.

pub(crate) mod cache;
mod queued;
mod rivals;
pub(crate) mod sched;
mod workloads;

/// What to measure.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// The cache: adding, assuming, publishing, reading.
    Cache(cache::Arguments),
    /// Scheduling cycles: version, filters, scores, assume, reserve, permit.
    Sched(sched::Arguments),
}
