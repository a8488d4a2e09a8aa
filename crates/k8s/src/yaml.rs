//! Parses the documents of a YAML text, with limits that fit the dump of a cluster.
//!
//! The parser's own limits are meant for configuration files. Here the text is already in memory, so costs that grow
//! linearly with its length are allowed. Costs that can grow faster (aliases, merge keys, depth) stay limited.

use serde_saphyr::{Budget, Error, Options};

use super::error::{Cause, ReadError};
use super::read::Document;

/// The memory that aliases and merge keys may add to a text. Charts repeat blocks of a few lines thousands of times; a
/// text that exceeds this amount is meant to exhaust memory.
const EXPANSION: usize = 64 << 20;
/// The amount in words.
const EXPANSION_TEXT: &str = "64 MiB";
/// The memory of a value that an alias or a merge key repeats, besides the bytes of its text.
const NODE: usize = 256;
/// How deep values may be nested. Schemas in custom resource definitions are the deepest values, with about 50 levels. The
/// parser recurses, and needs less than the 2 MB of a thread's stack also in a build without optimization.
const DEPTH: usize = 64;

/// Returns the limits for a text of the given length.
pub(crate) fn options(length: usize) -> Options {
    let length = length.saturating_add(1);
    let (added, bytes) = (EXPANSION / NODE, EXPANSION / 4);
    let mut budget = Budget::default();
    budget.max_documents = length;
    budget.max_total_scalar_bytes = length.saturating_mul(2).saturating_add(bytes);
    budget.max_buffered_comment_events = length;
    budget.max_total_comment_bytes = length;
    budget.max_events = length.saturating_add(added).saturating_mul(2);
    budget.max_nodes = length.saturating_add(added);
    budget.max_depth = DEPTH;
    budget.max_aliases = length;
    budget.max_anchors = length;
    budget.max_merge_keys = length;
    // One block that all objects repeat is common. The number of repeated values is limited below.
    budget.enforce_alias_anchor_ratio = false;
    budget.max_recorded_anchor_events = length.saturating_add(added).saturating_mul(2);
    budget.max_recorded_anchor_bytes = length.saturating_add(bytes);
    let mut options = Options::default();
    options.budget = Some(budget);
    options.alias_limits.max_total_replayed_events = added;
    options.with_snippet = false;
    // Go reads numbers as YAML 1.1 does: `0644` is octal.
    options.legacy_octal_numbers = true;
    options
}

/// Returns whether the aliases of a text were expanded up to a limit.
fn is_expansion(error: &Error) -> bool {
    use serde_saphyr::budget::BudgetBreach as Breach;
    match error {
        Error::AliasError { error, .. } | Error::WithSnippet { error, .. } => is_expansion(error),
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => true,
        Error::Budget { breach, .. } => matches!(
            breach,
            Breach::Events { .. }
                | Breach::Nodes { .. }
                | Breach::ScalarBytes { .. }
                | Breach::RecordedAnchorEvents { .. }
                | Breach::RecordedAnchorBytes { .. }
        ),
        _ => false,
    }
}

/// Parses all documents that are not empty.
pub(super) fn documents(input: &str) -> Result<Vec<Document>, ReadError> {
    serde_saphyr::from_multiple_with_options(input, options(input.len()))
        .map_err(|error| syntax(&error, input))
}

/// The parser's words for values of a wrong type, and those of manifests.
const WORDS: [(&str, &str); 11] = [
    ("expected mapping start", "expected an object (KEY: VALUE)"),
    ("expected sequence start", "expected a list (- ITEM)"),
    ("expected string scalar", "expected a text"),
    ("cannot deserialize null into string; use Option<String>", "expected a text"),
    ("rejected by the configured policy", "is not a number of JSON"),
    ("invalid boolean", "expected true or false"),
    ("invalid i32", "expected a whole number of at most 32 bits"),
    ("invalid i64", "expected a whole number"),
    ("invalid u16", "expected a whole number from 0 to 65535"),
    ("invalid u32", "expected a whole number from 0 to 4294967295"),
    ("invalid u64", "expected a whole number from 0"),
];

/// Returns the text of an error in the words of manifests, without advice on the options of the parser.
pub(crate) fn message(error: &Error) -> String {
    let message = error.without_snippet().to_string();
    let message = message
        .replace(", set DuplicateKeyPolicy in Options if acceptable", ": remove one of them");
    WORDS.iter().fold(message, |message, (theirs, ours)| message.replace(theirs, ours))
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
    if is_expansion(error) {
        let cause = Cause::Expansion { limit: EXPANSION_TEXT };
        return ReadError::at(path.to_owned(), position, cause);
    }
    let message = message(error);
    // The error has a position of its own, so it is cut off the message. For an alias the message has two positions.
    let places = [" (defined at line ", " at line "];
    let end = places.iter().filter_map(|place| message.find(place)).min();
    let message = &message[..end.unwrap_or(message.len())];
    ReadError::at(path.to_owned(), position, Cause::Syntax(message.to_owned()))
}
