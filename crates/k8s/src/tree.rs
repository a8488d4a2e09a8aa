//! A value of JSON or YAML as a tree whose parts know their positions.
//!
//! YAML is only read as this tree: its parser is generic and large, so that compiling it for the structs of all kinds
//! would take most of the time to build the crate. JSON is read as a tree if its structs cannot be filled directly: if
//! the kind of an object follows its fields, if an error needs the path of its field, and to check the input strictly.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::error::ReadError;
use super::wire::{Key, Text};

/// A value and its position.
#[derive(Clone, Debug)]
pub(crate) struct Spot<'i> {
    /// The line on which the value starts, counted from 1, or 0 if it is unknown. An alias of YAML counts as a value.
    pub(crate) line: u64,
    /// The column on which the value starts, counted from 1, or 0 if it is unknown, as in JSON.
    pub(crate) column: u64,
    /// The bytes of a scalar in a YAML document.
    pub(crate) source: Range<usize>,
    pub(crate) tree: Tree<'i>,
}

/// The value of a [`Spot`].
#[derive(Clone, Debug)]
pub(crate) enum Tree<'i> {
    Null,
    Bool(bool),
    Integer(i64),
    /// A whole number that is greater than the largest signed one.
    Unsigned(u64),
    Float(f64),
    Text(Cow<'i, str>),
    /// A word without quotes that is a truth value for kubectl, which reads YAML 1.1, and a text in YAML 1.2: `yes`.
    Word(Cow<'i, str>),
    List(Vec<Spot<'i>>),
    /// A map. JSON may repeat a key, of which the last value counts.
    Map(Vec<Entry<'i>>),
}

/// A key of a map and its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'i> {
    pub(crate) key: Cow<'i, str>,
    /// The line on which the key starts, counted from 1, or 0 if it is unknown.
    pub(crate) line: u64,
    pub(crate) column: u64,
    pub(crate) value: Spot<'i>,
}

impl<'i> Entry<'i> {
    /// Creates an entry without a position.
    pub(crate) fn new(key: Cow<'i, str>, value: impl Into<Spot<'i>>) -> Entry<'i> {
        Entry { key, line: 0, column: 0, value: value.into() }
    }
}

/// Creates a value without a position.
impl<'i> From<Tree<'i>> for Spot<'i> {
    fn from(tree: Tree<'i>) -> Spot<'i> {
        Spot { line: 0, column: 0, source: 0..0, tree }
    }
}

impl<'i> From<&'i Value> for Spot<'i> {
    fn from(value: &'i Value) -> Spot<'i> {
        Spot::from(match value {
            Value::Null => Tree::Null,
            Value::Bool(value) => Tree::Bool(*value),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => Tree::Integer(number),
                (None, Some(number)) => Tree::Unsigned(number),
                (None, None) => Tree::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Tree::Text(text.into()),
            Value::Array(items) => Tree::List(items.iter().map(Spot::from).collect()),
            Value::Object(fields) => {
                Tree::Map(fields.iter().map(|(key, value)| Entry::new(key.into(), value)).collect())
            }
        })
    }
}

impl<'i> Spot<'i> {
    /// Returns the value of a key. If it is repeated, its last value counts.
    pub(crate) fn get(&self, key: &str) -> Option<&Spot<'i>> {
        let Tree::Map(entries) = &self.tree else { return None };
        entries.iter().rev().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// Returns the truth value, if the value is one or a [word](Tree::Word).
    pub(crate) fn truth(&self) -> Option<bool> {
        match &self.tree {
            Tree::Bool(value) => Some(*value),
            Tree::Word(word) => truth(word),
            _ => None,
        }
    }

    /// Returns the number, if the value is one. A whole number beyond 2^53 is rounded.
    pub(crate) fn number(&self) -> Option<f64> {
        match self.tree {
            Tree::Integer(number) => Some(number as f64),
            Tree::Unsigned(number) => Some(number as f64),
            Tree::Float(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the text, if the value is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.tree {
            Tree::Text(text) | Tree::Word(text) => Some(text),
            _ => None,
        }
    }
}

/// Returns the truth value that a word has in YAML 1.1 only (go-yaml v2 `resolve`).
fn truth(word: &str) -> Option<bool> {
    match word {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

/// Visits the scalars of a tree, which JSON and YAML have in common. `$spot` adds the position.
macro_rules! scalars {
    ($spot:expr) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($spot(&self, Tree::Null))
        }

        fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
            Ok($spot(&self, Tree::Bool(value)))
        }

        fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
            Ok($spot(&self, Tree::Integer(value)))
        }

        fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
            let tree = i64::try_from(value).map_or(Tree::Unsigned(value), Tree::Integer);
            Ok($spot(&self, tree))
        }

        fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
            Ok($spot(&self, Tree::Float(value)))
        }

        fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
            Ok($spot(&self, Tree::Text(Cow::Borrowed(value))))
        }

        fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
            Ok($spot(&self, Tree::Text(Cow::Owned(value.to_owned()))))
        }
    };
}

/// Builds the tree of a value of YAML.
impl<'de> Deserialize<'de> for Spot<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Spot<'de>, D::Error> {
        let Spanned { value, referenced, defined } =
            Spanned::<Tree<'de>>::deserialize(deserializer)?;
        let span = defined.span();
        let start = span.byte_offset().unwrap_or(0) as usize;
        let source = start..start + span.byte_len().unwrap_or(0) as usize;
        let tree = match value {
            // Quotes make the source longer than the text.
            Tree::Text(word) if truth(&word).is_some() && source.len() == word.len() => {
                Tree::Word(word)
            }
            value => value,
        };
        Ok(Spot { line: referenced.line(), column: referenced.column(), source, tree })
    }
}

impl<'de> Deserialize<'de> for Tree<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree<'de>, D::Error> {
        deserializer.deserialize_any(Yaml)
    }
}

struct Yaml;

impl<'de> Visitor<'de> for Yaml {
    type Value = Tree<'de>;

    scalars!(|_, tree| tree);

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<Spot<'de>>()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree<'de>, A::Error> {
        let mut entries = Vec::new();
        while let Some(Spanned { value: Key(Text(key)), referenced, .. }) = map.next_key()? {
            let value = map.next_value::<Spot<'de>>()?;
            let (line, column) = match referenced.line() {
                0 => (value.line, value.column),
                line => (line, referenced.column()),
            };
            entries.push(Entry { key, line, column, value });
        }
        Ok(Tree::Map(entries))
    }
}

/// The line that a parser of JSON has reached, and the steps to the value at which it failed, the last one first.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) line: Cell<u64>,
    failed: RefCell<Vec<String>>,
}

impl Progress {
    /// Returns the next value of a parser.
    pub(crate) fn next<'i>(
        &self,
        parser: &mut serde_json::Deserializer<impl serde_json::de::Read<'i>>,
    ) -> Result<Spot<'i>, ReadError> {
        let value = Json(self).deserialize(parser);
        value.map_err(|error| ReadError::json(self.path(), &error))
    }

    fn path(&self) -> String {
        let path: String = self.failed.borrow().iter().rev().map(String::as_str).collect();
        path.strip_prefix('.').unwrap_or(&path).to_owned()
    }
}

/// Builds the tree of a value of JSON.
#[derive(Clone, Copy)]
pub(crate) struct Json<'p>(pub(crate) &'p Progress);

impl Json<'_> {
    fn spot<'de>(&self, tree: Tree<'de>) -> Spot<'de> {
        Spot { line: self.0.line.get(), ..Spot::from(tree) }
    }

    /// Adds a step to the path of an error.
    fn within<T, E>(self, read: Result<T, E>, step: impl FnOnce() -> String) -> Result<T, E> {
        read.inspect_err(|_| self.0.failed.borrow_mut().push(step()))
    }
}

impl<'de> DeserializeSeed<'de> for Json<'_> {
    type Value = Spot<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Spot<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Json<'_> {
    type Value = Spot<'de>;

    scalars!(Json::spot);

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Spot<'de>, A::Error> {
        let line = self.0.line.get();
        let mut items = Vec::new();
        while let Some(item) =
            self.within(list.next_element_seed(self), || format!("[{}]", items.len()))?
        {
            items.push(item);
        }
        Ok(Spot { line, ..Spot::from(Tree::List(items)) })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Spot<'de>, A::Error> {
        let line = self.0.line.get();
        let mut entries = Vec::new();
        while let Some(Key(Text(key))) = map.next_key()? {
            let line = self.0.line.get();
            let value = self.within(map.next_value_seed(self), || format!(".{key}"))?;
            entries.push(Entry { key, line, column: 0, value });
        }
        Ok(Spot { line, ..Spot::from(Tree::Map(entries)) })
    }
}
