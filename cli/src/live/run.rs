//! `portolan run`: the scheduler of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use portolan_kube::api::Limits;
use portolan_kube::process::{Election, ElectionConfig, LiveConfig, LiveScheduler, Served};
use portolan_kube::write::Fence;

use crate::error::Failure;
use crate::input;

use super::fetch::Server;
use super::{live, runtime};

/// Schedule the pods of a Kubernetes cluster.
///
/// Takes kube-scheduler's place: reads its configuration, takes part in its leader election, and writes the same
/// bindings, conditions and events. Ends with exit status 1 if it loses the lease. SIGTERM and SIGINT finish the
/// bindings in flight and give the lease back.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// KubeSchedulerConfiguration (default: kube-scheduler's default profile).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    server: Server,
    /// Address that serves /healthz, /livez, /readyz, /metrics and /configz without encryption or authentication;
    /// `none` serves nothing.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10259")]
    serve: String,
    /// Schedule only while holding a lease.
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = clap::ArgAction::Set
    )]
    leader_elect: bool,
    /// Namespace of the lease.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_elect_resource_namespace: String,
    /// Name of the lease.
    #[arg(long, value_name = "NAME", default_value = "kube-scheduler")]
    leader_elect_resource_name: String,
    /// Time that a candidate waits after it last saw the lease change.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    leader_elect_lease_duration: Duration,
    /// Time that the leader tries to renew the lease.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    leader_elect_renew_deadline: Duration,
    /// Time between two tries.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    leader_elect_retry_period: Duration,
    /// Least severe messages that are logged to the standard error: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: tracing::Level,
}

/// Reads a duration as Go writes it, such as `15s` or `1m30s`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text}: write a duration such as 15s or 1m30s");
    let read: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(read).map_err(|_| wrong())
}

/// How long the bindings in flight may take after a signal.
pub(super) const GRACE: Duration = Duration::from_secs(20);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut config = LiveConfig::default();
    config.configuration = configuration(arguments.config.as_ref())?;
    config.writes.host = host();
    let log = tracing_subscriber::fmt().with_max_level(arguments.log);
    // Only a subscriber that is already set is an error.
    let _ = log.with_writer(std::io::stderr).try_init();
    runtime()?.block_on(schedule(arguments, config))
}

/// Reads the text of a configuration.
pub(super) fn configuration(file: Option<&PathBuf>) -> Result<Option<Arc<str>>, Failure> {
    let Some(file) = file else { return Ok(None) };
    let text = String::from_utf8(input::read(file)?);
    let text =
        text.map_err(|error| Failure::File { file: file.clone(), what: error.to_string() })?;
    Ok(Some(text.into()))
}

async fn schedule(arguments: &Arguments, config: LiveConfig) -> Result<ExitCode, Failure> {
    let api = arguments.server.connection().open(Limits::default()).await.map_err(live)?;
    let fence = Fence::closed();
    let mut election = match arguments.leader_elect {
        true => Some(
            Election::new(api.clone(), election(arguments, &config.writes.host), fence.clone())
                .map_err(live)?,
        ),
        false => None,
    };
    let mut scheduler = LiveScheduler::start(api, fence.clone(), config).map_err(live)?;
    let mut signals = Signals::new()?;
    let _served = match address(&arguments.serve)? {
        Some(address) => Some(Served::start(address, &scheduler).await.map_err(|error| {
            Failure::Usage(format!("--serve {address}: {error}: choose another address"))
        })?),
        None => None,
    };
    let ready = async {
        scheduler.mirror().synced().await.map_err(live)?;
        match &mut election {
            Some(election) => election.acquire().await,
            None => drop(fence.open()),
        }
        scheduler.mirror().refresh().await.map_err(live)
    };
    tokio::select! {
        found = ready => drop(found?),
        () = signals.next() => {
            if let Some(election) = &mut election {
                // The lease expires by itself.
                let _ = election.release().await;
            }
            scheduler.stop(GRACE).await;
            return Ok(ExitCode::SUCCESS);
        }
    }
    scheduler.begin().map_err(live)?;
    tracing::info!("scheduling");
    let lost = async {
        match &mut election {
            Some(election) => election.keep().await,
            None => std::future::pending().await,
        }
    };
    let is_lost = tokio::select! {
        () = lost => true,
        () = signals.next() => false,
    };
    if is_lost {
        tracing::error!("the lease was lost: another scheduler may run");
        return Ok(ExitCode::FAILURE);
    }
    tracing::info!("stopping: finishing the bindings in flight");
    let stopped = scheduler.stop(GRACE);
    match &mut election {
        None => stopped.await,
        Some(election) => {
            tokio::pin!(stopped);
            // Bindings in flight still need the lease.
            tokio::select! {
                () = &mut stopped => {}
                () = election.keep() => stopped.await,
            }
            // If this fails, the lease expires by itself.
            let _ = election.release().await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn election(arguments: &Arguments, host: &str) -> ElectionConfig {
    let mut config = ElectionConfig::new(format!("{host}_{:032x}", fastrand::u128(..)));
    config.namespace = arguments.leader_elect_resource_namespace.clone();
    config.name = arguments.leader_elect_resource_name.clone();
    config.lease_duration = arguments.leader_elect_lease_duration;
    config.renew_deadline = arguments.leader_elect_renew_deadline;
    config.retry_period = arguments.leader_elect_retry_period;
    config
}

fn address(text: &str) -> Result<Option<SocketAddr>, Failure> {
    match text {
        "none" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| {
            let what = format!("--serve {text}: write an address such as 127.0.0.1:10259, or none");
            Failure::Usage(what)
        }),
    }
}

/// The name of this host, as events and the lease report it.
pub(super) fn host() -> String {
    let known = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let read = || std::fs::read_to_string("/etc/hostname").ok();
    let name = known.or_else(read).unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

/// The signals that end the process.
pub(super) struct Signals {
    #[cfg(unix)]
    term: tokio::signal::unix::Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Signals, Failure> {
        Ok(Signals {
            #[cfg(unix)]
            term: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
                .map_err(live)?,
        })
    }

    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.term.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}
