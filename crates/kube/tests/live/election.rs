//! Elections of several candidates by one Lease, with faults.
//!
//! Times are compared by the `renewTime` of what was written, which is taken before a request is sent and after the
//! expiry of the previous leader's Lease was noticed. They do not depend on how busy the machine is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{self, applied, client, limits, server, until};
use jiff::Timestamp;
use portolan_apiserver::{ApiServer, Effect, Fault, PatchKind, Write};
use portolan_kube::process::{Election, ElectionConfig};
use portolan_kube::write::Fence;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LEASE: Duration = Duration::from_secs(2);
const RENEW: Duration = Duration::from_millis(1_200);

fn config(identity: &str) -> ElectionConfig {
    support::election(identity, LEASE, RENEW)
}

/// A process that takes part in an election.
struct Candidate {
    fence: Fence,
    leads: Arc<AtomicBool>,
    task: JoinHandle<Election>,
}

impl Candidate {
    /// Starts a candidate that leads until it loses the Lease.
    fn start(server: &ApiServer, name: &'static str, config: ElectionConfig) -> Candidate {
        let (fence, leads) = (Fence::closed(), Arc::new(AtomicBool::new(false)));
        let api = client(server, name, limits(Duration::from_secs(30)));
        let mut election = Election::new(api, config, fence.clone()).expect("valid");
        let led = leads.clone();
        let task = tokio::spawn(async move {
            election.acquire().await;
            led.store(true, Ordering::SeqCst);
            election.keep().await;
            led.store(false, Ordering::SeqCst);
            election
        });
        Candidate { fence, leads, task }
    }

    fn leads(&self) -> bool {
        self.leads.load(Ordering::SeqCst)
    }

    async fn led(&self) {
        until("a leader", || self.leads()).await;
    }

    /// Waits until the candidate has lost the Lease.
    async fn lost(self) -> Election {
        timeout(support::PATIENCE, self.task).await.expect("in time").expect("no panic")
    }
}

/// Starts a candidate, and a second one when the first leads.
async fn leader_and_standby(server: &ApiServer) -> [Candidate; 2] {
    let first = Candidate::start(server, "a", config("a"));
    first.led().await;
    [first, Candidate::start(server, "b", config("b"))]
}

/// Fails if two fences are ever open at once.
struct Watchdog(Arc<AtomicBool>, std::thread::JoinHandle<()>);

impl Watchdog {
    fn start(fences: &[&Fence]) -> Watchdog {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let fences: Vec<Fence> = fences.iter().map(|fence| (*fence).clone()).collect();
        let watch = move || {
            while !stopped.load(Ordering::SeqCst) {
                // A fence that is open before and after the other fences are read was open in between: a former leader
                // never leads again.
                let open: Vec<bool> = fences.iter().map(Fence::may_write).collect();
                let again =
                    fences.iter().zip(&open).filter(|(fence, open)| **open && fence.may_write());
                assert!(again.count() <= 1, "two candidates may write");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        Watchdog(stop, std::thread::spawn(watch))
    }

    fn check(self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.join().expect("one leader at a time");
    }
}

fn lease(server: &ApiServer) -> Value {
    server.get("Lease", "kube-system", "kube-scheduler").expect("a Lease")
}

/// Asserts who holds the Lease, and how often it changed hands.
fn assert_holder(server: &ApiServer, holder: &str, transitions: u64) -> Value {
    let spec = lease(server)["spec"].clone();
    assert_eq!(spec["holderIdentity"], holder);
    assert_eq!(spec["leaseTransitions"], transitions);
    spec
}

fn renewed(write: &Write) -> Timestamp {
    let time = write.body["spec"]["renewTime"].as_str().expect("a renewTime");
    time.parse().expect("a MicroTime")
}

/// The time from the last renewal of one candidate to the first write of another.
fn vacancy(server: &ApiServer, before: &str, after: &str) -> Duration {
    let (before, after) = (applied(server, before), applied(server, after));
    let since = renewed(before.last().expect("a leader"));
    Duration::try_from(renewed(&after[0]) - since).expect("one after the other")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_candidates_leads() {
    let server = server();
    let names = ["a", "b", "c", "d"];
    let all: Vec<_> = names.map(|name| Candidate::start(&server, name, config(name))).into();
    let fences: Vec<&Fence> = all.iter().map(|candidate| &candidate.fence).collect();
    let watchdog = Watchdog::start(&fences);
    // Longer than the lease: it is renewed, and no other candidate acquires it.
    let renewals = || server.writes().iter().filter(|write| write.applied).count();
    let began = Instant::now();
    until("renewals", || began.elapsed() > LEASE * 2 && renewals() > 5).await;
    watchdog.check();
    assert_eq!(all.iter().filter(|candidate| candidate.leads()).count(), 1);
    let spec = lease(&server)["spec"].clone();
    assert_eq!((&spec["leaseTransitions"], &spec["leaseDurationSeconds"]), (&json!(0), &json!(2)));
    let leader = names.into_iter().zip(&all).find(|(_, candidate)| candidate.leads());
    assert_eq!(spec["holderIdentity"], leader.expect("a leader").0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_replaced_after_the_lease_duration_and_not_before() {
    let server = server();
    let [first, second] = leader_and_standby(&server).await;
    until("some renewals", || applied(&server, "a").len() > 3).await;
    let watchdog = Watchdog::start(&[&first.fence, &second.fence]);
    first.task.abort();
    second.led().await;
    watchdog.check();
    // A killed or suspended process did not close its fence.
    assert!(!first.fence.may_write() && !first.fence.is_lost());
    let vacancy = vacancy(&server, "a", "b");
    assert!(vacancy > LEASE, "{vacancy:?}");
    assert!(vacancy < LEASE * 4, "{vacancy:?}");
    assert_holder(&server, "b", 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_renew_may_not_write_when_the_standby_leads() {
    let effects = [
        Effect::internal_error(),
        Effect::conflict(),
        Effect::too_many_requests(1),
        Effect::HangBefore,
        Effect::HangAfter,
        Effect::ResetBefore,
        Effect::ResetAfter,
        Effect::timeout_after(),
        Effect::CutBody(10),
    ];
    let rounds = effects.map(|effect| {
        tokio::spawn(async move {
            let server = server();
            let [first, second] = leader_and_standby(&server).await;
            let fence = first.fence.clone();
            let watchdog = Watchdog::start(&[&first.fence, &second.fence]);
            let fault = Fault::new(effect.clone()).verb("update").resource("leases");
            server.set_faults(0, vec![fault]);
            first.lost().await;
            assert!(fence.is_lost(), "{effect:?}");
            assert!(!second.leads(), "{effect:?}");
            server.set_faults(0, Vec::new());
            second.led().await;
            watchdog.check();
            let vacancy = vacancy(&server, "a", "b");
            assert!(vacancy > LEASE, "{effect:?}: {vacancy:?}");
        })
    });
    for round in rounds {
        round.await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_hands_over_at_once() {
    let server = server();
    let long = |name| support::election(name, Duration::from_secs(600), Duration::from_secs(400));
    let fence = Fence::closed();
    let api = client(&server, "a", limits(Duration::from_secs(30)));
    let mut first = Election::new(api, long("a"), fence.clone()).expect("valid");
    first.acquire().await;
    assert!(fence.may_write());
    let second = Candidate::start(&server, "b", long("b"));
    first.release().await.expect("released");
    assert!(fence.is_lost());
    second.led().await;
    assert_holder(&server, "b", 1);
    let released = applied(&server, "a").pop().expect("a release").body;
    assert_eq!(released["spec"]["holderIdentity"], "");
    assert_eq!(released["spec"]["leaseDurationSeconds"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_does_not_lead_releases_nothing() {
    let server = server();
    server.create(&written_by_go("node-1_3f0e", 15, 3)).expect("created");
    let api = client(&server, "b", limits(Duration::from_secs(30)));
    let mut second = Election::new(api, config("b"), Fence::closed()).expect("valid");
    let waits = timeout(Duration::from_millis(500), second.acquire()).await;
    assert!(waits.is_err(), "the Lease is held");
    second.release().await.expect("nothing to do");
    assert_eq!(applied(&server, "b").len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_unknown_fields_of_a_lease_survive_renewals() {
    let server = server();
    let mut before = written_by_go("", 1, 7);
    before["metadata"]["labels"] = json!({"team": "compute"});
    before["metadata"]["annotations"] = json!({"note": "kept"});
    before["metadata"]["finalizers"] = json!(["example.com/kept"]);
    before["spec"]["strategy"] = json!("OldestEmulationVersion");
    before["spec"]["preferredHolder"] = json!("c");
    before["spec"]["later"] = json!({"field": [1, 2]});
    let created = server.create(&before).expect("created");
    let first = Candidate::start(&server, "a", config("a"));
    until("some renewals", || applied(&server, "a").len() > 3).await;
    drop(first);
    let after = lease(&server);
    for field in ["uid", "creationTimestamp", "labels", "annotations", "finalizers"] {
        assert_eq!(after["metadata"][field], created["metadata"][field], "{field}");
    }
    for field in ["strategy", "preferredHolder", "later"] {
        assert_eq!(after["spec"][field], before["spec"][field], "{field}");
    }
    assert_eq!(after["spec"]["leaseTransitions"], 8);
}

/// A Lease as client-go's `leaselock` writes it.
fn written_by_go(holder: &str, seconds: u64, transitions: u64) -> Value {
    json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": {
            "name": "kube-scheduler", "namespace": "kube-system",
            "managedFields": [{
                "manager": "kube-scheduler", "operation": "Update", "apiVersion": "coordination.k8s.io/v1",
                "time": "2026-11-22T18:57:01Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:acquireTime": {}, "f:holderIdentity": {}}},
            }],
        },
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": seconds,
            "acquireTime": "2026-11-22T18:57:01.000000Z", "renewTime": "2026-11-22T18:57:01.123456Z",
            "leaseTransitions": transitions,
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_in_go_is_respected_whatever_its_clock_shows() {
    for clock in ["2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let server = server();
        let mut theirs = written_by_go("node-1_3f0e", LEASE.as_secs(), 3);
        theirs["spec"]["renewTime"] = json!(clock);
        server.create(&theirs).expect("created");
        let began = Timestamp::now();
        let standby = Candidate::start(&server, "b", config("b"));
        standby.led().await;
        let waited = Duration::try_from(renewed(&applied(&server, "b")[0]) - began);
        assert!(waited.expect("later") > LEASE, "a full lease since it was first seen");
        let spec = assert_holder(&server, "b", 4);
        assert_ne!(spec["acquireTime"], theirs["spec"]["acquireTime"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_in_go_keeps_its_lease_while_it_renews_it_and_hands_it_over() {
    let server = server();
    let mut theirs = server.create(&written_by_go("node-1_3f0e", 2, 3)).expect("created");
    let standby = Candidate::start(&server, "b", config("b"));
    for second in 10..22 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        theirs["spec"]["renewTime"] = json!(format!("2026-11-22T18:57:{second}.123456Z"));
        theirs = server.update(&theirs).expect("renewed");
        assert!(!standby.leads());
    }
    assert_eq!(applied(&server, "b").len(), 0);
    // As client-go's `release` leaves it.
    theirs["spec"]["holderIdentity"] = json!("");
    theirs["spec"]["leaseDurationSeconds"] = json!(1);
    server.update(&theirs).expect("released");
    standby.led().await;
    // A client in Go decodes these times with the layout of MicroTime, and these numbers into int32.
    let spec = lease(&server)["spec"].clone();
    for field in ["acquireTime", "renewTime"] {
        let time = spec[field].as_str().expect("a time");
        assert_eq!((time.len(), &time[19..20], &time[26..]), (27, ".", "Z"), "{time}");
    }
    assert!(spec["leaseDurationSeconds"].is_i64() && spec["leaseTransitions"].is_i64());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_does_not_extend_the_lease_of_a_dead_leader() {
    let server = server();
    server.create(&written_by_go("node-1_3f0e", LEASE.as_secs(), 3)).expect("created");
    let standby = Candidate::start(&server, "b", config("b"));
    let mut n = 0;
    until("a leader", || {
        n += 1;
        let label = json!({"metadata": {"labels": {"n": n.to_string()}}});
        let merge = PatchKind::Merge;
        server.patch("Lease", "kube-system", "kube-scheduler", merge, &label).expect("patched");
        standby.leads()
    })
    .await;
}

#[test]
fn a_lease_is_not_shorter_in_whole_seconds_than_the_renew_deadline() {
    let mut config = config("a");
    config.lease_duration = Duration::from_millis(1_900);
    config.renew_deadline = Duration::from_millis(1_500);
    // The Lease would name 1 s, after which another candidate leads.
    assert!(config.check().is_err());
    config.lease_duration = Duration::from_millis(2_100);
    assert!(config.check().is_ok());
}
