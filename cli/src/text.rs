//! Counts and amounts as a person reads them.

use std::borrow::Cow;

use portolan::model::{LabelSelector, Operator, Requirement};

/// The text with control characters escaped, except line breaks and tabs: names from inputs
/// must not control the terminal. Also escapes characters that change the direction of text.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unsafe(c) && c != '\n' && c != '\t')
}

/// The text in one line, with all control characters escaped: a name from an input must not add
/// lines to a result.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe)
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
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

/// A count with its noun, whose plural ends in s: `1 pod`, `2 pods`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// An amount of a resource as a Kubernetes quantity, rounded to one decimal place
/// if no unit divides it.
pub(crate) fn amount(resource: &str, value: i64) -> String {
    match resource {
        "cpu" if value % 1000 == 0 => (value / 1000).to_string(),
        "cpu" => format!("{value}m"),
        "memory" | "ephemeral-storage" => bytes(value),
        name if name.starts_with("hugepages-") => bytes(value),
        _ => value.to_string(),
    }
}

fn bytes(value: i64) -> String {
    for (unit, shift) in [("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        if value >= 1 << shift && value % (1 << shift) == 0 {
            return format!("{}{unit}", value >> shift);
        }
    }
    for (unit, shift) in [("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        if value >= 1 << shift {
            return format!("{:.1}{unit}", value as f64 / (1_i64 << shift) as f64);
        }
    }
    value.to_string()
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
        assert_eq!(printable("\u{1b}[31mred\u{7}\r"), "\\u{1b}[31mred\\u{7}\\r");
        assert_eq!(printable("\u{9b}2J\u{202e}x\u{7f}"), "\\u{9b}2J\\u{202e}x\\u{7f}");
        assert_eq!(printable("größe → 3"), "größe → 3");
        assert_eq!(line("a\n\tb\u{2028}"), "a\\n\\tb\\u{2028}");
        assert_eq!(line("größe → 3"), "größe → 3");
    }

    #[test]
    fn amounts_are_kubernetes_quantities() {
        assert_eq!(amount("cpu", 2000), "2");
        assert_eq!(amount("cpu", 250), "250m");
        assert_eq!(amount("memory", 3 << 30), "3Gi");
        assert_eq!(amount("memory", (1 << 30) + 1), "1.0Gi");
        assert_eq!(amount("example.com/gpu", 3), "3");
    }

    #[test]
    fn cores_and_gib_have_no_trailing_zeros() {
        assert_eq!((cores(15_102_250), cores(4000)), ("15102.25".to_owned(), "4".to_owned()));
        assert_eq!((gib(3 << 29), gib(100 << 30)), ("1.5".to_owned(), "100".to_owned()));
    }
}
