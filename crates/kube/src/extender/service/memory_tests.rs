//! The memory that a request takes beyond its body, including the answer.

use std::fmt::Write as _;

use portolan_testkit::alloc::Counting;

use super::wire::MAX_ITEMS;
use super::*;
use crate::process::LiveConfig;
use crate::testing;
use crate::write::Fence;

/// The counts belong to the thread, so any value of this type reads them.
const ALLOCATOR: Counting = Counting::new();

const BODY: usize = 16 << 20;

/// The most bytes that a request may take beyond its body and its answer.
const BEYOND: usize = 32 << 20;

/// Returns a request of 16 MiB: a start, as many items as fit, separated by commas, and an end.
fn body(start: &str, end: &str, mut item: impl FnMut(&mut String, usize)) -> String {
    let mut text = String::with_capacity(BODY + 64);
    text.push_str(start);
    for at in 0.. {
        if at > 0 {
            text.push(',');
        }
        item(&mut text, at);
        if text.len() + end.len() >= BODY {
            break;
        }
    }
    text.push_str(end);
    text
}

fn hostile() -> Vec<(&'static str, Verb, String)> {
    let same = |text: &'static str| move |to: &mut String, _: usize| to.push_str(text);
    let name = |to: &mut String, at: usize| write!(to, "\"{at:x}\"").expect("written");
    let field = |to: &mut String, at: usize| write!(to, "\"{at:x}\":null").expect("written");
    let pod = r#"{"Pod":{"metadata":{"name":"p","uid":"u"}},"#;
    let names = format!("{pod}\"NodeNames\":[");
    let spec = r#"{"Pod":{"metadata":{"name":"p","uid":"u"},"spec":{"#;
    let long = |start: &str, end: &str| format!("{start}{}{end}", "x".repeat(BODY));
    // As many distinct long names as are allowed.
    let most = |to: &mut String, at: usize| {
        let end = if at + 1 == MAX_ITEMS { "]}" } else { "" };
        write!(to, "\"{at:078x}\"{end}").expect("written");
    };
    // Fewer values than are allowed.
    let inside = |start: &str, item: &str, count: usize| {
        format!("{spec}{start}[{}{item}]}}}},\"NodeNames\":[]}}", format!("{item},").repeat(count))
    };
    let most = body(&names, "", most);
    let most = most[..most.find("]}").expect("an end") + 2].to_owned();
    vec![
        ("the most tolerations", Service::filter, inside("\"tolerations\":", "{}", 49_000)),
        (
            "an invalid pod of the most values",
            Service::filter,
            inside("\"priority\":\"x\",\"x\":", "0", 99_000),
        ),
        (
            "the most gates",
            Service::filter,
            inside("\"schedulingGates\":", "{\"name\":\"abcdef\"}", 49_000),
        ),
        ("the most names", Service::filter, most.clone()),
        ("scores of the most names", Service::prioritize, most),
        ("empty names", Service::filter, body(&names, "]}", same("\"\""))),
        ("names", Service::filter, body(&names, "]}", name)),
        (
            "nodes",
            Service::filter,
            body(&format!("{pod}\"Nodes\":{{\"items\":["), "]}}", same("null")),
        ),
        ("fields", Service::filter, body(pod, "}", field)),
        (
            "fields of a node",
            Service::filter,
            body(&format!("{pod}\"Nodes\":{{\"items\":[{{"), "}]}}", field),
        ),
        (
            "tolerations",
            Service::filter,
            body(&format!("{spec}\"tolerations\":["), "]}},\"NodeNames\":[]}", same("{}")),
        ),
        (
            "an invalid pod",
            Service::filter,
            body(&format!("{spec}\"priority\":\"x\",\"x\":["), "]}},\"NodeNames\":[]}", same("0")),
        ),
        (
            "victims",
            Service::preempt,
            body(
                &format!("{pod}\"NodeNameToMetaVictims\":{{\"n1\":{{\"Pods\":["),
                "]}}}",
                same("null"),
            ),
        ),
        (
            "candidates",
            Service::preempt,
            body(&format!("{pod}\"NodeNameToMetaVictims\":{{"), "}}", field),
        ),
        ("a long name", Service::bind, long("{\"PodName\":\"", "\"}")),
        (
            "a text instead of names",
            Service::filter,
            long(&format!("{pod}\"NodeNames\":\""), "\"}"),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_takes_little_more_memory_than_its_body() {
    let server = testing::server();
    testing::create_node(&server);
    let api = testing::api(&server.url());
    let live = LiveScheduler::start(api, Fence::closed(), LiveConfig::default());
    let live = live.expect("started");
    live.mirror().synced().await.expect("synced");
    let service = Service {
        schedulers: Arc::downgrade(live.schedulers()),
        readiness: live.mirror().readiness(),
        binder: None,
        limits: RequestLimits::new(8, 64 << 20),
    };
    for (what, verb, body) in hostile() {
        let before = ALLOCATOR.take().live;
        let answer = verb(&service, body.as_bytes());
        let answer = answer.unwrap_or_else(IntoResponse::into_response);
        let peak = usize::try_from(ALLOCATOR.counts().peak - before).expect("more than before");
        let sent = answer.body().size_hint().exact();
        let sent = sent.and_then(|sent| usize::try_from(sent).ok()).expect("a length");
        assert!(peak <= sent + BEYOND, "{what}: {peak} bytes for an answer of {sent}");
    }
    assert_eq!(service.limits.answers.available_permits(), service.limits.max_answers);
    live.stop(std::time::Duration::ZERO).await;
}
