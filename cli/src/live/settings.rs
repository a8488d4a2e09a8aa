//! The settings of `portolan run`: those of its configuration, and the flags that override them.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use portolan::plugin::ShardSet;
use portolan_k8s::config::ProcessSettings;
use portolan_kube::process::{ElectionConfig, checked_settings};

use super::gates;
use super::run::duration;
use crate::error::CommandError;

#[derive(Default, clap::Args)]
#[command(next_help_heading = "Leader election")]
pub(super) struct Leading {
    /// Schedule only while holding a lease (default: true).
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    leader_elect: Option<bool>,
    /// Namespace of the lease (default: kube-system).
    #[arg(long, value_name = "NAMESPACE")]
    leader_elect_resource_namespace: Option<String>,
    /// Name of the lease (default: kube-scheduler).
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
    /// Kind of the lock; only `leases` is supported.
    #[arg(long, value_name = "KIND", value_parser = ["leases"])]
    leader_elect_resource_lock: Option<String>,
    /// Time that a candidate waits after it last saw the lease change (default: 15s).
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_lease_duration: Option<Duration>,
    /// Time for which the leader tries to renew the lease before it gives up (default: 10s).
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_renew_deadline: Option<Duration>,
    /// Time between two tries (default: 2s).
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_retry_period: Option<Duration>,
    /// Shards of nodes and pods, from 1 to 64, the same for all replicas: with more than 1, all replicas schedule at
    /// once, each for the shards whose leases it holds (default: 1).
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: Option<u32>,
}

#[derive(Default, clap::Args)]
#[command(next_help_heading = "For compatibility with kube-scheduler")]
pub(super) struct Compatible {
    /// Feature gates as NAME=BOOL, separated by commas. Each must have the value that portolan implements.
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    feature_gates: Vec<String>,
    /// Requests per second, without --config (default: no limit).
    #[arg(long, value_name = "NUMBER")]
    kube_api_qps: Option<f64>,
    /// Requests in a burst after a pause, without --config (default: 100).
    #[arg(long, value_name = "NUMBER")]
    kube_api_burst: Option<u32>,
    /// Format of requests, without --config: JSON in any case.
    #[arg(long, value_name = "TYPE", hide = true)]
    kube_api_content_type: Option<String>,
    /// Profiling is not supported, so only `false` has an effect.
    #[arg(
        long,
        alias = "contention-profiling",
        hide = true,
        value_name = "BOOL",
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    profiling: Vec<bool>,
}

/// The settings, and notes about them for the user.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) settings: ProcessSettings,
    /// The set of shards, empty so far, if there is more than one.
    pub(super) shards: Option<ShardSet>,
    pub(super) notes: Vec<String>,
}

/// Reads the settings of a configuration, or the defaults, and applies the flags.
pub(super) fn resolve(
    file: Option<(&PathBuf, &str)>,
    leading: &Leading,
    compatible: &Compatible,
) -> Result<Resolved, CommandError> {
    gates::check(&compatible.feature_gates)?;
    let mut settings = match file {
        // Checks the profiles, too: the scheduler that reads them does not know the file.
        Some((file, text)) => checked_settings(text).map_err(|error| {
            let (file, what) = (file.clone(), error.what().to_owned());
            match error.line() {
                0 => CommandError::File { file, what },
                line => CommandError::Line { file, line, what },
            }
        })?,
        None => ProcessSettings::default(),
    };
    let mut notes = std::mem::take(&mut settings.notes);
    let client = &mut settings.client_connection;
    let is_limited = compatible.kube_api_qps.is_some() || compatible.kube_api_burst.is_some();
    match file {
        // As in kube-scheduler.
        Some(_) if is_limited => {
            notes.push("--kube-api-qps and --kube-api-burst are ignored: --config is given".into());
        }
        Some(_) => {}
        None => {
            client.qps = compatible.kube_api_qps.filter(|qps| *qps != 0.0);
            client.burst = compatible.kube_api_burst.filter(|burst| *burst > 0);
        }
    }
    let is_json = |format: &String| format == "application/json";
    let format = client.content_type.as_ref().or(compatible.kube_api_content_type.as_ref());
    if let Some(format) = format.filter(|format| !is_json(format)) {
        notes.push(format!("contentType {format} is ignored: requests use application/json"));
    }
    if settings.enable_profiling == Some(true) || compatible.profiling.contains(&true) {
        notes.push("enableProfiling is ignored: profiling is not supported".into());
    }
    let found = &mut settings.leader_election;
    overrule(&mut found.leader_elect, leading.leader_elect);
    overrule(&mut found.lease_duration, leading.leader_elect_lease_duration);
    overrule(&mut found.renew_deadline, leading.leader_elect_renew_deadline);
    overrule(&mut found.retry_period, leading.leader_elect_retry_period);
    overrule(&mut found.resource_lock, leading.leader_elect_resource_lock.clone());
    overrule(&mut found.resource_name, leading.leader_elect_resource_name.clone());
    overrule(&mut found.resource_namespace, leading.leader_elect_resource_namespace.clone());
    let count = leading.shards.and_then(NonZeroU32::new).filter(|count| count.get() > 1);
    let shards = count.and_then(ShardSet::new);
    if let Some(shards) = &shards {
        let count = shards.count();
        if settings.leader_election.leader_elect == Some(false) {
            let remedy = "remove --leader-elect=false, or leaderElect: false in the configuration";
            return Err(CommandError::Usage(format!("--shards {count} needs leases: {remedy}")));
        }
        if settings.delay_cache_until_active {
            notes.push(
                "delayCacheUntilActive is ignored: with --shards, all replicas are active".into(),
            );
        }
    }
    Ok(Resolved { settings, shards, notes })
}

fn overrule<T>(setting: &mut Option<T>, flag: Option<T>) {
    if flag.is_some() {
        *setting = flag;
    }
}

/// Returns the configuration of the leader election, or `None` if it is turned off.
pub(super) fn election(settings: &ProcessSettings, host: &str) -> Option<ElectionConfig> {
    let given = &settings.leader_election;
    if given.leader_elect == Some(false) {
        return None;
    }
    let mut config = ElectionConfig::new(format!("{host}_{:032x}", fastrand::u128(..)));
    set(&mut config.lease_duration, given.lease_duration.as_ref());
    set(&mut config.renew_deadline, given.renew_deadline.as_ref());
    set(&mut config.retry_period, given.retry_period.as_ref());
    set(&mut config.name, given.resource_name.as_ref());
    set(&mut config.namespace, given.resource_namespace.as_ref());
    Some(config)
}

/// Replaces a default by the value that is given, if one is.
pub(super) fn set<T: Clone>(default: &mut T, given: Option<&T>) {
    if let Some(given) = given {
        default.clone_from(given);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_k8s::config::Configuration;

    fn resolved(text: &str, leading: &Leading, compatible: &Compatible) -> Resolved {
        let (text, file) = (format!("{}{text}", Configuration::DEFAULT), PathBuf::from("c.yaml"));
        resolve(Some((&file, &text)), leading, compatible).expect("valid")
    }

    #[test]
    fn an_invalid_profile_is_refused_with_its_file_and_line() {
        let profile =
            "profiles:\n- schedulerName: a\n  pluginConfig:\n  - name: NodeResourcesFits\n";
        let (text, file) =
            (format!("{}{profile}", Configuration::DEFAULT), PathBuf::from("c.yaml"));
        let read = resolve(Some((&file, &text)), &Leading::default(), &Compatible::default());
        let error = read.expect_err("no such plugin").to_string();
        assert!(error.starts_with("c.yaml:6: ") && error.contains("NodeResourcesFits"), "{error}");
    }

    #[test]
    fn flags_of_leader_election_override_the_configuration() {
        let text = "leaderElection: {leaseDuration: 30s, renewDeadline: 20s, resourceName: a}\n";
        let flags = Leading {
            leader_elect_resource_name: Some("b".to_owned()),
            leader_elect_renew_deadline: Some(Duration::from_secs(15)),
            ..Leading::default()
        };
        let found = resolved(text, &flags, &Compatible::default());
        let config = election(&found.settings, "host").expect("an election");
        let seconds = |duration: Duration| duration.as_secs();
        assert_eq!((seconds(config.lease_duration), seconds(config.renew_deadline)), (30, 15));
        assert_eq!((&*config.name, &*config.namespace), ("b", "kube-system"));
        assert!(config.identity.starts_with("host_") && found.notes.is_empty());

        let off = resolved("leaderElection: {leaderElect: false}", &flags, &Compatible::default());
        assert_eq!(election(&off.settings, "host"), None);
        let on = Leading { leader_elect: Some(true), ..Leading::default() };
        let on = resolved("leaderElection: {leaderElect: false}", &on, &Compatible::default());
        assert!(election(&on.settings, "host").is_some());
    }

    #[test]
    fn shards_need_leases() {
        let with = |shards| Leading { shards: Some(shards), ..Leading::default() };
        let found = |leading: &Leading| resolved("", leading, &Compatible::default()).shards;
        assert_eq!(found(&Leading::default()), None);
        assert_eq!(found(&with(1)), None);
        let set = found(&with(8)).expect("shards");
        assert_eq!((set.count(), set.held().count()), (8, 0));
        let off = Leading { leader_elect: Some(false), ..with(8) };
        let error = resolve(None, &off, &Compatible::default()).expect_err("no leases");
        assert!(error.to_string().contains("--shards 8 needs leases"), "{error}");
    }

    #[test]
    fn deprecated_flags_count_without_a_configuration_and_what_is_ignored_is_said() {
        let flags = Compatible {
            kube_api_qps: Some(20.0),
            kube_api_burst: Some(0),
            profiling: vec![true],
            ..Compatible::default()
        };
        let found = resolve(None, &Leading::default(), &flags).expect("valid");
        let client = found.settings.client_connection;
        assert_eq!((client.qps, client.burst), (Some(20.0), None));
        assert_eq!(found.notes.len(), 1, "{:?}", found.notes);

        let text = "clientConnection: {contentType: application/vnd.kubernetes.protobuf}\n";
        let found = resolved(text, &Leading::default(), &flags);
        assert_eq!(found.settings.client_connection.qps, None);
        for what in ["--kube-api-qps", "protobuf", "profiling"] {
            assert!(found.notes.iter().any(|note| note.contains(what)), "{:?}", found.notes);
        }
    }
}
