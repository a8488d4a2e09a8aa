//! The body of the fuzz target, shared by the fuzzer and `crates/k8s/tests/fuzz_corpus.rs`: allocates devices for
//! claims.
//!
//! An input that begins with a bracket is read as JSON. Any other one is a list of choices that make slices, classes and
//! claims of few names, with CEL selectors. The objects go through the reader into the store of an engine. Each claim is
//! then allocated on each node in turn, and the allocation is stored, released or deleted. Every allocation must obey the
//! rules of [`check`], which shares no code with the search, and the writer must accept it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use portolan::cache::{Config, Engine, Writer};
use portolan::model::{Node, Quantity, node};
use portolan_dra::Devices;
use portolan_dra::allocator::{Allocation, Allocator, NodePools, Selectors};
use portolan_dra::model::{
    AllocationMode, Attribute, Device, DeviceResult, ExactRequest, NodeSelector, ResourceClaim,
    ResourceSlice,
};
use portolan_dra::store::{DeviceEvent, InFlight};
use serde_json::{Value, json};

/// Runs one input.
pub(crate) fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    match choice {
        b'{' | b'[' => allocate(data, Made::Anyhow, &mut Unstructured::new(&[])),
        _ => {
            let mut input = Unstructured::new(rest);
            if let Ok((objects, made)) = objects(&mut input) {
                allocate(objects.to_string().as_bytes(), made, &mut input);
            }
        }
    }
}

/// How the objects were made.
#[derive(Clone, Copy, PartialEq)]
enum Made {
    /// As an API server and drivers make them: requests, uids and the devices of a pool have unique names.
    Validly,
    Anyhow,
}

fn pick<'a, T: ?Sized>(input: &mut Unstructured<'_>, of: &[&'a T]) -> Result<&'a T> {
    input.choose(of).copied()
}

fn list(
    input: &mut Unstructured<'_>,
    (least, most): (usize, usize),
    mut one: impl FnMut(&mut Unstructured<'_>, usize) -> Result<Value>,
) -> Result<Value> {
    let len = input.int_in_range(least..=most)?;
    (0..len).map(|at| one(input, at)).collect()
}

const AMOUNTS: [&str; 8] = ["0", "1", "2", "1500m", "4", "10", "1Gi", "1000m"];

fn amount(input: &mut Unstructured<'_>) -> Result<Value> {
    Ok(json!({"value": pick(input, &AMOUNTS)?}))
}

/// A CEL expression, which is usually valid.
fn expression(input: &mut Unstructured<'_>) -> Result<String> {
    const DOMAINS: [&str; 3] = ["d1", "d2", "x"];
    let domain = pick(input, &DOMAINS)?;
    let attribute = format!("device.attributes['{domain}'].{}", pick(input, &ATTRIBUTES)?);
    let atom = match input.int_in_range(0..=9)? {
        0 => format!("device.driver == '{domain}'"),
        1 => format!("{attribute} == {}", input.int_in_range(0..=2)?),
        2 => format!("has({attribute})"),
        3 => format!("device.capacity['{domain}'].memory.compareTo(quantity('2')) >= 0"),
        4 => format!("{attribute}.matches('^[a-z]+$')"),
        5 => format!("'{domain}' in device.attributes"),
        6 => format!("{attribute}.isGreaterThan(semver('1.0.0'))"),
        7 => format!("[{attribute}, 1].exists(x, x == 1)"),
        8 => "device.allowMultipleAllocations".to_owned(),
        _ => input.arbitrary::<&str>()?.chars().take(60).collect(),
    };
    Ok(match input.int_in_range(0..=4)? {
        0 => format!("!({atom})"),
        1 => format!("{atom} && {}", expression(input)?),
        2 => format!("{atom} || {}", expression(input)?),
        _ => atom,
    })
}

const ATTRIBUTES: [&str; 4] = ["model", "index", "fast", "version"];

fn selectors(input: &mut Unstructured<'_>) -> Result<Value> {
    let most = if input.ratio(1, 3)? { 2 } else { 0 };
    list(input, (0, most), |input, _| Ok(json!({"cel": {"expression": expression(input)?}})))
}

fn device(input: &mut Unstructured<'_>) -> Result<Value> {
    let mut attributes = json!({});
    for name in ATTRIBUTES {
        if input.ratio(2, 3)? {
            let domain = if input.ratio(1, 4)? { "d1/" } else { "" };
            attributes[format!("{domain}{name}")] = match name {
                "model" => json!({"string": pick(input, &["a", "b"])?}),
                "index" => json!({"int": input.int_in_range(0..=2)?}),
                "fast" => json!({"bool": input.arbitrary::<bool>()?}),
                _ => json!({"version": pick(input, &["1.0.0", "2.1.0-a", "x"])?}),
            };
        }
    }
    let mut device = json!({
        "name": format!("g{}", input.int_in_range(0..=7)?),
        "attributes": attributes,
    });
    if input.ratio(1, 2)? {
        let mut memory = amount(input)?;
        if input.ratio(1, 2)? {
            let range = json!({"min": "1", "max": "4", "step": "1"});
            memory["requestPolicy"] = match input.ratio(1, 2)? {
                true => json!({"default": "1", "validRange": range}),
                false => json!({"default": "2", "validValues": ["1", "2", "4"]}),
            };
        }
        device["capacity"] = json!({"memory": memory});
    }
    if input.ratio(1, 3)? {
        device["allowMultipleAllocations"] = json!(true);
    }
    if input.ratio(1, 3)? {
        let counters = json!({"slots": amount(input)?});
        device["consumesCounters"] = json!([{"counterSet": "set", "counters": counters}]);
    }
    if input.ratio(1, 4)? {
        let effect = pick(input, &["NoSchedule", "NoExecute", "None"])?;
        device["taints"] =
            json!([{"key": pick(input, &["a", "b"])?, "value": "v", "effect": effect}]);
    }
    if input.ratio(1, 4)? {
        location(input, &mut device)?;
    }
    Ok(device)
}

/// Sets the nodes of a slice or device.
fn location(input: &mut Unstructured<'_>, of: &mut Value) -> Result<()> {
    match input.int_in_range(0..=4)? {
        0..=2 => of["allNodes"] = json!(true),
        3 => of["nodeName"] = json!(pick(input, &["n1", "n2"])?),
        _ => {
            let values = [pick(input, &["z1", "z2"])?];
            let zone = json!([{"key": "zone", "operator": "In", "values": values}]);
            of["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchExpressions": zone}]});
        }
    }
    Ok(())
}

fn counters(input: &mut Unstructured<'_>) -> Result<Value> {
    Ok(json!([{"name": "set", "counters": {"slots": amount(input)?}}]))
}

fn slice(input: &mut Unstructured<'_>, at: usize) -> Result<Value> {
    let mut spec = json!({
        "driver": pick(input, &["d1", "d1", "d2"])?,
        "pool": {
            "name": pick(input, &["p1", "p2"])?,
            "generation": if input.ratio(1, 8)? { 2 } else { 1 },
            "resourceSliceCount": input.int_in_range(1..=3)?,
        },
    });
    match input.ratio(1, 4)? {
        true => spec["perDeviceNodeSelection"] = json!(true),
        false => location(input, &mut spec)?,
    }
    match input.ratio(1, 8)? {
        true => spec["sharedCounters"] = counters(input)?,
        false => spec["devices"] = list(input, (1, 6), |input, _| device(input))?,
    }
    Ok(object("ResourceSlice", &format!("s{at}"), &spec))
}

fn exactly(input: &mut Unstructured<'_>) -> Result<Value> {
    let mut exactly = json!({"deviceClassName": pick(input, &["c0", "c0", "c1"])?});
    exactly["selectors"] = selectors(input)?;
    match input.ratio(1, 5)? {
        true => exactly["allocationMode"] = json!("All"),
        false => exactly["count"] = json!(input.int_in_range(1..=3)?),
    }
    if input.ratio(1, 3)? {
        let requests = json!({"memory": pick(input, &AMOUNTS)?});
        exactly["capacity"] = json!({"requests": requests});
    }
    if input.ratio(1, 3)? {
        let key = pick(input, &["a", "b"])?;
        exactly["tolerations"] = match input.ratio(1, 2)? {
            true => json!([{"operator": "Exists"}]),
            false => json!([{"key": key, "value": "v", "effect": "NoSchedule"}]),
        };
    }
    Ok(exactly)
}

fn claim(input: &mut Unstructured<'_>, at: usize) -> Result<Value> {
    let requests = list(input, (1, 3), |input, at| {
        let name = format!("r{at}");
        if input.ratio(1, 4)? {
            let choices = list(input, (0, 3), |input, at| {
                let mut choice = exactly(input)?;
                choice["name"] = json!(format!("s{at}"));
                Ok(choice)
            })?;
            return Ok(json!({"name": name, "firstAvailable": choices}));
        }
        let mut exactly = exactly(input)?;
        if input.ratio(1, 8)? {
            exactly["adminAccess"] = json!(true);
        }
        Ok(json!({"name": name, "exactly": exactly}))
    })?;
    let constraints = list(input, (0, 1), |input, _| {
        let attribute = format!("d1/{}", pick(input, &ATTRIBUTES)?);
        let kind = pick(input, &["matchAttribute", "distinctAttribute"])?;
        let requests =
            list(input, (0, 2), |input, _| Ok(json!(pick(input, &["r0", "r1", "r1/s0"])?)))?;
        Ok(json!({"requests": requests, kind: attribute}))
    })?;
    let spec = json!({"devices": {"requests": requests, "constraints": constraints}});
    Ok(object("ResourceClaim", &format!("claim{at}"), &spec))
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let api_version = "resource.k8s.io/v1";
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Adds the counters that devices consume, sets the number of slices of each pool, and makes the names of devices unique.
fn complete(input: &mut Unstructured<'_>, slices: &mut Vec<Value>) -> Result<()> {
    let pool = |slice: &Value| {
        let spec = &slice["spec"];
        [&spec["driver"], &spec["pool"]["name"], &spec["pool"]["generation"]].map(Value::to_string)
    };
    let consumes = |slice: &Value| slice.to_string().contains("consumesCounters");
    let lacking: BTreeMap<_, Value> =
        slices.iter().filter(|of| consumes(of)).map(|of| (pool(of), of.clone())).collect();
    for (at, (of, mut slice)) in lacking.into_iter().enumerate() {
        let has_counters =
            |other: &Value| pool(other) == of && !other["spec"]["sharedCounters"].is_null();
        if !slices.iter().any(has_counters) {
            slice["metadata"]["name"] = json!(format!("counters{at}"));
            slice["spec"]["devices"] = json!([]);
            slice["spec"]["sharedCounters"] = counters(input)?;
            slices.push(slice);
        }
    }
    let pools: Vec<_> = slices.iter().map(pool).collect();
    for (at, (slice, of)) in slices.iter_mut().zip(&pools).enumerate() {
        let count = pools.iter().filter(|other| *other == of).count();
        slice["spec"]["pool"]["resourceSliceCount"] = json!(count);
        let devices = slice["spec"]["devices"].as_array_mut().into_iter().flatten();
        for (index, device) in devices.enumerate() {
            device["name"] = json!(format!("g{at}-{index}"));
        }
    }
    Ok(())
}

fn objects(input: &mut Unstructured<'_>) -> Result<(Value, Made)> {
    let mut all = Vec::new();
    for at in 0..2 {
        let spec = json!({"selectors": selectors(input)?});
        all.push(object("DeviceClass", &format!("c{at}"), &spec));
    }
    let mut slices = Vec::new();
    for at in 0..input.int_in_range(1..=5)? {
        slices.push(slice(input, at)?);
    }
    let made = if input.ratio(1, 8)? { Made::Anyhow } else { Made::Validly };
    if made == Made::Validly {
        complete(input, &mut slices)?;
    }
    all.extend(slices);
    for at in 0..input.int_in_range(1..=6)? {
        all.push(claim(input, at)?);
    }
    Ok((json!({"apiVersion": "v1", "kind": "List", "items": all}), made))
}

/// Reads the objects, and allocates the claims one after the other.
fn allocate(bytes: &[u8], made: Made, input: &mut Unstructured<'_>) {
    let Ok(read) = portolan_k8s::read_json(bytes) else { return };
    let config = Config::default().with_store(read.devices.store());
    let (mut writer, _) = Engine::inline(config);
    let nodes = [("n1", "z1"), ("n2", "z2")]
        .map(|(name, zone)| node(name).label("zone", zone).cpu(1_000).pods(10).build());
    let selectors = Selectors::default();
    for claim in read.devices.claims.iter().take(16) {
        for node in &nodes {
            let Some(allocation) = found(devices(&writer), &selectors, claim, node) else {
                continue;
            };
            if made == Made::Validly {
                check(devices(&writer), claim, node, &allocation);
            }
            let is_accepted = settle(&mut writer, claim, allocation, input);
            assert!(is_accepted || made == Made::Anyhow, "the allocated devices are free");
            break;
        }
    }
    assert_eq!(writer.cluster().audit(), vec![]);
}

fn devices(writer: &Writer) -> &Devices {
    writer.cluster().store::<Devices>().expect("registered")
}

fn found(
    devices: &Devices,
    selectors: &Selectors,
    claim: &Arc<ResourceClaim>,
    node: &Node,
) -> Option<Allocation> {
    let known = devices.claims().get(claim.namespace(), claim.name())?;
    if !Arc::ptr_eq(known, claim) || claim.status.allocation.is_some() {
        return None;
    }
    let pools = NodePools::gather(devices.slices(), node);
    let claims = std::slice::from_ref(claim);
    let allocator = Allocator { devices, selectors, claims, max_steps: 20_000 };
    let found = allocator.allocate(node, &pools);
    let fits = allocator.fits(node, &pools);
    assert_eq!(fits, found.as_ref().map(Option::is_some).map_err(Clone::clone));
    found.ok().flatten()
}

/// Reserves the devices, and ends the reservation in one of the possible ways. Returns whether the writer accepts it.
fn settle(
    writer: &mut Writer,
    claim: &Arc<ResourceClaim>,
    allocation: Allocation,
    input: &mut Unstructured<'_>,
) -> bool {
    let Some(result) = allocation.results.into_iter().next() else { return true };
    let reserve = vec![InFlight { claim: claim.clone(), allocation: result.clone() }];
    if writer.change::<Devices>(DeviceEvent::Reserve(reserve)).is_err() {
        return false;
    }
    let uid = claim.metadata.uid.clone();
    let event = match input.int_in_range(0..=4).unwrap_or(0) {
        0 | 1 => return true,
        2 | 3 => {
            let mut stored = ResourceClaim::clone(claim);
            stored.status.allocation = Some(result);
            DeviceEvent::Allocated { claim: stored.into(), reserved: uid }
        }
        _ => DeviceEvent::Release(uid),
    };
    writer.change::<Devices>(event).is_ok()
}

/// A device in use: its driver, pool and name.
type Id<'a> = (&'a str, &'a str, &'a str);

fn id(result: &DeviceResult) -> Id<'_> {
    (&result.driver, &result.pool, &result.device)
}

/// Returns the results of all claims that are allocated or in flight, without those for administration.
fn in_use(devices: &Devices) -> Vec<&DeviceResult> {
    let claims = devices.claims();
    let allocation = |claim: &'_ Arc<ResourceClaim>| {
        let in_flight = claims.in_flight(&claim.metadata.uid).map(|of| &of.allocation);
        devices
            .claims()
            .get(claim.namespace(), claim.name())
            .and_then(|claim| claim.status.allocation.as_ref())
            .or(in_flight)
    };
    let results = claims.iter().filter_map(allocation).flat_map(|of| &of.devices.results);
    results.filter(|result| result.admin_access != Some(true)).collect()
}

/// Checks an allocation by the rules of the API, one by one.
fn check(devices: &Devices, claim: &ResourceClaim, node: &Node, allocation: &Allocation) {
    let [result] = &allocation.results[..] else { panic!("one claim, one result") };
    let results = &result.devices.results;
    assert!(results.len() <= 32);
    let used = in_use(devices);
    let mut taken = BTreeSet::new();
    for result in results {
        let (slice, index) = device_of(devices, node, result);
        let device = &slice.spec.devices[index];
        let exactly = request(claim, result);
        let is_admin = exactly.admin_access == Some(true);
        assert_eq!(result.admin_access == Some(true), is_admin);
        let is_shared = device.allow_multiple_allocations == Some(true);
        assert_eq!(result.share_id.is_some(), is_shared);
        let is_used = used.iter().any(|other| id(other) == id(result));
        assert!(is_shared || is_admin || !is_used, "{result:?} is in use");
        assert!(is_shared || taken.insert(id(result)), "{result:?} is allocated twice");
        assert!(is_tolerated(device, exactly), "{result:?} has a taint");
        let class = devices.classes().get(&exactly.device_class_name).expect("a known class");
        for selector in class.spec.selectors.iter().chain(&exactly.selectors) {
            let cel = selector.cel.as_ref().expect("an expression");
            let matches = Selectors::default().matches(&cel.expression, slice, index);
            assert_eq!(matches, Ok(true), "{result:?} does not match {:?}", cel.expression);
        }
        for (name, capacity) in &device.capacity {
            let of = |result: &&DeviceResult| result.consumed_capacity.get(name).cloned();
            let all = results.iter().chain(used.iter().copied().filter(|_| is_shared));
            let all = all.filter(|other| id(other) == id(result));
            let sum = all.filter_map(|result| of(&result)).map(|amount| amount.quantity());
            let sum = sum.fold(Quantity::default(), |sum, amount| sum + amount);
            assert!(sum <= capacity.value.quantity(), "{result:?} lacks {name}");
        }
    }
    check_counts(claim, results);
    check_counters(devices, node, &used, results);
    check_constraints(devices, claim, node, results);
}

/// Each request must have its devices: those of one alternative.
fn check_counts(claim: &ResourceClaim, results: &[DeviceResult]) {
    for request in &claim.spec.devices.requests {
        let of = |name: &str| results.iter().filter(|result| *result.request == *name).count();
        if let Some(exactly) = &request.exactly {
            has_count(exactly, of(&request.name));
            continue;
        }
        let choices = request.first_available.iter().map(|choice| {
            let count = of(&format!("{}/{}", request.name, choice.name));
            (&choice.exactly, count)
        });
        let chosen: Vec<_> = choices.filter(|(_, count)| *count > 0).collect();
        assert_eq!(chosen.len(), 1, "{} has one alternative", request.name);
        has_count(chosen[0].0, chosen[0].1);
    }
}

fn has_count(exactly: &ExactRequest, count: usize) {
    match exactly.allocation_mode {
        AllocationMode::All => assert!(count > 0),
        _ => assert_eq!(i64::try_from(count), Ok(exactly.count.unwrap_or(1))),
    }
}

/// The request or alternative of a result.
fn request<'a>(claim: &'a ResourceClaim, result: &DeviceResult) -> &'a ExactRequest {
    let (name, choice) = match result.request.split_once('/') {
        Some((name, choice)) => (name, Some(choice)),
        None => (&*result.request, None),
    };
    let request = claim.spec.devices.requests.iter().find(|of| *of.name == *name);
    let request = request.expect("a known request");
    match choice {
        None => request.exactly.as_ref(),
        Some(choice) => {
            let mut choices = request.first_available.iter();
            choices.find(|of| *of.name == *choice).map(|of| &of.exactly)
        }
    }
    .expect("a known alternative")
}

/// Returns the slice of a device, and its index there. The device must belong to the node.
fn device_of<'a>(
    devices: &'a Devices,
    node: &Node,
    result: &DeviceResult,
) -> (&'a Arc<ResourceSlice>, usize) {
    let slices = devices.slices().iter().filter(|slice| {
        slice.spec.driver == result.driver
            && slice.spec.pool.name == result.pool
            && slice.spec.shared_counters.is_empty()
    });
    let found = slices.filter_map(|slice| {
        let spec = &slice.spec;
        let index = spec.devices.iter().position(|device| device.name == result.device)?;
        let device = &spec.devices[index];
        let is_on = match spec.per_device_node_selection {
            Some(true) => is_on(node, &device.node_name, device.all_nodes, &device.node_selector),
            _ => is_on(node, &spec.node_name, spec.all_nodes, &spec.node_selector),
        };
        is_on.then_some((slice, index))
    });
    let found: Vec<_> = found.collect();
    let newest = found.iter().map(|(slice, _)| slice.spec.pool.generation).max();
    let newest: Vec<_> =
        found.iter().filter(|(slice, _)| Some(slice.spec.pool.generation) == newest).collect();
    assert_eq!(newest.len(), 1, "{result:?} is one device of {}", node.name);
    *newest[0]
}

fn is_on(
    node: &Node,
    name: &Option<Arc<str>>,
    all: Option<bool>,
    selector: &Option<NodeSelector>,
) -> bool {
    match name {
        Some(name) if !name.is_empty() => **name == *node.name,
        _ => all == Some(true) || selector.as_ref().is_some_and(|selector| selector.matches(node)),
    }
}

fn is_tolerated(device: &Device, exactly: &ExactRequest) -> bool {
    device.taints.iter().filter(|taint| *taint.effect != *"None").all(|taint| {
        exactly.tolerations.iter().any(|toleration| {
            (toleration.key.is_empty() || toleration.key == taint.key)
                && (toleration.effect.is_empty() || toleration.effect == taint.effect)
                && (*toleration.operator == *"Exists" || toleration.value == taint.value)
        })
    })
}

/// The devices of a pool must not consume more than its counters.
fn check_counters(
    devices: &Devices,
    node: &Node,
    used: &[&DeviceResult],
    results: &[DeviceResult],
) {
    for result in results {
        let (slice, index) = device_of(devices, node, result);
        if slice.spec.devices[index].consumes_counters.is_empty() {
            continue;
        }
        let current = devices.slices().iter().filter(|other| {
            other.spec.driver == slice.spec.driver
                && other.spec.pool.name == slice.spec.pool.name
                && other.spec.pool.generation == slice.spec.pool.generation
        });
        let mut left: BTreeMap<(&str, &str), Quantity> = BTreeMap::new();
        let current: Vec<&Arc<ResourceSlice>> = current.collect();
        for set in current.iter().flat_map(|slice| &slice.spec.shared_counters) {
            for (name, counter) in &set.counters {
                left.insert((&set.name, name), counter.value.quantity());
            }
        }
        for device in current.iter().flat_map(|slice| &slice.spec.devices) {
            let is_it = |of: &DeviceResult| {
                of.driver == result.driver && of.pool == result.pool && of.device == device.name
            };
            if !used.iter().any(|of| is_it(of)) && !results.iter().any(is_it) {
                continue;
            }
            for set in &device.consumes_counters {
                for (name, counter) in &set.counters {
                    let left = left.get_mut(&(&*set.counter_set, &**name)).expect("a counter");
                    *left = *left - counter.value.quantity();
                }
            }
        }
        assert!(left.values().all(|left| !left.is_negative()), "{result:?} lacks counters");
    }
}

/// The devices of a `matchAttribute` constraint must have one value. Those of a `distinctAttribute` constraint must have
/// the attribute; kube-scheduler 1.36 compares only some of the values.
fn check_constraints(
    devices: &Devices,
    claim: &ResourceClaim,
    node: &Node,
    results: &[DeviceResult],
) {
    for constraint in &claim.spec.devices.constraints {
        let concerned = results.iter().filter(|result| {
            let (request, _) = result.request.split_once('/').unwrap_or((&result.request, ""));
            let named = |name: &Arc<str>| **name == *request || *name == result.request;
            constraint.requests.is_empty() || constraint.requests.iter().any(named)
        });
        let attribute = constraint.match_attribute.as_ref();
        let attribute = attribute.or(constraint.distinct_attribute.as_ref()).expect("an attribute");
        let values: Vec<&Attribute> = concerned
            .map(|result| {
                let (slice, index) = device_of(devices, node, result);
                let attributes = &slice.spec.devices[index].attributes;
                let short = attribute.strip_prefix(&format!("{}/", slice.spec.driver));
                let short = short.and_then(|name| attributes.get(name));
                attributes.get(attribute).or(short).expect("the attribute of a constraint")
            })
            .collect();
        if constraint.match_attribute.is_some() {
            assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{attribute}: {values:?}");
        }
    }
}
