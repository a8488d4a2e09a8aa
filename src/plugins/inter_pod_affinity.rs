//! Affinity and anti-affinity between pods (interpodaffinity/{filtering,scoring}.go).

use std::cell::Cell;

use crate::framework::{
    ByTemplate, Code, Cycle, Feasible, Filter, Plugin, PluginInfo, Point, PreFilter, PreScore,
    Reads, Reasons, Score, ScoredNodes, Status, dispatch, each_run,
};
use crate::model::{
    Generation, LabelLookup, Labels, Pod, PodAffinity, PodAffinityTerm, PodSpec, Template,
    WeightedPodAffinityTerm,
};
use crate::snapshot::{Chunk, Cluster, Column, InLane, LANES, NodeInfo, Victims};

use super::hints::{self, ClusterEvent, Hint};
use super::ledger::{FEW, Ledger, MAX_TEMPLATES, Part, PerThread, Selection};
use super::topology::{Decided, Domain, Keys, Sums};

/// Rejects nodes whose topology domain lacks pods that the pod's required affinity needs, or contains pods that are
/// excluded by anti-affinity, the pod's own or theirs. Prefers domains by the preferred terms.
#[derive(Clone, Debug)]
pub struct InterPodAffinity {
    /// The weight of an existing pod's required affinity term in scores, 0 to 100.
    pub hard_pod_affinity_weight: i64,
    /// Whether a pod without preferred terms is not scored, so that the preferred terms of existing pods are ignored.
    pub ignore_preferred_terms_of_existing_pods: bool,
    counted: PerThread<ByTemplate<ForTemplate>>,
}

/// The ledgers for pods of one template.
#[derive(Default)]
struct ForTemplate {
    existing: Ledger,
    near: (Ledger, Selected),
    apart: (Ledger, Selected),
    preferred: (Ledger, Selected),
    /// The numbers of the templates of existing pods whose terms contribute, sorted.
    excluding: Selection<Vec<u32>>,
    preferring: Selection<Vec<u32>>,
}

/// The numbers of the label sets that terms of the pod select, sorted, each with the sums that its pods contribute to.
type Selected = Selection<Vec<(u32, Shares)>>;

impl Default for InterPodAffinity {
    fn default() -> InterPodAffinity {
        InterPodAffinity {
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
            counted: PerThread::default(),
        }
    }
}

impl InterPodAffinity {
    /// Creates the plugin with these arguments.
    #[must_use]
    pub fn new(hard_pod_affinity_weight: i64, ignore_preferred_terms: bool) -> InterPodAffinity {
        InterPodAffinity {
            hard_pod_affinity_weight,
            ignore_preferred_terms_of_existing_pods: ignore_preferred_terms,
            counted: PerThread::default(),
        }
    }
}

const NAME: &str = "InterPodAffinity";
const AFFINITY: &str = "node(s) didn't match pod affinity rules";
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

fn required(affinity: Option<&PodAffinity>) -> &[PodAffinityTerm] {
    affinity.map_or(&[], |affinity| &affinity.required)
}

fn preferred(affinity: Option<&PodAffinity>) -> &[WeightedPodAffinityTerm] {
    affinity.map_or(&[], |affinity| &affinity.preferred)
}

fn near(spec: &PodSpec) -> Option<&PodAffinity> {
    spec.pod_affinity.as_deref()
}

fn apart(spec: &PodSpec) -> Option<&PodAffinity> {
    spec.pod_anti_affinity.as_deref()
}

/// Iterates over attracting terms with sign 1 and repelling terms with sign -1.
fn signed<'t>(
    near: &'t [WeightedPodAffinityTerm],
    apart: &'t [WeightedPodAffinityTerm],
) -> impl Iterator<Item = (&'t WeightedPodAffinityTerm, i64)> + Clone {
    let near = near.iter().map(|weighted| (weighted, 1));
    near.chain(apart.iter().map(|weighted| (weighted, -1)))
}

/// Returns whether a term selects pods of this namespace with these labels, disregarding topology.
fn selects(cluster: &Cluster, term: &PodAffinityTerm, namespace: &str, labels: &Labels) -> bool {
    term.matches(namespace, &OfNamespace { cluster, namespace }, labels)
}

/// The labels of a namespace. Few terms ask for them.
struct OfNamespace<'c> {
    cluster: &'c Cluster,
    namespace: &'c str,
}

impl LabelLookup for OfNamespace<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.cluster.objects().namespaces.get("", self.namespace)?.labels.get(key)
    }
}

fn selects_pod(cluster: &Cluster, term: &PodAffinityTerm, spec: &PodSpec) -> bool {
    selects(cluster, term, &spec.namespace, &spec.labels)
}

/// The sums that a pod contributes to, each with its amount. Pods with equal labels or templates share them.
type Shares = Box<[(usize, i64)]>;

/// Adds the shares of the pods in these lanes to the domains of the lanes.
fn add(keys: &Keys, chunk: &Chunk, held: &[InLane], shares: &Shares, part: &mut Part) {
    for (at, amount) in shares.iter() {
        let mut add = |domain: Option<Domain>, pods: i64| match domain {
            Some(domain) if pods != 0 => part.add(*at, domain, amount * pods),
            _ => {}
        };
        // Neighbours are mostly in one domain.
        let (mut domain, mut sum) = (None, 0);
        for in_lane in held {
            let next = keys.0[*at].topology.domain_in(chunk, usize::from(in_lane.lane));
            if next != domain {
                add(domain, sum);
                (domain, sum) = (next, 0);
            }
            sum += i64::from(in_lane.pods);
        }
        add(domain, sum);
    }
}

/// Returns the generation of the newest namespace, because terms are matched by namespace labels.
fn reads(cluster: &Cluster) -> Generation {
    cluster.objects().namespaces.generation()
}

/// Counts the pods that terms of the pod select.
struct OwnTerms<'c, T> {
    cluster: &'c Cluster,
    terms: T,
    selected: &'c mut Selected,
    decided: Decided<Shares>,
    /// The number of chunks that were counted.
    visited: &'c Cell<usize>,
}

impl<'c, T: Iterator<Item = &'c PodAffinityTerm> + Clone> OwnTerms<'c, T> {
    fn new(
        cluster: &'c Cluster,
        terms: T,
        selected: &'c mut Selected,
        visited: &'c Cell<usize>,
    ) -> OwnTerms<'c, T> {
        OwnTerms { cluster, terms, selected, decided: Decided::default(), visited }
    }

    /// Adds to the domains of each pod the amounts that `share` returns for its namespace and labels.
    fn add(
        &mut self,
        keys: &Keys,
        chunk: &Chunk,
        part: &mut Part,
        share: impl Fn(&str, &Labels) -> Shares,
    ) {
        let cluster = self.cluster;
        let (stamp, reads) = (cluster.pod_labels_stamp(), reads(cluster));
        if !self.selected.is_current(cluster, stamp, reads) {
            if self.visited.get() <= FEW {
                for (number, held) in chunk.tally(cluster).by_labels() {
                    let shares = self.decided.get(number, || match cluster.pod_labels(number) {
                        Some((namespace, labels)) => share(namespace, labels),
                        None => Box::default(),
                    });
                    add(keys, chunk, held, shares, part);
                }
                return;
            }
            let all = cluster.pod_labels_of_terms(self.terms.clone());
            let all = all.map(|(number, namespace, labels)| (number, share(namespace, labels)));
            let all = all.filter(|(_, shares)| !shares.is_empty()).collect();
            *self.selected = Selection::new(cluster, stamp, reads, all);
        }
        let tally = chunk.tally(cluster);
        tally.each_of(&self.selected.all, |shares, held| add(keys, chunk, held, shares, part));
    }
}

/// Counts what the terms of existing pods contribute.
struct Terms<'c> {
    /// The pod's namespace.
    namespace: &'c str,
    contributing: &'c mut Selection<Vec<u32>>,
    decided: Decided<Shares>,
    /// The number of chunks that were counted.
    visited: &'c Cell<usize>,
}

impl<'c> Terms<'c> {
    fn new(
        namespace: &'c str,
        contributing: &'c mut Selection<Vec<u32>>,
        visited: &'c Cell<usize>,
    ) -> Terms<'c> {
        Terms { namespace, contributing, decided: Decided::default(), visited }
    }

    /// Adds to the domains of each pod the amounts that `share` returns for its template.
    fn add(
        &mut self,
        cluster: &Cluster,
        keys: &mut Keys,
        chunk: &Chunk,
        part: &mut Part,
        mut share: impl FnMut(&Template, &mut Keys) -> Shares,
    ) {
        let (stamp, reads) = (cluster.affine_stamp(), reads(cluster));
        let is_current = self.contributing.is_current(cluster, stamp, reads);
        if !is_current && self.visited.get() > FEW {
            let all = cluster.affine_templates_about(self.namespace);
            let found = all.filter(|(_, template)| !share(template, keys).is_empty());
            let numbers = found.map(|(number, _)| number).collect();
            *self.contributing = Selection::new(cluster, stamp, reads, numbers);
        }
        let decided = &mut self.decided;
        let mut visit = |number: u32, held: &[InLane]| {
            let shares = decided.get(number, || match cluster.template(number) {
                Some(template) => share(template, keys),
                None => Box::default(),
            });
            add(keys, chunk, held, shares, part);
        };
        if !is_current && self.visited.get() <= FEW {
            chunk.tally(cluster).affine().for_each(|(number, held)| visit(number, held));
        } else if !self.contributing.all.is_empty() {
            chunk.tally(cluster).each_affine_of(&self.contributing.all, visit);
        }
    }
}

/// The counts that the filter checks.
#[derive(Clone)]
struct Rules<'a> {
    cluster: &'a Cluster,
    spec: &'a PodSpec,
    /// Existing pods whose anti-affinity excludes this pod, by domain.
    existing: Keys,
    /// Pods that match all affinity terms, by the domains of each term.
    near: Counted<'a>,
    /// Pods that match an anti-affinity term, by its domains.
    apart: Counted<'a>,
    /// The number of pods that match all affinity terms, counted once for each topology key that their node has.
    companions: i64,
    /// Whether the pod matches all of its own affinity terms.
    matches_itself: bool,
    /// See [`Filter::version`].
    version: Option<u64>,
}

/// Terms of the pod, the positions of their topology keys, and the counts.
#[derive(Clone)]
struct Counted<'a> {
    terms: &'a [PodAffinityTerm],
    positions: Vec<usize>,
    keys: Keys,
}

impl<'a> Counted<'a> {
    /// Counts the pods that match all terms, or each term separately. Counts nothing if there are no terms.
    fn new(
        cluster: &Cluster,
        terms: &'a [PodAffinityTerm],
        all: bool,
        (ledger, selected): &mut (Ledger, Selected),
    ) -> Counted<'a> {
        let mut counted = Counted { terms, positions: Vec::new(), keys: Keys::default() };
        if terms.is_empty() {
            return counted;
        }
        let visited = Cell::new(0);
        let mut own = OwnTerms::new(cluster, terms.iter(), selected, &visited);
        let start = |keys: &mut Keys| {
            // All chunks are counted.
            visited.set(FEW);
            for term in terms {
                keys.at(cluster, &term.topology_key);
            }
        };
        let (keys, _) = ledger.follow(cluster, reads(cluster), start, |keys, chunk, part| {
            visited.update(|visited| visited + 1);
            own.add(keys, chunk, part, |namespace, labels| {
                shares(terms, keys, cluster, all, namespace, labels)
            });
        });
        counted.keys = keys.clone();
        let keys = &mut counted.keys;
        counted.positions = terms.iter().map(|term| keys.at(cluster, &term.topology_key)).collect();
        counted
    }

    /// Adds `by` to the counts for a pod on a node, and returns how many sums changed.
    fn change(
        &mut self,
        cluster: &Cluster,
        all: bool,
        pod: &PodSpec,
        node: NodeInfo<'_>,
        by: i64,
    ) -> i64 {
        let mut changed = 0;
        let shares = shares(self.terms, &self.keys, cluster, all, &pod.namespace, &pod.labels);
        for (at, _) in shares {
            let sums = &mut self.keys.0[at];
            if let Some(domain) = sums.topology.domain(node) {
                sums.add(domain, by);
                changed += 1;
            }
        }
        changed
    }
}

/// Returns the sums to which pods with these labels contribute, if they must match all terms or if each term counts
/// separately.
fn shares(
    terms: &[PodAffinityTerm],
    keys: &Keys,
    cluster: &Cluster,
    all: bool,
    namespace: &str,
    labels: &Labels,
) -> Shares {
    let position = |term: &PodAffinityTerm| {
        keys.0.iter().position(|sums| sums.topology.key == term.topology_key)
    };
    let matching = terms.iter().filter(|term| selects(cluster, term, namespace, labels));
    let shares: Shares = matching.filter_map(position).map(|at| (at, 1)).collect();
    if all && shares.len() < terms.len() { Box::default() } else { shares }
}

impl Plugin for InterPodAffinity {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score])
            .events(hints::inter_pod_affinity::EVENTS)
    }

    /// Scores may be skipped because no pod matches the pod's preferred terms. The first pods of its template may
    /// match.
    fn treats_template_alike(&self, pod: &Pod, _: &Cluster) -> bool {
        preferred(near(&pod.template)).is_empty() && preferred(apart(&pod.template)).is_empty()
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        cluster: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(hints::inter_pod_affinity::hint(pod, event, cluster))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let spec: &'a PodSpec = &pod.template;
        let (near_terms, apart_terms) = (required(near(spec)), required(apart(spec)));
        let has_anti_affinity = cluster.chunks_with_required_anti_affinity().next().is_some();
        if !has_anti_affinity && near_terms.is_empty() && apart_terms.is_empty() {
            return Ok(PreFilter::Skip);
        }
        self.counted.with_template(&pod.template, MAX_TEMPLATES, |counted| {
            let mut existing = Keys::default();
            if has_anti_affinity {
                let visited = Cell::new(0);
                let mut terms = Terms::new(&spec.namespace, &mut counted.excluding, &visited);
                let (keys, is_touched) = counted.existing.follow(
                    cluster,
                    reads(cluster),
                    |_| visited.set(FEW),
                    |keys, chunk, part| {
                        visited.update(|visited| visited + 1);
                        terms.add(cluster, keys, chunk, part, |other, keys| {
                            let apart = required(apart(other)).iter();
                            let apart = apart.filter(|term| selects_pod(cluster, term, spec));
                            apart.map(|term| (keys.at(cluster, &term.topology_key), 1)).collect()
                        });
                    },
                );
                if is_touched {
                    existing = keys.clone();
                }
            }
            if existing.0.is_empty() && near_terms.is_empty() && apart_terms.is_empty() {
                return Ok(PreFilter::Skip);
            }
            let near = Counted::new(cluster, near_terms, true, &mut counted.near);
            let apart = Counted::new(cluster, apart_terms, false, &mut counted.apart);
            // A ledger that changes gets the greatest version so far, so the greatest of the three identifies all of
            // them, except that the first one is not followed while no pod has anti-affinity.
            let ledgers = [&counted.existing, &counted.near.0, &counted.apart.0];
            let greatest = ledgers.into_iter().map(Ledger::version).max();
            let version = greatest.map(|version| version << 1 | u64::from(has_anti_affinity));
            Ok(PreFilter::Filter(Box::new(Rules {
                cluster,
                spec,
                existing,
                companions: near.keys.0.iter().map(Sums::total).sum(),
                near,
                apart,
                matches_itself: near_terms.iter().all(|term| selects_pod(cluster, term, spec)),
                version,
            })))
        })
    }

    /// Kube-scheduler's `Score` reads the state of PreScore and fails without it.
    fn score_alone<'a>(
        &'a self,
        _: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        let reason = "failed to read \"PreScoreInterPodAffinity\" from cycleState: not found";
        Err(Status::error(NAME, reason))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let spec: &'a PodSpec = &pod.template;
        let (near_terms, apart_terms) = (preferred(near(spec)), preferred(apart(spec)));
        let has_own = !near_terms.is_empty() || !apart_terms.is_empty();
        if self.ignore_preferred_terms_of_existing_pods && !has_own {
            return Ok(PreScore::Skip);
        }
        if !has_own && cluster.chunks_with_affinity().next().is_none() {
            return Ok(PreScore::Skip);
        }
        // If the pod has preferred terms of its own, the terms of existing pods count even if the arguments exclude
        // them. Kube-scheduler does the same.
        let of_others = |other: &Template, keys: &mut Keys| {
            let mut shares: Vec<(usize, i64)> = Vec::new();
            let mut add = |term: &PodAffinityTerm, amount: i64| {
                if selects_pod(cluster, term, spec) {
                    shares.push((keys.at(cluster, &term.topology_key), amount));
                }
            };
            if self.hard_pod_affinity_weight > 0 {
                required(near(other)).iter().for_each(|t| add(t, self.hard_pod_affinity_weight));
            }
            for (weighted, sign) in signed(preferred(near(other)), preferred(apart(other))) {
                add(&weighted.term, sign * i64::from(weighted.weight));
            }
            shares.into()
        };
        let visited = Cell::new(0);
        let start = |keys: &mut Keys| {
            // All chunks are counted.
            visited.set(FEW);
            for (weighted, _) in signed(near_terms, apart_terms) {
                keys.at(cluster, &weighted.term.topology_key);
            }
        };
        self.counted.with_template(&pod.template, MAX_TEMPLATES, |counted| {
            let (ledger, selected) = &mut counted.preferred;
            let own_terms = signed(near_terms, apart_terms).map(|(weighted, _)| &weighted.term);
            let mut by_labels = OwnTerms::new(cluster, own_terms, selected, &visited);
            let mut by_terms = Terms::new(&spec.namespace, &mut counted.preferring, &visited);
            let count = |keys: &mut Keys, chunk: &Chunk, part: &mut Part| {
                visited.update(|visited| visited + 1);
                if has_own {
                    let position = |term: &PodAffinityTerm| {
                        keys.0.iter().position(|sums| sums.topology.key == term.topology_key)
                    };
                    let share = |namespace: &str, labels: &Labels| {
                        let terms = signed(near_terms, apart_terms);
                        let terms = terms.filter(|(weighted, _)| {
                            selects(cluster, &weighted.term, namespace, labels)
                        });
                        let shares = terms.filter_map(|(weighted, sign)| {
                            Some((position(&weighted.term)?, sign * i64::from(weighted.weight)))
                        });
                        shares.collect()
                    };
                    by_labels.add(keys, chunk, part, share);
                }
                if chunk.with_affinity() != 0 {
                    by_terms.add(cluster, keys, chunk, part, of_others);
                }
            };
            Ok(match ledger.follow(cluster, reads(cluster), start, count) {
                (keys, true) => PreScore::Score(Box::new(Preferred(keys.clone()))),
                (_, false) => PreScore::Skip,
            })
        })
    }
}

impl Rules<'_> {
    /// Returns the lanes of `mask` that meet the pod's affinity.
    fn near(&self, chunk: &Chunk, mask: u64) -> u64 {
        let sums = self.near.positions.iter().map(|at| &self.near.keys.0[*at]);
        if self.companions > 0 || !self.matches_itself {
            return sums.fold(mask, |left, sums| sums.positive(chunk, left));
        }
        // The first pod of a group with mutual affinity may be placed anywhere.
        sums.fold(mask, |left, sums| sums.topology.having(chunk, left))
    }

    /// Adds `by` to the counts for a pod that joins or leaves a node (`updateWithPod`).
    fn change(&mut self, pod: &PodSpec, node: NodeInfo<'_>, by: i64) {
        let cluster = self.cluster;
        for term in required(apart(pod)).iter().filter(|t| selects_pod(cluster, t, self.spec)) {
            let at = self.existing.at(cluster, &term.topology_key);
            let sums = &mut self.existing.0[at];
            if let Some(domain) = sums.topology.domain(node) {
                sums.add(domain, by);
            }
        }
        self.companions += by * self.near.change(cluster, true, pod, node, by);
        self.apart.change(cluster, false, pod, node, by);
        self.version = None;
    }

    fn reject(&self, domain: impl Fn(&Sums) -> Option<Domain>) -> Option<(Code, &'static str)> {
        let mut has_all = true;
        for at in &self.near.positions {
            let sums = &self.near.keys.0[*at];
            let Some(domain) = domain(sums) else {
                return Some((Code::UnschedulableAndUnresolvable, AFFINITY));
            };
            has_all &= sums.get(domain) > 0;
        }
        // The first pod of a group with mutual affinity may be placed anywhere.
        if !has_all && (self.companions > 0 || !self.matches_itself) {
            return Some((Code::UnschedulableAndUnresolvable, AFFINITY));
        }
        let meets = |keys: &Keys| {
            keys.0.iter().any(|sums| domain(sums).is_some_and(|domain| sums.get(domain) > 0))
        };
        if meets(&self.apart.keys) {
            return Some((Code::Unschedulable, ANTI_AFFINITY));
        }
        meets(&self.existing).then_some((Code::Unschedulable, EXISTING))
    }
}

impl Filter for Rules<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let rejected = self.reject(|sums| sums.topology.domain(node));
        rejected.map(|(code, reason)| Status::new(code, NAME, reason))
    }

    fn filter_chunk(&self, _: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        let near = self.near(chunk, mask);
        let not_excluded = |passed: u64, keys: &Keys| passed & !keys.positive(chunk, passed);
        Ok(not_excluded(not_excluded(near, &self.apart.keys), &self.existing))
    }

    fn count_reasons(
        &self,
        _: &Cluster,
        chunk: &Chunk,
        mask: u64,
        reasons: &mut Reasons,
    ) -> Result<u64, Status> {
        let near = self.near(chunk, mask);
        let apart = near & !self.apart.keys.positive(chunk, near);
        let passed = apart & !self.existing.positive(chunk, apart);
        let count = |lanes: u64| lanes.count_ones() as usize;
        reasons.add(AFFINITY, count(mask & !near));
        reasons.add(ANTI_AFFINITY, count(near & !apart));
        reasons.add(EXISTING, count(apart & !passed));
        Ok(passed)
    }

    /// A pod without anti-affinity excludes no node, and a placed pod can only add to the pods that satisfy the
    /// affinity. The exception is the first of them: before it, every node may pass; after it, only the nodes of its
    /// domains.
    fn stays_feasible(&self) -> bool {
        self.apart.terms.is_empty() && (self.near.terms.is_empty() || self.companions > 0)
    }

    fn version(&self) -> Option<u64> {
        self.version
    }

    fn reads(&self) -> Reads {
        Reads::Pods
    }

    /// Known if other pods match the pod's anti-affinity.
    fn rejection_without(&self, victims: Victims<'_>) -> Option<Status> {
        let Counted { terms, keys, .. } = &self.apart;
        let of_domain = |sums: &Sums| Some(sums.get(sums.topology.domain(victims.node())?));
        let mut left: Vec<i64> = keys.0.iter().map(|sums| of_domain(sums).unwrap_or(0)).collect();
        if !self.near.terms.is_empty() || left.iter().all(|sum| *sum <= 0) {
            return None;
        }
        for pod in victims.pods() {
            let labels = &pod.template().labels;
            let matched = shares(terms, keys, self.cluster, false, pod.namespace(), labels);
            matched.iter().for_each(|(at, amount)| left[*at] -= amount);
        }
        let is_excluded = left.iter().any(|sum| *sum > 0);
        is_excluded.then(|| Status::new(Code::Unschedulable, NAME, ANTI_AFFINITY))
    }

    fn extend<'s>(&'s self) -> Option<Box<dyn Filter + 's>> {
        Some(Box::new(self.clone()))
    }

    fn add_pod(&mut self, pod: &Pod, node: NodeInfo<'_>) -> Result<(), Status> {
        self.change(&pod.template, node, 1);
        Ok(())
    }

    fn remove_pod(&mut self, pod: &Pod, node: NodeInfo<'_>) -> Result<(), Status> {
        self.change(&pod.template, node, -1);
        Ok(())
    }

    /// Evicting pods resolves anti-affinity only.
    fn resolvable(&self, _: &Cluster, chunk: &Chunk, rejected: u64) -> u64 {
        self.near(chunk, rejected)
    }
}

struct Preferred(Keys);

impl Preferred {
    fn sum(&self, domain: impl Fn(&Sums) -> Option<Domain>) -> i64 {
        let sums = self.0.0.iter();
        sums.filter_map(|sums| Some(sums.get(domain(sums)?))).sum()
    }
}

impl Score for Preferred {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        Ok(self.sum(|sums| sums.topology.domain(node)))
    }

    fn score_chunk(
        &self,
        _: &Cluster,
        chunk: &Chunk,
        mask: u64,
        scores: &mut Column<i64>,
    ) -> Result<(), Status> {
        *scores = [0; LANES];
        self.0.0.iter().for_each(|sums| sums.add_to(chunk, mask, scores));
        Ok(())
    }

    fn needs_normalize(&self) -> bool {
        true
    }

    fn normalize(&self, _: &ScoredNodes<'_>, scores: &mut [i64]) -> Result<(), Status> {
        let (least, most) = dispatch::extremes(scores);
        let range = most.wrapping_sub(least);
        // Divides first, because the rounding depends on the order.
        let normalized = |score: i64| (100.0 * ((score - least) as f64 / range as f64)) as i64;
        each_run(scores, |score| if range == 0 { 0 } else { normalized(score) });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::cache::{Config, Engine, Writer};
    use crate::framework::{Algorithm, AlgorithmConfig, Framework};
    use crate::model::{
        HOSTNAME, LabelSelector, Labels, Namespace, Operator, Pod, PodAffinity, PodAffinityTerm,
        Requirement, node, pod,
    };
    use crate::snapshot::Cluster;

    const ZONE: &str = "topology.kubernetes.io/zone";

    /// A cluster with two zones, and a pod named web in namespace `there` in the first zone.
    fn cluster(there: &str) -> Writer {
        let (mut writer, _) = Engine::inline(Config::default());
        for (name, zone) in [("a", "z1"), ("b", "z2")] {
            writer.add_node(node(name).zone(zone).cpu(8_000).build()).unwrap();
        }
        for (name, team) in [("default", None), ("red", Some("red")), ("blue", Some("blue"))] {
            let labels = Labels::new(team.map(|team| ("team", team)));
            let namespace = Namespace { name: name.into(), labels };
            writer.put_object(namespace).unwrap();
        }
        let web = pod("web").namespace(there).label("app", "web").on("a").build();
        writer.add_pod(web).unwrap();
        writer
    }

    fn near(namespaces: &[&str], selector: LabelSelector) -> Pod {
        let term = PodAffinityTerm {
            topology_key: ZONE.into(),
            selector: LabelSelector::from_labels([("app", "web")]),
            namespaces: namespaces.iter().map(|name| (*name).into()).collect(),
            namespace_selector: selector,
        };
        let affinity = PodAffinity { required: Box::new([term]), ..PodAffinity::default() };
        pod("near").pod_affinity(affinity).build()
    }

    fn fits(writer: &Writer, pod: &Pod) -> Vec<String> {
        let found = Framework::default_profile().evaluate(writer.cluster(), pod).nodes;
        let fits = found.into_iter().filter(|(_, verdict)| verdict.status.is_none());
        fits.map(|(name, _)| name.to_string()).collect()
    }

    /// The verdicts of a framework that knows which templates contribute are those of a new one.
    #[test]
    fn verdicts_follow_the_templates_and_namespaces_that_contribute() {
        let (mut writer, _) = Engine::inline(Config::default());
        let labels = Labels::new([("team", "red")]);
        let red = |labels: &Labels| Namespace { name: "red".into(), labels: labels.clone() };
        writer.put_object(red(&Labels::EMPTY)).unwrap();
        for n in 0..700 {
            writer.add_node(node(format!("n{n:03}")).hostname().pods(110).build()).unwrap();
        }
        let web = pod("new").namespace("red").label("app", "web").build();
        let excluded = |framework: &Framework, cluster: &Cluster| {
            let found = framework.evaluate(cluster, &web).nodes.into_iter();
            let out = found.filter(|(_, verdict)| verdict.status.is_some());
            out.map(|(name, _)| name.to_string()).collect::<Vec<_>>()
        };
        let used = Framework::default_profile();
        let check = |cluster: &Cluster, expected: &[&str]| {
            let found = excluded(&used, cluster);
            assert_eq!(found, excluded(&Framework::default_profile(), cluster));
            assert_eq!(found, expected);
        };
        let apart = |name: &str, app: &str, selector: LabelSelector, on: &str| {
            let term = PodAffinityTerm {
                topology_key: HOSTNAME.into(),
                selector: LabelSelector::from_labels([("app", app)]),
                namespaces: Box::default(),
                namespace_selector: selector,
            };
            let affinity = PodAffinity { required: Box::new([term]), ..PodAffinity::default() };
            pod(name).pod_anti_affinity(affinity).on(on).build()
        };
        let all = || LabelSelector::from_labels::<&str, &str>([]);
        // More chunks than are asked one by one.
        for n in 0..12 {
            let name = format!("n{:03}", n * 60);
            writer.add_pod(apart(&format!("db-{n}"), "db", all(), &name)).unwrap();
        }
        check(writer.cluster(), &[]);
        let first = apart("one", "web", all(), "n003");
        writer.add_pod(first.clone()).unwrap();
        check(writer.cluster(), &["n003"]);
        let before = writer.cluster().fork();
        // Its number is reused for a template that contributes nothing.
        writer.remove_pod(&first).unwrap();
        check(writer.cluster(), &[]);
        writer.add_pod(apart("two", "cache", all(), "n004")).unwrap();
        check(writer.cluster(), &[]);
        check(&before, &["n003"]);
        let of_team = LabelSelector::from_labels([("team", "red")]);
        writer.add_pod(apart("three", "web", of_team, "n699")).unwrap();
        check(writer.cluster(), &[]);
        writer.put_object(red(&labels)).unwrap();
        check(writer.cluster(), &["n699"]);
        writer.put_object(red(&Labels::EMPTY)).unwrap();
        check(writer.cluster(), &[]);
    }

    #[test]
    fn pods_of_all_listed_namespaces_count() {
        let mut writer = cluster("red");
        writer.add_pod(pod("web").namespace("blue").label("app", "web").on("b").build()).unwrap();
        writer.add_node(node("c").zone("z3").cpu(8_000).build()).unwrap();
        let affinity = near(&["red", "blue"], LabelSelector::Nothing).template.pod_affinity.clone();
        let affinity = affinity.map(|affinity| *affinity).unwrap_or_default();
        let apart = pod("apart").pod_anti_affinity(affinity).build();
        assert_eq!(fits(&writer, &apart), ["c"]);
    }

    #[test]
    fn first_pod_with_affinity_to_itself_fits_where_nodes_have_the_key() {
        let mut writer = cluster("default");
        writer.add_node(node("c").cpu(64_000).build()).unwrap();
        let app = |name: &str, app: &str| {
            let affinity = near(&["default"], LabelSelector::Nothing).template.pod_affinity.clone();
            let mut affinity = affinity.map(|affinity| *affinity).unwrap_or_default();
            affinity.required[0].selector = LabelSelector::from_labels([("app", "first")]);
            pod(name).label("app", app).pod_affinity(affinity).build()
        };
        let chosen = |writer: &Writer, pod: &Pod| {
            let framework = Framework::default_profile();
            let algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
            { algorithm }.schedule(writer.cluster(), pod).map(|decision| decision.node.to_string())
        };
        let first = app("one", "first");
        assert_eq!(fits(&writer, &first), ["a", "b"]);
        assert!(chosen(&writer, &first).is_ok_and(|node| node != "c"));
        assert!(chosen(&writer, &app("two", "other")).is_err(), "does not match itself");
        writer.add_pod(first.on("b")).unwrap();
        assert_eq!(chosen(&writer, &app("three", "first")).unwrap(), "b");
    }

    #[test]
    fn terms_select_exactly_the_listed_and_matching_namespaces() {
        let not = |team: &str| {
            LabelSelector::All(Box::new([Requirement::new("team", Operator::NotIn, [team])]))
        };
        let none = || LabelSelector::Nothing;
        let labelled = LabelSelector::from_labels([("team", "red")]);
        let unlabelled = LabelSelector::All(Box::new([Requirement::new::<&str>(
            "team",
            Operator::DoesNotExist,
            [],
        )]));
        for (there, listed, selector, is_selected) in [
            ("default", &["default"][..], none(), true),
            ("red", &["default"], none(), false),
            ("red", &["default"], labelled.clone(), true),
            ("blue", &["default"], labelled, false),
            ("red", &["default"], LabelSelector::everything(), true),
            // Kube-scheduler 1.36.2 does not read the labels here and treats every namespace as a match.
            ("red", &["default"], not("red"), false),
            ("blue", &["default"], not("red"), true),
            ("red", &["default"], unlabelled.clone(), false),
            ("default", &[], unlabelled, true),
        ] {
            let writer = cluster(there);
            let wanted = near(listed, selector.clone());
            let expected: &[&str] = if is_selected { &["a"] } else { &[] };
            assert_eq!(fits(&writer, &wanted), expected, "{there} {listed:?} {selector:?}");
        }
    }
}
