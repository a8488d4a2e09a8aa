//! A shard's Lease, and what this replica does with the shard.

use tokio::time::{Instant, timeout};

use super::super::lease::{Holder, LeaseLock, Turn};
use super::plan::View;
use crate::api::ApiError;

/// A shard.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) lock: LeaseLock,
    pub(super) state: State,
    /// When the last renewal of a held Lease began.
    pub(super) since: Instant,
    /// When the Lease was taken last.
    pub(super) taken_at: Instant,
}

/// What this replica does with a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It does not hold the Lease.
    Away,
    /// It holds the Lease, and the mirror may lack bindings of the previous holder.
    Taken,
    /// It schedules.
    Held,
    /// It schedules no longer, and bindings may be in flight.
    Ending,
    /// Nothing is in flight, and the Lease is being released. It is not renewed: if only the answer was lost, another
    /// replica may hold it already.
    Releasing,
}

/// What a round does about a shard.
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
        Slot { lock, state: State::Away, since: now, taken_at: now }
    }

    /// Whether the replica may schedule for the shard once the mirror contains all pods of this moment.
    pub(super) fn can_begin(&self, refresh_began: Instant) -> bool {
        self.state == State::Taken && self.taken_at <= refresh_began
    }

    /// Whether the fence depends on the Lease.
    pub(super) fn is_kept(&self) -> bool {
        !matches!(self.state, State::Away | State::Releasing)
    }

    pub(super) fn view(&self) -> View {
        View {
            holder: self.lock.holder(),
            wanted_by: self.lock.wanted_by().map(str::to_owned),
            is_ending: matches!(self.state, State::Ending | State::Releasing),
        }
    }

    /// What a round does about the shard unless the plan says otherwise.
    pub(super) fn usual(&self) -> Step {
        match self.state {
            // The answer to an earlier try was lost.
            State::Away if self.lock.holder() == Holder::Us => Step::Take,
            State::Away => Step::Look,
            State::Taken | State::Held | State::Ending => Step::Renew,
            State::Releasing => Step::Release,
        }
    }

    pub(super) async fn perform(&mut self, step: Step) -> Result<(), Lost> {
        let path = self.lock.path().to_owned();
        let done = match step {
            Step::Look => self.lock.look().await,
            Step::Ask => self.lock.ask().await,
            Step::Release => {
                let limit = self.lock.config().renew_deadline / 2;
                let late = || ApiError::NoAnswer("no answer in time".to_owned());
                let released = timeout(limit, self.lock.release()).await;
                let released = released.unwrap_or_else(|_| Err(late()));
                if released.is_ok() {
                    tracing::info!(lease = path, "gave the shard up");
                    self.state = State::Away;
                }
                released
            }
            Step::Renew | Step::Take => match self.lock.try_turn().await {
                Ok(Turn::Held(since)) => {
                    self.since = since;
                    if step == Step::Take {
                        tracing::info!(lease = path, "took the shard");
                        (self.state, self.taken_at) = (State::Taken, Instant::now());
                    }
                    Ok(())
                }
                Ok(Turn::Other(holder)) if self.is_kept() => {
                    tracing::error!(lease = path, holder, "another replica took the lease");
                    return Err(Lost);
                }
                Ok(Turn::Other(_)) => Ok(()),
                Err(error) => Err(error),
            },
        };
        match done {
            Err(error) if self.is_kept() => {
                tracing::warn!(lease = path, %error, "could not renew the lease");
            }
            // Another replica was faster.
            Err(error) if error.is_conflict() => tracing::debug!(lease = path, %error, "conflict"),
            Err(error) => tracing::warn!(lease = path, %error, "could not read the lease"),
            Ok(()) => {}
        }
        Ok(())
    }
}
