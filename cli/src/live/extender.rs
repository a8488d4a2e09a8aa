//! `portolan extender`: portolan's plugins as an extender of another scheduler.

use std::path::PathBuf;
use std::process::ExitCode;

use portolan_kube::api::Limits;
use portolan_kube::extender::{ExtenderOptions, extender_routes};
use portolan_kube::process::{ListenAddress, LiveConfig, LiveScheduler, Served};
use portolan_kube::write::Fence;

use crate::error::CommandError;

use super::log::log_to_stderr;
use super::run::{GRACE, Signals, configuration, host};
use super::serving::not_served;
use super::{live, runtime, use_small_pages};
use crate::server::Server;

/// Answer a scheduler's questions about pods and nodes, as its extender.
///
/// Mirrors the cluster and serves /filter, /prioritize, /preempt and /bind of k8s.io/kube-scheduler/extender/v1. Nodes
/// are evaluated by the plugins of the pod's profile on the mirror's newest version. Does not schedule pods itself.
/// Ends on SIGTERM or SIGINT.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// KubeSchedulerConfiguration (default: kube-scheduler's default profile).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    server: Server,
    /// Listen address for the verbs, and for /healthz, /livez, /readyz, /metrics and /configz, without encryption or
    /// authentication. On a loopback address, the header Host of every request must name the local host. unix:PATH is a
    /// Unix socket for clients of the same user.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10261")]
    serve: ListenAddress,
    /// Serve the bind verb. Any client that can reach the address can then bind any pod, so it must be a loopback
    /// address or a Unix socket.
    #[arg(long)]
    allow_bind: bool,
    /// Serve the bind verb on any address, without encryption or authentication.
    #[arg(long, requires = "allow_bind")]
    insecure_bind: bool,
    /// Lowest severity that is logged to standard error: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: tracing::Level,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    arguments.check()?;
    let mut config = LiveConfig::default();
    config.configuration = configuration(arguments.config.as_deref())?;
    config.writes.host = host();
    log_to_stderr(arguments.log);
    use_small_pages();
    runtime()?.block_on(answer(arguments, config))
}

impl Arguments {
    /// Refuses to serve the bind verb to other hosts, unless that is requested.
    fn check(&self) -> Result<(), CommandError> {
        if !self.allow_bind || self.insecure_bind || is_local(&self.serve) {
            return Ok(());
        }
        let why = "other hosts could bind pods: serve a Unix socket, or a loopback address behind a proxy that \
                   authenticates its clients, or add --insecure-bind";
        Err(CommandError::Usage(format!("--serve {} --allow-bind: {why}", self.serve)))
    }
}

fn is_local(address: &ListenAddress) -> bool {
    // The mode of a socket's file admits one user.
    address.tcp().is_none_or(|address| address.ip().to_canonical().is_loopback())
}

async fn answer(arguments: &Arguments, config: LiveConfig) -> Result<ExitCode, CommandError> {
    let api = arguments.server.connection().open(Limits::default()).await.map_err(live)?;
    // Only requested bindings are written, so no lease is needed.
    let fence = if arguments.allow_bind { Fence::opened() } else { Fence::closed() };
    let scheduler = LiveScheduler::start(api, fence, config).map_err(live)?;
    let mut options = ExtenderOptions::default();
    options.allow_bind = arguments.allow_bind;
    let routes = extender_routes(&scheduler, options).map_err(live)?;
    let mut signals = Signals::new()?;
    let address = &arguments.serve;
    let served = Served::start_with(address.clone(), &scheduler, routes).await;
    let served = served.map_err(|error| not_served("--serve", address, &error))?;
    tracing::info!(address = %served.address(), "answering");
    signals.next().await;
    drop(served);
    scheduler.stop(GRACE).await;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn pods_are_bound_for_other_hosts_only_on_request() {
        let outcome = |flags: &[&str]| {
            let program = Program::try_parse_from(["portolan"].iter().chain(flags)).expect("valid");
            program.arguments.check().map_err(|failure| failure.text())
        };
        for local in
            ["127.0.0.1:1", "127.0.0.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:/run/s"]
        {
            assert_eq!(outcome(&["--serve", local, "--allow-bind"]), Ok(()));
        }
        for other in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[::ffff:10.0.0.1]:1"] {
            let refused = outcome(&["--serve", other, "--allow-bind"]).expect_err("refused");
            assert!(refused.ends_with("or add --insecure-bind"), "{refused}");
            assert_eq!(outcome(&["--serve", other]), Ok(()));
            assert_eq!(outcome(&["--serve", other, "--allow-bind", "--insecure-bind"]), Ok(()));
        }
        assert!(Program::try_parse_from(["portolan", "--insecure-bind"]).is_err());
    }
}
