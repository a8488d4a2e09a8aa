//! Steps through JSON that is known to be valid, without checking or building anything.
//!
//! A general parser checks each byte that it skips, which takes most of its time for an object of which few fields are
//! read. A [`RawValue`] has been checked already, so only the ends of strings and the depth of values matter here.
//! Strings are searched eight bytes at a time.

use serde_json::value::RawValue;

/// A position in valid JSON. Methods return `None` if the value has another form, after which the scan is of no use.
pub(super) struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    pub(super) fn new(json: &'a RawValue) -> Scan<'a> {
        let mut scan = Scan { text: json.get(), at: 0 };
        scan.skip_space();
        scan
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// Returns whether the next value is an object.
    pub(super) fn is_object(&self) -> bool {
        self.peek() == Some(b'{')
    }

    /// Passes a bracket.
    pub(super) fn open(&mut self, bracket: u8) -> Option<()> {
        (self.peek()? == bracket).then(|| self.at += 1)
    }

    /// Passes `null`, and returns whether it was next.
    pub(super) fn take_null(&mut self) -> bool {
        let is_null = self.peek() == Some(b'n');
        self.at += if is_null { "null".len() } else { 0 };
        is_null
    }

    /// Goes to the next member of an object or list, or behind its end. Returns whether there is one.
    fn next(&mut self, is_first: &mut bool, end: u8) -> Option<bool> {
        self.skip_space();
        let next = self.peek()?;
        if next == end {
            self.at += 1;
            return Some(false);
        }
        if !std::mem::take(is_first) {
            if next != b',' {
                return None;
            }
            self.at += 1;
            self.skip_space();
        }
        Some(true)
    }

    /// Returns the next key of an object, or `Some(None)` at its end. The value is next. Keys with escapes are not
    /// supported.
    pub(super) fn next_key(&mut self, is_first: &mut bool) -> Option<Option<&'a str>> {
        if !self.next(is_first, b'}')? {
            return Some(None);
        }
        let key = self.plain_text()?;
        self.skip_space();
        self.open(b':')?;
        self.skip_space();
        Some(Some(key))
    }

    /// Goes to the next element of a list, and returns whether there is one.
    pub(super) fn next_element(&mut self, is_first: &mut bool) -> Option<bool> {
        self.next(is_first, b']')
    }

    /// Passes a string.
    pub(super) fn skip_text(&mut self) -> Option<()> {
        self.open(b'"')?;
        self.at = end_of_string(self.text.as_bytes(), self.at)?;
        Some(())
    }

    /// Passes a string without escapes, and returns it.
    pub(super) fn plain_text(&mut self) -> Option<&'a str> {
        self.open(b'"')?;
        let start = self.at;
        self.at = find_special(self.text.as_bytes(), start)?;
        let text = self.text.get(start..self.at)?;
        self.open(b'"').map(|()| text)
    }

    /// Passes a value, and returns it as it is written.
    pub(super) fn value(&mut self) -> Option<&'a str> {
        let start = self.at;
        self.at = end_of_value(self.text.as_bytes(), start)?;
        self.text.get(start..self.at)
    }
}

/// Returns the position behind the value at `at`.
fn end_of_value(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0usize;
    loop {
        match bytes.get(at) {
            Some(b'"') => {
                at = end_of_string(bytes, at + 1)?;
                if depth == 0 {
                    return Some(at);
                }
                continue;
            }
            Some(b'{' | b'[') => depth += 1,
            Some(b'}' | b']') if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            // The end of a number or a literal.
            Some(b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t') | None if depth == 0 => {
                return Some(at);
            }
            Some(_) => {}
            None => return None,
        }
        at += 1;
    }
}

/// Returns the position behind the string whose first character is at `at`.
#[inline]
fn end_of_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = find_special(bytes, at)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        // An escape: the next byte is not the end of the string.
        at += 2;
    }
}

/// Returns the position of the first quote or backslash from `at` on.
#[inline]
fn find_special(bytes: &[u8], mut at: usize) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    // The lowest byte that is zero has its high bit set, and no byte below it.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let word = u64::from_le_bytes(*word);
        let found = zeros(word ^ (ONES * b'"' as u64)) | zeros(word ^ (ONES * b'\\' as u64));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = bytes.get(at..)?;
    rest.iter().position(|byte| matches!(byte, b'"' | b'\\')).map(|found| at + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(json: &str) -> Scan<'_> {
        Scan::new(serde_json::from_str(json).expect("JSON"))
    }

    #[test]
    fn values_end_where_they_end() {
        let values = [
            "1",
            "-1.5e3",
            "true",
            "null",
            r#""""#,
            r#""a\"b\\""#,
            r#""}],\u0022""#,
            "[]",
            "{}",
            r#"[1, {"a": "]"}, [["}"]]]"#,
            r#"{"a" : [1,2] , "b\"":"{"}"#,
        ];
        for value in values {
            let list = format!("[ {value} ,{value}]");
            let mut scan = scan(&list);
            let mut is_first = true;
            assert_eq!(scan.open(b'['), Some(()));
            for _ in 0..2 {
                assert_eq!(scan.next_element(&mut is_first), Some(true), "{list}");
                assert_eq!(scan.value(), Some(value), "{list}");
            }
            assert_eq!(scan.next_element(&mut is_first), Some(false), "{list}");
            assert_eq!(self::scan(value).value(), Some(value));
        }
    }

    #[test]
    fn the_first_quote_or_backslash_is_found_at_each_position() {
        for len in 0..40 {
            for at in 0..len {
                for special in [b'"', b'\\'] {
                    // Neighbors of both in the code, and bytes beyond ASCII, are not taken for them.
                    let mut bytes: Vec<u8> = [b'!', b'#', b'[', b']', 0xa2, 0xdc].repeat(7);
                    bytes.truncate(len);
                    bytes[at] = special;
                    for from in 0..=at {
                        assert_eq!(find_special(&bytes, from), Some(at));
                    }
                    assert_eq!(find_special(&bytes, at + 1), None);
                }
            }
        }
    }
}
