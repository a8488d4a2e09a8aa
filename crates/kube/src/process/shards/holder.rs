//! Renews the Leases of the shards that a replica holds, and takes, asks for and gives up Leases.
//!
//! A round sends one or two requests for each Lease, all at once: held Leases are renewed, and others are read. The
//! actions of the [plan](super::plan) are sent in a second round, which renews the held Leases again. While answers
//! about other Leases are pending, the held Leases are renewed in each retry period, so other Leases delay no renewal.
//! A replica uses a shard when its mirror contains all pods that the API server had after the shard was taken: the last
//! bindings of the previous holder are then counted.

use std::collections::HashSet;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use portolan::cache::Snapshot;
use portolan::model::Uid;
use portolan::plugin::ShardSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::election::stretched;
use super::super::lease::LeaseLock;
use super::super::live::LiveScheduler;
use super::super::{ElectionConfig, ElectionError};
use super::plan::{Action, View, plan};
use super::slot::{Lost, Slot, State, Step};
use crate::api::Api;
use crate::mirror::MirrorError;
use crate::write::{Fence, ShardGate};

/// Holds a replica's shards.
///
/// Its fence is open until the first of the held Leases ends, and closed while none is held. It is closed for good when
/// a Lease is lost.
#[derive(Debug)]
pub struct ShardHolder {
    slots: Vec<Slot>,
    identity: String,
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
    /// The first shard that this replica tries to take.
    first: usize,
    gate: ShardGate,
    fence: Fence,
    /// Whether another replica has another number of shards.
    disagrees: bool,
}

/// A refresh of the mirror, with the moment at which it began.
type Refresh<'a> = Pin<Box<dyn Future<Output = Refreshed> + Send + 'a>>;
type Refreshed = (Instant, Result<u64, MirrorError>);

impl ShardHolder {
    /// Creates a holder of no shard for a scheduler that was started with
    /// [`LiveConfig::shards`](super::super::LiveConfig::shards). The Leases have the name of the election's Lease,
    /// followed by `-shard-` and the shard's number. `api` needs a limit of requests of its own, since renewals must
    /// not wait.
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
        // As long as the time between the last write of a replica that has died and the expiry of its Lease.
        gate.set_doubt(config.lease_duration.saturating_sub(config.renew_deadline));
        let fence = scheduler.writes().fence().clone();
        let slot = |shard: u32| {
            let name = format!("{}-shard-{shard}", config.name);
            let lock = LeaseLock::new(api.clone(), ElectionConfig { name, ..config.clone() })?;
            Ok(Slot::new(lock.with_shards(gate.shards().count())))
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
            disagrees: false,
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
                let has_taken = !self.indices_in(State::Taken).is_empty();
                if refresh.is_none() && may_refresh && has_taken {
                    let (mirror, began) = (scheduler.mirror(), Instant::now());
                    refresh = Some(Box::pin(async move { (began, mirror.refresh().await) }));
                }
                tokio::select! {
                    () = sleep_until(end) => break,
                    // Another round releases it.
                    () = self.gate.drained(&ending), if !ending.is_empty() => break,
                    (began, refreshed) = finished(&mut refresh), if refresh.is_some() => {
                        refresh = None;
                        match refreshed {
                            Ok(_) => self.begin(began, scheduler),
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

    /// Releases all Leases, so that the other replicas need not wait for their expiry. Call it after the last write.
    /// Leases that cannot be released, and Leases of shards to whose nodes a binding may still be applied, expire by
    /// themselves.
    pub async fn release(&mut self) {
        self.fence.close();
        let all = self.slots.iter_mut().enumerate();
        let held =
            all.filter(|(at, slot)| slot.state != State::Away && self.gate.is_drained(*at as u32));
        join_all(held.map(|(_, slot)| slot.perform(Step::Release))).await;
    }

    /// Returns the number of shards whose nodes and pods this replica schedules.
    #[must_use]
    pub fn held(&self) -> usize {
        self.gate.shards().held().count()
    }

    /// Renews and reads the Leases, and carries out the plan.
    async fn rounds(&mut self, scheduler: &LiveScheduler) -> Result<(), Lost> {
        for at in self.indices_in(State::Ending) {
            if self.gate.is_drained(at as u32) {
                self.slots[at].state = State::Releasing;
            }
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.is_unused()) {
            slot.leave_unused();
        }
        let steps = self.steps(|slot| Some(slot.usual()));
        self.round(&steps).await?;
        if self.finds_other_count() {
            return Ok(());
        }
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

    /// Returns whether a live replica has another number of shards, and reports it for the first time. Both would hold
    /// the same nodes, so this one then takes no further shard and asks for none.
    fn finds_other_count(&mut self) -> bool {
        let found = self.slots.iter().find_map(|slot| Some((slot.lock.other_shards()?, slot)));
        if let Some((count, slot)) = found
            && !self.disagrees
        {
            let (lease, ours) = (slot.lock.path(), self.slots.len());
            tracing::error!(lease, count, ours, "another replica has another number of shards");
        }
        self.disagrees = found.is_some();
        self.disagrees
    }

    /// Performs a step for each shard that has one, and moves the fence. The held Leases are renewed again if the
    /// answers about the others take long.
    async fn round(&mut self, steps: &[Option<Step>]) -> Result<(), Lost> {
        self.perform(steps).await?;
        let kept = || self.slots.iter().filter(|slot| slot.is_kept());
        check_deadlines(kept(), self.renew_deadline)?;
        let until = kept().map(|slot| slot.since + self.renew_deadline).min();
        self.fence.open_until(until.unwrap_or_else(Instant::now).into_std());
        Ok(())
    }

    async fn perform(&mut self, steps: &[Option<Step>]) -> Result<(), Lost> {
        let (fence, deadline, period) = (&self.fence, self.renew_deadline, self.retry_period);
        let all = self.slots.iter_mut().zip(steps);
        let with_step = all.filter_map(|(slot, step)| Some((slot, (*step)?)));
        let (kept, others): (Vec<_>, Vec<_>) = with_step.partition(|(slot, _)| slot.is_kept());
        let mut kept: Vec<&mut Slot> = kept.into_iter().map(|(slot, _)| slot).collect();
        let others = try_join_all(others.into_iter().map(|(slot, step)| slot.perform(step)));
        tokio::pin!(others);
        let mut is_over = false;
        while !is_over {
            let renewed = renew(&mut kept, fence, deadline);
            tokio::pin!(renewed);
            loop {
                tokio::select! {
                    renewed = &mut renewed => break renewed?,
                    done = &mut others, if !is_over => is_over = done.map(|_| true)?,
                }
            }
            if !is_over {
                tokio::select! {
                    done = &mut others => is_over = done.map(|_| true)?,
                    () = sleep(stretched(period)) => {}
                }
            }
        }
        Ok(())
    }

    /// Schedules for the shards that were taken before a refresh of the mirror began.
    fn begin(&mut self, refresh_began: Instant, scheduler: &LiveScheduler) {
        // The pods that are assumed from here on were compared with all bindings of the previous holders.
        let engine = scheduler.schedulers().engine();
        // A closed engine begins nothing.
        let Ok(version) = engine.with_writer(|writer| writer.snapshot()) else { return };
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if slot.can_begin(refresh_began) {
                slot.state = State::Held;
                self.gate.begin(at as u32, assumed(&version, self.gate.shards(), at as u32));
            }
        }
        drop(version);
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

/// Renews held Leases, and moves the fence if all are renewed.
async fn renew(kept: &mut [&mut Slot], fence: &Fence, deadline: Duration) -> Result<(), Lost> {
    // A process that was suspended must not renew: another replica may have held the shard meanwhile.
    check_deadlines(kept.iter().map(|slot| &**slot), deadline)?;
    try_join_all(kept.iter_mut().map(|slot| slot.perform(Step::Renew))).await?;
    if let Some(since) = kept.iter().map(|slot| slot.since).min() {
        fence.open_until((since + deadline).into_std());
    }
    Ok(())
}

fn check_deadlines<'a>(
    mut kept: impl Iterator<Item = &'a Slot>,
    deadline: Duration,
) -> Result<(), Lost> {
    match kept.find(|slot| slot.since.elapsed() >= deadline) {
        None => Ok(()),
        Some(slot) => {
            tracing::error!(lease = slot.lock.path(), "the lease was not renewed in time");
            Err(Lost)
        }
    }
}

/// Applies a change of the held shards to the queue.
fn reassign(scheduler: &LiveScheduler) {
    let now = super::super::threads::now();
    scheduler.schedulers().queue().with(|queue, version| queue.reassign(version, now));
}

/// Returns the assumed pods on the nodes of a shard. O(nodes + pods of the shard).
fn assumed(version: &Snapshot, shards: &ShardSet, shard: u32) -> HashSet<Uid> {
    let nodes = version.nodes().filter(|node| shards.of_node(node.name()) == shard);
    nodes.flat_map(|node| node.pods()).filter(|pod| pod.is_assumed()).map(|pod| pod.uid()).collect()
}

/// Waits for a refresh, if there is one.
async fn finished(refresh: &mut Option<Refresh<'_>>) -> Refreshed {
    match refresh {
        Some(refresh) => refresh.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    use portolan::cache::{Config, Engine, Event};
    use portolan::model::{node, pod};
    use portolan_apiserver::{ApiServer, Effect, Fault};

    use crate::testing::{api, apply, server, until};

    /// Creates a holder of 2 shards, whose Leases last so long that a test never waits for their end.
    fn holder(server: &ApiServer) -> ShardHolder {
        let api = api(&server.url());
        let mut election = ElectionConfig::new("a");
        let minutes = |n: u64| Duration::from_secs(n * 60);
        (election.lease_duration, election.renew_deadline) = (minutes(60), minutes(50));
        let slot = |shard: u32| {
            let config = ElectionConfig { name: format!("shard-{shard}"), ..election.clone() };
            Slot::new(LeaseLock::new(api.clone(), config).expect("valid"))
        };
        ShardHolder {
            slots: (0..2).map(slot).collect(),
            identity: election.identity.clone(),
            lease_duration: election.lease_duration,
            renew_deadline: election.renew_deadline,
            retry_period: election.retry_period,
            first: 0,
            gate: ShardGate::new(NonZeroU32::new(2).and_then(ShardSet::new).expect("few")),
            fence: Fence::closed(),
            disagrees: false,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lease_of_another_replica_that_cannot_be_read_does_not_hold_the_fence() {
        let server = server();
        let mut holder = holder(&server);
        assert!(holder.round(&[Some(Step::Take), None]).await.is_ok());
        let fence = Fence::closed();
        holder.fence = fence.clone();
        let silent = Fault::new(Effect::HangBefore).verb("get").name("shard-1");
        server.set_faults(0, vec![silent]);
        tokio::select! {
            _ = holder.round(&[Some(Step::Renew), Some(Step::Look)]) => panic!("no answer"),
            () = until(|| fence.may_write()) => {}
            () = sleep(Duration::from_secs(60)) => panic!("the fence is not open"),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn held_leases_are_renewed_while_the_answer_about_another_one_is_late() {
        let server = server();
        let mut holder = holder(&server);
        holder.retry_period = Duration::from_millis(5);
        assert!(holder.round(&[Some(Step::Take), None]).await.is_ok());
        let silent = Fault::new(Effect::HangBefore).verb("get").name("shard-1");
        server.set_faults(0, vec![silent]);
        tokio::select! {
            _ = holder.round(&[Some(Step::Renew), Some(Step::Look)]) => panic!("no answer"),
            () = until(|| server.writes().len() >= 4) => {}
            () = sleep(Duration::from_secs(60)) => panic!("not renewed again"),
        }
    }

    #[test]
    fn assumed_pods_are_those_on_nodes_of_the_shard_that_are_not_bound() {
        let shards = NonZeroU32::new(2).and_then(ShardSet::new).expect("few");
        let name_in = |shard| {
            let mut names = (0..).map(|n| format!("n-{n}"));
            names.find(|name| shards.of_node(name) == shard).expect("found")
        };
        let (ours, other) = (name_in(0), name_in(1));
        let engine = Engine::shared(Config::default());
        for name in [&ours, &other] {
            apply(&engine, Event::add_node(node(name.as_str()).cpu(8_000).pods(10).build()));
        }
        for (uid, on, is_assumed) in
            [("a", &ours, true), ("b", &ours, false), ("c", &other, true), ("d", &ours, true)]
        {
            let pod = pod(uid).uid(uid).on(on.as_str()).build();
            apply(&engine, if is_assumed { Event::assume(pod) } else { Event::add_pod(pod) });
        }
        let version = engine.with_writer(|writer| writer.snapshot()).expect("open");
        assert_eq!(assumed(&version, &shards, 0), HashSet::from(["a".into(), "d".into()]));
    }
}
