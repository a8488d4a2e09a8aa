//! Turns of one candidate, with a Lease that others change.

use super::*;

use portolan_apiserver::ApiServer;
use serde_json::json;

use crate::testing;

/// A server, and a candidate `us` for a Lease on it.
fn world() -> (ApiServer, LeaseLock) {
    let server = testing::server();
    let lock =
        LeaseLock::new(testing::api(&server.url()), ElectionConfig::new("us")).expect("valid");
    (server, lock)
}

/// Creates the Lease with this holder, which keeps it for these seconds. Without any, it expires at once.
fn create(server: &ApiServer, holder: &str, seconds: Option<u64>) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds},
    });
    server.create(&lease).expect("created");
}

fn delete(server: &ApiServer) {
    server.delete("Lease", "kube-system", "kube-scheduler", &json!({})).expect("deleted");
}

fn is_held(turn: &Turn) -> bool {
    matches!(turn, Turn::Held(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_lease_is_not_free_before_its_holder_could_have_noticed() {
    let (server, mut lock) = world();
    create(&server, "other", Some(3_600));
    lock.look().await.expect("read");
    delete(&server);
    lock.look().await.expect("read");
    assert_eq!(lock.holder(), Holder::Other("other".to_owned()));
    assert_eq!(lock.try_turn().await.expect("answered"), Turn::Other("other".to_owned()));
    assert!(server.objects("Lease").is_empty());
    let (server, mut lock) = world();
    create(&server, "other", None);
    lock.look().await.expect("read");
    delete(&server);
    assert!(is_held(&lock.try_turn().await.expect("answered")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_takes_no_lease_that_is_free() {
    let (server, mut lock) = world();
    assert!(is_held(&lock.try_turn().await.expect("answered")));
    assert!(is_held(&lock.renew().await.expect("answered")));
    delete(&server);
    assert_eq!(lock.renew().await.expect("answered"), Turn::Other(String::new()));
    assert!(server.objects("Lease").is_empty());
    create(&server, "", Some(1));
    assert_eq!(lock.renew().await.expect("answered"), Turn::Other(String::new()));
    delete(&server);
    create(&server, "other", None);
    assert_eq!(lock.renew().await.expect("answered"), Turn::Other("other".to_owned()));
    assert!(is_held(&lock.try_turn().await.expect("answered")));
}
