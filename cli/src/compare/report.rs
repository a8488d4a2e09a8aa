//! The comparison as tables and JSON. The first lines are the answer.

use serde_json::{Value, json};

use super::packing::{Packing, Used};
use super::shapes::{MOST_COPIES, Shapes};
use super::verdict::verdict;
use super::{Run, differences, most_failed, per_second, wait};
use crate::replay::Workload;
use crate::table::{plain, row};
use crate::text::{Rounding, amounts, count, line};

/// The runs of a workload.
pub(super) struct Report<'a> {
    pub(super) workload: &'a Workload,
    pub(super) shapes: &'a Shapes,
    pub(super) runs: &'a [Run],
}

/// A number of nodes, which in timed mode is a mean.
fn nodes(run: &Run, used: f64) -> String {
    if run.outcome.busy.is_some() { format!("{used:.1}") } else { format!("{used:.0}") }
}

/// Used and all nodes, and their prices.
fn used(run: &Run, of: &Used) -> String {
    let nodes = format!("{}/{}", nodes(run, of.used), of.nodes);
    match of.price {
        Some(price) => format!("{nodes}, price {:.2}/{:.2}", price.used, price.all),
        None => nodes,
    }
}

fn copies(number: usize) -> String {
    if number == MOST_COPIES { format!("{number} or more") } else { number.to_string() }
}

impl Report<'_> {
    pub(super) fn table(&self, limit: Option<usize>) -> String {
        let mut text = self.answer();
        for table in [self.figures(), self.capacity(), self.pools()] {
            if !table.is_empty() {
                text.push_str("\n\n");
                text.push_str(&table);
            }
        }
        let mut further: Vec<String> = self.differences();
        for run in self.runs {
            for (of, first) in run.spread.iter().zip(&self.runs[0].spread) {
                let mark = if of.is_apart(first) { ", more than the spread" } else { "" };
                further.push(format!(
                    "{}: {}: mean {:.1}, min {:.1}, max {:.1}{mark}",
                    line(&run.name),
                    of.name,
                    of.mean,
                    of.least,
                    of.most
                ));
            }
        }
        for run in self.runs {
            if let Some(limit) = limit.filter(|limit| most_failed(run) > *limit) {
                let pods = count(most_failed(run), "unschedulable pod");
                further.push(format!("{}: {pods}, limit {limit}", line(&run.name)));
            }
        }
        if !further.is_empty() {
            text.push_str("\n\n");
            text.push_str(&further.join("\n"));
        }
        text
    }

    /// How each configuration packs relative to the first one, or how the only one packs.
    pub(super) fn answer(&self) -> String {
        let first = &self.runs[0];
        let answers = self.runs[1..].iter().map(|other| verdict(first, other, self.shapes).1);
        let answers: Vec<String> = answers.collect();
        if !answers.is_empty() {
            return answers.join("\n");
        }
        let all = &first.packing.all;
        format!(
            "{}: {} of {} used, {} of {} placed",
            line(&first.name),
            nodes(first, all.used),
            count(all.nodes, "node"),
            first.outcome.placed,
            count(first.outcome.pods, "pod")
        )
    }

    /// A row for each configuration.
    fn figures(&self) -> String {
        let has_waits = self.runs.iter().any(|run| run.outcome.waits.is_some());
        let has_prices = self.runs.iter().any(|run| run.packing.all.price.is_some());
        let mut header = vec!["configuration", "placed", "unschedulable", "nodes used", "empty"];
        if has_prices {
            header.extend(["price used", "price of all"]);
        }
        header.extend([
            "requested on used",
            "cpu imbalance",
            "memory imbalance",
            "different",
            "cycles/s",
        ]);
        if has_waits {
            header.push("wait p50 / p99");
        }
        let mut table = plain(header);
        for run in self.runs {
            let (different, _) = differences(&self.runs[0], run);
            let all = &run.packing.all;
            let mut cells = vec![
                run.name.clone(),
                run.outcome.placed.to_string(),
                run.outcome.failed.to_string(),
                nodes(run, all.used),
                nodes(run, all.nodes as f64 - all.used),
            ];
            if let Some(price) = all.price {
                cells.extend([price.used, price.all].map(|price| format!("{price:.2}")));
            }
            let shares = run.packing.utilization.iter();
            let shares = shares.map(|(name, share)| format!("{name} {share:.1} %"));
            cells.extend([
                shares.collect::<Vec<_>>().join(", "),
                format!("{:.1} %", run.imbalance.0),
                format!("{:.1} %", run.imbalance.1),
                different.to_string(),
                format!("{:.0}", per_second(&run.outcome)),
            ]);
            if let (Some(p50), Some(p99)) = (wait(&run.outcome, 0.5), wait(&run.outcome, 0.99)) {
                cells.push(format!("{p50} / {p99} s"));
            }
            table.add_row(row(cells));
        }
        table.trim_fmt()
    }

    /// A header of one name and the configurations.
    fn header(&self, name: &str) -> Vec<String> {
        let runs = self.runs.iter().map(|run| line(&run.name).into_owned());
        [name.to_owned()].into_iter().chain(runs).collect()
    }

    /// The capacity that is left at the end: copies that fit, the largest shape that fits, stranded amounts.
    fn capacity(&self) -> String {
        let left: Vec<_> = self.runs.iter().filter_map(|run| run.left.as_ref()).collect();
        let mut table = plain(self.header("left at the end"));
        for (at, (shape, pods)) in self.shapes.groups().enumerate() {
            let name = format!("more copies of {} (of {})", shape.name, count(pods, "such pod"));
            let cells = left.iter().map(|left| copies(left.copies[at]));
            table.add_row(row([name].into_iter().chain(cells)));
        }
        let largest = left.iter().map(|left| left.largest.as_deref().unwrap_or("none").to_owned());
        table.add_row(row(["largest pod that fits".to_owned()].into_iter().chain(largest)));
        let names = left.first().map(|left| left.stranded.as_slice()).unwrap_or_default();
        for (at, (name, ..)) in names.iter().enumerate() {
            let cells = left.iter().map(|left| {
                let (name, free, share) = &left.stranded[at];
                let [free] = amounts(name, [*free], Rounding::Down);
                format!("{free} ({share:.1} %)")
            });
            table.add_row(row([format!("stranded {name}")].into_iter().chain(cells)));
        }
        table.trim_fmt()
    }

    /// The used nodes of each pool; empty without pools.
    fn pools(&self) -> String {
        let pools = &self.runs[0].packing.pools;
        if pools.is_empty() {
            return String::new();
        }
        let mut table = plain(self.header("pool: used/all nodes"));
        for pool in pools.keys() {
            let of = |run: &Run| run.packing.pools.get(pool).map(|of| used(run, of));
            let cells = self.runs.iter().map(|run| of(run).unwrap_or_default());
            let name = if pool.is_empty() { "(no label)" } else { pool };
            table.add_row(row([name.to_owned()].into_iter().chain(cells)));
        }
        table.trim_fmt()
    }

    fn differences(&self) -> Vec<String> {
        let of = |run: &Run| {
            let (_, at) = differences(&self.runs[0], run);
            let at = at?;
            let pod = &self.workload.arrivals[at].pod;
            let on = |run: &Run| {
                run.outcome.placements[at].as_deref().unwrap_or("unschedulable").to_owned()
            };
            Some(format!(
                "{}: first difference: pod {}: {} instead of {}",
                line(&run.name),
                line(&pod.key()),
                line(&on(run)),
                line(&on(&self.runs[0]))
            ))
        };
        self.runs[1..].iter().filter_map(of).collect()
    }

    pub(super) fn json(&self, broken: &[&str]) -> Value {
        let runs: Vec<Value> = self.runs.iter().map(|run| self.run(run)).collect();
        let answers = self.runs[1..].iter().map(|other| {
            let (packs, sentence) = verdict(&self.runs[0], other, self.shapes);
            json!({ "config": other.name, "packs": packs.as_str(), "answer": sentence })
        });
        let shapes = self.shapes.groups().map(|(shape, pods)| {
            json!({ "requests": shape.name, "pods": shape.pods, "represents": pods })
        });
        json!({
            "version": 2,
            "answers": answers.collect::<Vec<_>>(),
            "shapes": shapes.collect::<Vec<_>>(),
            "runs": runs,
            "broken": broken,
            "input": self.workload.intake.json(),
        })
    }

    fn run(&self, run: &Run) -> Value {
        let (different, earliest) = differences(&self.runs[0], run);
        let earliest = earliest.map(|at| {
            let pod = &self.workload.arrivals[at].pod;
            json!({
                "pod": &*pod.key(),
                "first": self.runs[0].outcome.placements[at].as_deref(),
                "here": run.outcome.placements[at].as_deref(),
                "scores": run.scores,
            })
        });
        let Packing { all, pools, utilization, fill } = &run.packing;
        let pools = pools.iter().map(|(name, of)| (name.clone(), of_used(of)));
        let tenths = |share: &f64| (share * 10.0).round() / 10.0;
        let fill = fill.iter().map(|(name, shares)| {
            (name.clone(), shares.iter().map(tenths).collect::<Vec<f64>>().into())
        });
        let shares = utilization.iter().map(|(name, share)| (name.clone(), json!(share)));
        json!({
            "config": run.name,
            "placed": run.outcome.placed,
            "unschedulable": run.outcome.failed,
            "nodes": of_used(all),
            "pools": pools.collect::<serde_json::Map<_, _>>(),
            "requested_on_used_percent": shares.collect::<serde_json::Map<_, _>>(),
            "fill_percent": fill.collect::<serde_json::Map<_, _>>(),
            "left": self.left(run),
            "different": different,
            "first_difference": earliest,
            "imbalance_percent": { "cpu": run.imbalance.0, "memory": run.imbalance.1 },
            "wait_seconds": { "p50": wait(&run.outcome, 0.5), "p99": wait(&run.outcome, 0.99) },
            "cycles_per_second": per_second(&run.outcome),
            "seeds": run.spread.iter().zip(&self.runs[0].spread).map(|(of, first)| json!({
                "figure": of.name, "mean": of.mean, "min": of.least, "max": of.most,
                "differs": of.is_apart(first),
            })).collect::<Vec<_>>(),
            "decision_hash": format!("{:016x}", run.outcome.decision_hash),
        })
    }

    fn left(&self, run: &Run) -> Option<Value> {
        let left = run.left.as_ref()?;
        let stranded = left
            .stranded
            .iter()
            .map(|(name, free, share)| (name.clone(), json!({ "amount": free, "percent": share })));
        Some(json!({
            "largest_pod_that_fits": left.largest,
            "more_copies": left.copies,
            "counted_up_to": MOST_COPIES,
            "stranded": stranded.collect::<serde_json::Map<_, _>>(),
        }))
    }
}

fn of_used(of: &Used) -> Value {
    json!({
        "all": of.nodes,
        "used": of.used,
        "empty": of.nodes as f64 - of.used,
        "price_per_hour": of.price.map(|price| json!({ "used": price.used, "all": price.all })),
    })
}
