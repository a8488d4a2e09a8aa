//! Leader election by a Lease, with the rules of client-go (leaderelection.go), so that a kube-scheduler can be the
//! standby of this scheduler and the other way round.
//!
//! - A candidate reads the Lease and replaces it with its `resourceVersion`. Of two candidates that do so at once, the
//!   API server lets one succeed.
//! - A Lease expires a lease duration after *this* process last saw it change. The times that it contains are those of
//!   other clocks and are not compared.
//! - A leader that has not renewed the Lease within the renew deadline has lost it. It must not write anything from then
//!   on, even if it was stopped meanwhile (SIGSTOP, a frozen cgroup): the [`Fence`] is open only until the renew deadline
//!   counted from the *beginning* of the last renewal that succeeded, and another candidate waits for the longer lease
//!   duration from a later moment. The clock stands still while the whole machine is suspended, so a leader on a machine
//!   that resumes may write until its next renewal fails.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep, timeout};

use crate::api::{Api, ApiError, Resource};
use crate::write::Fence;

/// The Lease and the times of an election (`leaderElection` of kube-scheduler's configuration).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectionConfig {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// The name of this candidate, which must be unique: usually the host's name and a random part.
    pub identity: String,
    /// How long a candidate waits after it last saw the Lease change.
    pub lease_duration: Duration,
    /// How long a leader tries to renew the Lease before it gives up. Shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// The time between two tries.
    pub retry_period: Duration,
}

/// A configuration of an election is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader election: {0}")]
pub struct ElectionError(&'static str);

impl ElectionConfig {
    /// Returns kube-scheduler's defaults for a candidate: the Lease `kube-scheduler` in `kube-system`, 15 s, 10 s and
    /// 2 s.
    #[must_use]
    pub fn new(identity: impl Into<String>) -> ElectionConfig {
        ElectionConfig {
            namespace: "kube-system".to_owned(),
            name: "kube-scheduler".to_owned(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Checks what client-go checks, and that `lease_duration` is longer than `renew_deadline` in the whole seconds that
    /// a Lease contains: other candidates wait no longer than that.
    ///
    /// # Errors
    ///
    /// A name is empty, or the times do not leave a leader the time to notice that it has lost the Lease.
    pub fn check(&self) -> Result<(), ElectionError> {
        let wrong = |what| Err(ElectionError(what));
        if self.identity.is_empty() || self.name.is_empty() || self.namespace.is_empty() {
            return wrong(
                "the identity, the name and the namespace of the Lease must not be empty",
            );
        }
        if self.lease_duration.as_secs() == 0 || self.retry_period.is_zero() {
            return wrong("leaseDuration must be at least 1s, and retryPeriod greater than 0");
        }
        if Duration::from_secs(self.lease_duration.as_secs()) <= self.renew_deadline {
            return wrong("leaseDuration in whole seconds must be greater than renewDeadline");
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER) {
            return wrong("renewDeadline must be greater than retryPeriod*1.2");
        }
        Ok(())
    }
}

/// The factor by which pauses are stretched at random.
const JITTER: f64 = 1.2;

/// A candidate, or the leader.
#[derive(Debug)]
pub struct Election {
    api: Api,
    config: ElectionConfig,
    path: String,
    fence: Fence,
    observed: Option<Observed>,
    /// When the last renewal that succeeded began.
    held: Option<Instant>,
}

/// The Lease as it was last seen, and when its specification was first seen.
#[derive(Debug)]
struct Observed {
    lease: Lease,
    since: Instant,
}

/// The result of one attempt to acquire or renew the Lease.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// The Lease is ours, since this moment at the latest.
    Held(Instant),
    /// Another candidate holds it.
    Other(String),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lease {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
    /// Labels, annotations and whatever else a replacement would remove.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i64>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<i64>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Spec {
    fn holder(&self) -> &str {
        self.holder_identity.as_deref().unwrap_or_default()
    }
}

impl Election {
    /// Creates a candidate that opens the fence while it is the leader.
    ///
    /// # Errors
    ///
    /// The configuration is invalid.
    pub fn new(api: Api, config: ElectionConfig, fence: Fence) -> Result<Election, ElectionError> {
        config.check()?;
        let path = Resource::LEASES.object(&config.namespace, &config.name);
        Ok(Election { api, config, path, fence, observed: None, held: None })
    }

    /// Waits until this candidate is the leader. Failed requests are tried again.
    pub async fn acquire(&mut self) {
        loop {
            let started = Instant::now();
            match self.try_turn().await {
                Ok(Turn::Held(since)) => {
                    self.open(since);
                    tracing::info!(lease = self.path, "became the leader");
                    return;
                }
                Ok(Turn::Other(holder)) => {
                    tracing::debug!(lease = self.path, holder, "another candidate is the leader");
                }
                Err(error) => tracing::warn!(lease = self.path, %error, "could not get the lease"),
            }
            self.pause(started).await;
        }
    }

    /// Renews the Lease, and returns when it is lost. The fence is closed then.
    pub async fn keep(&mut self) {
        loop {
            let started = Instant::now();
            match self.try_turn().await {
                Ok(Turn::Held(since)) => self.open(since),
                Ok(Turn::Other(holder)) => {
                    tracing::error!(lease = self.path, holder, "another candidate took the lease");
                    break;
                }
                Err(error) => {
                    tracing::warn!(lease = self.path, %error, "could not renew the lease")
                }
            }
            if self.held.is_none_or(|held| held.elapsed() >= self.config.renew_deadline) {
                tracing::error!(lease = self.path, "the lease was not renewed in time");
                break;
            }
            self.pause(started).await;
        }
        self.fence.close();
    }

    /// Gives the Lease back, so that another candidate need not wait for its expiry. Call it after the last write.
    ///
    /// # Errors
    ///
    /// The Lease was not written. It expires by itself.
    pub async fn release(&mut self) -> Result<(), ApiError> {
        self.fence.close();
        let Some(Observed { lease, .. }) = &self.observed else { return Ok(()) };
        if lease.spec.holder() != self.config.identity {
            return Ok(());
        }
        match self.give_back(lease).await {
            // A renewal whose answer was not awaited has changed the lease.
            Err(error) if error.is_conflict() => {
                let found = read(&self.api.get(&self.path).await?)?;
                match found.spec.holder() == self.config.identity {
                    true => self.give_back(&found).await,
                    false => Ok(()),
                }
            }
            released => released,
        }
    }

    async fn give_back(&self, lease: &Lease) -> Result<(), ApiError> {
        let now = now();
        let spec = Spec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..lease.spec.clone()
        };
        let released = Lease { spec, ..lease.clone() };
        self.api.replace(&self.path, &released).await.map(drop)
    }

    /// The moment at which writing must stop: a renewal that began at `since` may have been overtaken after it.
    fn open(&mut self, since: Instant) {
        self.held = Some(since);
        self.fence.open_until((since + self.config.renew_deadline).into_std());
    }

    async fn pause(&self, started: Instant) {
        let stretched = self.config.retry_period.mul_f64(1.0 + fastrand::f64() * (JITTER - 1.0));
        sleep(stretched.saturating_sub(started.elapsed())).await;
    }

    /// Takes or renews the Lease, unless another candidate holds it.
    async fn try_turn(&mut self) -> Result<Turn, ApiError> {
        let limit = self.config.renew_deadline / 2;
        let late = || ApiError::NoAnswer(format!("no answer within {} s", limit.as_secs_f32()));
        timeout(limit, self.turn()).await.unwrap_or_else(|_| Err(late()))
    }

    async fn turn(&mut self) -> Result<Turn, ApiError> {
        let started = Instant::now();
        let known = match self.api.get(&self.path).await {
            Ok(bytes) => read(&bytes)?,
            Err(error) if error.is_not_found() => {
                let collection = Resource::LEASES.collection(Some(&self.config.namespace));
                let created = self.api.create(&collection, &self.first()).await?;
                self.see(read(&created)?);
                return Ok(Turn::Held(started));
            }
            Err(error) => return Err(error),
        };
        self.see(known.clone());
        let is_ours = known.spec.holder() == self.config.identity;
        if !is_ours && !known.spec.holder().is_empty() && !self.has_expired() {
            return Ok(Turn::Other(known.spec.holder().to_owned()));
        }
        let renewed = self.api.replace(&self.path, &self.next(&known, is_ours)).await?;
        self.see(read(&renewed)?);
        Ok(Turn::Held(started))
    }

    /// Notes the Lease, and the time if its holder has changed it. A change of metadata is not a renewal.
    fn see(&mut self, lease: Lease) {
        match &mut self.observed {
            Some(observed) if observed.lease.spec == lease.spec => observed.lease = lease,
            observed => *observed = Some(Observed { lease, since: Instant::now() }),
        }
    }

    /// Returns whether the Lease has not changed for as long as its holder may take.
    fn has_expired(&self) -> bool {
        self.observed.as_ref().is_none_or(|observed| {
            let seconds = observed.lease.spec.lease_duration_seconds.unwrap_or(0);
            let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            observed.since.elapsed() > duration
        })
    }

    fn first(&self) -> Lease {
        let now = now();
        Lease {
            api_version: Resource::LEASES.api_version.to_owned(),
            kind: Resource::LEASES.kind.to_owned(),
            metadata: Metadata {
                name: self.config.name.clone(),
                namespace: self.config.namespace.clone(),
                ..Metadata::default()
            },
            spec: Spec {
                holder_identity: Some(self.config.identity.clone()),
                lease_duration_seconds: Some(self.seconds()),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
                rest: Map::new(),
            },
        }
    }

    fn next(&self, known: &Lease, is_ours: bool) -> Lease {
        let transitions = known.spec.lease_transitions.unwrap_or(0);
        let now = now();
        let spec = Spec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(self.seconds()),
            acquire_time: match is_ours {
                true => known.spec.acquire_time.clone(),
                false => Some(now.clone()),
            },
            renew_time: Some(now),
            lease_transitions: Some(if is_ours {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            rest: known.spec.rest.clone(),
        };
        Lease { spec, ..known.clone() }
    }

    fn seconds(&self) -> i64 {
        i64::try_from(self.config.lease_duration.as_secs()).unwrap_or(i64::MAX)
    }
}

fn read(bytes: &[u8]) -> Result<Lease, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| ApiError::Malformed(format!("a Lease: {error}")))
}

/// The time as a `MicroTime`.
fn now() -> String {
    format!("{:.6}", Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_leave_no_room_are_refused() {
        let config = ElectionConfig::new("a");
        assert_eq!(config.check(), Ok(()));
        let long = ElectionConfig { renew_deadline: Duration::from_secs(15), ..config.clone() };
        assert!(long.check().unwrap_err().to_string().contains("greater than renewDeadline"));
        let hasty = ElectionConfig { retry_period: Duration::from_secs(9), ..config.clone() };
        assert!(hasty.check().unwrap_err().to_string().contains("retryPeriod*1.2"));
        assert!(ElectionConfig { identity: String::new(), ..config }.check().is_err());
    }

    #[test]
    fn micro_times_have_six_digits() {
        let text = now();
        assert_eq!((text.len(), &text[19..20], &text[26..]), (27, ".", "Z"), "{text}");
    }
}
