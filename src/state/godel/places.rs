//! The expiry of reservations that no Reservation object confirms.
//!
//! Events that remove a pod carry no time, so a reservation's clock starts at the first time that the log mentions
//! after the removal. The reservation is held for at least its time to live and for at most one sweep longer, and
//! equally long in every replay.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{Change, Diff, Fact, Timestamp};
use crate::snapshot::Reservations;
use crate::snapshot::draft::Effect;

use crate::state::lifecycle::State;

/// The number of clocks below which stopped clocks are not pruned.
const PRUNE_THRESHOLD: usize = 64;

/// The deadlines of reservations, identified by number.
#[derive(Debug, Default)]
pub(in crate::state) struct PlaceClocks {
    /// `None` means that reservations never expire.
    ttl: Option<Duration>,
    /// The reservations whose clock has not started yet.
    waiting: Vec<u32>,
    by_deadline: BTreeSet<(Timestamp, u32)>,
}

impl PlaceClocks {
    pub(in crate::state) fn new(ttl: Option<Duration>) -> PlaceClocks {
        PlaceClocks { ttl: ttl.filter(|ttl| !ttl.is_zero()), ..PlaceClocks::default() }
    }

    /// Starts all waiting clocks at `now`. O(reservations whose clock starts × log n).
    pub(in crate::state) fn tick(&mut self, now: Timestamp) {
        let Some(ttl) = self.ttl else { return };
        let ttl = i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX);
        let deadline = Timestamp(now.0.saturating_add(ttl));
        self.by_deadline.extend(self.waiting.drain(..).map(|number| (deadline, number)));
    }

    /// Adds clocks for the unconfirmed reservations of a version. O(reservations).
    pub(in crate::state) fn begin(&mut self, places: &Reservations) {
        for (number, _) in places.numbered().filter(|(_, place)| !place.confirmed) {
            self.wait(number);
        }
    }

    fn wait(&mut self, number: u32) {
        if self.ttl.is_some() {
            self.waiting.push(number);
        }
    }

    /// Returns the number of clocks, including those of reservations that no longer exist.
    fn len(&self) -> usize {
        self.waiting.len() + self.by_deadline.len()
    }

    /// Removes the clocks of reservations that no longer exist or are confirmed, once they make up more than half of
    /// all clocks. O(clocks), amortized O(1) per started clock.
    fn prune(&mut self, places: &Reservations) {
        if self.len() <= 2 * places.len() + PRUNE_THRESHOLD {
            return;
        }
        let runs = |number: &u32| places.at(*number).is_some_and(|place| !place.confirmed);
        self.waiting.retain(runs);
        self.by_deadline.retain(|(_, number)| runs(number));
    }

    /// Removes and returns a reservation whose deadline is before `now`.
    fn pop(&mut self, now: Timestamp) -> Option<u32> {
        let (deadline, number) = *self.by_deadline.first()?;
        (deadline < now).then(|| {
            self.by_deadline.pop_first();
            number
        })
    }
}

impl State {
    /// Drops the reservations whose deadline has passed, and returns the number that were still held.
    pub(in crate::state) fn expire_places(&mut self, now: Timestamp) -> usize {
        self.places.tick(now);
        let mut expired = 0;
        while let Some(number) = self.places.pop(now) {
            expired += usize::from(self.draft.expire_place(number));
        }
        expired
    }

    /// Reports the placeholder pods that appeared or disappeared because reservations were made or released.
    pub(in crate::state) fn report_effects(&mut self) {
        for effect in self.draft.take_effects() {
            let diff = match effect {
                Effect::Held { pod, waits } => {
                    if let Some(number) = waits {
                        self.places.wait(number);
                        if let Some(places) = self.draft.cluster.reservations() {
                            self.places.prune(places);
                        }
                    }
                    Diff { old: None, new: Some(Arc::new(pod)) }
                }
                Effect::Freed(pod) => Diff { old: Some(Arc::new(pod)), new: None },
            };
            if self.followers.is_followed() {
                self.note(Fact::Changed(Change::Pod(diff)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Event, ObjectKey};
    use crate::model::{GodelPod, Object, ObjectKind, Pod, Reservation, node, pod};
    use crate::snapshot::GodelConfig;
    use crate::state::CommitPolicy;

    fn reserving(n: usize) -> Pod {
        let godel = GodelPod { reserves: true, ..GodelPod::default() };
        let web = pod(format!("p{n}")).label("name", "web");
        web.spec(|spec| spec.godel = Some(Box::new(godel))).on("n").build()
    }

    /// Clocks of reservations that were confirmed or removed are pruned, whether or not the log ever mentions a time;
    /// clocks of held reservations are kept.
    #[test]
    fn stopped_clocks_are_pruned_without_expiry() {
        for ticks in [false, true] {
            let ttl = Some(Duration::from_secs(60));
            let config = GodelConfig { reservations: ttl, ..GodelConfig::new("godel") };
            let mut state = State::new(None, CommitPolicy::Unchecked).with_godel(config);
            let mut apply = |event| drop(state.apply(&event).unwrap());
            apply(Event::AddNode(Arc::new(node("n").build())));
            for n in 0..2_000 {
                let gone = reserving(n);
                apply(Event::AddPod(Arc::new(gone.clone())));
                apply(Event::RemovePod { uid: gone.uid.clone(), node: None });
                if n == 7 {
                    continue;
                }
                apply(Event::PutObject(Object::from(Reservation::of(&gone))));
                apply(Event::DeleteObject(Arc::new(ObjectKey {
                    kind: ObjectKind::Reservation,
                    namespace: "default".into(),
                    name: gone.name.to_string(),
                })));
                if ticks {
                    let (uid, now) = (gone.uid, Timestamp::from_secs(0));
                    apply(Event::FinishBinding { uid, now });
                }
            }
            assert!(state.places.len() <= 2 + PRUNE_THRESHOLD, "{} clocks", state.places.len());
            let mut expire = |at| {
                let event = Event::Expire(Timestamp::from_secs(at));
                state.apply(&event).unwrap().removed
            };
            assert_eq!((expire(0), expire(60), expire(61)), (0, 0, 1));
        }
    }
}
