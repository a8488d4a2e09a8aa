//! Lists as bytes, which take a fraction of the memory of their items. An item is decoded when it is read.

use std::borrow::Cow;

use portolan::model::Uid;
use serde::{Deserialize, Serialize};

/// Items as bytes, one after the other. Readers must decode the type that was encoded.
pub(super) struct Packed {
    bytes: Box<[u8]>,
    len: usize,
}

impl Packed {
    pub(super) fn of<T: Serialize>(items: impl IntoIterator<Item = T>) -> postcard::Result<Packed> {
        let (mut bytes, mut len) = (Vec::new(), 0);
        for item in items {
            bytes = postcard::to_extend(&item, bytes)?;
            len += 1;
        }
        Ok(Packed { bytes: bytes.into(), len })
    }

    /// The number of items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter<'b, T: Deserialize<'b>>(
        &'b self,
    ) -> impl Iterator<Item = postcard::Result<T>> {
        let mut rest = &*self.bytes;
        (0..self.len).map(move |_| {
            let (item, after) = postcard::take_from_bytes(rest)?;
            rest = after;
            Ok(item)
        })
    }
}

/// A uid in a list: 17 bytes if it is a UUID.
#[derive(Serialize, Deserialize)]
pub(super) enum PackedUid<'b> {
    Uuid([u8; 16]),
    Text(#[serde(borrow)] Cow<'b, str>),
}

impl From<Uid> for PackedUid<'_> {
    fn from(uid: Uid) -> Self {
        let text = uid.to_string();
        let bytes = u128::from_str_radix(&text.replace('-', ""), 16).map(u128::to_be_bytes);
        match bytes {
            Ok(bytes) if Uid::from_bytes(bytes) == uid => PackedUid::Uuid(bytes),
            _ => PackedUid::Text(text.into()),
        }
    }
}

impl From<PackedUid<'_>> for Uid {
    fn from(packed: PackedUid<'_>) -> Uid {
        match packed {
            PackedUid::Uuid(bytes) => Uid::from_bytes(bytes),
            PackedUid::Text(text) => Uid::new(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_those_that_were_packed() {
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        let texts = [uuid, "u0", "", "0123456789abcdef0123456789abcdef", &uuid.to_uppercase()];
        let uids = texts.map(Uid::new);
        let packed = Packed::of(uids.iter().cloned().map(PackedUid::from)).unwrap();
        let read: Vec<Uid> = packed.iter().map(|uid| PackedUid::into(uid.unwrap())).collect();
        assert_eq!(read, uids);
        let of_first = Packed::of([PackedUid::from(uids[0].clone())]).unwrap();
        assert_eq!(of_first.bytes.len(), 17);
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let mut packed = Packed::of(["one", "two"]).unwrap();
        packed.bytes = packed.bytes[..6].into();
        let read: Vec<postcard::Result<&str>> = packed.iter().collect();
        assert!(matches!(read[..], [Ok("one"), Err(_)]));
    }
}
