//! Compares verdicts, errors and costs of selectors with those of Kubernetes.
//!
//! The cases were printed by Kubernetes 1.36 and are not in this repository; the test reads `dra-cel.jsonl.gz` in the
//! folder PORTOLAN_VECTORS, or else in ../shared/vectors.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use portolan::model::Quantity;
use portolan_dra::cel::{Attribute, Device, Program, Version};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    driver: String,
    #[serde(default)]
    devices: Vec<Input>,
    expression: Option<String>,
    compile_error: Option<String>,
    estimated_cost: Option<u64>,
    #[serde(default)]
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    #[serde(default)]
    attributes: BTreeMap<String, Value>,
    #[serde(default)]
    capacity: BTreeMap<String, Capacity>,
    #[serde(default)]
    allow_multiple_allocations: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Value {
    Bool(bool),
    Int(i64),
    String(String),
    Version(String),
}

#[derive(Deserialize)]
struct Capacity {
    value: String,
}

#[derive(Deserialize)]
struct Case {
    device: usize,
    result: Option<bool>,
    error: Option<String>,
    cost: Option<u64>,
}

fn vectors() -> PathBuf {
    let shared = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    std::env::var_os("PORTOLAN_VECTORS").map_or_else(shared, PathBuf::from).join("dra-cel.jsonl.gz")
}

fn versions(input: &Input) -> BTreeMap<&str, Version> {
    let version = |(name, value): (&'_ String, &Value)| match value {
        Value::Version(text) => Some((name.clone(), text.parse::<Version>().expect("a version"))),
        _ => None,
    };
    let parsed: BTreeMap<String, Version> = input.attributes.iter().filter_map(version).collect();
    let name = |name: &String| input.attributes.get_key_value(name).map(|(key, _)| key.as_str());
    parsed.into_iter().filter_map(|(key, value)| Some((name(&key)?, value))).collect()
}

fn device<'a>(
    driver: &'a str,
    input: &'a Input,
    versions: &'a BTreeMap<&str, Version>,
) -> Device<'a> {
    let mut device =
        Device::new(driver).allow_multiple_allocations(input.allow_multiple_allocations);
    for (name, value) in &input.attributes {
        let value = match value {
            Value::Bool(value) => Attribute::Bool(*value),
            Value::Int(value) => Attribute::Int(*value),
            Value::String(value) => Attribute::String(value),
            Value::Version(_) => Attribute::Version(&versions[name.as_str()]),
        };
        device = device.attribute(name, value);
    }
    for (name, capacity) in &input.capacity {
        device = device.capacity(name, capacity.value.parse::<Quantity>().expect("a quantity"));
    }
    device
}

#[test]
fn verdicts_errors_and_costs_are_those_of_kubernetes() {
    let path = vectors();
    let Ok(file) = std::fs::File::open(&path) else {
        println!("skipped: {} does not exist", path.display());
        return;
    };
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
    let mut inputs = Vec::new();
    let mut failures = Vec::new();
    let (mut expressions, mut cases, mut costs, mut estimates) = (0, 0, 0, 0);
    for line in text.lines() {
        let line: Line = serde_json::from_str(line).expect("a line");
        let Some(expression) = line.expression else {
            inputs = line.devices;
            continue;
        };
        expressions += 1;
        let program = match (Program::compile(&expression), line.compile_error) {
            (Ok(program), None) => program,
            (Err(_), Some(_)) => continue,
            (Ok(_), Some(error)) => {
                failures.push(format!("{expression}: compiles, but Kubernetes has: {error}"));
                continue;
            }
            (Err(error), None) => {
                failures.push(format!("{expression}: {error}"));
                continue;
            }
        };
        if let Some(estimate) = line.estimated_cost {
            estimates += 1;
            if program.estimated_cost() != estimate {
                let found = program.estimated_cost();
                failures.push(format!("{expression}: estimate {found}, not {estimate}"));
            }
        }
        for case in line.cases {
            cases += 1;
            let input = &inputs[case.device];
            let versions = versions(input);
            let found = program.evaluate(&device(&line.driver, input, &versions));
            let result = found.result.map_err(|error| error.to_string());
            let expected = match (case.result, case.error) {
                (Some(result), None) => Ok(result),
                (_, error) => Err(error.unwrap_or_default()),
            };
            if result != expected {
                let number = case.device;
                failures
                    .push(format!("{expression}: device {number}: {result:?}, not {expected:?}"));
            }
            if let Some(cost) = case.cost {
                costs += 1;
                if found.cost != cost {
                    let number = case.device;
                    failures.push(format!(
                        "{expression}: device {number}: cost {}, not {cost}",
                        found.cost
                    ));
                }
            }
        }
    }
    println!(
        "{expressions} expressions, {cases} cases, {costs} costs, {estimates} estimates, {} failures",
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in
        [("(", ")"), ("[", "]"), ("{1:", "}"), ("!", ""), ("-", ""), ("[1].all(x,", ")")]
    {
        let expression = format!("{}true{}", open.repeat(5_000), close.repeat(5_000));
        let _ = Program::compile(&expression);
    }
    let sum = vec!["1"; 5_000].join("+");
    assert!(Program::compile(&format!("{sum} > 0")).is_err());
    let selections = format!("device{}", ".a".repeat(5_000));
    assert!(Program::compile(&selections).is_err());
    let terms = vec!["true"; 5_000].join(" && ");
    assert_eq!(Program::compile(&terms).map(|p| p.matches(&Device::new("d"))), Ok(Ok(true)));
}

/// Text that is often an expression.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("device.driver".to_owned()),
        Just("device.attributes".to_owned()),
        Just("device.attributes[\"d\"].s".to_owned()),
        Just("device.attributes[\"d\"].i".to_owned()),
        Just("device.capacity[\"d\"].q".to_owned()),
        Just("optional.none()".to_owned()),
        Just("timestamp(\"2024-02-29T23:59:59.5+14:00\")".to_owned()),
        Just("duration(\"-1h5ms\")".to_owned()),
        "(-?[0-9]{1,20}u?|[0-9]\\.[0-9]e[0-9]{1,3}|\"[a-é%.:/\\[\\]0-9-]{0,8}\"|b'.{0,3}'|true|null|x)",
        "[a-z]{1,6}\\([^()]{0,3}\\)",
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let method = prop::sample::select(vec![
            "size",
            "matches",
            "find",
            "findAll",
            "split",
            "join",
            "replace",
            "substring",
            "charAt",
            "indexOf",
            "lastIndexOf",
            "format",
            "startsWith",
            "contains",
            "sum",
            "min",
            "isSorted",
            "sort",
            "distinct",
            "slice",
            "flatten",
            "reverse",
            "value",
            "orValue",
            "hasValue",
            "getHours",
            "getDayOfWeek",
            "isGreaterThan",
            "add",
            "asInteger",
            "all(x,",
            "map(x,",
            "filter(x,",
            "exists_one(x,",
            "transformMap(x,y,",
            "sortBy(x,",
            "optMap(x,",
        ]);
        let function = prop::sample::select(vec![
            "quantity",
            "semver",
            "ip",
            "cidr",
            "url",
            "isURL",
            "int",
            "uint",
            "double",
            "string",
            "bytes",
            "duration",
            "timestamp",
            "dyn",
            "type",
            "size",
            "lists.range",
            "strings.quote",
            "sets.contains",
            "optional.of",
            "has",
            "-",
            "!",
            "format.named",
            "cel.bind(x,1,",
        ]);
        let operator = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "==", "!=", "<", ">=", "in", "&&", "||", "?1:",
        ]);
        prop_oneof![
            (inner.clone(), operator, inner.clone()).prop_map(|(a, o, b)| format!("({a} {o} {b})")),
            (inner.clone(), method, prop::collection::vec(inner.clone(), 0..3)).prop_map(
                |(target, name, args)| {
                    let (name, sign) = if name.ends_with(',') { (name, "") } else { (name, "(") };
                    format!("{target}.{name}{sign}{})", args.join(","))
                }
            ),
            (function, prop::collection::vec(inner.clone(), 0..3)).prop_map(|(name, args)| {
                let sign = if name.ends_with(',') { "" } else { "(" };
                format!("{name}{sign}{})", args.join(","))
            }),
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(","))),
            (inner.clone(), inner.clone()).prop_map(|(k, v)| format!("{{{k}:{v}}}")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("{a}[{b}]")),
        ]
    })
}

fn try_all(expression: &str) {
    if let Ok(program) = Program::compile(expression) {
        let version: Version = "1.2.3-rc.1".parse().expect("a version");
        let device = Device::new("d")
            .attribute("s", Attribute::String("é%d"))
            .attribute("i", Attribute::Int(i64::MIN))
            .attribute("v", Attribute::Version(&version))
            .capacity("q", Quantity::milli(1));
        let _ = program.evaluate(&device);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(text in ".{0,60}") {
        try_all(&text);
    }

    #[test]
    fn arbitrary_expressions_never_panic(text in expression()) {
        try_all(&text);
        try_all(&format!("{text} == {text}"));
        try_all(&format!("dyn({text}) == 1 || \"%s\".format([{text}]) != \"\""));
    }
}

/// `cargo test --release -p portolan-dra --test cel -- --ignored --nocapture speed`
#[test]
#[ignore = "a measurement"]
fn speed() {
    const ROUNDS: u32 = 200_000;
    let version: Version = "2.1.0".parse().expect("a version");
    let mut device = Device::new("gpu.example.com")
        .attribute("model", Attribute::String("a100"))
        .attribute("index", Attribute::Int(1))
        .attribute("ecc", Attribute::Bool(true))
        .attribute("driverVersion", Attribute::Version(&version))
        .capacity("memory", Quantity::whole(40 << 30));
    let names: Vec<String> = (0..12).map(|i| format!("vendor.io/attribute{i}")).collect();
    for name in &names {
        device = device.attribute(name, Attribute::Int(0));
    }
    for expression in [
        r#"device.attributes["gpu.example.com"].model == "a100""#,
        r#"device.attributes["gpu.example.com"].model in ["h100", "a100"] && device.attributes["gpu.example.com"].index > 0"#,
        r#"has(device.attributes["gpu.example.com"].ecc) && device.attributes["gpu.example.com"].ecc"#,
        r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("30Gi")) >= 0"#,
        r#"device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("1.9.0"))"#,
        r#"cel.bind(a, device.attributes["gpu.example.com"], a.model != "l4" && a.index < 3)"#,
        r#"device.attributes["gpu.example.com"].model.matches("^[ah]100$")"#,
        r#"["a100", "l4"].exists(m, m == device.attributes["gpu.example.com"].model)"#,
        r#"device.attributes["gpu.example.com"].missing == 1"#,
    ] {
        let program = Program::compile(expression).expect("an expression");
        let start = std::time::Instant::now();
        for _ in 0..ROUNDS {
            let _ = std::hint::black_box(program.matches(std::hint::black_box(&device)));
        }
        println!("{:5} ns  {expression}", (start.elapsed() / ROUNDS).as_nanos());
        let start = std::time::Instant::now();
        for _ in 0..1_000 {
            let _ = std::hint::black_box(Program::compile(expression));
        }
        println!("{:5} ns to compile", (start.elapsed() / 1_000).as_nanos());
    }
}
