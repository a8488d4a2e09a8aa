//! An extender whose answers a test determines.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

/// What a service does with a request.
pub(crate) enum Answer {
    Json(Value),
    /// A status line, and a body.
    Text(&'static str, String),
    /// Closes the connection after a part of the answer.
    Break(&'static str),
    /// Sends a part of the answer, and never the rest.
    Stall,
    /// Answers after the client has given up.
    Hang,
}

/// Verbs and bodies. A request with the header `Authorization` has its value after the verb.
type Requests = Arc<Mutex<Vec<(String, Value)>>>;

/// An HTTP service that answers each request on its own connection.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    requests: Requests,
}

impl Service {
    pub(crate) fn start(
        answer: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static,
    ) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (requests, answer) = (Requests::default(), Arc::new(answer));
        let kept = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (kept, answer) = (kept.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &kept, &*answer));
            }
        });
        Service { address, requests }
    }

    /// Returns the requests of a verb.
    pub(crate) fn requests(&self, verb: &str) -> Vec<Value> {
        let requests = self.requests.lock().expect("requests");
        requests.iter().filter(|(of, _)| of == verb).map(|(_, body)| body.clone()).collect()
    }

    /// Returns the configuration of one extender with these fields.
    pub(crate) fn extender(&self, fields: &str) -> String {
        extender(self.address, fields)
    }
}

pub(crate) fn extender(address: SocketAddr, fields: &str) -> String {
    format!("extenders:\n- {{urlPrefix: 'http://{address}/v/', httpTimeout: 500ms, {fields}}}\n")
}

/// Reads a request: the verb, and the body.
fn request(stream: &TcpStream) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let verb = line.strip_prefix("POST /v/")?.split(' ').next()?.to_owned();
    let (mut length, mut is_json, mut authorization) = (0, false, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        match header.split_once(": ") {
            Some(("content-length", value)) => length = value.parse().ok()?,
            Some(("content-type", value)) => is_json = value == "application/json",
            Some(("authorization", value)) => authorization = format!(" {value}"),
            Some(_) => {}
            None => break,
        }
    }
    assert!(is_json, "the body is JSON");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((verb + &authorization, body))
}

fn serve(mut stream: TcpStream, kept: &Requests, answer: &dyn Fn(&str, &Value) -> Answer) {
    let Some((verb, body)) = request(&stream) else { return };
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    kept.lock().expect("requests").push((verb.clone(), body.clone()));
    let whole = |status: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
    };
    let text = match answer(&verb, &body) {
        Answer::Json(value) => whole("200 OK", &value.to_string()),
        Answer::Text(status, body) => whole(status, &body),
        Answer::Break(body) => format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{body}"),
        Answer::Stall => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{");
            std::thread::sleep(Duration::from_secs(2));
            return;
        }
        Answer::Hang => {
            std::thread::sleep(Duration::from_secs(2));
            whole("200 OK", "{}")
        }
    };
    // The client may be gone.
    let _ = stream.write_all(text.as_bytes());
}
