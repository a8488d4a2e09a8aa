//! The JSON of k8s.io/kube-scheduler/extender/v1.
//!
//! Field names are written as Go writes them, and read as Go's decoder reads them: case is ignored, `null` means
//! absent, unknown fields are ignored, and the last of several equal names wins.
//!
//! Requests and answers are read in one pass over borrowed text, without a tree: a field that is not needed costs no
//! memory, and names are borrowed. Requests come from clients that are not trusted, so the number of their items is
//! limited ([`MAX_ITEMS`]), and so is the size of their pod ([`MAX_POD`], [`MAX_VALUES`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

type Read<T> = Result<T, serde_json::Error>;

/// The largest number of nodes and victims in a request. Kubernetes supports 5,000 nodes.
pub(super) const MAX_ITEMS: usize = 200_000;

/// The largest pod in a request, in bytes: the largest one that an API server accepts as JSON (`MaxRequestBodyBytes`).
pub(super) const MAX_POD: usize = 3 << 20;

/// The largest number of values in a pod of a request. A parsed toleration takes 80 times the bytes of `{},`.
const MAX_VALUES: usize = 100_000;

/// `ExtenderArgs`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Args<'a> {
    pub(super) pod: &'a RawValue,
    pub(super) nodes: Option<NodeList<'a>>,
    pub(super) node_names: Option<Vec<&'a str>>,
}

/// `v1.NodeList`.
#[derive(Serialize)]
pub(super) struct NodeList<'a> {
    pub(super) metadata: Empty,
    pub(super) items: Vec<Cow<'a, RawValue>>,
}

#[derive(Default, Serialize)]
pub(super) struct Empty {}

/// `ExtenderFilterResult`.
#[derive(Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct FilterResult<'a> {
    pub(super) nodes: Option<NodeList<'a>>,
    pub(super) node_names: Option<Vec<&'a str>>,
    pub(super) failed_nodes: BTreeMap<&'a str, Cow<'static, str>>,
    pub(super) failed_and_unresolvable_nodes: BTreeMap<&'a str, Cow<'static, str>>,
    pub(super) error: String,
}

/// `HostPriority`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct HostPriority<'a> {
    pub(super) host: &'a str,
    pub(super) score: i64,
}

/// `ExtenderPreemptionArgs`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PreemptionArgs<'a> {
    pub(super) pod: &'a RawValue,
    pub(super) node_name_to_victims: Option<BTreeMap<&'a str, Victims>>,
    pub(super) node_name_to_meta_victims: Option<BTreeMap<&'a str, MetaVictims>>,
}

/// `Victims`.
#[derive(Serialize)]
pub(super) struct Victims {
    #[serde(rename = "Pods")]
    pub(super) pods: Vec<Arc<RawValue>>,
    #[serde(rename = "NumPDBViolations")]
    pub(super) violations: i64,
}

/// `MetaVictims`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct MetaVictims {
    #[serde(rename = "Pods")]
    pub(super) pods: Vec<MetaPod>,
    #[serde(rename = "NumPDBViolations")]
    pub(super) violations: i64,
}

/// `MetaPod`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct MetaPod {
    #[serde(rename = "UID")]
    pub(super) uid: String,
}

/// `ExtenderPreemptionResult`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PreemptionResult {
    pub(super) node_name_to_meta_victims: BTreeMap<String, MetaVictims>,
}

/// `ExtenderBindingArgs`.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct BindingArgs {
    #[serde(rename = "PodName")]
    pub(super) name: String,
    #[serde(rename = "PodNamespace")]
    pub(super) namespace: String,
    #[serde(rename = "PodUID")]
    pub(super) uid: String,
    #[serde(rename = "Node")]
    pub(super) node: String,
}

/// `ExtenderBindingResult`, and the answer to a request that cannot be read.
#[derive(Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ErrorResult {
    pub(super) error: String,
}

/// The fields that are read of any object.
const KNOWN: [&str; 26] = [
    "containers",
    "Error",
    "FailedAndUnresolvableNodes",
    "FailedNodes",
    "Host",
    "initContainers",
    "items",
    "limits",
    "metadata",
    "name",
    "Node",
    "NodeNames",
    "NodeNameToMetaVictims",
    "NodeNameToVictims",
    "Nodes",
    "NumPDBViolations",
    "Pod",
    "PodName",
    "PodNamespace",
    "Pods",
    "PodUID",
    "requests",
    "resources",
    "Score",
    "spec",
    "uid",
];

/// The number of items that may still be read.
struct Left(usize);

impl Left {
    /// An answer has as many items as its size allows.
    fn any() -> Left {
        Left(usize::MAX)
    }

    fn take<E: serde::de::Error>(&mut self) -> Result<(), E> {
        let excess = || E::custom(format_args!("more than {MAX_ITEMS} nodes and victims"));
        self.0 = self.0.checked_sub(1).ok_or_else(excess)?;
        Ok(())
    }
}

/// A text, which is empty if it is `null`. It is borrowed unless it has escapes.
#[derive(Default, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_unit<E>(self) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Reads each item of a list, or of an object with its name, or nothing from `null`.
struct Each<F>(F);

impl<'de, F: FnMut(Text<'de>, &'de RawValue) -> Read<()>> Visitor<'de> for Each<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(item) = list.next_element::<&RawValue>()? {
            (self.0)(Text::default(), item).map_err(A::Error::custom)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, value)) = map.next_entry::<Text<'de>, &RawValue>()? {
            (self.0)(name, value).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// The known fields of an object.
#[derive(Default)]
struct Fields<'a>(Vec<(&'static str, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_unit<E>(self) -> Result<Fields<'de>, E> {
                Ok(Fields::default())
            }

            // Without the text, which may be long.
            fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Fields<'de>, E> {
                Err(E::custom("invalid type: string, expected an object"))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Fields::default();
                while let Some(Field(name)) = map.next_key()? {
                    match name {
                        Some(name) => fields.put(name, map.next_value()?),
                        None => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_any(All)
    }
}

/// The name of a field, if it is known.
struct Field(Option<&'static str>);

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Field;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, name: &str) -> Result<Field, E> {
                Ok(Field(KNOWN.into_iter().find(|known| known.eq_ignore_ascii_case(name))))
            }
        }
        deserializer.deserialize_str(Any)
    }
}

impl<'a> Fields<'a> {
    /// Reads the object at the start of the text. As in Go's decoder, text after it is ignored.
    fn read(text: &'a [u8]) -> Read<Fields<'a>> {
        Fields::deserialize(&mut serde_json::Deserializer::from_slice(text))
    }

    fn of(value: &'a RawValue) -> Read<Fields<'a>> {
        serde_json::from_str(value.get())
    }

    fn put(&mut self, name: &'static str, value: &'a RawValue) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some(field) => field.1 = value,
            None => self.0.push((name, value)),
        }
    }

    fn raw(&self, name: &str) -> Option<&'a RawValue> {
        debug_assert!(KNOWN.contains(&name), "{name}");
        let (_, value) = self.0.iter().find(|(known, _)| *known == name)?;
        Some(*value).filter(|value| value.get() != "null")
    }

    fn object(&self, name: &str) -> Read<Fields<'a>> {
        self.raw(name).map(Fields::of).transpose().map(Option::unwrap_or_default)
    }

    fn text(&self, name: &str) -> Read<Cow<'a, str>> {
        let text = self.raw(name).map(|value| serde_json::from_str::<Text<'a>>(value.get()));
        Ok(text.transpose()?.unwrap_or_default().0)
    }

    /// Reads a number, which is 0 if it is absent.
    fn number(&self, name: &str) -> Read<i64> {
        match self.raw(name) {
            None => Ok(0),
            // The error of the number's reader would have the text, which may be long.
            Some(value) if value.get().starts_with('"') => {
                Err(serde_json::Error::custom("invalid type: string, expected a number"))
            }
            Some(value) => serde_json::from_str(value.get()),
        }
    }

    /// Reads each item of a list. Returns whether there is a list.
    fn each(&self, name: &str, mut read: impl FnMut(&'a RawValue) -> Read<()>) -> Read<bool> {
        self.entries(name, '[', |_, item| read(item))
    }

    /// Reads each item of a list, or each field of an object, which starts with `open`.
    fn entries(
        &self,
        name: &str,
        open: char,
        read: impl FnMut(Text<'a>, &'a RawValue) -> Read<()>,
    ) -> Read<bool> {
        let Some(value) = self.raw(name) else { return Ok(false) };
        if !value.get().starts_with(open) {
            let expected = if open == '[' { "a list" } else { "an object" };
            return Err(serde_json::Error::custom(format_args!("{name}: expected {expected}")));
        }
        serde_json::Deserializer::from_str(value.get()).deserialize_any(Each(read))?;
        Ok(true)
    }

    /// Reads the names of a `v1.NodeList`, and its nodes.
    fn nodes(&self, left: &mut Left) -> Read<Option<Vec<Named<'a>>>> {
        let Some(list) = self.raw("Nodes") else { return Ok(None) };
        let mut nodes = Vec::new();
        Fields::of(list)?.each("items", |node| {
            left.take()?;
            nodes.push((Fields::of(node)?.object("metadata")?.text("name")?, node));
            Ok(())
        })?;
        Ok(Some(nodes))
    }

    fn names(&self, left: &mut Left) -> Read<Option<Vec<Cow<'a, str>>>> {
        let mut names = Vec::new();
        let is_given = self.each("NodeNames", |name| {
            left.take()?;
            names.push(serde_json::from_str::<Text<'a>>(name.get())?.0);
            Ok(())
        })?;
        Ok(is_given.then_some(names))
    }

    fn failed(&self, name: &str) -> Read<Vec<(String, String)>> {
        let mut failed = BTreeMap::new();
        self.entries(name, '{', |node, why| {
            let why = serde_json::from_str::<Text<'a>>(why.get())?;
            failed.insert(node.0.into_owned(), why.0.into_owned());
            Ok(())
        })?;
        Ok(failed.into_iter().collect())
    }

    fn victims(
        &self,
        name: &str,
        left: &mut Left,
        uid: impl Fn(Fields<'a>) -> Read<Cow<'a, str>>,
    ) -> Read<Option<BTreeMap<String, MetaVictims>>> {
        let mut nodes = BTreeMap::new();
        let is_given = self.entries(name, '{', |node, victims| {
            left.take()?;
            let victims = Fields::of(victims)?;
            let mut pods = Vec::new();
            victims.each("Pods", |pod| {
                left.take()?;
                pods.push(MetaPod { uid: uid(Fields::of(pod)?)?.into_owned() });
                Ok(())
            })?;
            let violations = victims.number("NumPDBViolations")?;
            nodes.insert(node.0.into_owned(), MetaVictims { pods, violations });
            Ok(())
        })?;
        Ok(is_given.then_some(nodes))
    }
}

/// A node with its name.
type Named<'a> = (Cow<'a, str>, &'a RawValue);

/// The fields that are read from an `ExtenderFilterResult`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FilterAnswer {
    /// The names in `Nodes`.
    pub(super) nodes: Option<Vec<String>>,
    pub(super) node_names: Option<Vec<String>>,
    pub(super) failed: Vec<(String, String)>,
    pub(super) unresolvable: Vec<(String, String)>,
    pub(super) error: String,
}

impl FilterAnswer {
    pub(super) fn read(text: &[u8]) -> Read<FilterAnswer> {
        let fields = Fields::read(text)?;
        let owned =
            |names: &mut dyn Iterator<Item = Cow<'_, str>>| names.map(Cow::into_owned).collect();
        let nodes = fields.nodes(&mut Left::any())?;
        let names = fields.names(&mut Left::any())?;
        Ok(FilterAnswer {
            nodes: nodes.map(|nodes| owned(&mut nodes.into_iter().map(|(name, _)| name))),
            node_names: names.map(|names| owned(&mut names.into_iter())),
            failed: fields.failed("FailedNodes")?,
            unresolvable: fields.failed("FailedAndUnresolvableNodes")?,
            error: fields.text("Error")?.into_owned(),
        })
    }
}

/// Reads a `HostPriorityList`.
pub(super) fn read_scores(text: &[u8]) -> Read<Vec<(String, i64)>> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let hosts = Option::<Vec<&RawValue>>::deserialize(&mut json)?.unwrap_or_default();
    let scores = hosts.into_iter().map(|host| {
        let host = Fields::of(host)?;
        Ok((host.text("Host")?.into_owned(), host.number("Score")?))
    });
    scores.collect()
}

/// Reads an `ExtenderPreemptionResult`.
pub(super) fn read_victims(text: &[u8]) -> Read<BTreeMap<String, MetaVictims>> {
    let fields = Fields::read(text)?;
    let victims =
        fields.victims("NodeNameToMetaVictims", &mut Left::any(), |pod| pod.text("uid"))?;
    Ok(victims.unwrap_or_default())
}

/// Reads the error of an `ExtenderBindingResult`.
pub(super) fn read_error(text: &[u8]) -> Read<String> {
    Ok(Fields::read(text)?.text("Error")?.into_owned())
}

/// The fields that are read from `ExtenderArgs`.
pub(super) struct ArgsOf<'a> {
    pub(super) pod: &'a RawValue,
    pub(super) names: Vec<Cow<'a, str>>,
    /// The nodes of these names, if they were sent as objects.
    pub(super) nodes: Option<Vec<&'a RawValue>>,
}

impl<'a> ArgsOf<'a> {
    pub(super) fn read(text: &'a [u8]) -> Read<ArgsOf<'a>> {
        let fields = Fields::read(text)?;
        let pod = pod(&fields)?;
        let mut left = Left(MAX_ITEMS);
        if let Some(names) = fields.names(&mut left)? {
            return Ok(ArgsOf { pod, names, nodes: None });
        }
        let missing = || serde_json::Error::custom("NodeNames or Nodes is missing");
        let (names, nodes) = fields.nodes(&mut left)?.ok_or_else(missing)?.into_iter().unzip();
        Ok(ArgsOf { pod, names, nodes: Some(nodes) })
    }
}

fn pod<'a>(fields: &Fields<'a>) -> Read<&'a RawValue> {
    let pod = fields.raw("Pod").ok_or_else(|| serde_json::Error::custom("Pod is missing"))?;
    let excess = |most: usize, what: &str| {
        serde_json::Error::custom(format_args!("Pod has more than {most} {what}"))
    };
    if pod.get().len() > MAX_POD {
        return Err(excess(MAX_POD, "bytes"));
    }
    if values(pod.get()) > MAX_VALUES {
        return Err(excess(MAX_VALUES, "values"));
    }
    Ok(pod)
}

/// Returns an upper bound of the number of values in valid JSON: one for each comma, list and object outside strings.
fn values(json: &str) -> usize {
    let (mut values, mut is_string, mut is_escaped) = (0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_string = !is_string,
            b',' | b'[' | b'{' if !is_string => values += 1,
            _ => {}
        }
    }
    values
}

/// Reads `ExtenderPreemptionArgs`: the pod, and the victims on each node.
pub(super) fn read_preemption(text: &[u8]) -> Read<(&RawValue, BTreeMap<String, MetaVictims>)> {
    let fields = Fields::read(text)?;
    let pod = pod(&fields)?;
    let mut left = Left(MAX_ITEMS);
    let victims = match fields.victims("NodeNameToMetaVictims", &mut left, |pod| pod.text("uid"))? {
        Some(victims) => Some(victims),
        None => fields
            .victims("NodeNameToVictims", &mut left, |pod| pod.object("metadata")?.text("uid"))?,
    };
    let missing = "NodeNameToMetaVictims or NodeNameToVictims is missing";
    Ok((pod, victims.ok_or_else(|| serde_json::Error::custom(missing))?))
}

impl BindingArgs {
    pub(super) fn read(text: &[u8]) -> Read<BindingArgs> {
        let fields = Fields::read(text)?;
        Ok(BindingArgs {
            name: fields.text("PodName")?.into_owned(),
            namespace: fields.text("PodNamespace")?.into_owned(),
            uid: fields.text("PodUID")?.into_owned(),
            node: fields.text("Node")?.into_owned(),
        })
    }
}

/// Returns the names of the resources that a pod's containers and init containers request or limit.
pub(super) fn resources(pod: &RawValue) -> Vec<String> {
    fn names(pod: &RawValue) -> Read<Vec<String>> {
        let spec = Fields::of(pod)?.object("spec")?;
        let mut names = Vec::new();
        for kind in ["containers", "initContainers"] {
            spec.each(kind, |container| {
                let resources = Fields::of(container)?.object("resources")?;
                for list in ["requests", "limits"] {
                    resources.entries(list, '{', |name, _| {
                        names.push(name.0.into_owned());
                        Ok(())
                    })?;
                }
                Ok(())
            })?;
        }
        Ok(names)
    }
    // Pods of an API server are readable.
    names(pod).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).expect("JSON")
    }

    fn json(value: &impl Serialize) -> String {
        serde_json::to_string(value).expect("serializable")
    }

    #[test]
    fn requests_are_written_as_go_writes_them() {
        let (pod, node) = (raw(r#"{"metadata":{}}"#), raw(r#"{"metadata":{"name":"n"}}"#));
        let names = Args { pod: &pod, nodes: None, node_names: Some(vec!["n"]) };
        assert_eq!(json(&names), r#"{"Pod":{"metadata":{}},"Nodes":null,"NodeNames":["n"]}"#);
        let nodes = NodeList { metadata: Empty {}, items: vec![Cow::Borrowed(&*node)] };
        let nodes = Args { pod: &pod, nodes: Some(nodes), node_names: None };
        let expected = concat!(
            r#"{"Pod":{"metadata":{}},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"n"}}]},"#,
            r#""NodeNames":null}"#
        );
        assert_eq!(json(&nodes), expected);
        let victims = MetaVictims { pods: vec![MetaPod { uid: "u".to_owned() }], violations: 1 };
        let preemption = PreemptionArgs {
            pod: &pod,
            node_name_to_victims: None,
            node_name_to_meta_victims: Some([("n", victims)].into()),
        };
        let expected = concat!(
            r#"{"Pod":{"metadata":{}},"NodeNameToVictims":null,"#,
            r#""NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"u"}],"NumPDBViolations":1}}}"#
        );
        assert_eq!(json(&preemption), expected);
        let binding = BindingArgs {
            name: "p".to_owned(),
            namespace: "s".to_owned(),
            uid: "u".to_owned(),
            node: "n".to_owned(),
        };
        let expected = r#"{"PodName":"p","PodNamespace":"s","PodUID":"u","Node":"n"}"#;
        assert_eq!(json(&binding), expected);
        assert_eq!(BindingArgs::read(expected.as_bytes()).expect("read"), binding);
    }

    #[test]
    fn answers_are_read_as_go_reads_them() {
        let text = r#" {"nodenames": ["a", null], "NODES": {"Items": [{"Metadata": {"NAME": "b"}}, null]}, "x": [1],
            "failedNodes": {"c": "why", "d": null}, "Error": "first", "error": "last"} trailing"#;
        let expected = FilterAnswer {
            nodes: Some(vec!["b".to_owned(), String::new()]),
            node_names: Some(vec!["a".to_owned(), String::new()]),
            failed: vec![("c".to_owned(), "why".to_owned()), ("d".to_owned(), String::new())],
            unresolvable: Vec::new(),
            error: "last".to_owned(),
        };
        assert_eq!(FilterAnswer::read(text.as_bytes()).expect("read"), expected);
        assert_eq!(FilterAnswer::read(b"null").expect("read"), FilterAnswer::default());
        let empty = FilterAnswer { node_names: Some(Vec::new()), ..FilterAnswer::default() };
        assert_eq!(FilterAnswer::read(br#"{"NodeNames":[],"Nodes":null}"#).expect("read"), empty);
        for text in
            ["", "{", "[]", "7", r#"{"NodeNames":{}}"#, r#"{"Error":7}"#, "\u{1}", "{\"Nodes\":[]}"]
        {
            assert!(FilterAnswer::read(text.as_bytes()).is_err(), "{text}");
        }
        assert!(FilterAnswer::read(b"{\"Error\":\"\xff\"}").is_err());
        assert!(FilterAnswer::read("[".repeat(100_000).as_bytes()).is_err());
        let scores = read_scores(br#"[{"host":"a","score":3},{"Host":"b"},null]"#).expect("read");
        let expected = [("a".to_owned(), 3), ("b".to_owned(), 0), (String::new(), 0)];
        assert_eq!(scores, expected);
        assert_eq!(read_scores(b"null").expect("read"), []);
        for text in
            [r#"[{"Host":"a","Score":1.5}]"#, r#"[{"Host":"a","Score":9223372036854775808}]"#, "{}"]
        {
            assert!(read_scores(text.as_bytes()).is_err(), "{text}");
        }
        let victims =
            read_victims(br#"{"nodeNameToMetaVictims":{"n":{"pods":[{"uid":"u"}]},"m":null}}"#);
        let pods = |uids: &[&str]| MetaVictims {
            pods: uids.iter().map(|uid| MetaPod { uid: (*uid).to_owned() }).collect(),
            violations: 0,
        };
        let expected = [("n".to_owned(), pods(&["u"])), ("m".to_owned(), pods(&[]))];
        assert_eq!(victims.expect("read"), expected.into());
    }

    #[test]
    fn requests_are_read_with_names_or_objects() {
        let names = ArgsOf::read(br#"{"Pod":{},"NodeNames":["a"],"Nodes":null}"#).expect("read");
        assert_eq!(
            (names.pod.get(), &*names.names, names.nodes.is_none()),
            ("{}", &[Cow::Borrowed("a")][..], true)
        );
        let text = br#"{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}}]}}"#;
        let nodes = ArgsOf::read(text).expect("read");
        assert_eq!(
            (&*nodes.names, nodes.nodes.expect("nodes").len()),
            (&[Cow::Borrowed("a")][..], 1)
        );
        for (text, why) in [
            (r#"{"NodeNames":[]}"#, "Pod is missing"),
            (r#"{"Pod":null,"NodeNames":[]}"#, "Pod is missing"),
            (r#"{"Pod":{}}"#, "NodeNames or Nodes is missing"),
        ] {
            let error = ArgsOf::read(text.as_bytes()).err().expect("refused");
            assert_eq!(error.to_string(), why);
        }
        let read =
            |text: String| ArgsOf::read(text.as_bytes()).err().map(|error| error.to_string());
        let names = |count: usize| {
            let names = vec!["\"\""; count].join(",");
            read(format!(r#"{{"Pod":{{}},"NodeNames":[{names}]}}"#))
        };
        assert_eq!(names(MAX_ITEMS), None);
        assert!(names(MAX_ITEMS + 1).is_some_and(|why| why.contains("more than 200000 nodes")));
        let pod = |pod: String| read(format!(r#"{{"Pod":{{"x":{pod}}},"NodeNames":[]}}"#));
        assert_eq!(pod(format!("\"{}\\\"{}\"", ",".repeat(1 << 20), "{".repeat(1 << 20))), None);
        let long = pod(format!("\"{}\"", "x".repeat(MAX_POD)));
        assert!(long.is_some_and(|why| why.starts_with("Pod has more than 3145728 bytes")));
        let many = pod(format!("[{}0]", "0,".repeat(MAX_VALUES)));
        assert!(many.is_some_and(|why| why.starts_with("Pod has more than 100000 values")));
        let text = br#"{"Pod":{},"NodeNameToVictims":{"n":{"Pods":[{"metadata":{"uid":"u"}}],"NumPDBViolations":2}}}"#;
        let (_, victims) = read_preemption(text).expect("read");
        let pods = vec![MetaPod { uid: "u".to_owned() }];
        assert_eq!(victims, [("n".to_owned(), MetaVictims { pods, violations: 2 })].into());
        assert!(read_preemption(br#"{"Pod":{}}"#).is_err());
    }

    #[test]
    fn resources_of_all_containers_count() {
        let pod = raw(r#"{"spec":{"containers":[{"resources":{"limits":{"a/b":"1"}}},{}],
            "initContainers":[{"resources":{"requests":{"c/d":"0"},"limits":null}}]}}"#);
        assert_eq!(resources(&pod), ["a/b", "c/d"]);
        assert_eq!(resources(&raw("{}")), Vec::<String>::new());
    }
}
