//! Why a request failed, and what is known about its effect.

use std::error::Error as StdError;
use std::time::Duration;

use hyper_util::client::legacy;
use serde::Deserialize;
use tokio::time::timeout;

/// Why nothing is written while the fence is closed.
pub(crate) const NO_LEASE: &str = "this scheduler does not hold its lease";

/// Why a request to an API server failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The server answered with an error.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The request cannot be built, for instance because a name is not valid in a path. Nothing was sent, and a retry
    /// cannot succeed.
    #[error("the request is invalid: {0}")]
    Invalid(String),
    /// The server could not be reached, so the request had no effect.
    #[error("the API server cannot be reached: {0}")]
    Unreachable(String),
    /// The permission to write had ended ([`Api::with_permission`](super::Api::with_permission)), so nothing was sent.
    #[error("{NO_LEASE}")]
    NotPermitted,
    /// The connection broke, or the time ran out, before the answer was complete. A write may have taken effect.
    #[error("the API server did not answer: {0}")]
    NoAnswer(String),
    /// The answer does not conform to the API.
    #[error("the API server's answer cannot be read: {0}")]
    Malformed(String),
}

/// An error that the API server returned (`metav1.Status`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, such as `AlreadyExists`, or an empty string.
    pub reason: String,
    /// The message for people.
    pub message: String,
    /// How long the server asks to wait, from the header `Retry-After`.
    pub retry_after: Option<Duration>,
}

/// The fields of `metav1.Status` that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct WireStatus {
    code: u16,
    reason: String,
    message: String,
}

impl Refusal {
    /// Reads an answer with this HTTP status code. The body of a proxy or of a server that is shutting down need not be
    /// a `Status`; then its text is the message.
    pub(super) fn read(code: u16, body: &[u8], retry_after: Option<Duration>) -> Refusal {
        match serde_json::from_slice::<WireStatus>(body) {
            Ok(status) if !status.message.is_empty() || !status.reason.is_empty() => {
                Refusal { code, reason: status.reason, message: status.message, retry_after }
            }
            _ => {
                let text = String::from_utf8_lossy(body);
                let text: String = text.trim().chars().take(1_024).collect();
                let message = match text.is_empty() {
                    true => format!("the API server answered with status {code}"),
                    false => format!("the API server answered with status {code}: {text}"),
                };
                Refusal { code, reason: String::new(), message, retry_after }
            }
        }
    }

    /// Reads the object of a watch event of type `ERROR`.
    ///
    /// # Errors
    ///
    /// The bytes are not a `Status`.
    pub fn of_watch(object: &[u8]) -> Result<Refusal, ApiError> {
        let status: WireStatus = serde_json::from_slice(object)
            .map_err(|error| ApiError::Malformed(format!("a watch's error: {error}")))?;
        let WireStatus { code, reason, message } = status;
        Ok(Refusal { code, reason, message, retry_after: None })
    }
}

impl ApiError {
    /// Returns the HTTP status code, if the server answered with an error.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            ApiError::Refused(refusal) => Some(refusal.code),
            _ => None,
        }
    }

    /// Returns whether the object does not exist (404).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Returns whether the object is in another state than the request requires (409).
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Returns whether the requested version is no longer stored (410), so the objects must be listed again.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, ApiError::Refused(refusal) if refusal.code == 410 || refusal.reason == "Expired")
    }

    /// Returns how long the server asks to wait, if it does.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            ApiError::Refused(refusal) => refusal.retry_after,
            _ => None,
        }
    }

    /// Returns how long to wait before a retry: the time that the server asks for, but at least the caller's `own` wait
    /// and at most `longest`. If the server does not ask for a wait, returns `own`. A server that asks for 0 s is not
    /// retried at once.
    #[must_use]
    pub fn wait(&self, own: Duration, longest: Duration) -> Duration {
        self.retry_after().map_or(own, |asked| asked.min(longest).max(own))
    }

    /// Returns whether a write that failed in this way may have taken effect nevertheless: the server failed (5xx) or
    /// did not answer.
    #[must_use]
    pub fn may_have_been_done(&self) -> bool {
        match self {
            ApiError::Refused(refusal) => refusal.code >= 500,
            ApiError::NoAnswer(_) | ApiError::Malformed(_) => true,
            ApiError::Unreachable(_) | ApiError::NotPermitted | ApiError::Invalid(_) => false,
        }
    }

    /// Returns whether the same read may succeed soon: the server was not reached, did not answer, failed (5xx) or asks
    /// to wait (429).
    pub(crate) fn may_be_temporary(&self) -> bool {
        match self {
            ApiError::Refused(refusal) => refusal.code == 429 || refusal.code >= 500,
            ApiError::NoAnswer(_) | ApiError::Unreachable(_) => true,
            ApiError::Malformed(_) | ApiError::NotPermitted | ApiError::Invalid(_) => false,
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> ApiError {
        ApiError::Refused(Box::new(refusal))
    }
}

/// Bounds the time of requests whose outcome is unknown after it.
pub(crate) async fn in_time<T>(
    limit: Duration,
    requests: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    let late = || ApiError::NoAnswer(format!("no answer within {} s", limit.as_secs_f32()));
    timeout(limit, requests).await.unwrap_or_else(|_| Err(late()))
}

/// Returns the text of an error with its causes, without repetitions.
pub(crate) fn reasons(error: &(dyn StdError + 'static)) -> String {
    let mut reasons = vec![error.to_string()];
    let mut source = error.source();
    while let Some(error) = source {
        let reason = error.to_string();
        if !reasons.last().is_some_and(|last| last.contains(&reason)) {
            reasons.push(reason);
        }
        source = error.source();
    }
    reasons.join(": ")
}

/// Returns whether the connection failed before anything was sent.
pub(crate) fn is_unsent(error: &(dyn StdError + 'static)) -> bool {
    let mut source = Some(error);
    while let Some(error) = source {
        if error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect) {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_and_other_bodies_are_quoted() {
        let body = br#"{"kind":"Status","code":409,"reason":"Conflict","message":"pod a is already assigned"}"#;
        let refusal = Refusal::read(409, body, None);
        assert_eq!(refusal.to_string(), "pod a is already assigned");
        assert_eq!(refusal.reason, "Conflict");
        let refusal = Refusal::read(502, b"<html>bad gateway</html>\n", None);
        assert_eq!(
            refusal.message,
            "the API server answered with status 502: <html>bad gateway</html>"
        );
        assert_eq!(
            Refusal::read(500, b"", None).message,
            "the API server answered with status 500"
        );
    }

    #[test]
    fn a_wait_is_at_least_the_callers_own_and_at_most_the_longest() {
        let waits = |asked: Option<u64>| {
            let asked = asked.map(Duration::from_secs);
            let error = ApiError::from(Refusal::read(429, b"", asked));
            error.wait(Duration::from_secs(3), Duration::from_secs(30)).as_secs()
        };
        let asked = [None, Some(0), Some(1), Some(7), Some(31), Some(u64::MAX)];
        assert_eq!(asked.map(waits), [3, 3, 3, 7, 30, 30]);
        let none = ApiError::NoAnswer(String::new());
        assert_eq!(none.wait(Duration::from_secs(3), Duration::from_secs(1)).as_secs(), 3);
    }

    #[test]
    fn only_failures_of_the_server_leave_a_write_unknown() {
        let refused = |code| ApiError::from(Refusal::read(code, b"", None));
        assert!(refused(500).may_have_been_done() && refused(503).may_have_been_done());
        assert!(!refused(409).may_have_been_done() && !refused(429).may_have_been_done());
        assert!(ApiError::NoAnswer(String::new()).may_have_been_done());
        assert!(!ApiError::Unreachable(String::new()).may_have_been_done());
        assert!(
            refused(410).is_gone() && refused(404).is_not_found() && refused(409).is_conflict()
        );
    }
}
