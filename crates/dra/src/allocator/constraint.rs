//! Constraints between the devices of a claim.

use std::sync::Arc;

use crate::model::{self, Attribute};

use super::plan::{Choice, RequestPlan};
use super::pools::Candidate;

/// A constraint on the devices of some requests.
pub(super) struct Constraint<'a> {
    requests: &'a [Arc<str>],
    attribute: &'a str,
    is_distinct: bool,
}

/// The values that a constraint has seen.
#[derive(Clone, Default)]
pub(super) struct Seen<'a> {
    /// `matchAttribute`: the common value, and the number of devices with it.
    common: Option<&'a Attribute>,
    devices: usize,
    /// `distinctAttribute`: the value of the last device of each request. As in kube-scheduler 1.36, the devices of one
    /// request are compared with the last one alone.
    last: Vec<(&'a str, &'a Attribute)>,
}

impl<'a> Constraint<'a> {
    /// Returns the constraint, or `None` if it names no attribute.
    pub(super) fn new(constraint: &'a model::Constraint) -> Option<Constraint<'a>> {
        let requests = &constraint.requests[..];
        let (attribute, is_distinct) =
            match (&constraint.match_attribute, &constraint.distinct_attribute) {
                (Some(attribute), _) => (attribute, false),
                (None, Some(attribute)) => (attribute, true),
                (None, None) => return None,
            };
        Some(Constraint { requests, attribute, is_distinct })
    }

    fn concerns(&self, request: &RequestPlan<'_>, choice: &Choice<'_>) -> bool {
        let named = |named: &Arc<str>| *named == request.request.name || *named == choice.full_name;
        self.requests.is_empty() || self.requests.iter().any(named)
    }

    /// Adds a device, and returns whether the constraint still holds. If it does not, nothing is added.
    pub(super) fn add(
        &self,
        seen: &mut Seen<'a>,
        (request, choice): (&RequestPlan<'a>, &Choice<'a>),
        candidate: &Candidate<'a>,
    ) -> bool {
        if !self.concerns(request, choice) {
            return true;
        }
        let Some(value) = attribute(candidate, self.attribute) else { return false };
        if self.is_distinct {
            if seen.last.iter().any(|(_, other)| *other == value) {
                return false;
            }
            let name = &*request.request.name;
            seen.last.retain(|(of, _)| *of != name);
            seen.last.push((name, value));
            return true;
        }
        if seen.devices > 0 && seen.common != Some(value) {
            return false;
        }
        seen.common = Some(value);
        seen.devices += 1;
        true
    }

    /// Removes a device that was added. As in kube-scheduler 1.36, a distinct attribute then forgets all devices of the
    /// request.
    pub(super) fn remove(
        &self,
        seen: &mut Seen<'a>,
        (request, choice): (&RequestPlan<'_>, &Choice<'_>),
    ) {
        if !self.concerns(request, choice) {
            return;
        }
        match self.is_distinct {
            true => seen.last.retain(|(of, _)| *of != &*request.request.name),
            false => seen.devices = seen.devices.saturating_sub(1),
        }
    }
}

/// Returns an attribute by its qualified name. Attributes of the driver's domain may be stored without the domain.
fn attribute<'a>(candidate: &Candidate<'a>, name: &str) -> Option<&'a Attribute> {
    let attributes = &candidate.device.attributes;
    attributes.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        attributes.get(id).filter(|_| *domain == *candidate.slice.spec.driver)
    })
}
