//! Pods near to, or far from, other pods (interpodaffinity/{filtering,scoring}.go).

use crate::framework::{
    Code, Cycle, Feasible, Filter, Plugin, Point, PreFilter, PreScore, Score, Status, each_lane,
};
use crate::model::{
    Labels, PodAffinity, PodAffinityTerm, PodSpec, Template, WeightedPodAffinityTerm,
};
use crate::snapshot::{Chunk, Cluster, Column, NodeInfo, lanes};

use super::topology::{Domain, Keys, Sums};

/// Rejects nodes whose domain lacks the pods that the pod wants to be with, or
/// has pods that it, or that they, want to be apart from; and prefers domains
/// by their preferred terms.
#[derive(Clone, Debug)]
pub struct InterPodAffinity {
    /// What a required affinity term of a pod that is there is worth, 0 to 100.
    pub hard_pod_affinity_weight: i64,
    /// Whether pods without preferred terms of their own are not scored, so that
    /// those of pods that are there count for nothing.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinity {
    fn default() -> InterPodAffinity {
        InterPodAffinity {
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
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

/// Whether a term means pods like this one, wherever they are.
fn means(cluster: &Cluster, term: &PodAffinityTerm, spec: &PodSpec) -> bool {
    let labels = cluster.objects().namespaces.get("", &spec.namespace).map(|n| &n.labels);
    term.matches(&spec.namespace, labels.unwrap_or(const { &Labels::EMPTY }), &spec.labels)
}

/// What the pods of one template add to which sums.
type Shares = Box<[(usize, i64)]>;

/// Adds what `share` says of each pod's template in the domains of these lanes.
/// O(pods), and a call of `share` for each template among them.
fn count<'a>(
    cluster: &'a Cluster,
    chunks: impl Iterator<Item = (&'a Chunk, u64)>,
    keys: &mut Keys<'a>,
    mut share: impl FnMut(&'a Template, &mut Keys<'a>) -> Shares,
) {
    let mut known: Vec<Option<Shares>> = Vec::new();
    for (chunk, mask) in chunks {
        for lane in lanes(mask) {
            for template in chunk.templates_on(lane) {
                let id = template as usize;
                if known.len() <= id {
                    known.resize_with(id + 1, || None);
                }
                let shares = known[id].get_or_insert_with(|| match cluster.template(template) {
                    Some(template) => share(template, keys),
                    None => Box::default(),
                });
                for (at, amount) in shares.iter() {
                    let sums = &mut keys.0[*at];
                    if let Some(domain) = sums.topology.domain_in(cluster, chunk, lane) {
                        sums.add(domain, *amount);
                    }
                }
            }
        }
    }
}

fn all_chunks(cluster: &Cluster) -> impl Iterator<Item = (&Chunk, u64)> {
    cluster.chunk_list().map(|(_, _, chunk)| (chunk, chunk.live()))
}

/// What is counted for the filter.
struct Rules<'a> {
    /// Pods there that want to be apart from pods like this one.
    existing: Keys<'a>,
    /// The position of each affinity term's key, and pods that match all terms.
    near: (Vec<usize>, Keys<'a>),
    /// The position of each anti-affinity term's key, and pods that match it.
    apart: (Vec<usize>, Keys<'a>),
    /// Whether the pod itself matches all of its affinity terms.
    matches_itself: bool,
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let spec: &'a PodSpec = &pod.template;
        let mut existing = Keys::default();
        for node in cluster.nodes_with_required_anti_affinity() {
            for other in node.pods_with_required_anti_affinity() {
                for term in required(apart(other.template())) {
                    if means(cluster, term, spec) {
                        let at = existing.at(cluster, &term.topology_key);
                        let sums: &mut Sums<'_> = &mut existing.0[at];
                        if let Some(domain) = sums.topology.domain(node) {
                            sums.add(domain, 1);
                        }
                    }
                }
            }
        }
        let (near_terms, apart_terms) = (required(near(spec)), required(apart(spec)));
        if !existing.is_touched() && near_terms.is_empty() && apart_terms.is_empty() {
            return Ok(PreFilter::Skip);
        }
        let counted = |terms: &'a [PodAffinityTerm], all: bool| {
            let mut keys = Keys::default();
            let positions: Vec<usize> =
                terms.iter().map(|term| keys.at(cluster, &term.topology_key)).collect();
            if !terms.is_empty() {
                count(cluster, all_chunks(cluster), &mut keys, |template, _| {
                    let matching = terms.iter().zip(&positions);
                    let matching = matching.filter(|(term, _)| means(cluster, term, template));
                    let shares: Vec<_> = matching.map(|(_, at)| (*at, 1)).collect();
                    if all && shares.len() < terms.len() {
                        return Box::default();
                    }
                    shares.into()
                });
            }
            (positions, keys)
        };
        Ok(PreFilter::Filter(Box::new(Rules {
            existing,
            near: counted(near_terms, true),
            apart: counted(apart_terms, false),
            matches_itself: near_terms.iter().all(|term| means(cluster, term, spec)),
        })))
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
        let mut keys = Keys::default();
        let share = |other: &'a Template, keys: &mut Keys<'a>| -> Shares {
            let mut shares: Vec<(usize, i64)> = Vec::new();
            let mut add = |term: &'a PodAffinityTerm, amount: i64| {
                shares.push((keys.at(cluster, &term.topology_key), amount));
            };
            for (terms, sign) in [(near_terms, 1), (apart_terms, -1)] {
                for weighted in terms.iter().filter(|w| means(cluster, &w.term, other)) {
                    add(&weighted.term, sign * i64::from(weighted.weight));
                }
            }
            if self.hard_pod_affinity_weight > 0 {
                for term in required(near(other)).iter().filter(|t| means(cluster, t, spec)) {
                    add(term, self.hard_pod_affinity_weight);
                }
            }
            for (terms, sign) in [(preferred(near(other)), 1), (preferred(apart(other)), -1)] {
                for weighted in terms.iter().filter(|w| means(cluster, &w.term, spec)) {
                    add(&weighted.term, sign * i64::from(weighted.weight));
                }
            }
            shares.into()
        };
        match has_own {
            true => count(cluster, all_chunks(cluster), &mut keys, share),
            false => count(cluster, cluster.chunks_with_affinity(), &mut keys, share),
        }
        match keys.is_touched() {
            true => Ok(PreScore::Score(Box::new(Preferred(keys)))),
            false => Ok(PreScore::Skip),
        }
    }
}

impl Rules<'_> {
    fn reject(&self, domain: impl Fn(&Sums<'_>) -> Option<Domain>) -> Option<(Code, &'static str)> {
        let (terms, keys) = &self.near;
        if !terms.is_empty() {
            let mut has_all = true;
            for at in terms {
                let Some(domain) = domain(&keys.0[*at]) else {
                    return Some((Code::UnschedulableAndUnresolvable, AFFINITY));
                };
                has_all &= keys.0[*at].get(domain) > 0;
            }
            // The first of pods that want to be together may go anywhere.
            if !has_all && (keys.is_touched() || !self.matches_itself) {
                return Some((Code::UnschedulableAndUnresolvable, AFFINITY));
            }
        }
        let meets = |keys: &Keys<'_>| {
            keys.0.iter().any(|sums| domain(sums).is_some_and(|domain| sums.get(domain) > 0))
        };
        if meets(&self.apart.1) {
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

    fn filter_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        Ok(each_lane(mask, |lane| {
            self.reject(|sums| sums.topology.domain_in(cluster, chunk, lane)).is_none()
        }))
    }
}

struct Preferred<'a>(Keys<'a>);

impl Preferred<'_> {
    fn sum(&self, domain: impl Fn(&Sums<'_>) -> Option<Domain>) -> i64 {
        let sums = self.0.0.iter();
        sums.filter_map(|sums| Some(sums.get(domain(sums)?))).sum()
    }
}

impl Score for Preferred<'_> {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        Ok(self.sum(|sums| sums.topology.domain(node)))
    }

    fn score_chunk(
        &self,
        cluster: &Cluster,
        chunk: &Chunk,
        mask: u64,
        scores: &mut Column<i64>,
    ) -> Result<(), Status> {
        each_lane(mask, |lane| {
            scores[lane] = self.sum(|sums| sums.topology.domain_in(cluster, chunk, lane));
            false
        });
        Ok(())
    }

    fn needs_normalize(&self) -> bool {
        true
    }

    fn normalize(&self, scores: &mut [i64]) -> Result<(), Status> {
        let least = scores.iter().copied().min().unwrap_or(0);
        let range = scores.iter().copied().max().unwrap_or(0) - least;
        for score in scores {
            *score = match range {
                0 => 0,
                // The quotient first: it is not always what the product gives.
                range => (100.0 * ((*score - least) as f64 / range as f64)) as i64,
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::framework::Framework;
    use crate::model::{
        LabelSelector, Labels, Namespace, Object, Operator, Pod, PodAffinity, PodAffinityTerm,
        Requirement, node, pod,
    };
    use crate::{Config, Engine, Writer};

    const ZONE: &str = "topology.kubernetes.io/zone";

    /// Two zones, and in the first one a pod called web of namespace `there`.
    fn cluster(there: &str) -> Writer {
        let (mut writer, _) = Engine::inline(Config::default());
        for (name, zone) in [("a", "z1"), ("b", "z2")] {
            writer.add_node(node(name).zone(zone).cpu(8_000).build()).unwrap();
        }
        for (name, team) in [("default", None), ("red", Some("red")), ("blue", Some("blue"))] {
            let labels = Labels::new(team.map(|team| ("team", team)));
            let namespace = Namespace { name: name.into(), labels };
            writer.put_object(Object::Namespace(namespace)).unwrap();
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

    #[test]
    fn namespaces_that_are_listed_or_selected_are_meant_and_no_others() {
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
        for (there, listed, selector, is_meant) in [
            ("default", &["default"][..], none(), true),
            ("red", &["default"], none(), false),
            ("red", &["default"], labelled.clone(), true),
            ("blue", &["default"], labelled, false),
            ("red", &["default"], LabelSelector::everything(), true),
            // Kube-scheduler 1.36.2 looks at no labels here, and takes every
            // namespace for one that matches.
            ("red", &["default"], not("red"), false),
            ("blue", &["default"], not("red"), true),
            ("red", &["default"], unlabelled.clone(), false),
            ("default", &[], unlabelled, true),
        ] {
            let writer = cluster(there);
            let wanted = near(listed, selector.clone());
            let expected: &[&str] = if is_meant { &["a"] } else { &[] };
            assert_eq!(fits(&writer, &wanted), expected, "{there} {listed:?} {selector:?}");
        }
    }

    #[test]
    fn the_first_of_pods_that_want_to_be_together_goes_anywhere() {
        let writer = cluster("red");
        let mut first = near(&["default"], LabelSelector::Nothing);
        assert_eq!(fits(&writer, &first), [""; 0]);
        let affinity = first.template.pod_affinity.clone().unwrap();
        first = pod("first").label("app", "web").pod_affinity(*affinity).build();
        assert_eq!(fits(&writer, &first), ["a", "b"]);
    }
}
