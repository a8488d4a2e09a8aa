//! URLs by the rules of Go's net/url, of which `url.ParseRequestURI` accepts absolute URLs and paths.

use std::borrow::Cow;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) scheme: String,
    opaque: String,
    user: String,
    pub(super) host: String,
    /// The path as it was written.
    raw_path: String,
    path: Vec<u8>,
    query: String,
    fragment: String,
}

/// Which characters need no escape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Query,
}

impl Url {
    /// Returns the URL, or the error of Go.
    pub(super) fn parse(text: &str) -> Result<Url, String> {
        let fail = |reason: String| format!("parse {text:?}: {reason}");
        // The whole text is checked first, then it is split at the fragment.
        parse(text).map_err(fail)?;
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        let url = parse(text).map_err(fail)?;
        Ok(Url { fragment: fragment.to_owned(), ..url })
    }

    pub(super) fn hostname(&self) -> &str {
        if let Some(inner) = self.host.strip_prefix('[') {
            return inner.split_once(']').map_or(inner, |(name, _)| name);
        }
        self.host.split_once(':').map_or(&self.host, |(name, _)| name)
    }

    pub(super) fn port(&self) -> &str {
        let after = self.host.rfind(']').map_or(0, |at| at + 1);
        self.host[after..].split_once(':').map_or("", |(_, port)| port)
    }

    pub(super) fn escaped_path(&self) -> Cow<'_, str> {
        let valid = |b: u8| b"!$&'()*+,;=:@[]%".contains(&b) || !must_escape(b, Part::Path);
        if self.raw_path.bytes().all(valid) {
            return Cow::Borrowed(&self.raw_path);
        }
        let mut escaped = String::with_capacity(self.raw_path.len());
        for &byte in &self.path {
            if must_escape(byte, Part::Path) {
                escaped.push_str(&format!("%{byte:02X}"));
            } else {
                escaped.push(byte as char);
            }
        }
        Cow::Owned(escaped)
    }

    /// Returns the keys and values of the query; malformed ones are left out.
    pub(super) fn query(&self) -> impl Iterator<Item = (String, String)> {
        self.query.split('&').filter(|part| !part.is_empty() && !part.contains(';')).filter_map(
            |part| {
                let (key, value) = part.split_once('=').unwrap_or((part, ""));
                let text = |escaped| {
                    let bytes = unescape(escaped, Part::Query).ok()?;
                    Some(String::from_utf8_lossy(&bytes).into_owned())
                };
                Some((text(key)?, text(value)?))
            },
        )
    }
}

fn parse(text: &str) -> Result<Url, String> {
    if text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() {
        return Err("empty url".to_owned());
    }
    let mut url = Url::default();
    if text == "*" {
        url.raw_path = text.to_owned();
        url.path = text.into();
        return Ok(url);
    }
    let (scheme, rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    url.query = query.to_owned();
    if !rest.starts_with('/') {
        if url.scheme.is_empty() {
            return Err("invalid URI for request".to_owned());
        }
        url.opaque = rest.to_owned();
        return Ok(url);
    }
    if let Some(authority) = rest.strip_prefix("//").filter(|_| !url.scheme.is_empty()) {
        let end = authority.find('/').unwrap_or(authority.len());
        rest = &authority[end..];
        let (user, host) = match authority[..end].rsplit_once('@') {
            Some((user, host)) => (user, host),
            None => ("", &authority[..end]),
        };
        if !user.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b)) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        url.user = user.to_owned();
        url.host = host_of(host)?;
    }
    url.path = unescape(rest, Part::Path)?;
    url.raw_path = rest.to_owned();
    Ok(url)
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn host_of(host: &str) -> Result<String, String> {
    let port = if host.starts_with('[') {
        let end = host.rfind(']').ok_or_else(|| "missing ']' in host".to_owned())?;
        &host[end + 1..]
    } else {
        host.rfind(':').map_or("", |at| &host[at..])
    };
    let valid = port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    if !valid {
        return Err(format!("invalid port {port:?} after host"));
    }
    let bytes = unescape(host, Part::Host)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn must_escape(byte: u8, part: Part) -> bool {
    let plain = byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let allowed: &[u8] = match part {
        Part::Path => b"$&+,/:;=@",
        Part::Host => b"!$&'()*+,;=:[]<>\"",
        Part::Query => b"",
    };
    !plain && !allowed.contains(&byte)
}

fn unescape(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'%' => {
                let digits = bytes.get(at..at + 2).and_then(|d| std::str::from_utf8(d).ok());
                let code = digits
                    .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))
                    .and_then(|d| u8::from_str_radix(d, 16).ok());
                let refused = || {
                    let end = bytes.len().min(at + 2);
                    let escape = String::from_utf8_lossy(&bytes[at - 1..end]);
                    format!("invalid URL escape {escape:?}")
                };
                let code = code.ok_or_else(refused)?;
                if part == Part::Host && code < 0x80 && code != b'%' {
                    return Err(refused());
                }
                out.push(code);
                at += 2;
            }
            b'+' if part == Part::Query => out.push(b' '),
            byte if part == Part::Host && byte < 0x80 && must_escape(byte, part) => {
                let character = char::from(byte).to_string();
                return Err(format!("invalid character {character:?} in host name"));
            }
            byte => out.push(byte),
        }
    }
    Ok(out)
}
