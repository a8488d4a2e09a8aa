//! Times as the API writes them (RFC 3339).

use portolan::model::Timestamp;

/// Parses a time such as `2026-01-02T03:04:05Z`, with an optional fraction and offset. Returns `None` if the text is not
/// a time.
#[must_use]
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_once(['T', 't'])?;
    let mut date = date.splitn(3, '-').map(str::parse::<i64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let zone = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(zone);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut clock = clock.splitn(3, ':').map(str::parse::<i64>);
    let (hour, minute, second) = (clock.next()?.ok()?, clock.next()?.ok()?, clock.next()?.ok()?);
    let valid = (0..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..=23).contains(&hour)
        && (0..=59).contains(&minute)
        && (0..=60).contains(&second);
    if !valid || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let nanos: i64 = format!("{:0<9}", &fraction[..fraction.len().min(9)]).parse().ok()?;
    let offset = match zone.strip_prefix(['+', '-']) {
        None => 0,
        Some(offset) => {
            let (hours, minutes) = offset.split_once(':')?;
            let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
            if !(0..=23).contains(&hours) || !(0..=59).contains(&minutes) {
                return None;
            }
            let seconds = (hours * 60 + minutes) * 60;
            if zone.starts_with('-') { -seconds } else { seconds }
        }
    };
    let days = days_before(year) + days_before_month(year, month) + day - 1;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second - offset;
    Some(Timestamp(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

/// Writes a time in whole seconds. Times before 1970 are written as 1970.
#[must_use]
pub fn write_time(time: Timestamp) -> String {
    let seconds = (time.0 / 1_000_000_000).max(0);
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let month = (1..=12).rev().find(|month| days_before_month(year, *month) <= days).unwrap_or(1);
    let day = days - days_before_month(year, month) + 1;
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

fn is_leap(year: i64) -> bool {
    (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
}

/// Returns the days from 1970 to the start of the year.
fn days_before(year: i64) -> i64 {
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
}

fn days_before_month(year: i64, month: i64) -> i64 {
    const DAYS: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let days = usize::try_from(month - 1).ok().and_then(|at| DAYS.get(at)).copied().unwrap_or(0);
    days + i64::from(month > 2 && is_leap(year))
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
