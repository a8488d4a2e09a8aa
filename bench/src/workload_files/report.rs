//! The results of workloads, as tables and as JSON.

use serde_json::{Value, json};

use portolan_cli::count;
use portolan_cli::{plain, right};

use super::cases::Workload;
use super::throughput::Measured;

/// How a workload ended.
#[derive(Debug)]
pub(super) enum Outcome {
    Ran(Vec<Measured>),
    /// Not run, with the reason.
    Skipped(String),
    Failed(String),
}

/// A workload with its outcome.
#[derive(Debug)]
pub(super) struct Row<'w> {
    pub(super) file: String,
    /// The name of the folder, which thresholds may depend on.
    pub(super) topic: String,
    pub(super) workload: &'w Workload,
    /// The feature gates that do not have the value that the workload names.
    pub(super) ignored_gates: Vec<String>,
    pub(super) outcome: Outcome,
}

/// A threshold compared with a measurement.
#[derive(Debug, PartialEq)]
struct Verdict {
    value: f64,
    measured: Option<f64>,
    basis: &'static str,
    /// `None` if the metric is not measured.
    reached: Option<bool>,
}

impl Row<'_> {
    /// Compares a measurement with the threshold, if there is one. Without samples, because the pods were scheduled too
    /// fast, an average is replaced by the overall rate.
    fn verdict(&self, measured: &Measured) -> Option<Verdict> {
        let value = self.workload.threshold.of(&self.topic)?;
        let selector = &self.workload.threshold.selector;
        let is_throughput = selector.metric == "SchedulingThroughput" && selector.labels.is_empty();
        let sampled = measured.bucket(&selector.bucket).filter(|_| is_throughput);
        let overall = measured.overall().filter(|_| is_throughput && selector.bucket == "Average");
        let (found, basis) = match (sampled, overall) {
            (Some(sampled), _) => (Some(sampled), "samples"),
            (None, Some(overall)) => (Some(overall), "overall"),
            (None, None) => (None, "not measured"),
        };
        let is_reached = |found: f64| match selector.expects_lower {
            true => found < value,
            false => found > value,
        };
        Some(Verdict { value, measured: found, basis, reached: found.map(is_reached) })
    }

    /// Whether the workload ran, and reached its threshold if it has one.
    pub(super) fn is_good(&self) -> bool {
        match &self.outcome {
            Outcome::Skipped(_) => true,
            Outcome::Failed(_) => false,
            Outcome::Ran(all) => all
                .iter()
                .filter_map(|measured| self.verdict(measured))
                .all(|verdict| verdict.reached != Some(false)),
        }
    }

    fn json(&self) -> Value {
        let (outcome, reason) = match &self.outcome {
            Outcome::Ran(_) => ("ran", None),
            Outcome::Skipped(why) => ("skipped", Some(why)),
            Outcome::Failed(why) => ("failed", Some(why)),
        };
        let measured = match &self.outcome {
            Outcome::Ran(measured) => measured.as_slice(),
            _ => &[],
        };
        json!({
            "file": self.file,
            "line": self.workload.line,
            "case": self.workload.case,
            "workload": self.workload.name,
            "labels": self.workload.labels,
            "feature_gates": self.workload.feature_gates,
            "ignored_feature_gates": self.ignored_gates,
            "outcome": outcome,
            "reason": reason,
            "measured": measured.iter().map(|one| self.measured(one)).collect::<Vec<_>>(),
        })
    }

    fn measured(&self, measured: &Measured) -> Value {
        let buckets = ["Average", "Perc50", "Perc90", "Perc95", "Perc99"];
        let throughput: serde_json::Map<String, Value> = buckets
            .iter()
            .filter_map(|bucket| Some(((*bucket).to_owned(), measured.bucket(bucket)?.into())))
            .collect();
        let threshold = self.verdict(measured).map(|verdict| {
            let selector = &self.workload.threshold.selector;
            json!({
                "metric": selector.metric,
                "bucket": selector.bucket,
                "value": verdict.value,
                "measured": verdict.measured,
                "basis": verdict.basis,
                "reached": verdict.reached,
            })
        });
        json!({
            "name": measured.name,
            "pods": measured.pods,
            "duration_s": measured.duration.as_secs_f64(),
            "until_last_s": measured.until_last.as_secs_f64(),
            "samples": measured.rates.len(),
            "throughput": (!throughput.is_empty()).then_some(throughput),
            "overall": measured.overall(),
            "threshold": threshold,
        })
    }
}

/// All results as one object.
pub(super) fn json(rows: &[Row<'_>]) -> Value {
    json!({"workloads": rows.iter().map(Row::json).collect::<Vec<_>>()})
}

/// All results for people.
pub(super) fn text(rows: &[Row<'_>]) -> String {
    let columns = [
        "workload",
        "collection",
        "pods",
        "seconds",
        "samples",
        "average",
        "p50",
        "p90",
        "p95",
        "p99",
        "overall",
        "threshold",
        "reached",
    ];
    let mut table = right(plain(columns), &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
    let (mut lines, mut ran) = (Vec::new(), 0);
    for row in rows {
        let name = row.workload.full_name();
        match &row.outcome {
            Outcome::Skipped(why) => lines.push(format!("skipped {name}: {why}")),
            Outcome::Failed(why) => lines.push(format!("failed {name}: {why}")),
            Outcome::Ran(all) => {
                ran += 1;
                for gate in &row.ignored_gates {
                    lines.push(format!("{name} ran with another feature gate: {gate}"));
                }
                if all.is_empty() && row.workload.threshold.of(&row.topic).is_some() {
                    lines.push(format!(
                        "{name}: the threshold was not compared: no operation collects metrics"
                    ));
                }
                for measured in all {
                    let verdict = row.verdict(measured);
                    let reached = verdict.as_ref().map_or("", |verdict| match verdict.reached {
                        Some(true) => "yes",
                        Some(false) => "no",
                        None => "not measured",
                    });
                    let threshold = verdict.as_ref().map(|verdict| verdict.value);
                    table.add_row([
                        name.clone(),
                        measured.name.clone(),
                        measured.pods.to_string(),
                        format!("{:.2}", measured.until_last.as_secs_f64()),
                        measured.rates.len().to_string(),
                        rate(measured.average()),
                        rate(measured.percentile(50)),
                        rate(measured.percentile(90)),
                        rate(measured.percentile(95)),
                        rate(measured.percentile(99)),
                        rate(measured.overall()),
                        rate(threshold),
                        reached.to_owned(),
                    ]);
                }
            }
        }
    }
    let mut text = table.trim_fmt();
    text.push_str("\n\npods per second: average and percentiles of the samples; overall until the last pod was scheduled");
    for line in lines {
        text.push('\n');
        text.push_str(&line);
    }
    let of =
        |matches: fn(&Outcome) -> bool| rows.iter().filter(|row| matches(&row.outcome)).count();
    let skipped = of(|outcome| matches!(outcome, Outcome::Skipped(_)));
    let failed = of(|outcome| matches!(outcome, Outcome::Failed(_)));
    text.push_str(&format!("\n{} ran, {skipped} skipped, {failed} failed", count(ran, "workload")));
    let missed = rows.iter().filter(|row| !row.is_good()).count() - failed;
    if missed > 0 {
        text.push_str(&format!(", {missed} missed the threshold"));
    }
    text
}
