//! Counts and amounts as a person reads them.

use std::borrow::Cow;
use std::fmt::Write;

use portolan::model::{LabelSelector, Operator, Requirement};

/// The text with control characters escaped, except line breaks and tabs: names from inputs must not control the
/// terminal. Also escapes characters that change the direction of text. JSON stays JSON of the same value.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unsafe(c) && c != '\n' && c != '\t')
}

/// The text in one line, with all control characters escaped: a name from an input must not add
/// lines to a result or to a log.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe)
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !is_escaped(c) => escaped.push(c),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            // As in JSON: no such character needs more than four digits. Writing to a string does not fail.
            c => drop(write!(escaped, "\\u{:04x}", u32::from(c))),
        }
    }
    Cow::Owned(escaped)
}

/// The largest number of names in a sentence.
const NAMED: usize = 3;

/// The first names, and how many follow.
pub(crate) fn first_names<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> String {
    first_of(NAMED, names)
}

/// At most this number of names, and how many follow.
pub(crate) fn first_of<N: AsRef<str>>(most: usize, names: impl IntoIterator<Item = N>) -> String {
    let mut names = names.into_iter();
    let shown: Vec<N> = names.by_ref().take(most).collect();
    let shown = shown.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    match names.count() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The text with at most this number of characters: the middle of a longer text is left out.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let head = most / 2;
    let tail = most.saturating_sub(head + 1);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{start}…{end}")
}

/// The largest number of characters of a value that [`without_long_values`] keeps.
const KEPT: usize = 32;

/// A message without the values of more than 32 characters that it quotes: texts in quotation marks, words, and
/// repeated keys of YAML, which have no marks.
pub(crate) fn without_long_values(text: &str) -> String {
    const KEY: &str = "duplicate mapping key: ";
    if let Some((before, key)) = text.split_once(KEY) {
        let (key, after) = key.rsplit_once(": ").unwrap_or((key, ""));
        let is_long = key.chars().count() > KEPT;
        let key = if is_long { "…".into() } else { without_long_values(key) };
        return format!("{}{KEY}{key}: {after}", without_long_values(before));
    }
    let mut kept = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' | '`' => {
                let mut is_escaped = false;
                let closing = rest[1..].find(|c| {
                    let closes = c == first && !is_escaped;
                    is_escaped = c == '\\' && !is_escaped;
                    closes
                });
                let end = closing.map_or(rest.len(), |at| at + 2);
                let marks = if closing.is_some() { 2 } else { 1 };
                if rest[..end].chars().count() > KEPT + marks {
                    kept.extend([first, '…', first]);
                } else {
                    kept.push_str(&rest[..end]);
                }
                end
            }
            c if is_between(c) => {
                kept.push(c);
                c.len_utf8()
            }
            _ => {
                let is_end = |c: char| is_between(c) || matches!(c, '"' | '`');
                let end = rest.find(is_end).unwrap_or(rest.len());
                let word = &rest[..end];
                kept.push_str(if word.chars().count() > KEPT { "…" } else { word });
                end
            }
        };
        rest = &rest[end..];
    }
    kept
}

/// Whether the character is between words, or between the parts of the path of a field.
fn is_between(c: char) -> bool {
    c.is_whitespace() || matches!(c, '.' | '[' | ']')
}

/// A count with its noun, whose plural ends in s: `1 pod`, `2 pods`.
pub fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// Amounts of a resource as Kubernetes quantities in one unit, so that they can be compared at a glance: cpu in cores,
/// and bytes in the largest unit that is short and exact for all of them. If no unit is, bytes are rounded to two
/// decimal places of the largest unit that no amount is smaller than, unless different amounts would become equal.
pub(crate) fn amounts<const N: usize>(
    resource: &str,
    values: [i64; N],
    rounding: Rounding,
) -> [String; N] {
    match resource {
        "cpu" => values.map(cores),
        "memory" | "ephemeral-storage" => bytes(values, rounding),
        name if name.starts_with("hugepages-") => bytes(values, rounding),
        _ => values.map(|value| value.to_string()),
    }
}

/// How [`amounts`] rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    Down,
    Up,
}

const UNITS: [(&str, u32); 3] = [("Gi", 30), ("Mi", 20), ("Ki", 10)];

/// The largest number of an exact quantity; longer ones are rounded in a larger unit.
const SHORT: i64 = 99_999;

fn bytes<const N: usize>(values: [i64; N], rounding: Rounding) -> [String; N] {
    let largest = values.into_iter().max().unwrap_or(0);
    let smallest = values.into_iter().filter(|value| *value > 0).min().unwrap_or(0);
    let is_exact = |(_, shift): &&(&str, u32)| {
        values.iter().all(|value| value % (1 << shift) == 0) && largest >> shift <= SHORT
    };
    if let Some((unit, shift)) = UNITS.iter().find(is_exact).filter(|_| smallest > 0) {
        return values.map(|value| format!("{}{unit}", value >> shift));
    }
    let exact = values.map(|value| value.to_string());
    let Some((unit, shift)) = UNITS.iter().find(|(_, shift)| smallest >= 1 << shift) else {
        return exact;
    };
    let rounded = values.map(|value| {
        let rest = if rounding == Rounding::Up { (1_i128 << shift) - 1 } else { 0 };
        let hundredths = (i128::from(value) * 100 + rest) >> shift;
        let decimals = shortest(format!("{}.{:02}", hundredths / 100, hundredths % 100));
        format!("{decimals}{unit}")
    });
    let are_equal = |a: usize, b: usize| values[a] != values[b] && rounded[a] == rounded[b];
    match (1..N).any(|b| (0..b).any(|a| are_equal(a, b))) {
        true => exact,
        false => rounded,
    }
}

/// A requirement on a label as `kubectl --selector` reads it.
pub(crate) fn requirement(requirement: &Requirement) -> String {
    let Requirement { key, operator, values } = requirement;
    let values = values.join(", ");
    match operator {
        Operator::In => format!("{key} in ({values})"),
        Operator::NotIn => format!("{key} notin ({values})"),
        Operator::Exists => key.to_string(),
        Operator::DoesNotExist => format!("!{key}"),
        Operator::Gt => format!("{key} > {values}"),
        Operator::Lt => format!("{key} < {values}"),
        _ => format!("{key} {operator:?} {values}"),
    }
}

/// A label selector as `kubectl --selector` reads it.
pub(crate) fn selector(selector: &LabelSelector) -> String {
    match selector {
        LabelSelector::Nothing => "no labels at all".to_owned(),
        LabelSelector::All(all) if all.is_empty() => "any labels".to_owned(),
        LabelSelector::All(all) => {
            let all = all.iter().map(|it| match (&it.operator, &*it.values) {
                (Operator::In, [value]) => format!("{}={value}", it.key),
                _ => requirement(it),
            });
            all.collect::<Vec<_>>().join(",")
        }
    }
}

/// Milli-CPU in cores.
pub(crate) fn cores(milli: i64) -> String {
    shortest(format!("{:.3}", milli as f64 / 1000.0))
}

/// Bytes in GiB, rounded to two decimal places.
pub(crate) fn gib(bytes: i64) -> String {
    shortest(format!("{:.2}", bytes as f64 / (1_i64 << 30) as f64))
}

/// A decimal number without trailing zeros.
fn shortest(number: String) -> String {
    number.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_left_out_of_messages() {
        let (long, short) = ("x".repeat(33), "x".repeat(32));
        let of = |message: &str| without_long_values(&message.replace("LONG", &long));
        assert_eq!(of("spec.a[0]: \"a LONG\" is not `b`"), "spec.a[0]: \"…\" is not `b`");
        assert_eq!(of(r#""a \" LONG" and `LONG` and "#), "\"…\" and `…` and ");
        assert_eq!(of("data.LONG: LONG, \"LONG"), "data.… … \"…\"");
        assert_eq!(
            of("duplicate mapping key: a b LONG: remove"),
            "duplicate mapping key: …: remove"
        );
        assert_eq!(of(&short), short);
    }

    #[test]
    fn plural_follows_the_count() {
        assert_eq!(count(0, "pod"), "0 pods");
        assert_eq!(count(1, "pod"), "1 pod");
        assert_eq!(count(2, "pod"), "2 pods");
    }

    #[test]
    fn the_middle_of_a_long_text_is_left_out() {
        assert_eq!(shortened("größer", 6), "größer");
        assert_eq!(shortened("abcdefghij", 5), "ab…ij");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\n\tb"), "a\n\tb");
        assert_eq!(printable("\u{1b}[31mred\u{7}\r"), "\\u001b[31mred\\u0007\\r");
        assert_eq!(printable("\u{9b}2J\u{202e}x\u{7f}"), "\\u009b2J\\u202ex\\u007f");
        assert_eq!(printable("größe → 3"), "größe → 3");
        assert_eq!(line("a\n\tb\u{2028}\u{61c}"), "a\\n\\tb\\u2028\\u061c");
        assert_eq!(line("größe → 3"), "größe → 3");
    }

    #[test]
    fn amounts_are_kubernetes_quantities_in_one_unit() {
        let of = |resource, values: [i64; 2]| amounts(resource, values, Rounding::Down).join(" ");
        assert_eq!(of("cpu", [2000, 250]), "2 0.25");
        assert_eq!(of("example.com/gpu", [3, 1]), "3 1");
        assert_eq!(of("memory", [3 << 30, 1 << 30]), "3Gi 1Gi");
        // The unit that is exact for both.
        assert_eq!(of("memory", [10_000 << 20, 7 << 30]), "10000Mi 7168Mi");
        assert_eq!(of("hugepages-2Mi", [64 << 20, 512 << 10]), "65536Ki 512Ki");
        // Exact numbers would be long, so they are rounded.
        assert_eq!(of("memory", [32 << 30, (31 << 30) + 1]), "32Gi 31Gi");
        let up = amounts("memory", [32 << 30, (31 << 30) + 1], Rounding::Up);
        assert_eq!(up, ["32Gi", "31.01Gi"]);
        assert_eq!(of("ephemeral-storage", [(2 << 30) - (1 << 10), 1 << 20]), "2047.99Mi 1Mi");
        assert_eq!(of("memory", [2 << 30, 5]), "2147483648 5");
        assert_eq!(of("memory", [3_000_002, 3_000_001]), "3000002 3000001");
        assert_eq!(of("memory", [3_000_001, 3_000_001]), "2.86Mi 2.86Mi");
        assert_eq!(of("memory", [4 << 30, 0]), "4Gi 0Gi");
        assert_eq!(of("memory", [i64::MAX, 1 << 40]), "8589934591.99Gi 1024Gi");
        assert_eq!(of("memory", [0, 0]), "0 0");
    }

    #[test]
    fn cores_and_gib_have_no_trailing_zeros() {
        assert_eq!((cores(15_102_250), cores(4000)), ("15102.25".to_owned(), "4".to_owned()));
        assert_eq!((gib(3 << 29), gib(100 << 30)), ("1.5".to_owned(), "100".to_owned()));
    }
}
