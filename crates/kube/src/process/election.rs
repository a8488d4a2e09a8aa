//! Leader election by a Lease, with the rules of client-go (leaderelection.go), so that a kube-scheduler can be the
//! standby of this scheduler, and vice versa.
//!
//! - A candidate reads the Lease and replaces it with its `resourceVersion`. Of two candidates that do so at once, the
//!   API server lets one succeed.
//! - A Lease expires a lease duration after *this* process last saw it change, even if it is deleted meanwhile. The
//!   times in it come from other clocks and are not compared.
//! - A leader that finds its Lease deleted or without a holder has lost it: another candidate may have led meanwhile.
//!   client-go's leaders take it again and continue.
//! - A leader that has not renewed the Lease within the renew deadline has lost it. It must not write anything from
//!   then on, even if it was paused meanwhile (SIGSTOP, a frozen cgroup): the [`Fence`] is open only until the renew
//!   deadline counted from the *beginning* of the last renewal that succeeded, and another candidate waits for the
//!   longer lease duration from a later moment. The clock stands still while the whole machine is suspended, so a
//!   leader on a machine that resumes may write until its next renewal fails.

use std::sync::LazyLock;
use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, sleep};

use super::lease::{LeaseLock, Turn};
use crate::api::{Api, ApiError};
use crate::seldom::warn_seldom;
use crate::write::Fence;
use crate::write::Occurrence;

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

impl ElectionError {
    /// A holder of shards was created for a scheduler without shards.
    pub(super) const NO_SHARDS: ElectionError = ElectionError("the scheduler has no shards");
}

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

    /// Makes the checks of client-go, and checks that `lease_duration` is longer than `renew_deadline` in the whole
    /// seconds that a Lease contains: other candidates wait no longer than that.
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

/// Returns a retry period stretched at random, so that candidates do not stay in step.
pub(super) fn stretched(period: Duration) -> Duration {
    period.mul_f64(1.0 + fastrand::f64() * (JITTER - 1.0))
}

/// Whether this process is the leader, by the name of the Lease. It is a figure of the process, as in client-go: a
/// server has no access to the election.
static LEADERSHIP: LazyLock<Family<[(&str, String); 1], Gauge>> = LazyLock::new(Family::default);

/// Registers `leader_election_master_status`.
pub(crate) fn register_leadership(registry: &mut Registry) {
    registry.register(
        "leader_election_master_status",
        "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. \
         'name' is the string used to identify the lease. Please make sure to group by name",
        LEADERSHIP.clone(),
    );
}

/// A candidate, or the leader.
#[derive(Debug)]
pub struct Election {
    lock: LeaseLock,
    fence: Fence,
    /// When the last renewal that succeeded began.
    held: Option<Instant>,
}

impl Election {
    /// Creates a candidate that opens the fence while it is the leader.
    ///
    /// # Errors
    ///
    /// The configuration is invalid.
    pub fn new(api: Api, config: ElectionConfig, fence: Fence) -> Result<Election, ElectionError> {
        let election = Election { lock: LeaseLock::new(api, config)?, fence, held: None };
        election.report(false);
        Ok(election)
    }

    /// Waits until this candidate is the leader. Failed requests are tried again.
    pub async fn acquire(&mut self) {
        let mut known = String::new();
        loop {
            let started = Instant::now();
            match self.lock.try_turn().await {
                Ok(Turn::Held(since)) => {
                    self.open(since);
                    self.report(true);
                    tracing::info!(lease = self.lock.path(), "became the leader");
                    return;
                }
                Ok(Turn::Other(holder)) => {
                    if holder != known {
                        tracing::info!(lease = self.lock.path(), holder, "waiting for the lease");
                        known = holder;
                    }
                }
                Err(error) => {
                    warn_seldom!(lease = self.lock.path(), %error, "could not get the lease")
                }
            }
            self.pause(started).await;
        }
    }

    /// Renews the Lease, and returns when it is lost. The fence is closed then.
    pub async fn keep(&mut self) {
        loop {
            let started = Instant::now();
            match self.lock.renew().await {
                Ok(Turn::Held(since)) => self.open(since),
                Ok(Turn::Other(holder)) => {
                    tracing::error!(
                        lease = self.lock.path(),
                        holder,
                        "the lease is no longer held"
                    );
                    break;
                }
                Err(error) => {
                    warn_seldom!(lease = self.lock.path(), %error, "could not renew the lease")
                }
            }
            let deadline = self.lock.config().renew_deadline;
            if self.held.is_none_or(|held| held.elapsed() >= deadline) {
                tracing::error!(lease = self.lock.path(), "the lease was not renewed in time");
                break;
            }
            self.pause(started).await;
        }
        self.close();
    }

    /// Returns the event that this candidate has become the leader.
    #[must_use]
    pub fn became_leader(&self) -> Occurrence {
        let ElectionConfig { namespace, name, identity, .. } = self.lock.config();
        Occurrence::of_leader(namespace, name, identity, true)
    }

    /// Returns the event that this candidate has stopped leading.
    #[must_use]
    pub fn stopped_leading(&self) -> Occurrence {
        let ElectionConfig { namespace, name, identity, .. } = self.lock.config();
        Occurrence::of_leader(namespace, name, identity, false)
    }

    /// Releases the Lease, so that another candidate need not wait for its expiry. Call it after the last write.
    ///
    /// # Errors
    ///
    /// The Lease was not written. It expires by itself.
    pub async fn release(&mut self) -> Result<(), ApiError> {
        self.close();
        self.lock.release().await
    }

    /// Opens the fence until the renew deadline, counted from `since`, when the renewal began: another candidate may
    /// lead after it.
    fn open(&mut self, since: Instant) {
        self.held = Some(since);
        self.fence.open_until((since + self.lock.config().renew_deadline).into_std());
    }

    fn close(&self) {
        self.fence.close();
        self.report(false);
    }

    /// Sets the metric of leadership.
    fn report(&self, leads: bool) {
        let labels = [("name", self.lock.config().name.clone())];
        LEADERSHIP.get_or_create(&labels).set(leads.into());
    }

    async fn pause(&self, started: Instant) {
        let pause = stretched(self.lock.config().retry_period);
        sleep(pause.saturating_sub(started.elapsed())).await;
    }
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
}
