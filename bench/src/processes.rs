//! `portolan-bench sched --processes N`: copies of this program, each with its own engine, measure at the same time.
//! Their sum is the rate that the machine reaches if nothing is shared.
//!
//! A copy prints a line when its cluster is set up and then waits for a line on its standard
//! input (`--wait`), so that no copy measures while another one still sets up.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use portolan_cli::CommandError;
use portolan_cli::print;

use super::results::rate;

const READY: &str = "ready";

fn failed(what: impl std::fmt::Display) -> CommandError {
    CommandError::Process(what.to_string())
}

/// Reports that the measurement can start, and waits for the line that starts it.
pub(super) fn wait() -> Result<(), CommandError> {
    print(READY)?;
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(1..) => Ok(()),
        Ok(0) => Err(CommandError::Usage("--wait: the standard input ended without a line".into())),
        Err(error) => Err(CommandError::Usage(format!("--wait: {error}"))),
    }
}

/// Copies that were started. If one of them fails, the others are killed.
struct Copies(Vec<(Child, BufReader<ChildStdout>)>);

impl Drop for Copies {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            // Both fail if the copy has ended and was waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs `count` copies with these arguments at once; returns the sum of their results.
pub(super) fn measure(count: u16, arguments: &[OsString]) -> Result<Value, CommandError> {
    let program = std::env::current_exe().map_err(|error| failed(format!("not found: {error}")))?;
    let mut copies = Copies(Vec::new());
    for _ in 0..count {
        let started = Command::new(&program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = started.map_err(|error| failed(format!("could not start: {error}")))?;
        let out = child.stdout.take().ok_or_else(|| failed("has no standard output"))?;
        copies.0.push((child, BufReader::new(out)));
    }
    for (_, out) in &mut copies.0 {
        let mut line = String::new();
        out.read_line(&mut line).map_err(failed)?;
        if line.trim_end() != READY {
            return Err(failed("ended before its measurement: see its message above"));
        }
    }
    for (child, _) in &mut copies.0 {
        let start = child.stdin.take().map(|mut input| input.write_all(b"start\n"));
        start.transpose().map_err(|error| failed(format!("does not read: {error}")))?;
    }
    let mut results = Vec::with_capacity(copies.0.len());
    for (child, out) in &mut copies.0 {
        let mut text = String::new();
        out.read_to_string(&mut text).map_err(failed)?;
        let status = child.wait().map_err(failed)?;
        if !status.success() {
            return Err(failed(format!("failed: {status}")));
        }
        results.push(serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?);
    }
    Ok(sum(&results))
}

/// The sum of the results of copies that measured at the same time. The times of cycles are
/// left out: they are not summed.
fn sum(results: &[Value]) -> Value {
    let of_one = |key: &str| results.first().map_or(Value::Null, |one| one[key].clone());
    let count = |key: &str| results.iter().filter_map(|one| one[key].as_u64()).sum::<u64>();
    json!({
        "workload": of_one("workload"),
        "processes": results.len(),
        "nodes": of_one("nodes"),
        "init": of_one("init"),
        "pods": of_one("pods"),
        "schedulers": of_one("schedulers"),
        "batch": of_one("batch"),
        "percentage_of_nodes": of_one("percentage_of_nodes"),
        "failed": count("failed"),
        "cycles_per_second": results.iter().map(rate).sum::<f64>(),
        "conflicts": count("conflicts"),
        "overcommitted": count("overcommitted"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(rate: f64, failed: u64) -> Value {
        json!({
            "workload": "basic", "nodes": 5, "init": 1, "pods": 9, "schedulers": 1,
            "batch": 1, "percentage_of_nodes": 9, "failed": failed,
            "cycles_per_second": rate, "conflicts": 2, "overcommitted": 0,
            "cycle_us": { "p50": 1.0, "p99": 2.0, "max": 3.0 },
        })
    }

    #[test]
    fn counts_and_rates_of_processes_are_summed() {
        let expected = json!({
            "workload": "basic", "processes": 2, "nodes": 5, "init": 1, "pods": 9,
            "schedulers": 1, "batch": 1, "percentage_of_nodes": 9, "failed": 7,
            "cycles_per_second": 30.0, "conflicts": 4, "overcommitted": 0,
        });
        assert_eq!(sum(&[result(10.0, 3), result(20.0, 4)]), expected);
    }
}
