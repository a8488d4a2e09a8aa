//! Serves the files of the page.

use axum::Router;
use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::problem::Problem;
use crate::page::{FILES, ICON, INDEX};

/// What the page may load: its own files only, and no script or style within a document.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                                 img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The content types, by the ending of a file's name.
const KINDS: [(&str, &str); 4] = [
    (".html", "text/html; charset=utf-8"),
    (".css", "text/css; charset=utf-8"),
    (".js", "text/javascript; charset=utf-8"),
    (".svg", "image/svg+xml"),
];

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(|| async { file("index.html", INDEX) }))
        .route("/page/{name}", get(named))
        // Browsers ask for it beside every answer that is not a page.
        .route("/favicon.ico", get(|| async { file("icon.svg", ICON) }))
}

/// Whether a path is one of the page's files, which contain nothing of the cluster.
pub(super) fn is_of(path: &str) -> bool {
    path == "/" || path == "/favicon.ico" || path.starts_with("/page/")
}

async fn named(Path(name): Path<String>) -> Result<Response, Problem> {
    let found = FILES.iter().find(|(file, _)| *file == name);
    let (name, text) = found.ok_or_else(|| Problem::not_found("the page has no such file"))?;
    Ok(file(name, text))
}

fn file(name: &str, text: &'static str) -> Response {
    let kind = KINDS.iter().find(|(ending, _)| name.ends_with(ending)).map_or("", |(_, kind)| kind);
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], text).into_response()
}
