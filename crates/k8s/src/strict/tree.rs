//! JSON or YAML as a tree whose values know their lines, and that keeps repeated keys.

use std::cell::Cell;
use std::fmt;
use std::io;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::Step;

/// A value and the line on which its key, or the item of a list, starts.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) line: u64,
    pub(super) tree: Tree,
}

#[derive(Clone, Debug)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    Integer(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    /// A word without quotes that is a truth value for kubectl, which reads YAML 1.1, and a text in YAML 1.2: `yes`.
    Word(String),
    List(Vec<Spot>),
    Map(Vec<(String, Spot)>),
}

impl Spot {
    /// Returns the value of a key. If it is repeated, its last value counts.
    pub(super) fn get(&self, key: &str) -> Option<&Spot> {
        let Tree::Map(entries) = &self.tree else { return None };
        entries.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.tree {
            Tree::Text(text) | Tree::Word(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn item(&self, index: usize) -> Option<&Spot> {
        match &self.tree {
            Tree::List(items) => items.get(index),
            _ => None,
        }
    }

    fn step(&self, step: &Step) -> Option<&Spot> {
        match step {
            Step::Key(key) => self.get(key),
            Step::Index(index) => self.item(*index),
        }
    }

    /// Returns the value at a place.
    pub(super) fn at(&self, place: &[Step]) -> Option<&Spot> {
        place.iter().try_fold(self, |spot, step| spot.step(step))
    }

    /// Returns the line of the longest part of the path that exists.
    pub(super) fn line_of(&self, place: &[Step]) -> u64 {
        let mut spot = self;
        for step in place {
            match spot.step(step) {
                Some(next) => spot = next,
                None => break,
            }
        }
        spot.line
    }
}

/// Returns the values of a text, without empty documents. Nothing if the text cannot be parsed.
pub(super) fn documents(input: &[u8]) -> Vec<Spot> {
    let input = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input);
    let Ok(text) = std::str::from_utf8(input) else { return Vec::new() };
    // The logs in a dump are replaced by empty lines.
    let Ok(text) = crate::framing::without_logs(text) else { return Vec::new() };
    if crate::is_json(text.as_bytes()) {
        return json(text.as_bytes());
    }
    let mut options = crate::yaml::options(input.len());
    // The words of YAML 1.1 are told apart below.
    options.strict_booleans = true;
    serde_saphyr::from_multiple_with_options(&text, options).unwrap_or_default()
}

/// Returns the values of a text of one or several JSON values.
fn json(input: &[u8]) -> Vec<Spot> {
    let line = Cell::new(1);
    let lines = Lines { input, line: &line };
    let mut parser = serde_json::Deserializer::from_reader(lines);
    let mut values = Vec::new();
    while parser.end().is_err() {
        match (Json { line: &line }).deserialize(&mut parser) {
            Ok(value) => values.push(value),
            Err(_) => return Vec::new(),
        }
    }
    values
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

/// Builds the scalars of a tree, which JSON and YAML have in common.
macro_rules! scalars {
    ($spot:expr) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($spot(&self, Tree::Null))
        }

        fn visit_none<E>(self) -> Result<Self::Value, E> {
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

        /// kubectl sends a float without a fraction as a whole number.
        fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
            let whole = crate::wire::whole(value).and_then(|whole| i64::try_from(whole).ok());
            Ok($spot(&self, whole.map_or(Tree::Float(value), Tree::Integer)))
        }

        fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
            Ok($spot(&self, Tree::Text(value.to_owned())))
        }
    };
}

#[derive(Clone, Copy)]
struct Json<'l> {
    line: &'l Cell<u64>,
}

impl Json<'_> {
    fn spot(&self, tree: Tree) -> Spot {
        Spot { line: self.line.get(), tree }
    }
}

impl<'de> DeserializeSeed<'de> for Json<'_> {
    type Value = Spot;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Spot, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Json<'_> {
    type Value = Spot;

    scalars!(Json::spot);

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Spot, A::Error> {
        let line = self.line.get();
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Spot { line, tree: Tree::List(items) })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Spot, A::Error> {
        let line = self.line.get();
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let line = self.line.get();
            let value = map.next_value_seed(self)?;
            entries.push((key, Spot { line, ..value }));
        }
        Ok(Spot { line, tree: Tree::Map(entries) })
    }
}

impl<'de> Deserialize<'de> for Spot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Spot, D::Error> {
        let Spanned { value, referenced, defined } = Spanned::<Tree>::deserialize(deserializer)?;
        let tree = match value {
            // Quotes make the source longer than the text.
            Tree::Text(word)
                if truth(&word).is_some() && defined.span().len() == word.len() as u64 =>
            {
                Tree::Word(word)
            }
            value => value,
        };
        Ok(Spot { line: referenced.line(), tree })
    }
}

/// Returns the truth value that a word has in YAML 1.1 only (go-yaml v2 `resolve`).
pub(super) fn truth(word: &str) -> Option<bool> {
    match word {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

struct Yaml;

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(Yaml)
    }
}

impl<'de> Visitor<'de> for Yaml {
    type Value = Tree;

    scalars!(|_, tree| tree);

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<Spot>()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let value = map.next_value::<Spot>()?;
            // A nested map starts on a later line than its key.
            let line = if key.referenced.line() > 0 { key.referenced.line() } else { value.line };
            entries.push((key.value, Spot { line, ..value }));
        }
        Ok(Tree::Map(entries))
    }
}
