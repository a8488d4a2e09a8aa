//! A volume binder that works without a cluster, for replays, simulations and tests.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, WeakEngine, Writer};
use crate::framework::{Assumed, PodInPreBind, PodVolumes, VolumeBinder};
use crate::model::{
    ClaimReference, EventError, Name, NodeSelector, NodeSelectorTerm, Object, Operator,
    PersistentVolume, PersistentVolumeClaim, Pod, Requirement,
};
use crate::snapshot::Cluster;

/// Reserves volumes in an engine's state through its log, so that every scheduler on the engine sees the reservation.
/// It also does immediately what the persistent volume controller and a provisioner would do.
///
/// A provisioned volume is accessible from the topology segment that the node's driver reports: from nodes with the
/// same values of its topology keys ([`CsiNodeDriver`](crate::model::CsiNodeDriver)), and from all nodes if there are
/// none.
#[derive(Clone, Debug)]
pub struct InMemoryVolumeBinder(WeakEngine);

const CLOSED: &str = "the engine is closed";

impl From<&WeakEngine> for InMemoryVolumeBinder {
    fn from(engine: &WeakEngine) -> InMemoryVolumeBinder {
        InMemoryVolumeBinder(engine.clone())
    }
}

impl InMemoryVolumeBinder {
    /// Creates a volume binder for this engine.
    #[must_use]
    pub fn new(engine: Engine) -> InMemoryVolumeBinder {
        InMemoryVolumeBinder(engine.downgrade())
    }

    fn write(
        &self,
        work: impl FnOnce(&mut Writer) -> Result<Vec<Object>, String>,
    ) -> Result<(), String> {
        let engine = self.0.upgrade().ok_or(CLOSED)?;
        let written = engine.with_writer(|writer| {
            for object in work(writer)? {
                writer.put_object(object).map_err(|error: EventError| error.to_string())?;
            }
            writer.publish();
            Ok(())
        });
        written.unwrap_or_else(|_| Err(CLOSED.to_owned()))
    }
}

fn volume<'a>(cluster: &'a Cluster, known: &PersistentVolume) -> Option<&'a PersistentVolume> {
    cluster.objects().persistent_volumes.get("", &known.name).map(|found| &**found)
}

fn claim<'a>(
    cluster: &'a Cluster,
    known: &PersistentVolumeClaim,
) -> Option<&'a PersistentVolumeClaim> {
    let claims = &cluster.objects().persistent_volume_claims;
    claims.get(&known.namespace, &known.name).map(|found| &**found)
}

impl VolumeBinder for InMemoryVolumeBinder {
    fn assume(&self, volumes: &PodVolumes) -> Result<(), String> {
        self.write(|writer| {
            let cluster = writer.cluster();
            for Assumed { before, .. } in &volumes.bindings {
                if volume(cluster, before) != Some(&**before) {
                    return Err(format!("volume {:?} has changed: decide again", before.name));
                }
            }
            for Assumed { before, .. } in &volumes.to_provision {
                if claim(cluster, before) != Some(&**before) {
                    return Err(format!("claim {:?} has changed: decide again", before.name));
                }
            }
            Ok(objects(volumes, |change| &change.after, |change| &change.after))
        })
    }

    fn revert(&self, volumes: &PodVolumes) {
        // A closed engine has nothing to undo.
        let _ = self.write(|writer| {
            let cluster = writer.cluster();
            let mut as_assumed = volumes.clone();
            as_assumed
                .bindings
                .retain(|bound| volume(cluster, &bound.after) == Some(&*bound.after));
            as_assumed
                .to_provision
                .retain(|made| claim(cluster, &made.after) == Some(&*made.after));
            Ok(objects(&as_assumed, |change| &change.before, |change| &change.before))
        });
    }

    fn bind(
        &self,
        _: &Pod,
        node: &Name,
        volumes: &PodVolumes,
        _: Duration,
        _: &PodInPreBind,
    ) -> Result<(), String> {
        self.write(|writer| {
            let cluster = writer.cluster();
            let mut bound = Vec::new();
            for Assumed { after: volume, .. } in &volumes.bindings {
                let Some(reference) = &volume.claim else { continue };
                let claims = &cluster.objects().persistent_volume_claims;
                let claim = claims.get(&reference.namespace, &reference.name);
                let claim = claim.ok_or_else(|| format!("claim {:?} is gone", reference.name))?;
                bound.push(bound_to(claim, &volume.name).into());
                let volume = PersistentVolume { is_available: false, ..(**volume).clone() };
                bound.push(volume.into());
            }
            for Assumed { after: wanted, .. } in &volumes.to_provision {
                let claim = claim(cluster, wanted);
                let claim = claim.ok_or_else(|| format!("claim {:?} is gone", wanted.name))?;
                if claim.is_bound {
                    // Another pod that uses this claim has bound it already.
                    continue;
                }
                let volume = provisioned(cluster, claim, node)?;
                bound.push(bound_to(claim, &volume.name).into());
                bound.push(volume.into());
            }
            Ok(bound)
        })
    }
}

fn objects(
    volumes: &PodVolumes,
    volume: fn(&Assumed<PersistentVolume>) -> &Arc<PersistentVolume>,
    claim: fn(&Assumed<PersistentVolumeClaim>) -> &Arc<PersistentVolumeClaim>,
) -> Vec<Object> {
    let volumes_of = volumes.bindings.iter().map(volume);
    let claims = volumes.to_provision.iter().map(claim);
    let volumes = volumes_of.map(|volume| Object::PersistentVolume(volume.clone()));
    volumes.chain(claims.map(|claim| Object::PersistentVolumeClaim(claim.clone()))).collect()
}

fn bound_to(claim: &PersistentVolumeClaim, volume: &Name) -> PersistentVolumeClaim {
    PersistentVolumeClaim { volume: volume.clone(), is_bound: true, ..claim.clone() }
}

/// Returns the volume that the class's provisioner creates for the claim on the node.
fn provisioned(
    cluster: &Cluster,
    claim: &PersistentVolumeClaim,
    node: &Name,
) -> Result<PersistentVolume, String> {
    let objects = cluster.objects();
    let class = objects.storage_classes.get("", &claim.class);
    let class = class.ok_or_else(|| format!("storage class {:?} is gone", claim.class))?;
    let info = cluster.node(node).and_then(|info| info.node());
    let info = info.ok_or_else(|| format!("node {node:?} is gone"))?;
    let drivers = objects.csi_nodes.get("", node).map(|known| &*known.drivers).unwrap_or_default();
    let driver = drivers.iter().find(|driver| driver.name == class.provisioner);
    let requirements = driver.map(|driver| &*driver.topology_keys).unwrap_or_default().iter();
    let here = requirements.filter_map(|key| {
        let value: Name = info.labels.get(key)?.into();
        Some(Requirement::new(key.clone(), Operator::In, [value]))
    });
    let term =
        NodeSelectorTerm { match_expressions: here.collect(), ..NodeSelectorTerm::default() };
    // The claims of manifests have no uid. Volumes of the same name would replace each other.
    let name: Name = match claim.uid.is_empty() {
        true => format!("pvc-{}/{}", claim.namespace, claim.name).into(),
        false => format!("pvc-{}", claim.uid).into(),
    };
    Ok(PersistentVolume {
        capacity: claim.request,
        access_modes: claim.access_modes.clone(),
        volume_mode: claim.volume_mode,
        class: claim.class.clone(),
        claim: Some(ClaimReference {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            uid: claim.uid.clone(),
        }),
        node_affinity: (!term.match_expressions.is_empty())
            .then(|| NodeSelector { terms: Box::new([term]) }),
        csi: Some((class.provisioner.clone(), name.clone())),
        name,
        ..PersistentVolume::default()
    })
}
