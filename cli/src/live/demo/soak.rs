//! `--for` and `--faults`: a steady phase in which the number of objects does not grow, on an API server that fails.
//!
//! Each new pod replaces the oldest one. Every tenth pod fits on no node, waits in the queue with the last of its kind,
//! and is deleted there. Memory and queues must therefore be flat: the median of the samples of the last quarter may
//! exceed the median of the second quarter by a share and a slack. The first quarter warms up: caches and records of
//! bounded size are filled. A leak of a few bytes for each pod needs a run of many minutes to exceed the slack.

use std::collections::VecDeque;
use std::time::Duration;

use portolan_apiserver::{ApiError, ApiServer, Effect, Fault};
use portolan_kube::process::LiveScheduler;
use serde_json::{Value, json};

use crate::alloc;
use crate::table;

use super::tally::Tally;
use super::{name, pod};

/// The shortest soak: each quarter has two samples.
pub(super) const SHORTEST: Duration = Duration::from_secs(8);
/// The time between two samples.
pub(super) const EVERY: Duration = Duration::from_secs(1);
/// The number of events in the watch cache of each kind, for each pod per second: those of about four seconds.
pub(super) const WATCH_CACHE: usize = 20;
/// One pod in this number fits on no node.
const MISFIT_ONE_IN: usize = 10;
/// The number of pods that fit on no node, at most.
const MISFITS: usize = 10;
/// The number of event objects on the server. kube-apiserver deletes them after an hour.
const EVENTS: usize = 200;
/// The number of pods that are examined to find one that is bound.
const EXAMINED: usize = 16;
/// The number of samples before the first disruption of all connections.
const FIRST_DISRUPTION: usize = 5;
/// The number of samples between two disruptions. A watch that fails again within 120 seconds waits longer, up to 30
/// seconds (client-go), and more frequent disruptions would measure this pause.
const DISRUPTED_ONE_IN: usize = 150;
/// How long the API server refuses connections during a restart.
const DOWN: Duration = Duration::from_millis(300);

/// The pods of the steady phase, and the measurements.
pub(super) struct Soak<'s> {
    server: &'s ApiServer,
    has_faults: bool,
    present: VecDeque<usize>,
    /// The number of pods on the server while all of them are bound in time.
    most: usize,
    misfits: VecDeque<usize>,
    samples: Vec<Sample>,
    disruptions: usize,
}

/// One measurement.
struct Sample {
    /// Bytes in use on the heap.
    live: u64,
    /// Bytes of the process in memory.
    resident: u64,
    /// Pods that the queue knows.
    queued: u64,
    /// Events of the cluster that the queue keeps for the pods in flight.
    kept: u64,
    /// Conditions and events that wait or are being written.
    unwritten: u64,
}

impl<'s> Soak<'s> {
    /// Begins after the backlog of this number of pods.
    pub(super) fn begin(server: &'s ApiServer, backlog: usize, has_faults: bool) -> Soak<'s> {
        if has_faults {
            server.set_faults(0, faults());
        }
        Soak {
            server,
            has_faults,
            present: (0..backlog).collect(),
            most: backlog,
            misfits: VecDeque::new(),
            samples: Vec::new(),
            disruptions: 0,
        }
    }

    /// Creates a pod, and deletes older ones of the same size. While the scheduler sees no new pods, there may be no
    /// bound one to delete, so that the number of pods grows; later, more are deleted than created.
    pub(super) fn replace(&mut self, n: usize, tally: &Tally) -> Result<(), ApiError> {
        let now = json!({"gracePeriodSeconds": 0});
        let delete = |name: &str| self.server.delete("Pod", "default", name, &now).map(drop);
        if n.is_multiple_of(MISFIT_ONE_IN) {
            self.server.create(&misfit(n))?;
            self.misfits.push_back(n);
            return match self.misfits.pop_front() {
                Some(oldest) if self.misfits.len() >= MISFITS => delete(&misfit_name(oldest)),
                Some(oldest) => {
                    self.misfits.push_front(oldest);
                    Ok(())
                }
                None => Ok(()),
            };
        }
        self.server.create(&pod(n))?;
        self.present.push_back(n);
        for _ in 0..EXAMINED {
            if self.present.len() <= self.most {
                break;
            }
            let Some(oldest) = self.present.pop_front() else { break };
            match tally.is_bound(oldest) {
                true => delete(&name(oldest))?,
                // A pod that is never bound stays and is counted as lost.
                false => self.present.push_back(oldest),
            }
        }
        Ok(())
    }

    /// Takes a sample, deletes old events, and disrupts connections now and then.
    pub(super) fn sample(
        &mut self,
        scheduler: &LiveScheduler,
        unwritten: usize,
        tally: &mut Tally,
    ) -> Result<(), std::io::Error> {
        for name in tally.old_events(EVENTS) {
            // An event of another namespace than the pods' would stay, and memory would grow.
            let _ = self.server.delete("Event", "default", &name, &Value::Null);
        }
        let queue = scheduler.schedulers().queue().with(|queue, _| queue.figures());
        self.samples.push(Sample {
            live: u64::try_from(alloc::live_bytes()).unwrap_or(0),
            resident: alloc::resident_bytes(),
            queued: queue.pods() as u64,
            kept: queue.in_flight_events as u64,
            unwritten: unwritten as u64,
        });
        if !self.has_faults || self.samples.len() % DISRUPTED_ONE_IN != FIRST_DISRUPTION {
            return Ok(());
        }
        self.disruptions += 1;
        match self.disruptions % 3 {
            0 => return self.server.restart(DOWN),
            // Watches that continue from an older version get 410, and all objects are listed again.
            1 => self.server.forget_events(),
            _ => {}
        }
        self.server.reset_connections();
        Ok(())
    }

    /// Ends the measurements and the faults.
    pub(super) fn end(self) -> Soaked {
        let faults = self.server.faults_fired().iter().sum::<u64>();
        self.server.set_faults(0, Vec::new());
        Soaked { faults: faults + self.disruptions as u64, growths: growths(&self.samples) }
    }
}

/// The result of a soak.
pub(super) struct Soaked {
    /// The number of faults that were injected.
    faults: u64,
    growths: [Growth; 5],
}

impl Soaked {
    pub(super) fn is_flat(&self) -> bool {
        self.growths.iter().all(Growth::is_flat)
    }

    pub(super) fn text(&self) -> String {
        let header = ["median of a quarter of the run", "second", "last", "limit", ""];
        let mut table = table::right(table::plain(header), &[1, 2, 3]);
        for growth in &self.growths {
            let Growth { what, unit, before, after, most } = growth;
            let [before, after, most] = [before, after, most].map(|it| (it / unit).to_string());
            let verdict = if growth.is_flat() { "flat" } else { "GROWS" };
            table.add_row([*what, &before, &after, &most, verdict].map(str::to_owned));
        }
        format!("faults injected               {}\n\n{}", self.faults, table.trim_fmt())
    }

    pub(super) fn json(&self) -> Value {
        let growth = |growth: &Growth| {
            let Growth { what, before, after, most, .. } = growth;
            json!({"of": what, "second_quarter": before, "last_quarter": after, "limit": most})
        };
        json!({
            "faults": self.faults,
            "is_flat": self.is_flat(),
            "growth": self.growths.iter().map(growth).collect::<Vec<_>>(),
        })
    }
}

/// How much a measurement grew from the second quarter of the run to the last one.
struct Growth {
    what: &'static str,
    /// The unit of a table.
    unit: u64,
    before: u64,
    after: u64,
    most: u64,
}

impl Growth {
    /// `percent` and `slack` may be added to the median of the second quarter.
    fn new(
        what: &'static str,
        unit: u64,
        samples: &[Sample],
        of: impl Fn(&Sample) -> u64,
        (percent, slack): (u64, u64),
    ) -> Growth {
        let quarter = samples.len() / 4;
        let median = |samples: &[Sample]| {
            let mut values: Vec<u64> = samples.iter().map(&of).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or(0)
        };
        let before = median(&samples[quarter..2 * quarter]);
        let after = median(&samples[samples.len() - quarter..]);
        Growth { what, unit, before, after, most: before + before * percent / 100 + slack }
    }

    fn is_flat(&self) -> bool {
        self.after <= self.most
    }
}

fn growths(samples: &[Sample]) -> [Growth; 5] {
    const MIB: u64 = 1 << 20;
    // Resident memory has a wider limit, because the heap becomes fragmented.
    [
        Growth::new("heap (MiB)", MIB, samples, |it| it.live, (5, 16 * MIB)),
        Growth::new("resident memory (MiB)", MIB, samples, |it| it.resident, (10, 32 * MIB)),
        Growth::new("pods in the queue", 1, samples, |it| it.queued, (25, 25)),
        Growth::new("events in the queue", 1, samples, |it| it.kept, (25, 1_000)),
        Growth::new("unwritten conditions and events", 1, samples, |it| it.unwritten, (25, 500)),
    ]
}

/// The faults of the API server. Each request and each line of a watch succeeds much more often than it fails, so every
/// pod can be bound.
fn faults() -> Vec<Fault> {
    let bindings = [
        (Effect::too_many_requests(1), 97),
        (Effect::internal_error(), 61),
        (Effect::unavailable(), 67),
        (Effect::conflict(), 71),
        (Effect::timeout_after(), 73),
        (Effect::internal_error_after(), 79),
        (Effect::ResetBefore, 83),
        (Effect::ResetAfter, 89),
        (Effect::CutBody(20), 101),
        (Effect::Delay(Duration::from_millis(300)), 41),
        (Effect::HangAfter, 2_003),
    ];
    let reports = [
        (Effect::too_many_requests(1), 31),
        (Effect::unavailable(), 37),
        (Effect::internal_error_after(), 41),
        (Effect::ResetAfter, 43),
        (Effect::CutBody(20), 47),
    ];
    let gets = [(Effect::internal_error(), 5), (Effect::ResetBefore, 7)];
    // A list has many pages, and begins again when one of them is gone. Most lists succeed at once: the pause after a
    // failure grows up to a minute (client-go), and frequent failures would measure this pause.
    let lists = [(Effect::unavailable(), 211), (Effect::gone(), 997), (Effect::CutBody(99), 499)];
    // A list of nodes has few pages.
    let node_lists = [(Effect::unavailable(), 7), (Effect::gone(), 13), (Effect::CutBody(99), 11)];
    let watches = [
        (Effect::gone_line(), 5),
        (Effect::internal_error(), 29),
        (Effect::too_many_requests(1), 31),
        (Effect::ResetBefore, 37),
    ];
    let events = [
        (Effect::DuplicateEvent, 101),
        (Effect::DelayEvent(Duration::from_millis(50)), 307),
        (Effect::EndStream, 300_007),
        (Effect::gone_event(), 750_019),
        (Effect::ResetStream, 1_050_011),
        (Effect::TruncateEvent, 1_350_017),
    ];
    let of = |effects: &[(Effect, u64)], verb: &str, resource: &str| -> Vec<Fault> {
        let fault = |(effect, every): &(Effect, u64)| {
            Fault::new(effect.clone()).verb(verb).resource(resource).every(*every)
        };
        effects.iter().map(fault).collect()
    };
    [
        of(&bindings, "create", "pods/binding"),
        of(&reports, "patch", "pods/status"),
        of(&reports, "create", "events"),
        of(&gets, "get", "pods"),
        of(&lists, "list", "pods"),
        of(&node_lists, "list", "nodes"),
        of(&watches, "watch", "pods"),
        of(&watches, "watch", "nodes"),
        of(&events, "watch", "pods"),
    ]
    .concat()
}

fn misfit_name(n: usize) -> String {
    format!("misfit-{n:06}")
}

/// A pod that fits on no node because of its node selector. Each deletion of another pod would move a pod that lacks a
/// resource to the active queue, as in kube-scheduler, and the retries would use the processors.
fn misfit(n: usize) -> Value {
    let mut misfit = pod(n);
    misfit["metadata"]["name"] = json!(misfit_name(n));
    misfit["spec"]["nodeSelector"] = json!({"topology.kubernetes.io/zone": "none"});
    misfit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growing(by: impl Fn(u64) -> u64) -> bool {
        let sample = |at| Sample { live: 0, resident: 0, queued: by(at), kept: 0, unwritten: 0 };
        let samples: Vec<Sample> = (0..40).map(sample).collect();
        growths(&samples).iter().any(|growth| !growth.is_flat())
    }

    #[test]
    fn a_leak_grows_and_a_warm_up_or_an_outlier_does_not() {
        assert!(growing(|at| 20 + 2 * at));
        assert!(!growing(|at| 20 * at.min(10)), "the first quarter warms up");
        assert!(!growing(|at| if at == 38 { 10_000 } else { 20 }));
    }
}
