//! Durations and timestamps, in the notations of Go.

use std::cmp::Ordering;

use jiff::civil;
use jiff::tz::{Offset, TimeZone};

use super::error::Fault;

const NANOS: i64 = 1_000_000_000;
/// The years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
const OVERFLOW: Fault = Fault::Fixed("timestamp overflow");

/// A point in time, with the offset in which it is written. The offset does not count in comparisons.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timestamp {
    pub(super) seconds: i64,
    pub(super) nanos: i32,
    offset: i32,
}

impl Timestamp {
    pub(super) fn from_seconds(seconds: i64) -> Result<Timestamp, Fault> {
        Timestamp::new(seconds, 0, 0)
    }

    fn new(seconds: i64, nanos: i32, offset: i32) -> Result<Timestamp, Fault> {
        if SECONDS.contains(&seconds) {
            Ok(Timestamp { seconds, nanos, offset })
        } else {
            Err(OVERFLOW)
        }
    }

    /// Parses RFC 3339 as Go does: nothing if the text is malformed.
    pub(super) fn parse(text: &str) -> Option<Result<Timestamp, Fault>> {
        let field = |from: usize, len: usize| -> Option<i32> {
            let digits = text.get(from..from + len)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        let signs = [(4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":")];
        if signs.iter().any(|(at, sign)| text.get(*at..*at + 1) != Some(*sign)) {
            return None;
        }
        let date = civil::Date::new(
            field(0, 4)?.try_into().ok()?,
            field(5, 2)?.try_into().ok()?,
            field(8, 2)?.try_into().ok()?,
        )
        .ok()?;
        let (hour, minute, second) = (field(11, 2)?, field(14, 2)?, field(17, 2)?);
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut rest = text.get(19..)?;
        let mut nanos = 0;
        if let Some(fraction) = rest.strip_prefix(['.', ',']) {
            let len = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if len == 0 {
                return None;
            }
            let digits = format!("{:0<9}", &fraction[..len]);
            nanos = digits[..9].parse().ok()?;
            rest = &fraction[len..];
        }
        let offset = match rest.as_bytes() {
            b"Z" => 0,
            [sign @ (b'+' | b'-'), ..] if rest.len() == 6 && rest.get(3..4) == Some(":") => {
                let at = text.len() - 6;
                let (hours, minutes) = (field(at + 1, 2)?, field(at + 4, 2)?);
                if hours > 24 || minutes > 59 {
                    return None;
                }
                (hours * 60 + minutes) * 60 * if *sign == b'-' { -1 } else { 1 }
            }
            _ => return None,
        };
        let days = date.duration_since(civil::date(1970, 1, 1)).as_secs();
        let seconds = days + i64::from(hour * 3600 + minute * 60 + second - offset);
        Some(Timestamp::new(seconds, nanos, offset))
    }

    /// Returns the time `nanos` later.
    pub(super) fn add(self, nanos: i64) -> Result<Timestamp, Fault> {
        let sum = i64::from(self.nanos) + nanos.rem_euclid(NANOS);
        let seconds = self
            .seconds
            .checked_add(nanos.div_euclid(NANOS) + sum.div_euclid(NANOS))
            .ok_or(OVERFLOW)?;
        // A remainder below 10^9.
        Timestamp::new(seconds, sum.rem_euclid(NANOS) as i32, self.offset)
    }

    /// Returns the nanoseconds from `other` to this time.
    pub(super) fn since(self, other: Timestamp) -> Result<i64, Fault> {
        let nanos = i128::from(self.seconds - other.seconds) * i128::from(NANOS)
            + i128::from(self.nanos - other.nanos);
        i64::try_from(nanos).map_err(|_| Fault::Fixed("duration overflow"))
    }

    fn instant(self) -> jiff::Timestamp {
        jiff::Timestamp::new(self.seconds, self.nanos).unwrap_or_default()
    }

    /// Returns the date and time of day in a zone: a name, or an offset such as `-08:00`.
    pub(super) fn civil(self, zone: &str) -> Result<civil::DateTime, Fault> {
        let zone = if let Some((hours, minutes)) = zone.split_once(':') {
            let number = |text: &str| {
                text.parse::<i32>().map_err(|_| {
                    Fault::text(format!("strconv.Atoi: parsing {text:?}: invalid syntax"))
                })
            };
            let (hours, minutes) = (number(hours)?, number(minutes)?);
            let minutes = if zone.starts_with('-') { minutes.saturating_neg() } else { minutes };
            let seconds = hours.saturating_mul(60).saturating_add(minutes).saturating_mul(60);
            Offset::from_seconds(seconds)
                .map(|offset| offset.to_time_zone())
                .map_err(|_| Fault::text(format!("unknown time zone {zone}")))?
        } else if matches!(zone, "" | "UTC") {
            TimeZone::UTC
        } else {
            TimeZone::get(zone).map_err(|_| Fault::text(format!("unknown time zone {zone}")))?
        };
        Ok(zone.to_datetime(self.instant()))
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shifted = jiff::Timestamp::new(self.seconds + i64::from(self.offset), 0);
        let time = TimeZone::UTC.to_datetime(shifted.unwrap_or_default());
        write!(f, "{}", time.strftime("%Y-%m-%dT%H:%M:%S"))?;
        if self.nanos > 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Timestamp) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Timestamp) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Timestamp) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

/// Parses `1h30m`, `-1.5s` and the like into nanoseconds: nothing if the text is malformed or too large.
pub(super) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let len = digits(rest);
        let (whole, after) = rest.split_at(len);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (unit, len) = [
            ("ns", 1),
            ("us", 1_000),
            ("µs", 1_000),
            ("μs", 1_000),
            ("ms", 1_000_000),
            ("s", NANOS),
            ("m", 60 * NANOS),
            ("h", 3_600 * NANOS),
        ]
        .iter()
        .find(|(name, _)| after.starts_with(name))
        .map(|(name, unit)| (i128::from(*unit), name.len()))?;
        rest = &after[len..];
        if !rest.is_empty() && !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(unit)?)?;
        let kept = &fraction[..fraction.len().min(18)];
        if !kept.is_empty() {
            let scale = 10_i128.pow(kept.len() as u32);
            total = total.checked_add(kept.parse::<i128>().ok()? * unit / scale)?;
        }
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Writes nanoseconds as seconds: `5400s`.
pub(super) fn format_duration(nanos: i64) -> String {
    let seconds = (nanos / NANOS) as f64 + (nanos % NANOS) as f64 / 1e9;
    format!("{seconds}s")
}
