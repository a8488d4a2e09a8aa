//! Resolves references between the objects that were read, as the admission plugins Priority and RuntimeClass do.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use super::admission::{Admission, Policies};
use super::budgets::{self, BudgetLimit, PodFacts};
use super::collect::{Collected, Entry};
use super::defaults::{Defaulted, amount, object};
use super::devices::DeviceObjects;
use super::generated::Generated;
use super::limit_range::LimitRange;
use super::objects::{PriorityClass, RuntimeClass};
use super::pod::PodDraft;
use super::storage::ClaimTemplate;
use super::workloads::PodController;
use portolan::model::{
    Labels, Name, Namespace, Node, Object, ObjectKind, PersistentVolumeClaim, Pod,
    PreemptionPolicy, Uid,
};

/// The objects of all inputs, in the order of the inputs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Objects {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The names of the nodes that are being deleted: they have a deletion timestamp.
    pub deleted_nodes: Vec<Name>,
    /// The pods, without those in phase Succeeded or Failed.
    pub pods: Vec<Pod>,
    /// Objects of the other kinds that an engine stores, including the workloads of `controllers`.
    pub objects: Vec<Object>,
    /// The objects of dynamic resource allocation.
    pub devices: DeviceObjects,
    /// The controllers, which create pods from a template, see [`Objects::expand`].
    pub controllers: Vec<PodController>,
    /// The priority classes.
    pub priority_classes: Vec<PriorityClass>,
    /// The runtime classes.
    pub runtime_classes: Vec<RuntimeClass>,
    /// The limit ranges of all inputs.
    pub(super) limit_ranges: Vec<LimitRange>,
    /// The number of objects that were read, by kind. Includes the pods in phase Succeeded or Failed.
    pub read: BTreeMap<&'static str, usize>,
    /// The number of skipped objects, by kind.
    pub skipped: BTreeMap<String, usize>,
    /// The number of pods in phase Succeeded or Failed.
    pub finished_pods: usize,
    /// The values that were filled in.
    pub defaulted: Vec<Defaulted>,
    /// References to objects that are not in the input, in the order of their kinds and names.
    pub missing: Vec<Missing>,
    /// The limits of the disruption budgets in `objects`.
    pub budget_limits: Vec<BudgetLimit>,
    /// Facts about the pods beyond those that the scheduler reads.
    pub facts: PodFacts,
    /// Decides whether new pods are admitted.
    pub admission: Admission,
    /// The pods of [`Objects::expand`] that the API server may refuse, or that are created only after other pods run.
    pub created: HashSet<Uid>,
    /// The claims of generic ephemeral volumes of pods without a node, which [`Objects::expand`] adds unless they
    /// exist.
    pub(super) ephemeral_claims: Vec<PersistentVolumeClaim>,
}

/// An object that is not in the input, and to which objects of the input refer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The kind of the missing object.
    pub kind: &'static str,
    /// Its name.
    pub name: Name,
    /// The first object that refers to it: `Pod shop/web-0`.
    pub first: String,
    /// The number of objects that refer to it.
    pub count: usize,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Missing { kind, name, first, count } = self;
        write!(f, "{kind} {name:?} is not in the input: {first} ")?;
        match count {
            1 => f.write_str("refers to it"),
            2 => f.write_str("and 1 more object refer to it"),
            _ => write!(f, "and {} more objects refer to it", count - 1),
        }
    }
}

/// The priority classes that every cluster has.
const SYSTEM_CLASSES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Resolves the references of all objects, also between the inputs. O(objects).
pub(super) fn resolve<const N: usize>(mut inputs: [Collected; N]) -> [Objects; N] {
    let priority_classes: Vec<PriorityClass> =
        inputs.iter().flat_map(|read| read.priority_classes.iter().cloned()).collect();
    let runtime_classes: Vec<RuntimeClass> =
        inputs.iter().flat_map(|read| read.runtime_classes.iter().cloned()).collect();
    let storage = Storage::of(&inputs);
    let classes = Classes {
        priority: priority_classes.iter().map(|c| (&*c.name, c)).collect(),
        // Of several global defaults the one with the lowest value is used, as in the admission plugin.
        default: priority_classes.iter().filter(|c| c.global_default).min_by_key(|c| c.value),
        runtime: runtime_classes.iter().map(|c| (&*c.name, c)).collect(),
    };
    let mut generated = Generated::default();
    if inputs.iter().any(needs_names) {
        for entry in inputs.iter().flat_map(|read| &read.pods) {
            match entry {
                Entry::Done(pod) => generated.add(pod.namespace(), &pod.name),
                Entry::Open(draft) => generated.add(&draft.spec.namespace, &draft.name),
            }
        }
    }
    let policies = Policies {
        ranges: inputs.iter_mut().flat_map(|read| std::mem::take(&mut read.limit_ranges)).collect(),
        quotas: inputs.iter_mut().flat_map(|read| std::mem::take(&mut read.quotas)).collect(),
    };
    let shared = Shared { classes, storage, policies };
    // The pods of the first input exist.
    let mut is_new = false;
    let mut resolved = inputs.each_mut().map(|read| {
        shared.resolve(std::mem::take(read), std::mem::replace(&mut is_new, true), &mut generated)
    });
    add_namespaces(&mut resolved);
    resolved
}

/// Adds the namespaces that are used but not in the input, with the label that the API server gives them.
fn add_namespaces(resolved: &mut [Objects]) {
    let all = resolved.iter().flat_map(|of| of.objects.iter());
    let namespaces = all.filter(|object| object.kind() == ObjectKind::Namespace);
    let mut known: HashSet<Name> = namespaces.map(|object| object.name().clone()).collect();
    for objects in resolved {
        let of_pods = objects.pods.iter().map(|pod| pod.namespace());
        let of_controllers = objects.controllers.iter().map(|it| &it.namespace);
        let mut new = Vec::new();
        for name in of_pods.chain(of_controllers) {
            if !known.contains(name) {
                known.insert(name.clone());
                new.push(Object::from(labeled(Namespace {
                    name: name.clone(),
                    labels: Labels::EMPTY,
                })));
            }
        }
        objects.objects.extend(new);
    }
}

/// Adds the label of its name to a namespace, as the API server does.
pub(super) fn labeled(namespace: Namespace) -> Namespace {
    let own = [("kubernetes.io/metadata.name", &*namespace.name)];
    let labels = namespace.labels.iter().chain(own).collect();
    Namespace { labels, ..namespace }
}

/// Whether an object of the input needs a name.
fn needs_names(read: &Collected) -> bool {
    let pods = read.pods.iter();
    let mut open = pods.filter_map(|entry| match entry {
        Entry::Open(draft) => draft.generate_name.as_ref(),
        Entry::Done(_) => None,
    });
    let mut controllers = read.controllers.iter();
    open.next().is_some()
        || controllers.any(|it| it.generate_name.is_some() || it.of_generated.is_some())
}

/// What the objects of all inputs are resolved with.
struct Shared<'c> {
    classes: Classes<'c>,
    storage: Storage,
    policies: Policies,
}

impl Shared<'_> {
    /// Resolves the references of one input, whose pods may be new.
    fn resolve(&self, mut read: Collected, is_new: bool, generated: &mut Generated) -> Objects {
        let mut report = std::mem::take(&mut read.defaulted);
        let mut missing = Absent::default();
        let mut pods = Vec::with_capacity(read.pods.len());
        let mut ephemeral_claims = Vec::new();
        let mut admission = self.policies.admission();
        for entry in std::mem::take(&mut read.pods) {
            pods.push(match entry {
                Entry::Done(pod) => pod,
                Entry::Open(mut draft) => {
                    name_pod(&mut draft, generated, &mut report);
                    // A pod that the API server has stored has a priority.
                    let is_stored = draft.priority.is_some();
                    let about = object("Pod", &draft.spec.namespace, &draft.name);
                    self.classes.complete(&mut draft, &about, &mut report, &mut missing);
                    if is_new && !is_stored {
                        self.policies.apply_to(&mut draft, &mut admission);
                    }
                    // The claims of placed pods exist, whether or not they are in the input.
                    if draft.node_name.is_none() {
                        let field = "spec.volumes.ephemeral.volumeClaimTemplate";
                        let found = (&mut report, &mut missing);
                        self.storage.complete(&mut draft.claims, field, &about, found);
                        let PodDraft { claims, spec, name, uid, .. } = &*draft;
                        let of_pod = claims.iter().map(|it| it.of_pod(&spec.namespace, name, uid));
                        ephemeral_claims.extend(of_pod);
                    }
                    read.facts.read_requests(&draft);
                    read.templates.share(draft.finish())
                }
            });
        }
        match is_new {
            true => admission.know(pods.iter(), &read.traits),
            false => admission.charge(pods.iter(), &read.traits),
        }
        for controller in &mut read.controllers {
            self.resolve_controller(controller, generated, (&mut report, &mut missing));
        }
        set_default_class(&mut read, &self.storage, &mut report);
        for found in &read.objects {
            if let Object::PersistentVolumeClaim(claim) = found {
                let about = || object("PersistentVolumeClaim", &claim.namespace, &claim.name);
                self.storage.check(claim, about, &mut missing);
            }
        }
        budgets::complete(&mut read, &pods, &mut report);
        read.devices.release(&read.facts);
        let workloads = read.controllers.iter().filter_map(PodController::workload);
        read.objects.extend(workloads.map(Object::from));
        Objects {
            nodes: read.nodes,
            deleted_nodes: read.deleted_nodes,
            pods,
            objects: read.objects,
            devices: read.devices,
            controllers: read.controllers,
            priority_classes: read.priority_classes,
            runtime_classes: read.runtime_classes,
            limit_ranges: self.policies.ranges.clone(),
            read: read.read,
            skipped: read.skipped,
            finished_pods: read.finished_pods,
            defaulted: report,
            missing: missing.into_list(),
            budget_limits: read.budget_limits,
            facts: read.facts,
            admission,
            created: HashSet::new(),
            ephemeral_claims,
        }
    }

    fn resolve_controller(
        &self,
        controller: &mut PodController,
        generated: &mut Generated,
        (report, missing): (&mut Vec<Defaulted>, &mut Absent),
    ) {
        if let Some(set) = controller.of_generated.take() {
            let namespace = controller.namespace.clone();
            set.rename(controller, |base| generated.name(&namespace, base));
        }
        if let Some(base) = controller.generate_name.take() {
            controller.name = generated.name(&controller.namespace, &base);
        }
        let about = object(controller.kind.as_str(), &controller.namespace, &controller.name);
        self.classes.complete(&mut controller.draft, &about, report, missing);
        controller.hash_template();
        (controller.charge, controller.refusal) = self.policies.apply(&mut controller.draft);
        for (claims, field) in [
            (&mut controller.claims, "spec.volumeClaimTemplates"),
            (
                &mut controller.draft.claims,
                "spec.template.spec.volumes.ephemeral.volumeClaimTemplate",
            ),
        ] {
            self.storage.complete(claims, field, &about, (report, missing));
        }
    }
}

/// Generates the name of a pod that has only a base for it, and a uid if it has none.
fn name_pod(draft: &mut PodDraft, generated: &mut Generated, report: &mut Vec<Defaulted>) {
    let Some(base) = draft.generate_name.take() else { return };
    draft.name = generated.name(&draft.spec.namespace, &base);
    let about = object("Pod", &draft.spec.namespace, &draft.name);
    let mut note = |field: &str, value: String| {
        report.push(Defaulted { object: about.clone(), field: field.to_owned(), value });
    };
    note("metadata.name", draft.name.to_string());
    if draft.uid.is_empty() {
        draft.uid = format!("{}/{}", draft.spec.namespace, draft.name);
        note("metadata.uid", draft.uid.clone());
    }
}

/// Sets the storage class of the claims that name none.
fn set_default_class(read: &mut Collected, storage: &Storage, report: &mut Vec<Defaulted>) {
    for at in std::mem::take(&mut read.classless) {
        let (Some(class), Object::PersistentVolumeClaim(claim)) =
            (&storage.default, &read.objects[at])
        else {
            continue;
        };
        let field = "spec.storageClassName".to_owned();
        let object = object("PersistentVolumeClaim", &claim.namespace, &claim.name);
        report.push(Defaulted { object, field, value: class.to_string() });
        let claim = PersistentVolumeClaim::clone(claim);
        read.objects[at] = PersistentVolumeClaim { class: class.clone(), ..claim }.into();
    }
}

/// The objects that are missing, by kind and name, with the first object that refers to each and their number.
#[derive(Default)]
struct Absent(BTreeMap<(&'static str, Name), (String, usize)>);

impl Absent {
    fn add(&mut self, kind: &'static str, name: &str, first: impl FnOnce() -> String) {
        let known = self.0.entry((kind, name.into())).or_insert_with(|| (first(), 0));
        known.1 += 1;
    }

    fn into_list(self) -> Vec<Missing> {
        let list = self.0.into_iter();
        list.map(|((kind, name), (first, count))| Missing { kind, name, first, count }).collect()
    }
}

/// The storage classes, and the classes of volumes, of which there need not be an object.
struct Storage {
    classes: HashSet<Name>,
    /// The class of claims without one (admission plugin DefaultStorageClass).
    default: Option<Name>,
}

impl Storage {
    fn of(inputs: &[Collected]) -> Storage {
        let objects = inputs.iter().flat_map(|read| read.objects.iter());
        let classes = objects.filter_map(|object| match object {
            Object::StorageClass(class) => Some(class.name.clone()),
            Object::PersistentVolume(volume) => Some(volume.class.clone()),
            _ => None,
        });
        // Of several default classes the newest one is used, and of those created together the first by name.
        let defaults = inputs.iter().flat_map(|read| read.default_classes.iter());
        let default = defaults.min_by(|(created, name), (other, of_other)| {
            other.cmp(created).then_with(|| name.cmp(of_other))
        });
        Storage { classes: classes.collect(), default: default.map(|(_, name)| name.clone()) }
    }

    /// Gives claims without a class the default one.
    fn complete(
        &self,
        claims: &mut [ClaimTemplate],
        field: &str,
        about: &str,
        (report, missing): (&mut Vec<Defaulted>, &mut Absent),
    ) {
        for ClaimTemplate { claim, is_classless } in claims {
            if let Some(class) = self.default.as_ref().filter(|_| *is_classless) {
                claim.class = class.clone();
                let field = format!("{field}.spec.storageClassName");
                report.push(Defaulted {
                    object: about.to_owned(),
                    field,
                    value: class.to_string(),
                });
            }
            self.check(claim, || about.to_owned(), missing);
        }
    }

    /// Notes the storage class of a claim if it is missing and the claim is not bound.
    fn check(
        &self,
        claim: &PersistentVolumeClaim,
        about: impl FnOnce() -> String,
        missing: &mut Absent,
    ) {
        let is_known = claim.class.is_empty() || self.classes.contains(&claim.class);
        if !is_known && claim.volume.is_empty() {
            missing.add("StorageClass", &claim.class, about);
        }
    }
}

struct Classes<'c> {
    priority: BTreeMap<&'c str, &'c PriorityClass>,
    default: Option<&'c PriorityClass>,
    runtime: BTreeMap<&'c str, &'c RuntimeClass>,
}

impl Classes<'_> {
    fn complete(
        &self,
        draft: &mut PodDraft,
        about: &str,
        report: &mut Vec<Defaulted>,
        missing: &mut Absent,
    ) {
        if let (None, Some(name)) = (draft.priority, draft.priority_class.as_deref())
            && !self.priority.contains_key(name)
            && SYSTEM_CLASSES.iter().all(|(system, _)| *system != name)
        {
            missing.add("PriorityClass", name, || about.to_owned());
        }
        let mut note = |field: &str, value: String| {
            report.push(Defaulted { object: about.to_owned(), field: field.to_owned(), value });
        };
        if draft.priority.is_none() {
            let (priority, policy, why) = self.priority(draft.priority_class.as_deref());
            let default = self.default.map(|class| class.name.clone());
            draft.priority_class = draft.priority_class.take().or(default);
            draft.priority = Some(priority);
            note("spec.priority", format!("{priority}{why}"));
            if let (None, Some(PreemptionPolicy::Never)) = (draft.preemption_policy, policy) {
                note("spec.preemptionPolicy", "Never".to_owned());
            }
            draft.preemption_policy = draft.preemption_policy.or(policy);
        }
        let Some(name) = draft.runtime_class.as_deref() else { return };
        let Some(class) = self.runtime.get(name) else {
            if !draft.has_overhead {
                missing.add("RuntimeClass", name, || about.to_owned());
                note("spec.overhead", format!("none: runtime class {name:?} is not in the input"));
            }
            return;
        };
        if let (false, Some(overhead)) = (draft.has_overhead, &class.overhead) {
            note("spec.overhead", amount(overhead));
            draft.requests.overhead = overhead.clone();
            draft.has_overhead = true;
        }
        let spec = &mut draft.spec;
        if !class.node_selector.is_empty() {
            // The pod's own values win. The admission plugin rejects a pod whose values conflict with its class.
            spec.node_selector =
                class.node_selector.iter().chain(spec.node_selector.iter()).collect();
            note("spec.nodeSelector", format!("{:?}", spec.node_selector));
        }
        let mut tolerations = Vec::from(std::mem::take(&mut spec.tolerations));
        let mut known: HashSet<_> = tolerations.iter().cloned().collect();
        for toleration in &class.tolerations {
            if known.insert(toleration.clone()) {
                tolerations.push(toleration.clone());
                note("spec.tolerations", toleration.key.as_deref().unwrap_or("*").to_owned());
            }
        }
        spec.tolerations = tolerations.into();
    }

    /// Returns the priority and preemption policy of a class, and a suffix for the report that names their source.
    fn priority(&self, class: Option<&str>) -> (i32, Option<PreemptionPolicy>, String) {
        let Some(name) = class else {
            return match self.default {
                Some(class) => {
                    let why = format!(" (the global default, {})", class.name);
                    (class.value, class.preemption_policy, why)
                }
                None => (0, None, String::new()),
            };
        };
        if let Some(class) = self.priority.get(name) {
            return (class.value, class.preemption_policy, format!(" ({name})"));
        }
        match SYSTEM_CLASSES.iter().find(|(system, _)| *system == name) {
            Some((_, value)) => (*value, None, format!(" ({name})")),
            None => (0, None, format!(" (priority class {name:?} is not in the input)")),
        }
    }
}
