//! Creates the pods and claims that controllers have not created yet.

use std::collections::{HashMap, HashSet};

use super::workloads::{ControllerKind, PodController};
use super::{Objects, own_labels};
use portolan::model::{Name, Node, Object, ObjectKind, PersistentVolumeClaim, Pod};

/// The kind, namespace and name of a controller.
type Key = (String, Name, Name);

/// The controllers of an input create more pods, or more claims of pods, than the caller allows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{controller} has {pods} pods: too many {objects}")]
#[non_exhaustive]
pub struct TooManyPods {
    /// The kind, namespace and name of the controller that exceeds the limit.
    pub controller: String,
    /// The number of its pods: its replicas, or the nodes of a daemon set.
    pub pods: usize,
    /// The objects of which there are too many: `pods` or `claims`.
    pub objects: &'static str,
}

/// The number of further pods and claims that controllers may create.
struct Left {
    pods: usize,
    claims: usize,
}

/// The pods that exist, by their controllers.
#[derive(Default)]
struct Existing {
    /// The number of pods that each controller owns. Pods that are being deleted do not count.
    pods: HashMap<Key, usize>,
    /// The nodes of the pods of daemon sets.
    nodes: HashSet<(Key, Name)>,
    /// All pods by namespace and name.
    names: HashSet<(Name, Name)>,
    /// The labels of the pods of replica sets that are not in the input.
    of_replica_sets: Vec<(Name, Name, Pod)>,
    /// The names of the controllers that each controller owns, such as the replica sets of a deployment.
    owners: HashMap<Key, Vec<Name>>,
    /// The claims by namespace and name.
    claims: HashSet<(Name, Name)>,
    /// The stored workloads.
    workloads: HashSet<Key>,
    /// The indexes of the pods of jobs.
    indexes: HashMap<Key, HashSet<usize>>,
    /// The replica sets of each deployment that have a hash of their template.
    revisions: HashMap<Key, Vec<(PodController, String)>>,
    /// The revision that the pods of a stateful set or daemon set have last.
    of_pods: HashMap<Key, String>,
}

fn key(kind: &str, namespace: &Name, name: &Name) -> Key {
    (kind.to_owned(), namespace.clone(), name.clone())
}

/// The node for which a daemon set created a pod: the one it is placed on, or the one its affinity names.
fn node_of(pod: &Pod) -> Option<Name> {
    if let Some(node) = &pod.node_name {
        return Some(node.clone());
    }
    let required = pod.template.node_affinity.as_ref()?.required.as_ref()?;
    let fields = required.terms.iter().flat_map(|term| term.match_fields.iter());
    let mut named = fields.filter(|field| &*field.key == "metadata.name");
    named.next().and_then(|field| field.values.first().cloned())
}

/// The index of a job's pod: its label, or the number in its name `<job>-<index>-<suffix>`.
fn index_of(pod: &Pod, job: &Name) -> Option<usize> {
    let of_label = pod.template.labels.get(own_labels::COMPLETION_INDEX);
    let of_name = || pod.name.strip_prefix(&**job)?.strip_prefix('-')?.split('-').next();
    of_label.or_else(of_name)?.parse().ok()
}

impl Existing {
    fn add(&mut self, objects: &Objects) {
        let sets: HashSet<(&Name, &Name)> = (objects.controllers.iter())
            .filter(|controller| controller.kind == ControllerKind::ReplicaSet)
            .map(|set| (&set.namespace, &set.name))
            .collect();
        for pod in &objects.pods {
            self.names.insert((pod.namespace().clone(), pod.name.clone()));
            if pod.deletion_time.is_some() {
                continue;
            }
            for owner in pod.template.owners.iter().filter(|owner| owner.controller) {
                let key = key(&owner.kind, pod.namespace(), &owner.name);
                if &*owner.kind == "DaemonSet"
                    && let Some(node) = node_of(pod)
                {
                    self.nodes.insert((key.clone(), node));
                }
                let is_known = sets.contains(&(pod.namespace(), &owner.name));
                if &*owner.kind == "ReplicaSet" && !is_known {
                    let set = owner.name.clone();
                    self.of_replica_sets.push((pod.namespace().clone(), set, pod.clone()));
                }
                let labels = &pod.template.labels;
                if let Some(hash) = labels.get(own_labels::REVISION_HASH) {
                    self.of_pods.insert(key.clone(), hash.to_owned());
                }
                if let Some(index) = index_of(pod, &owner.name).filter(|_| &*owner.kind == "Job") {
                    self.indexes.entry(key.clone()).or_default().insert(index);
                }
                *self.pods.entry(key).or_default() += 1;
            }
        }
        for controller in &objects.controllers {
            for owner in controller.owners.iter().filter(|owner| owner.controller) {
                let owner = key(&owner.kind, &controller.namespace, &owner.name);
                if let Some(hash) = controller.draft.spec.labels.get(own_labels::TEMPLATE_HASH) {
                    let revision = (controller.clone(), hash.to_owned());
                    self.revisions.entry(owner.clone()).or_default().push(revision);
                }
                self.owners.entry(owner).or_default().push(controller.name.clone());
            }
        }
        for object in &objects.objects {
            if let Object::PersistentVolumeClaim(claim) = object {
                self.claims.insert((claim.namespace.clone(), claim.name.clone()));
            }
            if let Object::Workload(workload) = object {
                let kind = object.kind().as_str();
                self.workloads.insert(key(kind, &workload.namespace, &workload.name));
            }
        }
    }

    /// The number of pods that a controller already has.
    fn owned(&self, controller: &PodController) -> usize {
        let PodController { namespace, name, .. } = controller;
        let owner = key(controller.owner_kind().as_str(), namespace, name);
        let direct = self.pods.get(&owner).copied().unwrap_or(0);
        if controller.kind != ControllerKind::Deployment {
            return direct;
        }
        let own = key(controller.kind.as_str(), namespace, name);
        let sets = self.owners.get(&own).map(Vec::as_slice).unwrap_or_default();
        let of_sets = sets.iter().map(|set| {
            let set = key(ControllerKind::ReplicaSet.as_str(), namespace, set);
            self.pods.get(&set).copied().unwrap_or(0)
        });
        let direct = if sets.contains(name) { 0 } else { direct };
        // The replica sets of a deployment are named after it.
        let of_deployment =
            |set: &Name| set.strip_prefix(&**name).is_some_and(|rest| rest.starts_with('-'));
        let others = self.of_replica_sets.iter().filter(|(of, set, pod)| {
            of == namespace
                && !sets.contains(set)
                && of_deployment(set)
                && controller.selector.matches(&pod.template.labels)
        });
        direct + of_sets.sum::<usize>() + others.count()
    }

    /// The hash that the controller has for this template, if pods or replica sets of the input tell.
    fn hash(&self, controller: &PodController, cluster: &[PodController]) -> Option<String> {
        let PodController { kind, namespace, name, .. } = controller;
        let own = key(kind.as_str(), namespace, name);
        if *kind == ControllerKind::Deployment {
            let revisions = self.revisions.get(&own)?.iter();
            let mut equal = revisions.filter(|(set, _)| set.has_template_of(controller));
            return equal.next().map(|(_, hash)| hash.clone());
        }
        let is_same =
            |it: &&PodController| (it.kind, &it.namespace, &it.name) == (*kind, namespace, name);
        let is_changed =
            cluster.iter().find(is_same).is_some_and(|it| !it.has_template_of(controller));
        let known = self.of_pods.get(&own).filter(|_| !is_changed)?;
        // The label of a stateful set's pods is the name of the revision.
        let hash = known.strip_prefix(&**name).and_then(|rest| rest.strip_prefix('-'));
        Some(hash.unwrap_or(known).to_owned())
    }

    /// Creates the missing pods of a controller, and the claims of all of its pods. The error is the kind of objects of
    /// which more are missing than may be created; no more than these are held in memory.
    fn missing(
        &mut self,
        controller: &PodController,
        nodes: &[Node],
        left: &mut Left,
    ) -> Result<(Vec<Pod>, Vec<Object>), &'static str> {
        let PodController { kind, namespace, name, .. } = controller;
        let most = left.pods.saturating_add(1);
        let pods: Vec<Pod> = match kind {
            ControllerKind::DaemonSet => {
                let own = key(kind.as_str(), namespace, name);
                let has = |node: &&Node| !self.nodes.contains(&(own.clone(), node.name.clone()));
                let pods = nodes.iter().filter(has).filter_map(|node| controller.daemon_on(node));
                pods.take(most).collect()
            }
            ControllerKind::StatefulSet => {
                if controller.replicas.saturating_sub(self.names.len()) > left.pods {
                    return Err("pods");
                }
                let is_new = |ordinal: &usize| {
                    let pod = Name::from(format!("{name}-{ordinal}"));
                    !self.names.contains(&(namespace.clone(), pod))
                };
                controller.numbered(controller.numbers().filter(is_new).take(most))
            }
            _ => {
                let missing = controller.replicas.saturating_sub(self.owned(controller));
                let known = self.indexes.get(&key(kind.as_str(), namespace, name));
                let is_indexed = controller.job.as_ref().is_some_and(|job| job.is_indexed);
                // An indexed job may have fewer indexes left.
                if missing > left.pods && !is_indexed {
                    return Err("pods");
                }
                let is_free = |number: &usize| {
                    let pod = Name::from(format!("{name}-{number}"));
                    let is_known = is_indexed && known.is_some_and(|it| it.contains(number));
                    !is_known && !self.names.contains(&(namespace.clone(), pod))
                };
                let free = controller.numbers().filter(is_free);
                controller.numbered(free.take(missing.min(most)))
            }
        };
        left.pods = left.pods.checked_sub(pods.len()).ok_or("pods")?;
        let ordinals = (*kind == ControllerKind::StatefulSet).then(|| controller.numbers());
        let of_set = ordinals.into_iter().flatten().flat_map(|n| controller.claims_of_ordinal(n));
        let of_pods = pods.iter().flat_map(|pod| controller.claims(pod));
        let claims = self.new_claims(of_set.chain(of_pods), left.claims.saturating_add(1));
        left.claims = left.claims.checked_sub(claims.len()).ok_or("claims")?;
        Ok((pods, claims))
    }

    /// The claims that do not exist yet, at most this number.
    fn new_claims(
        &mut self,
        claims: impl Iterator<Item = PersistentVolumeClaim>,
        most: usize,
    ) -> Vec<Object> {
        let new = claims.filter(|it| self.claims.insert((it.namespace.clone(), it.name.clone())));
        new.take(most).map(Object::from).collect()
    }
}

impl Objects {
    /// Adds the pods that the controllers would have created, and returns their number. Daemon sets create pods for
    /// `nodes`. See [`Objects::expand_in`].
    pub fn expand(&mut self) -> usize {
        self.expand_in(&Objects::default())
    }

    /// Adds the pods that the controllers would have created in a cluster, and returns their number. Also adds the
    /// claims that would have been created for stateful sets, and for generic ephemeral volumes of pods without a node.
    ///
    /// A controller creates only the pods that it lacks: pods that it owns, in these objects or in the cluster, count
    /// as created unless they are being deleted. A deployment that has a replica set in these objects leaves its pods
    /// to the set; otherwise it gets a replica set of its own name. A controller that another one of the input creates,
    /// such as the jobs of a job set, is left out if it is in the input or in the cluster itself. Daemon sets create
    /// pods for the nodes of both.
    pub fn expand_in(&mut self, cluster: &Objects) -> usize {
        // Without a limit there is no error.
        self.expand_up_to(usize::MAX, cluster).unwrap_or_default()
    }

    /// As [`Objects::expand_in`], but creates at most `most` pods, and at most as many claims. A few bytes of an input
    /// can ask for millions of pods.
    ///
    /// # Errors
    ///
    /// If the controllers lack more pods or claims. The objects then have some of the pods and no controllers.
    pub fn expand_up_to(&mut self, most: usize, cluster: &Objects) -> Result<usize, TooManyPods> {
        if self.controllers.is_empty() && self.ephemeral_claims.is_empty() {
            return Ok(0);
        }
        let mut left = Left { pods: most, claims: most };
        let mut existing = Existing::default();
        existing.add(self);
        let owners: HashSet<Key> = existing.owners.keys().cloned().collect();
        existing.add(cluster);
        let claims = std::mem::take(&mut self.ephemeral_claims);
        self.objects.extend(existing.new_claims(claims.into_iter(), usize::MAX));
        let before = self.pods.len();
        let mut controllers = std::mem::take(&mut self.controllers);
        for controller in &mut controllers {
            if let Some(hash) = existing.hash(controller, &cluster.controllers) {
                controller.hash = hash;
            }
        }
        let all = controllers.iter().chain(&cluster.controllers);
        let known: HashSet<Key> = all
            .filter(|controller| !controller.is_derived)
            .map(|it| key(it.kind.as_str(), &it.namespace, &it.name))
            .collect();
        for controller in &controllers {
            let own = key(controller.kind.as_str(), &controller.namespace, &controller.name);
            let is_left_to_others = match controller.kind {
                // The sets of the cluster are scaled to the deployment, which is applied again.
                ControllerKind::Deployment => owners.contains(&own),
                ControllerKind::CronJob => existing.owners.contains_key(&own),
                _ => controller.is_derived && known.contains(&own),
            };
            if is_left_to_others {
                continue;
            }
            for nodes in [&self.nodes, &cluster.nodes] {
                let is_daemon_set = controller.kind == ControllerKind::DaemonSet;
                if !is_daemon_set && std::ptr::eq(nodes, &cluster.nodes) {
                    continue;
                }
                let missing = existing.missing(controller, nodes, &mut left);
                let (pods, claims) = missing.map_err(|objects| TooManyPods {
                    controller: format!("{} {}/{}", own.0, own.1, own.2),
                    pods: if is_daemon_set { nodes.len() } else { controller.replicas },
                    objects,
                })?;
                let names = pods.iter().map(|pod| (pod.namespace().clone(), pod.name.clone()));
                existing.names.extend(names);
                self.admission.expect(controller, &pods);
                if controller.is_created_in_steps() {
                    self.created.extend(pods.iter().map(|pod| pod.uid.clone()));
                }
                self.pods.extend(pods);
                self.objects.extend(claims);
            }
            let set = controller.replica_set().filter(|set| {
                let kind = ObjectKind::ReplicaSet.as_str();
                !existing.workloads.contains(&key(kind, &set.namespace, &set.name))
            });
            self.objects.extend(set.map(Object::from));
        }
        self.controllers = controllers;
        Ok(self.pods.len() - before)
    }
}
