//! Strings: cel-go's extension in version 2, and Kubernetes' regular expressions.

use super::super::error::{Fault, NO_OVERLOAD};
use super::super::regex::Pattern;
use super::super::value::{MAX_ITEMS, MAX_TEXT, Value, Work};
use super::{Declaration, Style, deep, guarded, one_text, operator, printf};

pub(super) const FUNCTIONS: &[Declaration] = &[
    operator(
        "contains",
        |args| test(args, |text, part| text.contains(part)),
        &[("contains_string", "string.(string) -> bool")],
    ),
    operator(
        "endsWith",
        |args| test(args, |text, part| text.ends_with(part)),
        &[("ends_with_string", "string.(string) -> bool")],
    ),
    operator(
        "startsWith",
        |args| test(args, |text, part| text.starts_with(part)),
        &[("starts_with_string", "string.(string) -> bool")],
    ),
    Declaration {
        style: Style::Operator,
        ..deep(
            "matches",
            matches,
            &[("matches", "string, string -> bool"), ("matches_string", "string.(string) -> bool")],
        )
    },
    guarded("charAt", char_at, &[("string_char_at_int", "string.(int) -> string")]),
    guarded(
        "lowerAscii",
        |args| Ok(Value::str(one_text(args)?.to_ascii_lowercase())),
        &[("string_lower_ascii", "string.() -> string")],
    ),
    guarded(
        "upperAscii",
        |args| Ok(Value::str(one_text(args)?.to_ascii_uppercase())),
        &[("string_upper_ascii", "string.() -> string")],
    ),
    guarded(
        "trim",
        |args| Ok(Value::str(one_text(args)?.trim().to_owned())),
        &[("string_trim", "string.() -> string")],
    ),
    guarded(
        "replace",
        replace,
        &[
            ("string_replace_string_string", "string.(string, string) -> string"),
            ("string_replace_string_string_int", "string.(string, string, int) -> string"),
        ],
    ),
    guarded(
        "split",
        split,
        &[
            ("string_split_string", "string.(string) -> list(string)"),
            ("string_split_string_int", "string.(string, int) -> list(string)"),
        ],
    ),
    guarded(
        "substring",
        substring,
        &[
            ("string_substring_int", "string.(int) -> string"),
            ("string_substring_int_int", "string.(int, int) -> string"),
        ],
    ),
    guarded(
        "join",
        join,
        &[
            ("list_join", "list(string).() -> string"),
            ("list_join_string", "list(string).(string) -> string"),
        ],
    ),
    guarded("strings.quote", quote, &[("strings_quote", "string -> string")]),
    deep("format", printf::format, &[("string_format", "string.(list(dyn)) -> string")]),
    deep("find", find, &[("string_find_string", "string.(string) -> string")]),
    deep(
        "findAll",
        find_all,
        &[
            ("string_find_all_string", "string.(string) -> list(string)"),
            ("string_find_all_string_int", "string.(string, int) -> list(string)"),
        ],
    ),
];

/// Tests two strings; the functions of the standard library report anything else as an operator does.
fn test<'a>(args: &[Value<'a>], test: fn(&str, &str) -> bool) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Str(text), Value::Str(part)] => Ok(Value::Bool(test(text, part))),
        _ => Err(NO_OVERLOAD),
    }
}

fn matches<'a>(args: &[Value<'a>], work: &mut Work) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Str(_), Value::Str(pattern)] => {
            let pattern = Pattern::compile_within(pattern, work)?;
            search("matches", &pattern.map_err(Fault::text)?, args, work)
        }
        [Value::Str(_), _] => Err(NO_OVERLOAD),
        _ => Err(Fault::Overload),
    }
}

fn find<'a>(args: &[Value<'a>], work: &mut Work) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Str(_), Value::Str(pattern)] => search("find", &legal(pattern, work)?, args, work),
        _ => Err(Fault::Overload),
    }
}

fn find_all<'a>(args: &[Value<'a>], work: &mut Work) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Str(_), Value::Str(pattern)]
        | [Value::Str(_), Value::Str(pattern), Value::Int(_)] => {
            search("findAll", &legal(pattern, work)?, args, work)
        }
        _ => Err(Fault::Overload),
    }
}

fn legal(pattern: &str, work: &mut Work) -> Result<Pattern, Fault> {
    let compiled = Pattern::compile_within(pattern, work)?;
    compiled.map_err(|error| Fault::text(format!("Illegal regex: {error}")))
}

/// Runs a function whose second argument is this pattern.
pub(in super::super) fn search<'a>(
    name: &str,
    pattern: &Pattern,
    args: &[Value<'a>],
    work: &mut Work,
) -> Result<Value<'a>, Fault> {
    let Some(Value::Str(text)) = args.first() else { return Err(NO_OVERLOAD) };
    work.spend(pattern.search_work(text))?;
    let all = |limit: usize| {
        let found = pattern.regex.find_iter(text).take(limit);
        let found: Vec<Value<'a>> =
            found.map(|found| Value::str(found.as_str().to_owned())).collect();
        if found.len() > MAX_ITEMS { Err(Fault::Cost) } else { Ok(Value::list(found)) }
    };
    match (name, args.get(2)) {
        ("matches", None) => Ok(Value::Bool(pattern.regex.is_match(text))),
        // The first match, or an empty string.
        ("find", None) => {
            let found = pattern.regex.find(text).map_or("", |found| found.as_str());
            Ok(Value::str(found.to_owned()))
        }
        ("findAll", None) => all(MAX_ITEMS + 1),
        // A negative limit stands for all matches.
        ("findAll", Some(Value::Int(limit))) => {
            all(usize::try_from(*limit).unwrap_or(MAX_ITEMS + 1))
        }
        _ => Err(NO_OVERLOAD),
    }
}

fn out_of_range(index: i64) -> Fault {
    Fault::text(format!("index out of range: {index}"))
}

/// Returns the byte at which the character with this number starts; the end of the text counts, too.
fn offset(text: &str, index: i64) -> Result<usize, Fault> {
    let number = usize::try_from(index).map_err(|_| out_of_range(index))?;
    let ends = std::iter::once(text.len());
    text.char_indices().map(|(at, _)| at).chain(ends).nth(number).ok_or_else(|| out_of_range(index))
}

fn char_at<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let [Value::Str(text), Value::Int(index)] = args else { return Err(Fault::Overload) };
    let rest = &text[offset(text, *index)?..];
    Ok(Value::str(rest.chars().next().map(String::from).unwrap_or_default()))
}

/// Returns the position of a substring in characters, searching from a character on or back from it.
pub(super) fn index_of<'a>(args: &[Value<'a>], last: bool) -> Result<Value<'a>, Fault> {
    let (text, part, start) = match args {
        [Value::Str(text), Value::Str(part)] => (text, part, None),
        [Value::Str(text), Value::Str(part), Value::Int(start)] => (text, part, Some(*start)),
        _ => return Err(Fault::Overload),
    };
    let count = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if part.is_empty() {
        return Ok(Value::Int(start.unwrap_or_else(|| if last { count() } else { 0 })));
    }
    if let Some(start) = start {
        if start < 0 {
            return Err(out_of_range(start));
        }
        if start >= count() {
            return Ok(Value::Int(-1));
        }
    }
    let found = match (start, last) {
        (None, false) => text.find(&**part),
        (None, true) => text.rfind(&**part),
        (Some(start), false) => {
            let from = offset(text, start)?;
            text[from..].find(&**part).map(|at| from + at)
        }
        (Some(start), true) => {
            let end = (offset(text, start)? + part.len()).min(text.len());
            // The end is inside a character only if the text does not contain the part at this offset.
            let end = (0..=end).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
            text[..end].rfind(&**part)
        }
    };
    let characters = |at: usize| i64::try_from(text[..at].chars().count()).unwrap_or(i64::MAX);
    Ok(Value::Int(found.map_or(-1, characters)))
}

fn replace<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let (text, old, new, limit) = match args {
        [Value::Str(text), Value::Str(old), Value::Str(new)] => (text, old, new, -1),
        [Value::Str(text), Value::Str(old), Value::Str(new), Value::Int(limit)] => {
            (text, old, new, *limit)
        }
        _ => return Err(Fault::Overload),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = text.matches(&**old).take(limit).count();
    if text.len() + count.saturating_mul(new.len()) > MAX_TEXT {
        return Err(Fault::Cost);
    }
    Ok(Value::str(text.replacen(&**old, new, limit)))
}

fn split<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let (text, separator, limit) = match args {
        [Value::Str(text), Value::Str(separator)] => (text, separator, -1),
        [Value::Str(text), Value::Str(separator), Value::Int(limit)] => (text, separator, *limit),
        _ => return Err(Fault::Overload),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut parts: Vec<Value<'a>> = Vec::new();
    let mut push = |part: &str| {
        parts.push(Value::str(part.to_owned()));
        if parts.len() > MAX_ITEMS { Err(Fault::Cost) } else { Ok(()) }
    };
    if limit == 0 {
        return Ok(Value::list(parts));
    }
    if separator.is_empty() {
        let mut rest = &**text;
        let mut left = limit;
        while let Some(c) = rest.chars().next() {
            let len = if left == 1 { rest.len() } else { c.len_utf8() };
            push(&rest[..len])?;
            rest = &rest[len..];
            left -= 1;
        }
    } else {
        for part in text.splitn(limit, &**separator) {
            push(part)?;
        }
    }
    Ok(Value::list(parts))
}

fn substring<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let (text, start, end) = match args {
        [Value::Str(text), Value::Int(start)] => (text, *start, None),
        [Value::Str(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(Fault::Overload),
    };
    if let Some(end) = end.filter(|end| start > *end) {
        return Err(Fault::text(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let from = offset(text, start)?;
    let to = end.map_or(Ok(text.len()), |end| offset(text, end))?;
    Ok(Value::str(text[from..to].to_owned()))
}

fn join<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let (items, separator) = match args {
        [Value::List(items)] => (items, ""),
        [Value::List(items), Value::Str(separator)] => (items, &**separator),
        _ => return Err(Fault::Overload),
    };
    let mut joined = String::new();
    for (i, item) in items.iter().enumerate() {
        match item {
            Value::Str(text) => {
                if i > 0 {
                    joined.push_str(separator);
                }
                joined.push_str(text);
            }
            // The first item decides whether this is a list of strings.
            _ if i == 0 => return Err(Fault::Overload),
            other => {
                let text = super::convert::display(other);
                return Err(Fault::text(format!("join: invalid input: {text}")));
            }
        }
        if joined.len() > MAX_TEXT {
            return Err(Fault::Cost);
        }
    }
    Ok(Value::str(joined))
}

fn quote<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let text = one_text(args)?;
    if text.len() > MAX_TEXT / 2 {
        return Err(Fault::Cost);
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    Ok(Value::str(quoted))
}
