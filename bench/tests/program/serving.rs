//! `serve` measures a server with clients.

use serde_json::Value;

use crate::common::portolan;

#[test]
fn clients_are_answered_while_the_cluster_changes() {
    let arguments =
        ["serve", "--clients", "20", "--seconds", "5", "--events", "100", "--nodes", "30"];
    let run = portolan(&[&arguments[..], &["--pause", "100", "--output", "json"]].concat());
    assert_eq!(run.code, 0, "{} {}", run.out, run.err);
    let result: Value = serde_json::from_str(&run.out).expect("JSON");
    for question in result["questions"].as_array().expect("a list") {
        assert!(question["answers"].as_u64() > Some(0), "{question}");
        assert_eq!(question["errors"], 0, "{result}");
    }
    assert!(result["received_events"].as_u64() > Some(0), "{result}");
    for phase in result["writer"].as_array().expect("a list") {
        let [steps, readings] = ["steps", "readings"].map(|field| phase[field].as_u64());
        // The rate is 100 a second; a busy machine may be slower.
        assert!(steps > Some(20) && readings > Some(0), "{phase}");
    }
    let memory = result["memory"].as_array().expect("a list");
    assert!(memory.len() == 3 && memory.iter().all(|it| it["heap_mib"].as_f64() > Some(0.0)));
}
