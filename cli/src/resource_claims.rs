//! The controller of resource claims, as kube-controller-manager runs it: creates claims from templates, and frees the
//! claims of pods that end.
//!
//! Generated claims are named `<pod>-<entry>`, without Kubernetes' random suffix, so that results repeat.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use portolan::WhatIf;
use portolan::cache::{Cluster, Engine, Event, Store};
use portolan::model::{GeneratedClaims, Name, Pod, PodResourceClaim, Template, Uid};
use portolan_dra::Devices;
use portolan_dra::model::{
    Metadata, OwnerReference, ResourceClaim, ResourceClaimStatus, ResourceClaimTemplate,
};
use portolan_dra::plugin::FINALIZER;
use portolan_dra::store::DeviceEvent;
use portolan_k8s::{DeviceObjects, PodController};

use crate::error::CommandError;
use crate::simulation::{closed, event, refused};
use crate::text::count;

/// The annotation of a generated claim that names the pod's entry.
const ENTRY: &str = "resource.kubernetes.io/pod-claim-name";

/// The controller, and the devices with which a cluster starts.
#[derive(Clone)]
pub(crate) struct ClaimController {
    devices: Devices,
    templates: Arc<HashMap<(Name, Name), Arc<ResourceClaimTemplate>>>,
    /// The generated claims of the pods that exist.
    generated: Arc<HashMap<Uid, GeneratedClaims>>,
}

impl ClaimController {
    /// The controller of a cluster, or `None` if the cluster has neither devices nor claims.
    pub(crate) fn of<'p>(
        objects: &DeviceObjects,
        pods: impl IntoIterator<Item = &'p Pod>,
        controllers: &[PodController],
    ) -> Option<ClaimController> {
        let mut has_claims = controllers.iter().any(PodController::has_resource_claims);
        let mut generated = HashMap::new();
        for pod in pods {
            has_claims |= !pod.template.resource_claims.is_empty();
            if let Some(statuses) = &pod.claim_statuses {
                generated.insert(pod.uid.clone(), statuses.clone());
            }
        }
        (has_claims || !objects.is_empty()).then(|| ClaimController {
            devices: objects.store(),
            templates: objects.templates_by_name().into(),
            generated: generated.into(),
        })
    }

    /// The same controller with the devices of an engine, sharing what is equal with an older one.
    #[cfg(feature = "cluster")]
    pub(crate) fn sharing(self, devices: Devices, before: &ClaimController) -> ClaimController {
        let mut shared = ClaimController { devices, ..self };
        if shared.templates == before.templates {
            shared.templates = before.templates.clone();
        }
        if shared.generated == before.generated {
            shared.generated = before.generated.clone();
        }
        shared
    }

    /// The controller with further templates of claims.
    pub(crate) fn with_templates(&self, objects: &DeviceObjects) -> ClaimController {
        let mut all = self.clone();
        Arc::make_mut(&mut all.templates).extend(objects.templates_by_name());
        all
    }

    /// The devices with which the cluster starts.
    pub(crate) fn devices(&self) -> &Devices {
        &self.devices
    }

    /// The pod with the names of its generated claims, and the events that create those that do not exist. A template
    /// that is not in the input has no claims.
    pub(crate) fn create(&mut self, pod: &Pod, devices: &Devices) -> (Pod, Vec<DeviceEvent>) {
        let known = pod.claim_statuses.as_ref().or_else(|| self.generated.get(&pod.uid)).cloned();
        let known: &[(Name, Option<Name>)] = known.as_deref().unwrap_or_default();
        let (mut statuses, mut events) = (Vec::new(), Vec::new());
        for entry in pod.template.resource_claims.iter().filter(|entry| entry.claim.is_none()) {
            let status = known.iter().find(|(name, _)| *name == entry.name);
            let exists = |name: &Option<Name>| {
                name.as_ref()
                    .is_none_or(|name| devices.claims().get(pod.namespace(), name).is_some())
            };
            if let Some(status) = status.filter(|(_, name)| exists(name)) {
                statuses.push(status.clone());
                continue;
            }
            let Some(template) = self.template(pod, entry) else { continue };
            let (name, is_new) = name_of(pod, entry, devices);
            if is_new {
                let claim = generated(pod, entry, name.clone(), template);
                events.push(DeviceEvent::PutClaim(claim.into()));
            }
            statuses.push((entry.name.clone(), Some(name)));
        }
        if statuses.is_empty() {
            return (pod.clone(), events);
        }
        let statuses: GeneratedClaims = statuses.into();
        Arc::make_mut(&mut self.generated).insert(pod.uid.clone(), statuses.clone());
        (Pod { claim_statuses: Some(statuses), ..pod.clone() }, events)
    }

    /// Creates the claims of a pod, or of a pod that is evaluated as if it were pending, in the cluster of an engine.
    pub(crate) fn create_in(&mut self, engine: &Engine, pod: &Pod) -> Result<Pod, CommandError> {
        let mut new = pod.clone();
        if pod.node_name.is_some() {
            react(engine, pod, |devices| ((), self.release(pod, devices)))?;
            new.claim_statuses = None;
        }
        if pod.template.resource_claims.is_empty() {
            return Ok(new);
        }
        react(engine, pod, |devices| self.create(&new, devices))
    }

    fn template(&self, pod: &Pod, entry: &PodResourceClaim) -> Option<&ResourceClaimTemplate> {
        let key = (pod.namespace().clone(), entry.template.clone()?);
        self.templates.get(&key).map(|template| &**template)
    }

    /// The events by which the claims of a pod that has ended are free: generated claims are deleted, and others lose
    /// their reservation for the pod, and their devices if no pod is left.
    pub(crate) fn release(&mut self, pod: &Pod, devices: &Devices) -> Vec<DeviceEvent> {
        let mut events = Vec::new();
        let claims = devices.claims();
        let is_known = self.generated.contains_key(&pod.uid);
        let statuses = is_known.then(|| Arc::make_mut(&mut self.generated).remove(&pod.uid));
        let statuses = statuses.flatten();
        let generated = statuses.iter().flat_map(|statuses| statuses.iter());
        let generated =
            generated.filter_map(|(_, name)| claims.get(pod.namespace(), name.as_ref()?));
        let generated = generated.filter(|claim| belongs_to(claim, pod));
        // Claims for extended resources, which no entry of the pod names.
        let has_special = (pod.template.resources.incoming.scalars.iter())
            .any(|(resource, _)| devices.supplies(resource));
        let special = has_special.then(|| {
            claims.of_namespace(pod.namespace()).filter(|claim| {
                claim.metadata.is_controlled_by(pod)
                    && !claim.metadata.annotations.contains_key(ENTRY)
            })
        });
        for claim in generated.chain(special.into_iter().flatten()) {
            // A claim that loses its devices lets waiting pods be tried again; a deleted one does not.
            events.push(DeviceEvent::PutClaim(freed(claim).into()));
            let (namespace, name) = (claim.namespace().clone(), claim.name().clone());
            let uid = Some(claim.metadata.uid.clone());
            events.push(DeviceEvent::DeleteClaim { namespace, name, uid });
        }
        for entry in pod.template.resource_claims.iter() {
            let claim = entry.claim.as_ref().and_then(|name| claims.get(pod.namespace(), name));
            let Some(claim) = claim.filter(|claim| claim.is_reserved_for(pod)) else { continue };
            let uid = pod.uid.to_string();
            let mut left = ResourceClaim::clone(claim);
            left.status.reserved_for.retain(|consumer| *consumer.uid != *uid);
            left = match left.status.reserved_for.is_empty() {
                true => freed(&left),
                false => next_version(left),
            };
            events.push(DeviceEvent::PutClaim(left.into()));
        }
        events
    }
}

/// Lets a controller react to a pod in the cluster of an engine.
pub(crate) fn react<T>(
    engine: &Engine,
    pod: &Pod,
    reaction: impl FnOnce(&Devices) -> (T, Vec<DeviceEvent>),
) -> Result<T, CommandError> {
    let cluster = engine.reader().map_err(closed)?.snapshot();
    let (result, events) = reaction(cluster.store::<Devices>().map_err(closed)?);
    for of in events {
        event(engine, Event::custom::<Devices>(of))?.map_err(|error| refused(pod, error))?;
    }
    Ok(result)
}

/// The name of the claim for an entry, and whether the claim is yet to be created.
fn name_of(pod: &Pod, entry: &PodResourceClaim, devices: &Devices) -> (Name, bool) {
    let base = format!("{}-{}", pod.name, entry.name);
    let numbered = (1_u64..).map(|number| format!("{base}-{number}"));
    let free = std::iter::once(base.clone()).chain(numbered).find_map(|name| {
        let name = Name::from(name);
        match devices.claims().get(pod.namespace(), &name) {
            None => Some((name, true)),
            Some(claim) => is_for(claim, pod, entry).then_some((name, false)),
        }
    });
    free.unwrap_or_else(|| (base.clone().into(), true))
}

/// Whether a generated claim is the pod's own. Exported objects may have lost their uids.
fn belongs_to(claim: &ResourceClaim, pod: &Pod) -> bool {
    let mut owners = claim.metadata.owner_references.iter();
    match owners.find(|owner| owner.controller == Some(true)) {
        Some(owner) => *owner.uid == pod.uid.to_string() || *owner.name == *pod.name,
        None => claim.metadata.annotations.contains_key(ENTRY),
    }
}

/// Whether devices are allocated for the pod: it has resource claims, or device classes supply what it requests.
pub(crate) fn uses_devices(template: &Template, cluster: &Cluster) -> bool {
    let serves = |devices: &Devices| devices.serves(template);
    !template.resource_claims.is_empty() || cluster.store::<Devices>().is_ok_and(serves)
}

fn is_for(claim: &ResourceClaim, pod: &Pod, entry: &PodResourceClaim) -> bool {
    let named = claim.metadata.annotations.get(ENTRY);
    claim.metadata.is_controlled_by(pod) && named.is_some_and(|named| *named == entry.name)
}

fn generated(
    pod: &Pod,
    entry: &PodResourceClaim,
    name: Name,
    template: &ResourceClaimTemplate,
) -> ResourceClaim {
    let spec = &template.spec;
    let mut annotations = spec.metadata.annotations.clone();
    annotations.insert(ENTRY.into(), entry.name.clone());
    let metadata = Metadata {
        uid: format!("{}/{name}", pod.namespace()).into(),
        name,
        namespace: pod.namespace().clone(),
        resource_version: "1".into(),
        annotations,
        owner_references: vec![OwnerReference::to_pod(pod)],
        rest: spec.metadata.rest.clone(),
        ..Metadata::default()
    };
    ResourceClaim { metadata, spec: spec.spec.clone(), status: ResourceClaimStatus::default() }
}

/// The names of a pod's claims, without those that are not generated yet.
pub(crate) fn claim_names(pod: &Pod) -> impl Iterator<Item = &Name> {
    let statuses = || pod.claim_statuses.iter().flat_map(|statuses| statuses.iter());
    pod.template.resource_claims.iter().filter_map(move |entry| {
        let generated = || statuses().find(|(name, _)| *name == entry.name)?.1.as_ref();
        entry.claim.as_ref().or_else(generated)
    })
}

/// The claims of a pod that exist.
pub(crate) fn claims_of<'d>(pod: &'d Pod, devices: &'d Devices) -> Vec<&'d Arc<ResourceClaim>> {
    claim_names(pod).filter_map(|name| devices.claims().get(pod.namespace(), name)).collect()
}

/// How many copies of a pod fit on each node, as [`WhatIf::fit_more`] counts them. Each copy has generated claims of its
/// own.
pub(crate) fn fit_more(
    what_if: &mut WhatIf,
    claims: Option<&ClaimController>,
    like: &Pod,
    most: usize,
) -> BTreeMap<Name, usize> {
    let Some(claims) = claims.filter(|_| !like.template.resource_claims.is_empty()) else {
        return what_if.fit_more(like, most);
    };
    let mut claims = claims.clone();
    let mut place = |what_if: &mut WhatIf, n: usize| {
        let copy = Pod {
            uid: Uid::new(&format!("{}/{n}", like.uid)),
            name: format!("{}-{n}", like.name).into(),
            claim_statuses: None,
            ..like.clone()
        };
        let (copy, events) = claims.create(&copy, what_if.store::<Devices>().ok()?);
        for event in events {
            what_if.fork().change::<Devices>(event).ok()?;
        }
        what_if.schedule(&copy).ok().map(|decided| decided.node)
    };
    let undone = what_if.transaction(|what_if| {
        let mut fit = BTreeMap::new();
        (0..most).map_while(|n| place(what_if, n)).for_each(|on| *fit.entry(on).or_default() += 1);
        Err::<(), BTreeMap<Name, usize>>(fit)
    });
    undone.err().unwrap_or_default()
}

/// A note about placed pods whose claims the input lacks.
pub(crate) fn missing_claims(objects: &DeviceObjects, pods: &[Pod]) -> Option<String> {
    let known: HashSet<(&Name, &Name)> =
        objects.claims.iter().map(|claim| (claim.namespace(), claim.name())).collect();
    let has_status = |pod: &Pod, entry: &PodResourceClaim| {
        let mut statuses = pod.claim_statuses.iter().flat_map(|statuses| statuses.iter());
        entry.claim.is_some() || statuses.any(|(name, _)| *name == entry.name)
    };
    let lacks = |pod: &&Pod| {
        let mut entries = pod.template.resource_claims.iter();
        pod.node_name.is_some()
            && (entries.any(|entry| !has_status(pod, entry))
                || claim_names(pod).any(|name| !known.contains(&(pod.namespace(), name))))
    };
    let number = pods.iter().filter(lacks).count();
    (number > 0).then(|| {
        let pods = count(number, "placed pod");
        format!("{pods} with resource claims that the input lacks: their devices count as free")
    })
}

/// The claim without devices and reservations.
pub(crate) fn freed(claim: &ResourceClaim) -> ResourceClaim {
    let mut metadata = claim.metadata.clone();
    metadata.finalizers.retain(|finalizer| &**finalizer != FINALIZER);
    let (spec, status) = (claim.spec.clone(), ResourceClaimStatus::default());
    next_version(ResourceClaim { metadata, spec, status })
}

fn next_version(mut claim: ResourceClaim) -> ResourceClaim {
    // Any version follows an unknown one.
    let version = claim.metadata.version().unwrap_or(0).checked_add(1);
    claim.metadata.resource_version = version.map_or_else(String::new, |it| it.to_string()).into();
    claim
}

#[cfg(test)]
mod tests {
    use portolan::cache::Config;

    use super::*;

    const INPUT: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
status:
  allocation: {devices: {results: [{request: r, driver: x, pool: p, device: d}]}}
  reservedFor: [{resource: pods, name: a, uid: default/a}, {resource: pods, name: b, uid: default/b}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: a-own}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t}
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {resourceClaims: [{name: all, resourceClaimName: shared}, {name: own, resourceClaimTemplateName: t}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b}
spec: {resourceClaims: [{name: all, resourceClaimName: shared}]}
";

    fn start() -> (ClaimController, Engine, Vec<Pod>) {
        let objects = portolan_k8s::read(INPUT.as_bytes()).expect("valid");
        let claims = ClaimController::of(&objects.devices, &objects.pods, &[]).expect("has claims");
        let config = Config::default().with_store(claims.devices().clone());
        (claims, Engine::shared(config), objects.pods)
    }

    fn release(claims: &mut ClaimController, engine: &Engine, pod: &Pod) {
        react(engine, pod, |devices| ((), claims.release(pod, devices))).expect("accepted");
    }

    /// The claim of this name, if there is one.
    fn claim(engine: &Engine, name: &str) -> Option<Arc<ResourceClaim>> {
        let cluster = engine.reader().expect("open").snapshot();
        let devices = cluster.store::<Devices>().expect("a store");
        devices.claims().get(&"default".into(), &name.into()).cloned()
    }

    #[test]
    fn a_generated_claim_has_a_free_name_and_is_deleted_with_its_pod() {
        let (mut claims, engine, pods) = start();
        let pod = claims.create_in(&engine, &pods[0]).expect("created");
        assert!(
            claim(&engine, "a-own-1").is_some_and(|claim| claim.metadata.is_controlled_by(&pod))
        );
        // A second time, the same claim is found.
        let again = claims.create_in(&engine, &pods[0]).expect("created");
        assert_eq!(again.claim_statuses, pod.claim_statuses);
        release(&mut claims, &engine, &pods[0]);
        assert!(claim(&engine, "a-own-1").is_none());
    }

    #[test]
    fn a_shared_claim_is_free_when_its_last_pod_has_ended() {
        let (mut claims, engine, pods) = start();
        let mut left = Vec::new();
        for pod in &pods {
            release(&mut claims, &engine, pod);
            let shared = claim(&engine, "shared").expect("kept");
            left.push((shared.status.reserved_for.len(), shared.status.allocation.is_some()));
        }
        assert_eq!(left, [(1, true), (0, false)]);
    }
}
