//! Parses RFC 3339 times, as Kubernetes writes them: `2024-05-01T12:00:00.5Z`.

use jiff::civil::DateTime;
use jiff::tz::Offset;
use portolan::model::Timestamp;

/// Parses an RFC 3339 time. Returns `None` if the text is not one, or if the time is out of the range of 64-bit
/// nanoseconds (years 1677 to 2262).
pub(super) fn parse(text: &str) -> Option<Timestamp> {
    let text = text.as_bytes();
    let (date, rest) = text.split_at_checked(19)?;
    let is_separated = date[4] == b'-' && date[7] == b'-' && date[13] == b':' && date[16] == b':';
    if !is_separated || !date[10].eq_ignore_ascii_case(&b'T') {
        return None;
    }
    let part = |at: usize| i8::try_from(number(&date[at..at + 2])?).ok();
    let year = i16::try_from(number(&date[..4])?).ok()?;
    let (nanos, offset) = fraction(rest)?;
    let (month, day, hour, minute, second) = (part(5)?, part(8)?, part(11)?, part(14)?, part(17)?);
    let time = DateTime::new(year, month, day, hour, minute, second, nanos).ok()?;
    let time = Offset::from_seconds(zone(offset)?).ok()?.to_timestamp(time).ok()?;
    i64::try_from(time.as_nanosecond()).ok().map(Timestamp)
}

fn number(digits: &[u8]) -> Option<i32> {
    digits.iter().try_fold(0, |sum, digit| {
        digit.is_ascii_digit().then(|| sum * 10 + i32::from(digit - b'0'))
    })
}

/// Parses an optional fraction of a second, truncated to nanoseconds, and returns it with the remaining bytes.
fn fraction(rest: &[u8]) -> Option<(i32, &[u8])> {
    let [b'.', rest @ ..] = rest else { return Some((0, rest)) };
    let length = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    if length == 0 {
        return None;
    }
    let kept = number(&rest[..length.min(9)])?;
    Some((kept * 10_i32.pow(9 - length.min(9) as u32), &rest[length..]))
}

/// Parses a UTC offset, and returns it in seconds east of Greenwich.
fn zone(offset: &[u8]) -> Option<i32> {
    match offset {
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
            let seconds = hours * 3_600 + minutes * 60;
            (hours < 24 && minutes < 60).then_some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_3339_times_are_nanoseconds_since_the_epoch() {
        let nanos = |text: &str| parse(text).map(|t| t.0);
        assert_eq!(nanos("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(nanos("2024-02-29T12:00:00Z"), Some(1_709_208_000_000_000_000));
        assert_eq!(nanos("2000-03-01T01:00:00+01:00"), Some(951_868_800_000_000_000));
        assert_eq!(nanos("1969-12-31T23:59:59.5Z"), Some(-500_000_000));
        assert_eq!(nanos("2024-01-01T00:00:00.123456789123Z"), Some(1_704_067_200_123_456_789));
    }

    #[test]
    fn invalid_times_are_refused() {
        for text in [
            "",
            "Z",
            "2024-01-01",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00+1:00",
            "9999-01-01T00:00:00Z",
            "2024-01-01T00:00:00Zé",
            "２024-01-01T00:00:0Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
