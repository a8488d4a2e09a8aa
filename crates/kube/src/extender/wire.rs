//! The JSON of k8s.io/kube-scheduler/extender/v1.
//!
//! Field names are written as Go writes them, and read as Go's decoder reads them: case is ignored, `null` means
//! absent, unknown fields are ignored, and the last of several equal names wins.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

type Read<T> = Result<T, serde_json::Error>;

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
    pub(super) node_names: Option<Vec<String>>,
    pub(super) failed_nodes: BTreeMap<String, String>,
    pub(super) failed_and_unresolvable_nodes: BTreeMap<String, String>,
    pub(super) error: String,
}

/// `HostPriority`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct HostPriority {
    pub(super) host: String,
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

/// The fields of an object.
#[derive(Default)]
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

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

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                #[derive(Deserialize)]
                #[serde(transparent)]
                struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
                let mut fields = Vec::new();
                while let Some((Key(name), value)) = map.next_entry::<Key<'de>, &RawValue>()? {
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_any(All)
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

    fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let mut fields = self.0.iter().rev();
        let (_, value) = fields.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(*value).filter(|value| value.get() != "null")
    }

    fn get<T: Deserialize<'a>>(&self, name: &str) -> Read<Option<T>> {
        self.raw(name).map(|value| serde_json::from_str(value.get())).transpose()
    }

    fn text(&self, name: &str) -> Read<String> {
        Ok(self.get(name)?.unwrap_or_default())
    }

    /// Reads a list, whose `null`s are empty objects.
    fn list(&self, name: &str) -> Read<Option<Vec<&'a RawValue>>> {
        self.get(name)
    }

    /// Reads the names of a `v1.NodeList`, and its nodes.
    fn nodes(&self) -> Read<Option<Vec<(String, &'a RawValue)>>> {
        let Some(nodes) = self.get::<Fields<'a>>("Nodes")? else { return Ok(None) };
        let items = nodes.list("items")?.unwrap_or_default().into_iter();
        let named = items.map(|node| {
            let metadata = Fields::of(node)?.get::<Fields<'a>>("metadata")?.unwrap_or_default();
            Ok((metadata.text("name")?, node))
        });
        named.collect::<Read<_>>().map(Some)
    }

    fn names(&self) -> Read<Option<Vec<String>>> {
        let Some(names) = self.get::<Vec<Option<String>>>("NodeNames")? else { return Ok(None) };
        Ok(Some(names.into_iter().map(Option::unwrap_or_default).collect()))
    }

    fn failed(&self, name: &str) -> Read<Vec<(String, String)>> {
        let failed = self.get::<BTreeMap<String, Option<String>>>(name)?.unwrap_or_default();
        Ok(failed.into_iter().map(|(node, why)| (node, why.unwrap_or_default())).collect())
    }

    fn victims(
        &self,
        name: &str,
        uid: impl Fn(Fields<'a>) -> Read<String>,
    ) -> Read<Option<BTreeMap<String, MetaVictims>>> {
        let Some(nodes) = self.get::<BTreeMap<String, &'a RawValue>>(name)? else {
            return Ok(None);
        };
        let victims = nodes.into_iter().map(|(node, victims)| {
            let victims = Fields::of(victims)?;
            let pods = victims.list("Pods")?.unwrap_or_default().into_iter();
            let pods = pods.map(|pod| Ok(MetaPod { uid: uid(Fields::of(pod)?)? }));
            let pods = pods.collect::<Read<_>>()?;
            let violations = victims.get("NumPDBViolations")?.unwrap_or(0);
            Ok((node, MetaVictims { pods, violations }))
        });
        victims.collect::<Read<_>>().map(Some)
    }
}

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
        let nodes = fields.nodes()?;
        Ok(FilterAnswer {
            nodes: nodes.map(|nodes| nodes.into_iter().map(|(name, _)| name).collect()),
            node_names: fields.names()?,
            failed: fields.failed("FailedNodes")?,
            unresolvable: fields.failed("FailedAndUnresolvableNodes")?,
            error: fields.text("Error")?,
        })
    }
}

/// Reads a `HostPriorityList`.
pub(super) fn read_scores(text: &[u8]) -> Read<Vec<(String, i64)>> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let hosts = Option::<Vec<&RawValue>>::deserialize(&mut json)?.unwrap_or_default();
    let scores = hosts.into_iter().map(|host| {
        let host = Fields::of(host)?;
        Ok((host.text("Host")?, host.get("Score")?.unwrap_or(0)))
    });
    scores.collect()
}

/// Reads an `ExtenderPreemptionResult`.
pub(super) fn read_victims(text: &[u8]) -> Read<BTreeMap<String, MetaVictims>> {
    let uid = |pod: Fields<'_>| pod.text("UID");
    Ok(Fields::read(text)?.victims("NodeNameToMetaVictims", uid)?.unwrap_or_default())
}

/// Reads the error of an `ExtenderBindingResult`.
pub(super) fn read_error(text: &[u8]) -> Read<String> {
    Fields::read(text)?.text("Error")
}

/// The fields that are read from `ExtenderArgs`.
pub(super) struct ArgsOf<'a> {
    pub(super) pod: &'a RawValue,
    pub(super) names: Vec<String>,
    /// The nodes of these names, if they were sent as objects.
    pub(super) nodes: Option<Vec<&'a RawValue>>,
}

impl<'a> ArgsOf<'a> {
    pub(super) fn read(text: &'a [u8]) -> Read<ArgsOf<'a>> {
        let fields = Fields::read(text)?;
        let pod = pod(&fields)?;
        if let Some(names) = fields.names()? {
            return Ok(ArgsOf { pod, names, nodes: None });
        }
        let missing = || serde_json::Error::custom("NodeNames or Nodes is missing");
        let (names, nodes) = fields.nodes()?.ok_or_else(missing)?.into_iter().unzip();
        Ok(ArgsOf { pod, names, nodes: Some(nodes) })
    }
}

fn pod<'a>(fields: &Fields<'a>) -> Read<&'a RawValue> {
    fields.raw("Pod").ok_or_else(|| serde_json::Error::custom("Pod is missing"))
}

/// Reads `ExtenderPreemptionArgs`: the pod, and the victims on each node.
pub(super) fn read_preemption(text: &[u8]) -> Read<(&RawValue, BTreeMap<String, MetaVictims>)> {
    let fields = Fields::read(text)?;
    let pod = pod(&fields)?;
    let victims = match fields.victims("NodeNameToMetaVictims", |pod| pod.text("UID"))? {
        Some(victims) => Some(victims),
        None => fields.victims("NodeNameToVictims", |pod| {
            pod.get::<Fields<'_>>("metadata")?.unwrap_or_default().text("uid")
        })?,
    };
    let missing = "NodeNameToMetaVictims or NodeNameToVictims is missing";
    Ok((pod, victims.ok_or_else(|| serde_json::Error::custom(missing))?))
}

impl BindingArgs {
    pub(super) fn read(text: &[u8]) -> Read<BindingArgs> {
        let fields = Fields::read(text)?;
        Ok(BindingArgs {
            name: fields.text("PodName")?,
            namespace: fields.text("PodNamespace")?,
            uid: fields.text("PodUID")?,
            node: fields.text("Node")?,
        })
    }
}

/// Returns the names of the resources that a pod's containers and init containers request or limit.
pub(super) fn resources(pod: &RawValue) -> Vec<String> {
    fn names(pod: &RawValue) -> Read<Vec<String>> {
        let spec = Fields::of(pod)?.get::<Fields<'_>>("spec")?.unwrap_or_default();
        let mut names = Vec::new();
        for kind in ["containers", "initContainers"] {
            for container in spec.list(kind)?.unwrap_or_default() {
                let resources = Fields::of(container)?.get::<Fields<'_>>("resources")?;
                let resources = resources.unwrap_or_default();
                for list in ["requests", "limits"] {
                    let list = resources.get::<Fields<'_>>(list)?.unwrap_or_default();
                    names.extend(list.0.into_iter().map(|(name, _)| name.into_owned()));
                }
            }
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

    #[test]
    fn requests_are_written_as_go_writes_them() {
        let (pod, node) = (raw(r#"{"metadata":{}}"#), raw(r#"{"metadata":{"name":"n"}}"#));
        let json = |value: &dyn erased::Json| value.json();
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

    mod erased {
        pub(super) trait Json {
            fn json(&self) -> String;
        }
        impl<T: serde::Serialize> Json for T {
            fn json(&self) -> String {
                serde_json::to_string(self).expect("serializable")
            }
        }
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
            ("{}", &["a".to_owned()][..], true)
        );
        let text = br#"{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}}]}}"#;
        let nodes = ArgsOf::read(text).expect("read");
        assert_eq!((&*nodes.names, nodes.nodes.expect("nodes").len()), (&["a".to_owned()][..], 1));
        for (text, why) in [
            (r#"{"NodeNames":[]}"#, "Pod is missing"),
            (r#"{"Pod":null,"NodeNames":[]}"#, "Pod is missing"),
            (r#"{"Pod":{}}"#, "NodeNames or Nodes is missing"),
        ] {
            let error = ArgsOf::read(text.as_bytes()).err().expect("refused");
            assert_eq!(error.to_string(), why);
        }
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
