//! Lists: pages, versions, selectors, and tokens that have expired.

use serde_json::{Value, json};

use super::pod;
use crate::script::{Script, version};

pub(super) fn run(to: &mut Script) {
    let pods = to.path("pods");
    to.get(&pods);
    let mut created = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        created.push(to.post(&pods, &pod(name)));
    }
    let token = |list: &Value| {
        let token = list["metadata"]["continue"].as_str().unwrap_or_default();
        token.replace('=', "%3D")
    };
    let page = to.get(&format!("{pods}?limit=2"));
    let next = to.get(&format!("{pods}?limit=2&continue={}", token(&page)));
    to.get(&format!("{pods}?limit=2&continue={}", token(&next)));
    to.get(&format!("{pods}?limit=5"));
    to.get(&format!("{pods}?limit=9"));
    to.get(&format!("{pods}?limit=-1"));
    to.get(&format!("{pods}?limit=many"));
    to.get(&format!("{pods}?continue=nonsense"));
    // All pages of a list have the same version.
    to.post(&pods, &pod("bb"));
    to.get(&format!("{pods}?limit=9&continue={}", token(&page)));

    // Versions.
    let latest = to.get(&pods);
    let latest = version(&latest).to_owned();
    let old = version(&created[2]).to_owned();
    to.get(&format!("{pods}?resourceVersion=0"));
    to.get(&format!("{pods}?resourceVersion=0&limit=2"));
    to.get(&format!("{pods}?resourceVersion={old}&resourceVersionMatch=Exact"));
    to.get(&format!("{pods}?resourceVersion={old}&resourceVersionMatch=NotOlderThan"));
    to.get(&format!("{pods}?resourceVersion={latest}&resourceVersionMatch=NotOlderThan&limit=2"));
    to.get(&format!("{pods}?resourceVersion={latest}&resourceVersionMatch=Newest"));
    to.get(&format!("{pods}?resourceVersionMatch=Exact"));
    to.get(&format!("{pods}?resourceVersion=0&resourceVersionMatch=Exact"));
    to.get(&format!("{pods}?resourceVersion=0&resourceVersionMatch=NotOlderThan"));
    to.get(&format!("{pods}?resourceVersion=one"));
    to.get(&format!("{pods}?resourceVersion={latest}&continue={}", token(&page)));
    // No server has this version.
    to.get(&format!("{pods}?resourceVersion=9999999999"));

    // Selectors.
    to.get(&format!("{pods}?fieldSelector=metadata.name%3Db"));
    to.get(&format!(
        "{pods}?fieldSelector=status.phase%21%3DSucceeded,status.phase%21%3DFailed&limit=1"
    ));
    to.get(&format!("{pods}?fieldSelector=spec.nodeName%3D"));
    to.get(&format!("{pods}?fieldSelector=spec.hostname%3Da"));
    to.get(&format!("{pods}?fieldSelector=x"));
    to.get(&format!("{pods}?labelSelector=a%20b"));
    to.get(&format!("{pods}?labelSelector=app%3Dweb"));

    // A token whose version has expired, and lists of such versions.
    let page = to.get(&format!("{pods}?limit=2"));
    let before = version(&page).to_owned();
    to.merge(&format!("{pods}/a"), &json!({"metadata": {"labels": {"a": "b"}}}));
    to.forget();
    let gone = to.get(&format!("{pods}?limit=2&continue={}", token(&page)));
    // The answer has a token with which the list can continue at a later version.
    to.get(&format!("{pods}?limit=2&continue={}", token(&gone)));
    to.get(&format!("{pods}?resourceVersion={before}&resourceVersionMatch=Exact"));
    to.get(&format!("{pods}?resourceVersion={before}"));
    to.get(&format!("{pods}?limit=2"));
    to.get("/api/v1/namespaces/nowhere/pods");
    for kind in ["policy/v1/poddisruptionbudgets", "apps/v1/replicasets"] {
        to.get(&to.path(kind));
    }
}
