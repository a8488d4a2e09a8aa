//! Calls for tests in the server's process. They follow the same rules as HTTP requests, but without faults and delays.

use std::time::Duration;

use serde_json::{Value, json};

use crate::audit::Write;
use crate::binding;
use crate::delete;
use crate::error::ApiError;
use crate::patch::PatchKind;
use crate::resources::{self, Resource};
use crate::server::ApiServer;
use crate::store::Key;
use crate::verbs::{self, Part, shown};

impl ApiServer {
    /// All objects of a kind, ordered by namespace and name. `kind` is a kind or a plural: `Pod`, `pods`. The result is
    /// empty if the server does not serve the kind.
    pub fn objects(&self, kind: &str) -> Vec<Value> {
        let Some(resource) = resources::by_name(kind) else { return Vec::new() };
        let (_, objects) = self.shared().store.of(resource).objects();
        objects.iter().map(|object| shown(resource, &object.value)).collect()
    }

    /// One object. The namespace of a cluster-scoped kind is empty.
    ///
    /// # Errors
    /// The error of a GET.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Result<Value, ApiError> {
        let resource = known(kind)?;
        let object = verbs::get(&self.shared().store, resource, &Key::new(namespace, name))?;
        Ok(shown(resource, &object.value))
    }

    /// Creates an object. The namespace is `default` if the object has none.
    ///
    /// # Errors
    /// The error of a POST.
    pub fn create(&self, object: &Value) -> Result<Value, ApiError> {
        let (resource, mut key) = place(object)?;
        let created = verbs::create(&self.shared().store, resource, &key.namespace, object.clone());
        if let Ok(created) = &created {
            key = created.version.key.clone();
        }
        self.record("create", resource.plural, &key, object, &created);
        created.map(|created| shown(resource, &created.value))
    }

    /// Replaces an object.
    ///
    /// # Errors
    /// The error of a PUT.
    pub fn update(&self, object: &Value) -> Result<Value, ApiError> {
        self.put(object, Part::Main)
    }

    /// Replaces the status of an object.
    ///
    /// # Errors
    /// The error of a PUT of the subresource.
    pub fn update_status(&self, object: &Value) -> Result<Value, ApiError> {
        self.put(object, Part::Status)
    }

    fn put(&self, object: &Value, part: Part) -> Result<Value, ApiError> {
        let (resource, key) = place(object)?;
        let path = path(resource, part)?;
        let updated = verbs::update(&self.shared().store, resource, &key, part, object.clone());
        self.record("update", &path, &key, object, &updated);
        updated.map(|(updated, _)| shown(resource, &updated.value))
    }

    /// Patches an object.
    ///
    /// # Errors
    /// The error of a PATCH.
    pub fn patch(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        how: PatchKind,
        patch: &Value,
    ) -> Result<Value, ApiError> {
        self.patch_part(kind, namespace, name, Part::Main, how, patch)
    }

    /// Patches the status of an object by a strategic merge patch.
    ///
    /// # Errors
    /// The error of a PATCH of the subresource.
    pub fn patch_status(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, ApiError> {
        self.patch_part(kind, namespace, name, Part::Status, PatchKind::StrategicMerge, patch)
    }

    fn patch_part(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        part: Part,
        how: PatchKind,
        patch: &Value,
    ) -> Result<Value, ApiError> {
        let (resource, key) = (known(kind)?, Key::new(namespace, name));
        let path = path(resource, part)?;
        let patched = verbs::patch(&self.shared().store, resource, &key, part, how, patch);
        self.record("patch", &path, &key, patch, &patched);
        patched.map(|patched| shown(resource, &patched.value))
    }

    /// Binds a pod to a node.
    ///
    /// # Errors
    /// The error of a POST of the binding.
    pub fn bind(&self, namespace: &str, name: &str, node: &str) -> Result<(), ApiError> {
        let binding = json!({
            "kind": "Binding", "apiVersion": "v1", "metadata": {"namespace": namespace, "name": name},
            "target": {"kind": "Node", "name": node},
        });
        let key = Key::new(namespace, name);
        let bound = binding::bind(&self.shared().store, &key, &binding);
        self.record("create", "pods/binding", &key, &binding, &bound);
        bound
    }

    /// Deletes an object with `DeleteOptions` or null. Returns the object, removed or terminating.
    ///
    /// # Errors
    /// The error of a DELETE.
    pub fn delete(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        options: &Value,
    ) -> Result<Value, ApiError> {
        let (resource, key) = (known(kind)?, Key::new(namespace, name));
        let deleted = delete::delete(&self.shared().store, resource, &key, options);
        self.record("delete", resource.plural, &key, options, &deleted);
        deleted.map(|deleted| shown(resource, &deleted.value))
    }

    fn record<T>(
        &self,
        verb: &'static str,
        resource: &str,
        key: &Key,
        body: &Value,
        outcome: &Result<T, ApiError>,
    ) {
        let write = Write {
            at: Duration::ZERO,
            verb,
            resource: resource.to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            body: Value::Null,
            code: match outcome {
                Ok(_) if verb == "create" => 201,
                Ok(_) => 200,
                Err(error) => error.code,
            },
            applied: outcome.is_ok(),
            answered: true,
            user_agent: "direct".into(),
        };
        self.shared().audit.record(write, body.to_string().into());
    }
}

pub(crate) fn known(kind: &str) -> Result<&'static Resource, ApiError> {
    resources::by_name(kind).filter(|resource| !resource.review).ok_or_else(ApiError::no_such_path)
}

fn path(resource: &Resource, part: Part) -> Result<String, ApiError> {
    match part {
        Part::Main => Ok(resource.plural.to_owned()),
        Part::Status if resource.status => Ok(format!("{}/status", resource.plural)),
        Part::Status => Err(ApiError::no_such_path()),
    }
}

/// The resource and key of an object.
fn place(object: &Value) -> Result<(&'static Resource, Key), ApiError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let resource = resources::by_kind(&text(&object["apiVersion"]), &text(&object["kind"]))
        .filter(|resource| !resource.review)
        .ok_or_else(ApiError::no_such_path)?;
    let namespace = match text(&object["metadata"]["namespace"]) {
        _ if !resource.namespaced => String::new(),
        namespace if namespace.is_empty() => "default".into(),
        namespace => namespace,
    };
    Ok((resource, Key { namespace, name: text(&object["metadata"]["name"]) }))
}
