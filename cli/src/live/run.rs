//! `portolan run`: the scheduler of a cluster.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::string::FromUtf8Error;
use std::sync::Arc;
use std::time::Duration;

use portolan_k8s::config::{Configuration, ProcessSettings};
use portolan_kube::api::Limits;
use portolan_kube::process::{Election, LiveConfig, LiveScheduler, ShardHolder};
use portolan_kube::write::Fence;
use tokio::time::sleep;

use crate::error::CommandError;
use crate::output;
use crate::{input, terminal};

use super::log::log_to_stderr;
use super::serving::Serving;
use super::settings::{Compatible, Leading};
use super::{live, runtime, settings, use_small_pages};
use crate::server::Server;

/// Schedule the pods of a Kubernetes cluster.
///
/// Replaces kube-scheduler: reads its configuration, takes part in its leader election, and writes the same bindings,
/// conditions and events. Exits with status 1 if it loses the lease. On SIGTERM or SIGINT, finishes the bindings in
/// flight and releases the lease. With --shards, several replicas schedule at once.
#[derive(clap::Args)]
#[command(version)]
pub(crate) struct Arguments {
    /// KubeSchedulerConfiguration (default: kube-scheduler's default profile).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    server: Server,
    /// Write the configuration, completed by defaults and flags, to a file (JSON, which is valid YAML), and exit.
    #[arg(long, value_name = "FILE")]
    write_config_to: Option<PathBuf>,
    /// Lowest severity that is logged to standard error: error, warn, info, debug or trace (default: info).
    #[arg(long, value_name = "LEVEL")]
    log: Option<tracing::Level>,
    /// Verbosity as in kube-scheduler: from 4 on, debug messages are logged, from 6 on, all; --log takes precedence.
    #[arg(short, long, value_name = "NUMBER", default_value_t = 0)]
    v: u8,
    #[command(flatten)]
    serving: Serving,
    #[command(flatten)]
    leading: Leading,
    #[command(flatten)]
    compatible: Compatible,
}

/// Reads a duration as Go writes it, such as `15s` or `1m30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text}: write a duration such as 15s or 1m30s");
    let read: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(read).map_err(|_| wrong())
}

/// How long the bindings in flight may take after a signal.
pub(super) const GRACE: Duration = Duration::from_secs(20);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let configuration = configuration(arguments.config.as_deref())?;
    let file = arguments.config.as_ref().zip(configuration.as_deref());
    let resolved = settings::resolve(file, &arguments.leading, &arguments.compatible)?;
    for note in &resolved.notes {
        terminal::note(note);
    }
    let settings = resolved.settings;
    if let Some(to) = &arguments.write_config_to {
        if resolved.shards.is_some() {
            terminal::note(
                "--shards cannot be written to a configuration file: pass it together with --config",
            );
        }
        let text = configuration.as_deref().unwrap_or(Configuration::DEFAULT);
        return write_configuration(&settings, text, to);
    }
    let mut config = LiveConfig::default();
    config.shards = resolved.shards;
    config.configuration = configuration;
    config.writes.host = host();
    let verbose = match arguments.v {
        0..4 => tracing::Level::INFO,
        4..6 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    log_to_stderr(arguments.log.unwrap_or(verbose));
    use_small_pages();
    runtime()?.block_on(schedule(arguments, &settings, config))
}

/// Reads the file of a configuration.
pub(super) fn configuration(file: Option<&Path>) -> Result<Option<Arc<str>>, CommandError> {
    let Some(file) = file else { return Ok(None) };
    let text = String::from_utf8(input::read(file)?);
    let invalid =
        |error: FromUtf8Error| CommandError::File { file: file.into(), what: error.to_string() };
    Ok(Some(text.map_err(invalid)?.into()))
}

fn write_configuration(
    settings: &ProcessSettings,
    text: &str,
    to: &Path,
) -> Result<ExitCode, CommandError> {
    let all = settings.completed(text).map_err(live)?;
    output::write(to, format!("{all:#}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the limits of a client. Requests are not limited unless the configuration sets `qps`: the API server limits
/// its clients itself.
fn limits(settings: &ProcessSettings) -> Limits {
    let client = &settings.client_connection;
    let mut limits = Limits::default();
    limits.qps = client.qps.filter(|qps| *qps > 0.0);
    // kube-scheduler's default.
    limits.burst = client.burst.and_then(NonZeroU32::new).unwrap_or(BURST);
    limits
}

const BURST: NonZeroU32 = NonZeroU32::new(100).expect("not 0");

/// The time between two tries to bring the mirror up to date with the previous leader's bindings.
const RETRY: Duration = Duration::from_secs(1);

async fn schedule(
    arguments: &Arguments,
    settings: &ProcessSettings,
    mut config: LiveConfig,
) -> Result<ExitCode, CommandError> {
    let mut connection = arguments.server.connection();
    let named = settings.client_connection.kubeconfig.as_ref();
    connection.kubeconfig = connection.kubeconfig.or_else(|| named.map(PathBuf::from));
    let api = connection.open(limits(settings)).await.map_err(live)?;
    let server = api.server().to_owned();
    // Each has a limit of its own, as in kube-scheduler, so that neither bindings nor renewals wait behind events.
    config.writes.events = Some(api.with_limits(limits(settings)));
    let fence = Fence::closed();
    let leases = api.with_limits(Limits::default());
    let election = settings::election(settings, &config.writes.host);
    let has_shards = config.shards.is_some();
    let is_delayed = settings.delay_cache_until_active && election.is_some() && !has_shards;
    config.mirror.is_delayed = is_delayed;
    let mut scheduler = LiveScheduler::start(api, fence.clone(), config).map_err(live)?;
    let mut role = match election {
        Some(config) if has_shards => {
            Role::Shards(ShardHolder::new(&leases, &config, &scheduler).map_err(live)?)
        }
        Some(config) => {
            Role::Leader(Box::new(Election::new(leases, config, fence.clone()).map_err(live)?))
        }
        None => Role::Alone,
    };
    let mut signals = Signals::new()?;
    let _served = arguments.serving.start(&scheduler).await?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %server, "started");
    let elected = async {
        if !is_delayed {
            scheduler.mirror().synced().await.map_err(live)?;
        }
        match &mut role {
            Role::Leader(election) => {
                election.acquire().await;
                scheduler.writes().events().record(election.became_leader());
            }
            Role::Alone => drop(fence.open()),
            Role::Shards(_) => {}
        }
        Ok(())
    };
    tokio::select! {
        biased;
        () = scheduler.failed() => return failed(scheduler, role).await,
        found = elected => found?,
        () = signals.next() => return end(scheduler, role).await,
    }
    // The lease has to be renewed while the mirror becomes current. `failed` is polled first: `current` also fails
    // when the mirror ends, and would keep the lease.
    tokio::select! {
        biased;
        () = scheduler.failed() => return failed(scheduler, role).await,
        found = current(&scheduler, has_shards) => found?,
        () = role.renew() => return Ok(lost()),
        () = signals.next() => return end(scheduler, role).await,
    }
    if let Err(error) = scheduler.begin() {
        tracing::error!(%error, "no thread");
        return failed(scheduler, role).await;
    }
    tracing::info!("scheduling");
    tokio::select! {
        () = role.keep(&scheduler) => return Ok(lost()),
        () = scheduler.failed() => return failed(scheduler, role).await,
        () = signals.next() => {}
    }
    tracing::info!("stopping: finishing the bindings in flight");
    end(scheduler, role).await
}

/// Resumes the mirror, and waits until it is current. With shards, the holder refreshes the pods of each shard.
async fn current(scheduler: &LiveScheduler, has_shards: bool) -> Result<(), CommandError> {
    scheduler.mirror().resume();
    scheduler.mirror().synced().await.map_err(live)?;
    if has_shards {
        return Ok(());
    }
    while let Err(error) = scheduler.mirror().refresh().await {
        tracing::warn!(%error, "scheduling begins when the pods are up to date");
        sleep(RETRY).await;
    }
    Ok(())
}

/// The source of this process's permission to write.
enum Role {
    /// No permission is needed.
    Alone,
    /// The process leads, or is a standby.
    Leader(Box<Election>),
    /// The process is one of several that schedule at once.
    Shards(ShardHolder),
}

impl Role {
    /// Keeps the lease, or this process's part of the shards. Returns when a lease is lost.
    async fn keep(&mut self, scheduler: &LiveScheduler) {
        match self {
            Role::Shards(holder) => holder.keep(scheduler).await,
            _ => self.renew().await,
        }
    }

    /// Renews the held leases, and takes none. Returns when a lease is lost.
    async fn renew(&mut self) {
        match self {
            Role::Alone => std::future::pending().await,
            Role::Leader(election) => election.keep().await,
            Role::Shards(holder) => holder.renew().await,
        }
    }

    async fn release(&mut self) {
        match self {
            Role::Alone => {}
            // If this fails, the lease expires by itself.
            Role::Leader(election) => drop(election.release().await),
            Role::Shards(holder) => holder.release().await,
        }
    }
}

fn lost() -> ExitCode {
    tracing::error!("the lease was lost: another scheduler may run");
    ExitCode::FAILURE
}

/// Releases the lease, since this process no longer schedules.
async fn failed(scheduler: LiveScheduler, role: Role) -> Result<ExitCode, CommandError> {
    tracing::error!("the scheduler has failed");
    end(scheduler, role).await?;
    Ok(ExitCode::FAILURE)
}

/// Finishes the bindings in flight, and releases the lease. Fails if the lease is lost meanwhile.
async fn end(scheduler: LiveScheduler, mut role: Role) -> Result<ExitCode, CommandError> {
    if !scheduler.writes().fence().may_write() {
        // Nothing was written, and the election of a standby would not end.
        scheduler.stop(Duration::ZERO).await;
        return Ok(ExitCode::SUCCESS);
    }
    if let Role::Leader(election) = &role {
        scheduler.writes().events().record(election.stopped_leading());
    }
    let stopped = scheduler.stop(GRACE);
    tokio::pin!(stopped);
    // Bindings in flight still need the lease.
    let is_in_time = tokio::select! {
        is_in_time = &mut stopped => is_in_time,
        () = role.renew() => {
            // The fence is closed, so nothing more is written, and the other leases are not released.
            stopped.await;
            return Ok(lost());
        }
    };
    match is_in_time {
        true => role.release().await,
        // The next holder must not begin before the binding is applied. The lease expires by itself.
        false => tracing::warn!("the lease is not released: a binding may still be applied"),
    }
    Ok(ExitCode::SUCCESS)
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
pub(crate) struct Signals {
    #[cfg(unix)]
    term: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Signals, CommandError> {
        #[cfg(unix)]
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            #[cfg(unix)]
            term: signal(SignalKind::terminate()).map_err(live)?,
            #[cfg(unix)]
            interrupt: signal(SignalKind::interrupt()).map_err(live)?,
        })
    }

    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            // The signal cannot be received, so this never completes.
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_limited_only_if_the_configuration_names_a_rate() {
        let limits = |fields: &str| {
            let text = format!("{}clientConnection: {{{fields}}}\n", Configuration::DEFAULT);
            let limits = limits(&ProcessSettings::read(&text).expect("valid"));
            (limits.qps, limits.burst.get())
        };
        assert_eq!(limits(""), (None, 100));
        assert_eq!(limits("burst: 7"), (None, 7));
        assert_eq!(limits("qps: 50"), (Some(50.0), 100));
        assert_eq!(limits("qps: -1, burst: 0"), (None, 100));
    }
}
