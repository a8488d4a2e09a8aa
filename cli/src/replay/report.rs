//! The result of a replay, for people and for programs.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Map, json};

use super::run::Outcome;
use super::workload::Workload;

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

fn rate(outcome: &Outcome) -> f64 {
    outcome.cycles as f64 / outcome.in_cycles.as_secs_f64().max(1e-9)
}

pub(super) fn json(workload: &Workload, outcome: &Outcome) -> String {
    let cycle = &outcome.cycle;
    let usage: Map<String, serde_json::Value> = outcome
        .usage
        .iter()
        .map(|u| {
            let value = json!({
                "requested": u.requested, "allocatable": u.allocatable, "peak": u.peak,
            });
            (u.resource.clone(), value)
        })
        .collect();
    let result = json!({
        "workload": workload.name,
        "nodes": outcome.nodes,
        "pods": outcome.pods,
        "placed": outcome.placed,
        "failed": outcome.failed,
        "reasons": outcome.reasons,
        "cycles": outcome.cycles,
        "cycles_per_second": rate(outcome).round(),
        "cycle_us": {
            "p50": micros(cycle.value_at_quantile(0.5)),
            "p99": micros(cycle.value_at_quantile(0.99)),
            "max": micros(cycle.max()),
        },
        "wall_s": outcome.wall.as_secs_f64(),
        "threads": outcome.threads,
        "events": outcome.figures.generation.0,
        "generation": outcome.figures.published.0,
        "versions_freed": outcome.figures.freed,
        "live_bytes": outcome.bytes,
        "utilisation": usage,
        "decision_hash": format!("{:016x}", outcome.decision_hash),
        "wait_seconds": outcome.waits.as_ref().map(|waits| json!({
            "p50": waits.value_at_quantile(0.5),
            "p99": waits.value_at_quantile(0.99),
        })),
        "preempted": outcome.preempted,
        "notes": outcome.notes,
    });
    result.to_string()
}

/// What came of the pods, in one line.
pub(super) fn summary(outcome: &Outcome) -> String {
    let Outcome { nodes, pods, placed, failed, .. } = outcome;
    let share = *placed as f64 * 100.0 / (*pods).max(1) as f64;
    let mut text =
        format!("{nodes} nodes, {pods} pods: {placed} placed ({share:.1} %), {failed} not");
    if let Some(preempted @ 1..) = outcome.preempted {
        let _ = write!(text, "; {preempted} times a pod made room for another");
    }
    if let Some(waits) = &outcome.waits {
        let _ = write!(text, "; waits {}", quantiles(waits));
    }
    text
}

fn quantiles(waits: &hdrhistogram::Histogram<u64>) -> String {
    let at = |quantile| waits.value_at_quantile(quantile);
    format!("p50 {} s, p99 {} s", at(0.5), at(0.99))
}

/// The figures by name.
pub(super) fn rows(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let share = outcome.placed as f64 * 100.0 / outcome.pods.max(1) as f64;
    let cycle = &outcome.cycle;
    let quantile = |q| micros(cycle.value_at_quantile(q));
    let mut rows = vec![
        ("nodes", outcome.nodes.to_string()),
        ("pods", outcome.pods.to_string()),
        ("placed", format!("{} ({share:.1} %)", outcome.placed)),
        ("failed", outcome.failed.to_string()),
    ];
    if let Some(preempted) = outcome.preempted {
        rows.push(("made room, and queued again", preempted.to_string()));
    }
    if let Some(waits) = &outcome.waits {
        rows.push(("waited for a place", quantiles(waits)));
    }
    rows.extend([
        ("cycles per second", format!("{:.0}", rate(outcome))),
        (
            "cycle",
            format!(
                "p50 {:.1} µs, p99 {:.1} µs, max {:.1} µs",
                quantile(0.5),
                quantile(0.99),
                micros(cycle.max())
            ),
        ),
        (
            "wall time",
            format!("{:.2} s on {} threads", outcome.wall.as_secs_f64(), outcome.threads),
        ),
        (
            "events",
            format!(
                "{}, the last is generation {}",
                outcome.figures.generation, outcome.figures.published
            ),
        ),
        ("live bytes", format!("{:.1} MB", outcome.bytes as f64 / 1e6)),
        ("decision hash", format!("{:016x}", outcome.decision_hash)),
    ]);
    rows
}

pub(super) fn table(workload: &Workload, outcome: &Outcome) -> String {
    let mut text = format!("{}\n\n", workload.name);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, value) in rows(outcome) {
        table.add_row([name.to_owned(), value]);
    }
    // Writing to a string does not fail.
    let _ = writeln!(text, "{table}\n");
    let mut usage = Table::new();
    usage.load_style(presets::UTF8_HORIZONTAL_ONLY);
    usage.set_header(["resource", "requested", "allocatable", "used"]);
    for u in &outcome.usage {
        let used = u.requested as f64 * 100.0 / u.allocatable.max(1) as f64;
        usage.add_row([
            u.resource.clone(),
            u.requested.to_string(),
            u.allocatable.to_string(),
            format!("{used:.1} %"),
        ]);
    }
    for column in 1..4 {
        if let Some(column) = usage.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let _ = writeln!(text, "{usage}");
    if !outcome.reasons.is_empty() {
        let _ = writeln!(text, "\nFailed pods by the reasons that nodes gave:");
        let mut reasons: Vec<_> = outcome.reasons.iter().collect();
        reasons.sort_by_key(|(reason, pods)| (std::cmp::Reverse(**pods), *reason));
        for (reason, pods) in reasons {
            let _ = writeln!(text, "  {pods:>6}  {reason}");
        }
    }
    for note in &outcome.notes {
        let _ = writeln!(text, "\nnote: {note}");
    }
    text.truncate(text.trim_end().len());
    text
}
