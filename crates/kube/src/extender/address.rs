//! The address of an extender, whose credentials are sent in a header and never shown.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

use crate::api::unescape;

/// A `urlPrefix`, split into its parts.
pub(super) struct Address {
    /// The address without credentials.
    pub(super) server: String,
    /// The address as messages show it.
    pub(super) shown: String,
    /// The value of the header `Authorization`, if the address has credentials (Go's `http.Client`).
    pub(super) authorization: Option<HeaderValue>,
}

impl Address {
    /// Separates an address from its credentials.
    ///
    /// # Errors
    ///
    /// The credentials have an invalid escape sequence.
    pub(super) fn read(prefix: &str) -> Result<Address, String> {
        let shown = redacted(prefix);
        let Some((scheme, credentials, rest)) = split(prefix) else {
            return Ok(Address { server: prefix.to_owned(), shown, authorization: None });
        };
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        let invalid = || "the credentials have an invalid escape sequence".to_owned();
        let mut pair = unescape(user).ok_or_else(invalid)?;
        pair.push(b':');
        pair.extend(unescape(password).ok_or_else(invalid)?);
        let value = format!("Basic {}", STANDARD.encode(pair));
        let mut value = HeaderValue::try_from(value).map_err(|error| error.to_string())?;
        value.set_sensitive(true);
        Ok(Address { server: format!("{scheme}{rest}"), shown, authorization: Some(value) })
    }
}

/// Returns an address with `***` for its password (Go's `http.Client`).
pub(super) fn redacted(prefix: &str) -> String {
    match split(prefix) {
        Some((scheme, credentials, rest)) => match credentials.split_once(':') {
            Some((user, _)) => format!("{scheme}{user}:***@{rest}"),
            None => prefix.to_owned(),
        },
        None => prefix.to_owned(),
    }
}

/// Splits an address into the scheme with its slashes, the credentials, and the rest.
fn split(prefix: &str) -> Option<(&str, &str, &str)> {
    let start = prefix.find("://").map_or(0, |at| at + "://".len());
    let (scheme, rest) = prefix.split_at(start);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let at = rest[..end].rfind('@')?;
    Some((scheme, &rest[..at], &rest[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_sent_and_not_shown() {
        for (prefix, server, shown, pair) in [
            ("http://h:1/v", "http://h:1/v", "http://h:1/v", None),
            ("http://u:pw@h:1/v", "http://h:1/v", "http://u:***@h:1/v", Some("u:pw")),
            ("https://u:p@w@h?a@b", "https://h?a@b", "https://u:***@h?a@b", Some("u:p@w")),
            ("http://u@h", "http://h", "http://u@h", Some("u:")),
            ("http://a%40b:%2Fc@h", "http://h", "http://a%40b:***@h", Some("a@b:/c")),
            ("u:pw@h", "h", "u:***@h", Some("u:pw")),
            ("http://h/a@b", "http://h/a@b", "http://h/a@b", None),
        ] {
            let address = Address::read(prefix).expect("valid");
            assert_eq!((&*address.server, &*address.shown), (server, shown));
            let expected = pair.map(|pair| format!("Basic {}", STANDARD.encode(pair)));
            let value = address.authorization.map(|value| {
                assert!(value.is_sensitive());
                value.to_str().expect("text").to_owned()
            });
            assert_eq!(value, expected, "{prefix}");
        }
        for invalid in ["http://u:%zz@h", "http://u:%4@h", "http://%:p@h"] {
            assert!(Address::read(invalid).is_err_and(|why| !why.contains('%')), "{invalid}");
        }
    }
}
