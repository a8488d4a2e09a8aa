//! How long places are held that no Reservation confirms.
//!
//! Events that take a pod away say no time, so a place's clock starts with the first
//! time that the log tells after it: it is held for its time at least, and for one
//! sweep longer at most, in every replay for the same.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::log::Fact;
use crate::model::{Change, Diff, Timestamp};
use crate::snapshot::Reservations;
use crate::snapshot::draft::Effect;

use crate::state::lifecycle::{Observer, State};

/// So many clocks are no reason to look which of them still run.
const FEW: usize = 64;

/// When places expire, by number.
#[derive(Debug, Default)]
pub(in crate::state) struct PlaceClocks {
    /// None: they never do.
    ttl: Option<Duration>,
    /// Those whose clock has not started.
    waiting: Vec<u32>,
    by_deadline: BTreeSet<(Timestamp, u32)>,
}

impl PlaceClocks {
    pub(in crate::state) fn new(ttl: Option<Duration>) -> PlaceClocks {
        PlaceClocks { ttl: ttl.filter(|ttl| !ttl.is_zero()), ..PlaceClocks::default() }
    }

    /// It is `now`. O(places whose clock starts × log n).
    pub(in crate::state) fn tick(&mut self, now: Timestamp) {
        let Some(ttl) = self.ttl else { return };
        let ttl = i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX);
        let deadline = Timestamp(now.0.saturating_add(ttl));
        self.by_deadline.extend(self.waiting.drain(..).map(|number| (deadline, number)));
    }

    fn wait(&mut self, number: u32) {
        if self.ttl.is_some() {
            self.waiting.push(number);
        }
    }

    /// How many places have a clock, those that are gone among them.
    fn len(&self) -> usize {
        self.waiting.len() + self.by_deadline.len()
    }

    /// Forgets clocks of places that are gone or confirmed, once they are more than half.
    /// O(clocks), and O(1) for each clock that was started since the last time.
    fn prune(&mut self, places: &Reservations) {
        if self.len() <= 2 * places.len() + FEW {
            return;
        }
        let runs = |number: &u32| places.at(*number).is_some_and(|place| !place.confirmed);
        self.waiting.retain(runs);
        self.by_deadline.retain(|(_, number)| runs(number));
    }

    /// A place whose time had passed before `now`.
    fn pop(&mut self, now: Timestamp) -> Option<u32> {
        let (deadline, number) = *self.by_deadline.first()?;
        (deadline < now).then(|| {
            self.by_deadline.pop_first();
            number
        })
    }
}

impl State {
    /// Drops the places whose time has passed, and says how many were still held.
    pub(in crate::state) fn expire_places(&mut self, now: Timestamp) -> usize {
        self.places.tick(now);
        let mut expired = 0;
        while let Some(number) = self.places.pop(now) {
            expired += usize::from(self.draft.expire_place(number));
        }
        expired
    }

    /// Tells of the pods that came and went because places were held or given up.
    pub(in crate::state) fn tell_effects(&mut self, observer: &mut impl Observer) {
        let generation = self.cluster().generation();
        for effect in self.draft.take_effects() {
            let diff = match effect {
                Effect::Held { pod, waits } => {
                    if let Some(number) = waits {
                        self.places.wait(number);
                        if let Some(places) = self.draft.cluster.reservations() {
                            self.places.prune(places);
                        }
                    }
                    if let Some(known) = self.draft.pod(&pod.uid) {
                        observer.placed(&pod, known.spot().slot, false);
                    }
                    Diff { old: None, new: Some(Arc::new(pod)) }
                }
                Effect::Freed(pod) => {
                    observer.gone(&pod.uid);
                    Diff { old: Some(Arc::new(pod)), new: None }
                }
            };
            if observer.takes_notes() {
                observer.note(generation, Fact::Changed(Change::Pod(diff)));
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

    /// Clocks of places that are confirmed and gone are forgotten, whether or not the log
    /// ever tells the time; those of places that are still held are not.
    #[test]
    fn clocks_are_as_many_as_places_where_nobody_expires() {
        for ticks in [false, true] {
            let ttl = Some(Duration::from_secs(60));
            let config = GodelConfig { reservations: ttl, ..GodelConfig::new("godel") };
            let mut state = State::new(None, CommitPolicy::Unchecked).with_godel(config);
            let mut apply = |event| drop(state.apply(&event, &mut ()).unwrap());
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
            assert!(state.places.len() <= 2 + FEW, "{} clocks", state.places.len());
            let mut expire = |at| {
                let event = Event::Expire(Timestamp::from_secs(at));
                state.apply(&event, &mut ()).unwrap().removed
            };
            assert_eq!((expire(0), expire(60), expire(61)), (0, 0, 1));
        }
    }
}
