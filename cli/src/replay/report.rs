//! The result of a replay as tables or JSON.

use std::fmt::Write;

use comfy_table::{Table, presets};
use serde_json::{Map, Value, json};

use super::meter::Usage;
use super::run::Outcome;
use super::workload::Workload;
use crate::table;
use crate::text::{cores, count, gib, line};

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

fn rate(outcome: &Outcome) -> f64 {
    outcome.cycles as f64 / outcome.in_cycles.as_secs_f64().max(1e-9)
}

pub(super) fn json(workload: &Workload, outcome: &Outcome) -> Value {
    let cycle = &outcome.cycle;
    let usage = outcome.usage.iter().map(|of| (of.resource.clone(), json!(of)));
    json!({
        "workload": workload.name,
        "run": outcome.run,
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
        "utilization": usage.collect::<Map<_, _>>(),
        "decision_hash": format!("{:016x}", outcome.decision_hash),
        "wait_seconds": outcome.waits.as_ref().map(|waits| json!({
            "p50": waits.value_at_quantile(0.5),
            "p99": waits.value_at_quantile(0.99),
            "max": waits.max(),
        })),
        "duration_s": outcome.duration,
        "preempted": outcome.preempted,
        "notes": outcome.notes,
        "input": workload.intake.json(),
    })
}

/// A summary in one line.
pub(super) fn summary(outcome: &Outcome) -> String {
    let Outcome { nodes, pods, placed, failed, .. } = outcome;
    let share = *placed as f64 * 100.0 / (*pods).max(1) as f64;
    let (nodes, pods) = (count(*nodes, "node"), count(*pods, "pod"));
    let mut text = format!("{nodes}, {pods}: {placed} placed ({share:.1} %), {failed} failed");
    if let Some(preempted @ 1..) = outcome.preempted {
        let _ = write!(text, "; {}", count(preempted, "preemption"));
    }
    if let Some(waits) = &outcome.waits {
        let _ = write!(text, "; waiting time {}", quantiles(waits));
    }
    text
}

fn quantiles(waits: &hdrhistogram::Histogram<u64>) -> String {
    let at = |quantile| waits.value_at_quantile(quantile);
    format!("p50 {} s, p99 {} s, max {} s", at(0.5), at(0.99), waits.max())
}

/// The figures, each with its name.
fn rows(outcome: &Outcome) -> Vec<(&'static str, String)> {
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
        rows.push(("preempted and requeued", preempted.to_string()));
    }
    if let Some(waits) = &outcome.waits {
        rows.push(("waiting time", quantiles(waits)));
    }
    rows.extend([
        ("cycles per second", format!("{:.0}", rate(outcome))),
        (
            "cycle time",
            format!(
                "p50 {:.1} µs, p99 {:.1} µs, max {:.1} µs",
                quantile(0.5),
                quantile(0.99),
                micros(cycle.max())
            ),
        ),
        (
            "wall time",
            format!("{:.2} s on {}", outcome.wall.as_secs_f64(), count(outcome.threads, "thread")),
        ),
        (
            "events",
            format!(
                "{} (last published generation {})",
                outcome.figures.generation, outcome.figures.published
            ),
        ),
        ("live memory", format!("{:.1} MiB", outcome.bytes as f64 / f64::from(1 << 20))),
        ("decision hash", format!("{:016x}", outcome.decision_hash)),
    ]);
    rows
}

/// The title of the failure reasons.
const REASONS: &str = "Failed pods by reason (a pod can have several)";

/// The reasons for which pods failed and the number of pods, the most frequent first.
fn reasons(outcome: &Outcome) -> Vec<(&str, usize)> {
    let reasons = outcome.reasons.iter().map(|(reason, pods)| (&**reason, *pods));
    let mut reasons: Vec<_> = reasons.collect();
    reasons.sort_by_key(|(reason, pods)| (std::cmp::Reverse(*pods), *reason));
    reasons
}

/// The requested amounts of each resource: at the end, and of a replay with times the peak and
/// the mean, since the cluster may be empty at its end.
fn utilization(outcome: &Outcome) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let is_timed = outcome.duration.is_some();
    let header = match is_timed {
        false => vec!["resource", "requested", "allocatable", "used"],
        true => {
            vec!["resource", "at the end", "mean", "peak", "allocatable", "mean used", "peak used"]
        }
    };
    let row = |u: &Usage| {
        let share = |amount: f64| format!("{:.1} %", amount * 100.0 / u.allocatable.max(1) as f64);
        let (resource, amount): (String, fn(i64) -> String) = match &*u.resource {
            "cpu" => ("cpu (cores)".to_owned(), cores),
            "memory" => ("memory (GiB)".to_owned(), gib),
            other => (other.to_owned(), |amount| amount.to_string()),
        };
        let mean = u.mean.unwrap_or(u.requested as f64);
        match is_timed {
            false => vec![
                resource,
                amount(u.requested),
                amount(u.allocatable),
                share(u.requested as f64),
            ],
            true => vec![
                resource,
                amount(u.requested),
                amount(mean.round() as i64),
                amount(u.peak),
                amount(u.allocatable),
                share(mean),
                share(u.peak as f64),
            ],
        }
    };
    (header, outcome.usage.iter().map(row).collect())
}

pub(super) fn table(workload: &Workload, outcome: &Outcome) -> String {
    let mut text = format!("{}\n\n", line(&workload.name));
    let mut figures = Table::new();
    figures.load_style(presets::NOTHING);
    for (name, value) in rows(outcome) {
        figures.add_row([name.to_owned(), value]);
    }
    // Writing to a string does not fail.
    let _ = writeln!(text, "{}\n", figures.trim_fmt());
    let (header, rows) = utilization(outcome);
    let mut usage = Table::new();
    usage.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table::fit(&mut usage);
    let numbers: Vec<usize> = (1..header.len()).collect();
    usage.set_header(header);
    for row in rows {
        usage.add_row(table::row(row));
    }
    let _ = writeln!(text, "{}", table::right(usage, &numbers).trim_fmt());
    let reasons = reasons(outcome);
    if !reasons.is_empty() {
        let _ = writeln!(text, "\n{REASONS}:");
        for (reason, pods) in reasons {
            let _ = writeln!(text, "  {pods:>6}  {}", line(reason));
        }
    }
    for note in &outcome.notes {
        let _ = writeln!(text, "\nnote: {}", line(note));
    }
    text.truncate(text.trim_end().len());
    text
}
