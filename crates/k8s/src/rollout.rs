//! How controllers replace pods: the update strategies, and the limits of jobs.

use std::ops::Range;

use super::budgets::IntOrPercent;
use super::controllers::MAX_REPLICAS;
use super::error::{Path, ReadError};
use super::wire_objects as wire;
use super::workloads::ControllerKind;

/// How a controller replaces the pods of an old template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateStrategy {
    /// The pods stay as they are: those of replica sets, of replication controllers, and of a paused deployment.
    Never,
    /// Only pods that are deleted by someone else are replaced.
    OnDelete,
    /// All old pods are deleted before new ones are created.
    Recreate,
    /// The pods are replaced step by step.
    RollingUpdate {
        /// The number of pods beyond the desired one.
        max_surge: IntOrPercent,
        /// The number of pods that may be unavailable.
        max_unavailable: IntOrPercent,
        /// The lowest ordinal of a stateful set that is replaced.
        partition: usize,
    },
}

/// The fields of a job that decide which pods it creates again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Job {
    /// The number of failed pods after which the job fails.
    pub backoff_limit: u64,
    /// The number of failed pods of an index after which the index fails.
    pub backoff_limit_per_index: Option<u64>,
    /// The number of pods that have failed.
    pub failed: u64,
    /// Whether `podFailurePolicy` ignores pods that were disrupted, such as evicted ones.
    pub ignores_disruptions: bool,
    /// Whether `podFailurePolicy` fails the job when a pod was disrupted.
    pub fails_on_disruption: bool,
    /// Whether each pod has an index (`completionMode: Indexed`).
    pub is_indexed: bool,
    pub(super) completions: usize,
    /// The number of completions that are left, which limits the pods that run at once. 0 for a job that is suspended
    /// or has finished.
    pub remaining: usize,
    /// The indexes that have succeeded or failed, in increasing order. Ranges, because ten characters of a status can
    /// name millions of them.
    pub(super) ended: Vec<Range<usize>>,
    /// Whether the API server adds the labels of the job.
    pub(super) has_labels: bool,
}

/// `DefaultPodBackoffLimit`.
const BACKOFF_LIMIT: i64 = 6;

impl Job {
    /// Returns the number of pods that run at once.
    pub(super) fn at_once(&self, spec: &wire::ControllerSpec<'_>) -> i64 {
        let most = i64::try_from(self.remaining).unwrap_or(i64::MAX);
        // A negative number of completions is refused with the number of pods.
        spec.parallelism.unwrap_or(1).min(spec.completions.unwrap_or(most)).min(most)
    }

    pub(super) fn read(
        spec: &wire::ControllerSpec<'_>,
        status: Option<&wire::ControllerStatus<'_>>,
    ) -> Job {
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let index_limit = spec.backoff_limit_per_index.map(count);
        let limit = spec.backoff_limit.unwrap_or(match index_limit {
            Some(_) => i64::from(i32::MAX),
            None => BACKOFF_LIMIT,
        });
        let rules = spec.pod_failure_policy.iter().flat_map(|policy| policy.rules.iter());
        // The first rule that matches decides. Rules about exit codes do not match a pod that was evicted while it ran.
        let disruption = rules.into_iter().find(|rule| {
            let is_disruption = |it: &wire::PodConditionPattern<'_>| {
                &*it.condition_type == "DisruptionTarget" && matches!(&*it.status, "" | "True")
            };
            rule.on_pod_conditions.iter().any(is_disruption)
        });
        let action = disruption.map_or("Count", |rule| &*rule.action);
        let is_indexed = &*spec.completion_mode == "Indexed";
        let completions = spec.completions.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(0));
        let succeeded = status.and_then(|status| *status.succeeded).unwrap_or(0);
        let succeeded = usize::try_from(succeeded).unwrap_or(0);
        let texts = status.into_iter().flat_map(|it| [&it.completed_indexes, &it.failed_indexes]);
        let ended = merged(texts.flat_map(|text| indexes(text, completions)).collect());
        Job {
            backoff_limit: count(limit),
            backoff_limit_per_index: index_limit,
            failed: count(status.and_then(|status| *status.failed).unwrap_or(0)),
            ignores_disruptions: action == "Ignore",
            fails_on_disruption: action == "FailJob",
            is_indexed,
            completions,
            remaining: match spec.suspend {
                Some(true) => 0,
                _ => completions.saturating_sub(succeeded),
            },
            ended,
            has_labels: spec.manual_selector != Some(true),
        }
    }

    /// Returns the indexes of which no pod has ended, in increasing order.
    pub(super) fn missing(&self) -> impl Iterator<Item = usize> {
        (0..self.completions).filter(|index| {
            let after = self.ended.partition_point(|ended| ended.end <= *index);
            self.ended.get(after).is_none_or(|ended| *index < ended.start)
        })
    }
}

/// Parses a list such as `1,3-5`, which the job controller writes. Indexes beyond the completions of a job, and beyond
/// the largest number of pods, do not exist. Parts that are not numbers are left out.
fn indexes(text: &str, completions: usize) -> impl Iterator<Item = Range<usize>> {
    let end = completions.min(MAX_REPLICAS as usize);
    text.split(',').filter_map(move |part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let last: usize = last.parse().ok()?;
        Some(first.parse().ok()?..last.saturating_add(1).min(end))
    })
}

/// The same numbers as ranges in increasing order that do not overlap.
fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        last.end = if touches { last.end.max(next.end) } else { last.end };
        touches
    });
    ranges
}

impl UpdateStrategy {
    pub(super) fn read(
        kind: ControllerKind,
        spec: &wire::ControllerSpec<'_>,
        path: &Path<'_>,
    ) -> Result<UpdateStrategy, ReadError> {
        let no_update = wire::UpdateStrategy::default();
        let (read, field) = match kind {
            ControllerKind::Deployment => (&spec.strategy, "strategy"),
            _ => (&spec.update_strategy, "updateStrategy"),
        };
        let read = read.as_ref().unwrap_or(&no_update);
        let quarter = IntOrPercent::Percent(25);
        let (surge, unavailable) = match (kind, &*read.strategy_type) {
            (ControllerKind::Deployment, _) if spec.paused == Some(true) => {
                return Ok(UpdateStrategy::Never);
            }
            (ControllerKind::Deployment, "Recreate") => return Ok(UpdateStrategy::Recreate),
            (ControllerKind::Deployment, _) => (quarter, quarter),
            (ControllerKind::StatefulSet | ControllerKind::DaemonSet, "OnDelete") => {
                return Ok(UpdateStrategy::OnDelete);
            }
            (ControllerKind::StatefulSet | ControllerKind::DaemonSet, _) => {
                (IntOrPercent::Int(0), IntOrPercent::Int(1))
            }
            _ => return Ok(UpdateStrategy::Never),
        };
        let no_limits = wire::RollingUpdate::default();
        let limits = read.rolling_update.as_ref().unwrap_or(&no_limits);
        let path = path.key(field);
        let path = path.key("rollingUpdate");
        let most_surge = IntOrPercent::read(&limits.max_surge, &path.key("maxSurge"))?;
        let most_unavailable =
            IntOrPercent::read(&limits.max_unavailable, &path.key("maxUnavailable"))?;
        Ok(UpdateStrategy::RollingUpdate {
            max_surge: most_surge.unwrap_or(surge),
            max_unavailable: most_unavailable.unwrap_or(unavailable),
            partition: limits.partition.map_or(0, |n| usize::try_from(n).unwrap_or(0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_indexes_are_numbers_and_ranges() {
        let up_to = |completions, text| indexes(text, completions).flatten().collect::<Vec<_>>();
        assert_eq!(up_to(8, "1,3-5,7"), [1, 3, 4, 5, 7]);
        assert_eq!(up_to(8, "").len(), 0);
        assert_eq!(up_to(5, "1,3-18446744073709551615"), [1, 3, 4]);
        assert_eq!(up_to(0, "0-3").len(), 0);
        let all = indexes("0-18446744073709551615", usize::MAX).flatten();
        assert_eq!(all.count(), MAX_REPLICAS as usize);
    }

    #[test]
    fn ended_indexes_are_missing_from_no_range() {
        let ended = merged(indexes("7,0-1,4-5,3-4,9-8,1", 12).collect());
        assert_eq!(ended, [0..2, 3..6, 7..8]);
        let job = Job { completions: 12, ended, ..Job::default() };
        assert_eq!(job.missing().collect::<Vec<_>>(), [2, 6, 8, 9, 10, 11]);
    }
}
