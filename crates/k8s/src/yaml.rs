//! Reads YAML, with limits that fit the dump of a cluster.
//!
//! A text is read as any type that implements [`Deserialize`](serde::Deserialize), in which an [`At`] has the line of a
//! value. The error of a value has its path and its position.
//!
//! The parser's own limits are meant for configuration files. Here the text is already in memory, so costs that grow
//! linearly with its length are allowed. Costs that can grow faster (aliases, merge keys, depth) stay limited.

use std::panic::resume_unwind;
use std::thread;

use serde::de::{DeserializeOwned, DeserializeSeed};
use serde_saphyr::{Budget, Error, NonFiniteFloatPolicy, Options};

use super::error::{Cause, Path, ReadError};
use super::read::{Document, Streamed};

pub(crate) use super::tree::{Spot, Tree};
pub use super::typed::At;
pub(crate) use super::typed::{Origin, Typed};

/// The memory that aliases and merge keys may add to a document. Charts repeat blocks of a few lines thousands of
/// times; a text that exceeds this amount is meant to exhaust memory.
const EXPANSION: usize = 64 << 20;
/// The limits in words.
const EXPANSION_TEXT: &str = "64 MiB, or 32 values for each byte of the text";
/// The memory of a value that an alias or a merge key repeats, besides the bytes of its text.
const NODE: usize = 256;
/// The number of values that a byte of a document may add, so that the time for many documents is linear as well.
const ADDED: usize = 32;
/// How deep values may be nested. Schemas in custom resource definitions are the deepest values, with about 50 levels.
const DEPTH: usize = 64;
/// The stack of a parser that recurses to this depth in a build without optimization, which takes 3 MB.
const STACK: usize = 8 << 20;

/// Returns the limits for a document of the given length.
fn options(length: usize) -> Options {
    let length = length.saturating_add(1);
    let (added, bytes) = ((EXPANSION / NODE).min(length.saturating_mul(ADDED)), EXPANSION / 4);
    let mut budget = Budget::default();
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
    // The words of YAML 1.1 are told apart in the tree, and `.inf` may be meant as a text.
    options.strict_booleans = true;
    options.non_finite_float_policy = NonFiniteFloatPolicy::PassThrough;
    options
}

/// Reads a text of one document, in YAML or JSON, as a type. O(length).
///
/// ```
/// use portolan_k8s::yaml::{At, from_str};
/// use std::collections::HashMap;
///
/// let prices: HashMap<String, At<f64>> = from_str("small: 0.1\nlarge: 0.4\n")?;
/// assert_eq!(prices["large"], At { line: 2, value: 0.4 });
///
/// let error = from_str::<HashMap<String, f64>>("small: cheap\n").unwrap_err();
/// assert_eq!((error.line(), error.path()), (Some(1), "small"));
/// # Ok::<(), portolan_k8s::ReadError>(())
/// ```
///
/// # Errors
///
/// The text is not YAML, exceeds a limit, or has several documents, or the value does not fit the type.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, ReadError> {
    read(Origin { text, before: 0 })
}

/// Reads a document as a type.
pub(crate) fn read<T: DeserializeOwned>(document: Origin<'_>) -> Result<T, ReadError> {
    Typed::new(&parse(document)?, Path::Root, document).read()
}

/// Parses a document. The lines of the tree are counted from the start of the document.
pub(crate) fn parse(document: Origin<'_>) -> Result<Spot<'_>, ReadError> {
    let parse = || {
        serde_saphyr::from_str_with_options(document.text, options(document.text.len()))
            .map_err(|error| syntax(&error, document))
    };
    with_stack(parse)
}

/// Runs a parser, in a debug build on a stack of [`STACK`] bytes. An optimized parser needs less than the 2 MB of a
/// thread.
pub(super) fn with_stack<R: Send>(parse: impl FnOnce() -> R + Send) -> R {
    if !cfg!(debug_assertions) {
        return parse();
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, parse);
        let parsed = thread.expect("a thread for the parser").join();
        parsed.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Adds the objects of a document, without a tree of the whole document.
pub(super) fn objects(from: Origin<'_>, document: &mut Document) -> Result<(), ReadError> {
    let options = options(from.text.len());
    let read = serde_saphyr::with_deserializer_from_str_with_options(from.text, options, |yaml| {
        Streamed::root(document, from).deserialize(yaml)
    });
    // An error of an object is kept with its path and position.
    read.map_err(|error| document.failed.take().unwrap_or_else(|| syntax(&error, from)))
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

/// Returns the error of a document in the words of manifests, without advice on the options of the parser.
fn syntax(error: &Error, document: Origin<'_>) -> ReadError {
    // The parser does not return a position for a document that is a single scalar.
    let position = error
        .location()
        .map_or((document.start(), 1), |at| (document.before + at.line(), at.column()));
    let cause = if is_expansion(error) {
        Cause::Expansion { limit: EXPANSION_TEXT }
    } else if let Error::MultipleDocuments { .. } = error {
        Cause::Syntax("the file has several YAML documents: write one file for each".to_owned())
    } else {
        let message = error.without_snippet().to_string();
        let message = message
            .replace(", set DuplicateKeyPolicy in Options if acceptable", ": remove one of them")
            .replace("cannot deserialize null into string; use Option<String>", "expected a text")
            .replace("expected string scalar", "expected a text");
        // The error has a position of its own, so it is cut off the message. For an alias the message has two
        // positions.
        let places = [" (defined at line ", " at line "];
        let end = places.iter().filter_map(|place| message.find(place)).min();
        Cause::Syntax(message[..end.unwrap_or(message.len())].to_owned())
    };
    ReadError::at(String::new(), Some(position), cause)
}
