//! The routes through which a kube-scheduler calls portolan's plugins.
//!
//! | path | request, answer |
//! |---|---|
//! | `/filter` | `ExtenderArgs`, `ExtenderFilterResult`: the nodes that pass the filters of the pod's profile |
//! | `/prioritize` | `ExtenderArgs`, `HostPriorityList`: the totals of the profile's scores, from 0 for the lowest to 10 for the highest |
//! | `/preempt` | `ExtenderPreemptionArgs`, `ExtenderPreemptionResult`: the candidates on which the pod passes without the victims |
//! | `/bind` | `ExtenderBindingArgs`, `ExtenderBindingResult`: binds a pod by its uid, if bindings are allowed |
//!
//! Answers are computed from the newest version of the mirror. Nodes are looked up by name, even if they were sent as
//! objects, because a Node object does not list its pods. The mirror lacks the pods that the caller has assumed but not
//! bound yet, so these are not counted. The first profile answers for pods of schedulers that have no profile.
//!
//! A request that cannot be read is answered with 400 and `{"Error": "…"}`, one that is too large with 413, and one
//! that takes more than 30 s to arrive with 408. Every request is answered with 503 until the first lists are applied.
//! The number of bodies that are read at once is limited, and so is the number of requests that are evaluated at once,
//! including requests whose client has disconnected. This bounds the memory of requests.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use portolan::framework::{
    Code, Cycle, CycleState, Feasible, Filters, Framework, MAX_EXTENDER_SCORE, Status,
};
use portolan::model::{Name, Pod, Uid, pod};
use portolan::scheduler::Schedulers;
use portolan::snapshot::Chunk;
use portolan::{NodeInfo, Snapshot};
use portolan_k8s::pod_from_slice;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::wire::{
    self, ArgsOf, BindingArgs, Empty, ErrorResult, FilterResult, HostPriority, MetaVictims,
    NodeList, PreemptionResult,
};
use crate::mirror::Readiness;
use crate::process::LiveScheduler;
use crate::write::ApiBinder;

/// The options of an extender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtenderOptions {
    /// Whether to bind pods. Any client that reaches the server can then bind any pod, so restrict access to it.
    pub allow_bind: bool,
    /// The largest request, in bytes. A list of 5,000 whole nodes takes some 50 MB.
    pub max_body: usize,
    /// The number of requests that are evaluated at once. As many more are read meanwhile, and the others wait, so
    /// requests occupy up to `2 * at_once * max_body` bytes.
    pub at_once: usize,
}

impl Default for ExtenderOptions {
    fn default() -> ExtenderOptions {
        ExtenderOptions { allow_bind: false, max_body: 64 << 20, at_once: 8 }
    }
}

/// Why a scheduler cannot serve as an extender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtenderServiceError {
    /// The configuration has extenders.
    #[error(
        "the configuration has `extenders`: remove them, because an extender cannot call other extenders"
    )]
    Extenders,
}

/// How long a request may take to arrive.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

struct Service {
    schedulers: Weak<Schedulers>,
    readiness: Readiness,
    binder: Option<ApiBinder>,
    limits: RequestLimits,
}

/// Limits how many requests are in memory.
struct RequestLimits {
    max_body: usize,
    /// Bodies that are being read, or wait for their evaluation.
    reads: Semaphore,
    /// Requests that are being evaluated.
    judged: Arc<Semaphore>,
}

/// A request that cannot be answered as asked.
enum Refused {
    /// The mirror is not synced.
    Unready,
    /// The request cannot be read.
    Malformed(String),
    /// The request is too large.
    TooLarge(usize),
    /// The request did not arrive in time.
    Slow,
    /// The request was read, and the plugins failed.
    Failed(String),
}

impl From<serde_json::Error> for Refused {
    fn from(error: serde_json::Error) -> Refused {
        Refused::Malformed(error.to_string())
    }
}

impl From<Status> for Refused {
    fn from(status: Status) -> Refused {
        Refused::Failed(status.message())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (code, error) = match self {
            Refused::Unready => {
                let why = "the first lists are not applied yet".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, why)
            }
            Refused::Malformed(why) => (StatusCode::BAD_REQUEST, why),
            Refused::TooLarge(most) => {
                let why = format!("the request is larger than {most} bytes");
                (StatusCode::PAYLOAD_TOO_LARGE, why)
            }
            Refused::Slow => {
                let why = format!("the request took longer than {} s", READ_TIMEOUT.as_secs());
                (StatusCode::REQUEST_TIMEOUT, why)
            }
            Refused::Failed(why) => (StatusCode::INTERNAL_SERVER_ERROR, why),
        };
        answer(code, &ErrorResult { error })
    }
}

fn answer(code: StatusCode, value: &impl Serialize) -> Response {
    // The answers are structs and maps with string keys, whose serialization cannot fail.
    let body = serde_json::to_vec(value).unwrap_or_default();
    (code, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Returns the routes that answer for this scheduler's profiles, from its mirror. The scheduler need not have begun.
///
/// # Errors
///
/// The scheduler's configuration has extenders itself.
pub fn extender_routes(
    scheduler: &LiveScheduler,
    options: ExtenderOptions,
) -> Result<Router, ExtenderServiceError> {
    let schedulers = scheduler.schedulers();
    if schedulers.profiles().iter().any(|profile| !profile.handle().extenders().is_empty()) {
        return Err(ExtenderServiceError::Extenders);
    }
    let service = Arc::new(Service {
        schedulers: Arc::downgrade(schedulers),
        readiness: scheduler.mirror().readiness(),
        binder: options.allow_bind.then(|| scheduler.writes().binder()),
        limits: RequestLimits::new(options.at_once, options.max_body),
    });
    Ok(Router::new()
        .route("/filter", post(filter))
        .route("/prioritize", post(prioritize))
        .route("/preempt", post(preempt))
        .route("/bind", post(bind))
        .with_state(service))
}

type Asked = State<Arc<Service>>;

async fn filter(State(service): Asked, body: Body) -> Response {
    service.respond(body, Service::filter).await
}

async fn prioritize(State(service): Asked, body: Body) -> Response {
    service.respond(body, Service::prioritize).await
}

async fn preempt(State(service): Asked, body: Body) -> Response {
    service.respond(body, Service::preempt).await
}

async fn bind(State(service): Asked, body: Body) -> Response {
    service.respond(body, Service::bind).await
}

/// A version of the cluster, and the framework of a pod's profile.
struct Basis {
    snapshot: Arc<Snapshot>,
    framework: Arc<Framework>,
    pod: Pod,
}

impl RequestLimits {
    fn new(at_once: usize, max_body: usize) -> RequestLimits {
        let permits = || Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS));
        RequestLimits { max_body, reads: permits(), judged: Arc::new(permits()) }
    }

    /// Reads a request, and answers it on a thread that may block.
    async fn answer(
        &self,
        body: Body,
        work: impl FnOnce(&[u8]) -> Result<Response, Refused> + Send + 'static,
    ) -> Result<Response, Refused> {
        let failed = |error: &dyn fmt::Display| Refused::Failed(error.to_string());
        let reading = self.reads.acquire().await.map_err(|error| failed(&error))?;
        let read = Limited::new(body, self.max_body).collect();
        let bytes = match timeout(READ_TIMEOUT, read).await {
            Err(_) => return Err(Refused::Slow),
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                return Err(Refused::TooLarge(self.max_body));
            }
            Ok(Err(error)) => return Err(Refused::Malformed(error.to_string())),
        };
        let turn = self.judged.clone().acquire_owned().await.map_err(|error| failed(&error))?;
        drop(reading);
        let judged = move || {
            let answer = work(&bytes);
            drop(bytes);
            // The work continues if its client disconnects, and keeps its permit.
            drop(turn);
            answer
        };
        let answer = tokio::task::spawn_blocking(judged).await;
        answer.unwrap_or_else(|error| Err(failed(&error)))
    }
}

impl Service {
    async fn respond(
        self: Arc<Service>,
        body: Body,
        work: impl FnOnce(&Service, &[u8]) -> Result<Response, Refused> + Send + 'static,
    ) -> Response {
        if !self.readiness.is_synced() {
            return Refused::Unready.into_response();
        }
        let service = self.clone();
        let answer = self.limits.answer(body, move |bytes| work(&service, bytes)).await;
        answer.unwrap_or_else(IntoResponse::into_response)
    }

    fn basis(&self, raw: &RawValue) -> Result<Basis, Refused> {
        let read = pod_from_slice(raw.get().as_bytes());
        let pod = read.map_err(|error| Refused::Malformed(format!("Pod: {error}")))?;
        let stopped = || Refused::Failed("the extender is stopping".to_owned());
        let schedulers = self.schedulers.upgrade().ok_or_else(stopped)?;
        let profiles = schedulers.profiles();
        let framework = profiles.get(&pod).or_else(|| profiles.iter().next()).cloned();
        let framework = framework.ok_or_else(stopped)?;
        let snapshot = framework.handle().snapshot().ok_or_else(stopped)?;
        Ok(Basis { snapshot, framework, pod })
    }

    fn filter(&self, request: &[u8]) -> Result<Response, Refused> {
        let ArgsOf { pod, names, nodes } = ArgsOf::read(request)?;
        let basis = self.basis(pod)?;
        let state = CycleState::default();
        let cycle = Cycle::new(&basis.snapshot, &basis.pod, &state);
        let filters = basis.framework.pre_filter(cycle);
        let mut result = FilterResult::default();
        if let Some(status) = filters.rejected().filter(|status| !status.code.is_rejection()) {
            result.error = status.message();
            return Ok(answer(StatusCode::OK, &result));
        }
        let mut passed = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let status = match basis.snapshot.node(name) {
                Some(node) => filters.filter_with_nominated(node),
                // Preemption on the node could not succeed either.
                None => Some(Status::new(Code::UnschedulableAndUnresolvable, "", UNKNOWN)),
            };
            let Some(status) = status else {
                passed.push(at);
                continue;
            };
            match status.code {
                Code::Unschedulable => {
                    result.failed_nodes.insert(name.clone(), status.message());
                }
                code if code.is_rejection() => {
                    let failed = &mut result.failed_and_unresolvable_nodes;
                    failed.insert(name.clone(), status.message());
                }
                _ => {
                    let error = status.message();
                    let failed = FilterResult { error, ..FilterResult::default() };
                    return Ok(answer(StatusCode::OK, &failed));
                }
            }
        }
        match nodes {
            None => {
                let names = passed.into_iter().map(|at| names[at].clone());
                result.node_names = Some(names.collect());
            }
            Some(nodes) => {
                let items = passed.into_iter().map(|at| Cow::Borrowed(nodes[at])).collect();
                result.nodes = Some(NodeList { metadata: Empty {}, items });
            }
        }
        Ok(answer(StatusCode::OK, &result))
    }

    fn prioritize(&self, request: &[u8]) -> Result<Response, Refused> {
        let ArgsOf { pod, names, .. } = ArgsOf::read(request)?;
        let basis = self.basis(pod)?;
        let state = CycleState::default();
        let cycle = Cycle::new(&basis.snapshot, &basis.pod, &state);
        // Plugins may leave data for their scores in the state.
        let _ = pre_filter(&basis, cycle)?;
        let totals = totals(&basis, cycle, &names)?;
        let lowest = totals.values().copied().min().unwrap_or(0);
        let range = i128::from(totals.values().copied().max().unwrap_or(0)) - i128::from(lowest);
        let scaled = |total: i64| {
            let above = i128::from(total) - i128::from(lowest);
            let most = i128::from(MAX_EXTENDER_SCORE);
            // Rounded to the nearest score.
            let score = if range == 0 { 0 } else { (2 * above * most + range) / (2 * range) };
            i64::try_from(score).unwrap_or(MAX_EXTENDER_SCORE)
        };
        let scores = names.into_iter().map(|host| {
            let score = totals.get(&*host).map_or(0, |total| scaled(*total));
            HostPriority { host, score }
        });
        Ok(answer(StatusCode::OK, &scores.collect::<Vec<_>>()))
    }

    fn preempt(&self, request: &[u8]) -> Result<Response, Refused> {
        let (pod, victims) = wire::read_preemption(request)?;
        let basis = self.basis(pod)?;
        let state = CycleState::default();
        let cycle = Cycle::new(&basis.snapshot, &basis.pod, &state);
        let filters = pre_filter(&basis, cycle)?;
        let mut left = BTreeMap::new();
        for (node, victims) in victims {
            if passes_without(&basis.snapshot, &filters, &node, &victims)? {
                left.insert(node, victims);
            }
        }
        Ok(answer(StatusCode::OK, &PreemptionResult { node_name_to_meta_victims: left }))
    }

    fn bind(&self, request: &[u8]) -> Result<Response, Refused> {
        let BindingArgs { name, namespace, uid, node } = BindingArgs::read(request)?;
        for (field, value) in [("PodName", &name), ("PodNamespace", &namespace), ("Node", &node)] {
            if !is_name(value) {
                return Err(Refused::Malformed(format!("{field}: {value:?} is not a name")));
            }
        }
        if uid.is_empty() {
            return Err(Refused::Malformed("PodUID is missing".to_owned()));
        }
        let error = match &self.binder {
            None => "bindings are not allowed: start the extender with --allow-bind".to_owned(),
            Some(binder) => {
                let pod = pod(name).namespace(namespace).uid(uid).build();
                let bound = binder.bind_for_another(&pod, &Name::from(node));
                bound.err().map(|error| error.to_string()).unwrap_or_default()
            }
        };
        Ok(answer(StatusCode::OK, &ErrorResult { error }))
    }
}

const UNKNOWN: &str = "node(s) unknown to the extender";

/// Runs PreFilter. A rejection is not an error: the filters contain it.
fn pre_filter<'a>(basis: &'a Basis, cycle: Cycle<'a>) -> Result<Filters<'a>, Status> {
    let filters = basis.framework.pre_filter(cycle);
    match filters.rejected().filter(|status| !status.code.is_rejection()) {
        Some(status) => Err(status.clone()),
        None => Ok(filters),
    }
}

/// Returns the weighted sum of the scores of each known node.
fn totals<'a>(
    basis: &'a Basis,
    cycle: Cycle<'a>,
    names: &[String],
) -> Result<BTreeMap<&'a str, i64>, Status> {
    let known: BTreeSet<&str> = names.iter().map(|name| &**name).collect();
    let known = known.into_iter().filter_map(|name| basis.snapshot.node(name));
    let mut chunks: Vec<(&Chunk, u64)> = Vec::new();
    let mut indices: HashMap<*const Chunk, usize> = HashMap::new();
    for (chunk, lane) in known.map(|node| node.place()) {
        let at = *indices.entry(chunk).or_insert_with(|| {
            chunks.push((chunk, 0));
            chunks.len() - 1
        });
        chunks[at].1 |= 1 << lane;
    }
    let feasible = Feasible::new(&basis.snapshot, chunks);
    let nodes: Vec<NodeInfo<'_>> = feasible.nodes().collect();
    let scores = basis.framework.pre_score(cycle, &feasible)?.score(&nodes)?;
    let totals = nodes.iter().zip(scores).map(|(node, scores)| {
        let name = basis.snapshot.node(node.name()).map_or("", |node| node.name());
        (name, scores.iter().map(|score| score.weighted).sum())
    });
    Ok(totals.collect())
}

/// Returns whether the pod passes on the node without the victims that are still there.
fn passes_without(
    snapshot: &Snapshot,
    filters: &Filters<'_>,
    node: &str,
    victims: &MetaVictims,
) -> Result<bool, Status> {
    let mut fork = snapshot.fork();
    let mut filters = filters.extend();
    for victim in &victims.pods {
        let uid = Uid::new(&victim.uid);
        let Some(here) = fork.node(node) else { return Ok(false) };
        let Some(pod) = here.pods().find(|pod| pod.uid() == uid).map(|pod| pod.to_pod()) else {
            continue;
        };
        fork.remove_pod(&uid).map_err(|error| Status::error("", error.to_string()))?;
        if let Some(here) = fork.node(node) {
            filters.remove_pod(&pod, here)?;
        }
    }
    let Some(here) = fork.node(node) else { return Ok(false) };
    match filters.filter_with_nominated(here) {
        None => Ok(true),
        Some(status) if status.code.is_rejection() => Ok(false),
        Some(status) => Err(status),
    }
}

/// Returns whether a text can be the name of an object, and thus part of a path.
fn is_name(text: &str) -> bool {
    let is_inner =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 253
        && text.bytes().all(is_inner)
        && ends(text.bytes().next())
        && ends(text.bytes().last())
        && !text.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::mpsc;

    #[tokio::test]
    async fn a_request_whose_client_has_gone_keeps_its_turn() {
        let limits = Arc::new(RequestLimits::new(1, 8));
        let (started, (release, released)) = (Arc::new(Semaphore::new(0)), mpsc::channel::<()>());
        let (begun, own) = (started.clone(), limits.clone());
        let first = tokio::spawn(async move {
            let work = move |_: &[u8]| {
                begun.add_permits(1);
                // Ends when the sender is dropped.
                let _ = released.recv();
                Err(Refused::Slow)
            };
            own.answer(Body::empty(), work).await.is_ok()
        });
        started.acquire().await.expect("open").forget();
        first.abort();
        assert!(first.await.expect_err("aborted").is_cancelled());
        assert_eq!(limits.judged.available_permits(), 0, "the first one is still judged");
        let ok = |_: &[u8]| Ok(answer(StatusCode::OK, &0));
        let second = limits.answer(Body::empty(), ok);
        let mut second = std::pin::pin!(second);
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(limits.reads.available_permits(), 0, "the second one waits after it was read");
        drop(release);
        assert!(second.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_occupies_no_turn() {
        let limits = RequestLimits::new(1, 8);
        let never = futures_util::stream::pending::<Result<&[u8], std::io::Error>>();
        let slow = limits.answer(Body::from_stream(never), |_| Ok(answer(StatusCode::OK, &0)));
        let mut slow = std::pin::pin!(slow);
        assert!(slow.as_mut().now_or_never().is_none());
        assert_eq!((limits.reads.available_permits(), limits.judged.available_permits()), (0, 1));
        assert!(matches!(slow.await, Err(Refused::Slow)));
        assert_eq!(limits.reads.available_permits(), 1);
    }
}
