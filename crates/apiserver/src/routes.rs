//! HTTP: applies faults and delays to a request, performs and records it, and responds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde_json::Value;

use crate::audit::Write;
use crate::call::Call;
use crate::connection::Peer;
use crate::error::ApiError;
use crate::faults::{Effect, Facts};
use crate::perform::{Answer, perform};
use crate::server::Shared;
use crate::watch;

/// Serves one request.
pub(crate) async fn handle(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
) -> Response {
    shared.unpaused().await;
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    if ["/healthz", "/livez", "/readyz"].contains(&path) {
        return respond(200, "text/plain; charset=utf-8", Body::from("ok"));
    }
    let accepts = head.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let is_json =
        |accepted: &str| ["json", "*/*", "application/*"].iter().any(|it| accepted.contains(it));
    if accepts.is_some_and(|accepted| !is_json(accepted)) {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                       application/vnd.kubernetes.protobuf, application/json;stream=watch, \
                       application/vnd.kubernetes.protobuf;stream=watch";
        let error = ApiError::new(406, "NotAcceptable", message);
        return respond_error(&ApiError { details: serde_json::json!({}), ..error });
    }
    let call = match Query::<BTreeMap<String, String>>::try_from_uri(&head.uri) {
        Ok(Query(query)) => Call::parse(&head.method, path, query),
        Err(error) => Err(ApiError::bad_request(error.to_string())),
    };
    let call = match call {
        Ok(call) => call,
        Err(error) => return respond_error(&error),
    };
    let Ok(body) = axum::body::to_bytes(body, MAX_BODY).await else {
        return respond_error(&ApiError::new(
            413,
            "RequestEntityTooLarge",
            "the request body is too large",
        ));
    };
    Serving { shared: &shared, peer, call: &call, headers: &head.headers, body }.serve().await
}

/// The limit of kube-apiserver.
const MAX_BODY: usize = 3 * 1024 * 1024;

struct InFlight<'a> {
    shared: &'a Shared,
    count: usize,
}

impl<'a> InFlight<'a> {
    fn new(shared: &'a Shared) -> Self {
        InFlight { shared, count: shared.in_flight.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that is being served.
struct Serving<'a> {
    shared: &'a Arc<Shared>,
    peer: Peer,
    call: &'a Call,
    headers: &'a HeaderMap,
    body: Bytes,
}

impl Serving<'_> {
    /// Records a write, with the code of its answer.
    fn record(&self, name: &str, code: u16, applied: bool, answered: bool) {
        let call = self.call;
        if !call.writes() {
            return;
        }
        let agent = self.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let write = Write {
            at: Duration::ZERO,
            verb: call.verb,
            resource: call.path.clone(),
            namespace: call.key.namespace.clone(),
            name: name.to_owned(),
            body: Value::Null,
            code,
            applied,
            answered,
            user_agent: agent.unwrap_or_default().to_owned(),
        };
        self.shared.audit.record(write, self.body.clone());
    }

    async fn serve(self) -> Response {
        let Serving { shared, call, .. } = self;
        let sent_name = name_in(&self.body);
        let name =
            if call.key.name.is_empty() && call.writes() { &sent_name } else { &call.key.name };
        let in_flight = (call.verb != "watch").then(|| InFlight::new(shared));
        let most = shared.options.max_in_flight;
        if in_flight.as_ref().is_some_and(|in_flight| in_flight.count > most) {
            self.record(name, 429, false, true);
            return respond_error(&ApiError::too_many_requests(1));
        }
        let effect =
            shared.faults.of_request(Facts { verb: call.verb, resource: &call.path, name });
        if let Some(response) = self.intercept(effect.as_ref(), name).await {
            return response;
        }
        if call.writes() && !shared.options.write_delay.is_zero() {
            tokio::time::sleep(shared.options.write_delay).await;
            shared.unpaused().await;
        }
        let answer = perform(shared, self.peer.clone(), call, self.headers, &self.body).await;
        let kept_back = matches!(effect, Some(Effect::HangAfter | Effect::ResetAfter));
        let (code, made_name) = match &answer {
            Ok((Answer::Whole(code, _), made)) => (*code, made.as_deref()),
            Ok((Answer::Stream(_), _)) => (200, None),
            Err(error) => (error.code, None),
        };
        let shown_code = match &effect {
            Some(Effect::AnswerAfter(error)) => error.code,
            _ => code,
        };
        self.record(made_name.unwrap_or(name), shown_code, answer.is_ok(), !kept_back);
        match effect {
            Some(Effect::AnswerAfter(error)) => respond_error(&error),
            Some(Effect::HangAfter) => {
                // Dropping the stream ends its task.
                drop(answer);
                std::future::pending().await
            }
            Some(Effect::ResetAfter) => {
                drop(answer);
                break_off(&self.peer).await
            }
            effect => match answer {
                Ok((answer, _)) => send(answer, effect, self.peer),
                Err(error) => respond_error(&error),
            },
        }
    }

    /// Applies a fault before the request is performed. Returns the response if it replaces the request's own.
    async fn intercept(&self, effect: Option<&Effect>, name: &str) -> Option<Response> {
        match effect? {
            Effect::Answer(error) => {
                self.record(name, error.code, false, true);
                Some(respond_error(error))
            }
            Effect::AnswerLine(error) if self.call.verb == "watch" => {
                let line = format!("{}\n", watch::error_line(error));
                Some(respond(200, "application/json", Body::from(line)))
            }
            Effect::Delay(delay) => {
                tokio::time::sleep(*delay).await;
                None
            }
            Effect::HangBefore => {
                self.record(name, 0, false, false);
                std::future::pending().await
            }
            Effect::ResetBefore => {
                self.record(name, 0, false, false);
                break_off(&self.peer).await
            }
            _ => None,
        }
    }
}

/// Sends an answer. The effect may cut off the body of a whole answer.
fn send(answer: Answer, effect: Option<Effect>, peer: Peer) -> Response {
    match (answer, effect) {
        (Answer::Whole(code, body), Some(Effect::CutBody(size))) => {
            respond(code, "application/json", cut(body, size, peer))
        }
        (Answer::Whole(code, body), _) => respond_json(code, body),
        (Answer::Stream(pieces), _) => {
            let pieces = stream::unfold(pieces, |mut pieces| async {
                let piece = pieces.recv().await?;
                Some((Ok::<_, std::convert::Infallible>(piece), pieces))
            });
            respond(200, "application/json", Body::from_stream(pieces))
        }
    }
}

/// Resets the connection. The reset cancels this future.
async fn break_off<T>(peer: &Peer) -> T {
    peer.reset();
    std::future::pending().await
}

fn cut(mut body: Bytes, size: usize, peer: Peer) -> Body {
    body.truncate(size);
    Body::from_stream(stream::unfold((body, false), move |(body, sent)| {
        let peer = peer.clone();
        async move {
            if sent {
                // Let the client receive the first part before the reset.
                tokio::time::sleep(Duration::from_millis(10)).await;
                return break_off(&peer).await;
            }
            Some((Ok::<_, std::convert::Infallible>(body), (Bytes::new(), true)))
        }
    }))
}

/// Returns `metadata.name` of a body, for the record of writes.
fn name_in(body: &[u8]) -> String {
    #[derive(serde::Deserialize, Default)]
    #[serde(default)]
    struct Named {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize, Default)]
    #[serde(default)]
    struct Metadata {
        name: String,
    }
    serde_json::from_slice::<Named>(body).unwrap_or_default().metadata.name
}

fn respond(code: u16, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn respond_json(code: u16, body: Bytes) -> Response {
    respond(code, "application/json", Body::from(body))
}

fn respond_error(error: &ApiError) -> Response {
    let mut response = respond_json(error.code, error.status().to_string().into());
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
