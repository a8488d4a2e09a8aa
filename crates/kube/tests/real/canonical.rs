//! Makes the answers of two servers comparable: replaces uids, versions and times by placeholders.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::script::Step;

/// Fields that are not compared: they depend on the client, or on what the server in memory leaves out by design.
const IGNORED: [&str; 4] = [
    // Who wrote which field; the server in memory has no server-side apply.
    "managedFields",
    // A field of lists; optional, and an estimate.
    "remainingItemCount",
    // Fields of nodes, which kubelets fill in.
    "daemonEndpoints",
    "nodeInfo",
];

/// Replaces what differs between any two runs.
#[derive(Default)]
struct Canon {
    uids: BTreeMap<String, String>,
}

/// Returns the steps in a form that is equal for two servers that behave the same.
pub(crate) fn canonical(steps: &[Step]) -> Vec<Step> {
    let mut canon = Canon::default();
    let canonical = |step: &Step| {
        canon.learn(&step.answer);
        let mut answer = canon.value("", &step.answer);
        if let Some(lines) = answer.get_mut("lines").and_then(Value::as_array_mut) {
            shorten_bookmarks(lines);
        }
        Step { request: canon.request(&step.request), answer }
    };
    steps.iter().map(canonical).collect()
}

/// The bookmark at the end of a list carries an empty object of the kind, of which only the metadata means anything.
/// The server may send other bookmarks at any time.
fn shorten_bookmarks(lines: &mut Vec<Value>) {
    lines.retain(|line| {
        let annotations = &line["object"]["metadata"]["annotations"];
        line["type"] != "BOOKMARK" || annotations["k8s.io/initial-events-end"] == "true"
    });
    for line in lines.iter_mut().filter(|line| line["type"] == "BOOKMARK") {
        if let Some(object) = line["object"].as_object_mut() {
            object.retain(|field, _| ["kind", "apiVersion", "metadata"].contains(&field.as_str()));
        }
    }
}

impl Canon {
    /// Notes the uids in an answer, in the order in which they first appear.
    fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                if let Some(uid) = map.get("uid").and_then(Value::as_str)
                    && uid.len() == 36
                    && !self.uids.contains_key(uid)
                {
                    let name = format!("<uid {}>", self.uids.len() + 1);
                    self.uids.insert(uid.to_owned(), name);
                }
                map.values().for_each(|value| self.learn(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            _ => {}
        }
    }

    fn value(&self, field: &str, value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let kept = map.iter().filter(|(field, _)| !IGNORED.contains(&field.as_str()));
                let kept = kept.map(|(field, value)| (field.clone(), self.value(field, value)));
                let mut kept = kept.collect::<Map<_, _>>();
                if quotes_a_decoder(&kept) {
                    kept.remove("message");
                }
                Value::Object(kept)
            }
            Value::Array(items) => {
                let mut items: Vec<_> = items.iter().map(|item| self.value(field, item)).collect();
                if field == "causes" {
                    // Some kinds are validated twice.
                    items.dedup();
                }
                items.into()
            }
            Value::String(text) => match field {
                "resourceVersion" if !text.is_empty() => json!("<version>"),
                "continue" if !text.is_empty() => json!("<token>"),
                _ => json!(self.text(text)),
            },
            other => other.clone(),
        }
    }

    fn text(&self, text: &str) -> String {
        if let Some(time) = time(text) {
            return time.to_owned();
        }
        let named = self
            .uids
            .iter()
            .fold(text.to_owned(), |text, (uid, name)| text.replace(uid.as_str(), name));
        without_versions(&named)
    }

    /// The request, without the values of tokens and versions.
    fn request(&self, request: &str) -> String {
        let parts = request.split('&').map(|part| match part.split_once("continue=") {
            Some((before, token)) if token.len() > 8 => format!("{before}continue=<token>"),
            _ => part.to_owned(),
        });
        let request = parts.collect::<Vec<_>>().join("&");
        match request.split_once("resourceVersion=") {
            Some((before, rest)) => {
                let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                let number = if &rest[..end] == "0" { "0" } else { "" };
                format!("{before}resourceVersion={number}{}", &rest[end..])
            }
            None => request,
        }
    }
}

/// Whether an error quotes the message of a Go decoder: a request cannot be read, or a patch cannot be applied.
fn quotes_a_decoder(status: &Map<String, Value>) -> bool {
    let is = |code: u16| status.get("code") == Some(&json!(code));
    is(400) || is(415) || is(500)
}

/// Returns the form of a time, or `None` if the text is not a time.
fn time(text: &str) -> Option<&'static str> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || b"-T:.Z".contains(&byte));
    let has = |at: usize, byte: u8| text.as_bytes().get(at) == Some(&byte);
    match text.len() {
        20 if digits && has(10, b'T') && has(19, b'Z') => Some("<time>"),
        27 if digits && has(10, b'T') && has(26, b'Z') => Some("<time in µs>"),
        _ => None,
    }
}

/// Replaces numbers of versions in a message.
fn without_versions(text: &str) -> String {
    const BEFORE: [&str; 6] =
        ["ersion: ", "ersion in precondition: ", "meta: ", "current: ", "precondition (", " ("];
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        out.push_str(before);
        let is_version = BEFORE.iter().any(|it| out.ends_with(it)) && number[..end] != *"0";
        out.push_str(if is_version { "<version>" } else { &number[..end] });
        rest = &number[end..];
    }
    out + rest
}

/// Describes the differences between two values, one per line.
pub(crate) fn differences(path: &str, real: &Value, fake: &Value, out: &mut Vec<String>) {
    match (real, fake) {
        (Value::Object(real), Value::Object(fake)) => {
            for (field, value) in real {
                let other = fake.get(field).unwrap_or(&Value::Null);
                if !fake.contains_key(field) {
                    out.push(format!("{path}.{field}: {value}, missing in memory"));
                } else {
                    differences(&format!("{path}.{field}"), value, other, out);
                }
            }
            for (field, value) in fake.iter().filter(|(field, _)| !real.contains_key(*field)) {
                out.push(format!("{path}.{field}: only in memory: {value}"));
            }
        }
        (Value::Array(real), Value::Array(fake)) if real.len() == fake.len() => {
            for (index, (real, fake)) in real.iter().zip(fake).enumerate() {
                differences(&format!("{path}[{index}]"), real, fake, out);
            }
        }
        (Value::Array(real), Value::Array(fake)) if path.ends_with("lines") => {
            let kinds = |lines: &[Value]| -> Vec<Value> {
                lines.iter().map(|line| line["type"].clone()).collect()
            };
            let last = (real.last(), fake.last());
            out.push(format!("{path}: {:?}, in memory {:?}: {last:?}", kinds(real), kinds(fake)));
        }
        (real, fake) if real != fake => out.push(format!("{path}: {real}, in memory {fake}")),
        _ => {}
    }
}
