//! Extenders that cannot be used are errors at the start.

use std::time::Duration;

use portolan_kube::extender::{ExtenderOptions, extender_routes};
use portolan_kube::process::{LiveConfig, LiveScheduler};
use portolan_kube::write::Fence;

use super::world::stop;
use crate::support::{self, Process, limits, runtime};

#[test]
fn an_extender_that_cannot_be_called_is_an_error_at_the_start() {
    let (runtime, server) = (runtime(), support::server());
    let _within = runtime.enter();
    let refused = |fields: &str| {
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: [{{{fields}}}]"
        );
        let mut config = LiveConfig::default();
        config.configuration = Some(text.into());
        let api = support::client(&server, "scheduler", limits(Duration::from_secs(1)));
        let started = LiveScheduler::start(api, Fence::closed(), config);
        started.expect_err("refused").to_string()
    };
    let error = refused("urlPrefix: 'https://h', tlsConfig: {insecure: true, caFile: ca.pem}");
    assert_eq!(
        error,
        "couldn't build extenders: extender \"https://h\": specifying a root certificates file with the insecure \
         flag is not allowed"
    );
    for (fields, why) in [
        ("urlPrefix: 'localhost:8080'", "write an address"),
        ("urlPrefix: ''", "couldn't build extenders"),
        ("urlPrefix: 'ftp://u:secret@h'", "extender \"ftp://u:***@h\": write an address"),
        ("urlPrefix: 'https://h', tlsConfig: {caFile: /nonexistent}", "/nonexistent"),
        (
            "urlPrefix: 'https://h', tlsConfig: {certData: YQ==, keyData: YQ==}",
            "couldn't build extenders",
        ),
    ] {
        let error = refused(fields);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn an_extender_calls_no_extenders() {
    let (runtime, server) = (runtime(), support::server());
    let configuration = "extenders: [{urlPrefix: 'http://127.0.0.1:1', filterVerb: f}]\n";
    let limits = limits(Duration::from_secs(10));
    let process = Process::configured(&runtime, &server, "extender", 1, limits, configuration);
    let error = extender_routes(&process.live, ExtenderOptions::default()).expect_err("refused");
    assert!(error.to_string().contains("remove them"), "{error}");
    stop(runtime, process);
}
