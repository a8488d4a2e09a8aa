//! The clock of resourceVersions, times in the format of the API, and generated names and uids.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use crate::random::mix;

/// Counts versions across all kinds, as etcd's revision does, and generates uids and name suffixes. Uids and suffixes
/// depend on the order of requests.
#[derive(Debug)]
pub(crate) struct Clock {
    version: AtomicU64,
    made: AtomicU64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Clock { version: AtomicU64::new(1), made: AtomicU64::new(0) }
    }

    /// The latest version.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// A new version. The caller holds the lock of the collection that it writes, so that the versions of a collection
    /// appear in order.
    pub(crate) fn next_version(&self) -> u64 {
        self.version.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn draw(&self) -> u64 {
        mix(mix(self.made.fetch_add(1, Ordering::Relaxed)))
    }

    /// A uid in the form of a random UUID.
    pub(crate) fn uid(&self) -> String {
        let (a, b) = (self.draw(), self.draw());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            0x8000 | ((b >> 48) & 0x3fff),
            b & 0xffff_ffff_ffff
        )
    }

    /// The five characters that follow `generateName`.
    pub(crate) fn suffix(&self) -> String {
        let mut draw = self.draw();
        (0..5)
            .map(|_| {
                let letter = ALPHABET[(draw % ALPHABET.len() as u64) as usize] as char;
                draw /= ALPHABET.len() as u64;
                letter
            })
            .collect()
    }
}

/// Letters and digits of name suffixes. Without vowels, no suffix is a word.
pub(crate) const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The present time in seconds, as `metadata.creationTimestamp`.
pub(crate) fn now() -> String {
    later(0)
}

/// The present time plus `seconds`.
pub(crate) fn later(seconds: u64) -> String {
    let time = Timestamp::now().saturating_add(Duration::from_secs(seconds));
    time.unwrap_or(Timestamp::MAX).strftime("%FT%TZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_differ_and_repeat() {
        let uids = || {
            let clock = Clock::new();
            (0..100).map(|_| clock.uid()).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(uids().len(), 100);
        assert_eq!(uids(), uids());
        assert!(uids().iter().all(|uid| uid.len() == 36 && uid.as_bytes()[14] == b'4'));
    }
}
