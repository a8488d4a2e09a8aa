//! The answer as tables or JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use portolan::model::Pod;
use serde_json::{Value, json};

use super::Answer;
use crate::text::count;

/// Maximum number of printed rows per list.
const LISTED: usize = 30;

fn key(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace(), pod.name)
}

fn list<T>(text: &mut String, title: &str, items: &[T], line: impl Fn(&T) -> String) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}:");
    for item in items.iter().take(LISTED) {
        let _ = writeln!(text, "  - {}", line(item));
    }
    if items.len() > LISTED {
        let _ = writeln!(text, "  … and {} more (--output json lists all)", items.len() - LISTED);
    }
    text.push('\n');
}

pub(super) fn table(answer: &Answer) -> String {
    let mut text = String::new();
    let verdict = match (answer.blocked.len(), answer.unplaced.len()) {
        (0, 0) => "all pods can be placed".to_owned(),
        (0, unplaced) => format!("{} unschedulable", count(unplaced, "pod")),
        (blocked, 0) => format!("{} blocked", count(blocked, "pod")),
        (blocked, unplaced) => {
            format!("{} blocked, {} unschedulable", count(blocked, "pod"), count(unplaced, "pod"))
        }
    };
    let _ = writeln!(text, "{verdict}\n");
    let _ = writeln!(text, "nodes     {} ({} added)", answer.nodes, answer.added);
    if !answer.drained.is_empty() {
        let drained = answer.drained.iter().map(|drained| match drained.waits {
            0 => drained.node.clone(),
            waits => format!("{} ({} for budgets)", drained.node, count(waits, "wait")),
        });
        let _ = writeln!(text, "drained   {}", drained.collect::<Vec<_>>().join(", "));
    }
    let moved = answer.placed.iter().filter(|(_, from, _)| from.is_some()).count();
    let _ = writeln!(text, "moved     {}", count(moved, "pod"));
    let _ = writeln!(text, "placed    {}", count(answer.placed.len() - moved, "pod"));
    if !answer.preempted.is_empty() {
        let _ = writeln!(text, "preempted {}", count(answer.preempted.len(), "pod"));
    }
    text.push('\n');
    list(&mut text, "blocked", &answer.blocked, |(pod, node, why)| {
        format!("{} on {node}: {why}", key(pod))
    });
    list(&mut text, "unschedulable", &answer.unplaced, |(pod, from, why)| match from {
        Some(from) => format!("{} from {from}: {why}", key(pod)),
        None => format!("{}: {why}", key(pod)),
    });
    list(&mut text, "pending without the change, too", &answer.pending, |(pod, why)| {
        format!("{}: {why}", key(pod))
    });
    list(&mut text, "preempted", &answer.preempted, |(pod, from)| match from {
        Some(from) => format!("{} on {from}", key(pod)),
        None => key(pod),
    });
    list(&mut text, "placements", &answer.placed, |(pod, from, to)| match from {
        Some(from) => format!("{}: {from} → {to}", key(pod)),
        None => format!("{} → {to}", key(pod)),
    });
    if let Some((name, number)) = &answer.fit_more {
        let pods = count(*number, "more pod");
        let _ = writeln!(text, "the cluster has room for {pods} like {name}\n");
    }
    if let Some(found) = &answer.consolidated {
        let (can, cannot): (Vec<_>, Vec<_>) = found.nodes.iter().partition(|it| it.after.is_ok());
        let _ = writeln!(
            text,
            "{} of {} can be emptied, each considered on its own ({:.2} s)",
            can.len(),
            count(found.nodes.len(), "node"),
            found.spent.as_secs_f64()
        );
        list(&mut text, "can be emptied", &can, |it| {
            format!("{} ({})", it.name, count(it.pods, "pod"))
        });
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for it in &cannot {
            let why = it.after.as_ref().err().map_or("", |why| why);
            // The text before the first colon names the pod.
            let why = why.split_once(": ").map_or(why, |(_, why)| why);
            *reasons.entry(why).or_default() += 1;
        }
        let reasons: Vec<_> = reasons.into_iter().collect();
        list(&mut text, "cannot be emptied", &reasons, |(why, nodes)| {
            format!("{}: {why}", count(*nodes, "node"))
        });
    }
    for note in &answer.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text.trim_end().to_owned()
}

pub(super) fn json(answer: &Answer) -> Value {
    let blocked = answer.blocked.iter().map(
        |(pod, node, why)| json!({ "pod": key(pod), "node": &**node, "why": why.to_string() }),
    );
    let placed = answer
        .placed
        .iter()
        .map(|(pod, from, to)| json!({ "pod": key(pod), "from": from.as_deref(), "to": &**to }));
    let unplaced = answer
        .unplaced
        .iter()
        .map(|(pod, from, why)| json!({ "pod": key(pod), "from": from.as_deref(), "why": why }));
    let drained = answer.drained.iter().map(|drained| &drained.node);
    let waits = answer.drained.iter().filter(|drained| drained.waits > 0);
    let waits: serde_json::Map<String, Value> =
        waits.map(|drained| (drained.node.clone(), drained.waits.into())).collect();
    let preempted = answer
        .preempted
        .iter()
        .map(|(pod, from)| json!({ "pod": key(pod), "from": from.as_deref() }));
    let pending = answer.pending.iter().map(|(pod, why)| json!({ "pod": key(pod), "why": why }));
    let mut result = json!({
        "ok": answer.is_ok(),
        "nodes": answer.nodes,
        "added": answer.added,
        "drained": drained.collect::<Vec<_>>(),
        "budget_waits": waits,
        "preempted": preempted.collect::<Vec<_>>(),
        "pending": pending.collect::<Vec<_>>(),
        "would_not_go": blocked.collect::<Vec<_>>(),
        "placed": placed.collect::<Vec<_>>(),
        "unplaced": unplaced.collect::<Vec<_>>(),
        "notes": answer.notes,
        "input": answer.intake.json(),
    });
    if let Some((name, count)) = &answer.fit_more {
        result["fit_more"] = json!({ "pod": &**name, "count": count });
    }
    if let Some(found) = &answer.consolidated {
        let nodes = found.nodes.iter().map(|it| {
            let pods_after = it.after.as_ref().ok().map(|after| after.pod_count());
            let why = it.after.as_ref().err();
            json!({
                "node": &*it.name,
                "pods": it.pods,
                "can": it.after.is_ok(),
                "pods_after": pods_after,
                "why": why,
            })
        });
        result["consolidate"] = json!({
            "seconds": found.spent.as_secs_f64(),
            "nodes": nodes.collect::<Vec<_>>(),
        });
    }
    result
}
