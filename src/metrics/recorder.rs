//! The recorder of one profile's cycles.
//!
//! A histogram is looked up by its labels only once and then cached: by step and outcome in a table, and by plugin in a
//! map whose keys need no allocated strings.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use hashbrown::HashMap;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use crate::framework::{
    Actions, AttemptResult, Code, Evaluations, EventResource, Hint, Measurement, Recorder, Step,
};

use super::families::Families;

/// The number of attempts from which all share one label (`getAttemptsLabel`).
const MANY_ATTEMPTS: u32 = 15;

/// The number of steps, and of outcomes per step; success comes first.
const STEPS: usize = Step::PostBind as usize + 1;
const OUTCOMES: usize = Code::Pending as usize + 2;

const RESULTS: usize = AttemptResult::Error as usize + 1;

type Plugins = HashMap<(&'static str, Step, Option<Code>), Histogram, foldhash::fast::RandomState>;

pub(super) struct ProfileRecorder {
    families: Arc<Families>,
    profile: Cow<'static, str>,
    attempts: [OnceLock<(Counter, Histogram)>; RESULTS],
    steps: [[OnceLock<Histogram>; OUTCOMES]; STEPS],
    plugins: RwLock<Plugins>,
}

fn status(outcome: Option<Code>) -> &'static str {
    outcome.map_or("Success", Code::as_str)
}

impl ProfileRecorder {
    pub(super) fn new(families: Arc<Families>, profile: &str) -> ProfileRecorder {
        ProfileRecorder {
            families,
            profile: Cow::Owned(profile.to_owned()),
            attempts: Default::default(),
            steps: Default::default(),
            plugins: RwLock::default(),
        }
    }

    fn step(&self, step: Step, outcome: Option<Code>, took: f64) {
        if step == Step::PostFilter {
            self.families.preemption_attempts.inc();
        }
        let at = outcome.map_or(0, |code| code as usize + 1);
        let histogram = self.steps[step as usize][at].get_or_init(|| {
            let labels = [
                ("extension_point", step.as_str().into()),
                ("status", status(outcome).into()),
                ("profile", self.profile.clone()),
            ];
            self.families.point_duration.get_or_create(&labels).clone()
        });
        histogram.observe(took);
    }

    fn plugin(&self, key: (&'static str, Step, Option<Code>), took: f64) {
        let (plugin, step, outcome) = key;
        let known = self.plugins.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(histogram) = known.get(&key) {
            return histogram.observe(took);
        }
        drop(known);
        let labels = [
            ("plugin", plugin.into()),
            ("extension_point", step.as_str().into()),
            ("status", status(outcome).into()),
        ];
        let histogram = self.families.plugin_duration.get_or_create(&labels).clone();
        histogram.observe(took);
        self.plugins.write().unwrap_or_else(PoisonError::into_inner).insert(key, histogram);
    }

    fn attempt(&self, result: AttemptResult, took: f64) {
        let (count, duration) = self.attempts[result as usize].get_or_init(|| {
            let labels = [("result", result.as_str().into()), ("profile", self.profile.clone())];
            let Families { attempts, attempt_duration, .. } = &*self.families;
            let duration = attempt_duration.get_or_create(&labels).clone();
            (attempts.get_or_create(&labels).clone(), duration)
        });
        count.inc();
        duration.observe(took);
    }
}

impl Recorder for ProfileRecorder {
    fn record(&self, what: Measurement, took: Duration) {
        let families = &*self.families;
        let took = took.as_secs_f64();
        match what {
            Measurement::Step(step, outcome) => self.step(step, outcome, took),
            Measurement::Plugin(plugin, step, outcome) => {
                self.plugin((plugin, step, outcome), took)
            }
            Measurement::Algorithm => families.algorithm_duration.observe(took),
            Measurement::Attempt(result) => self.attempt(result, took),
            Measurement::Scheduled { attempts, was_flushed } => {
                families.pod_attempts.observe(f64::from(attempts));
                let attempts = match attempts {
                    MANY_ATTEMPTS.. => format!("{MANY_ATTEMPTS}+"),
                    attempts => attempts.to_string(),
                };
                let labels = [("attempts", attempts.into())];
                families.pod_duration.get_or_create(&labels).observe(took);
                if was_flushed {
                    families.after_flush.inc();
                }
            }
            Measurement::PermitWait(outcome) => {
                let labels = [("result", status(outcome).into())];
                families.permit_wait.get_or_create(&labels).observe(took);
            }
            Measurement::Event(resource, action) => {
                let labels = [("event", label(resource, action))];
                families.event_duration.get_or_create(&labels).observe(took);
            }
            Measurement::Hint(plugin, (resource, action), hint) => {
                let hint = match hint {
                    Hint::Queue => "Queue",
                    Hint::Skip => "QueueSkip",
                };
                let event = ("event", label(resource, action));
                let labels = [("plugin", plugin.into()), event, ("hint", hint.into())];
                families.hint_duration.get_or_create(&labels).observe(took);
            }
        }
    }

    fn evaluations(&self, plugin: &'static str, step: Step) -> Option<Evaluations> {
        let labels = [
            ("plugin", plugin.into()),
            ("extension_point", step.as_str().into()),
            ("profile", self.profile.clone()),
        ];
        Some(self.families.evaluations.get_or_create(&labels).inner().clone())
    }
}

/// Returns kube-scheduler's label of an event, such as `NodeAdd` or `AssignedPodDelete`.
fn label(resource: EventResource, action: Actions) -> Cow<'static, str> {
    format!("{}{action}", resource.as_str()).into()
}
