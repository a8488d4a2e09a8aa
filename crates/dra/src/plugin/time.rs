//! Times as the API writes them (RFC 3339).

use portolan::model::Timestamp;

/// Parses a time such as `2026-01-02T03:04:05Z`, with an optional fraction and offset. Returns `None` if the text is not
/// a time.
pub(super) fn parse_time(text: &str) -> Option<Timestamp> {
    let time: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(time.as_nanosecond()).ok().map(Timestamp)
}

/// Writes a time in whole seconds.
pub(super) fn write_time(time: Timestamp) -> String {
    // Every number of nanoseconds in 64 bits is within jiff's range.
    let time = jiff::Timestamp::from_second(time.0.div_euclid(1_000_000_000));
    time.unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for text in ["1970-01-01T00:00:00Z", "2024-02-29T23:59:59Z", "2100-12-31T12:00:01Z"] {
            assert_eq!(parse_time(text).map(write_time).as_deref(), Some(text));
        }
        assert_eq!(parse_time("2026-01-01T01:00:00.5+01:00"), parse_time("2026-01-01T00:00:00.5Z"));
        assert_eq!(parse_time("1970-01-01T00:00:01Z"), Some(Timestamp::from_secs(1)));
        for text in ["", "2026", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T0:0Z"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
