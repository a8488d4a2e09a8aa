//! Flags, output, completions, man pages, metrics in the classic text format, and the examples of the documents.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{file, portolan};

const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/cluster.yaml");

#[test]
fn short_flags_are_kubectls() {
    let long = portolan(&["dump", "--cluster", CLUSTER, "--output", "json"]);
    let short = portolan(&["dump", "-f", CLUSTER, "-ojson"]);
    assert_eq!((long.code, short.code), (0, 0), "{}", short.err);
    assert_eq!(long.out, short.out);
    assert_eq!(portolan(&["dump", "--filename", CLUSTER, "-o", "json"]).out, long.out);
}

#[test]
fn version_has_features_and_target() {
    let run = portolan(&["--version"]);
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!(lines[0], format!("portolan {}", env!("CARGO_PKG_VERSION")));
    assert!(lines[1].starts_with("features: ") && lines[2].starts_with("target: "), "{}", run.out);
    assert!(lines[2].contains(std::env::consts::ARCH), "{}", run.out);
    assert_eq!(portolan(&["-V"]).out.lines().count(), 1);
}

#[test]
fn quiet_changes_no_result() {
    // The answers have a note: pods were created.
    let cluster = file(
        "quiet",
        "cluster.yaml",
        b"apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a}, status: {allocatable: {cpu: 4, pods: 9}}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {app: w}},
   template: {metadata: {labels: {app: w}}, spec: {schedulerName: other, containers: [{name: c}]}}}}
",
    );
    let is_note = |line: &&str| line.starts_with("note: ");
    let verbs: [(&[&str], bool); 8] = [
        (&["explain", "-f", &cluster, "--pod", "default/web-0"], true),
        (&["explain", "-f", &cluster, "--pending"], true),
        (&["what-if", "-f", &cluster], true),
        (&["audit", "-f", &cluster], true),
        (&["dump", "-f", &cluster], true),
        (&["dump", "-f", &cluster, "--store", "nodes"], true),
        // The times differ from run to run.
        (&["replay", "--nodes", &cluster, "--pods", &cluster], false),
        (&["compare", "--config", "default", "--nodes", &cluster, "--pods", &cluster], false),
    ];
    for (verb, is_equal) in verbs {
        let loud = portolan(verb);
        let quiet = portolan(&[&["-q"], verb].concat());
        assert!(loud.code < 2 && quiet.code == loud.code, "{verb:?}: {}", loud.err);
        assert_eq!(quiet.err.lines().filter(is_note).count(), 0, "{verb:?}");
        if is_equal {
            assert_eq!(quiet.out, loud.out, "{verb:?}");
        }
        let notes = |out: &str| out.lines().filter(is_note).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(notes(&quiet.out), notes(&loud.out), "{verb:?}");
    }
}

#[test]
fn quiet_omits_notes_but_no_errors() {
    let loud = portolan(&["dump", "-f", CLUSTER]);
    assert!(loud.err.contains("note: "), "{}", loud.err);
    let quiet = portolan(&["-q", "dump", "-f", CLUSTER]);
    assert_eq!((quiet.code, &*quiet.err), (0, ""));
    assert!(!quiet.out.contains("note: "));
    let wrong = portolan(&["--quiet", "dump", "-f", "/nowhere.yaml"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.starts_with("portolan: /nowhere.yaml: "), "{}", wrong.err);
}

#[test]
fn output_to_a_pipe_has_no_colour_unless_forced() {
    let run = |variables: &[(&str, &str)]| {
        let done = Command::new(env!("CARGO_BIN_EXE_portolan"))
            .args(["dump", "-f", "/nowhere.yaml"])
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .output()
            .expect("the program starts");
        String::from_utf8(done.stderr).expect("UTF-8")
    };
    assert!(!run(&[]).contains('\x1b'));
    assert!(run(&[("CLICOLOR_FORCE", "1")]).contains("\x1b[1m"));
    assert!(!run(&[("NO_COLOR", "1")]).contains('\x1b'));
}

#[test]
fn stores_are_named_as_kubectl_names_kinds() {
    let rows = |store: &str, more: &[&str]| {
        let arguments = [&["dump", "-q", "-f", CLUSTER, "--store", store], more].concat();
        let run = portolan(&arguments);
        assert_eq!(run.code, 0, "{store}: {}", run.err);
        run.out
    };
    for store in ["pod", "PODS", "Po"] {
        assert_eq!(rows(store, &[]), rows("pods", &[]), "{store}");
    }
    for store in ["pdb", "poddisruptionbudgets", "PodDisruptionBudget"] {
        assert_eq!(rows(store, &["-o", "name"]), "poddisruptionbudget/web\n", "{store}");
    }
    assert_eq!(rows("nodes", &["-l", "pool=a,kubernetes.io/hostname!=n1", "-oname"]), "node/n2\n");
    assert_eq!(rows("po", &["-l", "app in (web)", "-oname"]), "pod/web-1-a\npod/web-1-b\n");
    assert_eq!(rows("po", &["-n", "other", "-oname"]), "");
    assert_eq!(rows("po", &["-A", "-oname"]), rows("po", &["-oname"]));
    let wide = rows("nodes", &["-o", "wide"]);
    assert!(wide.contains("dedicated=batch:NoSchedule") && wide.contains("pool=b"), "{wide}");
    assert!(!rows("nodes", &[]).contains("pool=b"));
}

#[test]
fn a_namespace_without_objects_is_a_warning() {
    let err = |namespace: &str| {
        let run = portolan(&["dump", "-q", "-f", CLUSTER, "--store", "po", "-n", namespace]);
        assert_eq!(run.code, 0, "{}", run.err);
        run.err
    };
    assert_eq!(err("shpo"), "warning: namespace shpo has no objects: did you mean shop?\n");
    assert_eq!((err("shop"), err("kube-system")), (String::new(), String::new()));
}

#[test]
fn rows_that_cannot_be_selected_are_refused() {
    for (arguments, says) in [
        (&["-o", "name"][..], "-o name needs --store"),
        (&["--store", "nodez"], "store \"nodez\" does not exist"),
        (&["--store", "pdb", "-l", "a=b"], "--selector selects nodes and pods"),
        (&["--store", "pods", "-n", "shop", "-o", "json"], "omit --namespace"),
        (&["--store", "pods", "-l", "a=b=c"], "is not a label requirement"),
        (&["-n", "shop"], "--store"),
    ] {
        let run = portolan(&[&["dump", "-f", CLUSTER], arguments].concat());
        assert_eq!((run.code, &*run.out), (2, ""), "{arguments:?}: {}", run.err);
        assert!(run.err.contains(says), "{arguments:?}: {}", run.err);
        assert!(run.err.len() < 300, "{arguments:?}: {}", run.err);
    }
}

#[test]
fn wrong_arguments_end_with_status_2_and_a_suggestion() {
    let cases: &[(&[&str], &str)] = &[
        (&["what-fi", "-f", CLUSTER], "'what-if'"),
        (&["dump", "--clustr", CLUSTER], "'--cluster'"),
        (&["dump", "-f", CLUSTER, "-o", "jsn"], "'json'"),
        (&["explain", "-f", CLUSTER], "--pod"),
        (&["completions", "tcsh"], "bash"),
        (&[], "Usage: portolan"),
    ];
    for (arguments, says) in cases {
        let run = portolan(arguments);
        assert_eq!((run.code, &*run.out), (2, ""), "{arguments:?}: {}", run.err);
        assert!(run.err.contains(says), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn completions_name_all_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let run = portolan(&["completions", shell]);
        assert_eq!(run.code, 0, "{}", run.err);
        for command in ["replay", "explain", "what-if", "completions"] {
            assert!(run.out.contains(command), "{shell}: {command}");
        }
        // Escaping of control characters must leave the script as it is.
        assert!(!run.out.contains("\\u{"), "{shell}");
    }
    let script =
        file("completions", "portolan.bash", portolan(&["completions", "bash"]).out.as_bytes());
    if let Ok(checked) = Command::new("bash").args(["-n", &script]).status() {
        assert!(checked.success());
    }
}

#[test]
fn man_pages_are_written_for_each_command() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man/man1");
    let run = portolan(&["man", folder.to_str().expect("UTF-8")]);
    assert_eq!((run.code, &*run.out), (0, ""), "{}", run.err);
    for page in ["portolan", "portolan-what-if", "portolan-man"] {
        let text = std::fs::read_to_string(folder.join(format!("{page}.1"))).expect(page);
        assert!(text.contains(".TH"), "{page}");
    }
    assert!(portolan(&["man"]).out.contains(".TH portolan 1"));
}

/// Reads the classic text format (0.0.4) as `expfmt` of Prometheus does, and more strictly: each sample must have a
/// family with a type. Returns the types of the families that have samples.
fn parse_classic(text: &str) -> Result<HashMap<String, String>, String> {
    let (mut types, mut helps) = (HashMap::new(), HashSet::new());
    let (mut sampled, mut series) = (HashMap::new(), HashSet::new());
    let mut current = String::new();
    if !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    for line in text.lines() {
        let wrong = |what: &str| Err(format!("{what}: {line:?}"));
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (keyword, name, rest) = (words.next(), words.next(), words.next());
            let name = name.unwrap_or_default().to_owned();
            let is_new = match (keyword, rest) {
                (Some("HELP"), Some(_)) => helps.insert(name.clone()),
                (Some("TYPE"), Some("counter" | "gauge" | "histogram" | "summary" | "untyped")) => {
                    let kind = rest.unwrap_or_default().to_owned();
                    !sampled.contains_key(&name) && types.insert(name.clone(), kind).is_none()
                }
                _ => return wrong("unknown comment or type"),
            };
            if !is_new || !is_name(&name) {
                return wrong("repeated or invalid family");
            }
            current = name;
            continue;
        }
        let (name, rest) = line.split_at(line.find([' ', '{']).unwrap_or(line.len()));
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest).ok_or_else(|| format!("invalid labels: {line:?}"))?,
            None => (Vec::new(), rest),
        };
        let value = value.strip_prefix(' ').unwrap_or("x");
        if !is_name(name) || value.parse::<f64>().is_err() {
            return wrong("invalid sample");
        }
        let Some(kind) = types.get(&current) else { return wrong("family without a type") };
        let suffixes: &[&str] = match &**kind {
            "histogram" => &["_bucket", "_sum", "_count"],
            "summary" => &["", "_sum", "_count"],
            _ => &[""],
        };
        let suffix = name.strip_prefix(&*current).unwrap_or("x");
        if !suffixes.contains(&suffix) {
            return wrong("sample of another family");
        }
        if (suffix == "_bucket") != labels.iter().any(|(key, _)| key == "le") {
            return wrong("only buckets have the label le");
        }
        if kind == "counter" && !name.ends_with("_total") {
            return wrong("counter without _total");
        }
        let mut key = labels;
        key.sort();
        if !series.insert((name.to_owned(), key)) {
            return wrong("repeated sample");
        }
        sampled.insert(current.clone(), kind.clone());
    }
    Ok(sampled)
}

fn is_name(name: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    name.starts_with(|c: char| !c.is_ascii_digit()) && name.chars().all(is_valid)
}

/// The labels before the closing brace, and the text after it.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (key, value) = rest.split_once("=\"")?;
        let mut end = None;
        let mut chars = value.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => {
                    chars.next().filter(|(_, c)| matches!(c, '\\' | '"' | 'n'))?;
                }
                '"' => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        let end = end?;
        if !is_name(key) {
            return None;
        }
        labels.push((key.to_owned(), value[..end].to_owned()));
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

#[test]
fn metrics_files_are_read_by_the_classic_parser() {
    let out = file("classic", "metrics.prom", b"");
    let run = portolan(&["replay", "--first", "50", "--threads", "1", "--metrics-file", &out]);
    assert_eq!(run.code, 0, "{}", run.err);
    let text = std::fs::read_to_string(&out).expect("the file was written");
    let families = parse_classic(&text).unwrap_or_else(|what| panic!("{what}"));
    let kind = |name: &str| families.get(name).map(String::as_str);
    assert_eq!(kind("scheduler_schedule_attempts_total"), Some("counter"));
    assert_eq!(kind("scheduler_scheduling_attempt_duration_seconds"), Some("histogram"));
    assert_eq!(kind("scheduler_cache_size"), Some("gauge"));
}

#[test]
fn the_classic_parser_refuses_openmetrics() {
    for text in [
        "# HELP a A.\n# TYPE a counter\na_total 1\n",
        "# HELP a A.\n# TYPE a gauge\na 1\n# EOF\n",
        "# HELP a A.\n# TYPE a gauge\n# UNIT a s\na 1\n",
        "# HELP a A.\n# TYPE a_total counter\na_total 1 # {b=\"c\"} 1\n",
        "# TYPE a info\na_info 1\n",
    ] {
        assert!(parse_classic(text).is_err(), "{text}");
    }
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("cli is in the repository")
}

/// Runs a line of a document in the root of the repository. The result ends with the exit status if it is not 0.
fn shell(line: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_portolan"));
    let folder = program.parent().expect("the program is in a folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    let done = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{line}")])
        .env("PATH", std::env::join_paths(folders).expect("folders without separators"))
        .env_remove("CLICOLOR_FORCE")
        .current_dir(repository())
        .stdin(Stdio::null())
        .output()
        .expect("sh starts");
    let text = String::from_utf8(done.stdout).expect("UTF-8");
    let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
    let mut text = lines.join("\n");
    match done.status.code() {
        Some(0) => {}
        code => {
            let separator = if text.is_empty() { "" } else { "\n" };
            text += &format!("{separator}[exit status {}]", code.unwrap_or(-1));
        }
    }
    text
}

/// Whether the output is as documented, where a line `…` stands for any lines.
fn matches(documented: &[&str], output: &[&str]) -> bool {
    match documented.split_first() {
        None => output.is_empty(),
        Some((&"…", rest)) => (0..=output.len()).any(|skip| matches(rest, &output[skip..])),
        Some((line, rest)) => {
            output.split_first().is_some_and(|(first, after)| first == line && matches(rest, after))
        }
    }
}

/// The page with its examples run again; output that matches stays as it is.
fn regenerated(page: &str) -> String {
    let mut text = String::new();
    let mut blocks = page.split("```console\n");
    text.push_str(blocks.next().unwrap_or_default());
    for block in blocks {
        let (examples, after) = block.split_once("```").expect("the block ends");
        text.push_str("```console\n");
        let mut lines = examples.lines().peekable();
        while let Some(line) = lines.next() {
            let command = line.strip_prefix("$ ").expect("an example starts with $");
            let mut documented = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
                documented.push(line);
            }
            let output = shell(command);
            let printed: Vec<&str> = output.lines().collect();
            let shown = if matches(&documented, &printed) { documented } else { printed };
            text.push_str(&format!("$ {command}\n"));
            for line in shown {
                text.push_str(&format!("{line}\n"));
            }
        }
        text.push_str("```");
        text.push_str(after);
    }
    text
}

#[cfg(unix)]
#[test]
fn examples_of_the_documents_are_up_to_date() {
    for name in ["README.md", "docs/cli.md"] {
        let path = repository().join(name);
        let page = std::fs::read_to_string(&path).expect(name);
        assert!(page.contains("```console\n$ portolan "), "{name} has no example");
        let expected = regenerated(&page);
        if std::env::var_os("PORTOLAN_UPDATE_DOCS").is_some() {
            std::fs::write(&path, &expected).expect(name);
            continue;
        }
        let differs = page.lines().zip(expected.lines()).enumerate().find(|(_, (a, b))| a != b);
        assert!(
            page == expected,
            "{name} differs from the program, first at {differs:?}: run PORTOLAN_UPDATE_DOCS=1 cargo test \
             -p portolan-cli --test program -- manners"
        );
    }
}

/// The commands that the help of the program lists.
fn commands() -> Vec<String> {
    let run = portolan(&["--help"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let listed = run.out.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !matches!(*name, "" | "help")).map(str::to_owned).collect()
}

#[test]
fn every_command_has_an_example() {
    let page =
        std::fs::read_to_string(repository().join("docs/cli.md")).expect("docs/cli.md exists");
    let commands = commands();
    assert!(commands.len() >= 12, "{commands:?}");
    for command in commands {
        assert!(page.contains(&format!("$ portolan {command} ")), "{command} has no example");
    }
}
