//! The end of a scheduler with a plugin that is not in the tree.

use portolan::plugin::{Cycle, Permit, Plugin, PluginInfo, Point, Status};
use portolan_dra::plugin::Backend;
use portolan_k8s::config::PluginArgs;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::*;
use crate::testing;

const NAME: &str = "Patient";

/// The longest time for which a test waits.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lets each pod wait, and reports that it waits.
struct Patient(UnboundedSender<()>);

impl Plugin for Patient {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::Permit])
    }

    fn permit(&self, _: Cycle<'_>, _: &Name) -> Result<Permit, Status> {
        Ok(Permit::Wait(Duration::from_secs(3_600)))
    }

    fn waits(&self, _: Cycle<'_>) {
        self.0.send(()).expect("received");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_permits() {
    let server = testing::server();
    testing::create_node(&server);
    let (is_waiting, mut waiting) = unbounded_channel();
    let make = move |_: PluginArgs<'_>, _: &PluginHandle| {
        Ok(Box::new(Patient(is_waiting.clone())) as Box<dyn Plugin>)
    };
    let registry = |backend: Arc<dyn Backend>| {
        let mut registry = registry(backend);
        registry.register(NAME, make).expect("a free name");
        registry
    };
    let profile = format!(
        "profiles: [{{schedulerName: default-scheduler, plugins: {{multiPoint: {{enabled: [{{name: {NAME}}}]}}}}}}]"
    );
    let config = LiveConfig {
        configuration: Some(format!("{}{profile}\n", Configuration::DEFAULT).into()),
        // Fewer than pods, so that one waits for a thread.
        waiting_bindings: NonZeroUsize::MIN,
        ..LiveConfig::default()
    };
    let fence = Fence::opened();
    let live = LiveScheduler::with(testing::api(&server.url()), fence, config, registry);
    let mut live = live.expect("started");
    live.mirror().synced().await.expect("synced");
    live.begin().expect("begun");
    for name in ["a", "b"] {
        let containers = json!([{"name": "c", "image": "pause"}]);
        let meta = json!({"name": name, "namespace": "default"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers}});
        server.create(&pod).expect("created");
        timeout(PATIENCE, waiting.recv()).await.expect("in time");
    }
    let figures = live.figures.clone();
    timeout(PATIENCE, live.stop(Duration::ZERO)).await.expect("in time");
    assert_eq!(lock(&figures).not_bound, 2, "both were given up");
}
