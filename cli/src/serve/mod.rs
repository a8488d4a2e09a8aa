//! `portolan serve`: a page and an API that answer questions about a cluster.
//!
//! A reading of the cluster is a [`view::View`], which never changes. Questions read the newest one, or the one after
//! the change of a session, and run beside each other without locks. Nothing is written to the cluster or to files.

mod api;
mod example;
mod figures;
mod page;
mod problem;
mod sessions;
mod source;
#[cfg(test)]
mod tests;
mod view;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use portolan::plugin::Handle;
use portolan_dra::plugin::DryRunBackend;
use portolan_kube::process::{ListenAddress, Served};

use crate::cluster::{self, Godel};
use crate::error::CommandError;
use crate::live::{Signals, duration, log_to_stderr, not_served, runtime};
use crate::policy::{ConfigFile, Rules};
use crate::print;
use crate::text::count;

use api::App;
use source::Source;

/// Answer questions about a cluster over HTTP: a page for people, and an API for programs.
///
/// Shows the nodes and their pods, explains pending pods, and simulates changes, which sessions keep for an hour. Reads
/// the cluster only. Files are read again when they change. Without --cluster, --kubeconfig, --context and --master, an
/// example is shown. Ends on SIGTERM or SIGINT.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: cluster::From,
    /// Listen address: a loopback address with a port, or unix:PATH for a Unix socket. There is neither encryption nor
    /// authentication, so other addresses are refused. On a loopback address, the header Host of every request must name
    /// the local host.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8090")]
    listen: ListenAddress,
    /// Time between two readings of a running cluster, at least 1s.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    refresh: Duration,
    #[command(flatten)]
    config: ConfigFile,
    /// Seed for breaking ties.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    godel: Godel,
    /// Lowest severity that is logged to standard error: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: tracing::Level,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let Arguments { from, listen, refresh, config, seed, godel, log } = arguments;
    if listen.tcp().is_some_and(|address| !address.ip().to_canonical().is_loopback()) {
        let why = "anyone who reaches the address could read the cluster: listen on a loopback address or a Unix \
                   socket, behind a proxy that authenticates its clients";
        return Err(CommandError::Usage(format!("--listen {listen}: {why}")));
    }
    if *refresh < Duration::from_secs(1) {
        return Err(CommandError::Usage("--refresh: pass at least 1s".to_owned()));
    }
    log_to_stderr(*log);
    let config = config.source().read()?;
    // An invalid configuration is an error of the start, not of each question.
    config.policies(&Handle::default(), Arc::new(DryRunBackend))?;
    let rules = Rules { config: config.into(), godel: godel.clone().into(), seed: *seed };
    let source = Source::of(from, *refresh);
    // Before the reading, so that a change during it is noticed.
    let stamp = source.stamp().ok().flatten();
    let first = source.read(1, &rules)?;
    let [nodes, pods, pending] = first.counts();
    let (nodes, pods) = (count(nodes, "node"), count(pods, "pod"));
    let name = source.name();
    let app = App::new(rules.clone(), name.clone(), first);
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let served = Served::routes(listen.clone(), api::routes(app.clone())).await;
        let served = served.map_err(|error| not_served("--listen", listen, &error))?;
        let address = match served.address() {
            ListenAddress::Tcp(address) => format!("http://{address}/"),
            other => other.to_string(),
        };
        print(&format!("{address} shows {name}: {nodes}, {pods}, {pending} pending"))?;
        tokio::spawn(expire(app.clone()));
        tokio::spawn(follow(app, source, stamp, rules));
        signals.next().await;
        drop(served);
        Ok(ExitCode::SUCCESS)
    });
    // Computations may still run.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// Frees sessions that have ended, although nobody asks.
async fn expire(app: Arc<App>) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        app.sessions.len();
    }
}

/// Reads the cluster again when its files have changed, or after each pause.
async fn follow(app: Arc<App>, source: Source, mut seen: Option<source::Stamp>, rules: Rules) {
    let Some(pause) = source.pause() else { return };
    loop {
        tokio::time::sleep(pause).await;
        let (next, source, rules) = (app.generation() + 1, source.clone(), rules.clone());
        let before = seen.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let stamp = match source.stamp() {
                Ok(stamp) => stamp,
                // An empty stamp: the files are read when they are back.
                Err(error) => return (Some(source::Stamp::new()), Some(Err(error))),
            };
            let is_new = stamp.is_none() || stamp != before;
            (stamp, is_new.then(|| source.read(next, &rules)))
        });
        let Ok((stamp, read)) = reading.await else { continue };
        match read {
            None => {}
            Some(Ok(view)) => {
                tracing::debug!(generation = next, "the cluster was read");
                app.show(view);
            }
            // A file may be written at this moment. The newest good reading stays.
            Some(Err(error)) => app.fail(error.text()),
        }
        seen = stamp;
    }
}
