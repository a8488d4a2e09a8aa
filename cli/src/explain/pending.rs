//! `portolan explain --pending`: all pending pods, by controller and cause.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use portolan::cache::Cluster;
use portolan::model::{Name, Pod, Template, Uid, VolumeSource};
use portolan_k8s::Scales;
use serde_json::{Value, json};

use super::schedulers::{Schedulers, Why};
use super::{Form, Inquiry, Report, export, refusal};
use crate::cluster::Loaded;
use crate::error::CommandError;
use crate::intake::Intake;
use crate::output::cell;
use crate::table::{plain, row};
use crate::text::{count, first_names, line};

/// The version of the JSON output: it increases when a field changes its meaning or is removed.
const VERSION: u32 = 1;

/// Why pods are pending, or on how many nodes each of them fits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Fits(usize),
    Rejected(String),
}

/// Pending pods of one controller and one cause, with the same text.
struct Group {
    /// The kind, namespace and name of the controller, or the pod's own.
    of: String,
    cause: Cause,
    pods: Vec<Name>,
}

/// Reports the groups.
pub(super) fn report(inquiry: Inquiry<'_>, loaded: &Loaded) -> Result<Report, CommandError> {
    let Loaded { contents, cluster, pending, .. } = loaded;
    let schedulers = Schedulers::new(inquiry, cluster.clone())?;
    schedulers.prepare(cluster, pending.iter());
    let is_meant = |pod: &&Pod| inquiry.namespace.is_none_or(|it| **pod.namespace() == *it);
    let pending = pending.iter().filter(is_meant);
    let scales = contents.scales();
    let groups = groups(&schedulers, cluster, scales, pending, &refused(loaded));
    let notes = [&*contents.notes, &*schedulers.notes].concat();
    let text = |form| match form {
        Form::Table => Ok(table(&groups, &notes)),
        Form::Json => Ok(json(&groups, &notes, &contents.intake).to_string()),
        Form::Csv => csv(&groups),
    };
    let first = || groups.iter().filter_map(|group| group.pods.first());
    inquiry.report(|| first().map(ToString::to_string).collect(), text, || headline(&groups))
}

/// Why the API server refuses to create pods that controllers lack. Each pod is charged before the next.
fn refused(loaded: &Loaded) -> HashMap<Uid, String> {
    let mut admission = loaded.contents.admission().clone();
    let created = loaded.contents.created();
    let lacking = loaded.pending.iter().filter(|pod| created.contains(&pod.uid));
    lacking
        .filter_map(|pod| Some((pod.uid.clone(), refusal(&admission.admit(pod).err()?))))
        .collect()
}

/// The groups, those with most pods first. Pods of one template are evaluated once. O(templates × nodes + pods).
fn groups<'p>(
    schedulers: &Schedulers,
    cluster: &Cluster,
    scales: &Scales,
    pending: impl Iterator<Item = &'p Pod>,
    refused: &HashMap<Uid, String>,
) -> Vec<Group> {
    let mut known: HashMap<Arc<Template>, Cause> = HashMap::new();
    let mut groups: BTreeMap<(String, Cause), Vec<Name>> = BTreeMap::new();
    for pod in pending {
        let is_ephemeral = |it: &VolumeSource| matches!(it, VolumeSource::Ephemeral { .. });
        let refusal = refused.get(&pod.uid);
        let is_like_others = refusal.is_none()
            && pod.deletion_time.is_none()
            && pod.nominated_node_name.is_none()
            && !pod.template.volumes.iter().any(is_ephemeral);
        let found = known.get(&pod.template).filter(|_| is_like_others).cloned();
        let cause = match (refusal, found) {
            (Some(why), _) => Cause::Rejected(why.clone()),
            (None, found) => found.unwrap_or_else(|| cause(schedulers, cluster, pod)),
        };
        if is_like_others {
            known.entry(pod.template.clone()).or_insert_with(|| cause.clone());
        }
        let of = match scales.scaled(&pod.template) {
            Some((kind, namespace, name)) => format!("{kind} {namespace}/{name}"),
            None => format!("Pod {}", pod.key()),
        };
        groups.entry((of, cause)).or_default().push(pod.key());
    }
    let group = |((of, cause), pods)| Group { of, cause, pods };
    let mut groups: Vec<Group> = groups.into_iter().map(group).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.pods.len()));
    groups
}

fn cause(schedulers: &Schedulers, cluster: &Cluster, pod: &Pod) -> Cause {
    match schedulers.why(cluster, pod) {
        Some(Why { message, .. }) => Cause::Rejected(message),
        None => {
            let fits = schedulers.framework_of(pod).map(|framework| {
                let verdicts = framework.evaluate(cluster, pod).nodes;
                verdicts.values().filter(|verdict| verdict.status.is_none()).count()
            });
            Cause::Fits(fits.unwrap_or(0))
        }
    }
}

impl Group {
    fn fits_on(&self) -> usize {
        match self.cause {
            Cause::Fits(nodes) => nodes,
            Cause::Rejected(_) => 0,
        }
    }

    fn message(&self) -> Option<&str> {
        match &self.cause {
            Cause::Fits(_) => None,
            Cause::Rejected(message) => Some(message),
        }
    }

    fn text(&self) -> String {
        match &self.cause {
            Cause::Fits(nodes) => format!("fits on {}", count(*nodes, "node")),
            Cause::Rejected(message) => message.clone(),
        }
    }
}

fn headline(groups: &[Group]) -> String {
    let of = |is: &dyn Fn(&Group) -> bool| -> usize {
        groups.iter().filter(|group| is(group)).map(|group| group.pods.len()).sum()
    };
    let (all, fit) = (of(&|_| true), of(&|group| group.message().is_none()));
    match (all, fit) {
        (0, _) => "no pods are pending".to_owned(),
        (_, 0) => format!("{} pending, none of which fits", count(all, "pod")),
        _ if fit == all => format!("{} pending, each of which fits alone", count(all, "pod")),
        _ => {
            let fits =
                if fit == 1 { "1 fits alone".to_owned() } else { format!("{fit} fit alone") };
            format!("{} pending, of which {fits}", count(all, "pod"))
        }
    }
}

fn table(groups: &[Group], notes: &[String]) -> String {
    let mut text = headline(groups);
    text.push('\n');
    if !groups.is_empty() {
        let mut table = plain(["pods", "of", "examples", "cause"]);
        for group in groups {
            table.add_row(row([
                group.pods.len().to_string(),
                group.of.clone(),
                first_names(&group.pods),
                group.text(),
            ]));
        }
        text.push('\n');
        text.push_str(&table.trim_fmt());
        text.push('\n');
    }
    for note in notes {
        text.push_str("\nnote: ");
        text.push_str(&line(note));
    }
    text.trim_end().to_owned()
}

fn json(groups: &[Group], notes: &[String], intake: &Intake) -> Value {
    let each = groups.iter().map(|group| {
        json!({
            "of": group.of,
            "pods": group.pods.iter().map(|pod| &**pod).collect::<Vec<_>>(),
            "fits_on": group.fits_on(),
            "message": group.message(),
        })
    });
    json!({
        "version": VERSION,
        "pending": groups.iter().map(|group| group.pods.len()).sum::<usize>(),
        "groups": each.collect::<Vec<_>>(),
        "notes": notes,
        "input": intake.json(),
    })
}

fn csv(groups: &[Group]) -> Result<String, CommandError> {
    let header = ["pods", "of", "fits_on", "message"].map(str::to_owned).to_vec();
    let rows = groups.iter().map(|group| {
        let message = cell(group.message().unwrap_or_default()).into_owned();
        let (pods, of) = (group.pods.len().to_string(), cell(&group.of).into_owned());
        vec![pods, of, group.fits_on().to_string(), message]
    });
    export::rows(std::iter::once(header).chain(rows))
}
