//! `portolan demo`: a cluster in memory, behind an API server on a real socket, and a live scheduler.

mod soak;
mod tally;

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use portolan_apiserver::{ApiServer, Kubelet, Options};
use portolan_kube::api::{Connection, Limits};
use portolan_kube::process::{LiveConfig, LiveScheduler};
use portolan_kube::write::Fence;
use serde_json::{Value, json};

use crate::error::CommandError;
use crate::terminal::{self, Of};
use crate::text::count;
use crate::{Output, arguments, print};

use super::{duration, live, runtime};
use soak::{Soak, Soaked};
use tally::Tally;

/// Schedule pods through an API server that runs in this process.
///
/// Starts an API server in memory with hollow nodes, creates a backlog of pods, and runs the scheduler of `portolan
/// run` against it over HTTP. Then creates pods at a steady rate and measures how long each takes from its creation to
/// its binding. The server, the kubelets and the scheduler share this machine's processors.
///
/// With --for, each further pod replaces the oldest one, every tenth pod fits on no node, and the command checks that
/// no pod is lost and that memory and queues do not grow.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of nodes, each with 32 cpu, 256 Gi and 110 pods, in three zones.
    #[arg(long, value_name = "COUNT", default_value = "1000", value_parser = arguments::at_least_one::<NonZeroUsize>)]
    nodes: NonZeroUsize,
    /// Number of pods that wait when the scheduler starts.
    #[arg(long, value_name = "COUNT", default_value = "10000", value_parser = arguments::at_least_one::<NonZeroUsize>)]
    pods: NonZeroUsize,
    /// Pods created per second afterwards, for ten seconds or the time of --for.
    #[arg(long, value_name = "COUNT", default_value = "200", value_parser = arguments::at_least_one::<NonZeroUsize>)]
    rate: NonZeroUsize,
    /// Create and delete pods for this time, at least 8s, and check that memory and queues do not grow.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    time: Option<Duration>,
    /// Let the server fail in this time: errors, lost answers, broken watches, slow answers, conflicts and restarts.
    #[arg(long, requires = "time")]
    faults: bool,
    /// Time that the server takes for each write, in milliseconds, as if it wrote to etcd.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 10)]
    write_delay: u64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// The measurements of the demonstration.
struct Report {
    synced: Duration,
    backlog: Duration,
    /// The same until the events of its pods are written.
    reported: Duration,
    tally: Tally,
    lost: usize,
    soaked: Option<Soaked>,
}

/// How long pods are created at a steady rate, unless `--for` is set.
const STEADY: Duration = Duration::from_secs(10);
/// The longest time without a binding, or without an event, before the demonstration gives up. A request without an
/// answer takes 30 seconds, and a pod backs off for up to 10 seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time after which a pod that waits is lost. After a fault, a watch waits for up to a minute (client-go), and then
/// lists all objects.
const RECOVERY: Duration = Duration::from_secs(180);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    if let Some(time) = arguments.time.filter(|time| *time < soak::SHORTEST) {
        let least = soak::SHORTEST.as_secs();
        return Err(CommandError::Usage(format!("--for {time:?}: use {least}s or more")));
    }
    let mut options = Options {
        write_delay: Duration::from_millis(arguments.write_delay),
        max_in_flight: 2_000,
        controllers: false,
        ..Options::default()
    };
    if arguments.time.is_some() {
        options.watch_cache = soak::WATCH_CACHE.saturating_mul(arguments.rate.get());
    }
    let server = ApiServer::start(options).map_err(live)?;
    terminal::note(&format!("the API server answers at {} without authentication", server.url()));
    let pods = arguments.pods.get() as u64;
    let bar = terminal::progress("creating", pods, Of::Items("pods"));
    for n in 0..arguments.nodes.get() {
        server.create(&node(n)).map_err(live)?;
    }
    for n in 0..arguments.pods.get() {
        server.create(&pod(n)).map_err(live)?;
        bar.inc(1);
    }
    let _kubelets = Kubelet::start(&server, Duration::ZERO);
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
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn measure(
    server: &ApiServer,
    arguments: &Arguments,
    bar: &ProgressBar,
) -> Result<Report, CommandError> {
    let limits = Limits::default();
    let api = Connection::unauthenticated(server.url()).open(limits).await.map_err(live)?;
    let mut config = LiveConfig::default();
    config.writes.host = "demo".to_owned();
    let started = Instant::now();
    let mut scheduler = LiveScheduler::start(api, Fence::opened(), config).map_err(live)?;
    scheduler.mirror().synced().await.map_err(live)?;
    let synced = started.elapsed();
    let begun = Instant::now();
    scheduler.begin().map_err(live)?;
    let first = arguments.pods.get();
    wait_for(&scheduler, first as u64, bar).await?;
    let backlog = begun.elapsed();
    // Events are written more slowly than bindings. Those of the backlog would use the connections and the processors
    // during the steady phase, and would distort the measurement.
    bar.set_message("writing events");
    wait_for_events(&scheduler).await?;
    let reported = begun.elapsed();
    bar.set_message("creating and binding");
    let mut tally = Tally::new(first);
    tally.add(server.take_writes());
    let time = arguments.time.unwrap_or(STEADY);
    let mut soak = arguments.time.map(|_| Soak::begin(server, first, arguments.faults));
    let steady = (arguments.rate.get() as f64 * time.as_secs_f64()) as usize;
    bar.set_length(steady as u64);
    bar.reset();
    let begun = Instant::now();
    let mut sampled = Duration::ZERO;
    for n in 0..steady {
        let due = time.mul_f64(n as f64 / steady as f64);
        tokio::time::sleep_until((begun + due).into()).await;
        tokio::task::block_in_place(|| match &mut soak {
            Some(soak) => soak.replace(first + n, &tally),
            None => server.create(&pod(first + n)).map(drop),
        })
        .map_err(live)?;
        bar.set_position(n as u64);
        if let Some(soak) = &mut soak
            && begun.elapsed() >= sampled + soak::EVERY
        {
            sampled += soak::EVERY;
            let left = scheduler.writes().flush(Duration::ZERO).await.err();
            let unwritten = left.map_or(0, |left| left.statuses + left.events);
            tokio::task::block_in_place(|| {
                tally.add(server.take_writes());
                soak.sample(&scheduler, unwritten, &mut tally)
            })
            .map_err(live)?;
        }
    }
    let soaked = soak.map(Soak::end);
    wait_for_rest(server, &mut tally).await;
    scheduler.stop(PATIENCE).await;
    tally.add(server.take_writes());
    let lost = lost(server);
    Ok(Report { synced, backlog, reported, tally, lost, soaked })
}

/// Waits until no pod that fits waits, or none was bound for a while.
async fn wait_for_rest(server: &ApiServer, tally: &mut Tally) {
    let (mut last, mut since) = (usize::MAX, Instant::now());
    loop {
        tally.add(server.take_writes());
        if tally.waiting() != last {
            (last, since) = (tally.waiting(), Instant::now());
        }
        if last == 0 || since.elapsed() > RECOVERY {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The pods on the server that fit and are not bound.
fn lost(server: &ApiServer) -> usize {
    let pods = server.objects("Pod").into_iter();
    let unbound = pods.filter(|pod| pod["spec"]["nodeName"].as_str().is_none());
    unbound.filter(|pod| pod["metadata"]["name"].as_str().and_then(number).is_some()).count()
}

/// Waits until this many pods are bound.
async fn wait_for(
    scheduler: &LiveScheduler,
    pods: u64,
    bar: &ProgressBar,
) -> Result<(), CommandError> {
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
            return Err(CommandError::Live(format!(
                "{} of {pods} pods were bound, and none for {} s: the nodes may be full",
                figures.bound,
                PATIENCE.as_secs()
            )));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the events so far are written or dropped.
async fn wait_for_events(scheduler: &LiveScheduler) -> Result<(), CommandError> {
    let ended = || {
        let figures = scheduler.writes().events().figures();
        figures.sent + figures.dropped + figures.failed + figures.counted
    };
    let mut last = ended();
    while scheduler.writes().flush(PATIENCE).await.is_err() {
        if ended() == last {
            let patience = PATIENCE.as_secs();
            return Err(CommandError::Live(format!(
                "{last} events were written, and none for {patience} s"
            )));
        }
        last = ended();
    }
    Ok(())
}

impl Report {
    /// Whether each pod was bound once, and nothing grew.
    fn is_good(&self) -> bool {
        let is_flat = self.soaked.as_ref().is_none_or(Soaked::is_flat);
        self.tally.twice() == 0 && self.lost == 0 && is_flat
    }

    fn rate(&self, arguments: &Arguments, time: Duration) -> f64 {
        arguments.pods.get() as f64 / time.as_secs_f64()
    }

    fn millis(&self, quantile: f64) -> f64 {
        self.tally.waits().value_at_quantile(quantile) as f64 / 1_000.0
    }

    fn text(&self, arguments: &Arguments) -> String {
        let soaked = self.soaked.as_ref().map(|soaked| format!("\n{}", soaked.text()));
        format!(
            "{} and {} on an API server in this process, {} ms a write\n\n\
             first lists to ready          {:.2} s\n\
             backlog bound                 {:.2} s, {:.0} pods/s\n\
             events of the backlog written {:.2} s, {:.0} pods/s\n\
             created to bound, {:>4}/s      p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms\n\
             events recorded               {}\n\
             pods bound                    {}\n\
             pods bound twice              {}\n\
             pods lost                     {}{}",
            count(arguments.nodes.get(), "node"),
            count(arguments.pods.get(), "pod"),
            arguments.write_delay,
            self.synced.as_secs_f64(),
            self.backlog.as_secs_f64(),
            self.rate(arguments, self.backlog),
            self.reported.as_secs_f64(),
            self.rate(arguments, self.reported),
            arguments.rate,
            self.millis(0.5),
            self.millis(0.99),
            self.millis(1.0),
            self.tally.recorded(),
            self.tally.bound(),
            self.tally.twice(),
            self.lost,
            soaked.unwrap_or_default()
        )
    }

    fn json(&self, arguments: &Arguments) -> Value {
        json!({
            "nodes": arguments.nodes,
            "pods": arguments.pods,
            "write_delay_ms": arguments.write_delay,
            "synced_s": self.synced.as_secs_f64(),
            "backlog_s": self.backlog.as_secs_f64(),
            "reported_s": self.reported.as_secs_f64(),
            "bound_per_s": self.rate(arguments, self.backlog),
            "created_to_bound_ms": {
                "p50": self.millis(0.5), "p99": self.millis(0.99), "longest": self.millis(1.0),
            },
            "events": self.tally.recorded(),
            "bound": self.tally.bound(),
            "bound_twice": self.tally.twice(),
            "lost": self.lost,
            "soak": self.soaked.as_ref().map(Soaked::json),
        })
    }
}

/// The number of a pod that fits on a node.
fn number(name: &str) -> Option<usize> {
    name.strip_prefix("pod-")?.parse().ok()
}

fn name(n: usize) -> String {
    format!("pod-{n:06}")
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
        "metadata": {"name": name(n), "namespace": "default", "labels": {"app": "demo"}},
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
        let _kubelets = Kubelet::start(&server, Duration::ZERO);
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
