//! The explanation for programs: JSON or CSV.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan::plugin::Verdict;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::changes::Change;
use super::report::{Group, LISTED, by_reason, fits_on, headline, message, shortfall};
use super::{Explained, Preemption};
use crate::error::CommandError;
use crate::output::cell;

/// The version of the JSON output: it increases when a field changes its meaning or is removed.
pub(super) const VERSION: u32 = 2;

/// The fields, by name. There are many nodes, so they are written without a tree of values.
#[derive(Serialize)]
struct Fields<'a, V> {
    changes: Vec<Value>,
    changes_complete: bool,
    fits_on: usize,
    groups: Vec<Value>,
    input: Value,
    message: Option<String>,
    node: Option<&'a str>,
    /// The index in `verdicts` of each node's verdict.
    #[serde(serialize_with = "as_map")]
    nodes: Vec<(&'a str, usize)>,
    notes: Vec<&'a String>,
    pod: &'a str,
    preemption: Option<Value>,
    state: &'static str,
    /// Each distinct verdict once.
    verdicts: Vec<V>,
    version: u32,
    why: String,
}

fn as_map<S: Serializer>(pairs: &[(&str, usize)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().copied())
}

#[derive(Serialize)]
#[serde(untagged)]
enum Node<'a> {
    Rejects { fits: bool, rejections: Vec<Rejection<'a>> },
    Fits { fits: bool, scores: Vec<Score>, total: i64 },
}

#[derive(Serialize)]
struct Rejection<'a> {
    code: &'static str,
    plugin: &'static str,
    reasons: &'a [String],
}

#[derive(Serialize)]
struct Score {
    normalized: i64,
    plugin: &'static str,
    raw: i64,
    weighted: i64,
}

/// The verdicts of all plugins on a node, as they are printed.
pub(crate) fn verdict(of: &Verdict) -> impl Serialize {
    let rejections = of.status.iter().chain(&of.further).map(|status| Rejection {
        code: status.code.as_str(),
        plugin: status.plugin,
        reasons: &status.reasons,
    });
    let scores = of.scores.iter().map(|score| Score {
        normalized: score.normalized,
        plugin: score.plugin,
        raw: score.raw,
        weighted: score.weighted,
    });
    match of.status {
        Some(_) => Node::Rejects { fits: false, rejections: rejections.collect() },
        None => Node::Fits { fits: true, scores: scores.collect(), total: of.total() },
    }
}

pub(super) fn json(explained: &Explained<'_>) -> Result<String, CommandError> {
    let evaluation = &explained.evaluation;
    let groups = by_reason(&explained.rejected)
        .into_iter()
        .map(|((reason, plugin, code), Group { nodes, alone })| {
            let short = shortfall(explained, reason, &nodes);
            json!({
                "reason": reason,
                "plugin": plugin,
                "code": code,
                "nodes": nodes.len(),
                "alone": alone,
                "shortfall": short,
            })
        })
        .collect();
    // Nodes with equal verdicts share one, so its address identifies it.
    let (mut indexes, mut verdicts) = (BTreeMap::new(), Vec::new());
    let nodes = evaluation.nodes.iter().map(|(name, of)| {
        let at = *indexes.entry(Arc::as_ptr(of)).or_insert_with(|| {
            verdicts.push(verdict(of));
            verdicts.len() - 1
        });
        (&**name, at)
    });
    let nodes = nodes.collect();
    let fields = Fields {
        changes: explained.changes.all.iter().map(change).collect(),
        changes_complete: explained.changes.is_complete,
        fits_on: fits_on(explained),
        groups,
        input: explained.intake.json(),
        message: message(explained),
        node: explained.placed.as_ref().map(|placed| &*placed.node),
        nodes,
        notes: explained.facts.iter().chain(&explained.notes).collect(),
        pod: &explained.trial.pod.key(),
        preemption: explained.preemption.as_ref().map(preemption),
        state: state(explained),
        verdicts,
        version: VERSION,
        why: headline(explained),
    };
    serde_json::to_string(&fields).map_err(|error| CommandError::Output(error.into()))
}

/// A change with its steps.
fn change(change: &Change) -> Value {
    let steps =
        change.edits.iter().map(|edit| json!({ "kind": edit.kind(), "what": edit.to_string() }));
    json!({
        "what": change.what(),
        "steps": steps.collect::<Vec<_>>(),
        "nodes": change.nodes.len(),
        "is_complete": change.is_complete,
        "examples": change.nodes.iter().take(LISTED).map(|name| &**name).collect::<Vec<_>>(),
        "other_nodes": change.others.iter().map(|name| &**name).collect::<Vec<_>>(),
        "notes": change.notes,
    })
}

fn preemption(found: &Preemption) -> Value {
    let victims = found.victims.iter().map(
        |victim| json!({ "pod": &*victim.key(), "is_terminating": victim.deletion_time.is_some() }),
    );
    json!({
        "node": &*found.node,
        "victims": victims.collect::<Vec<_>>(),
        "budget_violations": found.violations,
    })
}

/// The pod's state: `pending`, `placed` or `deleting`.
fn state(explained: &Explained<'_>) -> &'static str {
    match &explained.placed {
        Some(placed) if placed.is_deleting => "deleting",
        Some(_) => "placed",
        None if explained.trial.pod.deletion_time.is_some() => "deleting",
        None => "pending",
    }
}

/// The header of the rows of nodes and plugins.
pub(super) fn csv_header() -> Vec<String> {
    ["node", "plugin", "status", "reasons", "raw", "normalized", "weighted", "total"]
        .map(str::to_owned)
        .to_vec()
}

pub(super) fn csv(explained: &Explained<'_>) -> Result<String, CommandError> {
    let mut all = vec![csv_header()];
    for (name, verdict) in &explained.evaluation.nodes {
        let none = String::new;
        for status in verdict.status.iter().chain(&verdict.further) {
            let reasons = cell(&status.reasons.join("; ")).into_owned();
            let (plugin, code) = (status.plugin.to_owned(), status.code.as_str().to_owned());
            let of = vec![cell(name).into_owned(), plugin, code, reasons];
            all.push([of, vec![none(); 4]].concat());
        }
        for score in &verdict.scores {
            all.push(vec![
                cell(name).into_owned(),
                score.plugin.to_owned(),
                "Success".to_owned(),
                none(),
                score.raw.to_string(),
                score.normalized.to_string(),
                score.weighted.to_string(),
                verdict.total().to_string(),
            ]);
        }
    }
    rows(all)
}

/// Rows as CSV. Texts of inputs are passed as [`cell`]s.
pub(super) fn rows(rows: impl IntoIterator<Item = Vec<String>>) -> Result<String, CommandError> {
    let broken = |error: String| CommandError::Output(std::io::Error::other(error));
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.write_record(row).map_err(|error| broken(error.to_string()))?;
    }
    let bytes = writer.into_inner().map_err(|error| broken(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| broken(error.to_string()))?;
    Ok(text.trim_end().to_owned())
}
