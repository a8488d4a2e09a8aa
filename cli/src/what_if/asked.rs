//! Questions about a cluster that stays in memory, for [`crate::serve`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};
use portolan::cache::Snapshot;
use portolan::model::{Name, Pod};
use portolan_k8s::PodController;
use serde_json::{Map, Value, json};

use super::each::Harm;
use super::nodes::Copies;
use super::question::{Answered, Like, Question};
use super::start::{Base, Without};
use super::{Change, Checkpoint, report, unsimulated};
use crate::cluster::{Added, Contents};
use crate::error::CommandError;
use crate::names::did_you_mean;
use crate::policy::Rules;
use crate::targets::Scale;
use crate::text::shortened;

/// The most nodes that a JSON object adds, and the most pods of the controllers that it scales.
const MOST_IN_JSON: usize = 10_000;

/// The longest search of a consolidation that a JSON object asks for, in seconds.
const LONGEST_SEARCH: f64 = 60.0;

/// A parser of the options of a change alone.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Fields {
    #[command(flatten)]
    change: Change,
}

/// A cluster, and the rules by which questions about it are answered.
pub(crate) struct Asked<'q>(Base<'q>);

impl<'q> Asked<'q> {
    /// Asks about the cluster at a checkpoint. Simulations fail soon after `is_wanted` was cleared.
    pub(crate) fn new(
        rules: &'q Rules,
        contents: &'q Contents,
        from: &Arc<Checkpoint>,
        is_wanted: &Arc<AtomicBool>,
    ) -> Asked<'q> {
        let (from, is_wanted) = (from.clone(), is_wanted.clone());
        Asked(Base { rules, contents, from, is_wanted, on_failure: &|_, _| {} })
    }

    /// Simulates a change. Returns the answer for programs with its first line, and where simulations of the cluster after
    /// the change begin.
    ///
    /// The failures of `each` are passed to `tell` in the order in which their simulations end.
    pub(crate) fn change(
        &self,
        change: &Change,
        tell: &(dyn Fn(Value) + Sync),
    ) -> Result<(Value, Checkpoint), CommandError> {
        let on_failure = |harm: &Harm, of: usize| {
            tell(json!({ "failure": harm, "of": of }));
        };
        let base = &Base { on_failure: &on_failure, ..self.0.clone() };
        let question = Question { base, change, without: &base.without_change()?.outcomes };
        let Answered { answer, world, .. } = question.answer(Added::default(), None, None)?;
        let mut fields = report::json(&answer);
        fields["headline"] = json!(answer.headline());
        Ok((fields, Checkpoint::after(&world, &base.from)?))
    }

    /// The cluster after the pending pods were tried.
    pub(crate) fn settled(&self) -> Result<Checkpoint, CommandError> {
        let Asked(base) = self;
        let mut start = base.start(None)?;
        start.settle(base)?;
        Checkpoint::after(&start.world, &base.from)
    }

    /// Counts more copies of a pod, as `--fit-more` does: up to `limit` if they are placed one by one.
    pub(crate) fn room(&self, pod: Pod, limit: usize) -> Result<Room, CommandError> {
        let Asked(base) = self;
        let Without { clusters: [now, later], profiles, .. } = base.without_change()?;
        let mut not_simulated = unsimulated::controllers(base.contents.controllers());
        not_simulated.extend(unsimulated::admission(base.contents.admission()));
        not_simulated.extend(unsimulated::unresponsive(&base.from.cluster, &[]));
        not_simulated.extend(unsimulated::copies(&pod, later));
        let like = Like { pod, claims: base.from.claims.clone(), limit };
        let counted = like.count(profiles, [now, later]);
        let (now, nodes) = counted.map_or_else(Default::default, |it| (it.now, it.nodes));
        Ok(Room { now, nodes, cluster: later.clone(), not_simulated })
    }
}

/// The copies of a pod that fit.
pub(crate) struct Room {
    /// Their number now.
    pub(crate) now: usize,
    /// Their number on each node when pods that are being deleted have ended.
    pub(crate) nodes: BTreeMap<Name, usize>,
    /// The cluster at that moment.
    pub(crate) cluster: Arc<Snapshot>,
    pub(crate) not_simulated: Vec<String>,
}

impl Change {
    /// Whether the question leaves the cluster as it is.
    pub(crate) fn is_only_a_question(&self) -> bool {
        self.each.is_some() || self.consolidate
    }

    /// The contents of the cluster after the change. O(controllers).
    pub(crate) fn contents(&self, before: &Contents) -> Contents {
        match self.remove.is_empty() && self.scale.is_empty() {
            true => before.clone(),
            false => before.with_controllers(self.controllers(before.controllers())),
        }
    }

    fn controllers(&self, before: &[PodController]) -> Vec<PodController> {
        let namespace = self.namespace.as_deref();
        let mut left: Vec<PodController> =
            before.iter().filter(|it| self.keeps(it)).cloned().collect();
        for controller in &mut left {
            let is_meant = |scale: &&Scale| {
                scale.of.is_of(controller)
                    && namespace.is_none_or(|of| *of == *controller.namespace)
            };
            if let Some(scale) = self.scale.iter().find(is_meant) {
                controller.replicas = scale.replicas;
            }
        }
        left
    }

    /// Parses a JSON object. Its fields have the names of the options with underscores, and the same values: a text, or
    /// a list of texts, or `true` for an option without a value. Names of files are not accepted.
    pub(crate) fn from_json(fields: &Map<String, Value>) -> Result<Change, String> {
        let command = command();
        let mut arguments = Vec::new();
        for (name, value) in fields {
            let Some(field) = command.get_arguments().find(|it| it.get_id() == name.as_str())
            else {
                let known = command.get_arguments().map(|it| it.get_id().as_str());
                let near = did_you_mean(name, known);
                return Err(format!("a change has no field {:?}: {near}", shortened(name, 60)));
            };
            let option = name.replace('_', "-");
            let (form, values) = match (field.get_action(), value) {
                (_, Value::Null) => continue,
                (ArgAction::SetTrue, Value::Bool(is_set)) => {
                    arguments.extend(is_set.then(|| format!("--{option}")));
                    continue;
                }
                (ArgAction::SetTrue, _) => ("true or false", &[Value::Null][..]),
                (ArgAction::Append, Value::Array(values)) => ("a list of texts", &values[..]),
                (ArgAction::Append, value) => {
                    ("a text or a list of texts", std::slice::from_ref(value))
                }
                (_, value) => ("a text or a number", std::slice::from_ref(value)),
            };
            for value in values {
                match value {
                    Value::String(text) => arguments.push(format!("--{option}={text}")),
                    Value::Number(number) => arguments.push(format!("--{option}={number}")),
                    _ => return Err(format!("{name} must be {form}")),
                }
            }
        }
        let parsed = command.try_get_matches_from(arguments);
        let parsed = parsed.and_then(|mut parsed| Fields::from_arg_matches_mut(&mut parsed));
        let Fields { change } = parsed.map_err(|error| by_fields(&refusal(&error)))?;
        let added: usize = change.add.iter().map(Copies::count).sum();
        let scaled: usize = change.scale.iter().map(|scale| scale.replicas).sum();
        if added > MOST_IN_JSON || scaled > MOST_IN_JSON {
            return Err(format!("add and scale are limited to {MOST_IN_JSON} nodes and pods"));
        }
        if change.time_limit > LONGEST_SEARCH {
            return Err(format!("time_limit is limited to {LONGEST_SEARCH} seconds"));
        }
        Ok(change)
    }
}

impl Change {
    /// The schema of the JSON object.
    pub(crate) fn schema() -> Value {
        let text = json!({ "type": "string" });
        let command = command();
        let fields = command.get_arguments().map(|field| {
            let choices = field.get_possible_values();
            let choices: Vec<&str> = choices.iter().map(|choice| choice.get_name()).collect();
            let mut schema = match field.get_action() {
                ArgAction::SetTrue => json!({ "type": "boolean" }),
                ArgAction::Append => json!({ "anyOf": [text, { "type": "array", "items": text }] }),
                _ if !choices.is_empty() => json!({ "enum": choices }),
                // The options with defaults are numbers, or numbers with a unit.
                _ if !field.get_default_values().is_empty() => {
                    json!({ "type": ["string", "number"] })
                }
                _ => text.clone(),
            };
            let help = field.get_help().map(ToString::to_string).unwrap_or_default();
            schema["description"] = json!(by_fields(&help));
            (field.get_id().to_string(), schema)
        });
        let description = format!(
            "The options of portolan what-if, with underscores. add and scale are limited to {MOST_IN_JSON} nodes and \
             pods, time_limit to {LONGEST_SEARCH} seconds."
        );
        json!({
            "type": "object",
            "properties": fields.collect::<Map<_, _>>(),
            "additionalProperties": false,
            "description": description,
        })
    }
}

/// The options of a change as fields: files are the server's.
fn command() -> clap::Command {
    const ADD: &str = "Add COUNT copies of a node in the cluster: 3xn1 adds three copies of n1.";
    Fields::command().mut_arg("add", |it| it.value_parser(Copies::of_cluster).help(ADD))
}

/// The message of an error of the parser, in the form of later errors of a change.
fn refusal(error: &clap::Error) -> String {
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    // An option, without the name of its value.
    let option = |kind| of(kind).split(" <").next().unwrap_or_default().to_owned();
    let invalid = |what: &str| {
        let value = shortened(&of(ContextKind::InvalidValue), 60);
        format!("{} {value}: {what}", option(ContextKind::InvalidArg))
    };
    match (error.kind(), std::error::Error::source(error)) {
        (ErrorKind::ArgumentConflict, _) => {
            let (one, other) = (option(ContextKind::InvalidArg), option(ContextKind::PriorArg));
            format!("{one} and {other} exclude each other")
        }
        (ErrorKind::MissingRequiredArgument, _) => {
            format!("{} is missing", option(ContextKind::InvalidArg))
        }
        (ErrorKind::InvalidValue, _) => {
            invalid(&format!("pass one of {}", of(ContextKind::ValidValue)))
        }
        (ErrorKind::ValueValidation, Some(source)) => invalid(&source.to_string()),
        _ => error.kind().to_string(),
    }
}

/// The fields of other requests that are options of the program.
const OTHERS: [&str; 3] = ["pod", "ignore_unknown_plugins", "ignore_extenders"];

/// An error of the program as an error of a request: it names fields in place of options.
pub(crate) fn by_fields(text: &str) -> String {
    let command = command();
    let mut parts = text.split("--");
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|of: char| !of.is_ascii_lowercase() && of != '-');
        let (option, rest) = part.split_at(end.unwrap_or(part.len()));
        let field = option.replace('-', "_");
        let is_command = !named.matches('`').count().is_multiple_of(2);
        let is_field = !is_command && (named.is_empty() || named.ends_with(' '));
        let mut known = command.get_arguments().map(|it| it.get_id().as_str()).chain(OTHERS);
        if is_field && known.any(|it| it == field) {
            named.push_str(&field);
        } else {
            named.extend(["--", option]);
        }
        named.push_str(rest);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(fields: Value) -> Result<Change, String> {
        Change::from_json(fields.as_object().expect("an object"))
    }

    #[test]
    fn the_fields_are_the_options() {
        let change = parse(json!({
            "drain": ["n1", "node/n2"], "add": "3xn1", "scale": ["deployment/web=5"],
            "force": true, "delete_emptydir_data": false, "max_surge": 2, "upgrade": "pool=a",
        }));
        let change = change.expect("valid");
        assert_eq!(change.drain, ["n1", "n2"]);
        assert_eq!((change.add.len(), change.scale[0].replicas), (1, 5));
        assert!(change.force && !change.delete_emptydir_data);
    }

    #[test]
    fn other_fields_and_values_are_refused() {
        for (fields, what) in [
            (json!({ "cluster": "/etc/passwd" }), "has no field \"cluster\""),
            (json!({ "pods": ["/etc/passwd"] }), "has no field"),
            (json!({ "drain=n1 -x": true }), "has no field"),
            (json!({ "drian": "n1" }), "did you mean drain?"),
            (json!({ "max_surge": 2 }), "upgrade is missing"),
            (json!({ "consolidate": true, "time_limit": 61 }), "limited to 60"),
            (json!({ "drain": {} }), "drain must be a text or a list of texts"),
            (json!({ "drain": [true] }), "drain must be a list of texts"),
            (json!({ "upgrade": ["all"] }), "upgrade must be a text"),
            (json!({ "force": 1 }), "force must be true or false"),
            (json!({ "drain": "a/b" }), "drain a/b: pass the name of a node"),
            (json!({ "drain": "a=b" }), "pass selector \"a=b\""),
            (json!({ "each": "rack" }), "each rack: pass one of node, zone"),
            (json!({ "add": ["n1"] }), "add n1: pass COUNTxNODE"),
            (json!({ "add": ["n.yaml"] }), "add n.yaml: pass COUNTxNODE"),
            (json!({ "scale": ["web"] }), "scale web: pass KIND/NAME=N"),
            (json!({ "add": ["20000xn1"] }), "limited to 10000"),
            (json!({ "scale": ["deployment/web=20000"] }), "limited to 10000"),
            (json!({ "drain": ["n1"], "selector": "a=b" }), "drain and selector exclude"),
            (json!({ "help": true }), "has no field"),
        ] {
            let refused = parse(fields).expect_err("refused");
            assert!(refused.contains(what), "{refused}");
            assert!(!refused.contains("--") && !refused.contains("Usage"), "{refused}");
        }
    }

    #[test]
    fn errors_name_fields_in_place_of_their_options_only() {
        for (text, named) in [
            ("--fail-node n1: --max-surge and --pod", "fail_node n1: max_surge and pod"),
            ("raise --max-pods, or add a--drain", "raise --max-pods, or add a--drain"),
            ("-- --", "-- --"),
            ("--drain, as `kubectl --drain`", "drain, as `kubectl --drain`"),
        ] {
            assert_eq!(by_fields(text), named);
        }
    }
}
