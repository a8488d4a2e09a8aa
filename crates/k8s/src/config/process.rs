//! The fields of a `KubeSchedulerConfiguration` that concern the process and not its decisions.
//!
//! A field that is absent, or has its zero value, is `None`: the process applies kube-scheduler's default, or its own.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::duration::go_duration;
use super::{ConfigError, V1, WireConfiguration, at, document, parse};
use crate::yaml::At;

/// The settings of a scheduler's process.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ProcessSettings {
    /// The field `clientConnection`.
    pub client_connection: ClientConnection,
    /// The field `leaderElection`.
    pub leader_election: LeaderElection,
    /// The field `parallelism`, at least 1.
    pub parallelism: Option<u32>,
    /// The field `delayCacheUntilActive`: a standby reads nothing from the cluster.
    pub delay_cache_until_active: bool,
    /// The field `enableProfiling`.
    pub enable_profiling: Option<bool>,
    /// What the reader should know: an outdated version of the format.
    pub notes: Vec<String>,
}

/// How the process connects to the API server (`clientConnection`).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ClientConnection {
    /// The kubeconfig file.
    pub kubeconfig: Option<String>,
    /// Requests a second. Negative for no limit.
    pub qps: Option<f64>,
    /// Requests at once after a pause.
    pub burst: Option<u32>,
    /// The format of requests.
    pub content_type: Option<String>,
}

/// How the process becomes the leader (`leaderElection`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaderElection {
    /// Whether to take part in an election.
    pub leader_elect: Option<bool>,
    /// How long a candidate waits after it last saw the lease change.
    pub lease_duration: Option<Duration>,
    /// How long the leader tries to renew the lease.
    pub renew_deadline: Option<Duration>,
    /// The time between two tries.
    pub retry_period: Option<Duration>,
    /// The kind of the lock, of which only `leases` exists.
    pub resource_lock: Option<String>,
    /// The name of the lease.
    pub resource_name: Option<String>,
    /// The namespace of the lease.
    pub resource_namespace: Option<String>,
}

impl ProcessSettings {
    /// Reads the settings of the process alone, without building the profiles.
    ///
    /// ```
    /// use portolan_k8s::config::ProcessSettings;
    ///
    /// let settings = ProcessSettings::read("
    /// apiVersion: kubescheduler.config.k8s.io/v1
    /// kind: KubeSchedulerConfiguration
    /// clientConnection: {qps: 50, burst: 100}
    /// leaderElection: {leaseDuration: 30s}
    /// ")?;
    /// assert_eq!(settings.client_connection.qps, Some(50.0));
    /// assert_eq!(settings.leader_election.lease_duration.map(|d| d.as_secs()), Some(30));
    /// # Ok::<(), portolan_k8s::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The text is not a configuration, or kube-scheduler would reject these settings. The error has the line.
    pub fn read(text: &str) -> Result<ProcessSettings, ConfigError> {
        let (wire, note) = parse(text)?;
        wire.process(note)
    }

    /// Checks what kube-scheduler checks, with its defaults for absent fields (component-base/config/validation).
    pub(super) fn of(
        wire: &WireConfiguration,
        notes: Vec<String>,
    ) -> Result<ProcessSettings, ConfigError> {
        let parallelism = match &wire.parallelism {
            None => None,
            Some(given) => Some(
                u32::try_from(given.value)
                    .ok()
                    .filter(|n| *n > 0)
                    .ok_or_else(|| at(given, "parallelism must be greater than 0"))?,
            ),
        };
        let client = wire.client_connection.as_ref();
        let burst = match client.and_then(|client| client.value.burst.as_ref()) {
            None => None,
            Some(given) => match u32::try_from(given.value) {
                Ok(burst) => Some(burst).filter(|burst| *burst > 0),
                Err(_) => return Err(at(given, "burst must not be negative")),
            },
        };
        let client_connection = client.map_or_else(ClientConnection::default, |client| {
            let client = &client.value;
            ClientConnection {
                kubeconfig: text(client.kubeconfig.as_ref()),
                qps: client.qps.filter(|qps| *qps != 0.0),
                burst,
                content_type: text(client.content_type.as_ref()),
            }
        });
        let leader_election = match &wire.leader_election {
            None => LeaderElection::default(),
            Some(given) => elect(given)?,
        };
        Ok(ProcessSettings {
            client_connection,
            leader_election,
            parallelism,
            delay_cache_until_active: wire.delay_cache_until_active.unwrap_or(false),
            enable_profiling: wire.enable_profiling,
            notes,
        })
    }

    /// Returns a configuration in which these settings and the defaults of all other settings are written out, as one
    /// object. Profiles are kept as they are given. Without a limit of requests, `qps` is -1.
    ///
    /// # Errors
    ///
    /// The text is not a configuration.
    pub fn completed(&self, text: &str) -> Result<Value, ConfigError> {
        // Reports the line if the text is not a configuration.
        parse(text)?;
        let read: Result<Map<String, Value>, _> = crate::yaml::read(document::find(text)?.origin());
        let mut all = read.map_err(|error| ConfigError::new(0, error.to_string()))?;
        let ClientConnection { kubeconfig, qps, burst, .. } = &self.client_connection;
        let leader = &self.leader_election;
        let duration = |given: Option<Duration>, default| {
            let seconds = given.unwrap_or(Duration::from_secs(default)).as_secs_f64();
            format!("{seconds}s")
        };
        let name = |given: &Option<String>, default: &str| match given {
            Some(name) => name.clone(),
            None => default.to_owned(),
        };
        all.insert("apiVersion".to_owned(), V1.into());
        let set = json!({
            "clientConnection": {
                "kubeconfig": kubeconfig.as_deref().unwrap_or_default(),
                "contentType": "application/json",
                "acceptContentTypes": "",
                "qps": qps.unwrap_or(-1.0),
                "burst": burst.unwrap_or(100),
            },
            "delayCacheUntilActive": self.delay_cache_until_active,
            "enableContentionProfiling": false,
            "enableProfiling": false,
            "leaderElection": {
                "leaderElect": leader.leader_elect.unwrap_or(true),
                "leaseDuration": duration(leader.lease_duration, 15),
                "renewDeadline": duration(leader.renew_deadline, 10),
                "retryPeriod": duration(leader.retry_period, 2),
                "resourceLock": "leases",
                "resourceName": name(&leader.resource_name, "kube-scheduler"),
                "resourceNamespace": name(&leader.resource_namespace, "kube-system"),
            },
        });
        let defaults = json!({
            "parallelism": 16,
            "percentageOfNodesToScore": 0,
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 10,
        });
        if let (Value::Object(set), Value::Object(defaults)) = (set, defaults) {
            all.extend(set);
            for (field, default) in defaults {
                let value = all.entry(field).or_insert(Value::Null);
                if value.is_null() {
                    *value = default;
                }
            }
        }
        let profiles = all.entry("profiles").or_insert(Value::Null);
        if profiles.as_array().is_none_or(Vec::is_empty) {
            *profiles = json!([{}]);
        }
        for profile in profiles.as_array_mut().into_iter().flatten() {
            if profile["schedulerName"].is_null() {
                profile["schedulerName"] = "default-scheduler".into();
            }
        }
        Ok(Value::Object(all))
    }
}

/// A text that is not empty.
fn text(given: Option<&String>) -> Option<String> {
    given.filter(|text| !text.is_empty()).cloned()
}

fn elect(given: &At<WireLeaderElection>) -> Result<LeaderElection, ConfigError> {
    let wire = &given.value;
    let read = |name: &str, field: &Option<At<String>>| match field {
        None => Ok(None),
        Some(field) => match go_duration(&field.value).map(u64::try_from) {
            Ok(Ok(nanos)) => Ok((nanos > 0).then_some(Duration::from_nanos(nanos))),
            _ => Err(at(field, format!("{name}: write a positive duration such as 15s or 1m30s"))),
        },
    };
    let found = LeaderElection {
        leader_elect: wire.leader_elect,
        lease_duration: read("leaseDuration", &wire.lease_duration)?,
        renew_deadline: read("renewDeadline", &wire.renew_deadline)?,
        retry_period: read("retryPeriod", &wire.retry_period)?,
        resource_lock: text(wire.resource_lock.as_ref()),
        resource_name: text(wire.resource_name.as_ref()),
        resource_namespace: text(wire.resource_namespace.as_ref()),
    };
    if found.leader_elect == Some(false) {
        return Ok(found);
    }
    let lease = found.lease_duration.unwrap_or(Duration::from_secs(15));
    if lease <= found.renew_deadline.unwrap_or(Duration::from_secs(10)) {
        return Err(at(given, "leaseDuration must be greater than renewDeadline"));
    }
    if found.resource_lock.as_deref().is_some_and(|lock| lock != "leases") {
        return Err(at(given, "resourceLock value must be \"leases\""));
    }
    Ok(found)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WireClientConnection {
    kubeconfig: Option<String>,
    /// Answers are read in the format of requests.
    #[serde(rename = "acceptContentTypes")]
    _accept_content_types: Option<serde::de::IgnoredAny>,
    content_type: Option<String>,
    qps: Option<f64>,
    burst: Option<At<i64>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WireLeaderElection {
    leader_elect: Option<bool>,
    lease_duration: Option<At<String>>,
    renew_deadline: Option<At<String>>,
    retry_period: Option<At<String>>,
    resource_lock: Option<String>,
    resource_name: Option<String>,
    resource_namespace: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = crate::config::Configuration::DEFAULT;

    fn read(text: &str) -> Result<ProcessSettings, ConfigError> {
        ProcessSettings::read(&format!("{HEAD}{text}"))
    }

    #[test]
    fn named_fields_are_read_and_zero_values_are_absent() {
        let settings = read(
            "clientConnection: {kubeconfig: /etc/config, qps: 12.5, burst: 7, contentType: application/json, \
             acceptContentTypes: ''}\n\
             leaderElection: {leaderElect: false, leaseDuration: 1m, renewDeadline: 20s, retryPeriod: 3s, \
             resourceLock: leases, resourceName: a, resourceNamespace: b}\n\
             parallelism: 4\ndelayCacheUntilActive: true\nenableProfiling: false\n",
        )
        .unwrap();
        let client = ClientConnection {
            kubeconfig: Some("/etc/config".to_owned()),
            qps: Some(12.5),
            burst: Some(7),
            content_type: Some("application/json".to_owned()),
        };
        assert_eq!(settings.client_connection, client);
        let seconds = |n| Some(Duration::from_secs(n));
        let leader = LeaderElection {
            leader_elect: Some(false),
            lease_duration: seconds(60),
            renew_deadline: seconds(20),
            retry_period: seconds(3),
            resource_lock: Some("leases".to_owned()),
            resource_name: Some("a".to_owned()),
            resource_namespace: Some("b".to_owned()),
        };
        assert_eq!(settings.leader_election, leader);
        assert_eq!((settings.parallelism, settings.enable_profiling), (Some(4), Some(false)));
        assert!(settings.delay_cache_until_active && settings.notes.is_empty());

        let zero = "clientConnection: {kubeconfig: '', qps: 0, burst: 0}\n\
                    leaderElection: {leaseDuration: 0s, resourceName: ''}\n";
        assert_eq!(read(zero).unwrap(), ProcessSettings::default());
        assert_eq!(read("clientConnection: {qps: -1}").unwrap().client_connection.qps, Some(-1.0));
    }

    #[test]
    fn invalid_settings_are_refused_with_their_line() {
        for (text, what) in [
            ("leaderElection: {leaseDuration: 10s}", "greater than renewDeadline"),
            ("leaderElection: {leaseDuration: soon}", "leaseDuration: write a positive"),
            ("leaderElection: {leaseDuration: -15s}", "leaseDuration: write a positive"),
            ("leaderElection: {resourceLock: endpoints}", "must be \"leases\""),
            ("leaderElection: {resourceKind: lease}", "resourceKind"),
            ("clientConnection: {burst: -1}", "must not be negative"),
            ("clientConnection: {rate: 1}", "rate"),
            ("parallelism: -1", "greater than 0"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.line() == 3 && error.to_string().contains(what), "{text}: {error}");
        }
        assert!(read("leaderElection: {leaderElect: false, resourceLock: endpoints}").is_ok());
    }

    #[test]
    fn an_outdated_version_is_read_with_a_note() {
        let text = HEAD.replace("/v1", "/v1beta3");
        let settings = ProcessSettings::read(&text).unwrap();
        assert!(settings.notes[0].contains("v1beta3"), "{:?}", settings.notes);
        let older = ProcessSettings::read(&HEAD.replace("/v1", "/v1alpha2")).unwrap_err();
        assert!(older.to_string().contains("v1 is supported"), "{older}");
    }

    #[test]
    fn a_completed_configuration_reads_as_the_same_settings() {
        let profile = "profiles:\n- plugins: {score: {disabled: [{name: ImageLocality}]}}\n";
        for text in ["", "clientConnection: {qps: 20}\npercentageOfNodesToScore: 30\n", profile] {
            let text = format!("{HEAD}{text}");
            let settings = ProcessSettings::read(&text).unwrap();
            let all = settings.completed(&text).unwrap();
            let again = ProcessSettings::read(&all.to_string()).unwrap();
            assert_eq!(
                again.client_connection.qps.unwrap(),
                settings.client_connection.qps.unwrap_or(-1.0)
            );
            assert_eq!(again.leader_election.lease_duration, Some(Duration::from_secs(15)));
            assert_eq!(again.completed(&all.to_string()).unwrap(), all);
            assert_eq!(all["profiles"][0]["schedulerName"], "default-scheduler");
        }
        let text = format!("{HEAD}{profile}");
        let all = ProcessSettings::read(&text).unwrap().completed(&text).unwrap();
        let disabled = &all["profiles"][0]["plugins"]["score"]["disabled"][0]["name"];
        assert_eq!((disabled, &all["podMaxBackoffSeconds"]), (&json!("ImageLocality"), &json!(10)));
    }
}
