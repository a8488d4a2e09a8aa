//! For a pod that lacks devices: the devices of each node that match its resource claims, who uses them, and which pods
//! would have to end. kube-scheduler's reasons name none of these.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use portolan::cache::Cluster;
use portolan::model::{Name, Node, Pod, PodResourceClaim, Uid};
use portolan::plugin::{Evaluation, Status, Verdict};
use portolan_dra::Devices;
use portolan_dra::allocator::{Allocator, MAX_RESULTS, NodePools, Selectors, are_tolerated};
use portolan_dra::model::{
    AllocationMode, Constraint, Device, DeviceClass, DeviceRequest, DeviceResult, ExactRequest,
    ResourceClaim, ResourceClaimTemplate, ResourceSlice, Selector,
};
use portolan_dra::plugin::NAME;
use portolan_dra::store::{DeviceEvent, NodePool, PoolId, PoolState};
use portolan_k8s::DeviceObjects;

use super::report::LISTED;
use super::trial::Trial;
use crate::resource_claims::{claims_of, freed};
use crate::text::{count, first_names};

/// The number of devices that a search for free devices tries.
const MAX_STEPS: u64 = 100_000;
/// The number of pairs of users and nodes that are tried.
const MOST_TRIED: usize = 10_000;

/// Removes the scores of the plugin if they are 0, as they are unless a request has alternatives.
pub(super) fn hide_empty_scores(evaluation: &mut Evaluation) {
    let mut scores = evaluation.nodes.values().flat_map(|verdict| &verdict.scores);
    if scores.all(|score| score.plugin != NAME || score.raw == 0) {
        // Keep equal verdicts shared.
        let mut hidden: HashMap<*const Verdict, Arc<Verdict>> = HashMap::new();
        for verdict in evaluation.nodes.values_mut() {
            if verdict.scores.iter().any(|score| score.plugin == NAME) {
                let without = hidden.entry(Arc::as_ptr(verdict)).or_insert_with(|| {
                    let mut without = Verdict::clone(verdict);
                    without.scores.retain(|score| score.plugin != NAME);
                    Arc::new(without)
                });
                *verdict = without.clone();
            }
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
        users: Users::of(trial.cluster, devices),
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
        let constraints = claim.spec.devices.constraints.iter();
        facts.extend(constraints.map(|it| format!("claim {key}: {}", constraint(it))));
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
            let mut statuses = pod.claim_statuses.iter().flat_map(|statuses| statuses.iter());
            let is_generated = statuses.any(|(name, _)| *name == entry.name);
            (!is_known && !is_generated).then(what)
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

/// What a constraint demands of the devices of some requests, or of all.
fn constraint(of: &Constraint) -> String {
    let which = match of.requests.is_empty() {
        true => "all devices".to_owned(),
        false => format!("the devices of {}", first_names(&of.requests)),
    };
    match (&of.match_attribute, &of.distinct_attribute) {
        (Some(attribute), _) => format!("{which} must have the same {attribute}"),
        (None, Some(attribute)) => format!("{which} must have different {attribute}"),
        (None, None) => format!("{which} must satisfy an unknown constraint"),
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

/// The pods for which a claim is reserved.
fn pods(claim: &ResourceClaim) -> String {
    let consumers = claim.status.reserved_for.iter();
    let consumers = consumers.map(|of| format!("{}/{}", claim.namespace(), of.name));
    first_names(consumers.collect::<Vec<String>>())
}

/// The claims that use devices.
struct Users {
    claims: BTreeMap<String, Arc<ResourceClaim>>,
    of_device: HashMap<(PoolId, Arc<str>), BTreeSet<String>>,
    /// The running pods for which each claim is reserved.
    running: BTreeMap<String, BTreeSet<String>>,
}

impl Users {
    fn of(cluster: &Cluster, devices: &Devices) -> Users {
        let mut users =
            Users { claims: BTreeMap::new(), of_device: HashMap::new(), running: BTreeMap::new() };
        for claim in devices.claims().iter().filter(|claim| claim.status.allocation.is_some()) {
            let results = claim.status.allocation.iter().flat_map(|of| &of.devices.results);
            for result in results.filter(|of| of.admin_access != Some(true)) {
                users.of_device.entry(device_of(result)).or_default().insert(claim.key());
            }
            let consumers = claim.status.reserved_for.iter();
            let running = consumers.filter(|of| cluster.pod(&Uid::new(&of.uid)).is_some());
            let running = running.map(|of| format!("{}/{}", claim.namespace(), of.name));
            users.running.insert(claim.key(), running.collect());
            users.claims.insert(claim.key(), claim.clone());
        }
        users
    }

    /// Who uses the devices of a claim: running pods, or the claim itself.
    fn of_claim(&self, key: &str) -> String {
        match self.running.get(key).filter(|pods| !pods.is_empty()) {
            Some(pods) => first_names(pods.iter().collect::<Vec<_>>()),
            None => format!("claim {key}"),
        }
    }

    /// The pods that may end together, and the claims that are free then; for a claim that no running pod uses, no pods.
    fn changes(&self) -> Vec<(BTreeSet<String>, Vec<&Arc<ResourceClaim>>)> {
        let mut changes: Vec<(BTreeSet<String>, Vec<&Arc<ResourceClaim>>)> = Vec::new();
        let sets: BTreeSet<&BTreeSet<String>> = self.running.values().collect();
        for pods in sets.into_iter().filter(|pods| !pods.is_empty()) {
            let is_free = |of: &BTreeSet<String>| !of.is_empty() && of.is_subset(pods);
            let claims = self.running.iter().filter(|(_, of)| is_free(of));
            changes.push((pods.clone(), claims.map(|(key, _)| &self.claims[key]).collect()));
        }
        let unused = self.running.iter().filter(|(_, of)| of.is_empty());
        changes.extend(unused.map(|(key, _)| (BTreeSet::new(), vec![&self.claims[key]])));
        changes
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
    /// Whether a device shares its capacity, or counters with others.
    has_limits: bool,
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
        if found.has_limits {
            found.free = self.free(node, wanted, found.free);
        }
        found
    }

    /// How many devices can be allocated for the request at once, at most `most`: shared counters and capacity may suffice
    /// for fewer devices than are unused.
    fn free(&self, node: &Node, wanted: &ExactRequest, most: usize) -> usize {
        let pools = NodePools::gather(self.devices.slices(), node);
        let fits = |number: usize| {
            let wanted = ExactRequest {
                allocation_mode: AllocationMode::ExactCount,
                count: i64::try_from(number).ok(),
                ..wanted.clone()
            };
            let request = DeviceRequest { exactly: Some(wanted), ..DeviceRequest::default() };
            let mut claim = ResourceClaim::default();
            claim.spec.devices.requests.push(request);
            let allocator = Allocator {
                devices: self.devices,
                selectors: &self.selectors,
                claims: &[Arc::new(claim)],
                max_steps: MAX_STEPS,
            };
            allocator.fits(node, &pools) == Ok(true)
        };
        (1..=most.min(MAX_RESULTS)).take_while(|number| fits(*number)).count()
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
                found.has_limits |= device.is_shared() || !device.consumes_counters.is_empty();
                let key = (pool.id.clone(), device.name.clone());
                let users = self.users.of_device.get(&key).filter(|_| !device.is_shared());
                let users: Vec<String> =
                    users.into_iter().flatten().map(|key| self.users.of_claim(key)).collect();
                if !users.is_empty() && wanted.admin_access != Some(true) {
                    add(&mut found.used, users.join(", "), device);
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

    /// What would make the pod fit on a node: the end of a pod, or of all pods that share a claim, or the release of a
    /// claim that no running pod uses.
    fn ends(&self, rejected: &[&Name]) -> Vec<String> {
        let pools: Vec<(&Name, BTreeSet<PoolId>)> =
            rejected.iter().filter_map(|name| Some((*name, self.pools_of(name)?))).collect();
        let own = claims_of(self.trial.pod, self.devices);
        let mut by_pod: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut lines: Vec<String> = Vec::new();
        let mut tried = 0;
        for (users, claims) in self.users.changes() {
            let results = claims.iter().flat_map(|claim| &claim.status.allocation);
            let results = results.flat_map(|of| &of.devices.results);
            let freed: BTreeSet<PoolId> = results.map(|result| device_of(result).0).collect();
            // A claim of the pod itself may then be allocated anywhere.
            let is_own = claims.iter().any(|claim| own.contains(claim));
            let near = pools.iter().filter(|(_, pools)| is_own || !pools.is_disjoint(&freed));
            let near: Vec<&Name> = near.map(|(name, _)| *name).collect();
            tried += near.len();
            if tried > MOST_TRIED {
                lines.push("not all pods that use devices were tried".to_owned());
                break;
            }
            let fits = self.fits_without(&claims, &near);
            if fits.is_empty() {
                continue;
            }
            let nodes = first_names(&fits);
            match &*users.into_iter().collect::<Vec<_>>() {
                [] => {
                    let key = claims.first().map(|claim| claim.key()).unwrap_or_default();
                    lines.push(format!("fits on {nodes} if claim {key} is released"));
                }
                [pod] => by_pod.entry(nodes).or_default().push(pod.clone()),
                pods => lines.push(format!("fits on {nodes} if {} all end", first_names(pods))),
            }
        }
        let line = |(nodes, pods): (&String, &Vec<String>)| {
            let which = if pods.len() == 1 { "" } else { "one of " };
            format!("fits on {nodes} if {which}{} ends", first_names(pods))
        };
        by_pod.iter().map(line).chain(lines).take(LISTED).collect()
    }

    /// The pools that a node sees.
    fn pools_of(&self, name: &Name) -> Option<BTreeSet<PoolId>> {
        let node = self.trial.cluster.node(name)?.node()?;
        let pools = NodePools::gather(self.devices.slices(), node);
        Some(pools.pools().iter().map(|pool| pool.id.clone()).collect())
    }

    /// The nodes on which the pod fits if these claims have no devices.
    fn fits_without<'n>(&self, claims: &[&Arc<ResourceClaim>], near: &[&'n Name]) -> Vec<&'n Name> {
        let mut fork = self.trial.cluster.fork();
        for claim in claims {
            let event = DeviceEvent::PutClaim(freed(claim).into());
            if fork.change::<Devices>(event).is_err() {
                return Vec::new();
            }
        }
        let freed = Trial { cluster: &fork, ..self.trial };
        near.iter().copied().filter(|name| freed.fits_on(name)).collect()
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
        let matches = if *devices == 1 { "matches" } else { "match" };
        write!(f, "{matching} of {} {matches}", count(*devices, "device"))?;
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
