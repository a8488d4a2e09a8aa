//! The answer to a question, and the moments at which it holds.

use std::collections::{BTreeMap, HashSet};

use portolan::model::{Name, Pod, Uid};
use serde::Serialize;

use crate::intake::Intake;
use crate::text::{count, first_names, line};

use super::consolidate::Consolidation;
use super::difference::{Effects, Lack, Row, own};
use super::drain::BudgetUse;
use super::each::Failures;
use super::rollout::Rollout;
use super::upgrade::Upgrade;

/// The result of the simulation.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) nodes: usize,
    pub(super) added: usize,
    /// Pods on new nodes whose volume limits are not known, with volumes whose driver has a limit on other nodes.
    pub(super) unlimited: Vec<Pod>,
    pub(super) drained: Vec<Drained>,
    /// The effects of the change when it has settled.
    pub(super) now: Effects,
    /// The effects at the second moment, if there is one.
    pub(super) later: Option<(Later, Effects)>,
    /// Whether lost pods are accepted.
    pub(super) is_loss_accepted: bool,
    /// Pods that the change deletes, and their nodes.
    pub(super) removed: Vec<(Pod, Option<Name>)>,
    pub(super) failed: Vec<Name>,
    pub(super) scaled: Vec<Scaled>,
    pub(super) rollouts: Vec<Rollout>,
    /// Whether the cluster has all pods of the controllers of the question.
    pub(super) is_idle: bool,
    /// Parts of the input that change pods and are not simulated.
    pub(super) unsimulated: Vec<String>,
    pub(super) upgrade: Option<Upgrade>,
    /// The budgets that drains waited for or were blocked by.
    pub(super) budgets: BTreeMap<String, BudgetUse>,
    /// The options that `kubectl drain` needs for the same drains.
    pub(super) kubectl_flags: Vec<&'static str>,
    pub(super) fit_more: Option<FitMore>,
    /// The failures of each node or zone.
    pub(super) each: Option<Failures>,
    pub(super) consolidated: Option<Consolidation>,
    pub(super) notes: Vec<String>,
    /// The objects that were read and ignored.
    pub(super) intake: Intake,
}

/// The second moment of an answer: something that was ending when the change had settled has ended.
///
/// Until then, pods that are being deleted still run, and failed nodes are unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Later {
    /// The number of pods that were being deleted.
    pub(super) terminating: usize,
    /// The number of failed nodes, whose Node objects are deleted.
    pub(super) failed: usize,
}

/// A controller with another number of pods.
#[derive(Serialize)]
pub(super) struct Scaled {
    /// Kind, namespace and name.
    pub(super) controller: String,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// How many more copies of a pod fit.
pub(super) struct FitMore {
    pub(super) pod: Name,
    pub(super) now: usize,
    /// How many copies fit on each node at the second moment.
    pub(super) nodes: BTreeMap<Name, usize>,
}

/// A drained node.
pub(super) struct Drained {
    pub(super) node: Name,
    /// How often the drain waited until replacements of evicted pods were placed, because a
    /// budget allowed no further eviction.
    pub(super) waits: usize,
}

impl Later {
    /// The clause for the moment.
    pub(super) fn when(self) -> String {
        match self {
            Later { failed: 0, terminating } => {
                let have = if terminating == 1 { "has" } else { "have" };
                format!("when {} {have} ended", count(terminating, "terminating pod"))
            }
            Later { failed: 1, .. } => "after the Node is deleted".to_owned(),
            Later { .. } => "after the Nodes are deleted".to_owned(),
        }
    }

    /// Whether pods have no node because nodes have failed.
    fn is_outage(self) -> bool {
        self.failed > 0
    }
}

impl Answer {
    /// The effects at the last moment.
    pub(super) fn last(&self) -> &Effects {
        self.later.as_ref().map_or(&self.now, |(_, effects)| effects)
    }

    /// Whether the change leaves no pod without a node, loses none and is not blocked. Pods may wait for pods that are
    /// being deleted, but not for the end of an outage.
    pub(super) fn is_ok(&self) -> bool {
        let is_ok = |effects: &Effects| {
            let is_lossless = self.is_loss_accepted || own(&effects.lost).next().is_none();
            effects.blocked.is_empty() && own(&effects.unplaced).next().is_none() && is_lossless
        };
        if self.rollouts.iter().any(Rollout::hangs) {
            return false;
        }
        let is_outage = self.later.as_ref().is_some_and(|(later, _)| later.is_outage());
        let is_each_ok = self.each.as_ref().is_none_or(Failures::is_ok);
        is_ok(self.last()) && (!is_outage || is_ok(&self.now)) && is_each_ok
    }

    /// The pods that the change leaves without a node until the second moment.
    pub(super) fn waiting(&self) -> Vec<&Row> {
        let Some((_, later)) = &self.later else { return Vec::new() };
        let still: HashSet<&Uid> = own(&later.unplaced).map(|row| &row.pod.uid).collect();
        own(&self.now.unplaced).filter(|row| !still.contains(&row.pod.uid)).collect()
    }

    /// The first line: what becomes of upgrades and rollouts, of the pods, what else was asked, and what is not
    /// simulated.
    pub(super) fn headline(&self) -> String {
        let problems: Vec<String> = self.rollouts.iter().filter_map(Rollout::problem).collect();
        let findings = self.findings();
        let pods = Some(self.pods()).filter(|pods| {
            let is_harmless = pods.starts_with(ALL) && self.unlimited.is_empty();
            // The pods that a hanging rollout has not reached were not tried.
            let hangs = self.rollouts.iter().any(Rollout::hangs);
            let is_untried = !problems.is_empty() && own(&self.last().placed).next().is_none();
            !is_harmless || (findings.is_empty() && !hangs && !is_untried)
        });
        let pods = pods.map(|pods| if self.is_idle { IDLE.to_owned() } else { pods });
        let upgrade = self.upgrade.as_ref().map(Upgrade::headline);
        let clauses = upgrade.into_iter().chain(problems).chain(pods).chain(findings);
        let mut clauses: Vec<String> = clauses.collect();
        if !self.unsimulated.is_empty() {
            clauses.push(format!("not simulated: {}", first_names(&self.unsimulated)));
        }
        clauses.join("; ")
    }

    /// The answers to questions that are not about the pods of the cluster. If the change does no harm, they are all
    /// that was asked.
    fn findings(&self) -> Vec<String> {
        let more = self.fit_more.as_ref().map(|FitMore { pod, now, nodes }| {
            let later = nodes.values().sum();
            let when = match self.later {
                Some((at, _)) if *now != later => format!(" {} ({now} now)", at.when()),
                _ => String::new(),
            };
            format!(
                "the cluster has room for {} like {}{when}",
                count(later, "more pod"),
                line(pod)
            )
        });
        let when = self.later.as_ref().map(|(at, _)| at.when());
        let consolidated = self.consolidated.as_ref().map(|it| it.headline(when.as_deref()));
        let each = self.each.as_ref().map(Failures::headline);
        each.into_iter().chain(more).chain(consolidated).collect()
    }

    /// The pods that the change harms, or that it harms none.
    fn pods(&self) -> String {
        let text = |effects: &Effects| {
            problems(effects).unwrap_or_else(|| format!("{ALL}{}", exceptions(effects)))
        };
        let (now, then) = (text(&self.now), text(self.last()));
        let mut line = match self.later {
            Some((later, ref effects)) if now != then => {
                let when = later.when();
                match problems(effects) {
                    None if !later.is_outage() => format!("{ALL} {when}{}", exceptions(effects)),
                    _ if later.is_outage() => format!("{now} during the outage; {when} {then}"),
                    _ => format!("{now}; {when} {then}"),
                }
            }
            _ => then,
        };
        if !self.unlimited.is_empty() {
            let pods = count(self.unlimited.len(), "pod");
            line.push_str(&format!("; the volume limits of added nodes are unknown for {pods}"));
        }
        line
    }
}

const ALL: &str = "all pods can be placed";
const IDLE: &str = "no pods to place: the cluster has all pods of these controllers";

/// The pods that the change harms.
fn problems(effects: &Effects) -> Option<String> {
    let lacking = |lack: Lack| {
        let rows = own(&effects.unplaced).filter(|row| row.lack == lack);
        (rows.count(), lack.participle())
    };
    let parts = [
        (effects.blocked.len(), "blocked"),
        lacking(Lack::Node),
        lacking(Lack::Creation),
        (own(&effects.lost).count(), "lost"),
        lacking(Lack::Profile),
    ];
    let parts = parts.into_iter().filter(|(pods, _)| *pods > 0);
    let parts: Vec<String> =
        parts.map(|(pods, what)| format!("{} {what}", count(pods, "pod"))).collect();
    let jobs =
        (effects.failed_jobs > 0).then(|| format!("{} failed", count(effects.failed_jobs, "job")));
    let parts: Vec<String> = parts.into_iter().chain(jobs).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The pods that have no node in any case.
fn exceptions(effects: &Effects) -> String {
    let preempted = effects.unplaced.iter().filter(|row| row.without_change).count();
    let lost = effects.lost.iter().filter(|row| row.without_change).count();
    let parts = [(preempted, "preempted"), (lost, "lost"), (effects.pending.len(), "pending")];
    let parts = parts.into_iter().filter(|(pods, _)| *pods > 0).map(|(pods, what)| match pods {
        1 => format!("1 pod that is also {what}"),
        _ => format!("{pods} pods that are also {what}"),
    });
    let parts: Vec<String> = parts.collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!(", except {} without the change", parts.join(" and ")),
    }
}
