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
use crate::snapshot::draft::Effect;

use super::lifecycle::{Observer, State};

/// When places expire, by number.
#[derive(Debug, Default)]
pub(super) struct PlaceClocks {
    /// None: they never do.
    ttl: Option<Duration>,
    /// Those whose clock has not started.
    waiting: Vec<u32>,
    by_deadline: BTreeSet<(Timestamp, u32)>,
}

impl PlaceClocks {
    pub(super) fn new(ttl: Option<Duration>) -> PlaceClocks {
        PlaceClocks { ttl: ttl.filter(|ttl| !ttl.is_zero()), ..PlaceClocks::default() }
    }

    /// It is `now`. O(places whose clock starts × log n).
    pub(super) fn tick(&mut self, now: Timestamp) {
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
    pub(super) fn expire_places(&mut self, now: Timestamp) -> usize {
        self.places.tick(now);
        let mut expired = 0;
        while let Some(number) = self.places.pop(now) {
            expired += usize::from(self.draft.expire_place(number));
        }
        expired
    }

    /// Tells of the pods that came and went because places were held or given up.
    pub(super) fn tell_effects(&mut self, observer: &mut impl Observer) {
        let generation = self.cluster().generation();
        for effect in self.draft.take_effects() {
            let diff = match effect {
                Effect::Held { pod, waits } => {
                    if let Some(number) = waits {
                        self.places.wait(number);
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
