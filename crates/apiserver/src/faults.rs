//! Fault injection: rules that select requests or events of watches, and the effect on each.
//!
//! A rule counts its matches and fires depending on the count or on a seeded probability. The same requests in the same
//! order therefore have the same faults. If several rules fire, the first one applies. All matching rules count.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;

use crate::error::ApiError;
use crate::random;

/// The effect of a fault.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Effect {
    /// The server responds with this error and does nothing else.
    Answer(ApiError),
    /// The server performs the request and responds with this error, as after a timeout of etcd.
    AnswerAfter(ApiError),
    /// A watch gets 200 and an ERROR line with this error, and ends. Other requests are not affected.
    AnswerLine(ApiError),
    /// The server waits before it performs the request.
    Delay(Duration),
    /// The server never responds and does not perform the request.
    HangBefore,
    /// The server performs the request but never responds.
    HangAfter,
    /// The server resets the connection and does not perform the request.
    ResetBefore,
    /// The server performs the request and resets the connection.
    ResetAfter,
    /// The connection is reset after this number of bytes of the response body.
    CutBody(usize),
    /// The stream ends before the event.
    EndStream,
    /// The connection is reset before the event.
    ResetStream,
    /// The event and all later events are delayed.
    DelayEvent(Duration),
    /// The event is sent twice.
    DuplicateEvent,
    /// The stream ends after the first half of the event's line.
    TruncateEvent,
    /// An ERROR line with this error replaces the event, and the stream ends.
    EventError(ApiError),
}

impl Effect {
    /// 429 with `Retry-After`, as from API priority and fairness.
    pub fn too_many_requests(seconds: u64) -> Self {
        Effect::Answer(ApiError::too_many_requests(seconds))
    }

    /// 500.
    pub fn internal_error() -> Self {
        Effect::Answer(internal_error())
    }

    /// 503.
    pub fn unavailable() -> Self {
        Effect::Answer(ApiError::new(
            503,
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ))
    }

    /// 410 as an HTTP status.
    pub fn gone() -> Self {
        Effect::Answer(expired())
    }

    /// 200 and an ERROR line with 410 as the first event of a watch.
    pub fn gone_line() -> Self {
        Effect::AnswerLine(expired())
    }

    /// An ERROR line with 410 that replaces an event of a running watch.
    pub fn gone_event() -> Self {
        Effect::EventError(expired())
    }

    /// 409, as after a concurrent update.
    pub fn conflict() -> Self {
        let message =
            "the object has been modified; please apply your changes to the latest version and try again".to_owned();
        Effect::Answer(ApiError { details: json!({}), ..ApiError::new(409, "Conflict", message) })
    }

    /// 504 after the request was performed.
    pub fn timeout_after() -> Self {
        let message = "request did not complete within the allotted timeout";
        Effect::AnswerAfter(ApiError::new(504, "Timeout", message))
    }

    /// 500 after the request was performed.
    pub fn internal_error_after() -> Self {
        Effect::AnswerAfter(internal_error())
    }

    fn of_events(&self) -> bool {
        matches!(
            self,
            Effect::EndStream
                | Effect::ResetStream
                | Effect::DelayEvent(_)
                | Effect::DuplicateEvent
                | Effect::TruncateEvent
                | Effect::EventError(_)
        )
    }
}

fn internal_error() -> ApiError {
    ApiError::new(500, "InternalError", "Internal error occurred: injected fault")
}

fn expired() -> ApiError {
    ApiError::expired("too old resource version: injected fault")
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Always,
    Nth(u64),
    Every(u64),
    Probability(f64),
}

/// A rule: which requests or events it matches, when it fires, and its effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    verb: Option<String>,
    resource: Option<String>,
    name: Option<String>,
    when: When,
    limit: u64,
    effect: Effect,
}

impl Fault {
    /// A rule that fires on every request. If the effect concerns events of watches, it fires on every event.
    pub fn new(effect: Effect) -> Self {
        Fault {
            verb: None,
            resource: None,
            name: None,
            when: When::Always,
            limit: u64::MAX,
            effect,
        }
    }

    /// Matches only this verb: get, list, watch, create, update, patch or delete.
    pub fn verb(self, verb: &str) -> Self {
        Fault { verb: Some(verb.to_owned()), ..self }
    }

    /// Matches only this resource or subresource: `pods`, `pods/binding`, `leases`.
    pub fn resource(self, resource: &str) -> Self {
        Fault { resource: Some(resource.to_owned()), ..self }
    }

    /// Matches only this object name. For an event, it is the name of the event's object.
    pub fn name(self, name: &str) -> Self {
        Fault { name: Some(name.to_owned()), ..self }
    }

    /// Fires on the `n`th match, counted from 1.
    pub fn nth(self, n: u64) -> Self {
        Fault { when: When::Nth(n), ..self }
    }

    /// Fires on every `n`th match.
    pub fn every(self, n: u64) -> Self {
        Fault { when: When::Every(n), ..self }
    }

    /// Fires on each match with this probability, from 0 to 1.
    pub fn probability(self, probability: f64) -> Self {
        Fault { when: When::Probability(probability), ..self }
    }

    /// Fires at most this number of times.
    pub fn limit(self, limit: u64) -> Self {
        Fault { limit, ..self }
    }

    fn matches(&self, facts: &Facts<'_>) -> bool {
        let is = |wanted: &Option<String>, value: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == value)
        };
        is(&self.verb, facts.verb)
            && is(&self.resource, facts.resource)
            && is(&self.name, facts.name)
    }
}

/// The properties of a request or an event that rules compare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) verb: &'a str,
    /// With the subresource.
    pub(crate) resource: &'a str,
    pub(crate) name: &'a str,
}

#[derive(Debug)]
struct Rule {
    fault: Fault,
    seen: u64,
    fired: u64,
}

/// The rules in force.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    rules: Mutex<(u64, Vec<Rule>)>,
    any: AtomicBool,
}

impl Plan {
    fn lock(&self) -> MutexGuard<'_, (u64, Vec<Rule>)> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, seed: u64, faults: Vec<Fault>) {
        self.any.store(!faults.is_empty(), Ordering::Release);
        let rules = faults.into_iter().map(|fault| Rule { fault, seen: 0, fired: 0 }).collect();
        *self.lock() = (seed, rules);
    }

    /// The number of times each rule has fired.
    pub(crate) fn fired(&self) -> Vec<u64> {
        self.lock().1.iter().map(|rule| rule.fired).collect()
    }

    pub(crate) fn of_request(&self, facts: Facts<'_>) -> Option<Effect> {
        self.find(facts, false)
    }

    pub(crate) fn of_event(&self, facts: Facts<'_>) -> Option<Effect> {
        self.find(facts, true)
    }

    fn find(&self, facts: Facts<'_>, of_events: bool) -> Option<Effect> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut found = None;
        let (seed, rules) = &mut *self.lock();
        for (index, rule) in rules.iter_mut().enumerate() {
            let fault = &rule.fault;
            if fault.effect.of_events() != of_events || !fault.matches(&facts) {
                continue;
            }
            rule.seen += 1;
            let fires = match fault.when {
                When::Always => true,
                When::Nth(n) => rule.seen == n,
                When::Every(n) => n != 0 && rule.seen.is_multiple_of(n),
                When::Probability(probability) => {
                    random::unit(random::mix(*seed ^ index as u64), rule.seen) < probability
                }
            };
            if fires && found.is_none() && rule.fired < fault.limit {
                rule.fired += 1;
                found = Some(fault.effect.clone());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIND: Facts<'_> = Facts { verb: "create", resource: "pods/binding", name: "p" };

    /// The matches at which the rule fires, and its own count.
    fn fires(fault: Fault, seed: u64, times: u64) -> Vec<u64> {
        let plan = Plan::default();
        plan.set(seed, vec![fault]);
        let mut fires: Vec<u64> = (1..=times).filter(|_| plan.of_request(BIND).is_some()).collect();
        fires.extend(plan.fired());
        fires
    }

    #[test]
    fn rules_fire_by_count() {
        let fault = || Fault::new(Effect::HangBefore).verb("create").resource("pods/binding");
        assert_eq!(fires(fault().nth(3), 0, 9), [3, 1]);
        assert_eq!(fires(fault().every(4), 0, 9), [4, 8, 2]);
        assert_eq!(fires(fault().limit(2), 0, 9), [1, 2, 2]);
        assert_eq!(fires(fault().name("q"), 0, 9), [0]);
        assert_eq!(fires(fault().name("p").limit(1), 0, 9), [1, 1]);
    }

    #[test]
    fn probability_follows_the_seed() {
        let fault = || Fault::new(Effect::HangBefore).probability(0.25);
        let (one, two) = (fires(fault(), 1, 10_000), fires(fault(), 2, 10_000));
        assert_eq!(one, fires(fault(), 1, 10_000));
        assert_ne!(one, two);
        assert!((2_300..2_700).contains(&one.len()), "{}", one.len());
    }

    #[test]
    fn effects_on_events_do_not_apply_to_requests() {
        let plan = Plan::default();
        plan.set(0, vec![Fault::new(Effect::EndStream), Fault::new(Effect::HangAfter)]);
        assert_eq!(plan.of_request(BIND), Some(Effect::HangAfter));
        assert_eq!(plan.of_event(BIND), Some(Effect::EndStream));
        assert_eq!(plan.fired(), [1, 1]);
    }

    #[test]
    fn the_first_rule_wins_and_the_others_count() {
        let plan = Plan::default();
        plan.set(
            0,
            vec![Fault::new(Effect::HangAfter).nth(1), Fault::new(Effect::HangBefore).nth(2)],
        );
        assert_eq!(plan.of_request(BIND), Some(Effect::HangAfter));
        assert_eq!(plan.of_request(BIND), Some(Effect::HangBefore));
        assert_eq!(plan.of_request(BIND), None);
        plan.set(0, vec![Fault::new(Effect::HangAfter), Fault::new(Effect::HangBefore)]);
        assert_eq!(plan.of_request(BIND), Some(Effect::HangAfter));
        assert_eq!(plan.fired(), [1, 0]);
    }
}
