//! The explanation as a table, JSON or CSV.

use std::fmt::Write;

use portolan::framework::Verdict;
use serde_json::{Value, json};

use super::{Explained, INSUFFICIENT, by_reason, resource};
use crate::error::Failure;
use crate::table::plain;
use crate::text::{amount, count};

/// Maximum number of nodes listed in a table.
const LISTED: usize = 10;

/// The shortfall of a resource on the nodes, if the reason is an insufficient resource.
fn distance(explained: &Explained<'_>, reason: &str, nodes: &[&str]) -> Option<String> {
    let name = reason.strip_prefix(INSUFFICIENT)?;
    let mut short: Vec<i64> = nodes
        .iter()
        .filter_map(|node| explained.cluster.node(node))
        .map(|node| {
            let (wanted, _, left) = resource(name, explained.pod, node);
            wanted.saturating_sub(left)
        })
        .collect();
    short.sort_unstable();
    let (least, most) = (*short.first()?, *short.last()?);
    let median = short[short.len() / 2];
    Some(match least == most {
        true => format!("{name} short by {}", amount(name, least)),
        false => format!(
            "{name} short by {} to {}, median {}",
            amount(name, least),
            amount(name, most),
            amount(name, median)
        ),
    })
}

fn message(explained: &Explained<'_>) -> Option<String> {
    let evaluation = &explained.evaluation;
    let failed = evaluation.failed.as_ref().map(ToString::to_string);
    failed.or_else(|| evaluation.rejected.as_ref().map(ToString::to_string))
}

pub(super) fn table(explained: &Explained<'_>, single: bool) -> String {
    let mut text = String::new();
    let pod = explained.pod;
    let nodes = &explained.evaluation.nodes;
    let fits = nodes.values().filter(|verdict| verdict.status.is_none()).count();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "pod {}/{}: fits on {fits} of {}\n",
        pod.namespace(),
        pod.name,
        count(if nodes.is_empty() { explained.cluster.len() } else { nodes.len() }, "node")
    );
    let mut groups: Vec<_> = by_reason(&explained.evaluation).into_iter().collect();
    groups.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.0.cmp(&b.0)));
    if !groups.is_empty() {
        let mut table = plain(["nodes", "plugin", "reason", "shortfall", "examples"]);
        for ((reason, plugin, code), nodes) in &groups {
            let far = distance(explained, reason, nodes).unwrap_or_default();
            let kind = if *code == "Unschedulable" { "" } else { " (preemption does not help)" };
            let some: Vec<&str> = nodes.iter().take(3).copied().collect();
            table.add_row([
                nodes.len().to_string(),
                (*plugin).to_owned(),
                format!("{reason}{kind}"),
                far,
                some.join(", "),
            ]);
        }
        let _ = writeln!(text, "{}\n", table.trim_fmt());
    }
    if fits > 0 {
        let plugins = scoring(explained);
        let mut header = vec!["node".to_owned()];
        header.extend(plugins.iter().map(|plugin| (*plugin).to_owned()));
        header.push("total".to_owned());
        let mut table = plain(header);
        let mut best: Vec<(&str, &Verdict)> = nodes
            .iter()
            .filter(|(_, verdict)| verdict.status.is_none())
            .map(|(name, verdict)| (&**name, verdict))
            .collect();
        best.sort_by_key(|(name, verdict)| (std::cmp::Reverse(verdict.total()), *name));
        for (name, verdict) in best.iter().take(LISTED) {
            let mut row = vec![(*name).to_owned()];
            for plugin in &plugins {
                let score = verdict.scores.iter().find(|score| score.plugin == *plugin);
                row.push(score.map_or_else(String::new, |score| match single {
                    true => format!(
                        "{} ({} of 100, raw {})",
                        score.weighted, score.normalized, score.raw
                    ),
                    false => score.weighted.to_string(),
                }));
            }
            row.push(verdict.total().to_string());
            table.add_row(row);
        }
        let _ = writeln!(text, "{}", table.trim_fmt());
        if best.len() > LISTED {
            let _ = writeln!(text, "… and {} more", best.len() - LISTED);
        }
        text.push('\n');
    }
    if single {
        for (name, verdict) in nodes {
            for status in verdict.status.iter().chain(&verdict.further) {
                let _ = writeln!(
                    text,
                    "{name}: rejected by {} ({}): {}",
                    if status.plugin.is_empty() { "the framework" } else { status.plugin },
                    status.code.as_str(),
                    status.reasons.join(", ")
                );
            }
        }
        text.push('\n');
    }
    if !explained.changes.is_empty() {
        let _ = writeln!(text, "Changes that would make the pod fit:");
        for change in &explained.changes {
            let _ = writeln!(text, "  - {} ({})", change.what, count(change.nodes, "node"));
        }
        text.push('\n');
    }
    if let Some(message) = message(explained) {
        let _ = writeln!(text, "{message}");
    }
    for note in &explained.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text.trim_end().to_owned()
}

/// The plugins that score nodes.
fn scoring(explained: &Explained<'_>) -> Vec<&'static str> {
    let scored = explained.evaluation.nodes.values().find(|verdict| !verdict.scores.is_empty());
    scored.into_iter().flat_map(|verdict| &verdict.scores).map(|score| score.plugin).collect()
}

pub(super) fn json(explained: &Explained<'_>) -> Value {
    let evaluation = &explained.evaluation;
    let status = |status: &portolan::framework::Status| {
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
        .map(|((reason, plugin, code), nodes)| {
            json!({
                "reason": reason,
                "plugin": plugin,
                "code": code,
                "nodes": nodes.len(),
                "how_far": distance(explained, &reason, &nodes),
            })
        })
        .collect();
    let changes: Vec<Value> = explained
        .changes
        .iter()
        .map(|change| json!({ "kind": change.kind, "what": change.what, "nodes": change.nodes }))
        .collect();
    json!({
        "pod": format!("{}/{}", explained.pod.namespace(), explained.pod.name),
        "fits_on": evaluation.nodes.values().filter(|v| v.status.is_none()).count(),
        "nodes": nodes,
        "groups": groups,
        "changes": changes,
        "message": message(explained),
        "notes": explained.notes,
        "input": explained.intake.json(),
    })
}

pub(super) fn csv(explained: &Explained<'_>) -> Result<String, Failure> {
    let mut rows = csv::Writer::from_writer(Vec::new());
    let mut write = |row: [String; 8]| {
        rows.write_record(row).map_err(|error| Failure::Output(std::io::Error::other(error)))
    };
    let header = ["node", "plugin", "status", "reasons", "raw", "normalized", "weighted", "total"];
    write(header.map(str::to_owned))?;
    for (name, verdict) in &explained.evaluation.nodes {
        let none = String::new;
        for status in verdict.status.iter().chain(&verdict.further) {
            let reasons = status.reasons.join("; ");
            let (plugin, code) = (status.plugin.to_owned(), status.code.as_str().to_owned());
            write([name.to_string(), plugin, code, reasons, none(), none(), none(), none()])?;
        }
        for score in &verdict.scores {
            write([
                name.to_string(),
                score.plugin.to_owned(),
                "Success".to_owned(),
                none(),
                score.raw.to_string(),
                score.normalized.to_string(),
                score.weighted.to_string(),
                verdict.total().to_string(),
            ])?;
        }
    }
    let broken = |error: String| Failure::Output(std::io::Error::other(error));
    let bytes = rows.into_inner().map_err(|error| broken(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| broken(error.to_string()))?;
    Ok(text.trim_end().to_owned())
}
