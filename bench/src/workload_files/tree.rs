//! A YAML document with the line of each value, and checked access to the fields of a map.
//!
//! Operations have different fields, chosen by their `opcode`. Serde would buffer such a map and lose its lines, so the
//! document is parsed as a tree and the types are read from the tree. As in Go, the case of field names is ignored.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

/// A value and the line on which it begins.
#[derive(Debug)]
pub(super) struct Tree {
    line: u64,
    value: Yaml,
}

#[derive(Debug)]
enum Yaml {
    Null,
    Flag(bool),
    Number(f64),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(Key, Tree)>),
}

#[derive(Debug)]
struct Key {
    line: u64,
    name: String,
}

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

/// An error of the parser without its line.
pub(super) fn syntax(error: &serde_saphyr::Error) -> String {
    if let serde_saphyr::Error::MultipleDocuments { .. } = error.without_snippet() {
        return "the file has several YAML documents: write one file for each".to_owned();
    }
    let what = error.without_snippet().to_string();
    what.split(" at line ").next().unwrap_or_default().to_owned()
}

impl Tree {
    /// Parses a text with one document.
    pub(super) fn parse(text: &str) -> Result<Tree, Invalid> {
        serde_saphyr::from_str(text).map_err(|error| {
            let line = error.location().map_or(0, |at| at.line());
            Invalid { line, path: String::new(), why: Why::Syntax(syntax(&error)) }
        })
    }

    /// The whole document.
    pub(super) fn root(&self) -> Part<'_> {
        Part { path: String::new(), tree: self }
    }
}

/// A value and its path.
#[derive(Clone, Debug)]
pub(super) struct Part<'t> {
    path: String,
    tree: &'t Tree,
}

impl<'t> Part<'t> {
    pub(super) fn invalid(&self, why: Why) -> Invalid {
        Invalid { line: self.tree.line, path: self.path.clone(), why }
    }

    pub(super) fn line(&self) -> u64 {
        self.tree.line
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.tree.value, Yaml::Null)
    }

    pub(super) fn text(&self) -> Result<&'t str, Invalid> {
        match &self.tree.value {
            Yaml::Text(text) => Ok(text),
            _ => Err(self.invalid(Why::Type("a text"))),
        }
    }

    pub(super) fn flag(&self) -> Result<bool, Invalid> {
        match self.tree.value {
            Yaml::Flag(flag) => Ok(flag),
            _ => Err(self.invalid(Why::Type("true or false"))),
        }
    }

    pub(super) fn number(&self) -> Result<f64, Invalid> {
        match self.tree.value {
            Yaml::Number(number) => Ok(number),
            _ => Err(self.invalid(Why::Type("a number"))),
        }
    }

    /// A whole number that is not negative.
    pub(super) fn count(&self) -> Result<usize, Invalid> {
        whole(self.number()?).ok_or_else(|| self.invalid(Why::Type("a count")))
    }

    pub(super) fn list(&self) -> Result<Vec<Part<'t>>, Invalid> {
        match &self.tree.value {
            Yaml::List(items) => {
                let item = |(at, tree)| Part { path: format!("{}[{at}]", self.path), tree };
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
        let Yaml::Map(entries) = &self.tree.value else {
            return Err(self.invalid(Why::Type("a map")));
        };
        let entry = |(key, tree): &'t (Key, Tree)| {
            let dot = if self.path.is_empty() { "" } else { "." };
            (&*key.name, Part { path: format!("{}{dot}{}", self.path, key.name), tree })
        };
        Ok(entries.iter().map(entry).collect())
    }

    /// The fields of a type. Call [`Fields::finish`] when all known fields were taken.
    pub(super) fn fields(&self) -> Result<Fields<'t>, Invalid> {
        let Yaml::Map(entries) = &self.tree.value else {
            return Err(self.invalid(Why::Type("a map")));
        };
        let parts = self.entries()?;
        let lines = entries.iter().map(|(key, _)| key.line);
        let left = parts.into_iter().zip(lines).map(|((name, part), line)| (name, line, part));
        Ok(Fields { owner: self.clone(), left: left.collect() })
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

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        let spanned = Spanned::<Yaml>::deserialize(deserializer)?;
        Ok(Tree { line: spanned.referenced.line(), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Yaml, D::Error> {
        deserializer.deserialize_any(AnyYaml)
    }
}

struct AnyYaml;

impl<'de> Visitor<'de> for AnyYaml {
    type Value = Yaml;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }

    fn visit_none<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Yaml, D::Error> {
        Yaml::deserialize(deserializer)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Yaml, E> {
        Ok(Yaml::Flag(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Yaml, E> {
        Ok(Yaml::Number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Yaml, E> {
        Ok(Yaml::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Yaml, E> {
        Ok(Yaml::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Yaml, E> {
        Ok(Yaml::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Yaml, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Yaml::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Yaml, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let key = Key { line: key.referenced.line(), name: key.value };
            map.push((key, entries.next_value()?));
        }
        Ok(Yaml::Map(map))
    }
}
