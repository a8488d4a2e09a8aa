//! `portolan serve`: a page and an API that answer questions about a cluster.
//!
//! A reading of the cluster never changes, and the readings of the last hour are held ([`history::History`]). Questions
//! read the newest one, an older one, or the cluster after the change of a session ([`view::View`]), and run
//! concurrently without locks. Nothing is written to the cluster or to files.

mod access;
mod api;
mod difference;
mod document;
mod example;
mod figures;
mod history;
mod lines;
mod packed;
mod page;
mod play;
mod problem;
mod query;
mod routes;
mod sessions;
mod source;
mod steps;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan::plugin::Handle;
use portolan_dra::plugin::DryRunBackend;
use portolan_kube::process::{BearerReviews, ListenAddress, Served};

use crate::cluster::{self, Godel, Readings};
use crate::error::CommandError;
use crate::live::{
    Certificate, Reviewers, Signals, duration, live, log_to_stderr, not_secured, not_served,
    runtime,
};
use crate::policy::{ConfigFile, Rules};
use crate::print;
use crate::text::count;

use access::{Access, Rule, TokenFile};
use api::App;
use play::Replayed;
use source::Source;

/// Answer questions about a cluster over HTTP: a page for people, and an API for programs.
///
/// Shows the nodes and their pods, explains pending pods, and simulates changes, which sessions keep for an hour, as the
/// server keeps older states of the cluster. Reads the cluster only. Files are read again when they change, and a
/// running cluster is watched. Without --cluster, --kubeconfig, --context and --master, an example is shown. Ends on
/// SIGTERM or SIGINT.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: cluster::From,
    /// Listen address: an IP address with a port, or unix:PATH for a Unix socket. 0.0.0.0 includes IPv6. Addresses
    /// other than loopback need a certificate, and a token file or TokenReviews. On a loopback address without a
    /// certificate, the header Host of every request must name the local host.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8090")]
    listen: ListenAddress,
    /// Shortest time between two readings of a running cluster or a replay, at least 1s.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
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
    #[command(flatten)]
    replayed: Replayed,
    #[command(flatten)]
    admission: Admission,
}

/// To whom the server answers, and how.
#[derive(clap::Args)]
#[command(next_help_heading = "Encryption and authentication")]
struct Admission {
    #[command(flatten)]
    certificate: Certificate,
    /// File with the bearer token that clients must present, at least 16 characters. It is read again when it changes.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["authentication_kubeconfig", "authorization_kubeconfig"]
    )]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    reviewers: Reviewers,
}

impl Admission {
    /// Which tokens are accepted at an address. Loopback addresses and Unix sockets need none.
    async fn rule(&self, listen: &ListenAddress) -> Result<Rule, CommandError> {
        let is_exposed =
            listen.tcp().is_some_and(|address| !address.ip().to_canonical().is_loopback());
        let wrong = |what: &str| Err(CommandError::Usage(format!("--listen {listen}: {what}")));
        let exposed = "an address other than loopback needs --tls-cert-file and --tls-private-key-file, and \
                       --token-file or --authentication-kubeconfig";
        match (self.certificate.source().is_some(), listen) {
            (false, _) if is_exposed => return wrong(exposed),
            (true, ListenAddress::Tcp(_)) | (false, _) => {}
            (true, _) => return wrong("a socket is not encrypted: remove --tls-cert-file"),
        }
        if let Some(file) = &self.token_file {
            return TokenFile::open(file).map(Rule::Token);
        }
        if !is_exposed && !self.reviewers.is_given() {
            return Ok(Rule::Anyone);
        }
        match self.reviewers.connect().await? {
            [Some(authentication), authorization] => {
                let reviews = BearerReviews::new(authentication, authorization);
                reviews.map(|reviews| Rule::Reviewed(Box::new(reviews))).map_err(live)
            }
            [None, _] if is_exposed => wrong(exposed),
            [None, _] => wrong("add --authentication-kubeconfig to --authorization-kubeconfig"),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let Arguments { from, replayed, listen, refresh, config, seed, godel, log, admission } =
        arguments;
    if *refresh < Duration::from_secs(1) {
        return Err(CommandError::Usage("--refresh: pass at least 1s".to_owned()));
    }
    log_to_stderr(*log);
    let runtime = runtime()?;
    let rule = runtime.block_on(admission.rule(listen))?;
    let certificate = admission.certificate.source();
    let access = Access::new(rule, listen.tcp().map(|to| to.port()), certificate.is_some());
    let access = Arc::new(access);
    let config = config.source().read()?;
    // An invalid configuration is an error of the start, not of each question.
    config.policies(&Handle::default(), Arc::new(DryRunBackend))?;
    let rules = Rules { config: config.into(), godel: godel.clone().into(), seed: *seed };
    let source = runtime.block_on(Source::open(from, replayed, *refresh, &rules))?;
    // Before the reading, so that a change during it is noticed.
    let (stamp, wait) = (source.stamp().ok().flatten(), source.changes(*refresh));
    let mut readings = source.readings();
    // Nothing is equal to the first reading.
    let Some((first, input)) = source.read(1, &mut readings, &rules)? else {
        let what =
            "the files have changed while they were read: start again when they are complete";
        return Err(CommandError::Usage(what.to_owned()));
    };
    let [nodes, pods, pending] = first.counts();
    let (nodes, pods) = (count(nodes, "node"), count(pods, "pod"));
    let name = source.name();
    let app = App::new(rules.clone(), &source, first, input);
    let ended = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let routes = api::routes(app.clone(), access.clone());
        let (scheme, served) = match (&certificate, listen.tcp()) {
            (Some(certificate), Some(address)) => {
                let served = Served::encrypted(address, certificate, routes).await;
                let remedy = "choose another --listen";
                ("https", served.map_err(|error| not_secured(&error, remedy))?)
            }
            _ => {
                let served = Served::routes(listen.clone(), routes).await;
                ("http", served.map_err(|error| not_served("--listen", listen, &error))?)
            }
        };
        let address = match served.address() {
            ListenAddress::Tcp(address) => format!("{scheme}://{address}/"),
            other => other.to_string(),
        };
        print(&format!("{address} shows {name}: {nodes}, {pods}, {pending} pending"))?;
        tokio::spawn(access.follow());
        tokio::spawn(expire(app.clone()));
        if let Some(wait) = wait {
            tokio::spawn(follow(app, Followed { source, stamp, readings }, wait, rules));
        }
        signals.next().await;
        drop(served);
        Ok(ExitCode::SUCCESS)
    });
    // Computations may still run.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// Frees sessions that have ended and old readings, although nobody asks.
async fn expire(app: Arc<App>) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        app.sessions.len();
        app.history.expire(jiff::Timestamp::now());
    }
}

/// A source, and the state of its last reading.
struct Followed {
    source: Source,
    /// The files that were read last.
    stamp: Option<source::Stamp>,
    readings: Readings,
}

/// Reads the cluster again whenever it has changed.
async fn follow(app: Arc<App>, mut followed: Followed, mut wait: source::Wait, rules: Rules) {
    while wait.wait().await {
        let (shown, rules) = (app.clone(), rules.clone());
        let source = followed.source.clone();
        let look = tokio::task::spawn_blocking(move || {
            followed.look(&shown, &rules);
            followed
        });
        followed = look.await.unwrap_or_else(|_| {
            let what = "the cluster was not read again: report the server's log as a bug";
            app.report(Some(what.to_owned()));
            // The next reading has an engine of its own.
            Followed { readings: source.readings(), source, stamp: None }
        });
    }
    app.report(Some("the cluster is no longer followed: restart the server".to_owned()));
}

impl Followed {
    /// Shows a newer reading, and why it may not be the newest state.
    fn look(&mut self, app: &App, rules: &Rules) {
        let stamp = match self.source.stamp() {
            Ok(stamp) => stamp,
            Err(error) => {
                // The files are read when they are back.
                self.stamp = None;
                return app.report(Some(error.text()));
            }
        };
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        let generation = app.generation() + 1;
        let read = self.source.read(generation, &mut self.readings, rules).map(|read| {
            if let Some((reading, input)) = read {
                tracing::debug!(generation, "the cluster was read");
                app.show(reading, input);
            }
        });
        // A file may be written at this moment. The newest good reading stays, and the file is read again.
        let failure = read.err().map(|error| error.text());
        if failure.is_some() {
            self.stamp = None;
        }
        app.report(failure.or_else(|| self.source.failure()));
        self.readings.reclaim();
        if app.history.relieve(Instant::now()) {
            self.readings.reclaim();
        }
    }
}
