//! Limit ranges: default requests and limits of containers, and their bounds (plugin limitranger/admission.go).

use std::cmp::Ordering;

use super::admission::amount_text;
use super::defaults::Rules;
use super::error::{Path, ReadError};
use super::node::quantities;
use super::pod::PodDraft;
use super::wire_objects as wire;
use portolan::model::{Name, Quantity, ResourceList};

/// A limit range.
#[derive(Clone, Debug)]
pub(super) struct LimitRange {
    pub(super) namespace: Name,
    items: Vec<Item>,
}

/// An element of `spec.limits`, of type Container or Pod.
#[derive(Clone, Debug)]
struct Item {
    is_of_containers: bool,
    max: ResourceList,
    min: ResourceList,
    default: ResourceList,
    default_request: ResourceList,
    ratio: ResourceList,
}

impl LimitRange {
    /// Reads a limit range with the defaults of the API server (`SetDefaults_LimitRangeItem`).
    pub(super) fn read(
        wire: &wire::LimitRange<'_>,
        path: &Path<'_>,
        rules: &Rules<'_>,
    ) -> Result<LimitRange, ReadError> {
        let meta = wire.metadata.clone().unwrap_or_default();
        let spec_path = path.key("spec");
        let list = spec_path.key("limits");
        let mut items = Vec::new();
        for (i, item) in wire.spec.iter().flat_map(|spec| spec.limits.iter()).enumerate() {
            let path = list.index(i);
            let is_of_containers = &*item.limit_type == "Container";
            if !is_of_containers && &*item.limit_type != "Pod" {
                continue;
            }
            let mut read = Item {
                is_of_containers,
                max: quantities(&item.max, &path.key("max"))?,
                min: quantities(&item.min, &path.key("min"))?,
                default: quantities(&item.default, &path.key("default"))?,
                default_request: quantities(&item.default_request, &path.key("defaultRequest"))?,
                ratio: quantities(
                    &item.max_limit_request_ratio,
                    &path.key("maxLimitRequestRatio"),
                )?,
            };
            if is_of_containers {
                fill(&mut read.default, &read.max);
                fill(&mut read.default_request, &read.default);
                fill(&mut read.default_request, &read.min);
            }
            items.push(read);
        }
        Ok(LimitRange { namespace: rules.namespace(&meta.namespace), items })
    }

    /// Fills in the default requests and limits of all containers (`PodMutateLimitFunc`).
    pub(super) fn complete(&self, draft: &mut PodDraft) {
        let containers = draft.requests.containers.iter_mut().zip(&mut draft.limits.containers);
        for (container, limits) in containers {
            // The last of several items decides.
            for item in self.items.iter().rev().filter(|item| item.is_of_containers) {
                fill(limits, &item.default);
                fill(&mut container.requests, &item.default_request);
            }
        }
    }

    /// Returns why the limit range refuses a pod (`PodValidateLimitFunc`).
    pub(super) fn refusal(&self, draft: &PodDraft) -> Option<String> {
        let mut errors: Vec<String> = Vec::new();
        for item in &self.items {
            if item.is_of_containers {
                let containers = draft.requests.containers.iter().zip(&draft.limits.containers);
                for (container, limits) in containers {
                    item.check("Container", &container.requests, limits, &mut errors);
                }
            } else {
                let mut requests = draft.requests.aggregate();
                for (name, request) in draft.requests.pod_level.iter().flat_map(ResourceList::iter)
                {
                    requests.set(name.clone(), request);
                }
                // The limits of the pod without its overhead.
                let without = portolan::model::Requests {
                    overhead: ResourceList::default(),
                    ..draft.requests.clone()
                };
                item.check("Pod", &requests, &draft.limits.total(&without), &mut errors);
            }
        }
        let mut known = std::collections::HashSet::new();
        errors.retain(|error| known.insert(error.clone()));
        match &*errors {
            [] => None,
            [error] => Some(error.clone()),
            several => Some(format!("[{}]", several.join(", "))),
        }
    }
}

impl Item {
    fn check(
        &self,
        kind: &str,
        requests: &ResourceList,
        limits: &ResourceList,
        errors: &mut Vec<String>,
    ) {
        let (request, limit) = (("request", requests), ("limit", limits));
        for (bounds, which, wrong, given) in [
            (&self.min, "minimum", Ordering::Less, [request, limit]),
            (&self.max, "maximum", Ordering::Greater, [limit, request]),
        ] {
            for (name, bound) in bounds.iter() {
                let text = |amount| amount_text(name, amount);
                let prefix = format!("{which} {name} usage per {kind} is {}", text(bound));
                let amounts = given.map(|(what, amounts)| (what, amounts.get(name)));
                let is_wrong = |amount: Quantity| amount.cmp(&bound) == wrong;
                if let (what, None) = amounts[0] {
                    errors.push(format!("{prefix}.  No {what} is specified"));
                } else if let Some((what, Some(amount))) =
                    amounts.into_iter().find(|(_, amount)| amount.is_some_and(is_wrong))
                {
                    errors.push(format!("{prefix}, but {what} is {}", text(amount)));
                }
            }
        }
        for (name, most) in self.ratio.iter() {
            let prefix = format!("{name} max limit to request ratio per {kind} is {most}");
            let given = |amount: Option<Quantity>| amount.filter(|amount| !amount.is_zero());
            let Some(request) = given(requests.get(name)) else {
                errors.push(format!("{prefix}, but no request is specified or request is 0"));
                continue;
            };
            let Some(limit) = given(limits.get(name)) else {
                errors.push(format!("{prefix}, but no limit is specified or limit is 0"));
                continue;
            };
            let ratio = limit.nanos() as f64 / request.nanos() as f64;
            if ratio * 1000.0 > most.milli_value() as f64 {
                errors.push(format!("{prefix}, but provided ratio is {ratio:.6}"));
            }
        }
    }
}

/// Sets the amounts that are absent.
fn fill(list: &mut ResourceList, from: &ResourceList) {
    for (name, amount) in from.iter() {
        if list.get(name).is_none() {
            list.set(name.clone(), amount);
        }
    }
}
