//! Inputs of each form that people have are read with the same result, and invalid ones end with status 2 and an error
//! of less than 300 characters that names the file, the line if there is one, and the remedy.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{Run, file, portolan};
use crate::running::Running;

/// Runs the program with an input on standard input.
fn portolan_with(arguments: &[&str], input: &[u8]) -> Run {
    let mut running = Running::start(arguments);
    let mut stdin = running.0.stdin.take().expect("a pipe");
    // The program may exit without reading all of it.
    let _ = stdin.write_all(input);
    drop(stdin);
    running.end()
}

/// An empty directory for a test.
fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("inputs").join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    folder
}

/// Writes a file below a directory.
fn put(folder: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("the folder can be made");
    std::fs::write(path, content).expect("the file can be written");
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("node-{name}"), "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}})
}

fn pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{namespace}-{name}")},
        "spec": {"nodeName": node, "priority": 0, "containers": [{"name": "c", "image": "nginx",
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]},
        "status": {"phase": "Running"}})
}

/// The objects of most tests: 2 nodes and 3 pods.
fn objects() -> Vec<Value> {
    vec![
        node("n1"),
        node("n2"),
        pod("default", "a", "n1"),
        pod("shop", "b", "n2"),
        pod("shop", "c", "n2"),
    ]
}

fn list(items: Vec<Value>) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": ""}})
}

/// A typed list as client-go writes it, whose items do not name their kind.
fn typed(kind: &str, items: Vec<Value>) -> Value {
    let items: Vec<Value> = items
        .into_iter()
        .map(|mut item| {
            let fields = item.as_object_mut().expect("an object");
            fields.remove("apiVersion");
            fields.remove("kind");
            item
        })
        .collect();
    json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("JSON") + "\n"
}

/// YAML in block style, of values without special characters.
fn yaml(value: &Value) -> String {
    fn write(value: &Value, indent: usize, text: &mut String) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    let _ = write!(text, "\n{:indent$}{key}:", "");
                    write(value, indent + 2, text);
                }
            }
            Value::Array(list) if !list.is_empty() => {
                for value in list {
                    let _ = write!(text, "\n{:indent$}-", "");
                    write(value, indent + 2, text);
                }
            }
            value => {
                let _ = write!(text, " {value}");
            }
        }
    }
    let mut text = String::new();
    write(value, 0, &mut text);
    text.trim_start().to_owned() + "\n"
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("writing to memory succeeds");
    encoder.finish().expect("writing to memory succeeds")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// The result of `audit` on clusters from these paths.
fn audit(paths: &[&str], input: &[u8]) -> Value {
    let mut arguments = vec!["audit", "--output", "json", "--cluster"];
    arguments.extend(paths);
    let run = portolan_with(&arguments, input);
    assert_eq!(run.code, 0, "{paths:?}: {} {}", run.out, run.err);
    serde_json::from_str(&run.out).expect("JSON")
}

/// Checks that these paths have 2 nodes and 3 placed pods, each once; returns what was read.
fn read(paths: &[&str]) -> Value {
    let result = audit(paths, b"");
    assert_eq!((&result["nodes"], &result["pods"]), (&json!(2), &json!(3)), "{paths:?}: {result}");
    assert_eq!(result["input"]["read"]["Node"], 2, "{paths:?}: {result}");
    assert_eq!(result["input"]["read"]["Pod"], 3, "{paths:?}: {result}");
    result["input"].clone()
}

fn path(folder: &Path) -> &str {
    folder.to_str().expect("a path in UTF-8")
}

/// Checks one file with this content.
fn read_file(name: &str, content: impl AsRef<[u8]>) {
    let folder = folder(&format!("file-{name}"));
    put(&folder, name, content);
    read(&[path(&folder.join(name))]);
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

/// The documents of YAML.
fn documents() -> String {
    objects().iter().map(|object| format!("---\n{}", yaml(object))).collect()
}

#[test]
fn compressed_files_are_read() {
    let text = pretty(&list(objects()));
    read_file("list.json.gz", gzip(text.as_bytes()));
    read_file("list.json.zst", zstd(text.as_bytes()));
    let (first, rest) = text.split_at(100);
    read_file("members.gz", [gzip(first.as_bytes()), gzip(rest.as_bytes())].concat());
    read_file("frames.zst", [zstd(first.as_bytes()), zstd(rest.as_bytes())].concat());
    // The magic bytes decide, not the name.
    read_file("not-plain.json", zstd(text.as_bytes()));
    read_file("plain.json.gz", text.as_bytes());
    // `kubectl cluster-info dump` adds logs.
    let container = "container c of pod shop/b ====";
    let logs = format!("==== START logs for {container}\nlast==== END logs for {container}\n");
    read_file("dump.json.gz", gzip(format!("{text}{logs}").as_bytes()));
}

#[test]
fn many_comments_are_read() {
    let comments = "  # a comment\n".repeat(500);
    let text = documents().replace("\n  name:", &format!("\n{comments}  name:"));
    read_file("comments.yaml", text);
}

#[test]
fn encodings_and_line_ends_of_windows_are_read() {
    let json = pretty(&list(objects()));
    read_file("lines.jsonl", lines(&objects()).replace('\n', "\r\n"));
    read_file("bom.json", format!("\u{feff}{json}"));
    read_file("bom.yaml", format!("\u{feff}{}", documents()));
    read_file("crlf.json", json.replace('\n', "\r\n"));
    read_file("crlf.yaml", documents().replace('\n', "\r\n"));
    read_file("bom-crlf.yaml", format!("\u{feff}{}", documents().replace('\n', "\r\n")));
}

#[test]
fn thousands_of_aliases_are_read() {
    let mut text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: n1}\n  \
                    status: {allocatable: {cpu: 100000, memory: 800Gi, pods: 11000}}\n"
        .to_owned();
    for n in 0..6_000 {
        let labels = if n == 0 {
            "&l {app: web, tier: front, team: shop, zone: a, env: prod, version: v1, part-of: shop}"
        } else {
            "*l"
        };
        let own = if n % 2 == 0 { format!("&own{n} ") } else { String::new() };
        let _ = writeln!(
            text,
            "- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: {own}p{n}\n    labels: {labels}\n  spec: \
             {{nodeName: n1, containers: [{{name: c}}]}}"
        );
    }
    let file = file("inputs", "aliases.yaml", text.as_bytes());
    assert_eq!(audit(&[&file], b"")["pods"], 6_000);
}

#[test]
fn standard_input_is_read_once() {
    let text = pretty(&list(objects()));
    for input in [
        text.clone().into_bytes(),
        gzip(text.as_bytes()),
        zstd(text.as_bytes()),
        documents().into_bytes(),
    ] {
        let result = audit(&["-"], &input);
        assert_eq!((&result["nodes"], &result["pods"]), (&json!(2), &json!(3)));
    }
    // Together with files.
    let nodes = file(
        "inputs-stdin",
        "nodes.json",
        typed("NodeList", vec![node("n1"), node("n2")]).to_string().as_bytes(),
    );
    let pods = typed("PodList", objects().split_off(2)).to_string();
    assert_eq!(audit(&[&nodes, "-"], pods.as_bytes())["pods"], 3);
    let run = portolan_with(
        &["replay", "--nodes", &nodes, "--pods", "-", "--output", "json"],
        pods.as_bytes(),
    );
    assert_eq!(run.code, 0, "{}", run.err);
    let run =
        portolan_with(&["replay", "--nodes", "-", "--pods", &nodes, "--output", "json"], b"{]");
    assert!(run.code == 2 && run.err.starts_with("portolan: standard input:1: "), "{}", run.err);
    let run = portolan_with(&["audit", "--cluster", "-", "-"], text.as_bytes());
    assert_eq!((run.code, &*run.out), (2, ""));
    assert!(run.err.contains("pass - for one argument only"), "{}", run.err);
}

#[test]
fn directories_are_read_in_depth() {
    let folder = folder("tree");
    put(&folder, "nodes/n1.json", pretty(&node("n1")));
    put(&folder, "nodes/n2.yaml.gz", gzip(yaml(&node("n2")).as_bytes()));
    put(&folder, "pods/default/a.yml", yaml(&pod("default", "a", "n1")));
    put(&folder, "pods/shop/b.JSON", pretty(&pod("shop", "b", "n2")));
    put(&folder, "pods/shop/c.json.zst", zstd(pretty(&pod("shop", "c", "n2")).as_bytes()));
    put(&folder, "README.md", "kind: nonsense: [");
    put(&folder, "pods/notes.txt", "{");
    put(&folder, "values.yaml", "replicaCount: 3\nimage: {tag: v1}\n");
    put(&folder, "empty.yaml", "");
    put(&folder, ".git/config.yaml", "[");
    let notes = read(&[path(&folder)])["directories"].clone();
    let note = notes[0].as_str().expect("a note");
    for part in [
        "read 5 files",
        "2 files that are not JSON or YAML",
        "2 files without Kubernetes objects (the first: empty.yaml)",
        "1 hidden name",
    ] {
        assert!(note.contains(part), "{note}");
    }
    let run = portolan(&["audit", "--cluster", path(&folder)]);
    assert!(run.err.contains(note), "{}", run.err);
    // A directory may be named beside files, and twice is a mistake as for files.
    let (pods, n1) = (folder.join("pods"), folder.join("nodes/n1.json"));
    let result = audit(&[path(&n1), path(&folder.join("nodes/n2.yaml.gz")), path(&pods)], b"");
    assert_eq!(result["pods"], 3);
    let run = portolan(&["dump", "--cluster", path(&folder), path(&n1)]);
    assert!(run.code == 2 && run.err.contains("n1 occurs twice, first at "), "{}", run.err);
}

#[cfg(unix)]
#[test]
fn links_in_directories_do_not_form_cycles() {
    let folder = folder("links");
    let inner = folder.join("mounted");
    // A volume of a config map: the visible file is a link into a hidden directory.
    put(&inner, "..data/all.json", pretty(&list(objects())));
    link("..data/all.json", &inner.join("all.yaml"));
    link(&folder, &inner.join("up"));
    let notes = read(&[path(&inner)])["directories"].clone();
    let note = notes[0].as_str().expect("a note");
    assert!(note.contains("1 directory link (not followed: up)"), "{notes}");
}

#[cfg(unix)]
fn link(to: impl AsRef<Path>, from: &Path) {
    std::os::unix::fs::symlink(to, from).expect("a link");
}

/// A value of 40 characters.
#[cfg(unix)]
const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

#[cfg(unix)]
#[test]
fn links_out_of_a_directory_and_odd_files_are_skipped_with_a_note() {
    let folder = folder("odd");
    let root = folder.join("dump");
    put(&root, "all.json", pretty(&list(objects())));
    put(&folder, "secret.yaml", format!("apiVersion: v1\nkind: Pod\nmetadata: [{TOKEN}]\n"));
    put(&folder, "dump-2/pods.yaml", TOKEN);
    link("../secret.yaml", &root.join("leak.yaml"));
    link("../dump-2/pods.yaml", &root.join("sibling.yaml"));
    link("/dev/zero", &root.join("endless.json"));
    link("missing", &root.join("gone.yaml"));
    link("loop.yml", &root.join("loop.yml"));
    let pipe = root.join("pipe.json");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts").success());
    link("pipe.json", &root.join("to-pipe.json"));
    let parts = [
        "read 1 file, ",
        "3 links (out of the directory: endless.json, leak.yaml, sibling.yaml)",
        "2 links (without a target: gone.yaml, loop.yml)",
        "2 files (not regular: pipe.json, to-pipe.json)",
    ];
    let run = portolan(&["audit", "--cluster", path(&root)]);
    assert!(run.code < 2 && parts.iter().all(|part| run.err.contains(part)), "{}", run.err);
    assert!(!run.out.contains(TOKEN) && !run.err.contains(TOKEN), "{}", run.err);
    // The note explains why there are no objects.
    std::fs::remove_file(root.join("all.json")).expect("the file exists");
    let run = portolan(&["audit", "--cluster", path(&root)]);
    assert!(run.code == 2 && run.err.contains(parts[1]), "{}", run.err);
    assert!(run.err.contains("no Kubernetes objects") && !run.err.contains(TOKEN), "{}", run.err);
}

#[cfg(unix)]
#[test]
fn messages_quote_no_long_values_of_linked_files() {
    let pod =
        |fields: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\n{fields}\n");
    let cpu = |value: &str| {
        pod(&format!(
            "spec:\n  containers: [{{name: c, resources: {{requests: {{cpu: {value}}}}}}}]"
        ))
    };
    let errors = [
        cpu(TOKEN),
        pod(&format!("{TOKEN}: 1\n{TOKEN}: 1")),
        pod(&format!("{TOKEN} and more words: 1\n{TOKEN} and more words: 1")),
        pod(&format!("spec: {TOKEN}")),
        pod(&format!("spec: {{tolerations: [{{operator: {TOKEN}}}]}}")),
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {TOKEN}, labels: 1}}\n"),
    ];
    for (i, text) in errors.into_iter().enumerate() {
        let folder = folder(&format!("quotes-{i}"));
        put(&folder, ".hidden", &text);
        link(".hidden", &folder.join("pod.yaml"));
        let run = portolan(&["audit", "--cluster", path(&folder)]);
        assert!(run.code == 2 && run.err.contains("pod.yaml:"), "{text}: {}", run.err);
        assert!(!run.err.contains(&TOKEN[..16]), "{}", run.err);
        let run = portolan(&["audit", "--cluster", path(&folder.join("pod.yaml"))]);
        assert_eq!(run.code, 2, "{}", run.err);
    }
    let folder = folder("quotes-warned");
    put(&folder, "nodes.json", pretty(&list(objects())));
    put(
        &folder,
        ".hidden",
        pod(&format!("spec: {{containers: [{{name: c, image: i}}], {TOKEN}: 1}}")),
    );
    link(".hidden", &folder.join("pod.yaml"));
    let run = portolan(&["audit", "--cluster", path(&folder)]);
    assert!(run.err.contains("unknown field") && !run.err.contains(&TOKEN[..16]), "{}", run.err);
    // Short values are quoted.
    put(&folder, ".hidden", cpu("many"));
    let run = portolan(&["audit", "--cluster", path(&folder)]);
    assert!(run.code == 2 && run.err.contains("\"many\""), "{}", run.err);
}

#[cfg(unix)]
#[test]
fn named_links_and_pipes_are_read() {
    let folder = folder("named");
    put(&folder, "data/all.json", pretty(&list(objects())));
    link("data/all.json", &folder.join("linked"));
    read(&[path(&folder.join("linked"))]);
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts").success());
    let to = pipe.clone();
    let writer = std::thread::spawn(move || std::fs::write(to, pretty(&list(objects()))));
    assert_eq!(audit(&[path(&pipe)], b"")["pods"], 3);
    writer.join().expect("no panic").expect("the pipe is read");
}

#[test]
fn schemas_in_custom_resource_definitions_may_be_deep() {
    let mut schema = json!({"type": "string"});
    for level in 0..27 {
        schema = json!({"type": "object", "properties": {format!("level{level}"): schema}});
    }
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b.c"},
        "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
    read_file("crd.yaml", format!("{}{}", yaml(&crd), documents()));
}

/// Invalid inputs for `audit --cluster` that are not text, or large: the name of the file, its content, and parts of the
/// error. `tests/cases/invalid` has the others.
fn invalid() -> Vec<(&'static str, Vec<u8>, Vec<&'static str>)> {
    let utf16 = |bom: bool, big: bool| -> Vec<u8> {
        let text = format!("{}{}", if bom { "\u{feff}" } else { "" }, node("n1"));
        let unit = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        text.encode_utf16().flat_map(unit).collect()
    };
    let with = |change: fn(&mut Value)| {
        let mut all = list(objects());
        change(&mut all["items"][2]);
        pretty(&all).into_bytes()
    };
    let long = "x".repeat(100_000);
    let one = |text: &str| text.as_bytes().to_vec();
    let tar = {
        let mut bytes = vec![0; 1024];
        bytes[..4].copy_from_slice(b"dir/");
        bytes[257..262].copy_from_slice(b"ustar");
        bytes
    };
    vec![
        ("empty.json", one(""), vec![": the file is empty"]),
        ("empty.json.gz", gzip(b""), vec![": the file is empty"]),
        ("empty.json.zst", zstd(b""), vec![": the file is empty"]),
        (
            "bomb.json.gz",
            gzip(&vec![b' '; 65 << 20]),
            vec![
                ": the gzip data expands to more than 200 times its size: decompress the file first",
            ],
        ),
        (
            "bomb.json.zst",
            zstd(&vec![b' '; 65 << 20]),
            vec![": the zstd data expands to more than 200 times its size"],
        ),
        ("utf16le.json", utf16(true, false), vec![":1: ", "UTF-16", "save it as UTF-8"]),
        ("utf16be.yaml", utf16(true, true), vec![":1: ", "UTF-16"]),
        ("utf16-no-bom.json", utf16(false, false), vec![":1: ", "UTF-16"]),
        (
            "latin1.yaml",
            b"apiVersion: v1\nkind: Node\nmetadata: {name: n\xf6}\n".to_vec(),
            vec![":3: ", "not valid UTF-8"],
        ),
        ("binary.json", vec![b'{', 0x80, 0xff, 0x00], vec![":1: ", "not valid UTF-8"]),
        (
            "deep.json",
            "[".repeat(100_000).into_bytes(),
            vec![":1: ", "[0]…", "expected a Kubernetes object"],
        ),
        ("deep.yaml", "[".repeat(100_000).into_bytes(), vec![":1: "]),
        (
            "cut.json.gz",
            {
                let mut bytes = gzip(&pretty(&list(objects())).into_bytes());
                bytes.truncate(150);
                bytes
            },
            vec!["invalid gzip data", "download the file again"],
        ),
        (
            "cut.json.zst",
            {
                let mut bytes = zstd(&pretty(&list(objects())).into_bytes());
                bytes.truncate(150);
                bytes
            },
            vec!["invalid zstd data", "download the file again"],
        ),
        (
            "half.json.gz",
            {
                let lines: String =
                    (0..2_000).map(|n| format!("{}\n", node(&format!("n{n}")))).collect();
                let mut bytes = gzip(lines.as_bytes());
                bytes.truncate(bytes.len() / 2);
                bytes
            },
            vec!["invalid gzip data", "download the file again"],
        ),
        (
            "wrong.zst",
            [&[0x28, 0xb5, 0x2f, 0xfd][..], &[0xff; 40]].concat(),
            vec!["invalid zstd data"],
        ),
        (
            "gather.tar.gz",
            gzip(&tar),
            vec!["the file is a tar archive: extract it and pass the directory"],
        ),
        ("gather.tar", tar, vec!["the file is a tar archive"]),
        ("all.zip", one("PK\u{3}\u{4}rest"), vec!["the file is a zip archive: extract it"]),
        ("all.json.xz", b"\xfd7zXZ\0rest".to_vec(), vec!["compressed with xz"]),
        ("all.json.bz2", one("BZh91AY"), vec!["compressed with bzip2"]),
        ("pod.pb", one("k8s\0\n\u{7}v1\u{12}Pod"), vec!["Kubernetes protobuf", "-o json"]),
        (
            "long-value.json",
            with(|pod| {
                pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
                    ("9".repeat(5_000) + "x").into()
            }),
            vec!["requests.cpu", "…"],
        ),
        (
            "long-key.json",
            with(|pod| {
                pod["spec"]["containers"][0]["resources"]["requests"] =
                    json!({"k".repeat(5_000): "x"})
            }),
            vec!["…"],
        ),
        (
            "long-string.json",
            with(|pod| pod["spec"]["priority"] = "y".repeat(5_000).into()),
            vec!["spec.priority: cannot unmarshal string"],
        ),
        (
            "long-line.yaml",
            format!("apiVersion: v1\nkind: Pod\nmetadata: {long}\n").into_bytes(),
            vec![":3: "],
        ),
        ("long-text.yaml", long.into_bytes(), vec![":1: "]),
    ]
}

#[test]
fn invalid_inputs_have_short_errors() {
    let folder = folder("invalid");
    let mut failed = Vec::new();
    for (name, content, parts) in invalid() {
        put(&folder, name, content);
        let file = folder.join(name);
        let Run { code, out, err } = portolan(&["audit", "--cluster", path(&file)]);
        let is_short = err.chars().count() < 300 && err.lines().count() == 1;
        let is_named = err.starts_with(&format!("portolan: {}", path(&file)));
        let is_clear = parts.iter().all(|part| err.contains(part));
        if code != 2 || !out.is_empty() || !is_short || !is_named || !is_clear {
            failed.push(format!("{name}: status {code}, expected {parts:?} in: {err}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn tables_that_are_not_utf8_are_refused() {
    let nodes = b"sn,cpu_milli,memory_mib,gpu,model\nn\xff,1,1,0,\n";
    let nodes = file("latin1", "nodes.csv", nodes);
    let run = portolan(&["replay", "--nodes", &nodes, "--pods", &nodes]);
    let says = format!("portolan: {nodes}:2: the row is not UTF-8: save the file as UTF-8");
    assert!(run.code == 2 && run.err.starts_with(&says), "{}", run.err);
}

#[test]
fn long_paths_leave_space_for_the_reason() {
    let mut folder = folder("long");
    for _ in 0..4 {
        folder = folder.join("d".repeat(120));
    }
    put(&folder, "pods.yaml", "apiVersion: apps/v1beta1\nkind: Deployment\n");
    let run = portolan(&["audit", "--cluster", path(&folder.join("pods.yaml"))]);
    assert!(run.code == 2 && run.err.chars().count() < 300, "{}", run.err);
    assert!(run.err.contains("pods.yaml:1: ") && run.err.contains("use apps/v1"), "{}", run.err);
}
