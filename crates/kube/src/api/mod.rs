//! Requests to a Kubernetes API server, and the meaning of its answers.

mod client;
mod connect;
mod credentials;
mod error;
mod lines;
mod pace;
mod requests;
mod resource;

pub(crate) use client::Patch;
pub use client::{Api, ConnectError, Limits};
pub use connect::Connection;
pub use error::{ApiError, Refusal};
pub(crate) use error::{NO_LEASE, in_time, is_unsent, reasons};
pub(crate) use lines::Lines;
pub(crate) use requests::register_metrics;
pub use resource::Resource;

/// Decodes `%2f` and other escape sequences. `None` if one is invalid.
pub(crate) fn unescape(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => digit(bytes.next()?)? << 4 | digit(bytes.next()?)?,
            _ => byte,
        });
    }
    Some(decoded)
}
