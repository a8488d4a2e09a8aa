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
//!
//! Web pages cannot use the routes: a request with an `Origin` is answered with 403, because no page is served here,
//! and one whose content type is not `application/json` with 415, because pages may send some other types to any
//! address. On a loopback address, `Host` must name the local host, as for all routes of
//! [`Served`](crate::process::Served).
//!
//! # Memory
//!
//! The number of bodies that are read at once is limited, and so is the number of requests that are evaluated at once,
//! including requests whose client has disconnected. A body is read into one block, and its names are borrowed from it.
//! The numbers of nodes and victims, the size of the pod, and the length of each message are limited. A request thus
//! takes little more memory than its body and its answer, whatever it contains. An answer counts against a limit until
//! it is sent: if clients do not read their answers, further requests are answered with 503.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http_body_util::BodyExt;
use portolan::cache::{NodeInfo, Snapshot};
use portolan::model::{Name, Pod, Uid, pod};
use portolan::plugin::{Code, Cycle, CycleState, Feasible, Filters, MAX_EXTENDER_SCORE, Status};
use portolan::{BinderError, Framework, Schedulers};
use portolan_k8s::pod_from_slice;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::wire::{
    self, ArgsOf, BindingArgs, Empty, ErrorResult, FilterResult, HostPriority, MetaVictims,
    NodeList, PreemptionResult,
};
use crate::mirror::Readiness;
use crate::process::LiveScheduler;
use crate::write::{ApiBinder, prefix};

/// The options of an extender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtenderOptions {
    /// Whether to bind pods. Any client that reaches the server can then bind any pod, so restrict access to it.
    pub allow_bind: bool,
    /// The largest request, in bytes. A list of 5,000 whole nodes takes some 50 MB.
    pub max_body: usize,
    /// The number of requests that are evaluated at once. Requests that are being read or wait occupy up to
    /// `2 * at_once * max_body` bytes, and half as much again while they grow; further ones are refused (503). Answers
    /// that are not sent yet occupy up to `at_once * max_body` bytes.
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

/// The longest message, in bytes. A message may quote the request.
const MAX_MESSAGE: usize = 1_024;

struct Service {
    schedulers: Weak<Schedulers>,
    readiness: Readiness,
    binder: Option<ApiBinder>,
    limits: RequestLimits,
}

/// Limits how many requests are in memory.
struct RequestLimits {
    max_body: usize,
    /// The KiB of requests that may be in memory.
    bodies: Arc<Semaphore>,
    /// Requests that may be evaluated further.
    evaluations: Arc<Semaphore>,
    /// The KiB of answers that may be in memory.
    answers: Arc<Semaphore>,
    /// The permits of `answers`.
    max_answers: usize,
}

fn kib(bytes: usize) -> usize {
    bytes.div_ceil(1_024)
}

/// A request that is not evaluated yet, or an answer that is not sent yet.
struct Counted {
    bytes: Vec<u8>,
    /// Its part of the limit, unless it is empty.
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Counts the bytes that are written.
struct Size(usize);

impl std::io::Write for Size {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A request that cannot be answered as asked: the code, and the error.
struct Refused(StatusCode, String);

impl Refused {
    fn malformed(why: impl fmt::Display) -> Refused {
        Refused(StatusCode::BAD_REQUEST, why.to_string())
    }

    /// The request was read, and the plugins failed.
    fn failed(why: impl fmt::Display) -> Refused {
        Refused(StatusCode::INTERNAL_SERVER_ERROR, why.to_string())
    }

    fn unavailable(why: &str) -> Refused {
        Refused(StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
    }
}

/// Other requests take the memory.
const BUSY: &str = "other requests take all memory for requests";
const UNREAD: &str = "clients have not read their answers yet";

impl From<serde_json::Error> for Refused {
    fn from(error: serde_json::Error) -> Refused {
        Refused::malformed(error)
    }
}

impl From<Status> for Refused {
    fn from(status: Status) -> Refused {
        Refused::failed(status.message())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Refused(code, error) = self;
        let error = message(error);
        // A struct of one string can be serialized.
        let body = serde_json::to_vec(&ErrorResult { error }).unwrap_or_default();
        (code, [(CONTENT_TYPE, JSON)], body).into_response()
    }
}

const JSON: &str = "application/json";

/// Returns an error as it is sent. It is never empty, because an empty error means success to the client.
fn message(mut text: String) -> String {
    if text.trim_ascii().is_empty() {
        return "failed without a message".to_owned();
    }
    text.truncate(prefix(&text, MAX_MESSAGE).len());
    text.shrink_to_fit();
    text
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
    let route = |verb: Verb| {
        let service = service.clone();
        post(move |body: Body| service.respond(body, verb))
    };
    Ok(Router::new()
        .route("/filter", route(Service::filter))
        .route("/prioritize", route(Service::prioritize))
        .route("/preempt", route(Service::preempt))
        .route("/bind", route(Service::bind))
        .route_layer(from_fn(refuse_pages)))
}

/// Refuses requests of web pages.
async fn refuse_pages(request: Request, next: Next) -> Response {
    match check_not_from_page(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

/// Checks that a browser would not send these headers for a page of another host without asking this one first.
fn check_not_from_page(headers: &HeaderMap) -> Result<(), Refused> {
    if headers.contains_key(ORIGIN) {
        let why = "requests with an Origin are refused".to_owned();
        return Err(Refused(StatusCode::FORBIDDEN, why));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim_ascii();
    if kind.eq_ignore_ascii_case(JSON) {
        return Ok(());
    }
    let why = "the content type is not application/json".to_owned();
    Err(Refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, why))
}

type Verb = fn(&Service, &[u8]) -> Result<Response, Refused>;

/// A version of the cluster, and the framework of a pod's profile.
struct Basis {
    snapshot: Arc<Snapshot>,
    framework: Arc<Framework>,
    pod: Pod,
}

impl RequestLimits {
    fn new(at_once: usize, max_body: usize) -> RequestLimits {
        let permits = |count: usize| Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS));
        let max_answers = kib(at_once.saturating_mul(max_body)).clamp(1, Semaphore::MAX_PERMITS);
        RequestLimits {
            max_body,
            bodies: Arc::new(permits(at_once.saturating_mul(2 * kib(max_body)))),
            evaluations: Arc::new(permits(at_once)),
            answers: Arc::new(permits(max_answers)),
            max_answers,
        }
    }

    /// Reads a body into one block, which grows with what arrives: a client that announces a length and sends nothing
    /// occupies no memory.
    async fn read(&self, mut body: Body) -> Result<Counted, Refused> {
        let too_large = || {
            let why = format!("the request is larger than {} bytes", self.max_body);
            Refused(StatusCode::PAYLOAD_TOO_LARGE, why)
        };
        let announced = body.size_hint().exact().map(usize::try_from).transpose();
        let most = announced.map_err(|_| too_large())?.unwrap_or(self.max_body);
        if most > self.max_body {
            return Err(too_large());
        }
        let (mut bytes, mut permit) = (Vec::new(), None::<OwnedSemaphorePermit>);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(Refused::malformed)?;
            let Some(data) = frame.data_ref() else { continue };
            let length = bytes.len() + data.len();
            if length > most {
                return Err(too_large());
            }
            if length > bytes.capacity() {
                let capacity = length.max(2 * bytes.capacity()).min(most);
                let more = kib(capacity) - kib(bytes.capacity());
                let busy = || Refused::unavailable(BUSY);
                let more = u32::try_from(more).map_err(|_| busy())?;
                let more = self.bodies.clone().try_acquire_many_owned(more);
                let more = more.map_err(|_| busy())?;
                match &mut permit {
                    Some(permit) => permit.merge(more),
                    None => permit = Some(more),
                }
                bytes.reserve_exact(capacity - bytes.len());
            }
            bytes.extend_from_slice(data);
        }
        Ok(Counted { bytes, _permit: permit })
    }

    /// Writes an answer, which counts against the limit until it is sent.
    fn write(&self, value: &impl Serialize) -> Result<Response, Refused> {
        let mut size = Size(0);
        serde_json::to_writer(&mut size, value).map_err(Refused::failed)?;
        let permits = kib(size.0);
        if permits > self.max_answers {
            return Err(Refused::failed(format!("the answer would have {} bytes", size.0)));
        }
        let unread = || Refused::unavailable(UNREAD);
        let permits = u32::try_from(permits).map_err(|_| unread())?;
        let permit = self.answers.clone().try_acquire_many_owned(permits);
        let permit = permit.map_err(|_| unread())?;
        let mut bytes = Vec::with_capacity(size.0);
        serde_json::to_writer(&mut bytes, value).map_err(Refused::failed)?;
        let body = Body::from(Bytes::from_owner(Counted { bytes, _permit: Some(permit) }));
        Ok(([(CONTENT_TYPE, JSON)], body).into_response())
    }

    /// Reads a request, and answers it on a thread that may block.
    async fn answer(
        &self,
        body: Body,
        work: impl FnOnce(&[u8]) -> Result<Response, Refused> + Send + 'static,
    ) -> Result<Response, Refused> {
        let slow = || {
            let why = format!("the request took longer than {} s", READ_TIMEOUT.as_secs());
            Refused(StatusCode::REQUEST_TIMEOUT, why)
        };
        let body = timeout(READ_TIMEOUT, self.read(body)).await.map_err(|_| slow())??;
        let turn = self.evaluations.clone().acquire_owned().await.map_err(Refused::failed)?;
        let evaluate = move || {
            let answer = work(&body.bytes);
            drop(body);
            // The work continues if its client disconnects, and keeps its permit.
            drop(turn);
            answer
        };
        let answer = tokio::task::spawn_blocking(evaluate).await;
        answer.unwrap_or_else(|error| Err(Refused::failed(error)))
    }
}

impl Service {
    async fn respond(self: Arc<Service>, body: Body, verb: Verb) -> Response {
        if !self.readiness.is_synced() {
            return Refused::unavailable("the first lists are not applied yet").into_response();
        }
        let service = self.clone();
        let answer = self.limits.answer(body, move |bytes| verb(&service, bytes)).await;
        answer.unwrap_or_else(IntoResponse::into_response)
    }

    fn basis(&self, raw: &RawValue) -> Result<Basis, Refused> {
        let read = pod_from_slice(raw.get().as_bytes());
        let pod = read.map_err(|error| Refused::malformed(format_args!("Pod: {error}")))?;
        let stopped = || Refused::failed("the extender is stopping");
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
            result.error = message(status.message());
            return self.limits.write(&result);
        }
        let mut passed = Vec::new();
        for (at, name) in names.iter().map(|name| &**name).enumerate() {
            let Some(node) = basis.snapshot.node(name) else {
                // Preemption on the node could not succeed either.
                result.failed_and_unresolvable_nodes.insert(name, UNKNOWN.into());
                continue;
            };
            let Some(status) = filters.filter_with_nominated(node) else {
                passed.push(at);
                continue;
            };
            let why = message(status.message());
            match status.code {
                Code::Unschedulable => drop(result.failed_nodes.insert(name, why.into())),
                code if code.is_rejection() => {
                    result.failed_and_unresolvable_nodes.insert(name, why.into());
                }
                _ => {
                    let failed = FilterResult { error: why, ..FilterResult::default() };
                    return self.limits.write(&failed);
                }
            }
        }
        match nodes {
            None => {
                let names = passed.into_iter().map(|at| &*names[at]);
                result.node_names = Some(names.collect());
            }
            Some(nodes) => {
                let items = passed.into_iter().map(|at| Cow::Borrowed(nodes[at])).collect();
                result.nodes = Some(NodeList { metadata: Empty {}, items });
            }
        }
        self.limits.write(&result)
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
        let scores = names.iter().map(|host| {
            let score = totals.get(&**host).map_or(0, |total| scaled(*total));
            HostPriority { host, score }
        });
        self.limits.write(&scores.collect::<Vec<_>>())
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
        self.limits.write(&PreemptionResult { node_name_to_meta_victims: left })
    }

    fn bind(&self, request: &[u8]) -> Result<Response, Refused> {
        let BindingArgs { name, namespace, uid, node } = BindingArgs::read(request)?;
        for (field, value) in [("PodName", &name), ("PodNamespace", &namespace), ("Node", &node)] {
            if !is_name(value) {
                let value = prefix(value, MAX_MESSAGE);
                return Err(Refused::malformed(format_args!("{field}: {value:?} is not a name")));
            }
        }
        if uid.is_empty() {
            return Err(Refused::malformed("PodUID is missing"));
        }
        let error = match &self.binder {
            None => "bindings are not allowed: start the extender with --allow-bind".to_owned(),
            Some(binder) => {
                let pod = pod(name).namespace(namespace).uid(uid).build();
                bind_error(binder.bind_for_another(&pod, &Name::from(node)))
            }
        };
        self.limits.write(&ErrorResult { error })
    }
}

/// Returns the `Error` of a binding: an empty string if the pod is bound, and only then.
fn bind_error(bound: Result<(), BinderError>) -> String {
    bound.err().map(|error| message(error.to_string())).unwrap_or_default()
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
    names: &[Cow<'_, str>],
) -> Result<BTreeMap<&'a str, i64>, Status> {
    let known: BTreeSet<&str> = names.iter().map(|name| &**name).collect();
    let known = known.into_iter().filter_map(|name| basis.snapshot.node(name));
    let feasible = Feasible::of(&basis.snapshot, known);
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
mod memory_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, StreamExt};
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
                Err(Refused::failed("late"))
            };
            own.answer(Body::empty(), work).await.is_ok()
        });
        started.acquire().await.expect("open").forget();
        first.abort();
        assert!(first.await.expect_err("aborted").is_cancelled());
        assert_eq!(limits.evaluations.available_permits(), 0, "the first one is still evaluated");
        let ok = |_: &[u8]| Ok(StatusCode::OK.into_response());
        let second = limits.answer(Body::empty(), ok);
        let mut second = std::pin::pin!(second);
        assert!(second.as_mut().now_or_never().is_none());
        drop(release);
        assert!(second.await.is_ok());
    }

    #[test]
    fn an_error_without_a_message_is_an_error() {
        assert_eq!(bind_error(Ok(())), "");
        for error in
            [BinderError::Conflict, BinderError::Unknown, BinderError::Refused, BinderError::Failed]
        {
            assert_eq!(bind_error(Err(error("in use".to_owned()))), "in use");
            for empty in ["", " \n"] {
                let sent = bind_error(Err(error(empty.to_owned())));
                assert_eq!(sent, "failed without a message");
            }
        }
        let long = message("é".repeat(MAX_MESSAGE));
        assert_eq!((long.len(), long.capacity()), (MAX_MESSAGE, MAX_MESSAGE));
    }

    #[tokio::test]
    async fn a_body_is_read_into_one_block_that_is_no_larger_than_the_limit() {
        let limits = RequestLimits::new(1, 100);
        let chunks = |lengths: &[usize]| {
            let parts = lengths.iter().map(|length| Ok::<_, std::io::Error>(vec![b'x'; *length]));
            Body::from_stream(futures_util::stream::iter(parts.collect::<Vec<_>>()))
        };
        let capacity = |received: Result<Counted, Refused>| {
            received
                .map(|Counted { bytes, .. }| (bytes.len(), bytes.capacity()))
                .map_err(|Refused(code, _)| code.as_u16())
        };
        assert_eq!(capacity(limits.read(Body::from(vec![b'x'; 99])).await), Ok((99, 99)));
        assert_eq!(capacity(limits.read(Body::from(vec![b'x'; 101])).await), Err(413));
        assert_eq!(capacity(limits.read(chunks(&[60, 10, 20])).await), Ok((90, 100)));
        assert_eq!(capacity(limits.read(chunks(&[60, 41])).await), Err(413));
        // All that it takes counts until it is evaluated.
        let limits = RequestLimits::new(1, 8 << 10);
        let received = limits.read(chunks(&[1 << 10, 2 << 10, 4 << 10])).await;
        assert_eq!(limits.bodies.available_permits(), 16 - 7);
        drop(received);
        assert_eq!(limits.bodies.available_permits(), 16);
    }

    #[test]
    fn a_name_cannot_change_the_path_that_it_is_part_of() {
        for name in ["a", "a.b-c", "0", &"a".repeat(253)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "..", "a..b", ".a", "a.", "-a", "a/b", "a%2fb", "A", "a b", "é", "a\0"] {
            assert!(!is_name(name), "{name}");
        }
        assert!(!is_name(&"a".repeat(254)));
    }

    #[tokio::test]
    async fn answers_that_are_not_sent_count_against_the_limit() {
        let limits = RequestLimits::new(2, 4 << 10);
        let text = "x".repeat(5 << 10);
        let first = limits.write(&text).unwrap_or_else(IntoResponse::into_response);
        assert_eq!(first.status(), StatusCode::OK);
        let second = limits.write(&text).unwrap_or_else(IntoResponse::into_response);
        assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
        let sent = first.into_body().collect().await.expect("sent").to_bytes();
        assert_eq!(sent, format!("\"{text}\""));
        drop(sent);
        assert_eq!(limits.answers.available_permits(), limits.max_answers);
        assert!(limits.write(&text).is_ok());
        let large = limits.write(&"x".repeat(9 << 10)).unwrap_or_else(IntoResponse::into_response);
        assert_eq!(large.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_do_not_arrive_delay_no_other_request() {
        let limits = RequestLimits::new(1, 8 << 10);
        let ok = |_: &[u8]| Ok(StatusCode::OK.into_response());
        let announced = |sent: usize| {
            let sent = futures_util::stream::iter([Ok::<_, std::io::Error>(vec![b'x'; sent])]);
            Body::from_stream(sent.chain(futures_util::stream::pending()))
        };
        let slow: Vec<_> = (0..15).map(|_| Box::pin(limits.answer(announced(1), ok))).collect();
        let mut slow = slow.into_iter().map(|mut slow| {
            assert!(slow.as_mut().now_or_never().is_none());
            slow
        });
        let slow: Vec<_> = slow.by_ref().collect();
        assert_eq!(limits.bodies.available_permits(), 1, "what has arrived, in KiB");
        assert!(limits.answer(Body::from("x"), ok).await.is_ok());
        let busy = limits.answer(Body::from(vec![b'x'; 2 << 10]), ok).await;
        assert!(busy.is_err_and(|Refused(_, why)| why == BUSY));
        for slow in slow {
            assert!(slow.await.is_err_and(|refused| refused.0 == StatusCode::REQUEST_TIMEOUT));
        }
        assert_eq!(limits.bodies.available_permits(), 16);
    }
}
