//! What an API server rejects in a value that is read as a type of the crate k8s-openapi: fields that the type does not
//! have, repeated keys, and values of a wrong type, in the words of Go's JSON decoder.

use std::cell::RefCell;
use std::collections::HashSet;

use serde::de;

use super::error::{Path, ReadError};
use super::tree::{Entry, Tree};
use super::typed::Typed;

/// The problems of a value.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) found: RefCell<Vec<Found>>,
}

/// A problem.
#[cfg_attr(not(feature = "strict"), expect(dead_code, reason = "only `check` returns them"))]
pub(crate) struct Found {
    pub(crate) line: u64,
    pub(crate) path: String,
    pub(crate) what: String,
    pub(crate) is_wrong_type: bool,
}

impl Checks {
    /// Adds a problem of a value.
    pub(crate) fn add(&self, of: Typed<'_, '_>, what: String, is_wrong_type: bool) {
        let found = Found { line: of.line, path: of.path.to_string(), what, is_wrong_type };
        self.found.borrow_mut().push(found);
    }

    fn add_key(&self, of: Typed<'_, '_>, entry: &Entry<'_>, what: &str) {
        let path = of.path.key(&entry.key).to_string();
        let found = Found { line: entry.line, path, what: what.to_owned(), is_wrong_type: false };
        self.found.borrow_mut().push(found);
    }

    /// Adds the repeated keys of a map.
    pub(crate) fn repeated(&self, of: Typed<'_, '_>, entries: &[Entry<'_>]) {
        let mut seen = HashSet::new();
        for entry in entries.iter().filter(|entry| !seen.insert(&entry.key)) {
            self.add_key(of, entry, "duplicate field");
        }
    }

    /// Adds the repeated fields of a struct and those that it does not have.
    pub(crate) fn fields(&self, of: Typed<'_, '_>, entries: &[Entry<'_>], fields: &[&str]) {
        for entry in entries.iter().filter(|entry| !fields.contains(&&*entry.key)) {
            self.add_key(of, entry, "unknown field");
        }
        self.repeated(of, entries);
    }
}

/// The error of apimachinery `ParseQuantity`.
const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

impl Typed<'_, '_> {
    /// Returns the error of Go's JSON decoder for a value that the type of a field does not accept.
    pub(crate) fn unmarshal(self, go_type: &str) -> String {
        let found = match &self.spot.tree {
            Tree::Null => "null",
            Tree::Bool(_) | Tree::Word(_) => "bool",
            Tree::Text(_) => "string",
            Tree::List(_) => "array",
            Tree::Map(_) => "object",
            _ if go_type.starts_with("int") => &format!("number {}", self.digits()),
            _ => "number",
        };
        let go_type = if go_type.is_empty() { "" } else { &format!(" of type {go_type}") };
        let fields = self.path.fields();
        format!("cannot unmarshal {found} into Go struct field {}.{fields}{go_type}", self.of)
    }

    /// Returns a number as a text, which is empty for other values.
    fn digits(self) -> String {
        match self.spot.tree {
            Tree::Integer(number) => number.to_string(),
            Tree::Unsigned(number) => number.to_string(),
            Tree::Float(number) => number.to_string(),
            _ => String::new(),
        }
    }

    /// Returns the text of a quantity, which may be written as a number.
    pub(crate) fn quantity(self) -> Result<String, ReadError> {
        let text = match &self.spot.tree {
            Tree::Null => "0".to_owned(),
            Tree::Text(text) => text.trim().to_owned(),
            _ => self.digits(),
        };
        match text.parse::<portolan::model::Quantity>() {
            Ok(_) => Ok(text),
            Err(_) => Err(de::Error::custom(FORMAT)),
        }
    }
}

impl Path<'_> {
    /// Returns the fields on the path, without indices and the keys of maps.
    fn fields(&self) -> String {
        match self {
            Path::Root => String::new(),
            Path::Entry(parent, _) | Path::Index(parent, _) => parent.fields(),
            Path::Key(parent, key) => match &*parent.fields() {
                "" => (*key).to_owned(),
                fields => format!("{fields}.{key}"),
            },
        }
    }
}
