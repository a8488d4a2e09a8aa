//! Lists: paginated or complete, at the latest or at an earlier version.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::ApiError;
use crate::resources::Resource;
use crate::selectors::Selection;
use crate::store::{Key, Store};

/// The parameters of a list.
#[derive(Debug)]
pub(crate) struct List<'a> {
    pub(crate) resource: &'static Resource,
    pub(crate) selection: Selection,
    /// 0 means all.
    pub(crate) limit: usize,
    /// The token of the previous page, or empty.
    pub(crate) continuation: &'a str,
}

/// Stands for the latest version in a token.
const LATEST: u64 = 0;

/// The position at which a list continues, and the version of its first page.
#[derive(Debug, PartialEq)]
struct Continuation {
    version: u64,
    after: Key,
}

impl Continuation {
    fn encode(&self) -> String {
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("{}.{}.{}", self.version, hex(&self.after.namespace), hex(&self.after.name))
    }

    fn decode(token: &str) -> Option<Self> {
        let text = |hex: &str| -> Option<String> {
            let bytes = (0..hex.len()).step_by(2);
            let bytes = bytes
                .map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
                .collect::<Option<Vec<u8>>>()?;
            String::from_utf8(bytes).ok()
        };
        let mut parts = token.split('.');
        let (version, namespace, name) =
            (parts.next()?.parse().ok()?, text(parts.next()?)?, text(parts.next()?)?);
        parts.next().is_none().then_some(Continuation { version, after: Key { namespace, name } })
    }
}

const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a \
    new list without the continue parameter, or use the continue token in this response to retrieve the remainder of \
    the results. Continuing with the provided token results in an inconsistent list - objects that were created, \
    modified, or deleted between the time the first chunk was returned and now may show up in the list.";

impl List<'_> {
    /// Returns the response body.
    pub(crate) fn body(&self, store: &Store) -> Result<Bytes, ApiError> {
        let from = match self.continuation {
            "" => None,
            token => match Continuation::decode(token) {
                Some(from) => Some(from),
                None => return Err(ApiError::bad_request("continue key is not valid")),
            },
        };
        let limit = if self.limit == 0 { usize::MAX } else { self.limit };
        // A list may continue although its version has expired.
        let at = from.as_ref().map(|from| from.version).filter(|version| *version != LATEST);
        let collection = store.of(self.resource);
        let after = from.as_ref().map(|from| &from.after);
        let select = |object: &crate::store::Version| self.selection.selects(object);
        let (read, more) =
            collection.list(&self.selection.namespace, after, limit, at, select).map_err(|_| {
                let after = after.cloned().unwrap_or_else(|| Key::new("", ""));
                let next = Continuation { version: LATEST, after };
                ApiError { next: Some(next.encode()), ..ApiError::expired(TOO_OLD) }
            })?;
        let size: usize = read.items.iter().map(|item| item.body.len() + 1).sum();
        let mut out = BytesMut::with_capacity(size + 256);
        let header = format!(
            "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{{\"resourceVersion\":\"{}\"",
            self.resource.kind,
            self.resource.api_version(),
            read.version
        );
        out.put_slice(header.as_bytes());
        if let (true, Some(last)) = (more, read.items.last()) {
            let token = Continuation { version: read.version, after: last.key.clone() }.encode();
            out.put_slice(format!(",\"continue\":\"{token}\"").as_bytes());
        }
        out.put_slice(b"},\"items\":[");
        for (index, item) in read.items.iter().enumerate() {
            if index > 0 {
                out.put_u8(b',');
            }
            out.put_slice(&item.body);
        }
        out.put_slice(b"]}");
        Ok(out.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continuations_survive_encoding() {
        let continuation = Continuation { version: 17, after: Key::new("kube-system", "a.b-c") };
        assert_eq!(Continuation::decode(&continuation.encode()), Some(continuation));
        for token in ["", "x", "1.61", "1.6.6", "1.61.61.61", "1.zz.61", "1.é.61"] {
            assert_eq!(Continuation::decode(token), None, "{token}");
        }
    }
}
