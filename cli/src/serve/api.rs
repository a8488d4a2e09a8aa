//! The API: its routes, the bounds of a request, and the work behind it.
//!
//! Questions are computed on threads of their own, one for each processor. A limited number waits for a thread; further
//! ones are refused. The computation of a client that leaves ends early if it is a long one.

use std::collections::HashMap;
use std::convert::Infallible;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use futures_util::stream::unfold;
use portolan::model::Pod;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::Rules;
use super::figures::{Figures, measure};
use super::page;
use super::problem::Problem;
use super::sessions::{Full, Session, Sessions};
use super::view::View;
use crate::what_if::Change;

/// The largest body of a request, in bytes.
const LARGEST_BODY: usize = 256 << 10;

/// The most questions that are computed or wait for a thread.
const MOST_QUESTIONS: usize = 128;

/// The time until a question is given up.
const LONGEST: Duration = Duration::from_secs(300);

const DOCUMENT: &str = include_str!("openapi.json");

/// What the handlers share.
pub(super) struct App {
    rules: Rules,
    /// The name of the cluster's source.
    source: String,
    current: RwLock<Arc<View>>,
    /// The number of the current reading.
    generation: watch::Sender<u64>,
    pub(super) sessions: Sessions,
    places: Arc<Semaphore>,
    workers: Arc<Semaphore>,
    pub(super) figures: Figures,
}

type Shared = State<Arc<App>>;
type Parameters = Query<HashMap<String, String>>;
type Answer = Result<Response, Problem>;

impl App {
    pub(super) fn new(rules: Rules, source: String, first: View) -> Arc<App> {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        Arc::new(App {
            rules,
            source,
            generation: watch::Sender::new(first.generation),
            current: RwLock::new(Arc::new(first)),
            sessions: Sessions::default(),
            places: Arc::new(Semaphore::new(MOST_QUESTIONS)),
            workers: Arc::new(Semaphore::new(threads)),
            figures: Figures::default(),
        })
    }

    /// Shows a newer reading to all further questions.
    pub(super) fn show(&self, view: View) {
        let generation = view.generation;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
        self.generation.send_replace(generation);
    }

    pub(super) fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// The cluster of a session, or the current one.
    fn view(&self, parameters: &HashMap<String, String>) -> Result<Arc<View>, Problem> {
        match parameters.get("session") {
            Some(id) => Ok(self.session(id)?.view.clone()),
            None => Ok(self.current.read().unwrap_or_else(PoisonError::into_inner).clone()),
        }
    }

    fn session(&self, id: &str) -> Result<Arc<Session>, Problem> {
        let ended = "there is no such session: it has ended, or was deleted";
        self.sessions.get(id).ok_or_else(|| Problem::not_found(ended))
    }
}

/// The routes of the API and of the page.
pub(super) fn routes(app: Arc<App>) -> Router {
    let router = table().into_iter().fold(Router::new(), |router, (path, handlers)| {
        let handlers = handlers.fallback(|| async {
            let allowed = "the path does not have this method";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, allowed)
        });
        router.route(path, handlers)
    });
    router
        .merge(page::routes())
        .fallback(|| async { Problem::not_found("there is no such path") })
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(from_fn(protect))
        .route_layer(from_fn_with_state(app.clone(), measure))
        .with_state(app)
}

fn table() -> Vec<(&'static str, MethodRouter<Arc<App>>)> {
    vec![
        ("/api/v1/summary", get(summary)),
        ("/api/v1/nodes", get(nodes)),
        ("/api/v1/nodes/{name}", get(node)),
        ("/api/v1/pending", get(pending)),
        ("/api/v1/explain", post(explain)),
        ("/api/v1/headroom", post(headroom)),
        ("/api/v1/what-if", post(what_if)),
        ("/api/v1/sessions", get(sessions).post(add_session)),
        ("/api/v1/sessions/{id}", get(session).delete(remove_session)),
        ("/api/v1/audit", get(audit)),
        ("/api/v1/events", get(events)),
        ("/api/v1/openapi.json", get(|| async { text(DOCUMENT.to_owned()) })),
        ("/healthz", get(|| async { "ok" })),
        ("/metrics", get(metrics)),
    ]
}

/// Adds the headers that protect browsers.
async fn protect(request: Request, next: Next) -> Response {
    let is_fixed =
        matches!(request.uri().path(), "/") || request.uri().path().starts_with("/page/");
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if !is_fixed {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Becomes `false` when it is dropped: the client has left, or has its answer.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        // Relaxed: the computation looks now and then.
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Computes an answer on a thread of its own.
async fn work<T: Send + 'static>(
    app: &Arc<App>,
    compute: impl FnOnce(&App, &AtomicBool) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let place = app.places.clone().try_acquire_owned();
    let place = place.map_err(|_| Problem::busy("too many questions at once: ask again"))?;
    let wanted = Wanted(Arc::new(AtomicBool::new(true)));
    let (flag, shared) = (wanted.0.clone(), app.clone());
    let answer = async {
        let worker = app.workers.clone().acquire_owned().await;
        let computed = tokio::task::spawn_blocking(move || {
            let _held = (place, worker);
            compute(&shared, &flag)
        });
        computed.await.unwrap_or_else(|_| {
            let what = "the computation failed: report the server's log as a bug";
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, what))
        })
    };
    let seconds = LONGEST.as_secs();
    let late = |_| Problem::busy(format!("the answer took longer than {seconds} seconds"));
    timeout(LONGEST, answer).await.map_err(late)?
}

fn text(json: String) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], json).into_response()
}

/// The fields of a body. A page of another origin cannot send this content type without being asked for permission.
fn fields(headers: &HeaderMap, body: &Bytes) -> Result<Map<String, Value>, Problem> {
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

/// The text of a field, which must be the only field.
fn only_text(fields: &Map<String, Value>, name: &str) -> Result<String, Problem> {
    match (fields.get(name), fields.len()) {
        (Some(Value::String(text)), 1) => Ok(text.clone()),
        _ => Err(Problem::invalid(format!("the body must have the field {name:?}, a text, alone"))),
    }
}

async fn summary(State(app): Shared, Query(parameters): Parameters) -> Answer {
    let view = app.view(&parameters)?;
    let summary = work(&app, move |app, _| {
        let mut summary = view.summary();
        summary.insert("source".to_owned(), json!(app.source));
        summary.insert("session".to_owned(), json!(parameters.get("session")));
        Ok(Value::Object(summary).to_string())
    });
    Ok(text(summary.await?))
}

async fn nodes(State(app): Shared, Query(parameters): Parameters) -> Answer {
    let view = app.view(&parameters)?;
    Ok(text(work(&app, move |_, _| Ok(view.nodes().to_string())).await?))
}

async fn node(
    State(app): Shared,
    Path(name): Path<String>,
    Query(parameters): Parameters,
) -> Answer {
    let view = app.view(&parameters)?;
    let node = work(&app, move |_, _| view.node(&name).map_err(Problem::not_found));
    Ok(text(node.await?.to_string()))
}

async fn pending(State(app): Shared, Query(parameters): Parameters) -> Answer {
    let view = app.view(&parameters)?;
    Ok(text(work(&app, move |app, _| Ok(view.pending(&app.rules)?)).await?))
}

async fn explain(
    State(app): Shared,
    Query(parameters): Parameters,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let view = app.view(&parameters)?;
    let pod = only_text(&fields(&headers, &body)?, "pod")?;
    Ok(text(work(&app, move |app, _| Ok(view.explain(&pod, &app.rules)?)).await?))
}

async fn headroom(
    State(app): Shared,
    Query(parameters): Parameters,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let view = app.view(&parameters)?;
    let fields = fields(&headers, &body)?;
    let headroom = work(&app, move |app, _| {
        let like = match fields.get("requests") {
            Some(requests) if fields.len() == 1 => shape(requests)?,
            _ => view.pod(&only_text(&fields, "pod")?)?,
        };
        Ok(view.headroom(&like, &app.rules)?)
    });
    Ok(text(headroom.await?.to_string()))
}

/// A pod with these requests, and nothing else that a scheduler considers.
fn shape(requests: &Value) -> Result<Pod, Problem> {
    let container = json!({ "name": "c", "image": "c", "resources": { "requests": requests } });
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "shape" },
        "spec": { "containers": [container] },
    });
    let read = portolan_k8s::read(pod.to_string().as_bytes());
    let objects = read.map_err(|error| Problem::invalid(format!("requests: {error}")))?;
    let pod = objects.pods.into_iter().next();
    pod.ok_or_else(|| Problem::invalid("requests must be amounts by the name of a resource"))
}

async fn what_if(
    State(app): Shared,
    Query(parameters): Parameters,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let view = app.view(&parameters)?;
    let change = Change::from_json(&fields(&headers, &body)?).map_err(Problem::invalid)?;
    let answer = work(&app, move |app, is_wanted| {
        Ok(view.what_if(&change, &app.rules, is_wanted)?.0.to_string())
    });
    Ok(text(answer.await?))
}

async fn sessions(State(app): Shared) -> Response {
    text(app.sessions.list().to_string())
}

async fn add_session(State(app): Shared, headers: HeaderMap, body: Bytes) -> Answer {
    let mut fields = fields(&headers, &body)?;
    let parent = match fields.remove("parent") {
        None | Some(Value::Null) => None,
        Some(Value::String(parent)) => Some(parent),
        Some(_) => return Err(Problem::invalid("parent must be the id of a session")),
    };
    let begun = parent.iter().map(|id| ("session".to_owned(), id.clone())).collect();
    let view = app.view(&begun)?;
    let change = Change::from_json(&fields).map_err(Problem::invalid)?;
    let created = work(&app, move |app, is_wanted| {
        let (answer, view) = view.what_if(&change, &app.rules, is_wanted)?;
        let view = Arc::new(view);
        let created = jiff::Timestamp::now();
        let session = Session { parent, created, change: fields, answer: answer.clone(), view };
        let id = app.sessions.add(session).map_err(|full| match full {
            Full::TooMany => Problem::busy("there are too many sessions: delete one"),
            Full::NoParent => Problem::not_found("the parent has ended, or was deleted"),
        })?;
        let mut session = app.sessions.json(&id).unwrap_or_default();
        session["answer"] = answer;
        Ok(session)
    });
    let created = created.await?;
    Ok((StatusCode::CREATED, text(created.to_string())).into_response())
}

async fn session(State(app): Shared, Path(id): Path<String>) -> Answer {
    let session = app.session(&id)?;
    let mut fields = app.sessions.json(&id).unwrap_or_default();
    fields["answer"] = session.answer.clone();
    Ok(text(fields.to_string()))
}

async fn remove_session(State(app): Shared, Path(id): Path<String>) -> Answer {
    app.session(&id)?;
    app.sessions.remove(&id);
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn audit(State(app): Shared, Query(parameters): Parameters) -> Answer {
    let view = app.view(&parameters)?;
    Ok(text(work(&app, move |app, _| Ok(view.audit(&app.rules)?)).await?))
}

/// Reports each newer reading of the cluster, and the current one first.
async fn events(State(app): Shared) -> impl IntoResponse {
    let mut readings = app.generation.subscribe();
    readings.mark_changed();
    let events = unfold(readings, |mut readings| async {
        readings.changed().await.ok()?;
        let data = json!({ "generation": *readings.borrow_and_update() }).to_string();
        let event = Event::default().event("generation").data(data);
        Some((Ok::<_, Infallible>(event), readings))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

async fn metrics(State(app): Shared) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, kind)], app.figures.text(&app)).into_response()
}

#[cfg(test)]
pub(super) fn paths() -> Vec<&'static str> {
    table().into_iter().map(|(path, _)| path).collect()
}
