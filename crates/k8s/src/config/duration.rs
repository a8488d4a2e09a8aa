//! Durations as Go writes them.

/// Reads a duration as Go's `time.ParseDuration` does, such as `15s`, `1m30s` or `-1.5h`, in nanoseconds.
///
/// # Errors
///
/// Returns Go's message.
pub(super) fn go_duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    let mut sum: i128 = 0;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, unit) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(invalid());
        }
        let end = unit.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(unit.len());
        let (unit, next) = unit.split_at(end);
        let scale: i128 = match unit {
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            unit => return Err(format!("time: unknown unit {unit:?} in duration {text:?}")),
        };
        // More digits than these are out of range, or below a nanosecond.
        let value = |digits: &str| match digits {
            "" => Some(0),
            digits => digits.parse::<i128>().ok().filter(|value| *value <= i128::from(i64::MAX)),
        };
        let fraction = &fraction[..fraction.len().min(15)];
        let part = value(fraction).unwrap_or(0) * scale / 10_i128.pow(fraction.len() as u32);
        sum += value(whole).ok_or_else(invalid)? * scale + part;
        if sum > i128::from(i64::MAX) {
            return Err(invalid());
        }
        rest = next;
        if rest.is_empty() {
            let sum = i64::try_from(sum).map_err(|_| invalid())?;
            return Ok(if is_negative { -sum } else { sum });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_by_go() {
        let second = 1_000_000_000;
        for (text, nanos) in [
            ("0", 0),
            ("5s", 5 * second),
            ("1m30s", 90 * second),
            ("-1s", -second),
            ("+1.5h2m", 5_520 * second),
            ("100ms", second / 10),
            (".5s", second / 2),
            ("1.s", second),
            ("3us4µs5μs6ns", 12_006),
            ("0.100000000000000000000000001s", second / 10),
            ("2562047h47m16.854775807s", i64::MAX),
        ] {
            assert_eq!(go_duration(text), Ok(nanos), "{text}");
        }
        for (text, error) in [
            ("", "invalid duration \"\""),
            ("abc", "invalid duration \"abc\""),
            ("5", "missing unit in duration \"5\""),
            ("5d", "unknown unit \"d\" in duration \"5d\""),
            ("1..2s", "invalid duration \"1..2s\""),
            ("1 s", "unknown unit \" s\" in duration \"1 s\""),
            ("s", "invalid duration \"s\""),
            ("-", "invalid duration \"-\""),
            ("2562047h47m16.854775808s", "invalid duration \"2562047h47m16.854775808s\""),
            ("99999999999999999999h", "invalid duration \"99999999999999999999h\""),
        ] {
            assert_eq!(go_duration(text), Err(format!("time: {error}")), "{text}");
        }
    }
}
