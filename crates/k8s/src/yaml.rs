//! YAML: the documents of a text, with limits that fit a cluster's dump.
//!
//! The parser's own limits suit configuration files; here the text is in memory
//! already, so what grows with its length may. What an input could make grow
//! faster than itself (aliases, merge keys, depth) stays limited.

use serde_saphyr::{Budget, Error, Options};

use super::error::{Cause, ReadError};
use super::read::Document;

/// What aliases may add to a text: more nodes, and more bytes of scalars, than
/// anybody writes by hand.
const ADDED_NODES: usize = 20_000;
const ADDED_BYTES: usize = 4 << 20;

/// Limits for a text of this length.
pub(crate) fn options(length: usize) -> Options {
    let length = length.saturating_add(1);
    let mut budget = Budget::default();
    budget.max_documents = length;
    budget.max_total_scalar_bytes = length.saturating_mul(2).saturating_add(ADDED_BYTES);
    budget.max_events = length.saturating_add(ADDED_NODES).saturating_mul(2);
    budget.max_nodes = length.saturating_add(ADDED_NODES);
    let mut options = Options::default();
    options.budget = Some(budget);
    options.alias_limits.max_total_replayed_events = 2 * ADDED_NODES;
    options.with_snippet = false;
    options
}

/// Reads every document that is not empty.
pub(super) fn documents(input: &str) -> Result<Vec<Document>, ReadError> {
    serde_saphyr::from_multiple_with_options(input, options(input.len()))
        .map_err(|error| syntax(&error, input))
}

fn syntax(error: &Error, input: &str) -> ReadError {
    let position = error.location().map(|at| (at.line(), at.column()));
    // Of a document that is a lone scalar the parser does not say where it is.
    let (path, position) = match position {
        Some(position) => ("", Some(position)),
        None if input.contains("\n---") => ("documents", None),
        None => {
            let is_content = |line: &str| {
                !line.trim().is_empty() && !["#", "%", "---"].iter().any(|s| line.starts_with(s))
            };
            ("", Some((input.lines().position(is_content).map_or(1, |at| at as u64 + 1), 1)))
        }
    };
    let message = error.without_snippet().to_string();
    // The position is given apart from the message, and of an alias there are two.
    let places = [" (defined at line ", " at line "];
    let end = places.iter().filter_map(|place| message.find(place)).min();
    let message = &message[..end.unwrap_or(message.len())];
    ReadError::at(path.to_owned(), position, Cause::Syntax(message.to_owned()))
}
