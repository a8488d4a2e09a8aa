//! `portolan-bench drains`: candidates for a scale-down, each drained on a fork of one version.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use portolan::cache::{Config, Engine, Snapshot};
use portolan::model::{Labels, Name, Pod, pod};
use portolan::scheduler::drain::{Budgets, DrainOptions};
use portolan::{AlgorithmConfig, Framework, WhatIf};
use portolan_cli::{CommandError, Output, closed, plain, print, right};
use portolan_testkit::measure::{Sorted, ratios, rotate};
use serde_json::{Value, json};

use super::cache::make_node;

/// Measure how long it takes to find out which nodes could be drained.
///
/// Each candidate is drained on a fork of one version: its pods are evicted and placed again, each after the pods before
/// it. Thirty pods in a row share a template. `drained` counts the nodes whose pods all find another node. `seconds`, `min`
/// and `max` are of the scans, and `speedup` is the median ratio to the scans of the first row.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of nodes, each with 4 cpu, 32 Gi and 110 pods, in three zones.
    #[arg(long, value_name = "COUNT", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    nodes: u32,
    /// Number of pods on each node, each with 100m cpu and 500 Mi.
    #[arg(long, value_name = "COUNT", default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=40))]
    pods_per_node: u32,
    /// Number of nodes to drain, at regular intervals.
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    candidates: u32,
    /// Numbers of threads to compare, separated by commas.
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Vec<u16>,
    /// Number of scans with each number of threads, which alternate.
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: u16,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let snapshot = cluster(arguments)?;
    let names: Vec<Name> = snapshot.nodes().map(|node| node.name().clone()).collect();
    let most = arguments.candidates as usize;
    let step = (names.len() / most).max(1);
    let candidates: Vec<Name> = names.into_iter().step_by(step).take(most).collect();
    let scans = rotate(arguments.repeat.into(), arguments.threads.len(), |which, _| {
        let started = Instant::now();
        let drained = scan(&snapshot, &candidates, arguments.threads[which])?;
        Ok((drained, started.elapsed().as_secs_f64()))
    });
    let scans: Result<Vec<Vec<(usize, f64)>>, CommandError> =
        scans.into_iter().map(|of| of.into_iter().collect()).collect();
    let scans = scans?;
    let mut found = scans.iter().flatten().map(|(drained, _)| *drained);
    let drained = found.next().unwrap_or_default();
    if let Some(other) = found.find(|other| *other != drained) {
        return Err(closed(format!("two scans drained {drained} and {other} nodes")));
    }
    let seconds = |scans: &[(usize, f64)]| -> Vec<f64> { scans.iter().map(|of| of.1).collect() };
    let first = seconds(&scans[0]);
    let rows = arguments.threads.iter().zip(&scans).map(|(threads, scans)| {
        let seconds = seconds(scans);
        let sorted = Sorted::new(seconds.iter().copied());
        json!({
            "threads": threads,
            "candidates": candidates.len(),
            "drained": drained,
            "seconds": sorted.quantile(0.5),
            "min": sorted.quantile(0.0),
            "max": sorted.quantile(1.0),
            "speedup": ratios(&first, &seconds).quantile(0.5),
        })
    });
    let rows: Vec<Value> = rows.collect();
    print(&match arguments.output {
        Output::Json => rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"),
        Output::Table => table(&rows),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[Value]) -> String {
    let columns = ["threads", "candidates", "drained", "seconds", "min", "max", "speedup"];
    let mut table = plain(columns);
    for row in rows {
        table.add_row(columns.map(|column| match row[column].as_f64() {
            Some(number) if !row[column].is_u64() => format!("{number:.3}"),
            _ => row[column].to_string(),
        }));
    }
    right(table, &[0, 1, 2, 3, 4, 5, 6]).to_string()
}

fn cluster(arguments: &Arguments) -> Result<Arc<Snapshot>, CommandError> {
    let (mut writer, reader) = Engine::inline(Config::default());
    let (nodes, all) = (arguments.nodes, arguments.nodes * arguments.pods_per_node);
    let name = |n: u32| format!("node-{n:07}");
    let mut template = None;
    let pods = (0..all).map(|i| {
        let deployment = i / 30;
        let shared = || {
            let app = Labels::new([("app", format!("app-{deployment}"))]);
            let pod = pod("template").cpu(100).memory(500 << 20);
            (deployment, pod.spec(|spec| spec.labels = app).build().template)
        };
        if template.as_ref().is_none_or(|(of, _)| *of != deployment) {
            template = Some(shared());
        }
        let (_, shared) = template.get_or_insert_with(shared);
        let pod = pod(format!("app-{deployment}-{i}")).on(name(i % nodes)).build();
        Pod { template: shared.clone(), ..pod }
    });
    let applied = writer.load([], (0..nodes).map(|n| make_node(&name(n), n as usize)), pods);
    if let Some((object, error)) = applied.rejected.into_iter().next() {
        return Err(CommandError::Refused { object, error });
    }
    writer.publish();
    Ok(reader.snapshot())
}

/// Returns the number of candidates whose pods all find another node.
fn scan(snapshot: &Snapshot, candidates: &[Name], threads: u16) -> Result<usize, CommandError> {
    let framework = Arc::new(Framework::default_profile());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut what_if = WhatIf::new(snapshot, framework.clone(), AlgorithmConfig::default());
        let mut drained = 0;
        // Relaxed: the counter only divides the candidates.
        while let Some(node) = candidates.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut all_placed = Ok(false);
            let _ = what_if.transaction(|what_if| {
                all_placed = places_all(what_if, node, snapshot);
                Err::<(), ()>(())
            });
            drained += usize::from(all_placed?);
        }
        Ok(drained)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined.map(|it| it.unwrap_or(Err(CommandError::Panicked("a drain")))).sum()
    })
}

/// Drains a node, and returns whether each of its pods finds another one.
fn places_all(what_if: &mut WhatIf, node: &str, snapshot: &Snapshot) -> Result<bool, CommandError> {
    // The pods have no controller.
    let options = DrainOptions { force: true, ..DrainOptions::default() };
    let drained = what_if.drain(node, &mut Budgets::of(snapshot), options).map_err(closed)?;
    let places = |pod: &Pod| what_if.schedule(pod).is_ok();
    Ok(drained.is_complete() && drained.evicted.iter().all(places))
}
