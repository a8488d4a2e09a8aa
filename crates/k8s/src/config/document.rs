//! Finds the configuration in a text: among several documents, and in ConfigMaps.
//!
//! Charts and kustomizations are rendered as one stream of documents, and a scheduler in a cluster reads its
//! configuration from a ConfigMap. kube-scheduler reads neither.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{BETAS, ConfigError, KIND, V1, syntax};

/// The text of one configuration.
pub(super) struct Found<'a> {
    /// Its lines have the same numbers as in the whole text.
    pub(super) text: Cow<'a, str>,
    /// What the reader should know: the documents that were left out.
    pub(super) note: Option<String>,
}

/// A configuration within the text.
struct Candidate<'a> {
    /// The number of lines before it.
    before: usize,
    text: Cow<'a, str>,
    /// The ConfigMap and its key.
    within: Option<String>,
}

/// What the documents contain.
#[derive(Default)]
struct Contents<'a> {
    candidates: Vec<Candidate<'a>>,
    /// The number of documents of each other kind.
    others: BTreeMap<String, usize>,
}

/// Returns the only configuration in a text. A text without documents is returned as it is.
pub(super) fn find(text: &str) -> Result<Found<'_>, ConfigError> {
    let documents = split(text);
    let mut contents = Contents::default();
    for (before, document) in &documents {
        contents.take(*before, document)?;
    }
    let Contents { mut candidates, others } = contents;
    let others: Vec<String> =
        others.iter().map(|(kind, number)| format!("{number} {kind}")).collect();
    match candidates.len() {
        1 => {
            let Candidate { before, text, within } = candidates.remove(0);
            let mut notes = Vec::new();
            notes.extend(within.map(|within| format!("the configuration is that of {within}")));
            if !others.is_empty() {
                notes.push(format!("other documents are ignored: {}", others.join(", ")));
            }
            let text = match before {
                0 => text,
                before => Cow::Owned("\n".repeat(before) + &text),
            };
            Ok(Found { text, note: (!notes.is_empty()).then(|| notes.join("; ")) })
        }
        0 if documents.is_empty() => Ok(Found { text: Cow::Borrowed(text), note: None }),
        0 => Err(ConfigError::new(
            documents[0].0 as u64 + 1,
            format!("no {KIND} found, only {}: {}", others.join(", "), unsupported()),
        )),
        _ => {
            let lines: Vec<String> =
                candidates.iter().map(|found| (found.before + 1).to_string()).collect();
            let what = format!(
                "{} configurations, at lines {}: keep one",
                candidates.len(),
                lines.join(", ")
            );
            Err(ConfigError::new(candidates[1].before as u64 + 1, what))
        }
    }
}

/// Returns the documents that are not empty, each with the number of lines before it.
fn split(text: &str) -> Vec<(usize, &str)> {
    let is_marker = |line: &str| {
        line.strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
    };
    let mut documents = Vec::new();
    let (mut start, mut first, mut at) = (0, 0, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if is_marker(line) {
            documents.push((first, &text[start..at]));
            (start, first) = (at + line.len(), number + 1);
        }
        at += line.len();
    }
    documents.push((first, &text[start..]));
    documents.retain(|(_, document)| document.lines().any(is_content));
    documents
}

fn is_content(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#') && !line.starts_with('%') && line != "..."
}

const CONFIG_MAP: &str = "ConfigMap";

/// The fields that identify the type of a document.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Probe {
    api_version: Option<Spanned<String>>,
    kind: Option<String>,
}

impl Probe {
    /// Checks the version of a configuration that begins after `before` lines. A missing one is an error of the reader.
    fn check(&self, before: usize) -> Result<(), ConfigError> {
        let Some(version) = &self.api_version else { return Ok(()) };
        if version.value == V1 || BETAS.contains(&&*version.value) {
            return Ok(());
        }
        Err(ConfigError::new(before as u64 + version.referenced.line(), unsupported()))
    }
}

pub(super) fn unsupported() -> String {
    format!("only {KIND} of {V1} is supported: convert the file to it")
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigMap {
    metadata: Metadata,
    data: BTreeMap<String, Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct List {
    items: Vec<serde_json::Value>,
}

impl<'a> Contents<'a> {
    fn take(&mut self, before: usize, document: &'a str) -> Result<(), ConfigError> {
        let probe: Probe = parse(before, document)?;
        let version = probe.api_version.as_ref().map(|version| &*version.value);
        let kind = probe.kind.as_deref().filter(|kind| !kind.is_empty());
        let kind = kind.unwrap_or("document without a kind");
        match (version, kind) {
            (_, KIND) => {
                probe.check(before)?;
                let text = Cow::Borrowed(document);
                self.candidates.push(Candidate { before, text, within: None });
                return Ok(());
            }
            (Some("v1"), CONFIG_MAP) if self.take_map(before, parse(before, document)?)? => {
                return Ok(());
            }
            (Some("v1"), "List" | "ConfigMapList") => {
                for item in parse::<List>(before, document)?.items {
                    // The lines of an item are not known.
                    let text = item.to_string();
                    let Probe { kind, .. } = parse(before, &text)?;
                    let kind = kind.unwrap_or_else(|| CONFIG_MAP.to_owned());
                    if kind != CONFIG_MAP || !self.take_map(before, parse(before, &text)?)? {
                        *self.others.entry(kind).or_default() += 1;
                    }
                }
                return Ok(());
            }
            (Some("v1"), "Policy") => {
                let what =
                    format!("Kubernetes 1.23 removed the kind Policy: write a {KIND} of {V1}");
                return Err(ConfigError::new(before as u64 + 1, what));
            }
            _ => {}
        }
        *self.others.entry(kind.to_owned()).or_default() += 1;
        Ok(())
    }

    /// Takes the configurations of a ConfigMap; returns whether there are any.
    fn take_map(&mut self, before: usize, map: ConfigMap) -> Result<bool, ConfigError> {
        let mut has_any = false;
        for (key, value) in map.data {
            if !value.value.contains(KIND) {
                continue;
            }
            // The scalar begins in this line.
            let line = before + (value.referenced.line() as usize).saturating_sub(1);
            for (inner, document) in split(&value.value) {
                let probe: Probe = parse(line + inner, document)?;
                if probe.kind.as_deref() != Some(KIND) {
                    continue;
                }
                probe.check(line + inner)?;
                has_any = true;
                self.candidates.push(Candidate {
                    before: line + inner,
                    text: Cow::Owned(document.to_owned()),
                    within: Some(format!("ConfigMap {:?}, key {key:?}", map.metadata.name)),
                });
            }
        }
        Ok(has_any)
    }
}

/// Parses a document that begins after `before` lines.
fn parse<T: for<'de> Deserialize<'de>>(before: usize, document: &str) -> Result<T, ConfigError> {
    let options = crate::yaml::options(document.len());
    serde_saphyr::from_str_with_options(document, options).map_err(|error| {
        let error = syntax(&error);
        ConfigError { line: error.line + before as u64, ..error }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURATION: &str =
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

    fn found(text: &str) -> (usize, Option<String>) {
        let found = find(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let at = found.text.lines().position(|line| line.starts_with("apiVersion"));
        (at.expect("a configuration"), found.note)
    }

    fn error(text: &str) -> (u64, String) {
        let error = find(text).err().unwrap_or_else(|| panic!("no error: {text}"));
        (error.line(), error.what().to_owned())
    }

    #[test]
    fn a_configuration_is_found_among_other_documents() {
        assert_eq!(found(CONFIGURATION), (0, None));
        assert_eq!(found(&format!("# a comment\n---\n{CONFIGURATION}---\n")), (2, None));
        let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n";
        let note = "other documents are ignored: 1 ServiceAccount".to_owned();
        assert_eq!(found(&format!("{account}--- # next\r\n{CONFIGURATION}")), (4, Some(note)));
        let (line, what) = error(&format!("{account}---\n{account}"));
        assert_eq!(line, 1);
        assert!(what.contains("only 2 ServiceAccount"), "{what}");
        let (line, what) = error(&format!("{CONFIGURATION}---\n{CONFIGURATION}"));
        assert!(line == 4 && what.contains("2 configurations, at lines 1, 4"), "{line}: {what}");
        let (line, _) = error(&format!("{account}---\na: [\n"));
        assert!(line > 4);
    }

    #[test]
    fn a_configuration_is_found_in_a_config_map() {
        let indented = CONFIGURATION.replace('\n', "\n    ");
        let map = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: scheduler\ndata:\n  other: x\n  config.yaml: |\n    {indented}\n"
        );
        let (line, note) = found(&map);
        assert_eq!(line, 7, "the line in the file");
        assert!(
            note.is_some_and(|note| note.contains("ConfigMap \"scheduler\", key \"config.yaml\""))
        );
        let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": [
            { "apiVersion": "v1", "kind": "Secret" },
            { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" },
              "data": { "k": CONFIGURATION } },
        ] });
        let note = found(&list.to_string()).1.expect("a note");
        assert!(note.contains("1 Secret") && note.contains("key \"k\""), "{note}");
        let (_, what) = error("apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n");
        assert!(what.contains("only 1 ConfigMap"), "{what}");
    }
}
