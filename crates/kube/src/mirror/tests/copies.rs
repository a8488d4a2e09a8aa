//! Copies of objects beside an engine.

use super::server::*;
use crate::api::Resource;
use crate::mirror::Copies;

/// The names of the nodes, with their processors in thousandths.
fn nodes(copies: &Copies) -> Vec<(String, i64)> {
    let nodes = copies.read().finish().nodes.into_iter();
    nodes.map(|node| (node.name.to_string(), node.allocatable.cpu.0)).collect()
}

async fn copied(replies: impl IntoIterator<Item = Reply>) -> (Server, Copies) {
    let server = Server::start(replies).await;
    let pauses = options(&[Resource::NODES]).pauses;
    let copies = Copies::start(&server.api(), &[Resource::NODES], &pauses).expect("a runtime");
    copies.listed().await.expect("listed");
    (server, copies)
}

#[tokio::test]
async fn copies_follow_changes_in_the_order_of_names() {
    let (_server, copies) = copied([
        lines([added(&node("n2", 5, "4")), added(&node("n1", 6, "4")), end(9)]),
        held([modified(&node("n1", 12, "8")), deleted(&node("n2", 13, "4"))]),
    ])
    .await;
    until("the changes", || nodes(&copies) == [("n1".to_owned(), 8000)]).await;
    assert_eq!((copies.failure(), copies.unread()), (None, Vec::new()));
}

#[tokio::test]
async fn another_list_removes_what_it_lacks() {
    let (_server, copies) = copied([
        lines([added(&node("n1", 5, "4")), added(&node("n2", 6, "4")), end(9)]),
        refusal(410, "Gone", "too old resource version"),
        held([added(&node("n2", 6, "4")), end(33)]),
    ])
    .await;
    until("the second list", || nodes(&copies) == [("n2".to_owned(), 4000)]).await;
}

#[tokio::test]
async fn an_object_that_cannot_be_read_keeps_its_last_version() {
    let (_server, copies) = copied([
        lines([added(&node("n1", 5, "4")), end(9)]),
        held([modified(&node("n1", 12, "many")), added(&node("n2", 13, "4"))]),
    ])
    .await;
    let both = [("n1".to_owned(), 4000), ("n2".to_owned(), 4000)];
    until("the next object", || nodes(&copies) == both).await;
    let unread = copies.unread();
    assert_eq!((unread[0].plural, &unread[0].why), ("nodes", &None));
}

#[tokio::test]
async fn a_kind_that_may_not_be_read_is_reported_and_others_are_awaited() {
    let (_server, copies) = copied([refusal(403, "Forbidden", "nodes is forbidden")]).await;
    assert_eq!(nodes(&copies), []);
    let unread = copies.unread();
    assert!(unread[0].why.as_ref().is_some_and(|why| why.contains("forbidden")), "{unread:?}");
}

#[tokio::test]
async fn a_failing_list_is_an_error_of_the_start() {
    let server = Server::start([refusal(500, "InternalError", "no store")]).await;
    let pauses = options(&[Resource::NODES]).pauses;
    let copies = Copies::start(&server.api(), &[Resource::NODES], &pauses).expect("a runtime");
    let failed = copies.listed().await.expect_err("no list").to_string();
    assert!(failed.starts_with("/api/v1/nodes: ") && failed.contains("no store"), "{failed}");
}
