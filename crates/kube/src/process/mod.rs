//! A scheduler as a process: leader election, scheduling threads and bindings, HTTP and HTTPS, start and end.

mod binding;
mod election;
mod lease;
mod live;
mod pool;
mod pressure;
pub(crate) mod profiles;
mod requests;
mod scheduling;
mod secure;
mod serve;
mod shards;
mod threads;

pub(crate) use election::register_leadership;
pub use election::{Election, ElectionConfig, ElectionError};
pub use live::{LiveConfig, LiveFigures, LiveScheduler, StartError};
pub use profiles::checked_settings;
pub use secure::{
    BearerError, BearerReviews, CertificateSource, Lookup, RequestHeaders, SecureConfig, ServeError,
};
pub use serve::{ConnectionState, ListenAddress, ListenError, Served};
pub use shards::ShardHolder;
