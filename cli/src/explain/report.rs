//! The explanation as a table, JSON or CSV.

use std::fmt::{self, Write};

use portolan::framework::Verdict;
use serde_json::{Value, json};

use super::changes::Change;
use super::{Explained, Group, INSUFFICIENT, by_reason, resource};
use crate::error::Failure;
use crate::table::{plain, row};
use crate::text::{Rounding, amounts, count, line};

/// Maximum number of nodes listed in a table.
const LISTED: usize = 10;
/// Maximum number of changes listed in a table.
const SHOWN: usize = 10;

/// The names of some of the nodes.
fn some(nodes: &[&str]) -> String {
    let names: Vec<&str> = nodes.iter().take(3).copied().collect();
    let more = if nodes.len() > 3 { ", …" } else { "" };
    format!("{}{more}", names.join(", "))
}

/// The shortfall of a resource on the nodes of a group, in its smallest unit.
struct Shortfall<'r> {
    resource: &'r str,
    least: i64,
    median: i64,
    most: i64,
}

impl fmt::Display for Shortfall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortfall { resource, least, median, most } = *self;
        let [low, middle, high] = amounts(resource, [least, median, most], Rounding::Up);
        match least == most {
            true => write!(f, "{resource} short by {low}"),
            false => {
                write!(f, "{resource} short by at least {low}, at most {high}, median {middle}")
            }
        }
    }
}

/// The shortfall on the nodes, if the reason is an insufficient resource.
fn shortfall<'r>(
    explained: &Explained<'_>,
    reason: &'r str,
    nodes: &[&str],
) -> Option<Shortfall<'r>> {
    let resource_name = reason.strip_prefix(INSUFFICIENT)?;
    let mut short: Vec<i64> = nodes
        .iter()
        .filter_map(|node| explained.cluster.node(node))
        .map(|node| {
            let (wanted, _, left) = resource(resource_name, explained.pod, node);
            wanted.saturating_sub(left)
        })
        .collect();
    short.sort_unstable();
    let (least, most) = (*short.first()?, *short.last()?);
    Some(Shortfall { resource: resource_name, least, median: short[short.len() / 2], most })
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
        line(pod.namespace()),
        line(&pod.name),
        count(if nodes.is_empty() { explained.cluster.len() } else { nodes.len() }, "node")
    );
    let mut groups: Vec<_> = by_reason(&explained.evaluation).into_iter().collect();
    groups.sort_by(|a, b| b.1.nodes.len().cmp(&a.1.nodes.len()).then_with(|| a.0.cmp(&b.0)));
    if !groups.is_empty() {
        let mut table = plain(["nodes", "alone", "plugin", "reason", "shortfall", "examples"]);
        for ((reason, plugin, code), Group { nodes, alone }) in &groups {
            let short = shortfall(explained, reason, nodes);
            let kind = if *code == "Unschedulable" { "" } else { " (preemption does not help)" };
            table.add_row(row([
                nodes.len().to_string(),
                alone.to_string(),
                (*plugin).to_owned(),
                format!("{reason}{kind}"),
                short.map_or_else(String::new, |short| short.to_string()),
                some(nodes),
            ]));
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
            let mut cells = vec![(*name).to_owned()];
            for plugin in &plugins {
                let score = verdict.scores.iter().find(|score| score.plugin == *plugin);
                cells.push(score.map_or_else(String::new, |score| match single {
                    true => format!(
                        "{} ({} of 100, raw {})",
                        score.weighted, score.normalized, score.raw
                    ),
                    false => score.weighted.to_string(),
                }));
            }
            cells.push(verdict.total().to_string());
            table.add_row(row(cells));
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
                    "{}: rejected by {} ({}): {}",
                    line(name),
                    if status.plugin.is_empty() { "the framework" } else { status.plugin },
                    status.code.as_str(),
                    line(&status.reasons.join(", "))
                );
            }
        }
        text.push('\n');
    }
    let changes = &explained.changes;
    if !changes.all.is_empty() {
        let title = match changes.are_pairs_tried {
            false => "Changes that would make the pod fit:",
            true => "No single change makes the pod fit, but two together would:",
        };
        let _ = writeln!(text, "{title}");
        for change in changes.all.iter().take(SHOWN) {
            let at_least = if change.is_complete { "" } else { "at least " };
            let nodes = count(change.nodes.len(), "node");
            let _ = write!(text, "  - {} ({at_least}{nodes}", line(&change.what()));
            if change.nodes.len() > 1 {
                let names: Vec<&str> = change.nodes.iter().map(|name| &**name).collect();
                let _ = write!(text, ": {}", line(&some(&names)));
            }
            text.push_str(")\n");
            for note in &change.notes {
                let _ = writeln!(text, "    but {}", line(note));
            }
        }
        if let Some(more) = changes.all.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            let _ = writeln!(text, "  … and {more} more: see --output json");
        }
        text.push('\n');
    } else if changes.are_pairs_tried {
        let tried = match changes.is_complete {
            true => {
                "No single change of those known to this command makes the pod fit, nor do two together."
            }
            false => {
                "No single change of those known to this command makes the pod fit; not all pairs were tried within --time-limit."
            }
        };
        let _ = writeln!(text, "{tried}\n");
    }
    if let Some(message) = message(explained) {
        let _ = writeln!(text, "{}", line(&message));
    }
    for note in &explained.notes {
        let _ = writeln!(text, "note: {}", line(note));
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
    let change = |change: &Change| {
        let steps = change.kinds.iter().zip(&change.steps);
        json!({
            "what": change.what(),
            "steps": steps.map(|(kind, what)| json!({ "kind": kind, "what": what })).collect::<Vec<_>>(),
            "nodes": change.nodes.len(),
            "is_complete": change.is_complete,
            "examples": change.nodes.iter().take(LISTED).map(|name| &**name).collect::<Vec<_>>(),
            "notes": change.notes,
        })
    };
    json!({
        "version": 1,
        "pod": format!("{}/{}", explained.pod.namespace(), explained.pod.name),
        "fits_on": evaluation.nodes.values().filter(|v| v.status.is_none()).count(),
        "nodes": nodes,
        "groups": groups,
        "changes": explained.changes.all.iter().map(change).collect::<Vec<_>>(),
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
