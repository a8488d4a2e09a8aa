//! Reads device classes, resource slices, resource claims and their templates (dynamic resource allocation).

use std::collections::HashMap;
use std::sync::Arc;

use portolan::cache::Store;
use portolan::model::{Generation, Name};
use portolan_dra::Devices;
use portolan_dra::model::{
    ConsumerReference, DeviceClass, Metadata, ResourceClaim, ResourceClaimStatus,
    ResourceClaimTemplate, ResourceSlice, needs_upgrade, upgrade,
};
use portolan_dra::store::DeviceEvent;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::budgets::PodFacts;
use super::defaults::Rules;
use super::error::{Cause, Path, ReadError};
use super::tree::Spot;
use super::typed::{Origin, Typed};

/// The objects of dynamic resource allocation. Of two objects with one name, the later one is used.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DeviceObjects {
    /// The device classes.
    pub classes: Vec<Arc<DeviceClass>>,
    /// The resource slices.
    pub slices: Vec<Arc<ResourceSlice>>,
    /// The claims.
    pub claims: Vec<Arc<ResourceClaim>>,
    /// The templates of claims.
    pub templates: Vec<Arc<ResourceClaimTemplate>>,
}

impl DeviceObjects {
    /// Returns whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
            && self.slices.is_empty()
            && self.claims.is_empty()
            && self.templates.is_empty()
    }

    /// Appends later objects.
    pub fn extend(&mut self, later: DeviceObjects) {
        self.classes.extend(later.classes);
        self.slices.extend(later.slices);
        self.claims.extend(later.claims);
        self.templates.extend(later.templates);
    }

    /// Frees the claims of pods that have finished, as their controller does.
    pub(super) fn release(&mut self, facts: &PodFacts) {
        for claim in &mut self.claims {
            let has_finished = |consumer: &ConsumerReference| {
                consumer.api_group.is_empty()
                    && &*consumer.resource == "pods"
                    && facts.has_finished(claim.namespace(), &consumer.name)
            };
            if !claim.status.reserved_for.iter().any(has_finished) {
                continue;
            }
            let mut left = ResourceClaim::clone(claim);
            left.status.reserved_for.retain(|consumer| !has_finished(consumer));
            if left.status.reserved_for.is_empty() {
                left.status = ResourceClaimStatus::default();
            }
            *claim = left.into();
        }
    }

    /// Returns the store of these objects, for an engine's configuration. Of several claims with one uid, such as copies
    /// of a manifest, all but the first get their namespace and name as uid.
    #[must_use]
    pub fn store(&self) -> Devices {
        let mut devices = Devices::default();
        let classes = self.classes.iter().cloned().map(DeviceEvent::PutClass);
        let slices = self.slices.iter().cloned().map(DeviceEvent::PutSlice);
        let mut uids: HashMap<Name, String> = HashMap::new();
        let claims = self.claims.iter().map(|claim| {
            let key = claim.key();
            let first = uids.entry(claim.metadata.uid.clone()).or_insert_with(|| key.clone());
            if *first == key {
                return DeviceEvent::PutClaim(claim.clone());
            }
            let mut copy = ResourceClaim::clone(claim);
            copy.metadata.uid = key.into();
            DeviceEvent::PutClaim(copy.into())
        });
        for event in classes.chain(slices).chain(claims) {
            devices.apply(&event, Generation::default());
        }
        devices
    }

    /// Returns the templates of claims by namespace and name.
    #[must_use]
    pub fn templates_by_name(&self) -> HashMap<(Name, Name), Arc<ResourceClaimTemplate>> {
        let entry = |of: &Arc<ResourceClaimTemplate>| {
            ((of.namespace().clone(), of.name().clone()), of.clone())
        };
        self.templates.iter().map(entry).collect()
    }
}

/// Reads an object of a kind of `resource.k8s.io`.
///
/// An object without a version, as in the lists of an API server, is upgraded like one of the oldest version: this does
/// not change newer ones.
pub(super) fn read<T: DeserializeOwned>(
    object: Typed<'_, '_>,
    path: &Path<'_>,
    kind: &'static str,
) -> Result<T, ReadError> {
    let version = object.spot.get("apiVersion").and_then(Spot::text);
    let upgrades = match version {
        None => Ok(true),
        some => needs_upgrade(some),
    };
    let unserved = || {
        let api_version = version.unwrap_or_default().to_owned();
        let cause = Cause::ApiVersion { api_version, kind, instead: "resource.k8s.io/v1" };
        ReadError::new(&path.key("apiVersion"), cause)
    };
    if !upgrades.map_err(|_| unserved())? {
        return object.read();
    }
    let mut value: Value = object.read()?;
    upgrade(&mut value);
    Typed::new(&(&value).into(), *path, Origin::default()).read()
}

/// Checks the name, and completes the metadata of a claim.
pub(super) fn claim(
    metadata: &mut Metadata,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<(), ReadError> {
    namespaced(metadata, "ResourceClaim", path, rules)?;
    if metadata.uid.is_empty() {
        metadata.uid = format!("{}/{}", metadata.namespace, metadata.name).into();
        rules.note("metadata.uid", &metadata.uid);
    }
    Ok(())
}

/// Checks the name, and fills in the namespace.
pub(super) fn namespaced(
    metadata: &mut Metadata,
    kind: &str,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<(), ReadError> {
    named(metadata, path)?;
    rules.about(kind, &metadata.namespace, &metadata.name);
    if metadata.namespace.is_empty() {
        metadata.namespace = rules.namespace("");
        rules.about(kind, &metadata.namespace, &metadata.name);
        rules.note("metadata.namespace", &metadata.namespace);
    }
    Ok(())
}

/// Checks that an object has a name.
pub(super) fn named(metadata: &Metadata, path: &Path<'_>) -> Result<(), ReadError> {
    match metadata.name.is_empty() {
        true => Err(ReadError::new(&path.key("metadata").key("name"), Cause::Missing)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::read;

    #[test]
    fn objects_of_all_served_versions_are_read_alike() {
        let old = r#"{"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim", "metadata": {"name": "a"},
            "spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu", "count": 2}]}}}
            {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t"},
            "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu", "count": 2}]}}}}"#;
        let new = "
apiVersion: v1
kind: List
items:
- apiVersion: resource.k8s.io/v1beta2
  kind: ResourceClaim
  metadata: {name: a}
  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 2}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplateList
items:
- metadata: {name: t, namespace: default}
  spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 2}}]}}}
";
        let [old, new] = [old, new].map(|text| read(text.as_bytes()).unwrap().devices);
        assert_eq!(old.claims, new.claims);
        assert_eq!(old.templates, new.templates);
        let exactly = old.claims[0].spec.devices.requests[0].exactly.as_ref().unwrap();
        assert_eq!((&*exactly.device_class_name, exactly.count), ("gpu", Some(2)));
        assert_eq!(old.templates[0].spec.spec, old.claims[0].spec);
    }

    #[test]
    fn claims_get_a_namespace_and_a_uid() {
        let text = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\n";
        let objects = read(text.as_bytes()).unwrap();
        let metadata = &objects.devices.claims[0].metadata;
        assert_eq!((&*metadata.namespace, &*metadata.uid), ("default", "default/a"));
        let fields: Vec<&str> = objects.defaulted.iter().map(|it| &*it.field).collect();
        assert_eq!(fields, ["metadata.namespace", "metadata.uid"]);
        assert!(objects.devices.store().claims().get(&"default".into(), &"a".into()).is_some());
    }

    #[test]
    fn claims_of_finished_pods_are_free() {
        let claim = |name: &str, pods: &str| {
            format!(
                "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\nstatus:\n  \
                 allocation: {{devices: {{results: [{{request: r, driver: d, pool: p, device: g}}]}}}}\n  \
                 reservedFor: [{pods}]\n"
            )
        };
        let (done, runs) =
            ("{resource: pods, name: done, uid: u}", "{resource: pods, name: runs, uid: v}");
        let text = [
            "apiVersion: v1\nkind: Pod\nmetadata: {name: done}\nstatus: {phase: Failed}\n"
                .to_owned(),
            claim("own", done),
            claim("shared", &format!("{done}, {runs}")),
            claim("other", runs),
            claim("foreign", "{apiGroup: x, resource: pods, name: done, uid: w}"),
            claim("unreserved", ""),
        ];
        let devices = read(text.concat().as_bytes()).unwrap().devices;
        let left = devices
            .claims
            .iter()
            .map(|claim| (claim.status.reserved_for.len(), claim.status.allocation.is_some()));
        let expected = [(0, false), (1, true), (1, true), (1, true), (0, true)];
        assert_eq!(left.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn claims_with_one_uid_are_told_apart() {
        let claim = |name: &str| {
            format!(
                "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}, uid: u}}\n"
            )
        };
        let text = [claim("a"), claim("b"), claim("a")].concat();
        let store = read(text.as_bytes()).unwrap().devices.store();
        let uids = store.claims().iter().map(|claim| claim.metadata.uid.to_string());
        assert_eq!(uids.collect::<Vec<_>>(), ["u", "default/b"]);
    }

    #[test]
    fn errors_name_the_field() {
        let path = |version: &str, spec: &str| {
            let text = format!(
                "apiVersion: resource.k8s.io/{version}\nkind: ResourceSlice\nmetadata: {{name: a}}\nspec: {spec}\n"
            );
            let error = read(text.as_bytes()).unwrap_err();
            (error.path().to_owned(), error.line())
        };
        let spec = "{devices: [{name: a, basic: {}, taints: 7}]}";
        assert_eq!(path("v1", spec), ("spec.devices[0].taints".to_owned(), Some(4)));
        assert_eq!(path("v1beta1", spec).0, "spec.devices[0].taints");
        assert_eq!(path("v1alpha3", "{}").0, "apiVersion");
        let unnamed = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\n";
        assert_eq!(read(unnamed.as_bytes()).unwrap_err().path(), "metadata.name");
    }
}
