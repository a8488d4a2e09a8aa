//! Golden vectors: compares the plugin with recorded answers of kube-scheduler.
//!
//! The test reads `dra.jsonl.gz`, which is gzipped JSON lines, in the folder PORTOLAN_VECTORS, or else in
//! ../shared/vectors beside the repository. Without the file, it is skipped.
//! `PORTOLAN_DRA_SHOW` is the number of differences to print, `PORTOLAN_DRA_KIND` restricts the kinds.

#[allow(missing_docs, unreachable_pub)]
mod run;
#[allow(missing_docs, unreachable_pub)]
mod world;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

#[test]
fn answers_are_those_of_kube_scheduler() {
    let shared = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    let folder = std::env::var_os("PORTOLAN_VECTORS").map_or_else(shared, PathBuf::from);
    let path = folder.join("dra.jsonl.gz");
    if !path.exists() {
        println!("skipped: {} does not exist", path.display());
        return;
    }
    let show: usize = std::env::var("PORTOLAN_DRA_SHOW").map_or(5, |text| text.parse().unwrap());
    let only = std::env::var("PORTOLAN_DRA_KIND").unwrap_or_default();
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut tally: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut shown = 0;
    for line in text.lines() {
        let scenario: serde_json::Value = serde_json::from_str(line).unwrap();
        let kind = scenario["kind"].as_str().unwrap_or_default().to_owned();
        if !only.is_empty() && !only.split(',').any(|of| of == kind) {
            continue;
        }
        let ran = std::panic::catch_unwind(|| run::run(&scenario));
        let (passed, differences) =
            ran.unwrap_or_else(|_| (0, vec![format!("{}: panicked", scenario["id"])]));
        let of = tally.entry(kind).or_default();
        of.0 += passed;
        of.1 += differences.len();
        for difference in differences {
            if shown < show {
                shown += 1;
                println!("{difference}");
            }
        }
    }
    let mut failed = 0;
    for (kind, (passed, wrong)) in &tally {
        println!("{kind}: {passed} steps passed, {wrong} failed");
        failed += wrong;
    }
    let passed: usize = tally.values().map(|of| of.0).sum();
    println!("{passed} steps passed, {failed} failed");
    assert_eq!(failed, 0, "answers differ");
}
