//! Uids, which identify pods: any non-empty string.
//!
//! Nearly all uids are canonical UUIDs, which fit in 16 bytes; any other text is stored unchanged. Both forms compare,
//! hash and print like the text they were created from.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::hash::{hash_of, stable_hash_of};

/// The uid of an object: any string, stored compactly if it is a canonical UUID (lower case, hyphenated).
///
/// An empty uid is a valid value, but every operation of the engine refuses it.
#[derive(Clone, PartialEq, Eq)]
pub struct Uid(Repr);

#[derive(Clone, PartialEq, Eq)]
enum Repr {
    Uuid([u8; 16]),
    Text(Arc<str>),
}

impl Uid {
    /// Creates a uid from its text. O(len).
    #[must_use]
    pub fn new(text: &str) -> Uid {
        match parse_uuid(text) {
            Some(bytes) => Uid(Repr::Uuid(bytes)),
            None => Uid(Repr::Text(text.into())),
        }
    }

    /// Creates the uid whose canonical UUID text has these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Uid {
        Uid(Repr::Uuid(bytes))
    }

    /// Returns `true` if the text is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Repr::Text(text) if text.is_empty())
    }

    /// Returns the length of a uid that is stored as text, and 0 for a UUID.
    pub(crate) fn text_len(&self) -> usize {
        match &self.0 {
            Repr::Uuid(_) => 0,
            Repr::Text(text) => text.len(),
        }
    }

    /// Returns a 16-byte key: the UUID itself, or a hash of any other text, which is then returned as well for an exact
    /// comparison. The hash differs between processes.
    pub(crate) fn key(&self) -> ([u8; 16], Option<&str>) {
        match &self.0 {
            Repr::Uuid(bytes) => (*bytes, None),
            Repr::Text(text) => (text_key(text, |part, text| hash_of(&(part, text))), Some(text)),
        }
    }

    /// Returns a key like [`Uid::key`] that is the same in every process, for use with [`stable_hash_of`]. It must not
    /// be used for an index, because an attacker can construct collisions.
    pub(crate) fn stable_key(&self) -> StableKey {
        StableKey(match &self.0 {
            Repr::Uuid(bytes) => *bytes,
            Repr::Text(text) => text_key(text, |part, text| stable_hash_of(&(part, text))),
        })
    }

    /// Restores a uid from the result of [`Uid::key`].
    pub(crate) fn from_key(key: [u8; 16], text: Option<&str>) -> Uid {
        match text {
            None => Uid(Repr::Uuid(key)),
            Some(text) => Uid(Repr::Text(text.into())),
        }
    }
}

/// The result of [`Uid::stable_key`].
pub(crate) struct StableKey([u8; 16]);

impl Hash for StableKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

/// Returns the hash of a uid's key, see [`Uid::key`].
pub(crate) fn key_hash(key: [u8; 16]) -> u64 {
    hash_of(&key)
}

pub(crate) fn pod_name_hash(namespace: &str, name: &str) -> u64 {
    hash_of(&(namespace, name))
}

/// Returns two hashes of a text, concatenated.
fn text_key(text: &str, hash: impl Fn(u8, &str) -> u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&hash(0, text).to_le_bytes());
    key[8..].copy_from_slice(&hash(1, text).to_le_bytes());
    key
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text: &[u8; 36] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; 16];
    let mut at = 0;
    for (i, byte) in bytes.iter_mut().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            if text[at] != b'-' {
                return None;
            }
            at += 1;
        }
        *byte = hex(text[at])? << 4 | hex(text[at + 1])?;
        at += 2;
    }
    Some(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Uid {
        Uid::new(text)
    }
}

impl Hash for Uid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.key().0);
    }
}

impl Ord for Uid {
    /// Compares the texts.
    fn cmp(&self, other: &Uid) -> std::cmp::Ordering {
        match (&self.0, &other.0) {
            (Repr::Uuid(a), Repr::Uuid(b)) => a.cmp(b),
            (Repr::Text(a), Repr::Text(b)) => a.cmp(b),
            _ => self.to_string().cmp(&other.to_string()),
        }
    }
}

impl PartialOrd for Uid {
    fn partial_cmp(&self, other: &Uid) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Text(text) => f.pad(text),
            Repr::Uuid(bytes) => {
                for (i, byte) in bytes.iter().enumerate() {
                    if matches!(i, 4 | 6 | 8 | 10) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_the_text_it_was_created_from() {
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        for text in [uuid, "u0", "", "default/web-0", "01234567-89AB-CDEF-0123-456789ABCDEF"] {
            assert_eq!(Uid::new(text).to_string(), text);
        }
        assert!(matches!(Uid::new(uuid).0, Repr::Uuid(_)));
    }

    /// The uids attack a hash with a known seed: the first eight bytes make the accumulator zero, and with it every
    /// hash.
    #[test]
    fn uids_that_collide_under_the_stable_hash_do_not_in_indexes() {
        const UIDS: u64 = 64_000;
        let folded = |x: u64, y: u64| {
            let full = u128::from(x) * u128::from(y);
            full as u64 ^ (full >> 64) as u64
        };
        let seed = folded(0x706f_7274_6f6c_616e, 0x4528_21e6_38d0_1377) ^ 0x082e_fa98_ec4e_6c89;
        let key = |i: u64| {
            let mut key = [0; 16];
            key[..8].copy_from_slice(&seed.rotate_right(16).to_ne_bytes());
            key[8..].copy_from_slice(&i.to_ne_bytes());
            key
        };
        let distinct = |hash: &dyn Fn(u64) -> u64| {
            (0..UIDS).map(hash).collect::<std::collections::HashSet<u64>>().len() as u64
        };
        assert_eq!(distinct(&|i| stable_hash_of(&key(i))), 1, "the uids no longer collide");
        // Indexes store the upper half of the hash, in which one pair in 4 billion collides by chance.
        assert!(distinct(&|i| key_hash(key(i)) >> 32) > UIDS - 32);
        assert!(distinct(&|i| hash_of(&Uid::from_bytes(key(i))) & u64::from(u32::MAX)) > UIDS - 32);
    }

    #[test]
    fn the_stable_key_of_a_text_is_the_same_in_every_process() {
        let hash = |uid: &str| stable_hash_of(&(7_u64, Uid::new(uid).stable_key()));
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!([hash("default/web-0"), hash(uuid)], STABLE);
    }

    const STABLE: [u64; 2] = [10_921_551_526_958_641_600, 8_063_702_292_780_850_213];

    #[test]
    fn key_round_trips() {
        for text in ["u0", "01234567-89ab-cdef-0123-456789abcdef"] {
            let uid = Uid::new(text);
            let (key, rest) = uid.key();
            assert_eq!(Uid::from_key(key, rest), uid);
        }
    }
}
