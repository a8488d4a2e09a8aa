//! A program that runs during a test, and the API server it talks to.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use portolan_apiserver::{ApiServer, Options};
use serde_json::{Value, json};

use crate::common::Run;

/// A program that is killed when the test ends early.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Running {
        let child = Command::new(env!("CARGO_BIN_EXE_portolan"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        Running(child)
    }

    /// Waits until the standard error contains this text.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let mut reader = BufReader::new(self.0.stderr.take().expect("not taken yet"));
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            let read = reader.read_line(&mut line).expect("readable");
            assert!(read > 0, "the program ended without {text:?}");
        }
        // The program would block on a full pipe.
        std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    }

    /// Sends a signal such as `-TERM`.
    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status();
        assert!(sent.expect("kill").success());
    }

    /// Waits until the program ends.
    pub(crate) fn end(mut self) -> Run {
        drop(self.0.stdin.take());
        fn text(from: Option<impl Read>) -> String {
            let mut text = String::new();
            if let Some(mut from) = from {
                from.read_to_string(&mut text).expect("the program prints UTF-8");
            }
            text
        }
        let (out, err) = (text(self.0.stdout.take()), text(self.0.stderr.take()));
        let code = self.0.wait().expect("the program ends").code();
        Run { code: code.unwrap_or(-1), out, err }
    }

    /// Kills the program, and returns its standard error.
    pub(crate) fn kill(mut self) -> String {
        self.0.kill().expect("killed");
        self.end().err
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        if let Some(errors) = self.0.stderr.as_mut().filter(|_| std::thread::panicking()) {
            let _ = std::io::copy(errors, &mut std::io::stderr());
        }
        let _ = self.0.wait();
    }
}

pub(crate) fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_done() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A server with nodes of these names and amounts of CPU.
pub(crate) fn cluster(nodes: &[(&str, &str)]) -> ApiServer {
    let server = ApiServer::start(Options::default()).expect("a server");
    for (name, cpu) in nodes {
        let amounts = json!({"cpu": cpu, "memory": "8Gi", "pods": "100"});
        create(
            &server,
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": "z"}},
                "status": {"capacity": amounts, "allocatable": amounts},
            }),
        );
    }
    server
}

pub(crate) fn create(server: &ApiServer, object: Value) {
    server.create(&object).unwrap_or_else(|error| panic!("{object}: {error:?}"));
}

/// Creates a pod of one container with this request of CPU and these other fields.
pub(crate) fn create_pod(server: &ApiServer, name: &str, cpu: &str, spec: Value) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"containers": [{
            "name": "c", "image": "registry.example.com/pause:1",
            "resources": {"requests": {"cpu": cpu}},
        }]},
    });
    for (key, value) in spec.as_object().expect("fields") {
        match key.as_str() {
            "ports" => pod["spec"]["containers"][0]["ports"] = value.clone(),
            _ => pod["spec"][key] = value.clone(),
        }
    }
    create(server, pod);
}

pub(crate) fn is_bound(server: &ApiServer, name: &str) -> bool {
    server.get("Pod", "default", name).expect("the pod")["spec"]["nodeName"].is_string()
}
