//! Finds an object that is in a file twice, before anything of it is used.
//!
//! The engine would take a second node for an update of the first and refuse a
//! second pod in the middle of a replay; neither says which line to mend.

use std::collections::HashMap;
use std::path::Path;

use crate::error::Failure;

/// What was seen, and on which line.
pub(super) struct Unique<'a> {
    file: &'a Path,
    what: &'static str,
    seen: HashMap<String, u64>,
}

impl<'a> Unique<'a> {
    /// Nothing seen yet of `what` in `file`.
    pub(super) fn new(file: &'a Path, what: &'static str) -> Unique<'a> {
        Unique { file, what, seen: HashMap::new() }
    }

    /// Takes down one more.
    ///
    /// # Errors
    ///
    /// It was there before.
    pub(super) fn insert(&mut self, name: &str, line: u64) -> Result<(), Failure> {
        match self.seen.insert(name.to_owned(), line) {
            None => Ok(()),
            Some(first) => Err(Failure::Line {
                file: self.file.to_owned(),
                line,
                what: format!(
                    "{} {name:?} is on line {first} already: give each a name of its own",
                    self.what
                ),
            }),
        }
    }
}
