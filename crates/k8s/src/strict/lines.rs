//! Reading JSON with the line of each value.

use std::cell::Cell;
use std::io;

use crate::ReadError;
use crate::tree::{Progress, Spot};

/// Returns the values of a text of one or several JSON values, with their lines.
pub(super) fn json(input: &[u8]) -> Result<Vec<Spot<'static>>, ReadError> {
    let progress = Progress::default();
    progress.line.set(1);
    let mut parser = serde_json::Deserializer::from_reader(Lines { input, line: &progress.line });
    let mut values = Vec::new();
    loop {
        values.push(progress.next(&mut parser)?);
        if parser.end().is_ok() {
            return Ok(values);
        }
    }
}

/// Hands out one byte at a time and counts the lines: the parser reads no further than the value it has parsed.
struct Lines<'i> {
    input: &'i [u8],
    line: &'i Cell<u64>,
}

impl io::Read for Lines<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (Some((first, rest)), Some(to)) = (self.input.split_first(), buffer.first_mut()) else {
            return Ok(0);
        };
        *to = *first;
        self.input = rest;
        if *first == b'\n' {
            self.line.set(self.line.get() + 1);
        }
        Ok(1)
    }
}
