//! `string.format`, in the locale en_US.

use super::super::ast::{Expr, Kind};
use super::super::error::Fault;
use super::super::types::Type;
use super::super::value::{MAX_TEXT, Value, Work, text_work};
use super::convert::{display, display_double, parse_double};

/// The digits after the point, unless a clause says otherwise.
const PRECISION: usize = 6;
const MAX_PRECISION: usize = 1_000;

#[derive(Clone, Copy, PartialEq)]
enum Clause {
    String,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Hex { upper: bool },
    Octal,
}

pub(super) fn format<'a>(args: &[Value<'a>], work: &mut Work) -> Result<Value<'a>, Fault> {
    let [Value::Str(pattern), Value::List(items)] = args else { return Err(Fault::Overload) };
    let mut out = String::new();
    let mut failure = None;
    let result = walk(pattern, items.len(), &mut out, |clause, index, out| {
        match write(clause, &items[index], work) {
            Ok(text) => {
                out.push_str(&text);
                if out.len() > MAX_TEXT || work.spend(text_work(text.len())).is_err() {
                    failure = Some(Fault::Cost);
                    return Err(String::new());
                }
                Ok(())
            }
            Err(Refused::Cost) => {
                failure = Some(Fault::Cost);
                Err(String::new())
            }
            Err(Refused::Text(reason)) => Err(reason),
        }
    });
    match (failure, result) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) => Err(Fault::text(error)),
        (None, Ok(_)) => Ok(Value::str(out)),
    }
}

/// Calls `visit` for each clause of the pattern and copies the rest. Returns the number of clauses.
fn walk(
    pattern: &str,
    items: usize,
    out: &mut String,
    mut visit: impl FnMut(Clause, usize, &mut String) -> Result<(), String>,
) -> Result<usize, String> {
    let mut rest = pattern;
    let mut index = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        if index >= items {
            return Err(format!("index {index} out of range"));
        }
        let (clause, len) = clause(rest)
            .map_err(|reason| format!("could not parse formatting clause: {reason}"))?;
        rest = &rest[len..];
        visit(clause, index, out).map_err(|reason| format!("error during formatting: {reason}"))?;
        index += 1;
    }
    out.push_str(rest);
    Ok(index)
}

fn clause(rest: &str) -> Result<(Clause, usize), String> {
    let mut len = 0;
    let mut precision = PRECISION;
    if let Some(digits) = rest.strip_prefix('.') {
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        if count == digits.len() {
            return Err("error while parsing precision: could not find end of precision specifier"
                .to_owned());
        }
        precision = digits[..count]
            .parse()
            .ok()
            .filter(|precision| *precision <= MAX_PRECISION)
            .ok_or_else(|| "error while parsing precision: out of range".to_owned())?;
        len = 1 + count;
    }
    let kind = rest[len..].chars().next().ok_or_else(|| "unexpected end of string".to_owned())?;
    let clause = match kind {
        's' => Clause::String,
        'd' => Clause::Decimal,
        'f' => Clause::Fixed(precision),
        'e' => Clause::Scientific(precision),
        'b' => Clause::Binary,
        'x' => Clause::Hex { upper: false },
        'X' => Clause::Hex { upper: true },
        'o' => Clause::Octal,
        other => return Err(format!("unrecognized formatting clause \"{other}\"")),
    };
    Ok((clause, len + 1))
}

impl Clause {
    fn refuse(self, found: &str) -> String {
        let rule = match self {
            Clause::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                 durations, and timestamps"
            }
            Clause::Decimal => "decimal clause can only be used on integers",
            Clause::Fixed(_) => "fixed-point clause can only be used on doubles",
            Clause::Scientific(_) => "scientific clause can only be used on doubles",
            Clause::Binary => "only integers and bools can be formatted as binary",
            Clause::Hex { .. } => {
                "only integers, byte buffers, and strings can be formatted as hex"
            }
            Clause::Octal => "octal clause can only be used on integers",
        };
        format!("{rule}, was given {found}")
    }

    fn accepts(self, ty: &Type) -> bool {
        match ty {
            Type::Dyn => true,
            Type::Int | Type::Uint => !matches!(self, Clause::Fixed(_) | Clause::Scientific(_)),
            Type::Str => !matches!(self, Clause::Decimal | Clause::Binary | Clause::Octal),
            Type::Double => {
                matches!(self, Clause::String | Clause::Fixed(_) | Clause::Scientific(_))
            }
            Type::Bool => matches!(self, Clause::String | Clause::Binary),
            Type::Bytes => matches!(self, Clause::String | Clause::Hex { .. }),
            Type::List(_)
            | Type::Map(_)
            | Type::Timestamp
            | Type::Duration
            | Type::Meta(_)
            | Type::Null => self == Clause::String,
            _ => false,
        }
    }
}

/// Checks a constant pattern against the types of a list literal.
pub(in super::super) fn check(
    pattern: &str,
    items: &[&Expr],
    types: &[Type],
) -> Result<(), String> {
    let count = walk(pattern, items.len(), &mut String::new(), |clause, index, _| {
        check_clause(clause, items[index], types)
    })?;
    if items.len() > count {
        return Err(format!(
            "too many arguments supplied to string.format (expected {count}, got {})",
            items.len()
        ));
    }
    Ok(())
}

fn check_clause(clause: Clause, item: &Expr, types: &[Type]) -> Result<(), String> {
    let ty = &types[item.id];
    if !clause.accepts(ty) {
        return Err(clause.refuse(&ty.to_string()));
    }
    if clause == Clause::String && matches!(item.kind, Kind::List(_) | Kind::Map(_)) {
        let mut result = Ok(());
        item.children(&mut |child| {
            if result.is_ok() {
                result = check_clause(clause, child, types);
            }
        });
        return result;
    }
    Ok(())
}

enum Refused {
    Cost,
    Text(String),
}

fn write(clause: Clause, value: &Value<'_>, work: &mut Work) -> Result<String, Refused> {
    let refuse = || Err(Refused::Text(clause.refuse(value.type_name())));
    Ok(match (clause, value) {
        (Clause::String, value) => return write_string(value, work),
        (Clause::Decimal, Value::Int(_) | Value::Uint(_)) => display(value),
        (Clause::Fixed(precision), value) => match number(value) {
            Some(number) => fixed(number, precision),
            None => return refuse(),
        },
        (Clause::Scientific(precision), value) => match number(value) {
            Some(number) => scientific(number, precision),
            None => return refuse(),
        },
        (Clause::Binary, Value::Int(number)) => {
            signed(*number, |magnitude| format!("{magnitude:b}"))
        }
        (Clause::Binary, Value::Uint(number)) => format!("{number:b}"),
        (Clause::Binary, Value::Bool(value)) => u8::from(*value).to_string(),
        (Clause::Octal, Value::Int(number)) => {
            signed(*number, |magnitude| format!("{magnitude:o}"))
        }
        (Clause::Octal, Value::Uint(number)) => format!("{number:o}"),
        (Clause::Hex { upper }, value) => {
            let text = match value {
                Value::Int(number) => signed(*number, |magnitude| format!("{magnitude:x}")),
                Value::Uint(number) => format!("{number:x}"),
                Value::Str(text) => hex(text.as_bytes()),
                Value::Bytes(bytes) => hex(bytes),
                _ => return refuse(),
            };
            if upper { text.to_ascii_uppercase() } else { text }
        }
        _ => return refuse(),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn signed(number: i64, write: fn(u64) -> String) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", write(number.unsigned_abs()))
}

/// Returns the number of a double, or of one of the strings that stand for the others.
fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::Str(text) if matches!(&**text, "NaN" | "Infinity" | "-Infinity") => {
            parse_double(text)
        }
        _ => None,
    }
}

fn special(number: f64) -> Option<String> {
    let name = if number.is_nan() {
        "NaN"
    } else if number == f64::INFINITY {
        "∞"
    } else if number == f64::NEG_INFINITY {
        "-∞"
    } else {
        return None;
    };
    Some(name.to_owned())
}

/// Writes a number with commas between thousands.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(name) = special(number) {
        return name;
    }
    let text = format!("{:.precision$}", number.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::new();
    if number.is_sign_negative() {
        out.push('-');
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// Writes `1.500000 × 10⁰³`, with narrow spaces.
fn scientific(number: f64, precision: usize) -> String {
    if let Some(name) = special(number) {
        return name;
    }
    let text = format!("{number:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let raised = |c: char| match c {
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '-' => '⁻',
        c => char::from_u32(0x2070 + c.to_digit(10).unwrap_or_default()).unwrap_or(c),
    };
    let sign = if exponent < 0 { "-" } else { "" };
    let exponent: String = format!("{sign}{:02}", exponent.abs()).chars().map(raised).collect();
    format!("{digits}\u{202f}×\u{202f}10{exponent}")
}

fn write_string(value: &Value<'_>, work: &mut Work) -> Result<String, Refused> {
    match value {
        Value::List(_) => write_member(value, work),
        value if value.has_key(&Value::Null).is_some() => write_member(value, work),
        Value::Null
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::Bool(_)
        | Value::Str(_)
        | Value::Timestamp(_)
        | Value::Duration(_)
        | Value::Type(_) => Ok(display(value)),
        Value::Bytes(bytes) => std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| Refused::Text("could not convert argument to string".to_owned())),
        other => Err(Refused::Text(Clause::String.refuse(other.type_name()))),
    }
}

/// Writes a value within a list or a map, as a literal.
fn write_member(value: &Value<'_>, work: &mut Work) -> Result<String, Refused> {
    let text = write_literal(value, work)?;
    // The text is copied once more at each level.
    work.spend(text_work(text.len())).map_err(|_| Refused::Cost)?;
    Ok(text)
}

fn write_literal(value: &Value<'_>, work: &mut Work) -> Result<String, Refused> {
    work.spend(value.read_work()).map_err(|_| Refused::Cost)?;
    Ok(match value {
        Value::Str(text) => format!("{text:?}"),
        Value::Bytes(bytes) => format!("b{:?}", String::from_utf8_lossy(bytes)),
        Value::Timestamp(_) => format!("timestamp({:?})", display(value)),
        Value::Duration(_) => format!("duration({:?})", display(value)),
        Value::Double(number) if number.is_finite() => format!("{number:.PRECISION$}"),
        Value::Double(number) => format!("{:?}", display_double(*number)),
        Value::Null | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Type(_) => {
            display(value)
        }
        Value::List(items) => {
            let mut parts = Vec::with_capacity(items.len());
            for item in items.iter() {
                parts.push(write_member(item, work)?);
            }
            format!("[{}]", parts.join(", "))
        }
        other => {
            let Some(entries) = other.entries() else {
                let name = other.type_name();
                return Err(Refused::Text(format!("no formatting function for {name}")));
            };
            let mut parts = Vec::with_capacity(entries.len());
            for (key, value) in &entries {
                parts.push((write_member(key, work)?, write_member(value, work)?));
            }
            parts.sort();
            let parts: Vec<String> = parts.iter().map(|(k, v)| format!("{k}:{v}")).collect();
            format!("{{{}}}", parts.join(", "))
        }
    })
}
