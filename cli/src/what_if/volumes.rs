//! Binds new claims, as the persistent volume controller and the provisioners of a cluster do.
//!
//! A claim whose class has the binding mode `Immediate`, or whose class does not exist, is bound when it is created: to
//! the smallest volume that matches it, or else to a new volume of the class's provisioner (kubernetes
//! pkg/controller/volume/persistentvolume). The scheduler does not place pods whose immediate claims are unbound. Other
//! claims are bound by the scheduler. Claims that the cluster already has are left as they are.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use portolan::cache::Cluster;
use portolan::model::{
    ClaimReference, Name, NodeSelector, Object, PersistentVolume, PersistentVolumeClaim,
    StorageClass, VolumeBindingMode,
};

/// The provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Binds the immediate claims among new objects of a cluster, and returns their number.
pub(super) fn bind(added: &mut Vec<Object>, cluster: &Cluster) -> usize {
    let objects = cluster.objects();
    let mut classes: BTreeMap<Name, Arc<StorageClass>> = BTreeMap::new();
    let mut volumes: BTreeMap<Name, Arc<PersistentVolume>> = BTreeMap::new();
    classes.extend(objects.storage_classes.iter().map(|it| (it.name.clone(), it.clone())));
    volumes.extend(objects.persistent_volumes.iter().map(|it| (it.name.clone(), it.clone())));
    for object in added.iter() {
        match object {
            Object::StorageClass(class) => drop(classes.insert(class.name.clone(), class.clone())),
            Object::PersistentVolume(it) => drop(volumes.insert(it.name.clone(), it.clone())),
            _ => {}
        }
    }
    let mut bound = 0;
    let mut used: HashSet<Name> = HashSet::new();
    let mut changed: Vec<PersistentVolume> = Vec::new();
    for object in added.iter_mut() {
        let Object::PersistentVolumeClaim(claim) = object else { continue };
        let class = classes.get(&claim.class);
        let is_delayed =
            class.is_some_and(|it| it.binding_mode == VolumeBindingMode::WaitForFirstConsumer);
        if claim.is_bound || claim.is_lost || claim.is_deleting || is_delayed {
            continue;
        }
        let free = volumes.values().filter(|it| !used.contains(&it.name) && matches(it, claim));
        let found = free.min_by_key(|it| (!is_kept_for(it, claim), it.capacity)).cloned();
        let volume = match (found, class) {
            (Some(found), _) => PersistentVolume::clone(&found),
            (None, Some(class)) if claim.volume.is_empty() && provisions(class) => {
                provisioned(claim, class)
            }
            _ => continue,
        };
        let claim_ref = ClaimReference {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            uid: claim.uid.clone(),
        };
        used.insert(volume.name.clone());
        let claim = Arc::make_mut(claim);
        claim.volume = volume.name.clone();
        claim.is_bound = true;
        changed.push(PersistentVolume { claim: Some(claim_ref), is_available: false, ..volume });
        bound += 1;
    }
    added.retain(|object| match object {
        Object::PersistentVolume(volume) => !used.contains(&volume.name),
        _ => true,
    });
    added.extend(changed.into_iter().map(Object::from));
    bound
}

fn provisions(class: &StorageClass) -> bool {
    !class.provisioner.is_empty() && *class.provisioner != *NO_PROVISIONER
}

/// Whether the volume is reserved for the claim.
fn is_kept_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.claim.as_ref().is_some_and(|of| {
        (&of.namespace, &of.name) == (&claim.namespace, &claim.name)
            && (of.uid.is_empty() || of.uid == claim.uid)
    })
}

/// Whether the claim may be bound to the volume.
fn matches(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let is_kept = is_kept_for(volume, claim);
    !volume.is_deleting
        && (volume.claim.is_none() || is_kept)
        && (claim.volume.is_empty() || claim.volume == volume.name)
        && volume.capacity >= claim.request
        && volume.volume_mode == claim.volume_mode
        && volume.class == claim.class
        && claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode))
        && (is_kept || claim.selector.as_ref().is_none_or(|it| it.matches(&volume.labels)))
}

/// The volume that the provisioner of the class makes for the claim.
fn provisioned(claim: &PersistentVolumeClaim, class: &StorageClass) -> PersistentVolume {
    let name: Name = format!("pvc-{}-{}", claim.namespace, claim.name).into();
    let topologies: &NodeSelector = &class.allowed_topologies;
    PersistentVolume {
        csi: Some((class.provisioner.clone(), name.clone())),
        name,
        capacity: claim.request,
        access_modes: claim.access_modes.clone(),
        volume_mode: claim.volume_mode,
        class: claim.class.clone(),
        node_affinity: (!topologies.terms.is_empty()).then(|| topologies.clone()),
        ..PersistentVolume::default()
    }
}
