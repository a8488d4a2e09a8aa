//! The receiver of a reflector's objects.

use portolan_k8s::ReadError;
use serde_json::value::RawValue;

use super::submit::Stopped;
use super::wire::Meta;

/// Why an object was not passed on.
#[derive(Debug)]
pub(super) enum NotPut {
    /// The object cannot be read. The next one can.
    Unreadable(ReadError),
    /// An object of resource.k8s.io cannot be read. The next one can.
    Malformed(serde_json::Error),
    /// The object lacks this field, which identifies it.
    Lacks(&'static str),
    /// The mirror has stopped.
    Stopped,
}

impl From<Stopped> for NotPut {
    fn from(Stopped: Stopped) -> NotPut {
        NotPut::Stopped
    }
}

/// Receives the changes of one kind, in order. A list is a call of `begin`, one of `put` or `keep` for each object, and
/// one of `end`; if it is interrupted, another one begins.
pub(super) trait Sink: Send + 'static {
    /// A complete list begins.
    fn begin(&mut self);

    /// Adds an object, or replaces the one with its name.
    fn put(
        &mut self,
        object: &RawValue,
        meta: &Meta<'_>,
    ) -> impl Future<Output = Result<(), NotPut>> + Send;

    /// Records that an object exists whose new version cannot be read. The old version stays.
    fn keep(&mut self, meta: &Meta<'_>);

    /// Removes an object.
    fn delete(&mut self, meta: &Meta<'_>) -> impl Future<Output = Result<(), Stopped>> + Send;

    /// The list is complete: objects that did not exist at this version of the server are removed. Returns when the
    /// engine has published the list.
    fn end(&mut self, version: u64) -> impl Future<Output = Result<(), Stopped>> + Send;
}
