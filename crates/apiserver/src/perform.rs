//! Performs a request for a resource: reads its body and parameters, and calls the rules of its verb.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::binding;
use crate::call::Call;
use crate::connection::Peer;
use crate::delete::delete;
use crate::error::ApiError;
use crate::list::List;
use crate::patch::PatchKind;
use crate::reviews;
use crate::server::Shared;
use crate::verbs::{self, Part};
use crate::watch::{self, Watch};

/// The body of a response.
pub(crate) enum Answer {
    Whole(u16, Bytes),
    Stream(mpsc::Receiver<Bytes>),
}

/// Performs the request. Returns the response and the name of a created object.
pub(crate) async fn perform(
    shared: &Arc<Shared>,
    peer: Peer,
    call: &Call,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<(Answer, Option<String>), ApiError> {
    let store = &shared.store;
    if !call.parameter("dryRun").is_empty() {
        return Err(ApiError::bad_request("this server does not support dryRun"));
    }
    let key = &call.key;
    let resource = call.resource;
    let part = if call.subresource == "status" { Part::Status } else { Part::Main };
    let object = |code: u16, object: &crate::store::Object| {
        let mut out = BytesMut::with_capacity(object.version.body.len() + 64);
        watch::put_object(&mut out, resource, &object.version.body);
        Answer::Whole(code, out.freeze())
    };
    let whole = |code: u16, value: Value| (Answer::Whole(code, value.to_string().into()), None);
    match call.verb {
        "get" => Ok((object(200, &verbs::get(store, resource, key)?), None)),
        "list" => Ok((Answer::Whole(200, list(shared, call)?), None)),
        "watch" => {
            start_watch(shared, peer, call).await.map(|pieces| (Answer::Stream(pieces), None))
        }
        "create" if resource.review => {
            let asked = read_json(headers, body)?;
            let review = reviews::review(resource, &shared.users(), asked);
            let mut reviews = shared.reviews.lock().unwrap_or_else(PoisonError::into_inner);
            reviews.push(review.clone());
            Ok(whole(201, review))
        }
        "create" if call.subresource == "binding" => {
            let binding = read_json(headers, body)?;
            binding::bind(store, key, &binding)?;
            Ok(whole(201, binding::bound()))
        }
        "create" => {
            let created =
                verbs::create(store, resource, &key.namespace, read_json(headers, body)?)?;
            Ok((object(201, &created), Some(created.version.key.name.clone())))
        }
        "update" => {
            let (updated, created) =
                verbs::update(store, resource, key, part, read_json(headers, body)?)?;
            Ok((object(if created { 201 } else { 200 }, &updated), None))
        }
        "patch" => {
            let content_type = content_type(headers);
            let Some(kind) = PatchKind::from_content_type(content_type) else {
                let message =
                    format!("the body of the request was in an unknown format: {content_type:?}");
                let error = ApiError::new(415, "UnsupportedMediaType", message);
                return Err(ApiError { details: json!({}), ..error });
            };
            let patch = parse(body)?;
            Ok((object(200, &verbs::patch(store, resource, key, part, kind, &patch)?), None))
        }
        "delete" => {
            let options = if body.is_empty() { Value::Null } else { parse_map(body)? };
            Ok((object(200, &delete(store, resource, key, &options)?), None))
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Returns the body of a list: of the latest version, or, for a later page, of the first page's version.
fn list(shared: &Shared, call: &Call) -> Result<Bytes, ApiError> {
    for parameter in ["resourceVersion", "resourceVersionMatch", "sendInitialEvents"] {
        if !call.parameter(parameter).is_empty() {
            let message = format!("this server does not support {parameter} for lists");
            return Err(ApiError::bad_request(message));
        }
    }
    let limit = match call.parameter("limit") {
        "" => 0,
        text => {
            let limit = text
                .parse::<i64>()
                .map_err(|_| ApiError::bad_request(format!("limit: Invalid value: {text:?}")))?;
            // A negative limit means no limit.
            usize::try_from(limit).unwrap_or(0)
        }
    };
    let (resource, selection) = (call.resource, call.selection()?);
    List { resource, selection, limit, continuation: call.parameter("continue") }
        .body(&shared.store)
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn read_json(headers: &HeaderMap, body: &[u8]) -> Result<Value, ApiError> {
    match content_type(headers).split(';').next().unwrap_or_default().trim() {
        "" | "application/json" => parse_map(body),
        other => {
            let message = format!(
                "the body of the request was in an unknown format: {other:?}; only JSON is read"
            );
            Err(ApiError::new(415, "UnsupportedMediaType", message))
        }
    }
}

fn parse(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("the body is not JSON: {error}")))
}

fn parse_map(body: &[u8]) -> Result<Value, ApiError> {
    let value = parse(body)?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(ApiError::bad_request("the body of the request is not a JSON object"))
    }
}

/// The maximum time to wait for a version that the server has not reached.
const FRESHNESS: Duration = Duration::from_secs(3);

/// Waits until the watch cache has reached a version, and returns the version.
async fn wait_for_version(shared: &Shared, call: &Call, version: u64) -> Result<u64, ApiError> {
    let collection = shared.store.of(call.resource);
    let mut news = collection.subscribe();
    let reached = async {
        while collection.reached() < version {
            // Writes of other kinds also advance the clock, so poll it.
            let _ = tokio::time::timeout(Duration::from_millis(50), news.changed()).await;
        }
    };
    match tokio::time::timeout(FRESHNESS, reached).await {
        Ok(()) => Ok(version),
        Err(_) => Err(ApiError::too_large_version(version, collection.reached())),
    }
}

async fn start_watch(
    shared: &Arc<Shared>,
    peer: Peer,
    call: &Call,
) -> Result<mpsc::Receiver<Bytes>, ApiError> {
    let selection = call.selection()?;
    let bookmarks = call.parameter("allowWatchBookmarks") == "true";
    let stated = call.parameter("sendInitialEvents");
    let not_older = call.parameter("resourceVersionMatch") == "NotOlderThan";
    let forbidden = |why: &str| {
        Err(ApiError::invalid_options(&[("resourceVersionMatch", format!("Forbidden: {why}"))]))
    };
    if !stated.is_empty() && !not_older {
        return forbidden(
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        );
    }
    if stated.is_empty() && !call.parameter("resourceVersionMatch").is_empty() {
        return forbidden(
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        );
    }
    let version = call.version()?;
    let initial = match stated {
        "" => version == 0,
        "true" => {
            // A streaming list without a version is as fresh as a quorum read.
            let latest = shared.store.clock.version();
            let fresh = if call.parameter("resourceVersion").is_empty() { latest } else { version };
            if let Err(error) = wait_for_version(shared, call, fresh).await {
                // The answer has begun by then.
                return Ok(error_alone(&error).await);
            }
            true
        }
        _ => false,
    };
    let version = if version == 0 { shared.store.clock.version() } else { version };
    let timeout = match call.parameter("timeoutSeconds") {
        "" => DEFAULT_TIMEOUT,
        text => match text.parse() {
            Ok(0) => DEFAULT_TIMEOUT,
            Ok(seconds) => Duration::from_secs(seconds).min(LONGEST_TIMEOUT),
            Err(_) => {
                return Err(ApiError::bad_request(format!(
                    "timeoutSeconds: Invalid value: {text:?}"
                )));
            }
        },
    };
    let initial_bookmark = stated == "true" && bookmarks;
    let resource = call.resource;
    let watch =
        Watch { resource, selection, version, initial, initial_bookmark, bookmarks, timeout };
    Ok(watch.start(shared.clone(), peer))
}

/// A stream of one error.
async fn error_alone(error: &ApiError) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(1);
    // Cannot fail or wait: the receiver exists, and the channel has room for one piece.
    let _ = sender.send(format!("{}\n", watch::error_line(error)).into()).await;
    receiver
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(30 * 86_400);
