//! What the queue says of itself by plugin and by event (kube-scheduler's
//! `unschedulable_pods` and `inflight_events`). Found by looking, so that nothing is
//! counted while pods move.

use std::collections::BTreeMap;

use crate::model::Name;

use super::in_flight::Happening;
use super::{Place, SchedulingQueue};

impl SchedulingQueue {
    /// How many pods that wait were last rejected, or are kept from queueing, by which
    /// plugin, by the name of the scheduler and the plugin. A pod counts for each of its
    /// plugins. O(pods that were ever there).
    #[must_use]
    pub fn rejections(&self) -> BTreeMap<(Name, &'static str), usize> {
        let mut found = BTreeMap::new();
        for entry in (0..self.pods.most()).filter_map(|slot| self.pods.get(slot)) {
            if !Place::QUEUES.contains(&entry.place) {
                continue;
            }
            let framework = &self.profiles[entry.profile].framework;
            let scheduler = &entry.queued.pod.template.scheduler_name;
            let scheduler = scheduler.clone().unwrap_or_else(|| "default-scheduler".into());
            for plugin in framework.plugin_names(entry.queued.rejectors()) {
                *found.entry((scheduler.clone(), plugin)).or_insert(0) += 1;
            }
        }
        found
    }

    /// How many events of each kind are kept for pods that are being tried. O(events).
    #[must_use]
    pub fn events_in_flight(&self) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        for happening in self.in_flight.since(0) {
            *found.entry(Happening::cause(happening).to_string()).or_insert(0) += 1;
        }
        found
    }
}
