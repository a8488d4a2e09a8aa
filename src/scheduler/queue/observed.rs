//! Figures by plugin and by event (kube-scheduler's `unschedulable_pods` and `inflight_events`). They are computed on
//! demand, so that moving pods costs nothing extra.

use std::collections::BTreeMap;

use crate::model::Name;

use super::in_flight::QueueEvent;
use super::{Place, SchedulingQueue};

impl SchedulingQueue {
    /// Counts the waiting pods that each plugin last rejected or gates, by scheduler name and plugin. A pod counts once
    /// for each of its plugins. O(largest number of pods ever queued).
    #[must_use]
    pub(crate) fn rejections(&self) -> BTreeMap<(Name, &'static str), usize> {
        let mut found = BTreeMap::new();
        for entry in (0..self.pods.slot_bound()).filter_map(|slot| self.pods.get(slot)) {
            if !Place::QUEUES.contains(&entry.place) {
                continue;
            }
            let framework = &self.profiles[entry.profile].framework;
            let scheduler = Name::from(entry.queued.pod.scheduler_name());
            for plugin in framework.plugin_names(entry.queued.rejectors()) {
                *found.entry((scheduler.clone(), plugin)).or_insert(0) += 1;
            }
        }
        found
    }

    /// Counts the events kept for pods in flight, by their label. O(events).
    #[must_use]
    pub(crate) fn events_in_flight(&self) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        for recorded in self.in_flight.all() {
            *found.entry(QueueEvent::cause(recorded).to_string()).or_insert(0) += 1;
        }
        found
    }
}
