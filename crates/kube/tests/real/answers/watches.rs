//! Watches, streaming lists and bookmarks.

use serde_json::{Value, json};

use super::{binding, pod};
use crate::script::{Script, uid, version};

fn bookmarked(lines: &[Value]) -> bool {
    lines.iter().any(|line| line["type"] == "BOOKMARK" || line["type"] == "ERROR")
}

pub(super) fn run(to: &mut Script) {
    let pods = to.path("pods");
    let a = to.post(&pods, &pod("a"));
    to.post(&pods, &pod("b"));
    let initial = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

    // A streamed list, as new as the store, at any version, and at a minimum.
    to.watch(&format!("{pods}?{initial}&resourceVersion="), bookmarked);
    to.watch(&format!("{pods}?{initial}"), bookmarked);
    to.watch(&format!("{pods}?{initial}&resourceVersion=0"), bookmarked);
    to.watch(&format!("{pods}?{initial}&resourceVersion={}", version(&a)), bookmarked);
    to.watch(&format!("{pods}?{initial}&fieldSelector=metadata.name%3Db"), bookmarked);
    to.watch(&format!("{pods}?{initial}&fieldSelector=metadata.name%3Dnone"), bookmarked);
    // Without bookmarks, it has no end.
    to.watch(
        &format!("{pods}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        |lines| lines.len() >= 2,
    );
    to.watch(&format!("{pods}?watch=true&sendInitialEvents=true"), bookmarked);
    to.watch(&format!("{pods}?watch=true&resourceVersionMatch=NotOlderThan"), bookmarked);
    to.watch(&format!("{pods}?{initial}&resourceVersion=9999999999"), bookmarked);
    to.get(&format!("{pods}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan"));

    // Changes after a version.
    let start = to.get(&pods);
    let start = version(&start).to_owned();
    to.post(&pods, &pod("c"));
    to.merge(&format!("{pods}/c"), &json!({"metadata": {"labels": {"a": "b"}}}));
    to.post(&format!("{pods}/c/binding"), &binding(&a, uid(&a), "n1"));
    let c = to.get(&format!("{pods}/c"));
    to.post(&format!("{pods}/c/binding"), &binding(&c, uid(&c), "n1"));
    let c = to.get(&format!("{pods}/c"));
    to.catch_up(&c);
    to.delete(&format!("{pods}/c"), &Value::Null);
    to.delete(&format!("{pods}/c"), &json!({"gracePeriodSeconds": 0}));
    to.watch(&format!("{pods}?watch=true&resourceVersion={start}"), |lines| lines.len() >= 5);
    // Objects that enter and leave a selection.
    to.watch(
        &format!("{pods}?watch=1&resourceVersion={start}&fieldSelector=spec.nodeName%3D"),
        |lines| lines.len() >= 3,
    );
    to.watch(&format!("{pods}?watch=true&resourceVersion={start}&labelSelector=a%3Db"), |lines| {
        lines.len() >= 4
    });
    // From version 0 and from none: the present objects first.
    to.watch(&format!("{pods}?watch=true&resourceVersion=0"), |lines| lines.len() >= 2);
    to.watch(&format!("{pods}?watch=true"), |lines| lines.len() >= 2);

    // A timeout that the client requests, with a bookmark before it.
    let never = |_: &[Value]| false;
    to.watch(&format!("{pods}?watch=true&resourceVersion={start}&timeoutSeconds=1"), never);
    let path = format!("{pods}?watch=true&allowWatchBookmarks=true&resourceVersion={start}");
    to.watch(&format!("{path}&timeoutSeconds=4"), never);
    to.watch(&format!("{pods}?{initial}&timeoutSeconds=1"), never);
    to.watch(&format!("{pods}?watch=true&timeoutSeconds=soon"), never);

    // A version that no cache has any more.
    to.forget();
    to.watch(&format!("{pods}?watch=true&resourceVersion=1&timeoutSeconds=2"), bookmarked);
    to.watch(
        &format!("{pods}?watch=true&allowWatchBookmarks=true&resourceVersion=1&timeoutSeconds=2"),
        bookmarked,
    );
    // A future version.
    to.watch(&format!("{pods}?watch=true&resourceVersion=9999999999&timeoutSeconds=1"), never);
}
