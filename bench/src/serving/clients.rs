//! The clients: what they ask, and what they receive.

use std::io::{BufRead, ErrorKind};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use portolan_cli::{CommandError, histogram};
use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Request;

use super::cluster::{PENDING, node_name, pending_name};
use super::{failed, quantiles, server};

/// A question of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Summary,
    Nodes,
    Explain,
    Headroom,
    WhatIf,
    /// A session is created, read and deleted.
    Session,
}

/// The questions of ten turns of a client.
const TURNS: [Question; 10] = [
    Question::Summary,
    Question::Nodes,
    Question::Explain,
    Question::Summary,
    Question::WhatIf,
    Question::Nodes,
    Question::Headroom,
    Question::Summary,
    Question::Explain,
    Question::Session,
];

/// The time until a client gives up.
const PATIENCE: Duration = Duration::from_secs(60);

impl Question {
    pub(super) const ALL: [Question; 6] = [
        Question::Summary,
        Question::Nodes,
        Question::Explain,
        Question::Headroom,
        Question::WhatIf,
        Question::Session,
    ];

    fn name(self) -> &'static str {
        match self {
            Question::Summary => "summary",
            Question::Nodes => "nodes",
            Question::Explain => "explain",
            Question::Headroom => "headroom",
            Question::WhatIf => "what-if",
            Question::Session => "session",
        }
    }
}

/// The answers to a question.
pub(super) struct Tally {
    /// Nanoseconds.
    times: Histogram<u64>,
    refused: u64,
    errors: u64,
}

/// What the clients have received.
pub(super) struct Tallies {
    /// In the order of [`Question::ALL`].
    pub(super) questions: Vec<Tally>,
    /// The number of events.
    pub(super) received: u64,
    pub(super) error: Option<String>,
}

/// Why a question has no answer.
enum Unanswered {
    /// The server has too many questions.
    Refused,
    Wrong(String),
}

impl Tally {
    pub(super) fn is_faultless(&self) -> bool {
        self.errors == 0
    }

    pub(super) fn json(&self, of: Question) -> Value {
        let Tally { times, refused, errors } = self;
        json!({
            "question": of.name(),
            "answers": times.len(),
            "refused": refused,
            "errors": errors,
            "ms": quantiles(times),
        })
    }
}

impl Tallies {
    fn new() -> Result<Tallies, CommandError> {
        let tally = |_| Ok(Tally { times: histogram()?, refused: 0, errors: 0 });
        let questions: Result<_, CommandError> = Question::ALL.iter().map(tally).collect();
        Ok(Tallies { questions: questions?, received: 0, error: None })
    }

    fn add(&mut self, other: Tallies) -> Result<(), CommandError> {
        for (sum, one) in self.questions.iter_mut().zip(other.questions) {
            sum.times.add(one.times).map_err(failed)?;
            sum.refused += one.refused;
            sum.errors += one.errors;
        }
        self.received += other.received;
        self.error = self.error.take().or(other.error);
        Ok(())
    }

    fn count(&mut self, of: Question, answered: Result<Duration, Unanswered>) {
        let Some(at) = Question::ALL.iter().position(|it| *it == of) else { return };
        let tally = &mut self.questions[at];
        match answered {
            Ok(took) => {
                tally.times.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            }
            Err(Unanswered::Refused) => tally.refused += 1,
            Err(Unanswered::Wrong(what)) => {
                tally.errors += 1;
                self.error.get_or_insert(format!("{}: {what}", of.name()));
            }
        }
    }
}

/// Clients that ask and listen at the same time.
pub(super) struct Crowd(Vec<JoinHandle<Result<Tallies, CommandError>>>);

impl Crowd {
    pub(super) fn start(address: &str, clients: usize, pause: Duration, time: Duration) -> Crowd {
        let end = Instant::now() + time;
        let start = |client: usize| {
            let address = address.to_owned();
            thread::spawn(move || match client % 10 {
                9 => listen(&address, end),
                _ => {
                    // Clients do not ask in step.
                    thread::sleep(pause.mul_f64(client as f64 / clients as f64));
                    Client::new(&address).ask_until(end, client, pause)
                }
            })
        };
        Crowd((0..clients).map(start).collect())
    }

    /// Waits for all clients. Returns the sum of their answers.
    pub(super) fn join(self) -> Result<Tallies, CommandError> {
        let mut sum = Tallies::new()?;
        for client in self.0 {
            sum.add(client.join().map_err(|_| CommandError::Panicked("a client"))??)?;
        }
        Ok(sum)
    }
}

/// Counts events.
fn listen(address: &str, end: Instant) -> Result<Tallies, CommandError> {
    let mut all = Tallies::new()?;
    let mut stream = match server::events(address, Duration::from_millis(200)) {
        Ok(stream) => stream,
        Err(error) => {
            all.error = Some(format!("events: {error}"));
            return Ok(all);
        }
    };
    let mut line = String::new();
    while Instant::now() < end {
        match stream.read_line(&mut line) {
            Ok(0) => {
                all.error = Some("events: the stream has ended".to_owned());
                break;
            }
            Ok(_) => {
                all.received += u64::from(line.starts_with("event: "));
                line.clear();
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => {
                all.error = Some(format!("events: {error}"));
                break;
            }
        }
    }
    Ok(all)
}

struct Client {
    agent: Agent,
    address: String,
}

impl Client {
    fn new(address: &str) -> Client {
        let config = Agent::config_builder().http_status_as_error(false);
        let config = config.timeout_global(Some(PATIENCE)).build();
        Client { agent: config.into(), address: address.to_owned() }
    }

    fn ask_until(
        &self,
        end: Instant,
        client: usize,
        pause: Duration,
    ) -> Result<Tallies, CommandError> {
        let mut all = Tallies::new()?;
        for turn in client.. {
            if Instant::now() >= end {
                break;
            }
            let question = TURNS[turn % TURNS.len()];
            let started = Instant::now();
            let answered = self.ask(question, client.wrapping_mul(31).wrapping_add(turn));
            all.count(question, answered.map(|()| started.elapsed()));
            thread::sleep(pause.min(end.saturating_duration_since(Instant::now())));
        }
        Ok(all)
    }

    /// Asks about an object with a number.
    fn ask(&self, question: Question, number: usize) -> Result<(), Unanswered> {
        let change = json!({ "fail_node": [node_name(0)] });
        match question {
            Question::Summary => self.get("summary").map(drop),
            Question::Nodes => self.get("nodes").map(drop),
            Question::Explain => {
                let pod = format!("default/{}", pending_name(number % PENDING));
                self.post("explain", &json!({ "pod": pod })).map(drop)
            }
            Question::Headroom => {
                let cpu = format!("{}m", 100 * (1 + number % 40));
                self.post("headroom", &json!({ "requests": { "cpu": cpu } })).map(drop)
            }
            Question::WhatIf => self.post("what-if", &change).map(drop),
            Question::Session => {
                let session = self.post("sessions", &change)?;
                let session: Value = serde_json::from_str(&session)
                    .map_err(|error| Unanswered::Wrong(error.to_string()))?;
                let id = session["id"].as_str().unwrap_or_default();
                self.get(&format!("summary?session={id}"))?;
                self.send("DELETE", &format!("sessions/{id}"), "").map(drop)
            }
        }
    }

    fn get(&self, path: &str) -> Result<String, Unanswered> {
        self.send("GET", path, "")
    }

    fn post(&self, path: &str, body: &Value) -> Result<String, Unanswered> {
        self.send("POST", path, &body.to_string())
    }

    fn send(&self, method: &str, path: &str, body: &str) -> Result<String, Unanswered> {
        let wrong = |what: String| Unanswered::Wrong(what);
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}/api/v1/{path}", self.address))
            .header("content-type", "application/json")
            .body(body.to_owned())
            .map_err(|error| wrong(error.to_string()))?;
        let mut response = self.agent.run(request).map_err(|error| wrong(error.to_string()))?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(1 << 30).read_to_string();
        let text = text.map_err(|error| wrong(error.to_string()))?;
        match status {
            200..=299 => Ok(text),
            503 => Err(Unanswered::Refused),
            _ => Err(wrong(format!("status {status}: {text}"))),
        }
    }
}
