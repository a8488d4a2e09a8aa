//! The body of the fuzz target, shared by the fuzzer and `tests/fuzz_corpus.rs`: compares quantities with
//! arbitrary-precision arithmetic.
//!
//! The oracle parses the text independently and shares no code with the parser. It treats the number as one fraction,
//! which it rounds and caps once, at the end.

use arbitrary::{Arbitrary, Unstructured};
use num_bigint::{BigInt, BigUint};
use portolan::model::Quantity;

const SUFFIXES: [&str; 24] = [
    "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e", "E",
    "K", "mi", "i", ".", "KiB", "e-",
];

/// A text that is usually a valid quantity.
#[derive(Arbitrary, Debug)]
enum Text<'a> {
    Any(&'a str),
    Number {
        sign: u8,
        whole: Digits,
        point: bool,
        fraction: Digits,
        suffix: u8,
    },
    Power {
        whole: Digits,
        fraction: Digits,
        upper: bool,
        exponent: i16,
    },
    FarPower {
        whole: Digits,
        exponent: i64,
    },
    Whole(i64),
    Milli(i64),
    /// A number of billionths: the finest unit, over the whole range.
    Nanos(i128),
}

/// Zeros, nines and further digits, each repeated a number of times.
#[derive(Arbitrary, Debug)]
struct Digits {
    zeros: u8,
    nines: u8,
    rest: u32,
    none: bool,
}

impl Digits {
    fn text(&self) -> String {
        if self.none {
            return String::new();
        }
        let (zeros, nines) = (usize::from(self.zeros) % 48, usize::from(self.nines) % 48);
        format!("{}{}{}", "0".repeat(zeros), "9".repeat(nines), self.rest)
    }
}

impl Text<'_> {
    fn text(&self) -> String {
        match self {
            Text::Any(text) => (*text).to_owned(),
            Text::Number { sign, whole, point, fraction, suffix } => {
                let sign = ["", "", "-", "+"][usize::from(sign % 4)];
                let suffix = SUFFIXES[usize::from(*suffix) % SUFFIXES.len()];
                let fraction = if *point { format!(".{}", fraction.text()) } else { String::new() };
                format!("{sign}{}{fraction}{suffix}", whole.text())
            }
            Text::Power { whole, fraction, upper, exponent } => {
                let e = if *upper { 'E' } else { 'e' };
                format!("{}.{}{e}{}", whole.text(), fraction.text(), exponent % 512)
            }
            Text::FarPower { whole, exponent } => format!("-{}e{exponent}", whole.text()),
            Text::Whole(units) => units.to_string(),
            Text::Milli(thousandths) => format!("{thousandths}m"),
            Text::Nanos(nanos) => format!("{nanos}n"),
        }
    }
}

/// Beyond this power of ten, every number is out of range in either direction.
const FAR: i64 = 1_000;

/// Returns the number of billionths that a text denotes, or `None` if it is not a quantity.
fn expected(text: &str) -> Option<BigInt> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || whole.len() + fraction.len() == 0 {
        return None;
    }
    let digits: BigUint = format!("0{whole}{fraction}").parse().ok()?;
    let ten = |power: i64| BigUint::from(10_u32).pow(u32::try_from(power).unwrap_or(0));
    let fraction = fraction.len() as i64;
    // The result is digits × times / ten(over), in billionths.
    let (times, over, cap) = match suffix {
        "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => {
            let power = "KMGTPE".find(&suffix[..1])? as u64 + 1;
            (ten(9) << (10 * power), fraction, BigUint::from(i64::MAX as u64) * ten(9))
        }
        _ => {
            let power: i64 = match suffix {
                "" => 0,
                "n" | "u" | "m" => "num".find(suffix)? as i64 * 3 - 9,
                "k" => 3,
                "M" | "G" | "T" | "P" | "E" => "MGTPE".find(suffix)? as i64 * 3 + 6,
                _ => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
            };
            // All powers beyond `FAR` have the same effect.
            let far = FAR + number.len() as i64;
            let power = power.clamp(-far, far) + 9 - fraction;
            (ten(power.max(0)), (-power).max(0), BigUint::from(i128::MAX as u128))
        }
    };
    let (amount, unit) = (digits * times, ten(over));
    let amount = ((amount + &unit - 1_u32) / unit).min(cap);
    Some(if text.starts_with('-') { -BigInt::from(amount) } else { amount.into() })
}

/// Converts billionths to multiples of `unit` billionths, rounded away from zero and capped to 64 bits.
fn rounded(nanos: &BigInt, unit: u32) -> i64 {
    let magnitude = (nanos.magnitude() + unit - 1_u32) / unit;
    let whole = BigInt::from_biguint(nanos.sign(), magnitude);
    let max = if nanos < &BigInt::ZERO { i64::MIN } else { i64::MAX };
    i64::try_from(whole).unwrap_or(max)
}

/// Returns the canonical text of a number of billionths.
fn canonical(nanos: &BigInt) -> String {
    if *nanos == BigInt::ZERO {
        return "0".to_owned();
    }
    let digits = nanos.to_string();
    let zeros = digits.len() - digits.trim_end_matches('0').len();
    let thousands = (zeros / 3).min(9);
    let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][thousands];
    format!("{}{suffix}", &digits[..digits.len() - thousands * 3])
}

/// Checks all properties of one quantity.
fn check(found: Quantity, nanos: &BigInt) {
    assert_eq!(&BigInt::from(found.nanos()), nanos);
    assert_eq!(found.value(), rounded(nanos, 1_000_000_000), "{nanos}");
    assert_eq!(found.milli_value(), rounded(nanos, 1_000_000), "{nanos}");
    assert_eq!(found.is_zero(), *nanos == BigInt::ZERO);
    assert_eq!(found.is_negative(), *nanos < BigInt::ZERO);
    let text = found.to_string();
    assert_eq!(text, canonical(nanos));
    assert_eq!(format!("{found:>50}"), format!("{text:>50}"));
    assert_eq!(text.parse(), Ok(found), "{text} does not parse to the same quantity");
}

/// Runs one input.
pub(crate) fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let mut known: Vec<(Quantity, BigInt)> = Vec::new();
    while !input.is_empty() && known.len() < 16 {
        let Ok(seed) = Text::arbitrary(&mut input) else { break };
        match seed {
            Text::Whole(units) => {
                let nanos = BigInt::from(units) * 1_000_000_000;
                check(Quantity::whole(units), &nanos);
            }
            Text::Milli(thousandths) => {
                let nanos = BigInt::from(thousandths) * 1_000_000;
                check(Quantity::milli(thousandths), &nanos);
            }
            _ => {}
        }
        let text = seed.text();
        match (text.parse::<Quantity>(), expected(&text)) {
            (Ok(found), Some(nanos)) => {
                check(found, &nanos);
                known.push((found, nanos));
            }
            (Err(error), None) => {
                assert_eq!(error.text, text);
                assert!(error.to_string().starts_with("quantity \""));
            }
            (found, nanos) => panic!("{text:?} is {nanos:?} but was parsed as {found:?}"),
        }
    }
    let max = BigInt::from(i128::MAX);
    let (mut sum, mut exact) = (Quantity::default(), BigInt::ZERO);
    for (found, nanos) in &known {
        sum = sum + *found;
        exact = (exact + nanos).clamp(-&max, max.clone());
        check(sum, &exact);
        for (other, other_nanos) in &known {
            assert_eq!(found.cmp(other), nanos.cmp(other_nanos));
            assert_eq!(found == other, nanos == other_nanos);
            assert_eq!(*found + *other, *other + *found);
        }
    }
}
