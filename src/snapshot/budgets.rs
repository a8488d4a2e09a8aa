//! Finds the disruption budgets that match a pod without testing every budget.
//!
//! The index files a budget under its namespace and one label that its selector requires, or under the namespace alone
//! if the selector requires no particular label. The labels of a pod therefore determine every key under which its
//! budgets can be filed, and the selector itself decides about each candidate. No state is kept per pod or per owner:
//! the links between owners and budgets, which Gödel stores and which go stale when either side changes, are computed
//! by each query here.
//!
//! Inserting a budget costs O(log n), regardless of the number of budgets and of matching pods. A selector that
//! requires no single label value (`Exists`, `NotIn`, an `In` of several values) is evaluated for every pod of its
//! namespace.

use std::sync::Arc;

use crate::model::{
    LabelSelector, Labels, ObjectKind, Operator, PodDisruptionBudget, Requirement, Workload,
    hash_of,
};

use super::cluster::Cluster;
use super::hash_index::HashIndex;
use super::stores::Objects;

/// Numbers of the budgets in their store, by the key they are filed under.
#[derive(Clone, Default)]
pub(crate) struct Budgets(HashIndex);

/// A namespace, and a label that the selector requires, if any.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key<'a> {
    namespace: &'a str,
    label: Option<(&'a str, &'a str)>,
}

impl<'a> Key<'a> {
    /// Returns the key to file a budget under, or `None` if the budget can match no pod.
    fn of(budget: &'a PodDisruptionBudget) -> Option<Key<'a>> {
        let LabelSelector::All(requirements) = &budget.selector else { return None };
        let is_void = |r: &Requirement| r.operator == Operator::In && r.values.is_empty();
        if requirements.is_empty() || requirements.iter().any(is_void) {
            return None;
        }
        let label = requirements.iter().find_map(|r| match (r.operator, &*r.values) {
            (Operator::In, [value]) => Some((&*r.key, &**value)),
            _ => None,
        });
        Some(Key { namespace: &budget.namespace, label })
    }
}

impl Budgets {
    /// Updates the index when the budget with this number is added, replaced or removed. O(log n).
    pub(super) fn exchange(
        &mut self,
        number: u32,
        old: Option<&PodDisruptionBudget>,
        new: Option<&PodDisruptionBudget>,
    ) {
        let (old, new) = (old.and_then(Key::of), new.and_then(Key::of));
        if old == new {
            return;
        }
        if let Some(key) = old {
            self.0.remove(hash_of(&key), number);
        }
        if let Some(key) = new {
            self.0.insert(hash_of(&key), number);
        }
    }

    /// Returns the numbers of all budgets that may match these labels, each with the key under which it was looked up.
    /// A candidate whose own key differs is a hash collision.
    fn candidates<'a>(
        &'a self,
        namespace: &'a str,
        labels: &'a Labels,
    ) -> impl Iterator<Item = (Key<'a>, u32)> + 'a {
        let keys = labels.iter().map(Some).chain([None]);
        let keys = keys.map(move |label| Key { namespace, label });
        keys.flat_map(|key| self.0.numbers(hash_of(&key)).map(move |number| (key, number)))
    }
}

impl Objects {
    /// Returns the budgets that match pods with these labels, in no particular order, each with its number in the
    /// store. A pod without labels has none.
    pub(crate) fn budgets_about<'a: 'l, 'l>(
        &'a self,
        namespace: &'l str,
        labels: &'l Labels,
    ) -> impl Iterator<Item = (u32, &'a Arc<PodDisruptionBudget>)> + 'l {
        let any = !labels.is_empty() && !self.pod_disruption_budgets.is_empty();
        let candidates = any.then(|| self.budgets.candidates(namespace, labels));
        let known = move |(key, number)| {
            let budget = self.pod_disruption_budgets.at(number)?;
            (Key::of(budget) == Some(key)).then_some((number, budget))
        };
        let found = candidates.into_iter().flatten().filter_map(known);
        found.filter(move |(_, budget)| budget.selector.matches(labels))
    }
}

impl Cluster {
    /// Returns the disruption budgets that match pods of a namespace with these labels, sorted by name.
    ///
    /// As in kube-scheduler (default_preemption.go `filterPodsWithPDBViolation`), a budget with no selector or an empty
    /// one matches no pod, and a pod without labels has no budgets. `PodDisruptionBudget::counts` decides whether a
    /// budget counts a particular pod: it does not if the pod's disruption is already in progress.
    ///
    /// O(labels × log n + budgets of the namespace that require one of the labels, or no particular label).
    ///
    /// ```
    /// use portolan::cache::{Config, Engine};
    /// use portolan::model::{LabelSelector, Labels, PodDisruptionBudget};
    ///
    /// let (mut writer, _) = Engine::inline(Config::default());
    /// let budget = PodDisruptionBudget {
    ///     namespace: "default".into(),
    ///     name: "web".into(),
    ///     selector: LabelSelector::from_labels([("app", "web")]),
    ///     ..PodDisruptionBudget::default()
    /// };
    /// writer.put_object(budget).unwrap();
    /// let labels = Labels::new([("app", "web"), ("tier", "front")]);
    /// assert_eq!(writer.cluster().budgets_for("default", &labels).len(), 1);
    /// assert_eq!(writer.cluster().budgets_for("other", &labels).len(), 0);
    /// ```
    #[must_use]
    pub fn budgets_for(&self, namespace: &str, labels: &Labels) -> Vec<&Arc<PodDisruptionBudget>> {
        let found = self.objects().budgets_about(namespace, labels);
        let mut found: Vec<_> = found.map(|(_, budget)| budget).collect();
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// Returns the owner of pods with this kind, namespace and name. Gödel's owners are replica sets and daemon sets.
    /// O(log n).
    #[must_use]
    pub(crate) fn owner(
        &self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
    ) -> Option<&Arc<Workload>> {
        self.objects().workloads(kind)?.get(namespace, name)
    }

    /// Returns the disruption budgets that match the owner's own labels, sorted by name; none if the owner does not
    /// exist. The owner's pods may have other labels; use [`Cluster::budgets_for`] for a pod. The cost is that of
    /// `budgets_for` plus O(log n).
    #[must_use]
    pub fn budgets_of_owner(
        &self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
    ) -> Vec<&Arc<PodDisruptionBudget>> {
        let owner = self.owner(kind, namespace, name);
        owner.map(|owner| self.budgets_for(namespace, &owner.labels)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest_derive::Arbitrary;

    use super::*;
    use crate::cache::{Config, Engine, Writer};
    use crate::log::{Event, ObjectKey, Relist};
    use crate::model::{Name, Object};

    #[derive(Clone, Debug, Arbitrary)]
    enum Op {
        Put(Seed),
        Delete(u8),
        Relist(#[proptest(strategy = "prop::collection::vec(any::<Seed>(), 0..9)")] Vec<Seed>),
    }

    #[derive(Clone, Debug, Arbitrary)]
    struct Seed {
        name: u8,
        shape: u8,
        value: u8,
    }

    /// Returns one of 24 keys in three namespaces.
    fn key(name: u8) -> (Name, Name) {
        (format!("s{}", name % 3).into(), format!("b{}", name % 24).into())
    }

    fn value(n: u8) -> &'static str {
        ["red", "green", "blue"][usize::from(n % 3)]
    }

    fn budget(seed: &Seed) -> PodDisruptionBudget {
        let (namespace, name) = key(seed.name);
        let (one, other) = (value(seed.value), value(seed.value / 3));
        let none: [&str; 0] = [];
        let is = |key: &str, value| Requirement::new(key, Operator::In, [value]);
        let requirements: Vec<Requirement> = match seed.shape % 10 {
            0 => return PodDisruptionBudget { namespace, name, ..PodDisruptionBudget::default() },
            1 => Vec::new(),
            2 => vec![Requirement::new("a", Operator::Exists, none)],
            3 => vec![Requirement::new("a", Operator::DoesNotExist, none)],
            4 => vec![Requirement::new("a", Operator::NotIn, [one, other])],
            5 => vec![Requirement::new("b", Operator::In, [one, other])],
            6 => vec![Requirement::new("b", Operator::In, none), is("a", one)],
            7 => vec![Requirement::new("b", Operator::NotIn, [other]), is("a", one)],
            8 => vec![is("b", one), is("a", other)],
            _ => vec![is("a", one)],
        };
        let selector = LabelSelector::All(requirements.into());
        let disruptions_allowed = i32::from(seed.value);
        PodDisruptionBudget {
            namespace,
            name,
            selector,
            disruptions_allowed,
            ..PodDisruptionBudget::default()
        }
    }

    fn event(op: &Op) -> Event {
        let object = |seed: &Seed| Object::from(budget(seed));
        let kind = ObjectKind::PodDisruptionBudget;
        match op {
            Op::Put(seed) => Event::PutObject(object(seed)),
            Op::Delete(name) => {
                let (namespace, name) = key(*name);
                let (namespace, name) = (namespace.to_string(), name.to_string());
                Event::DeleteObject(Arc::new(ObjectKey { kind, namespace, name }))
            }
            Op::Relist(seeds) => {
                Event::Relist(Arc::new(Relist::Objects(kind, seeds.iter().map(object).collect())))
            }
        }
    }

    /// The oracle: tests every budget.
    fn scanned(cluster: &Cluster, namespace: &str, labels: &Labels) -> Vec<PodDisruptionBudget> {
        let all = cluster.objects().pod_disruption_budgets.iter().filter(|budget| {
            *budget.namespace == *namespace
                && !labels.is_empty()
                && !budget.selector.is_empty()
                && budget.selector.matches(labels)
        });
        let mut all: Vec<_> = all.map(|budget| PodDisruptionBudget::clone(budget)).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn found(cluster: &Cluster, namespace: &str, labels: &Labels) -> Vec<PodDisruptionBudget> {
        let found = cluster.budgets_for(namespace, labels).into_iter();
        found.map(|budget| PodDisruptionBudget::clone(budget)).collect()
    }

    fn all_labels() -> Vec<Labels> {
        let values = || [None, Some("red"), Some("green"), Some("blue")];
        let both = values().into_iter().flat_map(|a| values().map(|b| (a, b)));
        let labels = |(a, b): (Option<&'static str>, Option<&'static str>)| {
            let pairs = [a.map(|a| ("a", a)), b.map(|b| ("b", b)), Some(("c", "x"))];
            Labels::new(pairs.into_iter().flatten())
        };
        both.map(labels).chain([Labels::EMPTY]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn index_agrees_with_a_scan_and_held_versions_keep_their_answers(
            ops in prop::collection::vec(any::<Op>(), 1..80),
        ) {
            let mut state = crate::state::State::new(None, crate::state::CommitPolicy::Unchecked);
            let labels = all_labels();
            let answers = |cluster: &Cluster| -> Vec<Vec<PodDisruptionBudget>> {
                let spaces = ["s0", "s1", "s2", "none"];
                let asked = spaces.iter().flat_map(|s| labels.iter().map(move |l| (s, l)));
                asked.map(|(space, labels)| found(cluster, space, labels)).collect()
            };
            let mut held = Vec::new();
            for (i, op) in ops.iter().enumerate() {
                let _ = state.apply(&event(op));
                for labels in &labels {
                    for space in ["s0", "s1", "s2", "none"] {
                        let cluster = state.cluster();
                        prop_assert_eq!(
                            found(cluster, space, labels),
                            scanned(cluster, space, labels)
                        );
                    }
                }
                if i % 16 == 5 {
                    let snapshot = state.freeze();
                    let answers = answers(&snapshot);
                    held.push((snapshot, answers));
                }
            }
            for (snapshot, before) in &held {
                prop_assert_eq!(&answers(snapshot), before);
            }
            // Removed budgets leave no entry in the index.
            let _ = state.apply(&event(&Op::Relist(Vec::new())));
            prop_assert!(state.cluster().objects().budgets.0.is_empty());
        }
    }

    fn put(writer: &mut Writer, name: &str, selector: LabelSelector) {
        let (namespace, name) = ("default".into(), name.into());
        let budget =
            PodDisruptionBudget { namespace, name, selector, ..PodDisruptionBudget::default() };
        writer.put_object(budget).unwrap();
    }

    fn put_owner(writer: &mut Writer, kind: ObjectKind, namespace: &str, app: &str) {
        let owner = Workload {
            kind,
            namespace: namespace.into(),
            name: "owner".into(),
            labels: Labels::new([("app", app)]),
            selector: LabelSelector::Nothing,
        };
        writer.put_object(owner).unwrap();
    }

    fn web() -> LabelSelector {
        LabelSelector::from_labels([("app", "web")])
    }

    fn owner_budgets(writer: &Writer, kind: ObjectKind, namespace: &str) -> Vec<String> {
        let found = writer.cluster().budgets_of_owner(kind, namespace, "owner").into_iter();
        found.map(|budget| budget.name.to_string()).collect()
    }

    #[test]
    fn the_budgets_of_an_owner_select_its_labels_in_its_namespace() {
        for kind in [ObjectKind::ReplicaSet, ObjectKind::DaemonSet] {
            let mut writer = Engine::inline(Config::default()).0;
            put_owner(&mut writer, kind, "default", "web");
            put_owner(&mut writer, kind, "other", "web");
            let db = || LabelSelector::from_labels([("app", "db")]);
            for (selector, matches) in [
                (LabelSelector::everything(), false),
                (web(), true),
                (LabelSelector::Nothing, false),
                (db(), false),
                (web(), true),
            ] {
                put(&mut writer, "z", selector);
                assert_eq!(owner_budgets(&writer, kind, "default").len(), usize::from(matches));
                assert_eq!(owner_budgets(&writer, kind, "other"), [""; 0]);
            }
            put(&mut writer, "a", web());
            assert_eq!(owner_budgets(&writer, kind, "default"), ["a", "z"], "by name");
            put(&mut writer, "z", db());
            put_owner(&mut writer, kind, "default", "db");
            assert_eq!(owner_budgets(&writer, kind, "default"), ["z"]);
            writer.delete_object(ObjectKind::PodDisruptionBudget, "default", "z").unwrap();
            assert_eq!(owner_budgets(&writer, kind, "default"), [""; 0]);
            put(&mut writer, "z", db());
            writer.delete_object(kind, "default", "owner").unwrap();
            assert_eq!(owner_budgets(&writer, kind, "default"), [""; 0]);
        }
    }

    #[test]
    fn a_pod_whose_disruption_is_in_progress_is_not_counted() {
        let budget = PodDisruptionBudget {
            namespace: "default".into(),
            selector: web(),
            disrupted_pods: Box::new(["going".into()]),
            ..PodDisruptionBudget::default()
        };
        let labels = Labels::new([("app", "web")]);
        assert!(budget.counts("default", "staying", &labels));
        assert!(!budget.counts("default", "going", &labels));
        assert!(!budget.counts("other", "staying", &labels));
    }
}
