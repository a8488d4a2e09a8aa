//! The answer as tables or JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use portolan::model::{Name, Pod};
use serde_json::{Value, json};

use super::answer::{Answer, FitMore};
use super::consolidate::Consolidation;
use super::difference::{Lack, Row};
use super::drain::why_blocked;
use super::each::{Failures, Harm};
use super::rollout::Rollout;
use super::rows::{group, placements};
use super::upgrade::Upgrade;
use crate::text::{count, first_of, line};

/// Maximum number of printed rows per list, and of names in a row.
const LISTED: usize = 30;

/// The version of the JSON output: it increases when a field changes its meaning or is removed.
const VERSION: u32 = 2;

fn list<T>(text: &mut String, title: &str, items: &[T], row: impl Fn(&T) -> String) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}:");
    for item in items.iter().take(LISTED) {
        let _ = writeln!(text, "  - {}", line(&row(item)));
    }
    if items.len() > LISTED {
        let _ = writeln!(text, "  … and {} more (--output json lists all)", items.len() - LISTED);
    }
    text.push('\n');
}

/// The steps of an upgrade.
fn steps(text: &mut String, upgrade: &Upgrade) {
    let numbered: Vec<_> = upgrade.steps.iter().enumerate().collect();
    list(text, "steps", &numbered, |(at, step)| {
        let nodes = first_of(LISTED, &step.nodes);
        let mut row = format!("{}: {nodes}, {} evicted", at + 1, count(step.evicted, "pod"));
        for (number, what) in [
            (step.waits, "for budgets"),
            (step.blocked, "blocked"),
            (step.pending.len(), "without a node"),
        ] {
            let noun = if what == "for budgets" { "wait" } else { "pod" };
            if number > 0 {
                let _ = write!(row, ", {} {what}", count(number, noun));
            }
        }
        row
    });
}

/// The nodes that can be removed, and why the others remain.
fn consolidation(text: &mut String, found: &Consolidation) {
    list(text, "can be removed, drained in this order", &found.emptied, |it| {
        format!("{} ({})", it.name, count(it.pods, "pod"))
    });
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for it in &found.remaining {
        // Nodes whose pods have the same reason share a row.
        let of_pod = it.why.strip_prefix("pod ").and_then(|why| why.split_once(' '));
        let why = of_pod.map_or_else(|| it.why.clone(), |(_, why)| format!("a pod {why}"));
        *reasons.entry(why).or_default() += 1;
    }
    let reasons: Vec<_> = reasons.into_iter().collect();
    list(text, "remain", &reasons, |(why, nodes)| format!("{}: {why}", count(*nodes, "node")));
}

/// A failure of a node or a zone.
fn failure(harm: &Harm) -> String {
    let Harm { name, nodes, during, after, lost } = harm;
    let name = match &nodes[..] {
        [node] if node == name => name.clone(),
        _ => format!("{name} ({})", count(nodes.len(), "node")),
    };
    let deleted = if nodes.len() == 1 { "the Node is" } else { "the Nodes are" };
    let mut row = format!(
        "{name}: {} unschedulable during the outage, {} after {deleted} deleted",
        count(during.len(), "pod"),
        after.len()
    );
    if !lost.is_empty() {
        let _ = write!(row, ", {} lost", lost.len());
    }
    row
}

/// A count of rows. Those that also happen without the change are counted apart.
fn pods(rows: &[&Row]) -> String {
    let more = rows.iter().filter(|row| row.without_change).count();
    let own = count(rows.len() - more, "pod");
    match more {
        0 => own,
        _ => format!("{own} ({more} more without the change, too)"),
    }
}

/// The mark of a row that also happens without the change.
fn mark(row: &Row) -> &'static str {
    if row.without_change { " (also without the change)" } else { "" }
}

/// The answer in a line, and the numbers of nodes and pods.
fn summary(answer: &Answer) -> String {
    let mut text = String::new();
    let effects = answer.last();
    let _ = writeln!(text, "{}\n", answer.headline());
    let _ = writeln!(text, "nodes     {} ({} added)", answer.nodes, answer.added);
    if !answer.drained.is_empty() {
        let drained = answer.drained.iter().map(|drained| match drained.waits {
            0 => drained.node.to_string(),
            waits => format!("{} ({} for budgets)", drained.node, count(waits, "wait")),
        });
        let _ = writeln!(text, "drained   {}", line(&first_of(LISTED, drained)));
    }
    if !answer.kubectl_flags.is_empty() {
        let _ = writeln!(text, "kubectl   drain needs {}", answer.kubectl_flags.join(" "));
    }
    if !answer.failed.is_empty() {
        let _ = writeln!(text, "failed    {}", line(&first_of(LISTED, &answer.failed)));
    }
    for scaled in &answer.scaled {
        let controller = line(&scaled.controller);
        let _ = writeln!(text, "scaled    {controller} from {} to {}", scaled.from, scaled.to);
    }
    for rollout in &answer.rollouts {
        let Rollout { controller, pods, done, .. } = rollout;
        let _ = writeln!(text, "rollout   {}: {done} of {}", line(controller), count(*pods, "pod"));
    }
    if !answer.removed.is_empty() {
        let _ = writeln!(text, "removed   {}", count(answer.removed.len(), "pod"));
    }
    let (moved, placed): (Vec<&Row>, Vec<&Row>) =
        effects.placed.iter().partition(|row| row.from.is_some());
    let _ = writeln!(text, "moved     {}", pods(&moved));
    let _ = writeln!(text, "placed    {}", pods(&placed));
    if !effects.preempted.is_empty() {
        let _ = writeln!(text, "preempted {}", pods(&effects.preempted.iter().collect::<Vec<_>>()));
    }
    text
}

pub(super) fn table(answer: &Answer) -> String {
    let mut text = summary(answer);
    let effects = answer.last();
    text.push('\n');
    let row = |row: &String| row.clone();
    let on = |from: &Option<Name>| from.as_ref().map_or(String::new(), |it| format!(" on {it}"));
    let rows = group(&effects.blocked, |it| &it.0, |(_, node, why)| format!(" on {node}: {why}"));
    list(&mut text, "blocked", &rows, row);
    let budgets: Vec<_> = answer.budgets.iter().collect();
    list(&mut text, "budgets", &budgets, |(name, of)| {
        let waits = match of.waits {
            0 => String::new(),
            waits => format!(" delays evictions ({})", count(waits, "wait")),
        };
        match (of.blocked.is_empty(), of.waits) {
            (true, _) => format!("{name}{waits}"),
            (false, 0) => format!("{name} blocks {}", why_blocked(of)),
            (false, _) => format!("{name}{waits}, then blocks {}", why_blocked(of)),
        }
    });
    let why = |row: &Row| format!("{}: {}{}", on(&row.from), row.why, mark(row));
    let rows = group(&effects.lost, |row| &row.pod, why);
    list(&mut text, "lost", &rows, row);
    let unplaced = |row: &Row| {
        let from = row.from.as_ref().map_or(String::new(), |from| format!(" from {from}"));
        format!("{from}: {}{}", row.why, mark(row))
    };
    if let Some((later, _)) = answer.later {
        let waiting = answer.waiting().into_iter().cloned().collect::<Vec<Row>>();
        let rows = group(&waiting, |row| &row.pod, unplaced);
        list(&mut text, &format!("without a node until then ({})", later.when()), &rows, row);
    }
    for lack in Lack::ALL {
        let of = effects.unplaced.iter().filter(|row| row.lack == lack);
        let of: Vec<Row> = of.cloned().collect();
        let rows = group(&of, |row| &row.pod, unplaced);
        list(&mut text, lack.participle(), &rows, row);
    }
    let rows = group(&effects.pending, |row| &row.pod, |row| format!(": {}", row.why));
    list(&mut text, "also pending without the change", &rows, row);
    list(&mut text, "skipped", &effects.skipped, |row| row.why.clone());
    let rows = group(&answer.removed, |it| &it.0, |it| on(&it.1));
    list(&mut text, "removed", &rows, row);
    let by = |row: &Row| format!("{} by {}{}", on(&row.from), row.why, mark(row));
    let rows = group(&effects.preempted, |row| &row.pod, by);
    list(&mut text, "preempted", &rows, row);
    if let Some(upgrade) = &answer.upgrade {
        steps(&mut text, upgrade);
    }
    if let Some(each) = &answer.each {
        let harmful: Vec<&Harm> = each.harmful().collect();
        list(&mut text, "failures, the worst first", &harmful, |harm| failure(harm));
    }
    let rows = placements(&effects.placed, mark);
    list(&mut text, "placements", &rows, row);
    if let Some(found) = &answer.consolidated {
        consolidation(&mut text, found);
    }
    for note in &answer.notes {
        let _ = writeln!(text, "note: {}", line(note));
    }
    text.trim_end().to_owned()
}

/// Rows with these fields, and a mark on those that also happen without the change.
fn rows<'r>(rows: impl IntoIterator<Item = &'r Row>, fields: &[&str]) -> Vec<Value> {
    let one = |row: &Row| {
        let mut object = json!({ "pod": &*row.pod.key() });
        for field in fields {
            object[*field] = match *field {
                "from" => json!(row.from.as_deref()),
                "to" => json!(row.to.as_deref()),
                "created" => json!(row.lack != Lack::Creation),
                "simulated" => json!(row.lack != Lack::Profile),
                _ => json!(row.why),
            };
        }
        if row.without_change {
            object["without_change"] = json!(true);
        }
        object
    };
    rows.into_iter().map(one).collect()
}

fn upgrade_json(upgrade: &Upgrade) -> Value {
    json!({
        "nodes": upgrade.selected(),
        "failed_step": upgrade.failed(),
        "steps": upgrade.steps,
    })
}

fn each_json(each: &Failures) -> Value {
    json!({
        "failures": each.failures,
        "harmful": each.harmful().count(),
        "nodes_without_zone": each.without_zone,
    })
}

fn consolidated_json(found: &Consolidation) -> Value {
    let moves = found
        .moves
        .iter()
        .map(|(pod, from, to)| json!({ "pod": &*pod.key(), "from": &**from, "to": &**to }));
    json!({
        "seconds": found.spent.as_secs_f64(),
        "complete": found.is_complete,
        "lower_bound": found.bound,
        "remove": found.emptied,
        "remain": found.remaining,
        "moves": moves.collect::<Vec<_>>(),
    })
}

pub(super) fn json(answer: &Answer) -> Value {
    let effects = answer.last();
    let blocked = effects.blocked.iter().map(
        |(pod, node, why)| json!({ "pod": &*pod.key(), "node": &**node, "why": why.to_string() }),
    );
    let drained = answer.drained.iter().map(|drained| &*drained.node);
    let waits = answer.drained.iter().filter(|drained| drained.waits > 0);
    let waits: serde_json::Map<String, Value> =
        waits.map(|drained| (drained.node.to_string(), drained.waits.into())).collect();
    let removed = answer
        .removed
        .iter()
        .map(|(pod, from)| json!({ "pod": &*pod.key(), "from": from.as_deref() }));
    let budgets = answer.budgets.iter().map(|(name, of)| {
        let blocks: Vec<Name> = of.blocked.iter().map(Pod::key).collect();
        let why = (!of.blocked.is_empty()).then(|| why_blocked(of));
        json!({ "budget": name, "waits": of.waits, "blocks": blocks, "why": why })
    });
    let mut result = json!({
        "version": VERSION,
        "ok": answer.is_ok(),
        "nodes": answer.nodes,
        "added": answer.added,
        "unknown_limits": answer.unlimited.iter().map(Pod::key).collect::<Vec<_>>(),
        "drained": drained.collect::<Vec<_>>(),
        "budget_waits": waits,
        "preempted": rows(&effects.preempted, &["from", "by"]),
        "pending": rows(&effects.pending, &["why"]),
        "skipped": rows(&effects.skipped, &["why"]),
        "blocked": blocked.collect::<Vec<_>>(),
        "placed": rows(&effects.placed, &["from", "to"]),
        "unplaced": rows(&effects.unplaced, &["from", "why", "created", "simulated"]),
        "later": answer.later.as_ref().map(|(later, _)| {
            json!({ "terminating_pods": later.terminating, "failed_nodes": later.failed })
        }),
        "waiting": rows(answer.waiting(), &["from", "why"]),
        "failed": answer.failed,
        "lost": rows(&effects.lost, &["from", "why"]),
        "removed": removed.collect::<Vec<_>>(),
        "scaled": answer.scaled,
        "budgets": budgets.collect::<Vec<_>>(),
        "kubectl_flags": answer.kubectl_flags,
        "rollouts": answer.rollouts,
        "failed_jobs": effects.failed_jobs,
        "not_simulated": answer.unsimulated,
        "notes": answer.notes,
        "input": answer.intake.json(),
    });
    if let Some(upgrade) = &answer.upgrade {
        result["upgrade"] = upgrade_json(upgrade);
    }
    if let Some(each) = &answer.each {
        result["each"] = each_json(each);
    }
    if let Some(FitMore { pod, now, nodes }) = &answer.fit_more {
        result["fit_more"] = json!({ "pod": &**pod, "count": nodes.values().sum::<usize>() });
        if answer.later.is_some() {
            result["fit_more"]["now"] = json!(now);
        }
    }
    if let Some(found) = &answer.consolidated {
        result["consolidate"] = consolidated_json(found);
    }
    result
}
