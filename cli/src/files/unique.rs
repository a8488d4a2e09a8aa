//! Rejects duplicate objects while a file is read, with the line numbers of both.
//!
//! The engine would treat a second node as an update of the first, and refuse a second pod
//! in the middle of a replay, both without a line number.

use std::collections::HashMap;

use super::Wrong;

/// The names seen so far, with their lines.
pub(super) struct Unique {
    what: &'static str,
    seen: HashMap<String, u64>,
}

impl Unique {
    /// An empty set of names of `what`.
    pub(super) fn new(what: &'static str) -> Unique {
        Unique { what, seen: HashMap::new() }
    }

    /// Adds a name.
    ///
    /// # Errors
    ///
    /// If the name was added before.
    pub(super) fn insert(&mut self, name: &str, line: u64) -> Result<(), Wrong> {
        match self.seen.insert(name.to_owned(), line) {
            None => Ok(()),
            Some(first) => Err(Wrong::at(
                line,
                format!(
                    "duplicate {} {name:?}, first on line {first}: rename or remove one",
                    self.what
                ),
            )),
        }
    }
}
