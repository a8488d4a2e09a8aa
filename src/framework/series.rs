//! Decides on several pods on a plan, one after the other. Consecutive pods of one template form a series.
//!
//! The replicas of a Deployment share a template, and usually every plugin that takes part in their decisions is local
//! or skips them. Then one decision differs from the next only in the nodes on which pods were placed. A series
//! therefore prepares filters and scores once, and each decision evaluates only those chunks that its search reaches
//! and whose cached verdicts are outdated.

use std::sync::Arc;

use crate::model::Pod;
use crate::snapshot::Plan;

use super::choose::{Choice, PluginScores};
use super::decision::{Stages, is_supplied};
use super::extender::ExtenderVerdicts;
use super::filters::Filters;
use super::memo::{Keep, VerdictCache};
use super::parallel::Threads;
use super::scores::Scores;
use super::search::{Chosen, FoundChunks, Search};
use super::{Algorithm, Cycle, CycleState, Decision, Feasible, Framework, Measurement, Status};

/// A pod that was placed on a plan.
pub(crate) struct Planned {
    /// The pod with its node.
    pub(crate) pod: Arc<Pod>,
    pub(crate) decision: Decision,
    pub(crate) state: CycleState,
}

impl Planned {
    /// Places the pod on the plan. `None` if that is impossible, for a reason that its own cycle will find again.
    fn new(plan: &mut Plan, pod: &Pod, decision: Decision, state: CycleState) -> Option<Planned> {
        let pod = Arc::new(decision.place(pod.clone()));
        plan.assume(&pod, decision.slot).ok()?;
        Some(Planned { pod, decision, state })
    }
}

/// The data that all decisions of a series share.
struct Series<'a> {
    framework: &'a Framework,
    filters: &'a Filters<'a>,
    scores: &'a Scores<'a>,
    plugins: &'a PluginScores<'a>,
}

impl Algorithm {
    /// Decides on the pods in order and places them on the plan, up to the first one that cannot be placed. PostFilter
    /// does not run, and the state of the algorithm is the same as if that pod had had no cycle.
    pub(crate) fn plan(&mut self, plan: &mut Plan, pods: &[Arc<Pod>]) -> Vec<Planned> {
        let mut all = Vec::with_capacity(pods.len());
        while let [next, ..] = &pods[all.len()..] {
            let rest = &pods[all.len()..];
            let in_series = rest.iter().take_while(|pod| are_in_series(next, pod)).count();
            let (run, _) = rest.split_at(in_series.max(1));
            let series = self.plan_series(plan, run);
            let others = &run[series.len()..];
            all.extend(series);
            for pod in others {
                match self.plan_one(plan, pod) {
                    Some(planned) => all.push(planned),
                    None => return all,
                }
            }
        }
        all
    }

    fn plan_one(&mut self, plan: &mut Plan, pod: &Pod) -> Option<Planned> {
        let before = self.progress();
        let state = self.state();
        let decision = self.decide_without_preemption(Cycle::new(plan, pod, &state)).ok();
        let took = state.elapsed();
        let planned = decision.and_then(|decision| Planned::new(plan, pod, decision, state));
        match (&planned, self.framework().recorder(), took) {
            (Some(_), Some(recorder), Some(took)) => recorder.record(Measurement::Algorithm, took),
            (None, _, _) => self.go_back(&before),
            _ => {}
        }
        planned
    }

    /// Places pods of one template on the plan, up to the first one that cannot be placed. Places nothing if there is
    /// only one pod, or if the template does not allow a series.
    fn plan_series(&mut self, plan: &mut Plan, pods: &[Arc<Pod>]) -> Vec<Planned> {
        let framework = &*self.framework().clone();
        if pods.len() < 2
            || self.sub_cluster().is_some()
            || !framework.treats_template_alike(&pods[0], plan)
            || framework.recorder().is_some()
            || is_supplied(plan, &pods[0])
        {
            return Vec::new();
        }
        let base = plan.freeze();
        self.refresh(&base);
        let before = self.progress();
        let state = self.state();
        let cycle = Cycle::new(&base, &pods[0], &state);
        let filters = framework.pre_filter(cycle);
        let found = match filters.are_local() {
            true => self.find(framework, cycle, &filters).map(|(found, _)| found).ok(),
            false => None,
        };
        // From here on, the first pod is decided like the others.
        self.go_back(&before);
        let Some(found) = found.filter(|found| found.feasible > 0) else { return Vec::new() };
        let feasible = Feasible::new(&base, found.lanes());
        let Ok(scores) = framework.pre_score(cycle, &feasible) else { return Vec::new() };
        let plugins = PluginScores::new(&scores);
        if !plugins.are_local() {
            return Vec::new();
        }
        let series = Series { framework, filters: &filters, scores: &scores, plugins: &plugins };
        let mut all = Vec::with_capacity(pods.len());
        for pod in pods {
            let before = self.progress();
            let state = self.state();
            let decision = self.decide_in_series(&series, Cycle::new(plan, pod, &state));
            match decision.and_then(|decision| Planned::new(plan, pod, decision, state)) {
                Some(planned) => all.push(planned),
                None => {
                    self.go_back(&before);
                    break;
                }
            }
        }
        all
    }

    /// Decides on a pod of a series. `None` if no node is feasible or a plugin fails.
    fn decide_in_series(&mut self, series: &Series<'_>, cycle: Cycle<'_>) -> Option<Decision> {
        let Series { framework, filters, scores, plugins } = *series;
        let seed = self.config.seed;
        let (found, cache) = self.find(framework, cycle, filters).ok()?;
        let chosen = match found.feasible {
            0 | 1 => found.first(),
            _ => {
                let threads = Threads::new(None);
                let choice = Choice { framework, cycle, threads, seed, found: &found };
                choice.choose_locally(scores, plugins, cache).ok()?
            }
        };
        let Chosen { chunk, lane, score } = chosen?;
        let node = cycle.cluster.node_in(chunk, lane)?;
        Some(Decision::of(node, score, found.feasible, found.looked_at))
    }

    /// Returns the feasible nodes among those that the pod's cycle examines, and the cache of its template.
    fn find<'v>(
        &mut self,
        framework: &'v Framework,
        cycle: Cycle<'v>,
        filters: &'v Filters<'v>,
    ) -> Result<(FoundChunks<'v>, &mut VerdictCache), Status> {
        let Algorithm { config, memo, orders, .. } = self;
        let percentage_of_nodes = config.percentage_of_nodes;
        let stages = Stages { framework, cycle, filters, sub_cluster: None, percentage_of_nodes };
        let chunks = orders.iter().map(|order| order.chunks().len()).sum();
        let cache = memo.cache((cycle.cluster, chunks), &cycle.pod.template, Keep::Always);
        let threads = Threads::new(None);
        let mut search = Search::new(cycle, filters, threads, cache);
        let found = stages.feasible(&mut search, orders, &mut ExtenderVerdicts::default())?;
        Ok((found, cache))
    }
}

/// Returns whether both pods can be in one series. A pod that names its node is in none.
fn are_in_series(one: &Pod, other: &Pod) -> bool {
    one.node_name.is_none() && other.node_name.is_none() && one.template == other.template
}
