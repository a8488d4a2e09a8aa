//! The shapes of `sched` whose pods fit on no node. Their cycles are those of a backlog on a full cluster: each
//! attempt follows an event that changes one node, and fails again.

use portolan::cache::{Engine, Event};
use portolan::model::{Node, Pod, Taint, TaintEffect};

use portolan_cli::CommandError;

use super::cache::node_builder;
use super::measure::submit;
use super::workloads::{Pods, Shape};

/// The number of pods that are retried in rotation.
pub(super) const RETRIED: usize = 100;

/// Places the pods that keep pods of this shape from fitting. Call it before other pods are placed.
pub(super) fn fill(
    engine: &Engine,
    shape: Shape,
    nodes: usize,
    pods: &mut Pods,
) -> Result<(), CommandError> {
    for n in 0..nodes {
        let pod = match shape {
            Shape::Preemption | Shape::NoFitResources => pods.filling(),
            Shape::NoFitAntiAffinity => pods.colored(),
            _ => return Ok(()),
        };
        submit(engine, Event::add_pod(Pod::clone(&pod).on(format!("node-{n:07}"))))?;
    }
    Ok(())
}

/// Taints all nodes, if the shape needs taints. Call it after other pods are placed.
pub(super) fn taint(engine: &Engine, shape: Shape, nodes: usize) -> Result<(), CommandError> {
    for n in (0..nodes).filter(|_| shape == Shape::NoFitTaints) {
        submit(engine, Event::update_node(changed(shape, n, 0)))?;
    }
    Ok(())
}

/// A node in the state with this number; pods of this shape fit in no state.
fn changed(shape: Shape, n: usize, state: usize) -> Node {
    let node = node_builder(&format!("node-{n:07}"), n);
    match shape {
        Shape::NoFitTaints => {
            let value = format!("team-{state}").into();
            node.taint(Taint { key: "dedicated".into(), value, effect: TaintEffect::NoSchedule })
        }
        // Some millicores more; pods of this shape lack thousands.
        _ => node.cpu(4000 + state as i64),
    }
    .build()
}

/// Changes the nodes one after the other, for one scheduler.
pub(super) struct Changes {
    engine: Engine,
    shape: Shape,
    nodes: usize,
    /// The number of changes so far.
    made: usize,
    /// The scheduler that these changes are for, and the number of schedulers.
    index: usize,
    schedulers: usize,
    /// A pod that is added and removed repeatedly.
    guest: Pod,
}

impl Changes {
    /// The changes of scheduler `index` of several. `None` if pods of this shape fit.
    pub(super) fn new(
        engine: &Engine,
        shape: Shape,
        nodes: usize,
        (index, schedulers): (usize, usize),
        pods: &mut Pods,
    ) -> Option<Changes> {
        let guest = Pod::clone(&pods.colored());
        let engine = engine.clone();
        let changes = Changes { engine, shape, nodes, made: 0, index, schedulers, guest };
        (!shape.fits()).then_some(changes)
    }

    /// Changes the next node, which helps no pod.
    pub(super) fn next(&mut self) -> Result<(), CommandError> {
        let made = self.made;
        self.made += 1;
        // Schedulers begin at different nodes.
        let first = self.nodes * self.index / self.schedulers;
        let event = if self.shape == Shape::NoFitAntiAffinity {
            // A second pod that the others avoid is added to a node, and then removed.
            let n = (first + made / 2) % self.nodes;
            let guest = self.guest.clone().on(format!("node-{n:07}"));
            if made.is_multiple_of(2) { Event::add_pod(guest) } else { Event::remove_pod(&guest) }
        } else {
            let (n, pass) = ((first + made) % self.nodes, made / self.nodes);
            // The state differs from that of the previous pass and from those of other schedulers.
            Event::update_node(changed(self.shape, n, 1 + 2 * self.index + pass % 2))
        };
        submit(&self.engine, event)
    }
}

#[cfg(test)]
mod tests {
    use portolan::cache::Config;
    use portolan::plugin::{Cycle, CycleState};
    use portolan::{Algorithm, AlgorithmConfig, Framework};

    use super::*;
    use crate::cache::make_node;

    #[test]
    fn each_change_concerns_one_node_and_helps_no_pod() {
        const NODES: usize = 3;
        for shape in [Shape::NoFitResources, Shape::NoFitTaints, Shape::NoFitAntiAffinity] {
            let engine = Engine::shared(Config::default());
            for n in 0..NODES {
                let node = make_node(&format!("node-{n:07}"), n);
                submit(&engine, Event::add_node(node)).unwrap();
            }
            let mut pods = Pods::new(1);
            fill(&engine, shape, NODES, &mut pods).unwrap();
            taint(&engine, shape, NODES).unwrap();
            let pod = pods.make(shape);
            let reader = engine.reader().unwrap();
            let framework = Framework::default_profile();
            let mut algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
            let mut second = Changes::new(&engine, shape, NODES, (1, 2), &mut pods).unwrap();
            let mut changes = Changes::new(&engine, shape, NODES, (0, 2), &mut pods).unwrap();
            for _ in 0..4 * NODES {
                let before = reader.snapshot();
                changes.next().unwrap();
                let after = reader.snapshot();
                let differ = |n: &usize| {
                    let name = format!("node-{n:07}");
                    let [a, b] = [&before, &after].map(|of| of.node(&name).unwrap());
                    a.node() != b.node() || a.pod_count() != b.pod_count()
                };
                assert_eq!((0..NODES).filter(differ).count(), 1, "{shape:?}");
                let state = CycleState::default();
                let decided = algorithm.decide(Cycle::new(&after, &pod, &state));
                assert!(decided.is_err(), "{shape:?}: {decided:?}");
                // Another scheduler's changes are accepted beside these.
                second.next().unwrap();
            }
        }
        let engine = Engine::shared(Config::default());
        assert!(Changes::new(&engine, Shape::Basic, 1, (0, 1), &mut Pods::new(1)).is_none());
    }
}
