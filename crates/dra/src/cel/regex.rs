//! Regular expressions in the syntax of Go's package regexp, run by the crate regex.
//!
//! Both descend from RE2. The differences that a pattern can show are translated: classes such as `\d` and `\b` are
//! ASCII, `\Q...\E` quotes, and brackets and operators within a class are literal.

use regex::{Error, Regex, RegexBuilder};

use super::error::Fault;
use super::value::Work;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) regex: Regex,
    /// How much larger than [`SMALL`] the compiled pattern is at most.
    factor: u64,
}

/// The size of a small compiled pattern, and of the largest one, in bytes.
const SMALL: usize = 1 << 12;
const LARGEST: usize = 1 << 20;

impl Pattern {
    /// Compiles a pattern, or returns what is wrong with it.
    pub(super) fn compile(pattern: &str) -> Result<Pattern, String> {
        let translated = translate(pattern)?;
        let mut size = SMALL;
        loop {
            match RegexBuilder::new(&translated).size_limit(size).build() {
                Ok(regex) => return Ok(Pattern { regex, factor: (size / SMALL) as u64 }),
                // The only way to learn the size is to exceed a limit.
                Err(Error::CompiledTooBig(_)) if size < LARGEST => size *= 4,
                Err(error) => {
                    let last = error.to_string();
                    let last = last.lines().last().unwrap_or_default();
                    let reason = last.trim_start_matches("error: ");
                    return Err(format!("error parsing regexp: {reason}: `{pattern}`"));
                }
            }
        }
    }

    /// Compiles a pattern that an evaluation has computed. The outer error is [`Fault::Cost`].
    pub(super) fn compile_within(
        pattern: &str,
        work: &mut Work,
    ) -> Result<Result<Pattern, String>, Fault> {
        const SMALL_WORK: u64 = 256;
        let compiled = Pattern::compile(pattern);
        // A malformed pattern may be large, too.
        let factor = match &compiled {
            Ok(pattern) => pattern.factor,
            Err(_) => 1 + pattern.len() as u64 / SMALL_WORK,
        };
        work.spend(SMALL_WORK.saturating_mul(factor))?;
        Ok(compiled)
    }

    /// Returns the work of a search: at worst, each character is compared with each state of the pattern.
    pub(super) fn search_work(&self, text: &str) -> u64 {
        (text.len() as u64).saturating_mul(self.factor)
    }
}

fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    // A quantifier that was just read, after which a further one is an error.
    let mut quantified = false;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let was_quantified = std::mem::take(&mut quantified);
        match c {
            '\\' => {
                rest = escape(after, false, &mut out);
                continue;
            }
            '[' => {
                out.push('[');
                rest = class(after, &mut out);
                continue;
            }
            '*' | '+' | '?' => {
                let len = 1 + usize::from(after.starts_with('?'));
                if was_quantified {
                    return Err(nested(&rest[..1]));
                }
                quantified = true;
                out.push_str(&rest[..len]);
                rest = &rest[len..];
                continue;
            }
            '{' => {
                let inner = after.split_once('}').map(|(inner, _)| inner);
                let is_count = |inner: &str| {
                    inner.starts_with(|c: char| c.is_ascii_digit())
                        && inner.chars().all(|c| c.is_ascii_digit() || c == ',')
                };
                if let Some(inner) = inner.filter(|inner| is_count(inner)) {
                    if was_quantified {
                        return Err(nested(&format!("{{{inner}}}")));
                    }
                    let len = inner.len() + 2;
                    let lazy = usize::from(rest[len..].starts_with('?'));
                    quantified = true;
                    out.push_str(&rest[..len + lazy]);
                    rest = &rest[len + lazy..];
                    continue;
                }
                out.push_str("\\{");
            }
            '}' => out.push_str("\\}"),
            '(' if after.starts_with("?x") => {
                return Err(format!(
                    "error parsing regexp: invalid or unsupported Perl syntax: `{pattern}`"
                ));
            }
            c => out.push(c),
        }
        rest = after;
    }
    Ok(out)
}

fn nested(operator: &str) -> String {
    format!("error parsing regexp: invalid nested repetition operator: `{operator}`")
}

/// Translates what follows a backslash, and returns the rest.
fn escape<'p>(rest: &'p str, in_class: bool, out: &mut String) -> &'p str {
    let Some(c) = rest.chars().next() else {
        out.push('\\');
        return rest;
    };
    let after = &rest[c.len_utf8()..];
    let ascii = match (c, in_class) {
        ('d', true) => "0-9",
        ('w', true) => "0-9A-Za-z_",
        ('s', true) => "\\t\\n\\f\\r\\x20",
        ('d', false) => "[0-9]",
        ('w', false) => "[0-9A-Za-z_]",
        ('s', false) => "[\\t\\n\\f\\r\\x20]",
        ('D', _) => "[^0-9]",
        ('W', _) => "[^0-9A-Za-z_]",
        ('S', _) => "[^\\t\\n\\f\\r\\x20]",
        ('b', false) => "(?-u:\\b)",
        ('B', false) => "(?-u:\\B)",
        ('Q', false) => {
            let (quoted, after) = after.split_once("\\E").unwrap_or((after, ""));
            out.push_str(&::regex::escape(quoted));
            return after;
        }
        _ => "",
    };
    if ascii.is_empty() {
        out.push('\\');
        out.push(c);
    } else {
        out.push_str(ascii);
    }
    after
}

/// Translates a class up to its closing bracket, and returns the rest.
fn class<'p>(rest: &'p str, out: &mut String) -> &'p str {
    let mut rest = rest;
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    let mut first = true;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match c {
            ']' if !first => {
                out.push(']');
                return after;
            }
            '\\' => {
                first = false;
                rest = escape(after, true, out);
                continue;
            }
            '[' if after.starts_with(':') && after[1..].contains(":]") => {
                let len = rest.find(":]").map_or(rest.len(), |at| at + 2);
                out.push_str(&rest[..len]);
                first = false;
                rest = &rest[len..];
                continue;
            }
            '[' | ']' | '&' | '~' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
        first = false;
        rest = after;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_syntax_is_translated() {
        for (pattern, text, matches) in [
            (r"^\d$", "٣", false),
            (r"^\d$", "3", true),
            (r"^[\w-]+$", "a-b_c", true),
            (r"^[[a]$", "[", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^a{2}$", "aa", true),
            (r"^a{,2}$", "a{,2}", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^[^\s]+$", "ab", true),
        ] {
            let regex = Pattern::compile(pattern).unwrap_or_else(|error| panic!("{error}")).regex;
            assert_eq!(regex.is_match(text), matches, "{pattern} on {text}");
        }
        assert!(Pattern::compile("a**").is_err());
        assert!(Pattern::compile("(").is_err());
        assert!(Pattern::compile("a{2}{3}").is_err());
    }
}
