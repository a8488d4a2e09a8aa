//! `portolan demo`: a cluster in memory, behind an API server on a real socket, and a live scheduler.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use portolan_apiserver::{ApiServer, Kubelet, KubeletOptions, Options};
use portolan_kube::api::{Connection, Limits};
use portolan_kube::process::{LiveConfig, LiveScheduler};
use portolan_kube::write::Fence;
use serde_json::{Value, json};

use crate::error::Failure;
use crate::terminal::{self, Of};
use crate::text::count;
use crate::{Output, arguments, print};

use super::{live, runtime};

/// Schedule pods through an API server that runs in this process.
///
/// Starts an API server in memory with hollow nodes, creates a backlog of pods, and runs the scheduler of `portolan run`
/// against it over HTTP. Then creates pods at a steady rate and measures how long each takes from its creation to its
/// binding. The server, the kubelets and the scheduler share this machine's processors.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of nodes, each with 32 cpu, 256 Gi and 110 pods, in three zones.
    #[arg(long, value_name = "COUNT", default_value = "1000", value_parser = arguments::at_least_one::<NonZeroUsize>)]
    nodes: NonZeroUsize,
    /// Number of pods that wait when the scheduler starts.
    #[arg(long, value_name = "COUNT", default_value = "10000", value_parser = arguments::at_least_one::<NonZeroUsize>)]
    pods: NonZeroUsize,
    /// Pods created per second afterwards, for ten seconds.
    #[arg(long, value_name = "COUNT", default_value = "200", value_parser = arguments::at_least_one::<NonZeroUsize>)]
    rate: NonZeroUsize,
    /// Time that the server takes for each write, in milliseconds, as if it wrote to etcd.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 10)]
    write_delay: u64,
    /// Bindings in flight at once.
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = arguments::at_least_one::<NonZeroUsize>)]
    bindings: NonZeroUsize,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// The measurements of the demonstration.
struct Report {
    synced: Duration,
    backlog: Duration,
    waits: Histogram<u64>,
    events: usize,
    twice: usize,
}

/// How long pods are created at a steady rate.
const STEADY: Duration = Duration::from_secs(10);
/// The longest time without a binding, or without an event, before the demonstration gives up.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let options = Options {
        write_delay: Duration::from_millis(arguments.write_delay),
        max_in_flight: 2_000,
        controllers: false,
        ..Options::default()
    };
    let server = ApiServer::start(options).map_err(live)?;
    let pods = arguments.pods.get() as u64;
    let bar = terminal::progress("creating", pods, Of::Items("pods"));
    for n in 0..arguments.nodes.get() {
        server.create(&node(n)).map_err(live)?;
    }
    for n in 0..arguments.pods.get() {
        server.create(&pod(n)).map_err(live)?;
        bar.inc(1);
    }
    let _kubelets = Kubelet::start(&server, KubeletOptions::default());
    drop(bar);
    let bar = terminal::progress("binding", pods, Of::Items("pods"));
    let report = runtime()?.block_on(measure(&server, arguments, &bar));
    drop(bar);
    let report = report?;
    let text = match arguments.output {
        Output::Json => report.json(arguments).to_string(),
        Output::Table => report.text(arguments),
    };
    print(&text)?;
    Ok(if report.twice == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn measure(
    server: &ApiServer,
    arguments: &Arguments,
    bar: &ProgressBar,
) -> Result<Report, Failure> {
    let limits = Limits::default();
    let api = Connection::unauthenticated(server.url()).open(limits).await.map_err(live)?;
    let mut config = LiveConfig::default();
    config.bindings = arguments.bindings;
    config.writes.host = "demo".to_owned();
    let started = Instant::now();
    let mut scheduler = LiveScheduler::start(api, Fence::opened(), config).map_err(live)?;
    scheduler.mirror().synced().await.map_err(live)?;
    let synced = started.elapsed();
    let begun = Instant::now();
    scheduler.begin().map_err(live)?;
    wait_for(&scheduler, arguments.pods.get() as u64, bar).await?;
    let backlog = begun.elapsed();
    // Events are written more slowly than bindings. Those of the backlog would use the connections and the processors
    // during the steady phase, and would distort the measurement.
    bar.set_message("writing events");
    wait_for_events(&scheduler).await?;
    bar.set_message("creating and binding");
    let steady = (arguments.rate.get() as u64).saturating_mul(STEADY.as_secs());
    bar.set_length(steady);
    bar.reset();
    let first = arguments.pods.get();
    let begun = Instant::now();
    for n in 0..steady as usize {
        let due = STEADY.mul_f64(n as f64 / steady as f64);
        tokio::time::sleep_until((begun + due).into()).await;
        tokio::task::block_in_place(|| server.create(&pod(first + n))).map_err(live)?;
        bar.set_position(scheduler.figures().bound.saturating_sub(first as u64));
    }
    wait_for(&scheduler, first as u64 + steady, bar).await?;
    scheduler.stop(PATIENCE).await;
    Ok(Report::of(server, synced, backlog, first))
}

/// Waits until this many pods are bound.
async fn wait_for(scheduler: &LiveScheduler, pods: u64, bar: &ProgressBar) -> Result<(), Failure> {
    let length = bar.length().unwrap_or(pods);
    let (mut last, mut since) = (0, Instant::now());
    loop {
        let figures = scheduler.figures();
        bar.set_position(figures.bound.saturating_sub(pods - length));
        if figures.bound >= pods {
            return Ok(());
        }
        if figures.bound != last {
            (last, since) = (figures.bound, Instant::now());
        } else if since.elapsed() > PATIENCE {
            return Err(Failure::Live(format!(
                "{} of {pods} pods were bound, and none for {} s: the nodes may be full",
                figures.bound,
                PATIENCE.as_secs()
            )));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the events so far are written or dropped.
async fn wait_for_events(scheduler: &LiveScheduler) -> Result<(), Failure> {
    let ended = || {
        let figures = scheduler.writes().events().figures();
        figures.sent + figures.dropped + figures.failed + figures.counted
    };
    let mut last = ended();
    while scheduler.writes().flush(PATIENCE).await.is_err() {
        if ended() == last {
            let patience = PATIENCE.as_secs();
            return Err(Failure::Live(format!(
                "{last} events were written, and none for {patience} s"
            )));
        }
        last = ended();
    }
    Ok(())
}

impl Report {
    fn of(server: &ApiServer, synced: Duration, backlog: Duration, first: usize) -> Report {
        let mut created: HashMap<String, Duration> = HashMap::new();
        let mut waits =
            Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are valid"));
        let mut bound: HashMap<String, usize> = HashMap::new();
        let mut events = 0;
        for write in server.writes() {
            match (write.verb, &*write.resource) {
                ("create", "pods") => drop(created.insert(write.name, write.at)),
                ("create", "pods/binding") if write.applied => {
                    let is_steady = number(&write.name).is_some_and(|n| n >= first);
                    if let Some(at) = created.get(&write.name).filter(|_| is_steady) {
                        let wait = write.at.saturating_sub(*at).as_micros();
                        // The histogram grows up to hours.
                        let _ = waits.record(u64::try_from(wait).unwrap_or(u64::MAX));
                    }
                    *bound.entry(write.name).or_default() += 1;
                }
                ("create", "events") => events += 1,
                _ => {}
            }
        }
        let twice = bound.values().filter(|times| **times > 1).count();
        Report { synced, backlog, waits, events, twice }
    }

    fn rate(&self, arguments: &Arguments) -> f64 {
        arguments.pods.get() as f64 / self.backlog.as_secs_f64()
    }

    fn millis(&self, quantile: f64) -> f64 {
        self.waits.value_at_quantile(quantile) as f64 / 1_000.0
    }

    fn text(&self, arguments: &Arguments) -> String {
        format!(
            "{} and {} on an API server in this process, {} ms a write\n\n\
             first lists to ready          {:.2} s\n\
             backlog bound                 {:.2} s, {:.0} pods/s\n\
             created to bound, {:>4}/s      p50 {:.1} ms, p99 {:.1} ms\n\
             events recorded               {}\n\
             pods bound twice              {}",
            count(arguments.nodes.get(), "node"),
            count(arguments.pods.get(), "pod"),
            arguments.write_delay,
            self.synced.as_secs_f64(),
            self.backlog.as_secs_f64(),
            self.rate(arguments),
            arguments.rate,
            self.millis(0.5),
            self.millis(0.99),
            self.events,
            self.twice
        )
    }

    fn json(&self, arguments: &Arguments) -> Value {
        json!({
            "nodes": arguments.nodes,
            "pods": arguments.pods,
            "write_delay_ms": arguments.write_delay,
            "synced_s": self.synced.as_secs_f64(),
            "backlog_s": self.backlog.as_secs_f64(),
            "bound_per_s": self.rate(arguments),
            "created_to_bound_ms": {"p50": self.millis(0.5), "p99": self.millis(0.99)},
            "events": self.events,
            "bound_twice": self.twice,
        })
    }
}

fn number(name: &str) -> Option<usize> {
    name.strip_prefix("pod-")?.parse().ok()
}

fn node(n: usize) -> Value {
    let name = format!("node-{n:05}");
    let amounts = json!({"cpu": "32", "memory": "256Gi", "pods": "110"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name,
            "topology.kubernetes.io/zone": format!("zone-{}", n % 3),
        }},
        "status": {"capacity": amounts, "allocatable": amounts},
    })
}

fn pod(n: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("pod-{n:06}"), "namespace": "default", "labels": {"app": "demo"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
            "name": "main",
            "image": "registry.example.com/pause:1",
            "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}},
        }]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_events_of_the_backlog_end_before_the_steady_phase() {
        let options = Options {
            write_delay: Duration::from_millis(100),
            controllers: false,
            ..Options::default()
        };
        let server = ApiServer::start(options).expect("started");
        server.create(&node(0)).expect("created");
        (0..40).for_each(|n| server.create(&pod(n)).map(drop).expect("created"));
        let _kubelets = Kubelet::start(&server, KubeletOptions::default());
        let written = runtime().expect("a runtime").block_on(async {
            let api = Connection::unauthenticated(server.url()).open(Limits::default()).await;
            let (api, fence) = (api.expect("open"), Fence::opened());
            let mut scheduler =
                LiveScheduler::start(api, fence, LiveConfig::default()).expect("started");
            scheduler.mirror().synced().await.expect("synced");
            scheduler.begin().expect("begun");
            wait_for(&scheduler, 40, &ProgressBar::hidden()).await.expect("bound");
            wait_for_events(&scheduler).await.expect("written");
            let writes = server.writes();
            scheduler.stop(PATIENCE).await;
            writes
        });
        let is_event = |verb: &str, resource: &str| (verb, resource) == ("create", "events");
        let events = written.iter().filter(|write| is_event(write.verb, &write.resource));
        assert_eq!(events.count(), 40);
    }
}
