//! The scheduling threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use portolan::scheduler::SchedulingLoop;
use portolan::scheduler::queue::PopError;

use super::binding::{Counts, Dispatch};
use super::live::TICK;
use super::threads::{Alarm, now};
use crate::write::{Failure, Writes};

/// A scheduling thread.
pub(super) struct Worker {
    pub(super) scheduling: SchedulingLoop,
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) writes: Writes,
    pub(super) counts: Arc<Counts>,
    pub(super) alarm: Alarm,
}

impl Worker {
    /// Schedules pods until the scheduler stops or the queue is closed.
    pub(super) fn run(mut self) {
        while !self.alarm.is_stopping() {
            let attempt = match self.scheduling.schedule_one(Some(Instant::now() + TICK), now) {
                Ok(attempt) => attempt,
                Err(PopError::Timeout) => {
                    self.dispatch.grow();
                    continue;
                }
                Err(_) => return,
            };
            let (placed, failed) = attempt.into_parts();
            // See `Counts`.
            self.counts.placed.fetch_add(placed.len() as u64, Ordering::Relaxed);
            self.counts.failed.fetch_add(failed.len() as u64, Ordering::Relaxed);
            for placement in placed {
                self.dispatch.bind(&mut self.scheduling, placement);
            }
            for unplaced in failed {
                // Its shard was given up during the attempt.
                if self.dispatch.is_foreign(&unplaced.pod) {
                    continue;
                }
                if let Some(failure) = Failure::of_cycle(&unplaced.error) {
                    self.writes.status().report_failure(&unplaced.pod, failure);
                }
            }
        }
    }
}
