//! Times as the API writes them.

use jiff::Timestamp;

/// Formats a time as `metav1.Time`: UTC, in seconds.
pub(super) fn seconds(time: Timestamp) -> String {
    format!("{time:.0}")
}

/// Formats a time as `metav1.MicroTime`: UTC, in microseconds.
pub(super) fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_cut_and_not_rounded() {
        let time: Timestamp = "2026-11-22T18:57:01.9876549Z".parse().expect("a time");
        assert_eq!(seconds(time), "2026-11-22T18:57:01Z");
        assert_eq!(micros(time), "2026-11-22T18:57:01.987654Z");
        assert_eq!(micros(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }
}
