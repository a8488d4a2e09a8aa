//! Conversions from the types of the crate k8s-openapi, which clients such as kube-rs hold.
//!
//! A watch has parsed its objects already. Pods and nodes, the kinds of almost all events, are not serialized again:
//! the structs that the parser would have filled borrow their fields, and the same code then reads these structs. The
//! rules, the errors and the paths of fields are therefore implemented once, for bytes and for objects. The other kinds
//! are serialized and read from their bytes.
//!
//! The structs of [`wire`](crate::wire) are filled without `..Default::default()`, so a field that is added there must
//! be added here. A field that only some versions of Kubernetes have is read by a function of its own.

mod affinity;
mod meta;
mod node;
mod pod;
mod volume;

use k8s_openapi::Resource;
use k8s_openapi::api::{apps, core, policy, storage};
use k8s_openapi::serde::Serialize;

use super::defaults::Rules;
use super::error::{Path, ReadError};
use super::slice::object_from_slice;
use portolan::model;

/// Converts an object of the crate k8s-openapi to the model (feature `k8s-openapi`).
///
/// The result is the same as that of [`pod_from_slice`](crate::pod_from_slice),
/// [`node_from_slice`](crate::node_from_slice) or [`object_from_slice`] for the object's JSON: nothing is filled in.
///
/// Implemented for Pod, Node, Namespace, Service, ReplicationController, ReplicaSet, StatefulSet, DaemonSet,
/// PersistentVolume, PersistentVolumeClaim, StorageClass, CSINode, VolumeAttachment, CSIDriver, CSIStorageCapacity,
/// PodDisruptionBudget, and for PodGroup if the chosen version of Kubernetes is 1.36 or later.
///
/// ```
/// use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
/// use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
/// use portolan_k8s::ToModel;
///
/// let requesting = |cpu: &str| {
///     let requests = Some([("cpu".to_owned(), Quantity(cpu.to_owned()))].into());
///     let resources = Some(ResourceRequirements { requests, ..Default::default() });
///     let containers = vec![Container { resources, ..Default::default() }];
///     Pod { spec: Some(PodSpec { containers, ..Default::default() }), ..Default::default() }
/// };
/// let pod = requesting("250m").to_model()?;
/// assert_eq!(pod.template.resources.incoming.cpu.0, 250);
///
/// let error = requesting("250x").to_model().unwrap_err();
/// assert_eq!(error.path(), "spec.containers[0].resources.requests.cpu");
/// # Ok::<(), portolan_k8s::ReadError>(())
/// ```
///
/// # Versions of Kubernetes
///
/// k8s-openapi drops the fields that its chosen version of Kubernetes does not have, so a conversion cannot see them.
/// Scheduling reads these: `restartPolicyRules` of containers (1.34), `status.resources` and
/// `status.allocatedResources` of pods and `status.declaredFeatures` of nodes (1.35), `spec.schedulingGroup` of pods
/// (1.36). Choose the version of the API server, or read the bytes.
///
/// k8s-openapi reads a missing required field as an empty one. A ReplicaSet without a selector then selects all pods,
/// whereas it selects none if its bytes are read. No API server stores such an object.
pub trait ToModel {
    /// The object in the model: [`Pod`](model::Pod), [`Node`](model::Node) or [`Object`](model::Object).
    type Model;

    /// Reads the object.
    ///
    /// A pod or a node costs one pass over the fields that scheduling reads, and borrows their texts. The other kinds
    /// are serialized as JSON and parsed, in time and memory proportional to the whole object. Fractions of a second in
    /// their times, which Kubernetes never writes, are lost.
    ///
    /// # Errors
    ///
    /// A field has an invalid value. The error names the field as in the JSON.
    fn to_model(&self) -> Result<Self::Model, ReadError>;
}

impl ToModel for core::v1::Pod {
    type Model = model::Pod;

    fn to_model(&self) -> Result<model::Pod, ReadError> {
        let wire = pod::lend(self)?;
        Ok(super::pod::read(&wire, &Path::Root, &mut Rules::stored())?.finish())
    }
}

impl ToModel for core::v1::Node {
    type Model = model::Node;

    fn to_model(&self) -> Result<model::Node, ReadError> {
        let wire = node::lend(self)?;
        super::node::read(&wire, &Path::Root, &mut Rules::stored())
    }
}

/// Implements the trait for kinds that are serialized.
macro_rules! serialized {
    ($($kind:ty,)*) => {
        $(impl ToModel for $kind {
            type Model = model::Object;

            fn to_model(&self) -> Result<model::Object, ReadError> {
                serialized(self)
            }
        })*
    };
}

fn serialized<K: Resource + Serialize>(object: &K) -> Result<model::Object, ReadError> {
    let bytes =
        serde_json::to_vec(object).map_err(|error| ReadError::json(String::new(), &error))?;
    object_from_slice(K::KIND, &bytes)
}

serialized! {
    core::v1::Namespace,
    core::v1::Service,
    core::v1::ReplicationController,
    core::v1::PersistentVolume,
    core::v1::PersistentVolumeClaim,
    apps::v1::ReplicaSet,
    apps::v1::StatefulSet,
    apps::v1::DaemonSet,
    policy::v1::PodDisruptionBudget,
    storage::v1::StorageClass,
    storage::v1::CSINode,
    storage::v1::VolumeAttachment,
    storage::v1::CSIDriver,
    storage::v1::CSIStorageCapacity,
}

k8s_openapi::k8s_if_1_36! {
    serialized! { k8s_openapi::api::scheduling::v1alpha2::PodGroup, }
}

k8s_openapi::k8s_if_ge_1_37! {
    serialized! {
        k8s_openapi::api::scheduling::v1alpha3::PodGroup,
        k8s_openapi::api::scheduling::v1beta1::PodGroup,
    }
}
