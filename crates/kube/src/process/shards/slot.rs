//! A shard's Lease, and the state of the shard in this replica.

use tokio::time::Instant;

use super::super::lease::{Holder, LeaseLock, Turn};
use super::plan::View;
use crate::api::in_time;
use crate::seldom::warn_seldom;

/// A shard.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) lock: LeaseLock,
    pub(super) state: State,
    /// When the last renewal of a held Lease began.
    pub(super) since: Instant,
    /// When the Lease was taken last.
    pub(super) taken_at: Instant,
    /// When the Lease was released because the mirror did not become current.
    unused_at: Option<Instant>,
    /// When a try to take the Lease ended with an error.
    failed_at: Option<Instant>,
}

/// The number of retry periods for which a Lease is not tried again after an error. Longer than a round, which takes at
/// most 2.2 of them, so the next plan still sees the failure.
const PERIODS_AFTER_ERROR: u32 = 3;

/// The state of a shard in this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// This replica does not hold the Lease.
    Away,
    /// It tries to take the Lease, and may hold it already.
    Taking,
    /// It holds the Lease, and the mirror may lack bindings of the previous holder.
    Taken,
    /// It schedules.
    Held,
    /// It no longer schedules, and bindings may be in flight.
    Ending,
    /// Nothing is in flight, and the Lease is being released. It is not renewed: if only the answer was lost, another
    /// replica may hold it already.
    Releasing,
}

/// A round's step for a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Look,
    Renew,
    Take,
    Ask,
    Release,
}

/// A held Lease was lost.
pub(super) struct Lost;

impl Slot {
    pub(super) fn new(lock: LeaseLock) -> Slot {
        let now = Instant::now();
        Slot {
            lock,
            state: State::Away,
            since: now,
            taken_at: now,
            unused_at: None,
            failed_at: None,
        }
    }

    /// Whether the shard was taken 2 lease durations ago and is not in use yet. Another replica may be able to use it.
    pub(super) fn is_unused(&self) -> bool {
        self.state == State::Taken
            && self.taken_at.elapsed() >= 2 * self.lock.config().lease_duration
    }

    /// Releases a shard that could not be used, and avoids it for a lease duration.
    pub(super) fn leave_unused(&mut self) {
        tracing::error!(lease = self.lock.path(), "the pods did not become up to date");
        (self.state, self.unused_at) = (State::Releasing, Some(Instant::now()));
    }

    /// Whether the replica may schedule for the shard once the mirror contains all pods of this moment.
    pub(super) fn can_begin(&self, refresh_began: Instant) -> bool {
        self.state == State::Taken && self.taken_at <= refresh_began
    }

    /// Whether the fence depends on the Lease.
    pub(super) fn is_kept(&self) -> bool {
        !matches!(self.state, State::Away | State::Taking | State::Releasing)
    }

    pub(super) fn view(&self) -> View {
        let config = self.lock.config();
        let is_within = |at: Option<Instant>, time| at.is_some_and(|at| at.elapsed() < time);
        View {
            holder: self.lock.holder(),
            wanted_by: self.lock.wanted_by().map(str::to_owned),
            is_ending: matches!(self.state, State::Ending | State::Releasing),
            is_avoided: is_within(self.unused_at, config.lease_duration),
            has_failed: is_within(self.failed_at, PERIODS_AFTER_ERROR * config.retry_period),
        }
    }

    /// A round's step for the shard, unless the plan has another one.
    pub(super) fn usual(&self) -> Step {
        match self.state {
            // The answer to an earlier try was lost.
            State::Away | State::Taking if self.lock.holder() == Holder::Us => Step::Take,
            State::Away | State::Taking => Step::Look,
            State::Taken | State::Held | State::Ending => Step::Renew,
            State::Releasing => Step::Release,
        }
    }

    pub(super) async fn perform(&mut self, step: Step) -> Result<(), Lost> {
        let path = self.lock.path().to_owned();
        let done = match step {
            Step::Look => {
                let looked = self.lock.look().await;
                if looked.is_ok() && self.state == State::Taking && self.lock.holder() != Holder::Us
                {
                    self.state = State::Away;
                }
                looked
            }
            Step::Ask => self.lock.ask().await,
            Step::Release => {
                let limit = self.lock.limit();
                let release = async {
                    if self.state == State::Taking {
                        self.lock.look().await?;
                    }
                    self.lock.release().await
                };
                let released = in_time(limit, release).await;
                if released.is_ok() {
                    tracing::info!(lease = path, "gave the shard up");
                    self.state = State::Away;
                }
                released
            }
            Step::Renew => match self.lock.renew().await {
                Ok(Turn::Held(since)) => {
                    self.since = since;
                    Ok(())
                }
                Ok(Turn::Other(holder)) => {
                    tracing::error!(lease = path, holder, "the lease is no longer held");
                    return Err(Lost);
                }
                Err(error) => Err(error),
            },
            Step::Take => {
                self.state = State::Taking;
                let tried = self.lock.try_turn().await;
                match &tried {
                    Ok(Turn::Held(since)) => {
                        tracing::info!(lease = path, "took the shard");
                        (self.state, self.since) = (State::Taken, *since);
                        self.taken_at = Instant::now();
                    }
                    Ok(Turn::Other(_)) => self.state = State::Away,
                    // Another replica was faster.
                    Err(error) if error.is_conflict() => {}
                    // The Lease may have been taken nevertheless. The next read shows it.
                    Err(_) => self.failed_at = Some(Instant::now()),
                }
                tried.map(drop)
            }
        };
        match done {
            Err(error) if self.is_kept() => {
                warn_seldom!(lease = path, %error, "could not renew the lease");
            }
            // Another replica was faster.
            Err(error) if error.is_conflict() => tracing::debug!(lease = path, %error, "conflict"),
            Err(error) => warn_seldom!(lease = path, %error, "a request for the lease failed"),
            Ok(()) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use portolan_apiserver::{ApiServer, Effect, Fault};

    use crate::process::ElectionConfig;
    use crate::testing::{api, server, until};

    fn world() -> (ApiServer, Slot) {
        let server = server();
        let api = api(&server.url());
        (server, Slot::new(LeaseLock::new(api, ElectionConfig::new("a")).expect("valid")))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_refresh_that_began_before_the_lease_was_taken_again_begins_nothing() {
        let (_server, mut slot) = world();
        let began = Instant::now();
        assert!(!slot.can_begin(began), "not taken");
        slot.state = State::Taken;
        slot.taken_at = began + Duration::from_secs(1);
        assert!(!slot.can_begin(began));
        assert!(slot.can_begin(began + Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_that_cannot_begin_is_left_to_others_for_a_lease_duration() {
        let (_server, mut slot) = world();
        let lease = slot.lock.config().lease_duration;
        (slot.state, slot.taken_at) = (State::Taken, Instant::now());
        assert!(!slot.is_unused());
        tokio::time::advance(2 * lease).await;
        assert!(slot.is_unused());
        slot.leave_unused();
        assert!(slot.state == State::Releasing && slot.view().is_avoided);
        tokio::time::advance(lease).await;
        assert!(!slot.view().is_avoided);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lease_that_was_taken_without_an_answer_is_given_back() {
        let (server, mut slot) = world();
        let silent = Fault::new(Effect::HangAfter).verb("create").resource("leases");
        server.set_faults(0, vec![silent]);
        tokio::select! {
            _ = slot.perform(Step::Take) => panic!("there is no answer"),
            () = until(|| !server.objects("Lease").is_empty()) => {}
        }
        assert_eq!(server.objects("Lease")[0]["spec"]["holderIdentity"], "a");
        assert!(slot.perform(Step::Release).await.is_ok());
        assert_eq!(server.objects("Lease")[0]["spec"]["holderIdentity"], "");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lease_that_could_not_be_taken_is_not_tried_again_at_once() {
        let (server, mut slot) = world();
        let refused = Fault::new(Effect::internal_error()).verb("create").resource("leases");
        server.set_faults(0, vec![refused]);
        assert!(slot.perform(Step::Take).await.is_ok());
        assert!(slot.view().has_failed);
        let period = slot.lock.config().retry_period;
        let failed_at = slot.failed_at.expect("it has failed");
        slot.failed_at = failed_at.checked_sub(period * 5 / 2);
        assert!(slot.view().has_failed, "a round takes up to 2.2 periods");
        slot.failed_at = failed_at.checked_sub(period * 3);
        assert!(!slot.view().has_failed);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lease_that_another_replica_took_first_has_not_failed() {
        let (server, mut slot) = world();
        let taken = Fault::new(Effect::conflict()).verb("create").resource("leases");
        server.set_faults(0, vec![taken]);
        assert!(slot.perform(Step::Take).await.is_ok());
        assert!(!slot.view().has_failed);
    }
}
