//! Loading: pods that are added in a row, most of them new.
//!
//! Runs of new pods are placed at once ([`Draft::place_many`](crate::snapshot::draft::Draft)), and the pods
//! between them one by one. Looking up a run that turns out to be short is wasted work, so runs start short and grow
//! while they succeed.

use std::borrow::Borrow;
use std::sync::Arc;

use crate::log::{Applied, Event};
use crate::model::Pod;
use crate::snapshot::draft::{Filling, Generations, MAX_RUN, Threads};

use super::lifecycle::State;

/// The largest number of pods that are placed at once.
pub(crate) const LONGEST_RUN: usize = MAX_RUN;

/// The length of the first run, and of the one after a run that ended early. Shorter runs are not worth it.
const SHORTEST_RUN: usize = 256;

/// The largest number of pods that are added one by one before the next run is tried.
const LONGEST_PAUSE: usize = 4096;

/// The progress of a load, in pods.
pub(crate) struct Load {
    pub(super) filling: Filling,
    /// The length of the next run.
    run: usize,
    /// The number of pods to be added one by one before that.
    singles: usize,
    pause: usize,
}

impl Load {
    /// Records that a run of this length placed `placed` pods.
    fn ran(&mut self, len: usize, placed: usize) {
        if placed == len {
            (self.run, self.pause) = ((2 * self.run).min(LONGEST_RUN), 0);
            return;
        }
        self.run = SHORTEST_RUN;
        self.pause = if placed > 0 { 0 } else { (2 * self.pause + 1).min(LONGEST_PAUSE) };
        // A run that placed nothing is followed by its first pod, alone.
        self.singles = if placed > 0 { 1 } else { self.pause };
    }
}

impl State {
    /// Starts a load. Nothing else may be applied until it ends. O(chunks), or O(1) if there are no pods.
    pub(crate) fn begin_load(&self, threads: Threads) -> Load {
        let filling = Filling::of(self.cluster(), threads);
        Load { filling, run: SHORTEST_RUN, singles: 0, pause: 0 }
    }

    /// Returns whether a load uses several threads.
    pub(crate) fn loads_in_parallel(&self) -> bool {
        self.draft.places_many()
    }

    /// Adds pods, each as an [`Event::AddPod`] of its own. O(pods × log n).
    pub(crate) fn load_pods(&mut self, pods: &[Arc<Pod>], load: &mut Load, applied: &mut Applied) {
        let mut at = 0;
        while let Some(pod) = pods.get(at) {
            let first = Generations::From(self.generation.next());
            let placed = self.counted(|state| state.place_run(&pods[at..], first, load));
            if placed > 0 {
                at += placed;
                applied.added += placed;
                self.generation = self.cluster().generation();
                continue;
            }
            match self.apply(&Event::AddPod(pod.clone())) {
                Ok(one) => {
                    applied.added += one.added;
                    applied.updated += one.updated;
                }
                Err(why) => {
                    applied.rejected.push((format!("pod {}", pod.key()), why));
                }
            }
            load.filling.count(pod);
            at += 1;
        }
    }

    /// Places a run of new pods at the start of `pods`, and returns their number. If it is 0, the first pod is to be
    /// added alone, and counted by [`Filling::count`].
    pub(super) fn place_run<P: Borrow<Pod> + Sync>(
        &mut self,
        pods: &[P],
        generations: Generations,
        load: &mut Load,
    ) -> usize {
        let len = load.run.min(pods.len());
        if load.singles > 0 || len < SHORTEST_RUN {
            load.singles = load.singles.saturating_sub(1);
            return 0;
        }
        let placed = self.draft.place_many(&pods[..len], generations, &mut load.filling);
        load.ran(len, placed);
        if self.followers.is_followed() {
            for (at, pod) in pods[..placed].iter().enumerate() {
                self.draft.begin(generations.of(at));
                self.note_placed(pod.borrow());
            }
        }
        placed
    }
}
