//! YAML: the documents of a text, with limits that fit a cluster's dump.
//!
//! The parser's own limits suit configuration files; here the text is in memory
//! already, so what grows with its length may. What an input could make grow
//! faster than itself (aliases, merge keys, depth) stays limited.

use serde_saphyr::{Budget, Error, Options};

use super::error::{Cause, ReadError};
use super::read::Document;

/// Reads every document that is not empty.
pub(super) fn documents(input: &str) -> Result<Vec<Document>, ReadError> {
    let length = input.len().saturating_add(1);
    let mut budget = Budget::default();
    budget.max_documents = length;
    budget.max_total_scalar_bytes = length.saturating_mul(2).max(budget.max_total_scalar_bytes);
    budget.max_events = length.saturating_mul(2).max(budget.max_events);
    budget.max_nodes = length.max(budget.max_nodes);
    let mut options = Options::default();
    options.budget = Some(budget);
    options.with_snippet = false;
    serde_saphyr::from_multiple_with_options(input, options).map_err(|error| syntax(&error))
}

fn syntax(error: &Error) -> ReadError {
    let position = error.location().map(|at| (at.line(), at.column()));
    let message = error.without_snippet().to_string();
    // The position is given apart from the message, and of an alias there are two.
    let places = [" (defined at line ", " at line "];
    let end = places.iter().filter_map(|place| message.find(place)).min();
    let message = &message[..end.unwrap_or(message.len())];
    ReadError::at(String::new(), position, Cause::Syntax(message.to_owned()))
}
