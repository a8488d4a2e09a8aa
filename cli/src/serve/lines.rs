//! Answers as lines of JSON, each sent when it is known: `application/x-ndjson`.
//!
//! The status is sent with the first line. An error before it is an answer of its own; a later one is the last line.

use std::convert::Infallible;
use std::pin::Pin;

use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::select;
use tokio::sync::mpsc::UnboundedReceiver;

use super::problem::Problem;

const KIND: &str = "application/x-ndjson";

type Outcome = Result<Value, Problem>;

/// A computation, and the lines before its outcome. If it is dropped, its client has left.
pub(super) struct Lines {
    /// `None` when it has ended.
    computation: Option<Pin<Box<dyn Future<Output = Outcome> + Send>>>,
    /// Unbounded: the outcome contains the same lines, and may be larger.
    told: UnboundedReceiver<Value>,
    outcome: Option<Outcome>,
}

impl Lines {
    pub(super) fn are_accepted(headers: &HeaderMap) -> bool {
        let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut kinds = values.flat_map(|value| value.split(','));
        kinds.any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == KIND))
    }

    pub(super) fn new(
        computation: impl Future<Output = Outcome> + Send + 'static,
        told: UnboundedReceiver<Value>,
    ) -> Lines {
        Lines { computation: Some(Box::pin(computation)), told, outcome: None }
    }

    pub(super) async fn response(mut self) -> Result<Response, Problem> {
        let Some(first) = self.next().await.transpose()? else {
            return Ok(().into_response());
        };
        let rest = unfold((Some(first), self), |(first, mut lines)| async {
            let line = match first {
                Some(first) => first,
                None => lines
                    .next()
                    .await?
                    .unwrap_or_else(|problem| json!({ "problem": problem.document() })),
            };
            Some((Ok::<_, Infallible>(format!("{line}\n")), (None, lines)))
        });
        let kind = [(CONTENT_TYPE, HeaderValue::from_static(KIND))];
        Ok((kind, Body::from_stream(rest)).into_response())
    }

    /// The next line; the last one is the outcome.
    async fn next(&mut self) -> Option<Outcome> {
        if let Some(computation) = &mut self.computation {
            select! {
                biased;
                Some(line) = self.told.recv() => return Some(Ok(line)),
                outcome = computation => self.outcome = Some(outcome),
            }
            self.computation = None;
        }
        // A line may have arrived between the two checks above.
        if let Ok(line) = self.told.try_recv() {
            return Some(Ok(line));
        }
        let outcome = self.outcome.take()?;
        Some(outcome.map(|answer| json!({ "answer": answer })))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use axum::http::StatusCode;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    /// The status and the body of an answer with these lines and this outcome.
    async fn answered(lines: &[u8], outcome: Outcome) -> (StatusCode, String) {
        let (told, received) = unbounded_channel();
        for &line in lines {
            told.send(line.into()).expect("a receiver");
        }
        let response = Lines::new(async { outcome }, received).response().await.into_response();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1000).await.expect("a body");
        (status, String::from_utf8(body.to_vec()).expect("UTF-8"))
    }

    fn late() -> Problem {
        Problem::new(StatusCode::GATEWAY_TIMEOUT, "late")
    }

    #[tokio::test]
    async fn an_error_after_a_line_is_the_last_line() {
        let (status, body) = answered(&[1, 2], Err(late())).await;
        let problem = json!({ "problem": late().document() });
        assert_eq!((status, body), (StatusCode::OK, format!("1\n2\n{problem}\n")));
    }

    #[tokio::test]
    async fn an_error_before_all_lines_is_the_answer() {
        let (status, body) = answered(&[], Err(late())).await;
        assert_eq!(
            (status, body),
            (late().into_response().status(), late().document().to_string())
        );
    }

    #[tokio::test]
    async fn a_client_that_leaves_ends_the_computation() {
        let (told, received) = unbounded_channel();
        told.send(json!(1)).expect("a receiver");
        let (held, is_held) = (Arc::new(()), |it: &Arc<()>| Arc::strong_count(it) > 1);
        let inner = held.clone();
        let computation = async move {
            let _inner = inner;
            pending().await
        };
        let response = Lines::new(computation, received).response().await;
        assert!(response.is_ok() && is_held(&held));
        drop(response);
        assert!(!is_held(&held));
    }
}
