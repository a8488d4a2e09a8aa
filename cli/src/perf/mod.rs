//! Measurements, each printed with what it was taken over.

pub(crate) mod cache;

/// What to measure.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// The cache: adding, assuming, publishing, reading.
    Cache(cache::Arguments),
}
