//! Keeps the Leases of the shards that a replica holds, and takes, asks for and gives up others.
//!
//! A round sends one request, or a pair of them, for each Lease, all at once: held ones are renewed, others are read. What
//! follows from the [plan](super::plan) is sent in a second round, which renews the held ones again, so nothing delays a
//! renewal. A shard that was taken is used when the mirror contains all pods that the API server had after it was taken:
//! the last bindings of the previous holder are then counted.

use std::pin::Pin;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::election::stretched;
use super::super::lease::{Holder, LeaseLock, Turn};
use super::super::live::LiveScheduler;
use super::super::{ElectionConfig, ElectionError};
use super::plan::{Action, View, plan};
use crate::api::{Api, ApiError};
use crate::mirror::MirrorError;
use crate::write::{Fence, ShardGate};

/// Holds a replica's part of the shards.
///
/// Its fence is open until the first of the held Leases ends, and closed while none is held. It is closed for good when a
/// Lease is lost.
#[derive(Debug)]
pub struct ShardHolder {
    slots: Vec<Slot>,
    identity: String,
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
    /// The shard with which this replica begins to take shards.
    first: usize,
    gate: ShardGate,
    fence: Fence,
}

/// A shard.
#[derive(Debug)]
struct Slot {
    lock: LeaseLock,
    state: State,
    /// When the last renewal of a held Lease began.
    since: Instant,
}

/// What this replica does with a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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
enum Step {
    Look,
    Renew,
    Take,
    Ask,
    Release,
}

/// A held Lease was lost.
struct Lost;

/// A refresh of the mirror, with the shards that it is for.
type Refresh<'a> =
    Pin<Box<dyn Future<Output = (Vec<usize>, Result<u64, MirrorError>)> + Send + 'a>>;

impl Slot {
    /// Whether the fence depends on the Lease.
    fn is_kept(&self) -> bool {
        !matches!(self.state, State::Away | State::Releasing)
    }

    fn view(&self) -> View {
        View {
            holder: self.lock.holder(),
            wanted_by: self.lock.wanted_by().map(str::to_owned),
            is_ending: matches!(self.state, State::Ending | State::Releasing),
        }
    }

    /// What a round does about the shard unless the plan says otherwise.
    fn usual(&self) -> Step {
        match self.state {
            // The answer to an earlier try was lost.
            State::Away if self.lock.holder() == Holder::Us => Step::Take,
            State::Away => Step::Look,
            State::Taken | State::Held | State::Ending => Step::Renew,
            State::Releasing => Step::Release,
        }
    }

    async fn perform(&mut self, step: Step) -> Result<(), Lost> {
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
                        self.state = State::Taken;
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

impl ShardHolder {
    /// Creates a holder of no shard for a scheduler that was started with
    /// [`LiveConfig::shards`](super::super::LiveConfig::shards). The Leases have the name of the election's Lease,
    /// followed by `-shard-` and the shard's number. `api` needs a limit of requests of its own, since renewals must not
    /// wait.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, or the scheduler has no shards.
    pub fn new(
        api: &Api,
        config: &ElectionConfig,
        scheduler: &LiveScheduler,
    ) -> Result<ShardHolder, ElectionError> {
        let gate = scheduler.gate().cloned().ok_or(ElectionError::NO_SHARDS)?;
        let fence = scheduler.writes().fence().clone();
        let slot = |shard: u32| {
            let name = format!("{}-shard-{shard}", config.name);
            let lock = LeaseLock::new(api.clone(), ElectionConfig { name, ..config.clone() })?;
            Ok(Slot { lock, state: State::Away, since: Instant::now() })
        };
        let slots: Vec<Slot> =
            (0..gate.shards().count()).map(slot).collect::<Result<_, ElectionError>>()?;
        Ok(ShardHolder {
            identity: config.identity.clone(),
            lease_duration: config.lease_duration,
            renew_deadline: config.renew_deadline,
            retry_period: config.retry_period,
            first: fastrand::usize(0..slots.len().max(1)),
            slots,
            gate,
            fence,
        })
    }

    /// Takes part in the distribution of the shards, and returns when a Lease was lost. The fence is closed then. The
    /// scheduler must have begun.
    ///
    /// If the call is dropped, no shard is lost before the fence closes by itself. Continue with another call, or with
    /// [`ShardHolder::renew`].
    pub async fn keep(&mut self, scheduler: &LiveScheduler) {
        let mut refresh: Option<Refresh<'_>> = None;
        loop {
            let started = Instant::now();
            if self.rounds(scheduler).await.is_err() {
                break;
            }
            let end = started + stretched(self.retry_period);
            let ending = self.shards_in(State::Ending);
            let mut may_refresh = true;
            loop {
                let taken = self.indices_in(State::Taken);
                if refresh.is_none() && may_refresh && !taken.is_empty() {
                    let mirror = scheduler.mirror();
                    refresh = Some(Box::pin(async move { (taken, mirror.refresh().await) }));
                }
                tokio::select! {
                    () = sleep_until(end) => break,
                    // Another round releases it.
                    () = self.gate.drained(&ending), if !ending.is_empty() => break,
                    (taken, refreshed) = finished(&mut refresh), if refresh.is_some() => {
                        refresh = None;
                        match refreshed {
                            Ok(_) => self.begin(&taken, scheduler),
                            Err(error) => {
                                tracing::warn!(%error, "a shard waits until the pods are up to date");
                                may_refresh = false;
                            }
                        }
                    }
                }
            }
        }
        self.fence.close();
    }

    /// Renews the held Leases and does nothing else, while the process is stopping. Returns when a Lease was lost. The
    /// fence is closed then.
    pub async fn renew(&mut self) {
        loop {
            let started = Instant::now();
            let steps = self.steps(|slot| slot.is_kept().then_some(Step::Renew));
            if self.round(&steps).await.is_err() {
                break;
            }
            sleep(stretched(self.retry_period).saturating_sub(started.elapsed())).await;
        }
        self.fence.close();
    }

    /// Gives all Leases back, so that the other replicas need not wait for their expiry. Call it after the last write.
    /// Those that cannot be given back expire by themselves.
    pub async fn release(&mut self) {
        self.fence.close();
        let held = self.slots.iter_mut().filter(|slot| slot.state != State::Away);
        join_all(held.map(|slot| slot.perform(Step::Release))).await;
    }

    /// Returns the number of shards whose nodes and pods this replica schedules.
    #[must_use]
    pub fn held(&self) -> usize {
        self.gate.shards().held().count()
    }

    /// Renews and reads the Leases, and does what follows.
    async fn rounds(&mut self, scheduler: &LiveScheduler) -> Result<(), Lost> {
        for at in self.indices_in(State::Ending) {
            if self.gate.is_drained(at as u32) {
                self.slots[at].state = State::Releasing;
            }
        }
        let steps = self.steps(|slot| Some(slot.usual()));
        self.round(&steps).await?;
        let views: Vec<View> = self.slots.iter().map(Slot::view).collect();
        let mut further = self.steps(|slot| slot.is_kept().then_some(Step::Renew));
        let mut is_further = false;
        let mut is_changed = false;
        for action in plan(&self.identity, &views, self.first, self.lease_duration) {
            match action {
                Action::Take(at) => (further[at], is_further) = (Some(Step::Take), true),
                Action::Ask(at) => (further[at], is_further) = (Some(Step::Ask), true),
                Action::Decline(at) => self.slots[at].lock.decline(),
                Action::GiveUp(at) => {
                    tracing::info!(lease = self.slots[at].lock.path(), "giving the shard up");
                    self.gate.give_up(at as u32);
                    self.slots[at].state = State::Ending;
                    is_changed = true;
                    if self.gate.is_drained(at as u32) {
                        self.slots[at].state = State::Releasing;
                        (further[at], is_further) = (Some(Step::Release), true);
                    }
                }
            }
        }
        if is_changed {
            reassign(scheduler);
        }
        if is_further { self.round(&further).await } else { Ok(()) }
    }

    /// Performs a step for each shard that has one, and moves the fence.
    async fn round(&mut self, steps: &[Option<Step>]) -> Result<(), Lost> {
        // A process that was suspended must not renew: another replica may have held the shard meanwhile.
        self.check_deadlines()?;
        let all = self.slots.iter_mut().zip(steps);
        let performed = join_all(all.filter_map(|(slot, step)| Some(slot.perform((*step)?)))).await;
        performed.into_iter().collect::<Result<(), Lost>>()?;
        self.check_deadlines()?;
        let kept = self.slots.iter().filter(|slot| slot.is_kept());
        let until = kept.map(|slot| slot.since + self.renew_deadline).min();
        self.fence.open_until(until.unwrap_or_else(Instant::now).into_std());
        Ok(())
    }

    fn check_deadlines(&self) -> Result<(), Lost> {
        let is_late = |slot: &&Slot| slot.is_kept() && slot.since.elapsed() >= self.renew_deadline;
        match self.slots.iter().find(is_late) {
            None => Ok(()),
            Some(slot) => {
                let lease = slot.lock.path();
                tracing::error!(lease, "the lease was not renewed in time");
                Err(Lost)
            }
        }
    }

    /// Schedules for shards that were taken before the mirror was refreshed.
    fn begin(&mut self, taken: &[usize], scheduler: &LiveScheduler) {
        for at in taken {
            if self.slots[*at].state == State::Taken {
                self.slots[*at].state = State::Held;
                self.gate.shards().add(*at as u32);
            }
        }
        reassign(scheduler);
        tracing::info!(shards = ?self.gate.shards().held().collect::<Vec<_>>(), "scheduling");
    }

    fn steps(&self, step: impl Fn(&Slot) -> Option<Step>) -> Vec<Option<Step>> {
        self.slots.iter().map(step).collect()
    }

    fn indices_in(&self, state: State) -> Vec<usize> {
        let found = self.slots.iter().enumerate().filter(|(_, slot)| slot.state == state);
        found.map(|(at, _)| at).collect()
    }

    fn shards_in(&self, state: State) -> Vec<u32> {
        self.indices_in(state).into_iter().map(|at| at as u32).collect()
    }
}

/// Applies a change of the held shards to the queue.
fn reassign(scheduler: &LiveScheduler) {
    let now = super::super::threads::now();
    scheduler.schedulers().queue().with(|queue, version| queue.reassign(version, now));
}

/// Waits for a refresh, if there is one.
async fn finished(refresh: &mut Option<Refresh<'_>>) -> (Vec<usize>, Result<u64, MirrorError>) {
    match refresh {
        Some(refresh) => refresh.await,
        None => std::future::pending().await,
    }
}
