//! Named formats of Kubernetes: `format.dns1123Label().validate("a-b")`.

use super::time::Timestamp;
use super::url::Url;

/// A format that a string can have.
#[derive(Debug)]
pub(super) struct Format {
    pub(super) name: &'static str,
    /// The length of a pattern that the format would take, for costs.
    pub(super) pattern: u64,
    /// Returns what is wrong with the text.
    pub(super) check: fn(&str) -> Vec<String>,
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// All formats, under the name of the function that returns each.
static FORMATS: [(&str, Format); 13] = [
    ("dns1123Label", Format { name: "DNS1123Label", pattern: 30, check: label }),
    ("dns1123Subdomain", Format { name: "DNS1123Subdomain", pattern: 60, check: subdomain }),
    ("dns1035Label", Format { name: "DNS1035Label", pattern: 30, check: label_1035 }),
    ("qualifiedName", Format { name: "QualifiedName", pattern: 60, check: qualified_name }),
    (
        "dns1123LabelPrefix",
        Format { name: "DNS1123LabelPrefix", pattern: 30, check: |t| label(&as_prefix(t)) },
    ),
    (
        "dns1123SubdomainPrefix",
        Format { name: "DNS1123SubdomainPrefix", pattern: 60, check: |t| subdomain(&as_prefix(t)) },
    ),
    (
        "dns1035LabelPrefix",
        Format { name: "DNS1035LabelPrefix", pattern: 30, check: |t| label_1035(&as_prefix(t)) },
    ),
    ("labelValue", Format { name: "LabelValue", pattern: 40, check: label_value }),
    (
        "uri",
        Format {
            name: "URI",
            pattern: 1103,
            check: |text| Url::parse(text).err().into_iter().collect(),
        },
    ),
    (
        "uuid",
        Format {
            name: "uuid",
            pattern: 70,
            check: |text| unless(is_uuid(text), "does not match the UUID format"),
        },
    ),
    (
        "byte",
        Format {
            name: "byte",
            pattern: 84,
            check: |text| unless(is_base64(text), "invalid base64"),
        },
    ),
    (
        "date",
        Format { name: "date", pattern: 84, check: |text| unless(is_date(text), "invalid date") },
    ),
    (
        "datetime",
        Format {
            name: "datetime",
            pattern: 84,
            check: |text| unless(is_datetime(text), "invalid datetime"),
        },
    ),
];

/// Returns the format of a name such as `dns1123Label`.
pub(super) fn named(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|(known, _)| *known == name).map(|(_, format)| format)
}

/// Returns the names of all formats.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().map(|(name, _)| *name)
}

fn unless(valid: bool, message: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![message.to_owned()] }
}

/// Checks the length and the characters: those at the ends, and those between.
fn check(
    text: &str,
    max: usize,
    first: impl Fn(u8) -> bool,
    inner: impl Fn(u8) -> bool,
    last: impl Fn(u8) -> bool,
    message: &str,
) -> Vec<String> {
    let bytes = text.as_bytes();
    let matches = bytes.first().is_some_and(|b| first(*b))
        && bytes.last().is_some_and(|b| last(*b))
        && bytes.iter().all(|b| inner(*b));
    let mut errors = Vec::new();
    if text.len() > max {
        errors.push(format!("must be no more than {max} characters"));
    }
    errors.extend(unless(matches, message));
    errors
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn word(byte: u8) -> bool {
    alphanumeric(byte) || b"-_.".contains(&byte)
}

fn label(text: &str) -> Vec<String> {
    check(text, 63, lower, |b| lower(b) || b == b'-', lower, LABEL)
}

fn label_1035(text: &str) -> Vec<String> {
    let first = |b: u8| b.is_ascii_lowercase();
    check(text, 63, first, |b| lower(b) || b == b'-', lower, LABEL_1035)
}

fn subdomain(text: &str) -> Vec<String> {
    let valid = text.split('.').all(|part| {
        check(part, usize::MAX, lower, |b| lower(b) || b == b'-', lower, "").is_empty()
    });
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push("must be no more than 253 characters".to_owned());
    }
    errors.extend(unless(valid, SUBDOMAIN));
    errors
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(subdomain(prefix).iter().map(|error| format!("prefix part {error}")));
            }
            *name
        }
        _ => {
            return vec![format!(
                "a qualified name {NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    }
    let found = check(name, 63, alphanumeric, word, alphanumeric, NAME);
    errors.extend(found.iter().map(|error| format!("name part {error}")));
    errors
}

fn label_value(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    check(text, 63, alphanumeric, word, alphanumeric, VALUE)
}

/// Replaces a dash at the end, which a generated suffix may follow.
fn as_prefix(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut kept = rest.to_owned();
            kept.pop();
            kept.push('a');
            kept
        }
        _ => text.to_owned(),
    }
}

fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (i, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.get(..len) {
            Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => rest = &rest[len..],
            _ => return false,
        }
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    text.len().is_multiple_of(4)
        && padding <= 2
        && (padding == 0 || !body.is_empty())
        && body.bytes().all(|b| alphanumeric(b) || b"+/".contains(&b))
}

fn is_date(text: &str) -> bool {
    Timestamp::parse(&format!("{text}T00:00:00Z")).is_some() && text.len() == 10
}

fn is_datetime(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let Some((date, time)) = text.split_once('t') else { return false };
    let time = time.split('t').next().unwrap_or_default();
    is_date(date) && Timestamp::parse(&format!("{date}T{}", time.replace('z', "Z"))).is_some()
}
