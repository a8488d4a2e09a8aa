//! Splits an expression into tokens. The rules are those of the language definition of CEL, "Syntax".

use super::error::Fail;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// Digits, in decimal or with `0x`.
    Int(String),
    /// Digits without the `u`.
    Uint(String),
    Double(String),
    Str(String),
    Bytes(Vec<u8>),
    Ident(String),
    /// An operator, a bracket, or one of the keywords `in`, `true`, `false` and `null`.
    Sign(&'static str),
    End,
}

const SIGNS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!",
    "?", ":", "+", "*", "/", "%",
];
const KEYWORDS: [&str; 4] = ["in", "true", "false", "null"];

/// Returns the tokens with the byte at which each starts, the last being [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, usize)>, Fail> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.at;
        let token = lexer.next()?;
        let end = token == Token::End;
        tokens.push((token, at));
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.trim_start_matches(['\t', ' ', '\r', '\n', '\u{c}']);
            self.at += rest.len() - blank.len();
            if !blank.starts_with("//") {
                return;
            }
            self.at += blank.find('\n').unwrap_or(blank.len());
        }
    }

    fn next(&mut self) -> Result<Token, Fail> {
        let rest = self.rest().as_bytes();
        let Some(&first) = rest.first() else { return Ok(Token::End) };
        if first.is_ascii_digit() || (first == b'.' && rest.get(1).is_some_and(u8::is_ascii_digit))
        {
            return Ok(self.number());
        }
        if let Some((is_bytes, is_raw, skip)) = quote(rest) {
            let start = self.at;
            self.at += skip;
            return self.string(start, is_bytes, is_raw);
        }
        if first.is_ascii_alphabetic() || first == b'_' {
            let len = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
            let word = &self.rest()[..len];
            self.at += len;
            return Ok(match KEYWORDS.iter().find(|keyword| **keyword == word) {
                Some(keyword) => Token::Sign(keyword),
                None => Token::Ident(word.to_owned()),
            });
        }
        match SIGNS.iter().find(|sign| self.rest().starts_with(**sign)) {
            Some(sign) => {
                self.at += sign.len();
                Ok(Token::Sign(sign))
            }
            None => {
                let unknown = self.rest().chars().next().unwrap_or_default();
                Err(Fail::at(
                    self.at,
                    format!("Syntax error: token recognition error at: '{unknown}'"),
                ))
            }
        }
    }

    fn number(&mut self) -> Token {
        let rest = self.rest().as_bytes();
        let digits = |from: usize| rest[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        if rest.starts_with(b"0x") && rest.get(2).is_some_and(u8::is_ascii_hexdigit) {
            let len = 2 + rest[2..].iter().take_while(|b| b.is_ascii_hexdigit()).count();
            return self.integer(len);
        }
        let whole = digits(0);
        let mut len = whole;
        if rest.get(len) == Some(&b'.') && digits(len + 1) > 0 {
            len += 1 + digits(len + 1);
        }
        if matches!(rest.get(len), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(len + 1), Some(b'+' | b'-')));
            let exponent = if len + 1 + sign <= rest.len() { digits(len + 1 + sign) } else { 0 };
            if exponent > 0 {
                len += 1 + sign + exponent;
            }
        }
        if len == whole {
            return self.integer(len);
        }
        let text = self.rest()[..len].to_owned();
        self.at += len;
        Token::Double(text)
    }

    fn integer(&mut self, len: usize) -> Token {
        let text = self.rest()[..len].to_owned();
        self.at += len;
        if self.rest().starts_with(['u', 'U']) {
            self.at += 1;
            return Token::Uint(text);
        }
        Token::Int(text)
    }

    /// Reads a string literal whose quotes start at the current byte.
    fn string(&mut self, start: usize, is_bytes: bool, is_raw: bool) -> Result<Token, Fail> {
        let rest = self.rest();
        let mark = &rest[..1];
        let triple = rest.starts_with(&mark.repeat(3));
        let mark = &rest[..if triple { 3 } else { 1 }];
        let unclosed =
            || Fail::at(start, format!("Syntax error: token recognition error at: '{mark}'"));
        let body = &rest[mark.len()..];
        let mut end = 0;
        loop {
            let tail = &body[end..];
            if tail.starts_with(mark) {
                break;
            }
            let mut chars = tail.chars();
            match chars.next() {
                None => return Err(unclosed()),
                Some('\n' | '\r') if !triple => return Err(unclosed()),
                Some('\\') if !is_raw => {
                    let escaped = chars.next().ok_or_else(unclosed)?;
                    end += 1 + escaped.len_utf8();
                }
                Some(c) => end += c.len_utf8(),
            }
        }
        self.at += mark.len() + end + mark.len();
        let text = body[..end].replace("\r\n", "\n").replace('\r', "\n");
        let bytes = if is_raw { text.into_bytes() } else { unescape(&text, is_bytes, start)? };
        if is_bytes {
            return Ok(Token::Bytes(bytes));
        }
        String::from_utf8(bytes)
            .map(Token::Str)
            .map_err(|_| Fail::at(start, "invalid unicode code point"))
    }
}

/// Returns whether a string literal starts here: of bytes, raw, and the length of its prefix.
fn quote(rest: &[u8]) -> Option<(bool, bool, usize)> {
    let is_bytes = matches!(rest.first(), Some(b'b' | b'B'));
    let after = usize::from(is_bytes);
    let is_raw = matches!(rest.get(after), Some(b'r' | b'R'));
    let skip = after + usize::from(is_raw);
    matches!(rest.get(skip), Some(b'"' | b'\'')).then_some((is_bytes, is_raw, skip))
}

fn unescape(text: &str, is_bytes: bool, at: usize) -> Result<Vec<u8>, Fail> {
    let fail = |what: &str| Fail::at(at, what.to_owned());
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let escape = rest.chars().next().unwrap_or_default();
        rest = &rest[escape.len_utf8().min(rest.len())..];
        let plain = match escape {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 11,
            '\\' | '\'' | '"' | '`' | '?' => escape as u8,
            _ => 0,
        };
        if plain != 0 {
            out.push(plain);
            continue;
        }
        let (digits, len, radix) = match escape {
            'x' | 'X' => (rest, 2, 16),
            'u' if !is_bytes => (rest, 4, 16),
            'U' if !is_bytes => (rest, 8, 16),
            '0'..='3' => (&text[text.len() - rest.len() - 1..], 3, 8),
            _ => return Err(fail("unable to unescape string")),
        };
        let digits = digits
            .get(..len)
            .filter(|digits| digits.chars().all(|c| c.is_digit(radix)))
            .ok_or_else(|| fail("unable to unescape string"))?;
        let code =
            u32::from_str_radix(digits, radix).map_err(|_| fail("unable to unescape string"))?;
        rest = &rest[if radix == 8 { 2 } else { len }..];
        if is_bytes {
            // Three octal digits from 0 to 3 and two hexadecimal ones fit into a byte.
            out.push(code as u8);
        } else {
            let c = char::from_u32(code).ok_or_else(|| fail("invalid unicode code point"))?;
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Ok(out)
}
