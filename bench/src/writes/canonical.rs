//! Converts recorded writes and our own to a canonical form, in which equivalent writes are equal.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use super::Write;

/// The writes of one scenario: for each object, its events and its other writes, each in order. The order between the
/// two, and between objects, is random.
pub(super) struct Streams {
    objects: BTreeMap<String, Stream>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Stream {
    events: Vec<String>,
    writes: Vec<String>,
}

impl Streams {
    pub(super) fn of(writes: &[Write]) -> Streams {
        let names = names(writes);
        let mut objects: BTreeMap<String, Stream> = BTreeMap::new();
        // The pod and the reason of each event: a patch of an event has only its name.
        let mut events: HashMap<&str, (&str, &str)> = HashMap::new();
        for write in writes {
            let mut regarding = write.body["regarding"]["name"].as_str();
            if write.resource == "events" {
                let reason = write.body["reason"].as_str().unwrap_or_default();
                match (regarding, events.get(&*write.name)) {
                    (Some(pod), _) => drop(events.insert(&write.name, (pod, reason))),
                    // The patch counts another attempt with the same message.
                    (None, Some((_, "FailedScheduling"))) => continue,
                    (None, known) => regarding = known.map(|(pod, _)| *pod),
                }
            }
            let object = regarding.unwrap_or(&write.name).to_owned();
            let text = canonical(write, &names);
            // The recording's namespace was deleted after the scenario.
            if text.contains("because it is being terminated") {
                continue;
            }
            let stream = objects.entry(object).or_default();
            let list = match regarding {
                Some(_) => &mut stream.events,
                None => &mut stream.writes,
            };
            // An attempt repeated with the same message.
            if list.last() != Some(&text) || !text.contains("FailedScheduling") {
                list.push(text);
            }
        }
        Streams { objects }
    }

    /// Removes the failed attempts of pods that waited for resources of the previous scenario, whose pods still ran in
    /// the recording's cluster. `first` are the pods that were created before any others, so their own scenario cannot
    /// delay them. `ours` bound them at the first attempt.
    pub(super) fn forget_the_scenario_before(&mut self, first: &BTreeSet<&str>, ours: &Streams) {
        for (name, stream) in &mut self.objects {
            if let (true, Some(own)) = (first.contains(&**name), ours.objects.get(name)) {
                stream.forget_failures_before_binding(own);
            }
        }
    }

    /// Returns the differences from `ours`. If there are victims, differences of numbers in names are ignored: the
    /// choice among equal nodes is random, and each node has its own pods.
    pub(super) fn differences(&self, ours: &Streams) -> Vec<String> {
        let differences = compare(self.sorted(), ours.sorted());
        if differences.is_empty() || !self.has_victims() {
            return differences;
        }
        match compare(unnumbered(self.sorted()), unnumbered(ours.sorted())) {
            equal if equal.is_empty() => equal,
            _ => differences,
        }
    }

    fn has_victims(&self) -> bool {
        let events = self.objects.values().flat_map(|stream| &stream.events);
        events.into_iter().any(|event| event.contains("\"Preempted\""))
    }

    fn sorted(&self) -> Vec<(String, Stream)> {
        let named = self.objects.iter().map(|(at, stream)| (name(at), stream.clone()));
        named.collect()
    }
}

/// Replaces the numbers at the end of names.
fn unnumbered(streams: Vec<(String, Stream)>) -> Vec<(String, Stream)> {
    let plain = |texts: Vec<String>| texts.iter().map(|text| without_numbers(text)).collect();
    let streams = streams.into_iter().map(|(name, Stream { events, writes })| {
        let stream = Stream { events: plain(events), writes: plain(writes) };
        (without_numbers(&name), stream)
    });
    streams.collect()
}

/// Replaces digits that follow a letter.
pub(super) fn without_numbers(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut last = ' ';
    for c in text.chars() {
        match c.is_ascii_digit() && (last.is_ascii_alphabetic() || last == '#') {
            true => {
                if last != '#' {
                    plain.push('#');
                }
                last = '#';
            }
            false => {
                plain.push(c);
                last = c;
            }
        }
    }
    plain
}

fn compare(mut theirs: Vec<(String, Stream)>, mut found: Vec<(String, Stream)>) -> Vec<String> {
    theirs.sort();
    found.sort();
    let mut differences = Vec::new();
    for (name, stream) in &theirs {
        match found.iter().position(|own| own.0 == *name && own.1 == *stream) {
            Some(at) => drop(found.remove(at)),
            None => {
                let own = found.iter().position(|own| own.0 == *name);
                let own = own.map(|at| found.remove(at).1);
                differences.push(stream.difference(name, own.as_ref()));
            }
        }
    }
    differences.extend(found.iter().map(|(name, own)| format!("{name}: not expected: {own:?}")));
    differences
}

impl Stream {
    /// Removes attempts that failed for lack of resources, if `own` was bound at its first attempt.
    fn forget_failures_before_binding(&mut self, own: &Stream) {
        let failures = |stream: &Stream| -> Vec<String> {
            stream.events.iter().filter(|it| it.contains("FailedScheduling")).cloned().collect()
        };
        let is_bound = |stream: &Stream| stream.writes.iter().any(|it| it.contains("pods/binding"));
        let lacks_resources = |failure: &String| {
            failure.contains("Insufficient ") || failure.contains("Too many pods")
        };
        let is_forgotten = failures(own).is_empty()
            && is_bound(own)
            && is_bound(self)
            && failures(self).iter().all(lacks_resources);
        if !is_forgotten {
            return;
        }
        self.events.retain(|event| !event.contains("FailedScheduling"));
        self.writes.retain(|write| !write.contains("\"reason\":\"Unschedulable\""));
    }

    fn difference(&self, name: &str, own: Option<&Stream>) -> String {
        let Some(own) = own else { return format!("{name}: missing: {self:?}") };
        let mut lines = vec![format!("{name}:")];
        let pairs = [(&self.writes, &own.writes), (&self.events, &own.events)];
        for (theirs, ours) in pairs {
            for at in 0..theirs.len().max(ours.len()) {
                let (expected, found) = (theirs.get(at), ours.get(at));
                if expected != found {
                    let text = |it: Option<&String>| it.map_or("nothing", |it| it).to_owned();
                    lines.push(format!("  expected {}", text(expected)));
                    lines.push(format!("  found    {}", text(found)));
                }
            }
        }
        lines.join("\n    ")
    }
}

/// The names of objects by uid.
fn names(writes: &[Write]) -> HashMap<String, String> {
    let mut names = HashMap::new();
    for write in writes {
        for place in
            [&write.body["metadata"], &write.body["regarding"], &write.body["spec"]["claimRef"]]
        {
            if let (Some(uid), Some(name)) = (place["uid"].as_str(), place["name"].as_str()) {
                names.insert(uid.to_owned(), name.to_owned());
            }
        }
    }
    names
}

fn canonical(write: &Write, names: &HashMap<String, String>) -> String {
    let mut body = write.body.clone();
    let (mut verb, resource) = (&*write.verb, &*write.resource);
    match resource {
        "pods/status" => {
            if let Some(body) = body.as_object_mut() {
                body.remove("metadata");
            }
        }
        "pods" if verb == "delete" => body = Value::Null,
        "persistentvolumes" => {
            verb = "write";
            let claim = body["spec"]["claimRef"].clone();
            let by =
                body["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"].clone();
            body = json!({"claimRef": claim, "boundByController": by});
        }
        "persistentvolumeclaims" => {
            verb = "write";
            let node = &body["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
            body = json!({"selectedNode": node});
        }
        _ => {}
    }
    clean(&mut body);
    let mut text = body.to_string();
    for (uid, name) in names {
        text = text.replace(uid.as_str(), &format!("<uid of {name}>"));
    }
    let text = name(&nodes(&text));
    format!("{verb} {resource} {} {text} {}", name(&suffix(&write.name)), write.code)
}

/// Removes values that vary between runs, and fields that are null.
fn clean(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            for (key, field) in fields.iter_mut() {
                match &**key {
                    "resourceVersion" => *field = json!("<rv>"),
                    "eventTime" | "lastTransitionTime" | "lastObservedTime" => {
                        *field = json!("<time>");
                    }
                    "name" => {
                        if let Some(name) = field.as_str() {
                            *field = json!(suffix(name));
                        }
                    }
                    _ => clean(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        _ => {}
    }
}

/// Returns the condition without its times.
pub(super) fn condition(mut condition: Value) -> String {
    clean(&mut condition);
    condition.to_string()
}

/// The name of an event without its last part, which is a time.
fn suffix(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((object, _)) => format!("{object}.<n>"),
        None => name.to_owned(),
    }
}

/// Replaces the names of nodes: the choice among equal nodes is random.
fn nodes(text: &str) -> String {
    (0..3).fold(text.to_owned(), |text, n| text.replace(&format!("hollow-{n}"), "<node>"))
}

/// Replaces the random parts of the names that a Deployment gives to its pods: `web-6659f875cd-sgr7d`.
pub(super) fn name(text: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for word in text.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
        let core = word.trim_end_matches(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        let random = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
            lengths.contains(&part.len())
                && part.bytes().all(|byte| {
                    b"bcdfghjklmnpqrstvwxz2456789".contains(&byte) || byte.is_ascii_hexdigit()
                })
        };
        let mut pieces = core.rsplitn(3, '-');
        let (last, hash, owner) = (pieces.next(), pieces.next(), pieces.next());
        match (last, hash, owner) {
            (Some(last), Some(hash), Some(owner))
                if random(last, 5..=5) && random(hash, 8..=10) =>
            {
                parts.push(format!("{owner}-*-*{}", &word[core.len()..]));
            }
            _ => parts.push(word.to_owned()),
        }
    }
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_differ_are_found() {
        let write = |verb: &str, resource: &str, body: Value| Write {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            name: "a".to_owned(),
            body,
            code: 201,
        };
        let bind = |node: &str| write("create", "pods/binding", json!({"target": {"name": node}}));
        let failure = |note: &str| {
            let regarding = json!({"name": "a"});
            let body = json!({"reason": "FailedScheduling", "note": note, "regarding": regarding});
            write("create", "events", body)
        };
        let streams = |writes: &[Write]| Streams::of(writes);
        let bound = || streams(&[bind("hollow-0")]);
        assert!(bound().differences(&streams(&[bind("hollow-2")])).is_empty(), "of equal nodes");
        assert_eq!(bound().differences(&streams(&[bind("other")])).len(), 1);
        assert_eq!(bound().differences(&streams(&[])).len(), 1, "missing");
        assert_eq!(streams(&[]).differences(&bound()).len(), 1, "not expected");

        let differs = |note: &str, first: &[&str]| {
            let mut theirs = streams(&[failure(note), bind("hollow-0")]);
            theirs.forget_the_scenario_before(&first.iter().copied().collect(), &bound());
            !theirs.differences(&bound()).is_empty()
        };
        assert!(!differs("3 Insufficient cpu.", &["a"]));
        assert!(differs("3 Insufficient cpu.", &["b"]), "the scenario's own pods were in the way");
        assert!(differs("3 node(s) didn't match pod affinity rules.", &["a"]));
    }

    #[test]
    fn patches_of_events_belong_to_their_pod() {
        let write = |verb: &str, resource: &str, name: &str, body: Value| Write {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            body,
            code: 200,
        };
        let event = |reason: &str| {
            let note = "0/3 nodes are available: 3 Insufficient cpu.";
            let body = json!({"reason": reason, "note": note, "regarding": {"name": "a"}});
            write("create", "events", "a.18f3c2", body)
        };
        let patch =
            |count: u32| write("patch", "events", "a.18f3c2", json!({"series": {"count": count}}));
        let bind = write("create", "pods/binding", "a", json!({"target": {"name": "hollow-0"}}));
        let bound = Streams::of(std::slice::from_ref(&bind));

        let failed = event("FailedScheduling");
        let mut theirs = Streams::of(&[failed.clone(), patch(2), patch(3), bind.clone()]);
        let once = Streams::of(&[failed, bind.clone()]);
        assert!(theirs.differences(&once).is_empty(), "repetitions count once");
        theirs.forget_the_scenario_before(&["a"].into(), &bound);
        assert!(theirs.differences(&bound).is_empty(), "{:?}", theirs.differences(&bound));

        let other = event("Preempted");
        let patched = Streams::of(&[other.clone(), patch(2), bind.clone()]);
        let differences = patched.differences(&Streams::of(&[other, bind]));
        assert!(differences.len() == 1 && differences[0].starts_with("a:"), "{differences:?}");
    }

    #[test]
    fn random_parts_of_names_are_replaced() {
        assert_eq!(name("s22/web-6659f875cd-sgr7d to"), "s22/web-*-* to");
        assert_eq!(name("default-scheduler"), "default-scheduler");
        assert_eq!(suffix("a.18f3c2"), "a.<n>");
    }
}
