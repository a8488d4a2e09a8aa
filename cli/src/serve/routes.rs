//! The table of routes: each with its handlers and their descriptions for the OpenAPI document.

use std::sync::{Arc, LazyLock};

use axum::routing::{MethodRouter, get, post};

use super::access::{self, Access};
use super::api::{
    App, add_session, audit, compare, diff, events, explain, generations, headroom, metrics, node,
    nodes, pending, remove_session, session, sessions, summary, text, what_if,
};
use super::document::{Operation, Parameter, document};

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let table = table(&Arc::new(Access::anyone()));
    document(table.iter().map(|route| (route.path, &*route.operations))).to_string()
});

/// A path with its handlers and their descriptions.
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) handlers: MethodRouter<Arc<App>>,
    operations: Vec<Operation>,
}

pub(super) fn table(access: &Arc<Access>) -> Vec<Route> {
    readings().into_iter().chain(questions()).chain(of_server(access)).collect()
}

fn at(path: &'static str, handlers: MethodRouter<Arc<App>>, operations: Vec<Operation>) -> Route {
    Route { path, handlers, operations }
}

/// A question without a body about the newest reading, an older one or a session.
fn get_of(summary: &str, schema: &str) -> Vec<Operation> {
    vec![Operation::get(summary).with(&OF_VIEW).json(schema)]
}

/// A question with a body about the newest reading, an older one or a session.
fn post_of(summary: &str, body: &str, schema: &str) -> Vec<Operation> {
    vec![Operation::post(summary, body).with(&OF_VIEW).json(schema)]
}

/// The routes that show readings and their differences.
fn readings() -> Vec<Route> {
    vec![
        at(
            "/api/v1/summary",
            get(summary),
            get_of("Numbers of nodes and pods, and sums of resources", "Summary"),
        ),
        at("/api/v1/nodes", get(nodes), get_of("All nodes with their resources", "Nodes")),
        at(
            "/api/v1/nodes/{name}",
            get(node),
            get_of("A node with its labels and pods", "NodeWithPods"),
        ),
        at(
            "/api/v1/pending",
            get(pending),
            get_of("The pending pods by controller and cause", "Pending"),
        ),
        at(
            "/api/v1/audit",
            get(audit),
            vec![
                Operation::get("The findings of an audit of the newest reading")
                    .described("Sessions and older readings are refused: their objects are not held.")
                    .with(&OF_VIEW)
                    .json("Audit"),
            ],
        ),
        at(
            "/api/v1/generations",
            get(generations),
            vec![
                Operation::get("The readings that are held, the oldest first").json("Generations"),
            ],
        ),
        at(
            "/api/v1/diff",
            get(diff),
            vec![Operation::get("How two readings differ").with(&OF_BETWEEN).json("Difference")],
        ),
        at(
            "/api/v1/events",
            get(events),
            vec![
                Operation::get(
                    "An event for each reading of the cluster, and for each failure to read it",
                )
                .described(
                    "Events are named generation, with a GenerationEvent, whose generation is the id, or failure, with the field \
                     error: why the cluster cannot be read, or null if it can. The first failure is sent with the first reading.",
                )
                .with(&[OF_SINCE])
                .text("text/event-stream"),
            ],
        ),
    ]
}

/// The routes that compute answers, and those of sessions.
fn questions() -> Vec<Route> {
    vec![
        at(
            "/api/v1/explain",
            post(explain),
            post_of(
                "Why a pod is pending, or how its nodes score",
                "ExplainRequest",
                "Explanation",
            ),
        ),
        at(
            "/api/v1/headroom",
            post(headroom),
            post_of(
                "How many more pods like this one fit, by pool and zone",
                "HeadroomRequest",
                "Headroom",
            ),
        ),
        at(
            "/api/v1/what-if",
            post(what_if),
            vec![
                Operation::post("Simulates a change", "Change")
                    .with(&OF_VIEW)
                    .json("Answer")
                    .lines("Line"),
            ],
        ),
        at(
            "/api/v1/compare",
            post(compare),
            post_of(
                "Schedules the pods under several configurations, and compares the results",
                "CompareRequest",
                "Comparison",
            ),
        ),
        at(
            "/api/v1/sessions",
            get(sessions).post(add_session),
            vec![
                Operation::get("All sessions, the oldest first").json("Sessions"),
                Operation::post(
                    "Simulates a change and keeps the cluster after it",
                    "SessionRequest",
                )
                .created("SessionWithAnswer"),
            ],
        ),
        at(
            "/api/v1/sessions/{id}",
            get(session).delete(remove_session),
            vec![
                Operation::get("A session with its answer").json("SessionWithAnswer"),
                Operation::delete("Deletes a session and those that began with it").done("Done."),
            ],
        ),
    ]
}

/// The routes of the server itself.
fn of_server(access: &Arc<Access>) -> Vec<Route> {
    vec![
        at(
            "/api/v1/openapi.json",
            get(|| async { text(DOCUMENT.clone()) }),
            vec![Operation::get("This document").json("Document")],
        ),
        at(
            access::LOGIN,
            access::login(access.clone()),
            vec![
                Operation::get(
                    "Whether this request has access, and when the login of its cookie ends",
                )
                .json("Login")
                .public(),
                Operation::post("Exchanges a token for a cookie, for pages", "LoginRequest")
                    .done("The header Set-Cookie has the cookie.")
                    .public(),
                Operation::delete("Ends the login of the cookie")
                    .done("The login has ended.")
                    .public(),
            ],
        ),
        at(
            "/healthz",
            get(|| async { "ok" }),
            vec![Operation::get("Whether the server answers").text("text/plain").public()],
        ),
        at(
            "/metrics",
            get(metrics),
            vec![Operation::get("Metrics in Prometheus' text format").text("text/plain")],
        ),
    ]
}

const OF_VIEW: [Parameter; 2] = [
    Parameter {
        name: "session",
        kind: "string",
        is_required: false,
        description: "The session whose cluster is read (default: the newest reading).",
    },
    Parameter {
        name: "generation",
        kind: "integer",
        is_required: false,
        description: "The reading that is examined (default: the newest). Not with session.",
    },
];

const OF_BETWEEN: [Parameter; 2] = [
    Parameter {
        name: "from",
        kind: "integer",
        is_required: true,
        description: "The generation to compare with.",
    },
    Parameter {
        name: "to",
        kind: "integer",
        is_required: true,
        description: "The generation that is compared.",
    },
];

const OF_SINCE: Parameter = Parameter {
    name: "since",
    kind: "integer",
    is_required: false,
    description: "The generation after which readings are reported (default: the newest is reported first).",
};
