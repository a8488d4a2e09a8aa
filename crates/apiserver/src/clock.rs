//! The clock of resourceVersions, times in the format of the API, and generated names and uids.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::random::mix;

/// Counts versions across all kinds, as etcd's revision does, and generates uids and name suffixes. Uids and suffixes
/// depend on the seed and the order of requests.
#[derive(Debug)]
pub(crate) struct Clock {
    version: AtomicU64,
    made: AtomicU64,
    seed: u64,
}

impl Clock {
    pub(crate) fn new(seed: u64) -> Self {
        Clock { version: AtomicU64::new(1), made: AtomicU64::new(0), seed }
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
        mix(self.seed ^ mix(self.made.fetch_add(1, Ordering::Relaxed)))
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

/// The present time plus `seconds`, a few centuries at most.
pub(crate) fn later(seconds: u64) -> String {
    format_time(SystemTime::now() + Duration::from_secs(seconds))
}

fn format_time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Civil date from the days since 1970, counted in eras of 400 years that begin on the 1st of March.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> String {
        format_time(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn times_are_civil_dates() {
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(at(1_795_372_799), "2026-11-22T18:39:59Z");
    }

    #[test]
    fn uids_follow_from_the_seed() {
        let uids = |seed| {
            let clock = Clock::new(seed);
            (0..100).map(|_| clock.uid()).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(uids(1).len(), 100);
        assert_eq!(uids(1), uids(1));
        assert!(uids(1).is_disjoint(&uids(2)));
        assert!(uids(1).iter().all(|uid| uid.len() == 36 && uid.as_bytes()[14] == b'4'));
    }
}
