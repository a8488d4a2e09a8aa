//! `portolan-bench serve`: a server under many clients, while a writer changes its cluster.
//!
//! The cluster is an API server in memory in this process. The server is a copy of this process, so that its memory and
//! its answers are its own.

mod clients;
mod cluster;
mod server;

use std::num::NonZeroUsize;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use portolan_cli::{CommandError, Output, at_least_one, plain, print, right};
use serde_json::{Value, json};

use clients::{Crowd, Question, Tally};
use cluster::{Cluster, Writer};
use server::{Readings, Server};

/// Measure `portolan serve` under many clients, while a writer changes the cluster that it watches.
///
/// The writer creates and deletes pods at a constant rate, first alone and then beside the clients. Every tenth client
/// receives events; the others ask questions of all kinds, with a pause after each. A step of the writer lasts from the
/// moment when it is due. The writer and the API server stand for another machine: on Linux, their threads run before
/// all others if `chrt` may arrange it. The exit status is 1 if a question had an error; refusals are answers of a server
/// that has too many questions, and are counted apart.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of clients.
    #[arg(long, value_name = "COUNT", default_value = "200", value_parser = at_least_one::<NonZeroUsize>)]
    clients: NonZeroUsize,
    /// Seconds with clients; the writer is alone for a quarter of them before.
    #[arg(long, value_name = "COUNT", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Changes of the cluster in a second.
    #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    events: u32,
    /// Milliseconds between a client's answer and its next question.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000)]
    pause: u64,
    /// Number of nodes.
    #[arg(long, value_name = "COUNT", default_value = "1000", value_parser = at_least_one::<NonZeroUsize>)]
    nodes: NonZeroUsize,
    /// Number of pods on each node.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u16).range(..=100))]
    pods_per_node: u16,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let Arguments { clients, seconds, events, pause, nodes, pods_per_node, output } = arguments;
    let time = Duration::from_secs(*seconds);
    let cluster = Cluster::create(nodes.get(), usize::from(*pods_per_node))?;
    let server = Server::start(&cluster.url())?;
    let readings = Readings::follow(server.address())?;
    let writer = Writer::start(cluster, *events)?;
    let is_undisturbed = prefer_own_threads();
    thread::sleep(time / 4);
    let alone = phase("alone", time / 4, &writer, &readings);
    let mut memory = vec![server.memory("start")?];
    let started = Instant::now();
    let crowd = Crowd::start(server.address(), clients.get(), Duration::from_millis(*pause), time);
    thread::sleep(time / 2);
    memory.push(server.memory("middle")?);
    let tallies = crowd.join()?;
    let beside = phase("beside clients", started.elapsed(), &writer, &readings);
    memory.push(server.memory("end")?);
    if let Some(error) = writer.stop() {
        return Err(failed(format!("the writer: {error}")));
    }
    let questions: Vec<Value> =
        Question::ALL.iter().zip(&tallies.questions).map(|(of, tally)| tally.json(*of)).collect();
    let result = json!({
        "clients": clients, "seconds": seconds, "events_per_second": events, "nodes": nodes,
        "pods_per_node": pods_per_node, "writer_waits_for_processors": !is_undisturbed,
        "questions": questions,
        "received_events": tallies.received,
        "error": tallies.error,
        "writer": [alone, beside],
        "memory": memory,
    });
    print(&match output {
        Output::Json => result.to_string(),
        Output::Table => tables(&result),
    })?;
    let is_faultless = tallies.questions.iter().all(Tally::is_faultless) && tallies.error.is_none();
    Ok(if is_faultless { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Lets the threads of this process so far run before all others, if it may. Threads started later have the usual
/// priority.
fn prefer_own_threads() -> bool {
    let process = std::process::id().to_string();
    let words = ["--all-tasks", "--reset-on-fork", "--fifo", "--pid", "1"];
    let mut chrt = Command::new("chrt");
    let done = chrt.args(words).arg(process).stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

fn failed(what: impl std::fmt::Display) -> CommandError {
    CommandError::Live(what.to_string())
}

/// The steps of the writer and the readings of the server since the last call.
fn phase(name: &str, time: Duration, writer: &Writer, readings: &Readings) -> Value {
    let (steps, intervals) = (writer.take(), readings.take());
    json!({
        "phase": name,
        "steps": steps.len(),
        "steps_per_second": (steps.len() as f64 / time.as_secs_f64()).round(),
        "step_ms": quantiles(&steps),
        "readings": intervals.len(),
        "between_readings_ms": quantiles(&intervals),
    })
}

/// Quantiles in milliseconds of times in nanoseconds.
fn quantiles(times: &Histogram<u64>) -> Value {
    let millis = |nanos: u64| (nanos as f64 / 1e4).round() / 1e2;
    let at = |quantile| millis(times.value_at_quantile(quantile));
    json!({ "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": millis(times.max()) })
}

fn tables(result: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let table = |header: &[&str], rows: &Value, cells: &[&str]| {
        let mut table = plain(header.iter().copied());
        for row in rows.as_array().into_iter().flatten() {
            table
                .add_row(cells.iter().map(|path| row.pointer(path).map_or_else(String::new, text)));
        }
        let numbers: Vec<usize> = (1..header.len()).collect();
        right(table, &numbers).to_string()
    };
    let questions = table(
        &["question", "answers", "refused", "errors", "p50 ms", "p90 ms", "p99 ms", "max ms"],
        &result["questions"],
        &[
            "/question",
            "/answers",
            "/refused",
            "/errors",
            "/ms/p50",
            "/ms/p90",
            "/ms/p99",
            "/ms/max",
        ],
    );
    let writer = table(
        &[
            "writer",
            "steps",
            "per second",
            "p50 ms",
            "p99 ms",
            "max ms",
            "readings",
            "between, p99 ms",
        ],
        &result["writer"],
        &[
            "/phase",
            "/steps",
            "/steps_per_second",
            "/step_ms/p50",
            "/step_ms/p99",
            "/step_ms/max",
            "/readings",
            "/between_readings_ms/p99",
        ],
    );
    let memory = table(
        &["memory", "heap MiB", "resident MiB"],
        &result["memory"],
        &["/at", "/heap_mib", "/resident_mib"],
    );
    let waits = match result["writer_waits_for_processors"] == true {
        true => "\n\nThe writer's steps include waiting for processors: chrt could not prevent it.",
        false => "",
    };
    let error = result["error"].as_str().map(|error| format!("\n\nfirst error: {error}"));
    let received = &result["received_events"];
    format!("{questions}\n\n{writer}\n\n{memory}\n\nevents received by clients: {received}")
        + waits
        + &error.unwrap_or_default()
}
