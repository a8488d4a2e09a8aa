//! Finds the values of an input that consists of several: concatenated JSON, newline-delimited JSON, and the output of
//! `kubectl cluster-info dump`, which has the logs of containers between the lists.
//!
//! The values are not located in advance: each is read where the one before it ends, so an input of one value costs the
//! same as without framing.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, IgnoredAny};

use super::error::{Cause, Path, ReadError};
use super::read::{Document, Item, json_path};
use super::tree::{Spot, Tree};
use super::typed::Origin;

/// The line that starts the logs of a container, up to the container's name.
const LOGS_START: &str = "==== START logs for container ";
/// The line that ends them.
const LOGS_END: &str = "==== END logs for container ";

/// Adds the objects of the JSON values of a text to a document. Returns `None` if the text continues with another YAML
/// document. O(length).
pub(super) fn values(text: &str, mut document: Document) -> Result<Option<Document>, ReadError> {
    let (mut at, mut index) = (0, 0);
    loop {
        let rest = &text[at..];
        let mut parser = serde_json::Deserializer::from_str(rest);
        if let Err(error) = Item::root(&mut document).deserialize(&mut parser) {
            let error = ReadError::json(json_path(rest), &error);
            return Err(error.behind(&text[..at]));
        }
        let end = at + parser.into_iter::<IgnoredAny>().byte_offset();
        if let Some(error) = document.failed.take() {
            if index == 0 && matches!(next(text, end), Ok(Next::End)) {
                return Err(error);
            }
            return Err(error.within(&format!("documents[{index}]")));
        }
        let next = next(text, end)?;
        at = match next {
            Next::Value(at) => at,
            Next::Yaml => return Ok(None),
            Next::End => return Ok(Some(document)),
        };
        index += 1;
    }
}

/// What follows a JSON value.
enum Next {
    /// Another value, at this offset.
    Value(usize),
    /// A YAML document.
    Yaml,
    /// The end of the text.
    End,
}

/// Finds the value that follows the one which ends at `at`.
fn next(text: &str, mut at: usize) -> Result<Next, ReadError> {
    loop {
        at = text.len() - text[at..].trim_ascii_start().len();
        let rest = &text[at..];
        if rest.is_empty() {
            return Ok(Next::End);
        } else if rest.starts_with(['{', '[']) {
            return Ok(Next::Value(at));
        } else if rest.starts_with(LOGS_START) {
            at += logs(rest).ok_or_else(|| cut_logs(&text[..at]))?;
        } else if let Some(behind) = rest.strip_prefix("---") {
            let behind = behind.trim_ascii_start();
            if !behind.is_empty()
                && !behind.starts_with(['{', '[', '-'])
                && !behind.starts_with(LOGS_START)
            {
                return Ok(Next::Yaml);
            }
            at += "---".len();
        } else {
            let cause = Cause::Syntax("trailing characters after the JSON value".to_owned());
            return Err(ReadError::at(String::new(), Some((1, 1)), cause).behind(&text[..at]));
        }
    }
}

/// Returns the text without the logs of containers, whose lines stay as empty lines.
pub(super) fn without_logs(text: &str) -> Result<Cow<'_, str>, ReadError> {
    let Some(mut start) = find_logs(text, 0) else { return Ok(Cow::Borrowed(text)) };
    let mut kept = String::with_capacity(text.len());
    let mut copied = 0;
    loop {
        kept.push_str(&text[copied..start]);
        let end = start + logs(&text[start..]).ok_or_else(|| cut_logs(&text[..start]))?;
        kept.extend(text[start..end].chars().filter(|c| *c == '\n'));
        copied = end;
        match find_logs(text, end) {
            Some(next) => start = next,
            None => break,
        }
    }
    kept.push_str(&text[copied..]);
    Ok(Cow::Owned(kept))
}

/// Returns the documents of a text that are not empty. Each starts with its marker.
pub(super) fn documents(text: &str) -> Vec<Origin<'_>> {
    let is_marker = |line: &str| {
        line.strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
    };
    let mut documents = Vec::new();
    let (mut start, mut before, mut at) = (0, 0, 0);
    // A document begins with its directives, which precede the marker.
    let mut is_open = false;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if is_marker(line) && is_open {
            documents.push(Origin { text: &text[start..at], before });
            (start, before) = (at, number as u64);
        }
        is_open |= is_marker(line) || is_content(line);
        at += line.len();
        // Another document may follow without a marker.
        if line.trim_end() == "..." {
            documents.push(Origin { text: &text[start..at], before });
            (start, before, is_open) = (at, number as u64 + 1, false);
        }
    }
    documents.push(Origin { text: &text[start..], before });
    documents.retain(|document| document.text.lines().any(is_content));
    documents
}

/// Returns whether a line has more than a comment, a directive, or the marker of a document.
fn is_content(line: &str) -> bool {
    let line = line.strip_prefix("---").unwrap_or(line).trim();
    !line.is_empty() && !line.starts_with(['#', '%']) && line != "..."
}

impl Origin<'_> {
    /// Returns the line on which the content of the document starts.
    pub(super) fn start(self) -> u64 {
        let at = self.text.lines().position(is_content);
        self.before + at.map_or(1, |at| at as u64 + 1)
    }
}

/// Finds logs at the start of a line.
fn find_logs(text: &str, from: usize) -> Option<usize> {
    let is_line = |at: &usize| *at == 0 || text.as_bytes()[at - 1] == b'\n';
    text[from..].match_indices(LOGS_START).map(|(at, _)| from + at).find(is_line)
}

/// Returns the length of the logs at the start of a text. They end with a line that names the same container, which may
/// follow the last line of the log without a line break.
fn logs(text: &str) -> Option<usize> {
    let header = text.lines().next()?;
    let container = header.strip_prefix(LOGS_START)?;
    let end = format!("{LOGS_END}{container}");
    Some(header.len() + text[header.len()..].find(&end)? + end.len())
}

fn cut_logs(before: &str) -> ReadError {
    let cause =
        Cause::Syntax("these logs have no end: the dump is cut off, write it again".to_owned());
    ReadError::at(String::new(), Some((1, 1)), cause).behind(before)
}

/// Returns the text of an input, or the error for bytes that are not UTF-8, with the encoding if it is recognized.
pub(super) fn text(input: &[u8]) -> Result<&str, ReadError> {
    let utf16 = match input {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => true,
        [first, second, ..] => (*first == 0) != (*second == 0),
        _ => false,
    };
    if utf16 {
        let cause = Cause::Encoding { found: "UTF-16" };
        return Err(ReadError::at(String::new(), Some((1, 1)), cause));
    }
    std::str::from_utf8(input).map_err(|error| {
        let before = &input[..error.valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let column = String::from_utf8_lossy(&before[start..]).chars().count() as u64 + 1;
        let cause = Cause::Syntax("the text is not valid UTF-8: save the file as UTF-8".to_owned());
        ReadError::at(String::new(), Some((line, column)), cause)
    })
}

/// Returns the position of the first template action in a text, such as `name: {{ .Release.Name }}`. Only meaningful
/// for a text that was refused: a string may contain braces.
pub(super) fn template(text: &str) -> Option<(u64, u64)> {
    text.lines().enumerate().find_map(|(number, line)| {
        let at = line.find("{{")?;
        let before = line[..at].trim_end();
        let is_action = before.trim_start().is_empty()
            || before.ends_with([':', '-', '"', '\'', '{', '[', ',']);
        let is_closed = line[at..].contains("}}");
        let column = line[..at].chars().count() as u64 + 1;
        (is_action && is_closed && !before.trim_start().starts_with('#'))
            .then_some((number as u64 + 1, column))
    })
}

/// The lists of an export of kube-scheduler-simulator, with the kinds of their items, in the order in which they are
/// read. Its other field is `schedulerConfig`.
pub(super) const EXPORT: [(&str, &str, &str); 7] = [
    ("namespaces", "v1", "Namespace"),
    ("priorityClasses", "scheduling.k8s.io/v1", "PriorityClass"),
    ("storageClasses", "storage.k8s.io/v1", "StorageClass"),
    ("pvs", "v1", "PersistentVolume"),
    ("pvcs", "v1", "PersistentVolumeClaim"),
    ("nodes", "v1", "Node"),
    ("pods", "v1", "Pod"),
];

/// Returns whether fields without `apiVersion` and `kind` are such an export: at least one of the lists, and no field
/// that the simulator does not write.
pub(super) fn is_export(object: &Spot<'_>) -> bool {
    let Tree::Map(fields) = &object.tree else { return false };
    let is_list = |name: &str| EXPORT.iter().any(|(list, ..)| *list == name);
    fields.iter().any(|field| is_list(&field.key) && matches!(field.value.tree, Tree::List(_)))
        && fields.iter().all(|field| match &*field.key {
            "schedulerConfig" => true,
            name => is_list(name) && matches!(field.value.tree, Tree::List(_) | Tree::Null),
        })
}

/// The error of an object without a kind at a path.
pub(super) fn unnamed(path: &Path<'_>, api_version: bool, kind: bool) -> ReadError {
    match (api_version, kind) {
        (true, false) => ReadError::new(&path.key("kind"), Cause::Missing),
        (false, true) => ReadError::new(&path.key("apiVersion"), Cause::Missing),
        _ => ReadError::new(path, Cause::NoKind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}"#;

    fn nodes(text: &str) -> usize {
        crate::read(text.as_bytes()).map_or(0, |objects| objects.nodes.len())
    }

    #[test]
    fn values_may_be_separated_in_every_usual_way() {
        for separator in ["", " ", "\n", "\r\n\r\n", "\n---\n", "\n---\n---\n"] {
            assert_eq!(nodes(&[NODE; 3].join(separator)), 3, "{separator:?}");
        }
        for separator in [",", "\n# comment\n", " x ", "\n--\n"] {
            assert_eq!(nodes(&[NODE; 2].join(separator)), 0, "{separator:?}");
        }
    }

    #[test]
    fn positions_count_from_the_start_of_the_text() {
        let position = |text: &str| {
            let error = crate::read_json(text.as_bytes()).expect_err("an invalid text");
            (error.line(), error.column())
        };
        assert_eq!(position(&format!("{NODE}\n{NODE}\n{{]")), (Some(3), Some(2)));
        assert_eq!(position(&format!("{NODE} {{]")), (Some(1), Some(NODE.len() as u64 + 3)));
        assert_eq!(position(&format!("{NODE}\n\n  tail")), (Some(3), Some(3)));
    }

    #[test]
    fn an_error_in_a_later_value_discards_the_earlier_ones() {
        let mut reader = crate::Reader::new();
        assert!(reader.read(format!("{NODE}\n{{\"kind\": 1}}").as_bytes()).is_err());
        assert!(reader.finish().nodes.is_empty());
    }

    #[test]
    fn errors_name_the_value_among_several() {
        let bad = NODE.replace("\"n\"", "\"\"");
        let path = |text: String| {
            crate::read_json(text.as_bytes()).expect_err("no name").path().to_owned()
        };
        assert_eq!(path(bad.clone()), "metadata.name");
        assert_eq!(path(format!("{NODE}\n{bad}")), "documents[1].metadata.name");
        assert_eq!(path(format!("{bad}\n{NODE}")), "documents[0].metadata.name");
    }

    #[test]
    fn logs_keep_their_lines() {
        let container = "c of pod a/b ====";
        let text = format!(
            "a: 1\n{LOGS_START}{container}\n{{\n{LOGS_END}d of pod a/b ====\nx{LOGS_END}{container}\nb: 1\n"
        );
        assert_eq!(without_logs(&text).as_deref(), Ok("a: 1\n\n\n\n\nb: 1\n"));
        assert!(without_logs(&format!("{LOGS_START}{container}\nx")).is_err());
        let quoted = format!("a: |\n  {LOGS_START}{container}\n");
        assert_eq!(without_logs(&quoted).as_deref(), Ok(&*quoted));
    }

    #[test]
    fn only_actions_are_templates() {
        assert_eq!(template("a: 1\n  b: {{ .x }}"), Some((2, 6)));
        assert_eq!(template("{{- if .x }}"), Some((1, 1)));
        for text in ["# a: {{ x }}", "a: in {{ x }}", "a: {{", ""] {
            assert_eq!(template(text), None, "{text}");
        }
    }

    #[test]
    fn an_object_with_a_kind_is_not_an_export() {
        let text = r#"{"nodes":[{"metadata":{"name":"n"}}],"pods":[]}"#;
        assert_eq!(nodes(text), 1);
        assert_eq!(
            nodes(&text.replace("\"pods\"", "\"kind\":\"Foo\",\"apiVersion\":\"v1\",\"pods\"")),
            0
        );
        assert_eq!(nodes(&text.replace("\"pods\"", "\"other\"")), 0);
    }
}
