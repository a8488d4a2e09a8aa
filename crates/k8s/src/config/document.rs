//! Finds the configuration in a text: among several documents, and in ConfigMaps.
//!
//! Charts and kustomizations are rendered as one stream of documents, and a scheduler in a cluster reads its
//! configuration from a ConfigMap. kube-scheduler reads neither.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::{BETAS, ConfigError, KIND, V1, syntax};
use crate::error::Path;
use crate::framing::documents;
use crate::yaml::{self, At, Origin, Spot, Tree, Typed};

/// The text of one configuration.
pub(super) struct Found<'a> {
    text: Cow<'a, str>,
    /// The number of lines before it in the whole text.
    before: u64,
    /// What the reader should know: the documents that were left out.
    pub(super) note: Option<String>,
}

impl Found<'_> {
    /// Returns the configuration as a document.
    pub(super) fn origin(&self) -> Origin<'_> {
        Origin { text: &self.text, before: self.before }
    }
}

/// A configuration within the text.
struct Candidate<'a> {
    /// The line on which it starts.
    start: u64,
    /// The number of lines before it.
    before: u64,
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
    let documents = documents(text);
    let mut contents = Contents::default();
    for document in &documents {
        contents.take(*document, &yaml::parse(*document).map_err(syntax)?)?;
    }
    let Contents { mut candidates, others } = contents;
    let others: Vec<String> =
        others.iter().map(|(kind, number)| format!("{number} {kind}")).collect();
    match (candidates.len(), documents.first()) {
        (1, _) => {
            let Candidate { before, text, within, .. } = candidates.remove(0);
            let mut notes = Vec::new();
            notes.extend(within.map(|within| format!("the configuration is that of {within}")));
            if !others.is_empty() {
                notes.push(format!("other documents are ignored: {}", others.join(", ")));
            }
            Ok(Found { text, before, note: (!notes.is_empty()).then(|| notes.join("; ")) })
        }
        (0, None) => Ok(Found { text: Cow::Borrowed(text), before: 0, note: None }),
        (0, Some(first)) => Err(ConfigError::new(
            first.start(),
            format!("no {KIND} found, only {}: {}", others.join(", "), unsupported()),
        )),
        _ => {
            let lines: Vec<String> =
                candidates.iter().map(|found| found.start.to_string()).collect();
            let what = format!(
                "{} configurations, at lines {}: keep one",
                candidates.len(),
                lines.join(", ")
            );
            Err(ConfigError::new(candidates[1].start, what))
        }
    }
}

const CONFIG_MAP: &str = "ConfigMap";

/// The fields that identify the type of a document.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Probe {
    api_version: Option<At<String>>,
    kind: Option<String>,
}

impl Probe {
    /// Checks the version of a configuration. A missing one is an error of the reader.
    fn check(&self) -> Result<(), ConfigError> {
        let Some(version) = &self.api_version else { return Ok(()) };
        if version.value == V1 || BETAS.contains(&&*version.value) {
            return Ok(());
        }
        Err(ConfigError::new(version.line, unsupported()))
    }
}

pub(super) fn unsupported() -> String {
    format!("only {KIND} of {V1} is supported: convert the file to it")
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigMap {
    metadata: Metadata,
    data: BTreeMap<String, At<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
}

impl<'a> Contents<'a> {
    fn take(&mut self, document: Origin<'a>, spot: &Spot<'_>) -> Result<(), ConfigError> {
        let probe: Probe = read(document, spot)?;
        let version = probe.api_version.as_ref().map(|version| &*version.value);
        let kind = probe.kind.as_deref().filter(|kind| !kind.is_empty());
        let kind = kind.unwrap_or("document without a kind");
        match (version, kind) {
            (_, KIND) => {
                probe.check()?;
                let Origin { text, before } = document;
                let (text, start) = (Cow::Borrowed(text), document.start());
                self.candidates.push(Candidate { start, before, text, within: None });
                return Ok(());
            }
            (Some("v1"), CONFIG_MAP) if self.take_map(read(document, spot)?)? => return Ok(()),
            (Some("v1"), "List" | "ConfigMapList") => {
                let Some(items) = spot.get("items") else { return Ok(()) };
                let Tree::List(items) = &items.tree else {
                    let typed = Typed::new(items, Path::Root, document);
                    return Err(syntax(typed.mismatch("a list", "")));
                };
                for item in items {
                    let Probe { kind, .. } = read(document, item)?;
                    let kind = kind.unwrap_or_else(|| CONFIG_MAP.to_owned());
                    if kind != CONFIG_MAP || !self.take_map(read(document, item)?)? {
                        *self.others.entry(kind).or_default() += 1;
                    }
                }
                return Ok(());
            }
            (Some("v1"), "Policy") => {
                let what =
                    format!("Kubernetes 1.23 removed the kind Policy: write a {KIND} of {V1}");
                return Err(ConfigError::new(document.start(), what));
            }
            _ => {}
        }
        *self.others.entry(kind.to_owned()).or_default() += 1;
        Ok(())
    }

    /// Takes the configurations of a ConfigMap; returns whether there are any.
    fn take_map(&mut self, map: ConfigMap) -> Result<bool, ConfigError> {
        let mut has_any = false;
        for (key, At { line, value }) in map.data {
            if !value.contains(KIND) {
                continue;
            }
            for document in documents(&value) {
                // The text begins in the line of its value.
                let before = (line + document.before).saturating_sub(1);
                let document = Origin { before, ..document };
                let probe: Probe = yaml::read(document).map_err(syntax)?;
                if probe.kind.as_deref() != Some(KIND) {
                    continue;
                }
                probe.check()?;
                has_any = true;
                self.candidates.push(Candidate {
                    start: document.start(),
                    before,
                    text: Cow::Owned(document.text.to_owned()),
                    within: Some(format!("ConfigMap {:?}, key {key:?}", map.metadata.name)),
                });
            }
        }
        Ok(has_any)
    }
}

/// Reads a part of a document.
fn read<T: for<'de> Deserialize<'de>>(
    origin: Origin<'_>,
    spot: &Spot<'_>,
) -> Result<T, ConfigError> {
    Typed::new(spot, Path::Root, origin).read().map_err(syntax)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURATION: &str = crate::config::Configuration::DEFAULT;

    fn found(text: &str) -> (usize, Option<String>) {
        let found = find(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let at = found.text.lines().position(|line| line.starts_with("apiVersion"));
        (found.before as usize + at.expect("a configuration"), found.note)
    }

    fn error(text: &str) -> (u64, String) {
        let error = find(text).err().unwrap_or_else(|| panic!("no error: {text}"));
        (error.line(), error.what().to_owned())
    }

    #[test]
    fn a_configuration_is_found_among_other_documents() {
        assert_eq!(found(CONFIGURATION), (0, None));
        assert_eq!(found(&format!("# a comment\n---\n{CONFIGURATION}---\n")), (2, None));
        assert_eq!(found(&format!("# a comment\n...\n{CONFIGURATION}...\n")), (2, None));
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
        let (line, what) = error("apiVersion: v1\nkind: List\nitems: {}\n");
        assert!(line == 3 && what.contains("expected a list"), "{line}: {what}");
    }
}
