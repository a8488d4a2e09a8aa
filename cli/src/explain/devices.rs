//! The devices of each node that match the pod's resource claims, who uses them, and whose end would free enough. The
//! reasons of nodes name none of this.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use portolan::model::{Name, Node, Pod, PodResourceClaim};
use portolan::plugin::{Evaluation, Status};
use portolan_dra::Devices;
use portolan_dra::allocator::{NodePools, Selectors, are_tolerated};
use portolan_dra::model::{
    AllocationMode, Device, DeviceClass, DeviceResult, ExactRequest, ResourceClaim,
    ResourceClaimTemplate, ResourceSlice, Selector,
};
use portolan_dra::plugin::NAME;
use portolan_dra::store::{DeviceEvent, NodePool, PoolId, PoolState};
use portolan_k8s::DeviceObjects;

use super::report::LISTED;
use super::trial::Trial;
use crate::resource_claims::{claims_of, freed};
use crate::text::{count, first_names};

/// Removes the scores of the plugin if they are 0, as they are unless a request has alternatives.
pub(super) fn hide_empty_scores(evaluation: &mut Evaluation) {
    let mut scores = evaluation.nodes.values().flat_map(|verdict| &verdict.scores);
    if scores.all(|score| score.plugin != NAME || score.raw == 0) {
        for verdict in evaluation.nodes.values_mut() {
            verdict.scores.retain(|score| score.plugin != NAME);
        }
    }
}

/// The state of the pod's claims, and the devices of the nodes that the plugin rejects. Nodes with the same devices share
/// a line.
pub(super) fn facts(
    trial: Trial<'_>,
    evaluation: &Evaluation,
    objects: &DeviceObjects,
) -> Vec<String> {
    let Ok(devices) = trial.cluster.store::<Devices>() else { return Vec::new() };
    let is_of_plugin = |status: &Status| status.plugin == NAME;
    let rejected: Vec<&Name> = (evaluation.nodes.iter())
        .filter(|(_, of)| of.status.iter().chain(&of.further).any(is_of_plugin))
        .map(|(name, _)| name)
        .collect();
    if rejected.is_empty() {
        return Vec::new();
    }
    let report = Report {
        trial,
        devices,
        users: Users::of(devices, objects),
        selectors: Selectors::default(),
    };
    let mut facts = missing(trial.pod, devices, objects);
    for claim in claims_of(trial.pod, devices) {
        let key = claim.key();
        if claim.status.allocation.is_some() {
            facts.push(format!("claim {key} is allocated: {}", allocation(claim)));
            continue;
        }
        for request in &claim.spec.devices.requests {
            let alternatives = request.first_available.iter();
            let alternatives =
                alternatives.map(|sub| (format!("{}/{}", request.name, sub.name), &sub.exactly));
            let exactly = request.exactly.iter().map(|it| (request.name.to_string(), it));
            for (name, wanted) in exactly.chain(alternatives) {
                let Some(class) = devices.classes().get(&wanted.device_class_name) else {
                    continue;
                };
                facts.push(format!("claim {key}, request {name}: {}", amount(wanted)));
                facts.extend(report.nodes(&rejected, class, wanted));
            }
        }
    }
    facts.extend(report.ends(&rejected));
    facts
}

/// The claims and templates that do not exist.
fn missing(pod: &Pod, devices: &Devices, objects: &DeviceObjects) -> Vec<String> {
    let namespace = pod.namespace();
    let missing = |entry: &PodResourceClaim| match (&entry.claim, &entry.template) {
        (Some(claim), _) => {
            let is_known = devices.claims().get(namespace, claim).is_some();
            (!is_known).then(|| format!("resource claim {namespace}/{claim} does not exist"))
        }
        (None, Some(template)) => {
            let is_named = |it: &Arc<ResourceClaimTemplate>| {
                it.namespace() == namespace && it.name() == template
            };
            let is_known = objects.templates.iter().any(is_named);
            let what = || format!("resource claim template {namespace}/{template} does not exist");
            (!is_known && pod.claim_statuses.is_none()).then(what)
        }
        (None, None) => None,
    };
    pod.template.resource_claims.iter().filter_map(missing).collect()
}

/// What a request asks for.
fn amount(wanted: &ExactRequest) -> String {
    let class = &wanted.device_class_name;
    match wanted.allocation_mode {
        AllocationMode::All => format!("all matching devices of class {class}"),
        _ => {
            let number = usize::try_from(wanted.count.unwrap_or(1)).unwrap_or(0);
            format!("{} of class {class}", count(number, "device"))
        }
    }
}

/// The devices of an allocated claim, and the pods for which it is reserved.
fn allocation(claim: &ResourceClaim) -> String {
    let results = claim.status.allocation.iter().flat_map(|of| &of.devices.results);
    let results: Vec<String> =
        results.map(|of| format!("{} of pool {}", of.device, of.pool)).collect();
    match claim.status.reserved_for.is_empty() {
        true => results.join(", "),
        false => format!("{}, for {}", results.join(", "), pods(claim)),
    }
}

/// The pods for which a claim is reserved, or the claim if there are none.
fn pods(claim: &ResourceClaim) -> String {
    let consumers = claim.status.reserved_for.iter();
    let consumers = consumers.map(|of| format!("{}/{}", claim.namespace(), of.name));
    let consumers: Vec<String> = consumers.collect();
    match consumers.is_empty() {
        true => format!("claim {}", claim.key()),
        false => first_names(&consumers),
    }
}

/// The claims that use devices.
struct Users {
    claims: BTreeMap<String, Arc<ResourceClaim>>,
    of_device: HashMap<(PoolId, Arc<str>), BTreeSet<String>>,
}

impl Users {
    fn of(devices: &Devices, objects: &DeviceObjects) -> Users {
        let mut users = Users { claims: BTreeMap::new(), of_device: HashMap::new() };
        for known in &objects.claims {
            let found = devices.claims().get(known.namespace(), known.name());
            let Some(claim) = found.filter(|claim| claim.status.allocation.is_some()) else {
                continue;
            };
            let results = claim.status.allocation.iter().flat_map(|of| &of.devices.results);
            for result in results.filter(|of| of.admin_access != Some(true)) {
                users.of_device.entry(device_of(result)).or_default().insert(claim.key());
            }
            users.claims.insert(claim.key(), claim.clone());
        }
        users
    }
}

fn device_of(result: &DeviceResult) -> (PoolId, Arc<str>) {
    let pool = PoolId { driver: result.driver.clone(), pool: result.pool.clone() };
    (pool, result.device.clone())
}

struct Report<'t> {
    trial: Trial<'t>,
    devices: &'t Devices,
    users: Users,
    selectors: Selectors,
}

/// The devices of a node, as far as one request is concerned.
#[derive(Default)]
struct Found {
    devices: usize,
    matching: usize,
    free: usize,
    /// The names of the devices that a pod uses.
    used: BTreeMap<String, Vec<String>>,
    tainted: BTreeMap<String, Vec<String>>,
    /// The names of the devices that fail an expression.
    failing: BTreeMap<String, Vec<String>>,
    /// The pools whose devices cannot be allocated, and why.
    pools: Vec<String>,
}

impl Report<'_> {
    /// A line for each group of nodes with the same devices.
    fn nodes(&self, rejected: &[&Name], class: &DeviceClass, wanted: &ExactRequest) -> Vec<String> {
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        for name in rejected {
            let Some(node) = self.trial.cluster.node(name).and_then(|info| info.node()) else {
                continue;
            };
            let text = self.found(node, class, wanted).to_string();
            match groups.iter_mut().find(|(known, _)| *known == text) {
                Some((_, nodes)) => nodes.push(name),
                None => groups.push((text, vec![name])),
            }
        }
        let more = groups.len().saturating_sub(LISTED);
        let line = |(text, nodes): &(String, Vec<&str>)| {
            let noun = if nodes.len() == 1 { "node" } else { "nodes" };
            format!("{noun} {}: {text}", first_names(nodes))
        };
        let mut lines: Vec<String> = groups.iter().take(LISTED).map(line).collect();
        if more > 0 {
            lines.push(format!("… and {more} more: see --node"));
        }
        lines
    }

    fn found(&self, node: &Node, class: &DeviceClass, wanted: &ExactRequest) -> Found {
        let mut found = Found::default();
        for pool in NodePools::gather(self.devices.slices(), node).pools() {
            match &pool.state {
                PoolState::Complete => self.add_pool(pool, node, (class, wanted), &mut found),
                PoolState::Incomplete => {
                    found.pools.push(format!("pool {} is incomplete", pool.id.pool));
                }
                PoolState::Invalid(why) => {
                    found.pools.push(format!("pool {} is invalid: {why}", pool.id.pool));
                }
            }
        }
        found
    }

    fn add_pool(
        &self,
        pool: &NodePool,
        node: &Node,
        (class, wanted): (&DeviceClass, &ExactRequest),
        found: &mut Found,
    ) {
        for slice in &pool.slices {
            let by_device = slice.spec.per_device_node_selection == Some(true);
            let each = slice.spec.devices.iter().enumerate();
            for (index, device) in each.filter(|(_, device)| !by_device || device.is_on(node)) {
                found.devices += 1;
                let selectors = class.spec.selectors.iter().chain(&wanted.selectors);
                if let Some(failed) = self.failed(selectors, slice, index) {
                    add(&mut found.failing, failed, device);
                    continue;
                }
                found.matching += 1;
                let key = (pool.id.clone(), device.name.clone());
                let users = self.users.of_device.get(&key).filter(|_| !device.is_shared());
                let claims = users.into_iter().flatten().filter_map(|it| self.users.claims.get(it));
                let claims: Vec<String> = claims.map(|claim| pods(claim)).collect();
                if !claims.is_empty() && wanted.admin_access != Some(true) {
                    add(&mut found.used, claims.join(", "), device);
                } else if !are_tolerated(device, &wanted.tolerations) {
                    let taints = device.taints.iter();
                    let taints = taints.map(|taint| format!("{}:{}", taint.key, taint.effect));
                    add(&mut found.tainted, taints.collect::<Vec<_>>().join(", "), device);
                } else {
                    found.free += 1;
                }
            }
        }
    }

    /// The first expression that the device does not match.
    fn failed<'s>(
        &self,
        mut selectors: impl Iterator<Item = &'s Selector>,
        slice: &Arc<ResourceSlice>,
        index: usize,
    ) -> Option<String> {
        selectors.find_map(|selector| {
            let expression = &selector.cel.as_ref()?.expression;
            match self.selectors.matches(expression, slice, index) {
                Ok(true) => None,
                Ok(false) => Some(expression.to_string()),
                Err(error) => Some(format!("{expression} ({error})")),
            }
        })
    }

    /// The pods whose end alone would make the pod fit on a node. Only pods that hold devices of rejected nodes are
    /// tried, one at a time.
    fn ends(&self, rejected: &[&Name]) -> Vec<String> {
        // By the nodes.
        let mut ends: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for claim in self.users.claims.values() {
            let mut fork = self.trial.cluster.fork();
            let event = DeviceEvent::PutClaim(freed(claim).into());
            if fork.change::<Devices>(event).is_err() {
                continue;
            }
            let freed = Trial { cluster: &fork, ..self.trial };
            let fits: Vec<&&Name> = rejected.iter().filter(|name| freed.fits_on(name)).collect();
            if !fits.is_empty() {
                ends.entry(first_names(&fits)).or_default().push(pods(claim));
            }
        }
        let line = |(nodes, pods): (&String, &Vec<String>)| {
            let which = if pods.len() == 1 { "" } else { "one of " };
            format!("fits on {nodes} if {which}{} ends", first_names(pods))
        };
        ends.iter().take(LISTED).map(line).collect()
    }
}

fn add(groups: &mut BTreeMap<String, Vec<String>>, key: String, device: &Device) {
    groups.entry(key).or_default().push(device.name.to_string());
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Found { devices, matching, free, .. } = self;
        let verb =
            |devices: &[String], one, several| if devices.len() == 1 { one } else { several };
        write!(f, "{matching} of {} match", count(*devices, "device"))?;
        if *matching > 0 {
            write!(f, ", {free} free")?;
        }
        for (pods, devices) in &self.used {
            let is = verb(devices, "is", "are");
            write!(f, "; {} {is} used by {pods}", first_names(devices))?;
        }
        for (taints, devices) in &self.tainted {
            let has = verb(devices, "has", "have");
            write!(f, "; {} {has} taint {taints}", first_names(devices))?;
        }
        for (expression, devices) in &self.failing {
            let fails = verb(devices, "does", "do");
            write!(f, "; {} {fails} not match {expression}", first_names(devices))?;
        }
        self.pools.iter().try_for_each(|pool| write!(f, "; {pool}"))
    }
}
