//! Placements of a replay as CSV, Kubernetes traces with times, and pods that wait for others.

use crate::common::{file, portolan};
use serde_json::Value;

const NODE_OF: &str = "---\napiVersion: v1\nkind: Node\nmetadata: {name: NAME, labels: \
    {kubernetes.io/hostname: NAME}}\nstatus: {allocatable: {cpu: '1', memory: 1Gi, pods: '10'}}\n";

const NODE: &[u8] = b"apiVersion: v1\nkind: Node\nmetadata: {name: n, labels: \
    {kubernetes.io/hostname: n}}\nstatus: {allocatable: {cpu: '1', memory: 1Gi, pods: '10'}}\n";

/// A pod with these metadata and this part of its spec.
fn pod(name: &str, metadata: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d, uid: u-{name}, \
         {metadata}}}\nspec: {{{spec} containers: [{{name: c, resources: {{requests: {{cpu: \
         600m}}}}}}]}}\n"
    )
}

fn replay(test: &str, pods: &[String], more: &[&str]) -> (Value, Vec<Vec<String>>) {
    let nodes = file(test, "nodes.yaml", NODE);
    let pods = file(test, "pods.yaml", pods.concat().as_bytes());
    let rows = file(test, "placements.csv", b"");
    let arguments = ["replay", "--nodes", &nodes, "--pods", &pods, "--output", "json"];
    let run = portolan(&[&arguments[..], &["--placements", &rows], more].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let text = std::fs::read_to_string(rows).expect("placements");
    let split = |line: &str| line.split(',').map(str::to_owned).collect();
    (serde_json::from_str(&run.out).expect("one JSON object"), text.lines().map(split).collect())
}

#[test]
fn times_of_kubernetes_pods_are_their_arrivals_and_ends() {
    let time = |second: u32| format!("'1970-01-01T00:00:{second:02}Z'");
    let times =
        |from, to| format!("creationTimestamp: {}, deletionTimestamp: {}", time(from), time(to));
    let stays = format!("creationTimestamp: {}", time(20));
    let pods = [
        pod("b", &times(4, 9), ""),
        pod("a", &times(0, 10), ""),
        pod("c", &stays, ""),
        pod("d", &stays, ""),
    ];
    let (result, rows) = replay("trace", &pods, &["--mode", "timed"]);
    assert_eq!((&result["placed"], &result["failed"]), (&3.into(), &1.into()), "{result}");
    assert_eq!(
        rows[0].join(","),
        "namespace,pod,uid,arrived,placed,node,waited,ended,placed_last,why"
    );
    // Pod b waits for the end of a, and runs for its own five seconds.
    assert_eq!(rows[1].join(","), "d,b,u-b,4,10,n,6,15,10,");
    assert_eq!(rows[2].join(","), "d,a,u-a,0,0,n,0,10,0,");
    assert_eq!(rows[3].join(","), "d,c,u-c,20,20,n,0,,20,");
    assert!(rows[4].join(",").starts_with("d,d,u-d,20,,,,,,"), "{rows:?}");
    assert!(rows[4].join(",").contains("Insufficient cpu"), "{rows:?}");
}

#[test]
fn a_pod_that_is_being_deleted_is_not_placed_in_fill_mode() {
    let times = "creationTimestamp: '1970-01-01T00:00:00Z', \
        deletionTimestamp: '1970-01-01T00:00:09Z'";
    let (result, rows) = replay("deleted", &[pod("a", times, ""), pod("b", "", "")], &[]);
    let why = "the pod is being deleted: it has a deletionTimestamp";
    assert_eq!(result["reasons"], serde_json::json!({ why: 1 }), "{result}");
    assert_eq!(rows[1].last().map(String::as_str), Some(why), "{rows:?}");
    assert_eq!((&result["placed"], &result["failed"]), (&1.into(), &1.into()), "{result}");
}

#[test]
fn a_pod_that_needs_a_later_pod_is_placed_after_it() {
    let affinity = "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
                    [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: \
                    {app: b}}}]}},";
    let small = |pod: String| pod.replace("600m", "100m");
    let pods =
        [small(pod("a", "labels: {app: a}", affinity)), small(pod("b", "labels: {app: b}", ""))];
    let (result, rows) = replay("later", &pods, &[]);
    assert_eq!((&result["placed"], &result["failed"]), (&2.into(), &0.into()), "{result}");
    assert_eq!((&*rows[1][5], &*rows[2][5]), ("n", "n"), "{rows:?}");
}

#[test]
fn formulas_in_names_are_text_in_csv() {
    let nodes = b"sn,cpu_milli,memory_mib,gpu,model\n+node,4000,8192,0,\n";
    let pods = b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
        =HYPERLINK(1),100,100,0,0,,LS,Running,0,9,0\n@a,9000,100,0,0,,LS,Running,0,9,0\n";
    let (nodes, pods) = (file("formulas", "nodes.csv", nodes), file("formulas", "pods.csv", pods));
    let rows = file("formulas", "placements.csv", b"");
    let run =
        portolan(&["replay", "--nodes", &nodes, "--pods", &pods, "--placements", &rows, "-ojson"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let text = std::fs::read_to_string(rows).expect("placements");
    assert!(text.contains(",'=HYPERLINK(1),") && text.contains(",'+node,"), "{text}");
    assert!(text.contains(",'@a,"), "{text}");
}

#[test]
fn utilization_is_that_of_the_whole_replay() {
    let time = |second: u32| format!("'1970-01-01T00:00:{second:02}Z'");
    let times =
        |from, to| format!("creationTimestamp: {}, deletionTimestamp: {}", time(from), time(to));
    // Pod b waits for the end of a, and runs from 10 to 15; c runs from 20 to 40.
    let pods =
        [pod("a", &times(0, 10), ""), pod("b", &times(4, 9), ""), pod("c", &times(20, 40), "")];
    let chart = file("utilization", "chart.html", b"");
    let (result, _) = replay("utilization", &pods, &["--mode", "timed", "--chart", &chart]);
    let cpu = &result["utilization"]["cpu"];
    assert_eq!((&cpu["requested"], &cpu["peak"]), (&0.into(), &600.into()), "{result}");
    // Until the last pod is placed at 20: 15 of 20 seconds.
    assert_eq!(cpu["mean"], 450.0, "{result}");
    assert_eq!(result["duration_s"], 40.0, "{result}");
    assert_eq!(result["wait_seconds"]["max"], 6, "{result}");
    assert_eq!(result["run"], "default configuration, profile default-scheduler, seed 1");
    let page = std::fs::read_to_string(chart).expect("a chart");
    for part in [
        "(cut: no pod arrives or waits; the last one ends at 40)",
        "default configuration, profile default-scheduler, seed 1",
        "max 6 s",
        "<td>45.0 %</td><td>60.0 %</td>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn pages_have_the_reasons_of_failed_pods() {
    let chart = file("reasons", "chart.html", b"");
    let (_, rows) = replay("reasons", &[pod("a", "", ""), pod("b", "", "")], &["--chart", &chart]);
    assert!(rows[2].join(",").contains("Insufficient cpu"), "{rows:?}");
    let page = std::fs::read_to_string(chart).expect("a chart");
    assert!(page.contains("<tr><td>Insufficient cpu</td><td>1</td></tr>"), "{page}");
}

#[test]
fn default_constraints_of_the_configuration_make_pods_wait() {
    let node = |name: &str, cpu: u32| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}}\n\
             status: {{allocatable: {{cpu: '{cpu}', memory: 1Gi, pods: '10'}}}}\n"
        )
    };
    let nodes = file("defaults", "nodes.yaml", [node("a", 4), node("b", 1)].concat().as_bytes());
    let sized = |name: &str, cpu: &str| pod(name, "labels: {app: x}", "").replace("600m", cpu);
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: x, namespace: d}\nspec: {selector: {app: x}}\n";
    // Only node a has room for p1 and p2. On a alone they would violate the constraint, until p3
    // is on b.
    let pods = [service, &sized("p1", "1900m"), &sized("p2", "'2'"), &sized("p3", "500m")].concat();
    let pods = file("defaults", "pods.yaml", pods.as_bytes());
    let config = b"apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule}]
";
    let config = file("defaults", "config.yaml", config);
    let placed = |more: &[&str]| {
        let files = ["replay", "--nodes", &nodes, "--pods", &pods, "--output", "json"];
        let run = portolan(&[&files[..], more].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        let result: Value = serde_json::from_str(&run.out).expect("one JSON object");
        (result["placed"].clone(), result["preempted"].clone())
    };
    assert_eq!(placed(&[]), (3.into(), Value::Null));
    assert_eq!(placed(&["--config", &config]), (3.into(), 0.into()));
}

#[test]
fn profiles_schedule_the_pods_that_name_them() {
    let named = |name: &str, scheduler: &str| {
        pod(name, "", &format!("schedulerName: {scheduler},")).replace("600m", "100m")
    };
    let nodes = ["large", "small"].map(|name| NODE_OF.replace("NAME", name)).concat();
    let nodes = nodes.replacen("'1'", "'8'", 1);
    let nodes = file("profiles", "nodes.yaml", nodes.as_bytes());
    let all = [named("a", "packing"), named("b", "default-scheduler"), named("c", "elsewhere")];
    let pods = file("profiles", "pods.yaml", all.concat().as_bytes());
    let packing = "- schedulerName: packing
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
  plugins: {score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit}]}}
";
    let config = |name: &str, profiles: &str| {
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n{profiles}"
        );
        file("profiles", name, text.as_bytes())
    };
    let both = config("both.yaml", &format!("- schedulerName: default-scheduler\n{packing}"));
    let one = config("one.yaml", packing);
    let rows = file("profiles", "placements.csv", b"");
    let replay = |more: &[&str]| {
        let files =
            ["replay", "--cluster", &nodes, "--pods", &pods, "-o", "json", "--placements", &rows];
        let run = portolan(&[&files[..], more].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        let text = std::fs::read_to_string(&rows).expect("placements");
        let column = |line: &str, at: usize| line.split(',').nth(at).unwrap_or_default().to_owned();
        let rows: Vec<(String, String)> =
            text.lines().skip(1).map(|line| (column(line, 5), column(line, 9))).collect();
        let result: Value = serde_json::from_str(&run.out).expect("one JSON object");
        (rows, result["notes"].to_string())
    };
    let (rows, notes) = replay(&["--config", &both]);
    // MostAllocated prefers the node with fewer cpus, the default profile the other one.
    assert_eq!((&*rows[0].0, &*rows[1].0, &*rows[2].0), ("small", "large", ""));
    assert_eq!(rows[2].1, "\"no profile has schedulerName \"\"elsewhere\"\"\"");
    assert!(!notes.contains("elsewhere"), "{notes}");
    for more in [&["--config", &*one][..], &["--config", &both, "--profile", "packing"]] {
        let (rows, notes) = replay(more);
        assert!(rows.iter().all(|(node, _)| node == "small"), "{rows:?}");
        let says = "packing schedules 1 pod for other schedulers (the first: elsewhere)";
        assert!(notes.contains(says), "{notes}");
    }
}

/// Numbers from 0 to `below`, the same in each run of the tests.
struct Draws(u64);

impl Draws {
    fn below(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

#[test]
fn replays_with_and_without_the_queue_are_equal_if_no_pod_needs_it() {
    for seed in 0..12 {
        let mut draws = Draws(seed);
        let nodes: String = (0..3 + draws.below(12))
            .map(|n| {
                let taint = match draws.below(4) {
                    0 => "\nspec: {taints: [{key: gpu, effect: NoSchedule}]}",
                    _ => "",
                };
                let zone = draws.below(3);
                let labels = format!("{{kubernetes.io/hostname: n{n}, zone: z{zone}}}");
                NODE_OF
                    .replace("{kubernetes.io/hostname: NAME}", &labels)
                    .replace("NAME", &format!("n{n}"))
                    .replace("'1'", &(1 + draws.below(4)).to_string())
                    .replace("\nstatus", &format!("{taint}\nstatus"))
            })
            .collect();
        let pods: String = (0..60)
            .map(|n| {
                let at = format!("creationTimestamp: '1970-01-01T00:00:{n:02}Z'");
                let spec = match draws.below(4) {
                    0 => "tolerations: [{key: gpu, operator: Exists}],".to_owned(),
                    1 => format!("nodeSelector: {{zone: z{}}},", draws.below(4)),
                    _ => String::new(),
                };
                let cpu = format!("{}m", 100 + 100 * draws.below(9));
                pod(&format!("p{n}"), &at, &spec).replace("600m", &cpu)
            })
            .collect();
        let test = format!("equal-{seed}");
        let nodes = file(&test, "nodes.yaml", nodes.as_bytes());
        let pods = file(&test, "pods.yaml", pods.as_bytes());
        let placements = |mode: &str| {
            let rows = file(&test, "placements.csv", b"");
            let files = ["replay", "--nodes", &nodes, "--pods", &pods, "-o", "json"];
            let more = ["--mode", mode, "--placements", &rows, "--seed", "7"];
            let run = portolan(&[&files[..], &more].concat());
            assert_eq!(run.code, 0, "{}", run.err);
            let result: Value = serde_json::from_str(&run.out).expect("one JSON object");
            let is_queued = !result["preempted"].is_null();
            let text = std::fs::read_to_string(&rows).expect("placements");
            let nodes: Vec<String> =
                text.lines().map(|line| line.split(',').nth(5).unwrap().to_owned()).collect();
            (is_queued, nodes, result["placed"].clone(), result["decision_hash"].clone())
        };
        let (plain, queued) = (placements("fill"), placements("timed"));
        assert!(!plain.0 && queued.0, "seed {seed}");
        assert_eq!(plain.1, queued.1, "seed {seed}");
        assert_eq!((plain.2, plain.3), (queued.2, queued.3), "seed {seed}");
    }
}
