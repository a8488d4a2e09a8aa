//! Commands that use an API server: `portolan run`, `portolan shadow` and `portolan extender` beside another scheduler,
//! and `portolan demo` with a server in memory.

pub(crate) mod demo;
pub(crate) mod extender;
pub(crate) mod fetch;
mod gates;
mod log;
pub(crate) mod run;
mod serving;
mod settings;
pub(crate) mod shadow;

pub(crate) use log::log_to_stderr;
pub(crate) use run::{Signals, duration};
pub(crate) use serving::{Certificate, Reviewers, not_secured, not_served};

use tokio::runtime::{Builder, Runtime};

use crate::error::CommandError;

/// The number of threads that run connections, and thus bindings. Threads that block belong to the scheduler. A second
/// thread would cost a quarter more processor time for the same bindings, because the two wake each other.
const THREADS: usize = 1;

pub(crate) fn runtime() -> Result<Runtime, CommandError> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(THREADS).thread_name("connections").enable_all();
    builder.build().map_err(|error| CommandError::Threads(error.to_string()))
}

/// Converts an error of the live scheduler.
pub(crate) fn live(error: impl std::fmt::Display) -> CommandError {
    CommandError::Live(error.to_string())
}

/// Keeps the heap on small pages: with huge pages, each of the many threads uses its own, which tripled the memory of a
/// scheduler of 1,000 nodes (174 MB instead of 58 MB).
fn use_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages are used");
    }
}
