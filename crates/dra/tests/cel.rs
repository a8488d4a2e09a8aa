//! Verdicts, errors and costs of selectors. The benchmark's `conformance` compares them with those of Kubernetes.

use portolan_dra::cel::{COST_LIMIT, EvalError, Evaluation, Program};
use portolan_dra::model::Device;
use proptest::prelude::*;
use serde_json::{Value, json};

fn device(attributes: &Value, capacity: &str) -> Device {
    let capacity = json!({"q": {"value": capacity}});
    let device = json!({"name": "x", "attributes": attributes, "capacity": capacity});
    serde_json::from_value(device).expect("a device")
}

/// Evaluates an expression for a device with some of each, and writes the verdict or the error.
fn verdict(expression: &str) -> String {
    let attributes = json!({
        "s": {"string": "abc"}, "i": {"int": 5}, "b": {"bool": true}, "v": {"version": "1.2.3"},
        "other/x": {"int": 1},
    });
    let device = device(&attributes, "1500m");
    match Program::compile(expression) {
        Ok(of) => of.matches("d", &device).map_or_else(|e| e.to_string(), |v| v.to_string()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn functions_answer_as_their_documentation_says() {
    for expression in [
        r#""hello mellow".indexOf("ello", 2) == 7 && "hello mellow".lastIndexOf("ello", 6) == 1"#,
        r#""héllo".charAt(1) == "é" && "tacocat".substring(0, 4) == "taco""#,
        r#""hello hello".replace("he", "we", 1) == "wello hello" && "a".replace("", "-") == "-a-""#,
        r#""hello".split("", 2) == ["h", "ello"] && "a.b".split(".", 0) == []"#,
        r#""%.3f %s %x %b".format([1234567.0, {"b": [true], "a": null}, "hi", -5]) == "1,234,567.000 {\"a\":null, \"b\":[true]} 6869 -101""#,
        r#""123 abc 456".findAll("[0-9]*") == ["123", "", "", "", "", "456"]"#,
        r#"[3, 1, 2].sortBy(x, -x) == [3, 2, 1] && ["b", "a"].sort() == ["a", "b"]"#,
        r#"[[1, 2], [3]].flatten().distinct().reverse() == [3, 2, 1]"#,
        r#"{"a": 1}.transformMapEntry(k, v, {v: k}) == {1: "a"}"#,
        r#"[1, 2, 3].first().value() == 1 && ![].last().hasValue()"#,
        r#"timestamp("2024-03-10T12:30:45.250Z").getHours("-05:30") == 7"#,
        r#"string(timestamp("2024-02-28T23:00:00+01:00") + duration("25h")) == "2024-03-01T00:00:00+01:00""#,
        r#"string(duration("1h30m0.5s")) == "5400.5s" && int(timestamp(1)) == 1"#,
        r#"string(1e10) == "1e+10" && string(100000.0) == "100000""#,
        r#"url("https://u@[::1]:80/p q?k=v&k=w#f").getEscapedPath() == "/p%20q""#,
        r#"url("https://[::1]:80/?k=a+b&k=%63").getQuery() == {"k": ["a b", "c"]}"#,
        r#"cidr("192.168.0.1/24").masked() == cidr("192.168.0.0/24") && ip("fe80::1").isLinkLocalUnicast()"#,
        r#"device.capacity["d"].q.add(quantity("500m")).compareTo(quantity("2")) == 0"#,
        r#"device.attributes["d"].?s.optMap(x, x + "y").orValue("") == "abcy""#,
        r#"device.attributes.exists(d, d == "other") && device.attributes["d"].exists(k, v, v == 5)"#,
        r#"device.attributes["d"].v != "1.2.3" && device.attributes["d"].i in [1.5, 5.0]"#,
    ] {
        assert_eq!(verdict(expression), "true", "{expression}");
    }
}

#[test]
fn errors_have_the_texts_of_kubernetes() {
    for (expression, error) in [
        (r#"device.attributes["d"].v < "2""#, "no such overload: _<_"),
        (r#"device.attributes["d"].v == "1.2.3""#, "no such overload"),
        (r#"device.attributes["d"].b + 1 == 0"#, "no such overload: _+_"),
        (r#"int(device.attributes["d"].b) == 1"#, "no such overload: int(bool)"),
        (r#"int(device.attributes["d"].s) == 1"#, "type conversion error from 'string' to 'int'"),
        (
            r#"[1, 2].slice(2, 1) == []"#,
            "cannot slice(2, 1), start index must be less than or equal to end index",
        ),
        (
            r#"[1, 1].transformMapEntry(i, v, {v: i}) == {1: 0}"#,
            "insert failed: key 1 already exists",
        ),
        (
            r#"url("../x").getHost() == """#,
            "URL parse error during conversion from string: parse \"../x\": invalid URI for request",
        ),
        (
            r#"ip("1.2.3").family() == 4"#,
            "IP Address \"1.2.3\" parse error during conversion from string: ParseAddr(\"1.2.3\"): IPv4 address too short",
        ),
        (r#"semver("01.2.3").major() == 1"#, "Major number must not contain leading zeroes \"01\""),
        (
            r#"duration("1x") == duration("1s")"#,
            "compilation failed: ERROR: <input>:1:10: invalid duration argument\n | duration(\"1x\") == duration(\"1s\")\n | .........^",
        ),
        (
            r#"timestamp("x") == timestamp(0)"#,
            "compilation failed: ERROR: <input>:1:11: invalid timestamp argument\n | timestamp(\"x\") == timestamp(0)\n | ..........^",
        ),
        (
            r#""a".matches("(")"#,
            "compilation failed: ERROR: <input>:1:13: invalid matches argument\n | \"a\".matches(\"(\")\n | ............^",
        ),
        (
            r#"matches("(", "a")"#,
            "compilation failed: ERROR: <input>:1:9: invalid matches argument\n | matches(\"(\", \"a\")\n | ........^",
        ),
        (
            "1 == 1.0",
            "compilation failed: ERROR: <input>:1:3: found no matching overload for '_==_' applied to '(int, double)'\n | 1 == 1.0\n | ..^",
        ),
        ("device", "must evaluate to bool or the unknown type, not kubernetes.DRADevice"),
    ] {
        assert_eq!(verdict(expression), error, "{expression}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("(", ")"), ("[", "]"), ("{1:", "}"), ("[1].all(x,", ")")] {
        let expression = format!("{}true{}", open.repeat(5_000), close.repeat(5_000));
        assert!(Program::compile(&expression).is_err(), "{open}");
    }
    // Pairs of signs cancel out.
    for sign in ["!", "-"] {
        assert!(Program::compile(&format!("{}true", sign.repeat(5_000))).is_ok(), "{sign}");
    }
    let sum = vec!["1"; 5_000].join("+");
    assert!(Program::compile(&format!("{sum} > 0")).is_err());
    let selections = format!("device{}", ".a".repeat(5_000));
    assert!(Program::compile(&selections).is_err());
    let terms = vec!["true"; 5_000].join(" && ");
    assert_eq!(Program::compile(&terms).map(|p| p.matches("d", &Device::default())), Ok(Ok(true)));
}

#[test]
fn expressions_that_double_at_each_step_are_refused() {
    let copied = format!("optional.of(1){}.hasValue()", ".optMap(x, x)".repeat(35));
    assert!(Program::compile(&copied).is_err());
    let name = |n| format!("v{n}");
    let bind = |n: usize| match n {
        0 => "cel.bind(v0, {1: 1}, ".to_owned(),
        _ => format!("cel.bind({0}, {{{1}: {1}}}, ", name(n), name(n - 1)),
    };
    let typed = format!("{}true{}", (0..35).map(bind).collect::<String>(), ")".repeat(35));
    assert!(Program::compile(&typed).is_err());
}

/// CEL charges little or nothing for the work of these expressions.
#[test]
fn hostile_expressions_exceed_the_cost_limit() {
    let text = |len: usize| "x".repeat(len);
    // Binds v0, and v1 to v9, each of which is computed from the one before.
    let growing = |first: &str, next: &str, body: &str| {
        let steps: String = (1..10)
            .map(|at| format!("cel.bind(v{at}, {}, ", next.replace("V", &format!("v{}", at - 1))))
            .collect();
        format!("cel.bind(v0, {first}, {steps}{body}{}", ")".repeat(10))
    };
    let expressions = [
        // Constants and `&&` cost nothing.
        format!("lists.range(100000).all(i, {})", vec!["true"; 1_000].join(" && ")),
        // `==` is charged by the length of the outer list.
        growing("[1, 2, 3, 4, 5, 6, 7, 8]", "[V, V, V, V, V]", "v9 == v9"),
        growing("[1, 2, 3, 4, 5, 6, 7, 8]", "[V, V, V, V, V]", "[v9, v9].distinct().size() == 1"),
        growing("[1, 2, 3, 4, 5, 6, 7, 8]", "[V, V, V, V, V]", "'%s'.format([v9]) != ''"),
        growing("[1, 2, 3, 4, 5, 6, 7, 8]", "[V, V, V, V, V]", "[v9].flatten(99).size() > 0"),
        "cel.bind(a, lists.range(9000), lists.range(900).all(i, a == a))".to_owned(),
        // Overloads that are found at run time cost 1.
        growing(
            &format!("dyn('{}')", text(5_000)),
            "V + V",
            "lists.range(9000).all(i, v9 + v9 != '')",
        ),
        growing("dyn(lists.range(99))", "V + V", "lists.range(9000).map(i, v9 + v9).size() > 0"),
        growing("dyn([3, 2, 1])", "V + V", "lists.range(9000).all(i, v9.sort() != [])"),
        format!(
            "cel.bind(s, dyn(lists.range(3000).map(i, '{}')), \
             lists.range(900).all(i, s.sort().size() > 0))",
            text(5_000)
        ),
        // Reading a variable copies its text.
        growing(&format!("'{}'", text(5_000)), "V + V", "lists.range(9000).all(i, v9.size() > i)"),
        // A pattern that is computed is compiled for each item.
        "lists.range(9000).all(i, !'x'.matches('(a{9}b{9}){9}' + string(i)))".to_owned(),
        format!("lists.range(900).all(i, '{}'.matches('([ab]|x)*x.{{300}}$'))", text(5_000)),
        "cel.bind(m, lists.range(9000).transformMap(i, v, v), \
         lists.range(9000).all(i, m.all(k, false) || true))"
            .to_owned(),
    ];
    for expression in &expressions {
        let program = Program::compile(expression).expect("an expression");
        let evaluation = program.evaluate("d", &Device::default());
        let shown: String = expression.chars().take(100).collect();
        assert_eq!(evaluation.result, Err(EvalError::CostLimit), "{shown}");
        // The last operation may exceed the limits by its own size.
        let Evaluation { work, cost, .. } = evaluation;
        assert!(work < 4 * COST_LIMIT && cost < 2 * COST_LIMIT, "{shown}: {work}, {cost}");
    }
}

#[test]
fn extreme_numbers_are_errors() {
    for expression in [
        "[[1], [2]].flatten(9223372036854775807) == [1]",
        "timestamp(\"2024-01-01T00:00:00Z\").getHours(\"-1:-2147483648\") == 0",
    ] {
        let program = Program::compile(expression).expect(expression);
        assert!(program.matches("d", &Device::default()).is_err(), "{expression}");
    }
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
        let attributes = json!({
            "s": {"string": "é%d"}, "i": {"int": i64::MIN}, "v": {"version": "1.2.3-rc.1"},
        });
        let _ = program.evaluate("d", &device(&attributes, "1m"));
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
