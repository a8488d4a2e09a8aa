//! Checked access to the fields of a map in a YAML document.
//!
//! Operations have different fields, chosen by their `opcode`. Serde would buffer such a map and lose its lines, so the
//! document is parsed as a tree and the types are read from the tree. As in Go, the case of field names is ignored.

use std::fmt;

use portolan_k8s::yaml::{Entry, Spot, Tree};

/// Why a file of workloads is invalid.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum Why {
    #[error("{0}")]
    Syntax(String),
    #[error("expected {0}")]
    Type(&'static str),
    #[error("unknown field {0:?}")]
    UnknownField(String),
    #[error("the field {0} is required")]
    Missing(&'static str),
    #[error("unknown opcode {0:?}")]
    UnknownOpcode(String),
    #[error("{0:?} is not a parameter: write $NAME")]
    NoParameter(String),
    #[error("the parameter {0:?} is undefined in workload {1:?}")]
    UndefinedParameter(String, String),
    #[error("the parameter {0:?} of workload {1:?} is not {2}")]
    WrongParameter(String, String, &'static str),
    #[error("{0:?} occurs twice")]
    Twice(String),
    #[error("{0}")]
    Value(String),
}

/// An invalid part of a file.
#[derive(Debug, PartialEq)]
pub(super) struct Invalid {
    /// The line, counted from 1, or 0 for the whole file.
    pub(super) line: u64,
    /// The field, such as `[2].workloadTemplate[0].countParam`.
    pub(super) path: String,
    pub(super) why: Why,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.path {
            "" => self.why.fmt(f),
            path => write!(f, "{path}: {}", self.why),
        }
    }
}

/// Parses a text with one document.
pub(super) fn parse(text: &str) -> Result<Spot<'_>, Invalid> {
    portolan_k8s::yaml::tree(text).map_err(|error| Invalid {
        line: error.line().unwrap_or(0),
        path: String::new(),
        why: Why::Syntax(error.cause().to_string()),
    })
}

/// A value and its path.
#[derive(Clone, Debug)]
pub(super) struct Part<'t> {
    path: String,
    spot: &'t Spot<'t>,
}

impl<'t> Part<'t> {
    /// The whole document.
    pub(super) fn root(spot: &'t Spot<'t>) -> Part<'t> {
        Part { path: String::new(), spot }
    }

    pub(super) fn invalid(&self, why: Why) -> Invalid {
        Invalid { line: self.spot.line, path: self.path.clone(), why }
    }

    pub(super) fn line(&self) -> u64 {
        self.spot.line
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.spot.tree, Tree::Null)
    }

    pub(super) fn text(&self) -> Result<&'t str, Invalid> {
        match &self.spot.tree {
            Tree::Text(text) => Ok(text),
            _ => Err(self.invalid(Why::Type("a text"))),
        }
    }

    pub(super) fn flag(&self) -> Result<bool, Invalid> {
        self.spot.truth().ok_or_else(|| self.invalid(Why::Type("true or false")))
    }

    pub(super) fn number(&self) -> Result<f64, Invalid> {
        self.spot.number().ok_or_else(|| self.invalid(Why::Type("a number")))
    }

    /// A whole number that is not negative.
    pub(super) fn count(&self) -> Result<usize, Invalid> {
        whole(self.number()?).ok_or_else(|| self.invalid(Why::Type("a count")))
    }

    pub(super) fn list(&self) -> Result<Vec<Part<'t>>, Invalid> {
        match &self.spot.tree {
            Tree::List(items) => {
                let item = |(at, spot)| Part { path: format!("{}[{at}]", self.path), spot };
                Ok(items.iter().enumerate().map(item).collect())
            }
            _ => Err(self.invalid(Why::Type("a list"))),
        }
    }

    pub(super) fn texts(&self) -> Result<Vec<String>, Invalid> {
        self.list()?.iter().map(|item| item.text().map(str::to_owned)).collect()
    }

    /// The entries of a map whose keys are names.
    pub(super) fn entries(&self) -> Result<Vec<(&'t str, Part<'t>)>, Invalid> {
        Ok(self.lines()?.into_iter().map(|(name, _, part)| (name, part)).collect())
    }

    /// The fields of a type. Call [`Fields::finish`] when all known fields were taken.
    pub(super) fn fields(&self) -> Result<Fields<'t>, Invalid> {
        Ok(Fields { owner: self.clone(), left: self.lines()? })
    }

    /// The entries of a map with the lines of their keys.
    fn lines(&self) -> Result<Vec<(&'t str, u64, Part<'t>)>, Invalid> {
        let Tree::Map(entries) = &self.spot.tree else {
            return Err(self.invalid(Why::Type("a map")));
        };
        let dot = if self.path.is_empty() { "" } else { "." };
        let entry = |Entry { key, line, value, .. }: &'t Entry<'t>| {
            (&**key, *line, Part { path: format!("{}{dot}{key}", self.path), spot: value })
        };
        Ok(entries.iter().map(entry).collect())
    }
}

/// Converts a whole number that is not negative.
pub(super) fn whole(number: f64) -> Option<usize> {
    // Beyond 2^53 a double is not exact.
    let is_whole = number.fract() == 0.0 && (0.0..9e15).contains(&number);
    is_whole.then_some(number as usize)
}

/// The fields of a type that were not taken yet.
#[derive(Debug)]
pub(super) struct Fields<'t> {
    owner: Part<'t>,
    left: Vec<(&'t str, u64, Part<'t>)>,
}

impl<'t> Fields<'t> {
    /// The type's own position.
    pub(super) fn owner(&self) -> &Part<'t> {
        &self.owner
    }

    /// Takes a field. A null counts as absent.
    pub(super) fn take(&mut self, name: &str) -> Option<Part<'t>> {
        let at = self.left.iter().position(|(known, ..)| known.eq_ignore_ascii_case(name))?;
        let (.., part) = self.left.swap_remove(at);
        Some(part).filter(|part| !part.is_null())
    }

    pub(super) fn require(&mut self, name: &'static str) -> Result<Part<'t>, Invalid> {
        self.take(name).ok_or_else(|| self.owner.invalid(Why::Missing(name)))
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Invalid> {
        self.take(name).map(|part| part.text().map(str::to_owned)).transpose()
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Invalid> {
        self.take(name).map_or(Ok(false), |part| part.flag())
    }

    pub(super) fn count(&mut self, name: &str) -> Result<Option<usize>, Invalid> {
        self.take(name).map(|part| part.count()).transpose()
    }

    pub(super) fn texts(&mut self, name: &str) -> Result<Vec<String>, Invalid> {
        self.take(name).map_or(Ok(Vec::new()), |part| part.texts())
    }

    /// Takes all remaining fields.
    pub(super) fn rest(&mut self) -> Vec<Part<'t>> {
        self.left.drain(..).map(|(.., part)| part).collect()
    }

    /// Checks that no unknown field is left.
    pub(super) fn finish(self) -> Result<(), Invalid> {
        // The first one of the file: `take` does not keep the order.
        match self.left.into_iter().min_by_key(|(_, line, _)| *line) {
            None => Ok(()),
            Some((name, line, _)) => {
                let why = Why::UnknownField(name.to_owned());
                Err(Invalid { line, path: self.owner.path, why })
            }
        }
    }
}
