//! A scheduler as a process: leader election, scheduling and binding threads, HTTP and HTTPS, start and end.

mod election;
mod live;
pub(crate) mod profiles;
mod secure;
mod serve;

pub use election::{Election, ElectionConfig, ElectionError};
pub use live::{LiveConfig, LiveFigures, LiveScheduler, StartError};
pub use secure::{CertificateSource, Lookup, RequestHeaders, SecureConfig, ServeError};
pub use serve::Served;
