//! A scheduler as a process: leader election, scheduling and binding threads, HTTP and HTTPS, start and end.

mod election;
mod lease;
mod live;
pub(crate) mod profiles;
mod secure;
mod serve;
mod shards;

pub use election::{Election, ElectionConfig, ElectionError};
pub use live::{LiveConfig, LiveFigures, LiveScheduler, StartError};
pub use secure::{CertificateSource, Lookup, RequestHeaders, SecureConfig, ServeError};
pub use serve::Served;
pub use shards::ShardHolder;
