//! The explanation for programs: JSON or CSV.

use serde_json::{Value, json};

use super::changes::Change;
use super::report::{Group, LISTED, Shortfall, by_reason, fits_on, headline, message, shortfall};
use super::{Explained, Preemption};
use crate::error::CommandError;
use crate::output::cell;

/// The version of the JSON output: it increases when a field changes its meaning or is removed.
pub(super) const VERSION: u32 = 1;

pub(super) fn json(explained: &Explained<'_>) -> Value {
    let evaluation = &explained.evaluation;
    let status = |status: &portolan::plugin::Status| {
        json!({
            "plugin": status.plugin,
            "code": status.code.as_str(),
            "reasons": status.reasons,
        })
    };
    let nodes: serde_json::Map<String, Value> = evaluation
        .nodes
        .iter()
        .map(|(name, verdict)| {
            let rejections: Vec<Value> =
                verdict.status.iter().chain(&verdict.further).map(status).collect();
            let scores: Vec<Value> = verdict
                .scores
                .iter()
                .map(|score| {
                    json!({
                        "plugin": score.plugin,
                        "raw": score.raw,
                        "normalized": score.normalized,
                        "weighted": score.weighted,
                    })
                })
                .collect();
            let value = match verdict.status {
                Some(_) => json!({ "fits": false, "rejections": rejections }),
                None => json!({ "fits": true, "scores": scores, "total": verdict.total() }),
            };
            (name.to_string(), value)
        })
        .collect();
    let groups: Vec<Value> = by_reason(evaluation)
        .into_iter()
        .map(|((reason, plugin, code), Group { nodes, alone })| {
            let short = shortfall(explained, &reason, &nodes).map(|short| {
                let Shortfall { resource, least, median, most } = short;
                json!({ "resource": resource, "least": least, "median": median, "most": most })
            });
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
    json!({
        "version": VERSION,
        "pod": &*explained.trial.pod.key(),
        "state": state(explained),
        "node": explained.placed.as_ref().map(|placed| &*placed.node),
        "why": headline(explained),
        "fits_on": fits_on(explained),
        "nodes": nodes,
        "groups": groups,
        "changes": explained.changes.all.iter().map(change).collect::<Vec<_>>(),
        "changes_complete": explained.changes.is_complete,
        "preemption": explained.preemption.as_ref().map(preemption),
        "message": message(explained),
        "notes": explained.facts.iter().chain(&explained.notes).collect::<Vec<_>>(),
        "input": explained.intake.json(),
    })
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
