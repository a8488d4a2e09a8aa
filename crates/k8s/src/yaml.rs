//! Parses the documents of a YAML text, with limits that fit the dump of a cluster.
//!
//! The parser's own limits are meant for configuration files. Here the text is already in memory, so costs that grow
//! linearly with its length are allowed. Costs that can grow faster (aliases, merge keys, depth) stay limited.

use serde_saphyr::{Budget, Error, Options};

use super::error::{Cause, ReadError};
use super::read::Document;

/// The number of nodes that aliases may add to a text, far more than manifests need.
const ADDED_NODES: usize = 20_000;
/// The number of bytes that aliases may add to the scalars of a text.
const ADDED_BYTES: usize = 4 << 20;

/// Returns the limits for a text of the given length.
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

/// Parses all documents that are not empty.
pub(super) fn documents(input: &str) -> Result<Vec<Document>, ReadError> {
    serde_saphyr::from_multiple_with_options(input, options(input.len()))
        .map_err(|error| syntax(&error, input))
}

fn syntax(error: &Error, input: &str) -> ReadError {
    let position = error.location().map(|at| (at.line(), at.column()));
    // For a document that is a single scalar the parser does not return a position.
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
    // The error has a position of its own, so it is cut off the message. For an alias the message has two positions.
    let places = [" (defined at line ", " at line "];
    let end = places.iter().filter_map(|place| message.find(place)).min();
    let message = &message[..end.unwrap_or(message.len())];
    ReadError::at(path.to_owned(), position, Cause::Syntax(message.to_owned()))
}
