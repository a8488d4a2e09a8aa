//! The metrics of the build and of feature gates (component-base `metrics/version.go`, `metrics/prometheus/feature`).

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::feature_gates::FEATURE_GATES;

/// The release of Kubernetes whose kube-scheduler portolan behaves like, as major, minor and patch.
const KUBERNETES: [&str; 3] = ["1", "36", "2"];

/// Registers `kubernetes_build_info`. The version is Kubernetes', with portolan's as its build: queries that compare
/// versions by `major` and `minor`, or parse `git_version`, find the release that portolan behaves like.
pub(super) fn register_build(registry: &mut Registry) {
    let [major, minor, patch] = KUBERNETES;
    let git_version = format!("v{major}.{minor}.{patch}+portolan.{}", env!("CARGO_PKG_VERSION"));
    let labels = [
        ("major", major.to_owned()),
        ("minor", minor.to_owned()),
        ("git_version", git_version),
        // Not known to a build of a packaged crate.
        ("git_commit", String::new()),
        ("git_tree_state", String::new()),
        ("build_date", String::new()),
        ("go_version", String::new()),
        ("compiler", "rustc".to_owned()),
        ("platform", platform()),
    ];
    let family = Family::<[(&str, String); 9], Gauge>::default();
    family.get_or_create(&labels).set(1);
    registry.register(
        "kubernetes_build_info",
        "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build \
         date, Go version, and compiler from which Kubernetes was built, and platform on which it is running",
        family,
    );
}

/// Returns the platform in Go's words.
fn platform() -> String {
    let os = match std::env::consts::OS {
        "macos" => "darwin",
        os => os,
    };
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        arch => arch,
    };
    format!("{os}/{arch}")
}

/// Registers `kubernetes_feature_enabled`.
pub(super) fn register_features(registry: &mut Registry) {
    let family = Family::<[(&str, &str); 2], Gauge>::default();
    for gate in &FEATURE_GATES {
        let labels = [("name", gate.name), ("stage", gate.stage.as_str())];
        family.get_or_create(&labels).set(gate.is_enabled.into());
    }
    registry.register(
        "kubernetes_feature_enabled",
        "This metric records the data about the stage and enablement of a k8s feature",
        family,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::metrics::encode_classic;

    #[test]
    fn the_build_names_the_release_of_kubernetes_and_portolans_version() {
        let mut registry = Registry::default();
        register_build(&mut registry);
        let text = encode_classic(&registry);
        let version = concat!("git_version=\"v1.36.2+portolan.", env!("CARGO_PKG_VERSION"), "\"");
        assert!(
            text.contains("\n# TYPE kubernetes_build_info gauge\n")
                || text.starts_with("# HELP kubernetes_build_info "),
            "{text}"
        );
        assert!(text.contains(&format!("{{major=\"1\",minor=\"36\",{version},")), "{text}");
        assert!(text.ends_with("} 1\n"), "{text}");
    }

    #[test]
    fn each_feature_gate_has_its_stage_and_the_value_that_is_implemented() {
        let mut registry = Registry::default();
        register_features(&mut registry);
        let text = encode_classic(&registry);
        for line in [
            "{name=\"AllAlpha\",stage=\"ALPHA\"} 0\n",
            "{name=\"SchedulerQueueingHints\",stage=\"\"} 1\n",
            "{name=\"SchedulerAsyncPreemption\",stage=\"BETA\"} 1\n",
            "{name=\"SchedulerAsyncAPICalls\",stage=\"BETA\"} 0\n",
        ] {
            let line = format!("kubernetes_feature_enabled{line}");
            assert!(text.contains(&line), "{line} in {text}");
        }
        assert_eq!(text.matches("\nkubernetes_feature_enabled{").count(), FEATURE_GATES.len());
    }
}
