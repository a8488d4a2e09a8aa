//! The page: its files, which are part of the program.

use axum::Router;
use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::problem::Problem;

/// What the page may load: its own files only, and no script or style within a document.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                                 img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const INDEX: &str = include_str!("page/index.html");

const ICON: &str = include_str!("page/icon.svg");

/// The other files, by name.
const FILES: &[(&str, &str, &str)] = &[
    ("page.css", CSS, include_str!("page/page.css")),
    ("icon.svg", SVG, ICON),
    ("api.js", SCRIPT, include_str!("page/api.js")),
    ("dom.js", SCRIPT, include_str!("page/dom.js")),
    ("explain.js", SCRIPT, include_str!("page/explain.js")),
    ("fleet.js", SCRIPT, include_str!("page/fleet.js")),
    ("headroom.js", SCRIPT, include_str!("page/headroom.js")),
    ("heat.js", SCRIPT, include_str!("page/heat.js")),
    ("input.js", SCRIPT, include_str!("page/input.js")),
    ("layout.js", SCRIPT, include_str!("page/layout.js")),
    ("main.js", SCRIPT, include_str!("page/main.js")),
    ("map.js", SCRIPT, include_str!("page/map.js")),
    ("node.js", SCRIPT, include_str!("page/node.js")),
    ("outcome.js", SCRIPT, include_str!("page/outcome.js")),
    ("pending.js", SCRIPT, include_str!("page/pending.js")),
    ("question.js", SCRIPT, include_str!("page/question.js")),
    ("resilience.js", SCRIPT, include_str!("page/resilience.js")),
    ("route.js", SCRIPT, include_str!("page/route.js")),
    ("sessions.js", SCRIPT, include_str!("page/sessions.js")),
    ("share.js", SCRIPT, include_str!("page/share.js")),
    ("stranded.js", SCRIPT, include_str!("page/stranded.js")),
    ("studio.js", SCRIPT, include_str!("page/studio.js")),
    ("tiles.js", SCRIPT, include_str!("page/tiles.js")),
    ("upgrade.js", SCRIPT, include_str!("page/upgrade.js")),
];

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(|| async { file(HTML, INDEX) }))
        .route("/page/{name}", get(named))
        // Browsers ask for it beside every answer that is no page.
        .route("/favicon.ico", get(|| async { file(SVG, ICON) }))
}

async fn named(Path(name): Path<String>) -> Result<Response, Problem> {
    let found = FILES.iter().find(|(file, ..)| *file == name);
    let (_, kind, text) = found.ok_or_else(|| Problem::not_found("the page has no such file"))?;
    Ok(file(kind, text))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], text).into_response()
}

#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, ..)| *name)
}
