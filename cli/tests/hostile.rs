//! Small inputs cannot make the parsers use unbounded memory or time.
//!
//! The allocator counts a thread's peak memory and its total allocations; the total stands
//! in for the time.
// Mounted sources are public for other crates.
#![allow(unreachable_pub)]

use std::io::Write;

use portolan::plugin::Handle;
use portolan_k8s::config::{ConfigError, Configuration, Registry};
use portolan_testkit::alloc::Counting;

#[path = "../src/files/mod.rs"]
#[expect(dead_code, reason = "only gzip is read here")]
mod files;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// Limits on peak memory and total allocations when reading less than 100,000 bytes.
const AT_ONCE: i64 = 128 << 20;
const IN_ALL: u64 = 512 << 20;

fn bounded<T>(name: &str, length: usize, read: impl FnOnce() -> T) -> T {
    assert!(length < 100_000, "{name} is not a small input");
    let before = ALLOCATOR.take().live;
    let result = read();
    let counts = ALLOCATOR.take();
    let (peak, total) = (counts.peak - before, counts.grown);
    assert!(peak <= AT_ONCE && total <= IN_ALL, "{name}: {peak} bytes at once, {total} in all");
    result
}

fn yaml(name: &str, text: &str) -> Result<portolan_k8s::Objects, portolan_k8s::ReadError> {
    bounded(name, text.len(), || portolan_k8s::read_yaml(text))
}

fn json(name: &str, text: &str) -> Result<portolan_k8s::Objects, portolan_k8s::ReadError> {
    bounded(name, text.len(), || portolan_k8s::read_json(text.as_bytes()))
}

/// Reads a configuration with these arguments of one plugin.
fn configuration(name: &str, arguments: &str) -> Result<Configuration, ConfigError> {
    let registry = Registry::in_tree();
    let text = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
         profiles:\n- pluginConfig:\n  - name: NodeAffinity\n    args: {arguments}\n"
    );
    bounded(name, text.len(), || Configuration::read(&text, &registry, &Handle::default()))
}

#[test]
fn aliases_do_not_amplify_input() {
    let long = "x".repeat(40_000);
    let list = "x,".repeat(4_000);
    for text in [
        format!("kind: Foo\napiVersion: v1\nx: &a {long}\ny: [{}]\n", "*a,".repeat(10_000)),
        format!("x: &a {long}\ny: [{}]\nkind: Foo\napiVersion: v1\n", "*a,".repeat(10_000)),
        format!("x: &a [{list}]\ny: [{}]\nkind: Foo\napiVersion: v1\n", "*a,".repeat(4_000)),
    ] {
        assert!(yaml("aliases", &text).is_err());
    }
    let mut levels = "l0: &l0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let aliases = format!("*l{},", level - 1).repeat(9);
        levels += &format!("l{level}: &l{level} [{aliases}]\n");
    }
    assert!(yaml("levels", &format!("kind: Foo\napiVersion: v1\n{levels}")).is_err());
    assert!(yaml("levels, kind late", &format!("{levels}kind: Foo\napiVersion: v1\n")).is_err());
    let arguments = format!("\n      {}", levels.trim_end().replace('\n', "\n      "));
    assert!(configuration("levels", &arguments).is_err());
    let labels: String = (0..500).map(|n| format!("k{n}: v,")).collect();
    let merged = "*m,".repeat(2_000);
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels: &m {{{labels}}}\n  \
         annotations:\n    <<: [{merged}]\n"
    );
    assert!(yaml("merge keys", &pod).is_err());
}

#[test]
fn deep_nesting_is_refused_without_recursion() {
    for open in ["[", "{a: ", "- ", "? ", "!!a ["] {
        let text = format!("apiVersion: v1\nkind: Foo\nx:\n  {}", open.repeat(15_000));
        assert!(yaml(open, &text).is_err(), "{open}");
        assert!(yaml(open, &open.repeat(15_000)).is_err(), "{open}");
        assert!(configuration(open, &open.repeat(10_000)).is_err(), "{open}");
    }
    for open in ["[", "{\"a\":"] {
        assert!(json(open, &open.repeat(15_000)).is_err());
        for head in ["{\"apiVersion\":\"v1\",\"kind\":\"Foo\",\"x\":", "{\"x\":", "{\"items\":"] {
            assert!(json(open, &format!("{head}{}", open.repeat(15_000))).is_err());
        }
    }
}

#[test]
fn wide_objects_need_memory_in_proportion_to_their_length() {
    let tolerations: Vec<_> =
        (0..2_200).map(|n| format!(r#"{{"key":"k{n}","operator":"Exists"}}"#)).collect();
    let class = format!(
        r#"{{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{{"name":"k"}},
            "scheduling":{{"tolerations":[{}]}}}}"#,
        tolerations.join(",")
    );
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},
        "spec":{"runtimeClassName":"k"}}"#;
    let read = json("tolerations", &format!("[{class},{pod},{pod},{pod},{pod},{pod},{pod},{pod}]"));
    assert_eq!(read.map(|objects| objects.pods[6].template.tolerations.len()), Ok(2_202));
}

#[test]
fn a_gzip_stream_of_blanks_is_refused() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..4 {
        encoder.write_all(&[b' '; 1 << 20]).expect("writing to memory succeeds");
    }
    let bytes = encoder.finish().expect("writing to memory succeeds");
    let read =
        bounded("blanks", bytes.len(), || files::content(&mut { files::MOST }, bytes.clone()));
    assert!(read.is_err_and(|wrong| wrong.line.is_none() && wrong.what.contains("empty")));
}

#[test]
fn a_gzip_stream_that_expands_a_thousand_times_is_refused_before_it_exhausts_memory() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..90 {
        encoder.write_all(&[b' '; 1 << 20]).expect("writing to memory succeeds");
    }
    let bytes = encoder.finish().expect("writing to memory succeeds");
    let read = bounded("bomb", bytes.len(), || files::content(&mut { files::MOST }, bytes.clone()));
    assert!(read.is_err_and(|wrong| wrong.what.contains("200 times its size")));
}
