//! Parses RFC 3339 times, as Kubernetes writes them: `2024-05-01T12:00:00.5Z`.

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
    let part = |bytes: std::ops::Range<usize>| number(&date[bytes]);
    let (year, month, day) = (part(0..4)?, part(5..7)?, part(8..10)?);
    let (hour, minute, second) = (part(11..13)?, part(14..16)?, part(17..19)?);
    let in_range = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !in_range {
        return None;
    }
    let (nanos, offset) = fraction(rest)?;
    let seconds = days_before(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second
        - zone(offset)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos).map(Timestamp)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, digit| {
        digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0'))
    })
}

/// Parses an optional fraction of a second, truncated to nanoseconds, and returns it with the remaining bytes.
fn fraction(rest: &[u8]) -> Option<(i64, &[u8])> {
    let [b'.', rest @ ..] = rest else { return Some((0, rest)) };
    let length = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    if length == 0 {
        return None;
    }
    let kept = number(&rest[..length.min(9)])?;
    Some((kept * 10_i64.pow(9 - length.min(9) as u32), &rest[length..]))
}

/// Parses a UTC offset, and returns it in seconds east of Greenwich.
fn zone(offset: &[u8]) -> Option<i64> {
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

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the number of days from 1970-01-01 to a date (Howard Hinnant's `days_from_civil`).
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
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

    #[test]
    fn consecutive_dates_differ_by_one_day() {
        let mut day = days_before(1899, 12, 31);
        for year in 1900..2101 {
            for month in 1..=12 {
                for d in 1..=days_in(year, month) {
                    assert_eq!(days_before(year, month, d), day + 1);
                    day += 1;
                }
            }
        }
    }
}
