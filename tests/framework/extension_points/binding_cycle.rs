//! The extension points from Reserve to PostBind.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use portolan::Framework;
use portolan::model::{Name, Pod, Timestamp, Uid, pod};
use portolan::plugin::{Bind, Code, Cycle, CycleState, Handle, Permit, PreFlight};

use super::probe::{Log, Probe, cluster, framework, heard};

/// Runs `work` in the cycle of a pod whose node is decided.
fn in_binding<R>(framework: &Framework, work: impl FnOnce(Cycle<'_>, &Name) -> R) -> R {
    let (cluster, pod) = (cluster(&["n"]), pod("p").build());
    let state = CycleState::default();
    let cycle = Cycle::new(cluster.cluster(), &pod, &state);
    assert!(framework.pre_filter(cycle).rejected().is_none());
    work(cycle, &"n".into())
}

#[test]
fn a_failed_reserve_ends_the_step_and_all_are_undone_in_reverse_order() {
    let log = Log::default();
    for (code, message) in [
        (Code::Unschedulable, "b says no"),
        (Code::Error, "running Reserve plugin \"b\": b says no"),
    ] {
        let b = Probe::new("b", &log).returns("Reserve", code);
        let all = framework(vec![Probe::new("a", &log), b, Probe::new("c", &log)]);
        in_binding(&all, |cycle, node| {
            let status = all.reserve(cycle, node).unwrap_err();
            assert_eq!((status.code, status.plugin), (code, "b"));
            assert_eq!(status.to_string(), message);
            all.unreserve(cycle, node);
        });
        assert_eq!(
            heard(&log, &["Reserve", "Unreserve"]),
            ["a.Reserve", "b.Reserve", "c.Unreserve", "b.Unreserve", "a.Unreserve"]
        );
    }
}

#[test]
fn a_pod_waits_for_all_permits_unless_it_is_rejected() {
    let log = Log::default();
    let waits =
        |name, secs| Probe { waits: Some(Duration::from_secs(secs)), ..Probe::new(name, &log) };
    let now = Timestamp::from_secs(50);
    let no = |code| Probe::new("no", &log).returns("Permit", code);
    for (code, message) in [
        (Code::Unschedulable, "no says no"),
        (Code::Error, "running Permit plugin \"no\": no says no"),
    ] {
        let all = framework(vec![waits("a", 10), no(code), waits("b", 20)]);
        in_binding(&all, |cycle, node| {
            let status = all.permit(cycle, node, now).unwrap_err();
            assert_eq!((status.code, &*status.to_string()), (code, message));
            assert!(all.handle().waiting_pods().all().is_empty());
        });
        assert_eq!(heard(&log, &["Permit"]), ["a.Permit", "no.Permit"]);
    }
    let all = framework(vec![Probe::new("at once", &log), waits("a", 30), waits("b", 20)]);
    in_binding(&all, |cycle, node| {
        let wait = Permit::Wait(Duration::from_secs(20));
        assert_eq!(all.permit(cycle, node, now), Ok(wait));
        let waiting = all.handle().waiting_pods().get(&cycle.pod.uid).unwrap();
        assert_eq!(waiting.pending_plugins(), ["b", "a"]);
        assert_eq!(waiting.node(), node);
        waiting.allow("a");
        waiting.allow("b");
        assert_eq!(all.wait_on_permit(cycle.pod, || now), Ok(()));
        assert!(all.handle().waiting_pods().get(&cycle.pod.uid).is_none());

        all.permit(cycle, node, now).unwrap();
        let status = all.wait_on_permit(cycle.pod, || Timestamp::from_secs(70)).unwrap_err();
        assert_eq!(status.message(), "rejected due to timeout after waiting 20s at plugin b");

        all.permit(cycle, node, now).unwrap();
        assert!(all.handle().waiting_pods().reject(&cycle.pod.uid));
        let status = all.wait_on_permit(cycle.pod, || now).unwrap_err();
        assert_eq!((status.code, &*status.message()), (Code::Unschedulable, "removed"));
        // A pod that is not waiting is permitted.
        assert_eq!(all.wait_on_permit(cycle.pod, || now), Ok(()));
    });
}

#[test]
fn plugins_without_work_skip_pre_bind() {
    let log = Log::default();
    let skips = |name| Probe { skips: true, ..Probe::new(name, &log) };
    let all = framework(vec![skips("s"), Probe::new("a", &log)]);
    in_binding(&all, |cycle, node| {
        assert_eq!(all.pre_bind_pre_flight(cycle, node), Ok(PreFlight::Work));
        assert_eq!(all.pre_bind(cycle, node), Ok(()));
    });
    assert_eq!(heard(&log, &["PreBind"]), ["a.PreBind"]);
    let all = framework(vec![skips("s")]);
    in_binding(&all, |cycle, node| {
        assert_eq!(all.pre_bind_pre_flight(cycle, node), Ok(PreFlight::Skip));
    });
    for (code, message) in [
        (Code::Error, "running PreBindPreFlight \"a\": a says no"),
        (
            Code::Unschedulable,
            "PreBindPreFlight a returned \"Unschedulable\", which is unsupported. It is supposed \
             to return Success, Skip, or Error status",
        ),
    ] {
        let all = framework(vec![Probe::new("a", &log).returns("PreBindPreFlight", code)]);
        let status = in_binding(&all, |cycle, node| all.pre_bind_pre_flight(cycle, node));
        assert_eq!(status.unwrap_err().to_string(), message);
    }
    for (code, message) in [
        (Code::Unschedulable, "a says no"),
        (Code::Error, "running PreBind plugin \"a\": a says no"),
    ] {
        let a = Probe::new("a", &log).returns("PreBind", code);
        let all = framework(vec![a, Probe::new("b", &log)]);
        heard(&log, &[]);
        let status = in_binding(&all, |cycle, node| all.pre_bind(cycle, node)).unwrap_err();
        assert_eq!((status.code, &*status.to_string()), (code, message));
        assert_eq!(heard(&log, &["PreBind"]), ["a.PreBind"]);
    }
}

#[test]
fn the_first_plugin_that_does_not_skip_binds() {
    let log = Log::default();
    let skips = |name| Probe { skips: true, ..Probe::new(name, &log) };
    let all = framework(vec![skips("s"), Probe::new("a", &log), Probe::new("b", &log)]);
    in_binding(&all, |cycle, node| {
        assert_eq!(all.bind(cycle, node), Ok(Bind::Bound));
        all.post_bind(cycle, node);
    });
    assert_eq!(
        heard(&log, &["Bind", "PostBind"]),
        ["s.Bind", "a.Bind", "s.PostBind", "a.PostBind", "b.PostBind"]
    );
    let all = framework(vec![skips("s")]);
    assert_eq!(in_binding(&all, |cycle, node| all.bind(cycle, node)), Ok(Bind::Skip));
    let all = framework(vec![Probe::new("a", &log).returns("Bind", Code::Error)]);
    let status = in_binding(&all, |cycle, node| all.bind(cycle, node)).unwrap_err();
    assert_eq!(status.to_string(), "running Bind plugin \"a\": a says no");
}

#[test]
fn the_default_binder_binds_through_the_handle() {
    struct Bound(Mutex<Vec<(Uid, Name)>>);
    impl portolan::Binder for Bound {
        fn bind(&self, pod: &Pod, node: &Name) -> Result<(), portolan::BinderError> {
            match &**node {
                "gone" => Err("nodes \"gone\" not found".into()),
                _ => {
                    self.0.lock().unwrap().push((pod.uid.clone(), node.clone()));
                    Ok(())
                }
            }
        }
    }
    let bound = Arc::new(Bound(Mutex::default()));
    let all = Framework::default_profile_with(&Handle::default().with_binder(bound.clone()));
    in_binding(&all, |cycle, node| {
        assert_eq!(all.bind(cycle, node), Ok(Bind::Bound));
        assert_eq!(*bound.0.lock().unwrap(), [(cycle.pod.uid.clone(), node.clone())]);
        let status = all.bind(cycle, &"gone".into()).unwrap_err();
        let message = "running Bind plugin \"DefaultBinder\": nodes \"gone\" not found";
        assert_eq!(status.to_string(), message);
        let nobody = Framework::default_profile().bind(cycle, node).unwrap_err();
        assert!(nobody.to_string().contains("no binder"), "{nobody}");
    });
}
