//! Inputs in the form that platform teams have, against one cluster, with the outcome that follows from Kubernetes'
//! rules.
//!
//! Each file of `tests/corpus/` starts with comments: the question and its expected outcome, then the reason, then
//! further expectations, each on a line. `tests/corpus/README.md` describes them. The expectations were derived by hand
//! from the table at the top of `cluster.yaml`, not copied from a run.
//!
//! Every object of a file must be counted as read or as ignored. The test counts them by a scan of the lines, which
//! shares nothing with the reader of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::portolan;

/// Objects by kind.
type Kinds = BTreeMap<String, i64>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// What the comments at the top of a file require.
struct Expected {
    /// `what-if` or `explain`, and further arguments.
    question: Vec<String>,
    /// The numbers by name: `exit`, `placed`, `fits on` and so on.
    numbers: BTreeMap<String, u64>,
    /// The other lines: key and text.
    lines: Vec<(String, String)>,
}

impl Expected {
    fn read(text: &str) -> Expected {
        let comments = text.lines().map_while(|line| line.strip_prefix("# "));
        let keys = ["why", "on", "count", "apart", "together", "unplaced", "says", "warns"];
        let mut comments = comments.map(|line| line.split_once(": ").expect("KEY: TEXT"));
        let (question, numbers) = comments.next().expect("the first line has the outcome");
        let number = |part: &str| {
            let (name, number) = part.rsplit_once(' ').expect("NAME NUMBER");
            (name.to_owned(), number.parse().expect("a number"))
        };
        let lines: Vec<_> = comments.map(|(key, text)| (key.to_owned(), text.to_owned())).collect();
        assert!(lines.iter().all(|(key, _)| keys.contains(&&**key)), "unknown keys: {lines:?}");
        assert_eq!(lines.first().map(|(key, _)| &**key), Some("why"), "{question}: {lines:?}");
        Expected {
            question: question.split(' ').map(str::to_owned).collect(),
            numbers: numbers.split(", ").map(number).collect(),
            lines,
        }
    }

    fn number(&self, name: &str) -> u64 {
        self.numbers.get(name).copied().unwrap_or(0)
    }

    fn texts(&self, key: &str) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(move |(of, _)| of == key).map(|(_, text)| text.trim_matches('"'))
    }
}

/// The objects of a text by kind. Documents begin with a line of three dashes. In a list, each object is an item of the
/// field `items` and starts with a dash.
fn kinds(text: &str) -> Kinds {
    let mut kinds = Kinds::new();
    let mut document = Vec::new();
    for line in text.lines().chain(["---"]) {
        if !line.starts_with("---") {
            document.push(line.trim_end());
            continue;
        }
        count_document(&std::mem::take(&mut document), &mut kinds);
    }
    kinds
}

fn count_document(lines: &[&str], kinds: &mut Kinds) {
    let kind = lines.iter().find_map(|line| line.strip_prefix("kind: "));
    let Some(kind) = kind else {
        let is_comment = |line: &&str| line.is_empty() || line.starts_with(['#', '%', '.']);
        assert!(lines.iter().all(is_comment), "a document without a kind: {lines:?}");
        return;
    };
    let Some(of_items) = kind.strip_suffix("List") else {
        *kinds.entry(kind.to_owned()).or_default() += 1;
        return;
    };
    let start = lines.iter().position(|line| line.starts_with("items:")).expect("items") + 1;
    let indent = |line: &str| line.len() - line.trim_start().len();
    let dashes = lines.get(start).map_or(0, |line| indent(line));
    for (at, line) in lines.iter().enumerate().skip(start) {
        if indent(line) != dashes || !line.trim_start().starts_with("- ") {
            continue;
        }
        // The kind is a field of the item itself, not of an owner or a reference in it.
        let fields = lines[at..].iter().enumerate();
        let mut fields = fields.take_while(|(n, line)| *n == 0 || indent(line) > dashes);
        let own = fields.find_map(|(n, line)| {
            let field = if n == 0 { &line[dashes + 2..] } else { line.trim_start() };
            field.strip_prefix("kind: ").filter(|_| n == 0 || indent(line) == dashes + 2)
        });
        *kinds.entry(own.unwrap_or(of_items).to_owned()).or_default() += 1;
    }
}

/// The objects of a result by kind: those read, and those named as ignored.
fn counted(input: &Value) -> Kinds {
    let number = |value: &Value| value.as_i64().expect("a count");
    let read = input["read"].as_object().expect("the objects read").iter();
    let mut all: Kinds = read.map(|(kind, count)| (kind.clone(), number(count))).collect();
    for ignored in input["ignored"].as_array().expect("the objects ignored") {
        assert!(ignored["why"].as_str().is_some_and(|why| !why.is_empty()), "{ignored}");
        let kind = ignored["kind"].as_str().expect("a kind").to_owned();
        *all.entry(kind).or_default() += number(&ignored["count"]);
    }
    all
}

/// The difference of two counts, without zeros.
fn without(mut all: Kinds, others: &Kinds) -> Kinds {
    for (kind, count) in others {
        *all.entry(kind.clone()).or_default() -= count;
    }
    all.retain(|_, count| *count != 0);
    all
}

fn strings<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    let list = list.as_array().expect("a list").iter();
    list.map(|item| item[field].as_str().expect("a text")).collect()
}

/// The placements of an answer that differ from the expected ones.
fn misplaced(expected: &Expected, answer: &Value, wrong: &mut Vec<String>) {
    for name in ["placed", "unplaced", "preempted", "pending", "lost", "blocked"] {
        let found = answer[name].as_array().expect("a list");
        if u64::try_from(found.len()) != Ok(expected.number(name)) {
            let found = Value::from(found.clone());
            wrong.push(format!("{name}: expected {}, found {found}", expected.number(name)));
        }
    }
    let placed = answer["placed"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    let nodes: BTreeMap<String, String> =
        placed.clone().map(|it| (text(&it["pod"]), text(&it["to"]))).collect();
    for line in expected.texts("on") {
        let (pod, allowed) = line.split_once(' ').expect("POD NODE…");
        let node = nodes.get(pod).map_or("no node", |node| node);
        if !allowed.split(' ').any(|allowed| allowed == node) {
            wrong.push(format!("{pod}: expected {allowed}, found {node}"));
        }
    }
    for line in expected.texts("count") {
        let (on, number) = line.rsplit_once(' ').expect("NODE… COUNT");
        let is_new = |it: &&Value| it["from"].is_null();
        let is_on = |it: &&Value| on.split(' ').any(|node| it["to"] == node);
        let found = placed.clone().filter(is_new).filter(is_on).count();
        if number.parse() != Ok(found) {
            wrong.push(format!("expected {number} pods on {on}, found {found}"));
        }
    }
    for prefix in expected.texts("apart") {
        let of = || nodes.iter().filter(|(pod, _)| pod.starts_with(prefix)).map(|(_, node)| node);
        if of().count() != of().collect::<BTreeSet<_>>().len() || of().next().is_none() {
            wrong.push(format!("{prefix}: expected different nodes, found {nodes:?}"));
        }
    }
    for line in expected.texts("together") {
        let (prefix, groups) = line.split_once(" | ").expect("PREFIX | NODE… | NODE…");
        let on: Vec<&str> = nodes
            .iter()
            .filter(|(pod, _)| pod.starts_with(prefix))
            .map(|(_, node)| &**node)
            .collect();
        let mut groups = groups.split(" | ");
        let has_all = |group: &str| on.iter().all(|node| group.split(' ').any(|of| of == *node));
        if on.is_empty() || !groups.any(has_all) {
            wrong.push(format!("{line}: found {on:?}"));
        }
    }
    let unplaced = strings(&answer["unplaced"], "pod");
    for pod in expected.texts("unplaced") {
        if !unplaced.contains(&pod) {
            wrong.push(format!("{pod}: expected without a node, found {unplaced:?}"));
        }
    }
}

/// What is wrong with the answer for one file. `of_cluster` are the objects of the cluster itself.
fn check(file: &Path, of_cluster: &Kinds) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("a file in UTF-8");
    let is_named = |name: &str| file.file_stem().is_some_and(|stem| stem == name);
    assert_eq!(text.contains("\r\n"), is_named("windows-line-ends"), "{}", file.display());
    assert_eq!(text.contains('\u{feff}'), is_named("byte-order-mark"), "{}", file.display());
    let text = text.trim_start_matches('\u{feff}');
    let expected = Expected::read(text);
    let cluster = folder().join("cluster.yaml");
    let path = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
    let option = match &*expected.question[0] {
        "what-if" => "--pods",
        "explain" => "--pod",
        other => panic!("an unknown question: {other}"),
    };
    let (cluster, file) = (path(&cluster), path(file));
    let mut arguments = vec![&*expected.question[0], "--cluster", &cluster, option, &file];
    arguments.extend(["--output", "json"]);
    arguments.extend(expected.question[1..].iter().map(String::as_str));
    let run = portolan(&arguments);
    let mut wrong = Vec::new();
    if u64::try_from(run.code) != Ok(expected.number("exit")) {
        wrong.push(format!("expected exit {}, found {}", expected.number("exit"), run.code));
    }
    let answer: Value = match serde_json::from_str(&run.out) {
        Ok(answer) => answer,
        Err(_) => return vec![format!("no answer: {}", run.err)],
    };
    match option {
        "--pods" => misplaced(&expected, &answer, &mut wrong),
        _ if answer["fits_on"] == expected.number("fits on") => {}
        _ => wrong.push(format!("fits on {}, message {}", answer["fits_on"], answer["message"])),
    }
    // The texts of the answer as they are, not as JSON escapes them.
    let said = said(&answer).join("\n") + &run.err;
    for text in expected.texts("says").filter(|text| !said.contains(text)) {
        wrong.push(format!("expected {text:?} in:\n{said}"));
    }
    let warnings = strings(&answer["input"]["warnings"], "what");
    let warns: Vec<&str> = expected.texts("warns").collect();
    let is_known = |warning: &&str| warns.iter().any(|known| warning.contains(known));
    if warnings.len() != warns.len() || !warnings.iter().all(is_known) {
        wrong.push(format!("expected warnings {warns:?}, found {warnings:?}"));
    }
    let (found, listed) = (without(counted(&answer["input"]), of_cluster), kinds(text));
    if found != listed {
        wrong.push(format!("the file has {listed:?}, read or ignored are {found:?}"));
    }
    wrong
}

/// All texts of a result.
fn said(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().flat_map(said).collect(),
        Value::Object(map) => map.values().flat_map(said).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn corpus_has_the_outcomes_of_kubernetes() {
    let cluster = folder().join("cluster.yaml");
    let run = portolan(&[
        "what-if",
        "--cluster",
        cluster.to_str().expect("a path in UTF-8"),
        "--strict",
        "--output",
        "json",
    ]);
    assert_eq!(run.code, 0, "{}", run.err);
    let answer: Value = serde_json::from_str(&run.out).expect("JSON");
    let of_cluster = counted(&answer["input"]);
    let text = std::fs::read_to_string(&cluster).expect("the cluster");
    assert_eq!(of_cluster, kinds(&text));

    let entries = std::fs::read_dir(folder()).expect("the corpus");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "yaml") && *file != cluster);
    files.sort();
    assert!(files.len() >= 60, "{} files", files.len());
    let mut failed = Vec::new();
    for file in files {
        let wrong = check(&file, &of_cluster);
        if !wrong.is_empty() {
            failed.push(format!("{}: {}", file.display(), wrong.join("\n  ")));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
