//! Finds an object that is in a file twice, before anything of it is used.
//!
//! The engine would take a second node for an update of the first and refuse a
//! second pod in the middle of a replay; neither says which line to mend.

use std::collections::HashMap;

use super::Wrong;

/// What was seen, and on which line.
pub(super) struct Unique {
    what: &'static str,
    seen: HashMap<String, u64>,
}

impl Unique {
    /// Nothing seen yet of `what`.
    pub(super) fn new(what: &'static str) -> Unique {
        Unique { what, seen: HashMap::new() }
    }

    /// Takes down one more.
    ///
    /// # Errors
    ///
    /// It was there before.
    pub(super) fn insert(&mut self, name: &str, line: u64) -> Result<(), Wrong> {
        match self.seen.insert(name.to_owned(), line) {
            None => Ok(()),
            Some(first) => Err(Wrong::at(
                line,
                format!(
                    "{} {name:?} is on line {first} already: give each a name of its own",
                    self.what
                ),
            )),
        }
    }
}
