//! Errors of reading an input, with their location.
//!
//! All causes share one opaque error type, which has the path of the field, the line if the parser knows it, and a
//! [`Cause`] to match on. While objects are read the path is a linked list on the stack, so it costs nothing unless an
//! error occurs.

use std::borrow::Cow;
use std::fmt;

use portolan::model::QuantityError;

/// An input could not be read. Nothing of the input is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    path: String,
    position: Option<(u64, u64)>,
    cause: Cause,
}

/// The reason why an input could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The text is not JSON or YAML, or a field has the wrong type.
    #[error("{0}")]
    Syntax(String),
    /// A quantity cannot be parsed.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// A quantity is negative.
    #[error("quantity {0:?} is negative")]
    Negative(String),
    /// A field has an invalid value.
    #[error("{value:?} is not {expected}")]
    Value {
        /// The value that was found.
        value: String,
        /// A description of the valid values.
        expected: &'static str,
    },
    /// A required field is missing or empty.
    #[error("the field is required")]
    Missing,
    /// An object outside of a typed list lacks `apiVersion` or `kind`.
    #[error("the object has no apiVersion and kind")]
    NoKind,
    /// The text is a template, such as that of a Helm chart, and not a manifest.
    #[error("a template, not a manifest: render it first, for example with `helm template`")]
    Template,
    /// The text is not UTF-8.
    #[error("the text is {found}: save it as UTF-8, in PowerShell with `Out-File -Encoding utf8`")]
    Encoding {
        /// The encoding that was found.
        found: &'static str,
    },
    /// The aliases of a YAML text expand to more than the limit.
    #[error("the aliases of the text expand to more than {limit}: write the values out")]
    Expansion {
        /// The limit.
        limit: &'static str,
    },
    /// No supported Kubernetes release serves the kind in this version.
    #[error("{api_version} {kind} is no longer served: use {instead} (kubectl convert writes it)")]
    ApiVersion {
        /// The version that was found.
        api_version: String,
        /// The kind.
        kind: &'static str,
        /// The version that is served.
        instead: &'static str,
    },
    /// The object is of another kind than the caller requested.
    #[error("kind {found:?} is not {expected}")]
    Kind {
        /// The kind that was found.
        found: String,
        /// The kind that the caller requested.
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

    /// Returns whether the error has a path or a position.
    pub(super) fn is_located(&self) -> bool {
        self.0.position.is_some() || !self.0.path.is_empty()
    }

    /// Returns the error with a location.
    pub(super) fn at_path(self, path: &Path<'_>, position: Option<(u64, u64)>) -> ReadError {
        ReadError::at(path.to_string(), position, self.0.cause)
    }

    /// Creates the error from an error of the JSON parser, with the position split off the message.
    pub(super) fn json(path: String, error: &serde_json::Error) -> ReadError {
        let position = (error.line() > 0).then(|| (error.line() as u64, error.column() as u64));
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
        ReadError::at(path, position, Cause::Syntax(message.to_owned()))
    }

    /// Returns the error with its path prefixed by `parent`.
    pub(super) fn within(mut self, parent: &str) -> ReadError {
        let dot = if self.0.path.is_empty() || self.0.path.starts_with('[') { "" } else { "." };
        self.0.path = format!("{parent}{dot}{}", self.0.path);
        self
    }

    /// Returns the error for a text that follows `before`.
    pub(super) fn behind(mut self, before: &str) -> ReadError {
        if let Some((line, column)) = &mut self.0.position {
            if *line == 1 {
                let start = before.rfind('\n').map_or(0, |at| at + 1);
                *column += before[start..].chars().count() as u64;
            }
            *line += before.bytes().filter(|byte| *byte == b'\n').count() as u64;
        }
        self
    }

    /// Creates the error for a `value` at `path` that is not `expected`.
    pub(super) fn value(path: &Path<'_>, value: &str, expected: &'static str) -> ReadError {
        ReadError::new(path, Cause::Value { value: value.to_owned(), expected })
    }

    /// Returns the path of the field, as in `items[3].spec.containers[0].image`. Empty if the error concerns the whole
    /// input.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Returns whether the input is JSON or YAML of another program: its first object has neither `apiVersion` nor
    /// `kind`. Directories of dumps contain such files.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.0.cause == Cause::NoKind
            && ["", "[0]", "documents[0]", "documents[0][0]"].contains(&&*self.0.path)
    }

    /// Returns the line, counted from 1, if the parser knows it.
    #[must_use]
    pub fn line(&self) -> Option<u64> {
        self.0.position.map(|(line, _)| line)
    }

    /// Returns the column, counted from 1, if the parser knows it.
    #[must_use]
    pub fn column(&self) -> Option<u64> {
        self.0.position.map(|(_, column)| column)
    }

    /// Returns the reason.
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
            write!(f, "{}: ", shortened(&self.0.path, PATH))?;
        }
        f.write_str(&shortened(&self.0.cause.to_string(), CAUSE))
    }
}

/// The largest number of characters of a path in a message. [`ReadError::path`] returns all of it.
const PATH: usize = 80;
/// The largest number of characters of the reason in a message, which may quote the input.
const CAUSE: usize = 160;

/// Returns a text of at most `most` characters, without its middle if it is longer.
fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    // Most texts are short, and bytes are at least as many as characters.
    if text.len() <= most || text.chars().count() <= most {
        return Cow::Borrowed(text);
    }
    let tail = most / 2;
    let head: String = text.chars().take(most - tail - 1).collect();
    let skipped = text.chars().count() - tail;
    Cow::Owned(head + "…" + &text.chars().skip(skipped).collect::<String>())
}

/// Creates the error of a type that is read, which has no location yet.
impl serde::de::Error for ReadError {
    fn custom<T: fmt::Display>(what: T) -> ReadError {
        ReadError::at(String::new(), None, Cause::Syntax(what.to_string()))
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0.cause)
    }
}

/// A position in the input, as a list from the field up to the root.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    /// A field.
    Key(&'a Path<'a>, &'a str),
    /// A key of a map.
    Entry(&'a Path<'a>, &'a str),
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
            Path::Key(Path::Root, key) | Path::Entry(Path::Root, key) => f.write_str(key),
            Path::Key(parent, key) | Path::Entry(parent, key) => write!(f, "{parent}.{key}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
