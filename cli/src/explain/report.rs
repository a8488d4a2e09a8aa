//! The explanation for people: the answer, and tables.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use portolan::cache::NodeInfo;
use portolan::plugin::{Status, Verdict};
use rayon::prelude::*;
use serde::Serialize;

use super::edit;
use super::schedulers::Cause;
use super::trial::RejectedNodes;
use super::{Explained, INSUFFICIENT, Placed, Preemption};
use crate::table::{plain, row};
use crate::text::{Rounding, amounts, count, first_names, line};

/// Maximum number of nodes listed in a table.
pub(super) const LISTED: usize = 10;
/// Maximum number of changes listed in a table.
const SHOWN: usize = 10;

/// The shortfall of a resource on the nodes of a group, in its smallest unit.
#[derive(Serialize)]
pub(super) struct Shortfall<'r> {
    pub(super) resource: &'r str,
    pub(super) least: i64,
    pub(super) median: i64,
    pub(super) most: i64,
}

impl fmt::Display for Shortfall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortfall { resource, least, median, most } = *self;
        let [low, middle, high] = amounts(resource, [least, median, most], Rounding::Up);
        match least == most {
            true => write!(f, "{resource} short by {low}"),
            false => {
                write!(f, "{resource} short by at least {low}, at most {high}, median {middle}")
            }
        }
    }
}

/// The shortfall on the nodes, if the reason is an insufficient resource.
pub(super) fn shortfall<'r>(
    explained: &Explained<'_>,
    reason: &'r str,
    nodes: &[NodeInfo<'_>],
) -> Option<Shortfall<'r>> {
    let resource_name = reason.strip_prefix(INSUFFICIENT)?;
    let wanted = explained.trial.requested(resource_name);
    let free = nodes.par_iter().map(|node| explained.trial.free(resource_name, *node));
    let mut short: Vec<i64> = free.map(|free| wanted.saturating_sub(free)).collect();
    short.sort_unstable();
    let (least, most) = (*short.first()?, *short.last()?);
    Some(Shortfall { resource: resource_name, least, median: short[short.len() / 2], most })
}

/// The nodes that a plugin rejects for a reason.
#[derive(Default)]
pub(super) struct Group<'e> {
    /// Sorted by name.
    pub(super) nodes: Vec<NodeInfo<'e>>,
    /// The number of nodes that no other plugin rejects.
    pub(super) alone: usize,
}

/// The nodes by reason, plugin and code. A node is in the groups of all plugins that reject it.
pub(super) fn by_reason<'e>(
    rejected: &'e [RejectedNodes<'_>],
) -> BTreeMap<(&'e str, &'static str, &'static str), Group<'e>> {
    let mut groups: BTreeMap<_, Group<'_>> = BTreeMap::new();
    for RejectedNodes { statuses, nodes } in rejected {
        for status in statuses {
            for reason in &status.reasons {
                let key = (&**reason, status.plugin, status.code.as_str());
                let group = groups.entry(key).or_default();
                group.nodes.extend(nodes);
                group.alone += if statuses.len() == 1 { nodes.len() } else { 0 };
            }
        }
    }
    for group in groups.values_mut() {
        group.nodes.sort_by(|one, other| one.name().cmp(other.name()));
    }
    groups
}

pub(super) fn fits_on(explained: &Explained<'_>) -> usize {
    let verdicts = explained.evaluation.nodes.values();
    verdicts.filter(|verdict| verdict.status.is_none()).count()
}

/// The nodes that accept the pod, of those that were evaluated.
fn fits(explained: &Explained<'_>) -> String {
    let nodes = count(explained.evaluation.nodes.len(), "node");
    format!("fits on {} of {nodes}", fits_on(explained))
}

/// The message of the pod's condition, or why the pod could not be evaluated.
pub(super) fn message(explained: &Explained<'_>) -> Option<String> {
    let failed = explained.evaluation.failed.as_ref().map(Status::to_string);
    failed.or_else(|| explained.why.as_ref().map(|why| why.message.clone()))
}

/// What preemption would do for the pod.
fn preemption(preemption: &Preemption) -> String {
    let Preemption { node, victims, violations } = preemption;
    let (terminating, evicted): (Vec<_>, Vec<_>) =
        victims.iter().partition(|victim| victim.deletion_time.is_some());
    let budgets = match violations {
        0 => String::new(),
        some => format!(" ({} would violate a disruption budget)", count(*some, "eviction")),
    };
    let has = if terminating.len() == 1 { "has" } else { "have" };
    let wait = format!("frees {node} when {} {has} terminated", edit::names(terminating.clone()));
    let evict = format!(
        "preemption would evict {} from node {node}{budgets}",
        edit::names(evicted.clone())
    );
    match (terminating.is_empty(), evicted.is_empty()) {
        (_, true) => format!("preemption {wait}"),
        (true, _) => evict,
        (false, _) => format!("{evict}, and {wait}"),
    }
}

/// The answer in one line.
pub(super) fn headline(explained: &Explained<'_>) -> String {
    let fits = fits(explained);
    if let Some(why) = &explained.never_runs {
        return format!(
            "{why}; as if it were pending: {}",
            not_evaluated(explained).unwrap_or(fits)
        );
    }
    if let Some(Placed { node, has_started, is_deleting }) = &explained.placed {
        let state = match (is_deleting, has_started) {
            (true, _) => "is being deleted on",
            (false, true) => "runs on",
            (false, false) => "is bound to",
        };
        let then = match not_evaluated(explained) {
            Some(why) => why,
            None => fits,
        };
        return format!("{state} node {node}; as if it were pending: {then}");
    }
    if let Some(why) = not_evaluated(explained) {
        return why;
    }
    match &explained.preemption {
        Some(found) => format!("{fits}; {}", preemption(found)),
        None => match &explained.trial.pod.nominated_node_name {
            Some(node) if fits_on(explained) == 0 => format!("{fits}; nominated to node {node}"),
            _ => fits,
        },
    }
}

/// Why the pod is not scheduled or not evaluated, whatever the nodes are.
fn not_evaluated(explained: &Explained<'_>) -> Option<String> {
    if let Some(failed) = &explained.evaluation.failed {
        return Some(format!("not evaluated: {failed}"));
    }
    let why = explained.why.as_ref()?;
    let rejected = explained.evaluation.rejected.as_ref();
    match why.cause {
        Cause::NotTried => Some(format!("not scheduled: {}", why.message)),
        Cause::PreFilter => {
            let status = rejected.and_then(|error| error.pre_filter.as_ref())?;
            let by = if status.plugin.is_empty() { "" } else { " by " };
            Some(format!("not scheduled: rejected{by}{}: {status}", status.plugin))
        }
        Cause::NoNode | Cause::Failed => None,
    }
}

pub(super) fn first_line(explained: &Explained<'_>) -> String {
    format!("pod {}: {}", line(&explained.trial.pod.key()), line(&headline(explained)))
}

pub(super) fn table(explained: &Explained<'_>, single: bool) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "{}\n", first_line(explained));
    let is_tried = explained.why.as_ref().is_none_or(|why| why.cause != Cause::NotTried);
    if !is_tried && explained.placed.is_none() {
        let _ = writeln!(text, "Otherwise, it {}.\n", fits(explained));
    }
    reasons(&mut text, explained);
    if fits_on(explained) > 0 {
        scores(&mut text, explained, single);
    }
    if single {
        rejections(&mut text, explained);
    }
    for fact in &explained.facts {
        let _ = writeln!(text, "{}", line(fact));
    }
    if !explained.facts.is_empty() {
        text.push('\n');
    }
    changes(&mut text, explained);
    if let Some(message) = message(explained).filter(|_| is_tried) {
        let _ = writeln!(text, "{}", line(&message));
    }
    for note in &explained.notes {
        let _ = writeln!(text, "note: {}", line(note));
    }
    text.trim_end().to_owned()
}

/// The nodes by reason.
fn reasons(text: &mut String, explained: &Explained<'_>) {
    let mut groups: Vec<_> = by_reason(&explained.rejected).into_iter().collect();
    // Reasons that alone reject nodes come first.
    groups.sort_by_cached_key(|(key, group)| {
        (group.alone == 0, std::cmp::Reverse(group.nodes.len()), *key)
    });
    if groups.is_empty() {
        return;
    }
    let mut table = plain(["nodes", "alone", "plugin", "reason", "shortfall", "examples"]);
    for ((reason, plugin, code), Group { nodes, alone }) in &groups {
        let short = shortfall(explained, reason, nodes);
        let kind = if *code == "Unschedulable" { "" } else { " (preemption does not help)" };
        table.add_row(row([
            nodes.len().to_string(),
            alone.to_string(),
            (*plugin).to_owned(),
            format!("{reason}{kind}"),
            short.map_or_else(String::new, |short| short.to_string()),
            first_names(nodes.iter().map(|node| node.name())),
        ]));
    }
    let _ = writeln!(text, "{}\n", table.trim_fmt());
}

/// The best nodes with their scores.
fn scores(text: &mut String, explained: &Explained<'_>, single: bool) {
    let plugins = scoring(explained);
    let mut header = vec!["node".to_owned()];
    header.extend(plugins.iter().map(|plugin| (*plugin).to_owned()));
    header.push("total".to_owned());
    let mut table = plain(header);
    let nodes = explained.evaluation.nodes.iter();
    let fitting = nodes.filter(|(_, verdict)| verdict.status.is_none());
    let mut best: Vec<(&str, &Verdict)> =
        fitting.map(|(name, verdict)| (&**name, &**verdict)).collect();
    best.sort_by_key(|(name, verdict)| (std::cmp::Reverse(verdict.total()), *name));
    for (name, verdict) in best.iter().take(LISTED) {
        let mut cells = vec![(*name).to_owned()];
        for plugin in &plugins {
            let score = verdict.scores.iter().find(|score| score.plugin == *plugin);
            cells.push(score.map_or_else(String::new, |score| match single {
                true => {
                    format!("{} ({} of 100, raw {})", score.weighted, score.normalized, score.raw)
                }
                false => score.weighted.to_string(),
            }));
        }
        cells.push(verdict.total().to_string());
        table.add_row(row(cells));
    }
    let _ = writeln!(text, "{}", table.trim_fmt());
    if best.len() > LISTED {
        let _ = writeln!(text, "… and {} more", best.len() - LISTED);
    }
    text.push('\n');
}

/// Every rejection of the nodes.
fn rejections(text: &mut String, explained: &Explained<'_>) {
    for (name, verdict) in &explained.evaluation.nodes {
        for status in verdict.status.iter().chain(&verdict.further) {
            let _ = writeln!(
                text,
                "{}: rejected by {} ({}): {}",
                line(name),
                if status.plugin.is_empty() { "the framework" } else { status.plugin },
                status.code.as_str(),
                line(&status.reasons.join(", "))
            );
        }
    }
    text.push('\n');
}

/// The changes that help.
fn changes(text: &mut String, explained: &Explained<'_>) {
    let changes = &explained.changes;
    if !changes.all.is_empty() {
        let title = match changes.are_pairs_tried {
            false => "Changes that would make the pod fit:",
            true if changes.is_complete => {
                "No single change makes the pod fit, but two together would:"
            }
            true => "No single change that was tried makes the pod fit, but two together would:",
        };
        let _ = writeln!(text, "{title}");
        for change in changes.all.iter().take(SHOWN) {
            let nodes = count(change.nodes.len(), "node");
            let _ = write!(text, "  - {} ({nodes}", line(&change.what()));
            if change.nodes.len() > 1 {
                let _ = write!(text, ": {}", line(&first_names(&change.nodes)));
            }
            text.push_str(")\n");
            if !change.others.is_empty() {
                let names = first_names(&change.others);
                let _ = writeln!(text, "    or the same for another node: {}", line(&names));
            }
            for note in &change.notes {
                let _ = writeln!(text, "    but {}", line(note));
            }
            if !change.is_complete {
                text.push_str("    not all nodes were tried within --time-limit\n");
            }
        }
        if let Some(more) = changes.all.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            let _ = writeln!(text, "  … and {more} more: see --output json");
        }
        if !changes.is_complete && changes.all.iter().all(|change| change.is_complete) {
            text.push_str(
                "Not all nodes, evictions and pairs of changes were tried within --time-limit.\n",
            );
        }
        text.push('\n');
    } else if changes.are_pairs_tried {
        let tried = match changes.is_complete {
            true => {
                "No single change of those known to this command makes the pod fit, nor do two together."
            }
            false => {
                "No single change that was tried makes the pod fit; not all nodes, evictions and pairs were tried within --time-limit."
            }
        };
        let _ = writeln!(text, "{tried}\n");
    }
}

/// The plugins that score nodes.
fn scoring(explained: &Explained<'_>) -> Vec<&'static str> {
    let scored = explained.evaluation.nodes.values().find(|verdict| !verdict.scores.is_empty());
    scored.into_iter().flat_map(|verdict| &verdict.scores).map(|score| score.plugin).collect()
}
