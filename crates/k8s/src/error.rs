//! What can be wrong with an input, and where.
//!
//! One opaque error for many causes: a path to the field, the line where the
//! parser knows it, and a [`Cause`] for whoever wants to match. The path is a
//! list on the stack while objects are read, so it costs nothing until
//! something is wrong.

use std::fmt;

use portolan::model::QuantityError;

/// An input could not be read; nothing of it was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    path: String,
    position: Option<(u64, u64)>,
    cause: Cause,
}

/// Why an input could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The text is no JSON or YAML, or a field has another type.
    #[error("{0}")]
    Syntax(String),
    /// A quantity is none.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// A quantity is below zero.
    #[error("quantity {0:?} is negative")]
    Negative(String),
    /// A field has a value that it cannot have.
    #[error("{value:?} is not {expected}")]
    Value {
        /// The value.
        value: String,
        /// What it should have been.
        expected: &'static str,
    },
    /// A required field is missing or empty.
    #[error("the field is required")]
    Missing,
    /// An object that is in no typed list lacks apiVersion or kind.
    #[error("the object has no apiVersion and kind")]
    NoKind,
    /// An object of another kind was asked for.
    #[error("kind {found:?} is not {expected}")]
    Kind {
        /// The kind.
        found: String,
        /// The kind that was asked for.
        expected: &'static str,
    },
}

impl ReadError {
    pub(super) fn new(path: &Path<'_>, cause: impl Into<Cause>) -> ReadError {
        ReadError(Box::new(Inner { path: path.to_string(), position: None, cause: cause.into() }))
    }

    pub(super) fn at(path: String, position: Option<(u64, u64)>, cause: Cause) -> ReadError {
        let path = if path == "." { String::new() } else { path };
        ReadError(Box::new(Inner { path, position, cause }))
    }

    /// What the JSON parser found, its position apart from the message.
    pub(super) fn json(path: String, error: &serde_json::Error) -> ReadError {
        let position = (error.line() > 0).then(|| (error.line() as u64, error.column() as u64));
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
        ReadError::at(path, position, Cause::Syntax(message.to_owned()))
    }

    /// The same error, its path under another.
    pub(super) fn within(mut self, parent: &str) -> ReadError {
        let dot = if self.0.path.is_empty() || self.0.path.starts_with('[') { "" } else { "." };
        self.0.path = format!("{parent}{dot}{}", self.0.path);
        self
    }

    /// `value` at `path` is not `expected`.
    pub(super) fn value(path: &Path<'_>, value: &str, expected: &'static str) -> ReadError {
        ReadError::new(path, Cause::Value { value: value.to_owned(), expected })
    }

    /// The field, as in `items[3].spec.containers[0].image`; empty where the
    /// whole input is meant.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// The line, counted from 1, where the parser knows it.
    #[must_use]
    pub fn line(&self) -> Option<u64> {
        self.0.position.map(|(line, _)| line)
    }

    /// The column, counted from 1, where the parser knows it.
    #[must_use]
    pub fn column(&self) -> Option<u64> {
        self.0.position.map(|(_, column)| column)
    }

    /// Why.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.0.position {
            write!(f, "line {line}, column {column}: ")?;
        }
        if !self.0.path.is_empty() {
            write!(f, "{}: ", self.0.path)?;
        }
        self.0.cause.fmt(f)
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0.cause)
    }
}

/// Where in an input one is: a list from the field up to the root.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(super) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    pub(super) fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(Path::Root, key) => f.write_str(key),
            Path::Key(parent, key) => write!(f, "{parent}.{key}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
