//! The hollow kubelets' task beside other tasks.

use super::*;
use crate::server::Options;
use tokio::runtime::Builder;

#[test]
fn other_tasks_run_while_many_pods_start() {
    let server = ApiServer::start(Options { controllers: false, ..Options::default() });
    let server = server.unwrap();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    server.create(&node).unwrap();
    for n in 0..100 {
        let meta = json!({"name": format!("pod-{n}"), "namespace": "default"});
        let spec = json!({"nodeName": "n1", "containers": [{"name": "c", "image": "pause"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec});
        server.create(&pod).unwrap();
    }
    let running = || {
        let pods = server.objects("Pod");
        pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count()
    };
    let hollow = Hollow { shared: server.shared().clone(), stop_after: Duration::ZERO };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut seen = BTreeSet::new();
    runtime.block_on(async {
        let kubelets = tokio::spawn(run(Arc::new(hollow)));
        while !seen.contains(&100) {
            yield_now().await;
            seen.insert(running());
        }
        kubelets.abort();
    });
    assert!(seen.iter().any(|running| (1..100).contains(running)), "{seen:?}");
}
