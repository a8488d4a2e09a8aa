//! The validity period of a certificate.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls::pki_types::{CertificateDer, UnixTime};

use super::subject::{SEQUENCE, any, element};

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, which certificates of version 1 do not have.
const VERSION: u8 = 0xa0;

/// The validity period of a certificate in seconds since 1970, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    from: i64,
    until: i64,
}

impl Validity {
    /// Reads the validity period of a certificate (RFC 5280, 4.1).
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Validity> {
        let mut input = &**certificate;
        let mut certificate = element(&mut input, SEQUENCE)?;
        let mut signed = element(&mut certificate, SEQUENCE)?;
        let (first, _) = any(&mut signed)?;
        if first == VERSION {
            // The serial number.
            any(&mut signed)?;
        }
        // The algorithm of the signature, and the issuer.
        any(&mut signed)?;
        any(&mut signed)?;
        let mut times = element(&mut signed, SEQUENCE)?;
        Some(Validity { from: time(&mut times)?, until: time(&mut times)? })
    }

    pub(super) fn contains(self, now: UnixTime) -> bool {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        (self.from..=self.until).contains(&now)
    }
}

/// Takes a time: `YYMMDDHHMMSSZ` for the years 1950 to 2049, or `YYYYMMDDHHMMSSZ`.
fn time(input: &mut &[u8]) -> Option<i64> {
    let (tag, text) = any(input)?;
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let pair = |at: usize| -> Option<i8> {
        let pair = digits.get(at..at + 2)?;
        i8::try_from((pair[0] - b'0') * 10 + (pair[1] - b'0')).ok()
    };
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => match i16::from(pair(0)?) {
            year @ 50.. => (1900 + year, 2),
            year => (2000 + year, 2),
        },
        (GENERALIZED_TIME, 14) => (100 * i16::from(pair(0)?) + i16::from(pair(2)?), 4),
        _ => return None,
    };
    let [month, day, hour, minute, second] = [0, 2, 4, 6, 8].map(|at| pair(rest + at));
    let time = DateTime::new(year, month?, day?, hour?, minute?, second?, 0).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    #[test]
    fn the_validity_of_a_certificate_is_read() {
        let key = KeyPair::generate().expect("a key");
        // UTCTime ends with 2049.
        for (from, until) in [(1970, 2049), (2000, 2050), (1975, 4096)] {
            let mut params = CertificateParams::default();
            (params.not_before, params.not_after) =
                (rcgen::date_time_ymd(from, 2, 28), rcgen::date_time_ymd(until, 12, 31));
            let expected = Validity {
                from: params.not_before.unix_timestamp(),
                until: params.not_after.unix_timestamp(),
            };
            let made = params.self_signed(&key).expect("a certificate");
            assert_eq!(Validity::of(made.der()), Some(expected));
        }
    }

    #[test]
    fn both_ends_belong_to_the_time() {
        let validity = Validity { from: 10, until: 12 };
        let at = |second| {
            validity.contains(UnixTime::since_unix_epoch(std::time::Duration::from_secs(second)))
        };
        assert_eq!([9, 10, 12, 13].map(at), [false, true, true, false]);
    }

    #[test]
    fn malformed_times_are_refused() {
        let read = |tag, text: &[u8]| {
            let length = u8::try_from(text.len()).expect("short");
            time(&mut &[&[tag, length], text].concat()[..])
        };
        assert_eq!(read(UTC_TIME, b"700101000001Z"), Some(1));
        assert_eq!(read(GENERALIZED_TIME, b"19700101000001Z"), Some(1));
        for text in
            [&b"700101000001"[..], b"7001010001Z", b"701301000001Z", b"70010100000aZ", b"Z", b""]
        {
            assert_eq!(read(UTC_TIME, text), None);
        }
        assert_eq!(read(GENERALIZED_TIME, b"700101000001Z"), None);
    }
}
