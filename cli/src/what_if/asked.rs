//! Questions about a cluster that stays in memory, for [`crate::serve`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{CommandFactory, Parser};
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
        let command = Fields::command();
        let known = || command.get_arguments().map(|it| it.get_id().as_str());
        let mut arguments = Vec::new();
        for (name, value) in fields {
            if !known().any(|it| it == name) {
                let near = did_you_mean(name, known());
                return Err(format!("a change has no field {:?}: {near}", shortened(name, 60)));
            }
            let option = name.replace('_', "-");
            let is_list = value.is_array();
            let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            for value in values {
                match value {
                    Value::Null | Value::Bool(false) if !is_list => {}
                    Value::Bool(true) if !is_list => arguments.push(format!("--{option}")),
                    Value::String(text) => arguments.push(format!("--{option}={text}")),
                    Value::Number(number) => arguments.push(format!("--{option}={number}")),
                    _ => return Err(format!("{name} must be a text or a list of texts")),
                }
            }
        }
        let parsed = Fields::try_parse_from(arguments);
        let mut change = parsed.map_err(|error| first_paragraph(&error.to_string()))?.change;
        change.add.iter_mut().for_each(Copies::refuse_files);
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

/// The message of an error of the parser, without the usage of a command.
fn first_paragraph(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let first = text.split("\n\n").next().unwrap_or(text);
    first.split_whitespace().collect::<Vec<_>>().join(" ")
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
            (json!({ "drain=n1 --x": true }), "has no field"),
            (json!({ "drian": "n1" }), "did you mean drain?"),
            (json!({ "max_surge": 2 }), "were not provided: --upgrade"),
            (json!({ "consolidate": true, "time_limit": 61 }), "limited to 60"),
            (json!({ "drain": {} }), "must be a text"),
            (json!({ "drain": [true] }), "must be a text"),
            (json!({ "scale": ["web"] }), "invalid value 'web'"),
            (json!({ "add": ["20000xn1"] }), "limited to 10000"),
            (json!({ "scale": ["deployment/web=20000"] }), "limited to 10000"),
            (json!({ "drain": ["n1"], "selector": "a=b" }), "cannot be used with"),
            (json!({ "help": true }), "has no field"),
        ] {
            let refused = parse(fields).expect_err("refused");
            assert!(refused.contains(what), "{refused}");
            assert!(!refused.contains("Usage"), "{refused}");
        }
    }
}
