//! The report of a shadow: score tables of single pods, and the summary.

use std::fmt::Write;
use std::time::Duration;

use hdrhistogram::Histogram;
use portolan::model::Name;
use portolan_kube::shadow::{Judgement, NodeTotal, ShadowFigures, Verdict};
use serde_json::{Value, json};

use crate::error::CommandError;
use crate::histogram;
use crate::table::{plain, right};
use crate::text::count;

/// The unexplained pods that the JSON summary contains. The export has all.
const LISTED: usize = 100;

/// The judgements so far.
pub(super) struct Report {
    schedulers: String,
    figures: ShadowFigures,
    waited: Histogram<u64>,
    decisions: Histogram<u64>,
    /// The ranks of the nodes whose verdict is `sampled`.
    ranks: Histogram<u64>,
    unexplained: Vec<Value>,
    observed: Duration,
}

impl Report {
    pub(super) fn new(schedulers: &[Name]) -> Result<Report, CommandError> {
        Ok(Report {
            schedulers: schedulers.join(", "),
            figures: ShadowFigures::default(),
            waited: histogram()?,
            decisions: histogram()?,
            ranks: histogram()?,
            unexplained: Vec::new(),
            observed: Duration::ZERO,
        })
    }

    pub(super) fn add(&mut self, judgement: Judgement) {
        let place = Verdict::ALL.iter().position(|verdict| *verdict == judgement.verdict);
        if let Some(counted) = place.and_then(|at| self.figures.verdicts.get_mut(at)) {
            *counted += 1;
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        if let Some(waited) = judgement.waited {
            self.waited.saturating_record(nanos(waited));
        }
        if judgement.verdict != Verdict::Undecided {
            self.decisions.saturating_record(nanos(judgement.decision));
        }
        if let (Verdict::Sampled, Some(rank)) = (judgement.verdict, judgement.rank) {
            self.ranks.saturating_record(rank as u64);
        }
        if judgement.verdict.is_unexplained() && self.unexplained.len() < LISTED {
            self.unexplained.push(line(&judgement));
        }
    }

    /// Sets the time of observation.
    pub(super) fn observed(&mut self, time: Duration) {
        self.observed = time;
    }

    /// Sets the numbers of pods that were not judged.
    pub(super) fn not_judged(&mut self, figures: ShadowFigures) {
        self.figures.appeared = figures.appeared;
        self.figures.skipped = figures.skipped;
    }

    pub(super) fn schedulers(&self) -> &str {
        &self.schedulers
    }

    pub(super) fn judged(&self) -> u64 {
        self.figures.judged()
    }

    pub(super) fn has_unexplained(&self) -> bool {
        self.unexplained() > 0
    }

    /// Returns whether pods were bound and none of them was compared.
    pub(super) fn is_void(&self) -> bool {
        let undecided = self.figures.of(Verdict::Undecided);
        undecided == self.judged() && undecided + self.figures.skipped > 0
    }

    fn unexplained(&self) -> u64 {
        self.figures.sum(Verdict::is_unexplained)
    }

    /// A line about the progress.
    pub(super) fn progress(&self) -> String {
        let pods = count(self.judged() as usize, "pod");
        match self.figures.agreement() {
            Some(agreement) => format!(
                "{pods}, {} agree, {} unexplained",
                percent(agreement),
                count(self.unexplained() as usize, "disagreement")
            ),
            None => pods,
        }
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "shadow of {}: {} in {:.1} s\n\n",
            self.schedulers,
            count(self.judged() as usize, "pod"),
            self.observed.as_secs_f64()
        );
        let mut table = plain(["verdict", "pods", "meaning"]);
        for verdict in Verdict::ALL {
            let pods = self.figures.of(verdict).to_string();
            table.add_row([verdict.as_str(), &pods, meaning(verdict)]);
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}\n", right(table, &[1]).trim_fmt());
        if let (Some(agreement), Some(explained)) =
            (self.figures.agreement(), self.figures.explained())
        {
            let (agreement, explained) = (percent(agreement), percent(explained));
            let _ = writeln!(text, "agreement            {agreement}, with explained {explained}");
        }
        if !self.ranks.is_empty() {
            let (half, most) = (self.ranks.value_at_quantile(0.5), self.ranks.max());
            let _ = writeln!(text, "rank of sampled      p50 {half}, highest {most}");
        }
        for (what, times, unit, scale) in [
            ("pending to bound", &self.waited, "ms", 1e6),
            ("portolan's decision", &self.decisions, "µs", 1e3),
        ] {
            if !times.is_empty() {
                let at = |quantile: f64| times.value_at_quantile(quantile) as f64 / scale;
                let (half, most) = (at(0.5), at(0.99));
                let _ = writeln!(text, "{what:<20} p50 {half:.1} {unit}, p99 {most:.1} {unit}");
            }
        }
        let ShadowFigures { appeared, skipped, .. } = self.figures;
        if appeared > 0 {
            let pods = count(appeared as usize, "pod");
            let _ = writeln!(text, "not compared         {pods} that first appeared with a node");
        }
        if skipped > 0 {
            let pods = count(skipped as usize, "pod");
            let _ = writeln!(text, "not compared         {pods}, because too many waited");
        }
        if self.is_void() {
            let _ = writeln!(text, "no decision could be compared");
        }
        text.trim_end().to_owned()
    }

    pub(super) fn json(&self) -> Value {
        let verdicts: serde_json::Map<String, Value> = Verdict::ALL
            .iter()
            .map(|verdict| (verdict.as_str().to_owned(), self.figures.of(*verdict).into()))
            .collect();
        let times = |times: &Histogram<u64>, scale: f64| {
            let at = |quantile: f64| times.value_at_quantile(quantile) as f64 / scale;
            (!times.is_empty()).then(|| json!({"p50": at(0.5), "p99": at(0.99)}))
        };
        let ranks = || json!({"p50": self.ranks.value_at_quantile(0.5), "max": self.ranks.max()});
        json!({
            "schedulers": self.schedulers.split(", ").collect::<Vec<_>>(),
            "observed_s": self.observed.as_secs_f64(),
            "pods": self.judged(),
            "verdicts": verdicts,
            "agreement": self.figures.agreement(),
            "explained": self.figures.explained(),
            "sampled_rank": (!self.ranks.is_empty()).then(ranks),
            "pending_to_bound_ms": times(&self.waited, 1e6),
            "decision_us": times(&self.decisions, 1e3),
            "appeared_with_node": self.figures.appeared,
            "skipped": self.figures.skipped,
            "unexplained": self.unexplained,
        })
    }
}

/// A share from 0 to 1. It is 100 % only if nothing is missing.
fn percent(share: f64) -> String {
    format!("{:.1} %", (share * 1000.0).floor() / 10.0)
}

fn meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agreed => "the only node with the highest score",
        Verdict::Tied => "one of several nodes with the highest score",
        Verdict::Nominated => "explained: a failed attempt nominated the pod to the node",
        Verdict::Sampled => "explained: the best node of a possible sample, see the ranks",
        Verdict::Concurrent => "explained: a best node if concurrent changes count differently",
        Verdict::Disagreed => "another node has a higher score",
        Verdict::Infeasible => "a filter rejects the node",
        _ => "a plugin failed, or the pod uses resource claims",
    }
}

/// The scores of both nodes, plugin by plugin.
pub(super) fn comparison(judgement: &Judgement) -> String {
    let Judgement { namespace, name, node, scheduler, verdict, .. } = judgement;
    let mut text = format!("pod {namespace}/{name}, {node} by {scheduler}: {verdict}");
    if let Some(reason) = &judgement.reason {
        let _ = write!(text, ": {reason}");
    }
    let _ = writeln!(
        text,
        "\n{} of {} feasible, {} with the highest score{}",
        judgement.feasible,
        count(judgement.nodes, "node"),
        judgement.best_nodes,
        judgement.rank.map_or_else(String::new, |rank| format!(", {node} has rank {rank}"))
    );
    let sides: Vec<(&str, &NodeTotal)> = [("theirs", &judgement.theirs), ("best", &judgement.best)]
        .into_iter()
        .filter_map(|(side, of)| Some((side, of.as_ref()?)))
        .collect();
    if let Some((_, first)) = sides.first() {
        let header = sides.iter().map(|(side, of)| format!("{} ({side})", of.node));
        let mut table = plain(["plugin".to_owned()].into_iter().chain(header));
        for score in &first.scores {
            let of = |total: &NodeTotal| {
                let found = total.scores.iter().find(|one| one.plugin == score.plugin);
                found.map_or_else(String::new, |one| one.weighted.to_string())
            };
            let cells = sides.iter().map(|(_, total)| of(total));
            table.add_row([score.plugin.to_owned()].into_iter().chain(cells));
        }
        let totals = sides.iter().map(|(_, total)| total.total.to_string());
        table.add_row(["total".to_owned()].into_iter().chain(totals));
        let columns: Vec<usize> = (1..=sides.len()).collect();
        let _ = writeln!(text, "\n{}", right(table, &columns).trim_fmt());
    }
    text
}

/// The line of a pod in the export.
pub(super) fn line(judgement: &Judgement) -> Value {
    let scores = |of: &Option<NodeTotal>| {
        of.as_ref().map(|of| {
            let plugins: serde_json::Map<String, Value> = of
                .scores
                .iter()
                .map(|score| {
                    let value = json!({
                        "raw": score.raw,
                        "normalized": score.normalized,
                        "weighted": score.weighted,
                    });
                    (score.plugin.to_owned(), value)
                })
                .collect();
            json!({"node": of.node, "total": of.total, "plugins": plugins})
        })
    };
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let state = judgement.state.as_ref().map(|state| {
        json!({
            "earlier_ms": state.earlier.map(millis),
            "later_objects": state.is_later,
            "put_in": state.put_in,
            "left_out": state.left_out,
        })
    });
    json!({
        "pod": format!("{}/{}", judgement.namespace, judgement.name),
        "uid": judgement.uid.to_string(),
        "resource_version": judgement.resource_version,
        "scheduler": judgement.scheduler,
        "node": judgement.node,
        "verdict": judgement.verdict.as_str(),
        "reason": judgement.reason,
        "state": state,
        "nodes": judgement.nodes,
        "feasible": judgement.feasible,
        "best_nodes": judgement.best_nodes,
        "rank": judgement.rank,
        "theirs": scores(&judgement.theirs),
        "best": scores(&judgement.best),
        "waited_ms": judgement.waited.map(millis),
        "decision_us": judgement.decision.as_secs_f64() * 1e6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_void_if_pods_were_bound_and_none_was_compared() {
        let is_void = |verdicts: &[(Verdict, u64)], skipped| {
            let mut report = Report::new(&["default-scheduler".into()]).expect("a report");
            for (verdict, pods) in verdicts {
                let place =
                    Verdict::ALL.iter().position(|one| one == verdict).expect("in the list");
                report.figures.verdicts[place] = *pods;
            }
            let mut figures = ShadowFigures::default();
            figures.skipped = skipped;
            report.not_judged(figures);
            assert!(!report.has_unexplained());
            assert_eq!(report.table().contains("no decision could be compared"), report.is_void());
            report.is_void()
        };
        assert!(is_void(&[(Verdict::Undecided, 2)], 0));
        assert!(is_void(&[], 1));
        assert!(is_void(&[(Verdict::Undecided, 2)], 3));
        assert!(!is_void(&[(Verdict::Undecided, 2), (Verdict::Agreed, 1)], 3));
        assert!(!is_void(&[], 0), "no pod was bound");
    }
}
