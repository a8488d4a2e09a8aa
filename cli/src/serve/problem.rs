//! Errors as RFC 9457 problem documents.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::CommandError;
use crate::what_if::by_fields;

const DOCUMENT: &str = "application/problem+json";

/// An error of a request.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem { status, detail: detail.into() }
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, detail)
    }

    /// The request is well-formed, but a value is invalid.
    pub(super) fn invalid(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// The same request may succeed a moment later.
    pub(super) fn busy(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    pub(super) fn document(&self) -> Value {
        json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        })
    }

    /// A problem document for an error that a library has answered in another form.
    pub(super) fn in_place_of(response: Response) -> Response {
        let status = response.status();
        let is_document = || {
            let kind = response.headers().get(CONTENT_TYPE);
            kind.is_some_and(|kind| kind == DOCUMENT)
        };
        if !(status.is_client_error() || status.is_server_error()) || is_document() {
            return response;
        }
        let detail = match status {
            StatusCode::PAYLOAD_TOO_LARGE => "the body is too large",
            _ => "the request cannot be understood",
        };
        Problem::new(status, detail).into_response()
    }
}

impl From<CommandError> for Problem {
    fn from(error: CommandError) -> Problem {
        let text = by_fields(&error.text());
        match error {
            // The files are the configurations of the request.
            CommandError::Usage(_)
            | CommandError::Refused { .. }
            | CommandError::File { .. }
            | CommandError::Line { .. } => Problem::invalid(text),
            _ => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status;
        let kind = [(CONTENT_TYPE, HeaderValue::from_static(DOCUMENT))];
        let mut response = (status, kind, self.document().to_string()).into_response();
        let header = match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => (RETRY_AFTER, "1"),
            StatusCode::UNAUTHORIZED => (WWW_AUTHENTICATE, "Bearer"),
            _ => return response,
        };
        response.headers_mut().insert(header.0, HeaderValue::from_static(header.1));
        response
    }
}
