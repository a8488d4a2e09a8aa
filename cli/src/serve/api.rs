//! The API: its handlers, the bounds of a request, and the work behind it.
//!
//! Questions are computed on blocking threads, as many at once as there are processors. A limited number waits for a
//! thread; further ones are refused. Short answers have other threads and do not wait. If a client leaves, or waits too
//! long, its simulation or comparison ends before the next decision. Other computations run to their end.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use portolan::model::{Pod, is_scheduled_resource};
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;

use super::access::{self, Access, admit};
use super::difference::Difference;
use super::figures::{Figures, measure};
use super::history::{History, LIFETIME, NotHeld};
use super::lines::Lines;
use super::page;
use super::problem::Problem;
use super::query::{Asked, Number};
use super::routes::table;
use super::sessions::{NotAdded, Session, Sessions};
use super::source::Source;
use super::view::{Reading, View};
use crate::cluster::Input;
use crate::compare::Contest;
use crate::policy::Rules;
use crate::what_if::Change;

/// The largest body of a request, in bytes.
const LARGEST_BODY: usize = 256 << 10;

/// The most questions that are computed or wait for a thread.
const MOST_QUESTIONS: usize = 128;

/// The time until a question is given up.
const LONGEST: Duration = Duration::from_secs(300);

/// What the handlers share.
pub(super) struct App {
    rules: Rules,
    /// The name of the cluster's source.
    source: String,
    /// The current reading, and its objects if they were read, which the audit examines.
    current: RwLock<(Arc<View>, Option<Input>)>,
    pub(super) history: History,
    /// Why the source could not be read again, if it could not.
    error: RwLock<Option<String>>,
    /// The number of the current reading. Event streams also wake when `error` changes.
    generation: watch::Sender<u64>,
    pub(super) sessions: Sessions,
    questions: Arc<Semaphore>,
    workers: Arc<Semaphore>,
    pub(super) figures: Figures,
}

type Shared = State<Arc<App>>;

/// The parameters of a question.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// The session whose cluster is read.
    session: Option<String>,
    /// The reading that is examined.
    generation: Option<Number>,
}

/// A query without parameters.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParameters {}

type Answer = Result<Response, Problem>;

impl App {
    pub(super) fn new(
        rules: Rules,
        source: &Source,
        first: Reading,
        input: Option<Input>,
    ) -> Arc<App> {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        Arc::new(App {
            rules,
            source: source.name(),
            generation: watch::Sender::new(first.generation),
            current: RwLock::new((Arc::new(View::of(first.clone())), input)),
            history: History::new(first, (!source.is_replay()).then_some(LIFETIME)),
            error: RwLock::default(),
            sessions: Sessions::default(),
            questions: Arc::new(Semaphore::new(MOST_QUESTIONS)),
            workers: Arc::new(Semaphore::new(threads)),
            figures: Figures::default(),
        })
    }

    /// Shows a newer reading to all further questions.
    pub(super) fn show(&self, reading: Reading, input: Option<Input>) {
        let generation = reading.generation;
        let whole = self.history.push(reading.clone());
        let mut shown = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let replaced = std::mem::replace(&mut *shown, (Arc::new(View::of(reading)), input));
        drop(shown);
        drop(replaced);
        self.generation.send_replace(generation);
        if let Some(whole) = whole {
            self.history.compact(&whole);
        }
    }

    /// Shows why the newest reading may not be the state of the source, or that it is.
    pub(super) fn report(&self, error: Option<String>) {
        let mut shown = self.error.write().unwrap_or_else(PoisonError::into_inner);
        if *shown == error {
            return;
        }
        if let Some(error) = &error {
            tracing::warn!(error, "the cluster was not read again");
        }
        *shown = error;
        drop(shown);
        // Wakes the event streams.
        self.generation.send_modify(|_| {});
    }

    fn error(&self) -> Option<String> {
        self.error.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn current(&self) -> Arc<View> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    pub(super) fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// The cluster of a session or of a reading, or the current one.
    async fn view(self: &Arc<App>, of: &Parameters) -> Result<Arc<View>, Problem> {
        match (&of.session, of.generation) {
            (Some(id), None) => Ok(self.session(id)?.0.view.clone()),
            (None, Some(Number(generation))) => self.reading(generation).await,
            (None, None) => Ok(self.current()),
            (Some(_), Some(_)) => {
                let what = "session and generation exclude each other: a session has a generation";
                Err(Problem::new(StatusCode::BAD_REQUEST, what))
            }
        }
    }

    async fn reading(self: &Arc<App>, generation: u64) -> Result<Arc<View>, Problem> {
        let current = self.current();
        if current.reading.generation == generation {
            return Ok(current);
        }
        if let Some(ready) = self.history.ready(generation) {
            return Ok(ready);
        }
        let made = work(self, move |app, _| {
            app.history.view(generation).map_err(|not_held| {
                let status = match not_held {
                    NotHeld::Gone { .. } => StatusCode::NOT_FOUND,
                    NotHeld::NotRebuilt { .. } => StatusCode::INTERNAL_SERVER_ERROR,
                };
                Problem::new(status, not_held.to_string())
            })
        });
        made.await
    }

    fn session(&self, id: &str) -> Result<(Arc<Session>, Value), Problem> {
        self.sessions.get(id).ok_or_else(ended)
    }
}

fn ended() -> Problem {
    Problem::not_found("there is no such session: it has ended, or was deleted")
}

/// The routes of the API and of the page, for those to whom `access` is given.
pub(super) fn routes(app: Arc<App>, access: Arc<Access>) -> Router {
    let router = table(&access).into_iter().fold(Router::new(), |router, route| {
        let handlers = route.handlers.fallback(|| async {
            let allowed = "the path does not have this method";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, allowed)
        });
        router.route(route.path, handlers)
    });
    router
        .merge(page::routes())
        .fallback(|| async { Problem::not_found("there is no such path") })
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(from_fn_with_state(access, admit))
        .layer(from_fn(protect))
        .route_layer(from_fn_with_state(app.clone(), measure))
        .with_state(app)
}

/// Refuses requests from pages of other origins, and adds the headers that protect the own page.
async fn protect(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_fixed = page::is_of(path);
    // Browsers send it. A link to the page may be on another one.
    let site = request.headers().get("sec-fetch-site");
    let is_foreign = site.is_some_and(|site| site != "same-origin" && site != "none");
    let mut response = match is_foreign && !is_fixed {
        true => {
            Problem::new(StatusCode::FORBIDDEN, "a page of another origin asks").into_response()
        }
        false => Problem::in_place_of(next.run(request).await),
    };
    let headers = response.headers_mut();
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if !is_fixed {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Clears the flag when the request ends, answered or not.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        // Relaxed: a simulation sees it before a later decision, and nothing else is passed by it.
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Computes a short answer on a thread of its own.
async fn at_once<T: Send + 'static>(
    compute: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(compute).await.unwrap_or_else(|_| {
        let what = "the computation failed: report the server's log as a bug";
        Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, what))
    })
}

/// Computes an answer when a processor is free.
async fn work<T: Send + 'static>(
    app: &Arc<App>,
    compute: impl FnOnce(&App, &Arc<AtomicBool>) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let question = app.questions.clone().try_acquire_owned();
    let question = question.map_err(|_| Problem::busy("too many questions at once: ask again"))?;
    let wanted = Wanted(Arc::new(AtomicBool::new(true)));
    let (flag, shared) = (wanted.0.clone(), app.clone());
    let answer = async {
        let worker = app.workers.clone().acquire_owned().await;
        let compute = move || {
            let _held = (question, worker);
            compute(&shared, &flag)
        };
        at_once(compute).await
    };
    let late = |_| {
        let what = format!("the answer took longer than {} seconds", LONGEST.as_secs());
        Problem::new(StatusCode::GATEWAY_TIMEOUT, what)
    };
    timeout(LONGEST, answer).await.map_err(late)?
}

pub(super) fn text(json: String) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], json).into_response()
}

/// The fields of a body. A page of another origin cannot send this content type without being asked for permission.
pub(super) fn fields(headers: &HeaderMap, body: &Bytes) -> Result<Map<String, Value>, Problem> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let what = "send the header Content-Type: application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Problem::new(StatusCode::BAD_REQUEST, "the body must be a JSON object")),
        Err(error) => {
            Err(Problem::new(StatusCode::BAD_REQUEST, format!("the body is not JSON: {error}")))
        }
    }
}

pub(super) async fn summary(State(app): Shared, Asked(of): Asked<Parameters>) -> Answer {
    let view = app.view(&of).await?;
    let summary = move || {
        let session = of.session.as_deref();
        Ok(view.summary(&app.source, session, app.error().as_deref()).to_string())
    };
    Ok(text(at_once(summary).await?))
}

pub(super) async fn nodes(State(app): Shared, Asked(of): Asked<Parameters>) -> Answer {
    let view = app.view(&of).await?;
    Ok(text(at_once(move || Ok(view.nodes().to_string())).await?))
}

pub(super) async fn node(
    State(app): Shared,
    Path(name): Path<String>,
    Asked(of): Asked<Parameters>,
) -> Answer {
    let view = app.view(&of).await?;
    let node = at_once(move || view.node(&name).map_err(Problem::not_found));
    Ok(text(node.await?.to_string()))
}

pub(super) async fn pending(State(app): Shared, Asked(of): Asked<Parameters>) -> Answer {
    let view = app.view(&of).await?;
    Ok(text(work(&app, move |app, _| Ok(view.pending(&app.rules)?)).await?))
}

pub(super) async fn explain(
    State(app): Shared,
    Asked(of): Asked<Parameters>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let view = app.view(&of).await?;
    let fields = fields(&headers, &body)?;
    let field = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    let (Some(pod), namespace) = (field("pod"), field("namespace")) else {
        return Err(Problem::invalid("the body must have the field \"pod\", a text"));
    };
    if fields.len() > 1 + usize::from(namespace.is_some()) {
        return Err(Problem::invalid("the only other field is \"namespace\", a text"));
    }
    let explanation =
        work(&app, move |app, _| Ok(view.explain(&pod, namespace.as_deref(), &app.rules)?));
    Ok(text(explanation.await?))
}

pub(super) async fn headroom(
    State(app): Shared,
    Asked(of): Asked<Parameters>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let view = app.view(&of).await?;
    let fields = fields(&headers, &body)?;
    let headroom = work(&app, move |app, is_wanted| {
        let like = match (fields.get("requests"), fields.get("pod"), fields.len()) {
            (Some(requests), None, 1) => shape(requests)?,
            (None, Some(Value::String(pod)), 1) => view.pod(pod)?,
            _ => {
                let what = "the body must have one field: \"pod\", a text, or \"requests\"";
                return Err(Problem::invalid(what));
            }
        };
        Ok(view.headroom(like, &app.rules, is_wanted)?)
    });
    Ok(text(headroom.await?.to_string()))
}

/// A pod with these requests, and nothing else that a scheduler considers.
fn shape(requests: &Value) -> Result<Pod, Problem> {
    let mut names = requests.as_object().into_iter().flat_map(Map::keys);
    if let Some(unknown) = names.find(|name| !is_scheduled_resource(name)) {
        let known = "cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME";
        return Err(Problem::invalid(format!(
            "requests.{unknown}: no such resource: pass {known}"
        )));
    }
    let container = json!({ "name": "c", "image": "c", "resources": { "requests": requests } });
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "shape" },
        "spec": { "containers": [container] },
    });
    let read = portolan_k8s::read(pod.to_string().as_bytes()).map_err(|error| {
        let field = error.path().strip_prefix("spec.containers[0].resources.");
        Problem::invalid(format!("{}: {}", field.unwrap_or("requests"), error.cause()))
    });
    let pod = read?.pods.into_iter().next().filter(|_| requests.is_object());
    pod.ok_or_else(|| Problem::invalid("requests must be amounts by the name of a resource"))
}

pub(super) async fn what_if(
    State(app): Shared,
    Asked(of): Asked<Parameters>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let view = app.view(&of).await?;
    let change = Change::from_json(&fields(&headers, &body)?).map_err(Problem::invalid)?;
    let (told, lines) = mpsc::unbounded_channel();
    let answer = async move {
        let computed = work(&app, move |app, is_wanted| {
            // Fails if the client has left.
            let tell = |line| drop(told.send(line));
            Ok(view.what_if(&change, &app.rules, is_wanted, &tell)?.0)
        });
        computed.await
    };
    match Lines::are_accepted(&headers) {
        true => Lines::new(answer, lines).response().await,
        false => {
            drop(lines);
            Ok(text(answer.await?.to_string()))
        }
    }
}

pub(super) async fn compare(
    State(app): Shared,
    Asked(of): Asked<Parameters>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let view = app.view(&of).await?;
    let contest = Contest::from_json(fields(&headers, &body)?).map_err(Problem::invalid)?;
    let answer = work(&app, move |app, is_wanted| {
        Ok(view.compare(&contest, &app.rules, is_wanted)?.to_string())
    });
    Ok(text(answer.await?))
}

pub(super) async fn sessions(
    State(app): Shared,
    Asked(NoParameters {}): Asked<NoParameters>,
) -> Response {
    text(app.sessions.list().to_string())
}

pub(super) async fn add_session(
    State(app): Shared,
    Asked(NoParameters {}): Asked<NoParameters>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let mut fields = fields(&headers, &body)?;
    let parent = match fields.remove("parent") {
        None | Some(Value::Null) => None,
        Some(Value::String(parent)) => Some(parent),
        Some(_) => return Err(Problem::invalid("parent must be the id of a session")),
    };
    let generation = match fields.remove("generation") {
        None | Some(Value::Null) => None,
        Some(generation) => {
            let what = || Problem::invalid("generation must be the number of a reading");
            Some(Number(generation.as_u64().ok_or_else(what)?))
        }
    };
    if fields.is_empty() {
        return Err(Problem::invalid("the body must have a change"));
    }
    let view = app.view(&Parameters { session: parent.clone(), generation }).await?;
    let change = Change::from_json(&fields).map_err(Problem::invalid)?;
    if change.is_only_a_question() {
        let what = "each and consolidate change nothing: ask what-if";
        return Err(Problem::invalid(what));
    }
    if app.history.is_full() {
        let what = "the server holds as much as it may: delete sessions";
        return Err(Problem::new(StatusCode::CONFLICT, what));
    }
    let created = work(&app, move |app, is_wanted| {
        let (answer, after) = view.what_if(&change, &app.rules, is_wanted, &|_| {})?;
        let view = Arc::new(view.after(&change, after));
        let created = jiff::Timestamp::now();
        let session = Session { parent, created, change: fields, answer: answer.clone(), view };
        let id = access::new_id()?;
        let mut session = app.sessions.add(id, session).map_err(|not_added| match not_added {
            NotAdded::Full => {
                Problem::new(StatusCode::CONFLICT, "there are too many sessions: delete some")
            }
            NotAdded::NoParent => ended(),
        })?;
        session["answer"] = answer;
        Ok(session)
    });
    let created = created.await?;
    Ok((StatusCode::CREATED, text(created.to_string())).into_response())
}

pub(super) async fn session(State(app): Shared, Path(id): Path<String>) -> Answer {
    let (session, mut fields) = app.session(&id)?;
    fields["answer"] = session.answer.clone();
    Ok(text(fields.to_string()))
}

pub(super) async fn remove_session(State(app): Shared, Path(id): Path<String>) -> Answer {
    match app.sessions.remove(&id) {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(ended()),
    }
}

pub(super) async fn audit(State(app): Shared, Asked(of): Asked<Parameters>) -> Answer {
    let (current, input) = app.current.read().unwrap_or_else(PoisonError::into_inner).clone();
    let view = match of {
        Parameters { session: None, generation: None } => current.clone(),
        _ => app.view(&of).await?,
    };
    if !Arc::ptr_eq(&view, &current) {
        let what = "the audit examines the newest reading only: the objects of others are not held";
        return Err(Problem::invalid(what));
    }
    Ok(text(work(&app, move |app, _| Ok(view.audit(input.as_ref(), &app.rules)?)).await?))
}

pub(super) async fn generations(
    State(app): Shared,
    Asked(NoParameters {}): Asked<NoParameters>,
) -> Response {
    text(app.history.list().to_string())
}

/// The generations that are compared.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Between {
    from: Number,
    to: Number,
}

pub(super) async fn diff(
    State(app): Shared,
    Asked(Between { from, to }): Asked<Between>,
) -> Answer {
    let (Number(from), Number(to)) = (from, to);
    let (before, after) = (app.reading(from).await?, app.reading(to).await?);
    let difference = work(&app, move |_, _| {
        Ok(Difference::between(&before.reading, &after.reading).json(from, to).to_string())
    });
    Ok(text(difference.await?))
}

/// The generation after which events are reported.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Since {
    since: Option<Number>,
}

/// The events that a client has not received.
struct Feed {
    app: Arc<App>,
    woken: watch::Receiver<u64>,
    /// The generation that was reported last.
    reported: u64,
    /// The error that was reported last, if anything was reported.
    error: Option<Option<String>>,
    events: VecDeque<Event>,
}

impl Feed {
    /// The next event, which may be that of a later reading. Ends with the server.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Feed)> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some((Ok(event), self));
            }
            self.woken.changed().await.ok()?;
            self.woken.mark_unchanged();
            for (generation, reading) in self.app.history.since(self.reported) {
                self.reported = generation;
                let event = Event::default().event("generation").id(generation.to_string());
                self.events.push_back(event.data(reading.to_string()));
            }
            let error = Some(self.app.error());
            if error != self.error {
                let data = json!({ "error": error.clone().flatten() }).to_string();
                self.events.push_back(Event::default().event("failure").data(data));
                self.error = error;
            }
        }
    }
}

/// Reports each later reading of the cluster, or the current one first, and why the source cannot be read.
pub(super) async fn events(
    State(app): Shared,
    Asked(Since { since }): Asked<Since>,
    headers: HeaderMap,
) -> impl IntoResponse {
    // A browser that has lost the connection sends it.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let mut woken = app.generation.subscribe();
    woken.mark_changed();
    let before = app.generation().saturating_sub(1);
    // A server that has restarted counts its generations from the beginning.
    let is_known = |generation: &u64| *generation <= app.generation();
    let reported = last.or(since.map(|Number(since)| since)).filter(is_known).unwrap_or(before);
    let feed = Feed { app, woken, reported, error: None, events: VecDeque::new() };
    Sse::new(unfold(feed, Feed::next)).keep_alive(KeepAlive::default())
}

pub(super) async fn metrics(State(app): Shared) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, kind)], app.figures.text(&app)).into_response()
}
