//! The results of workloads, as a table.

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
    /// The name of the folder, which thresholds may depend on.
    pub(super) topic: String,
    pub(super) workload: &'w Workload,
    pub(super) outcome: Outcome,
}

impl Row<'_> {
    /// The threshold, if there is one, and whether a measurement reached it, if it measures the metric. Without
    /// samples, because the pods were scheduled too fast, an average is replaced by the overall rate.
    fn verdict(&self, measured: &Measured) -> Option<(f64, Option<bool>)> {
        let value = self.workload.threshold.of(&self.topic)?;
        let selector = &self.workload.threshold.selector;
        let is_throughput = selector.metric == "SchedulingThroughput" && selector.labels.is_empty();
        let sampled = measured.bucket(&selector.bucket).filter(|_| is_throughput);
        let overall = measured.overall().filter(|_| is_throughput && selector.bucket == "Average");
        let is_reached = |found: f64| match selector.expects_lower {
            true => found < value,
            false => found > value,
        };
        Some((value, sampled.or(overall).map(is_reached)))
    }

    /// Whether the workload ran, and reached its threshold if it has one.
    pub(super) fn is_good(&self) -> bool {
        match &self.outcome {
            Outcome::Skipped(_) => true,
            Outcome::Failed(_) => false,
            Outcome::Ran(all) => all
                .iter()
                .filter_map(|measured| self.verdict(measured))
                .all(|(_, reached)| reached != Some(false)),
        }
    }
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
                if all.is_empty() && row.workload.threshold.of(&row.topic).is_some() {
                    lines.push(format!(
                        "{name}: the threshold was not compared: no operation collects metrics"
                    ));
                }
                for measured in all {
                    let verdict = row.verdict(measured);
                    let reached = verdict.map_or("", |(_, reached)| match reached {
                        Some(true) => "yes",
                        Some(false) => "no",
                        None => "not measured",
                    });
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
                        rate(verdict.map(|(threshold, _)| threshold)),
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
