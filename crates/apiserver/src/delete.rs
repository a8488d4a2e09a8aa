//! The rules of deletion: preconditions, grace periods and finalizers.

use serde_json::Value;

use crate::clock;
use crate::error::ApiError;
use crate::resources::Resource;
use crate::store::{Change, Key, Object, Store};
use crate::verbs::{bump_generation, finalizers, has_ended, is_deleted, is_finished, text};

/// Deletes an object by the `DeleteOptions` that the client sent, or null. Returns the removed object, or the one that
/// waits for its grace period or its finalizers.
pub(crate) fn delete(
    store: &Store,
    resource: &Resource,
    key: &Key,
    options: &Value,
) -> Result<Object, ApiError> {
    if resource.kind == "Namespace" {
        return Err(ApiError::bad_request("this server does not delete namespaces"));
    }
    if options["propagationPolicy"] == "Orphan" || options["orphanDependents"] == true {
        return Err(ApiError::bad_request(
            "this server does not orphan dependents: propagationPolicy must not be Orphan",
        ));
    }
    let given = &options["gracePeriodSeconds"];
    if !given.is_null() && !given.is_i64() {
        let message = format!("gracePeriodSeconds: {given} is not a number of seconds");
        return Err(ApiError::bad_request(message));
    }
    let mut gone = false;
    let object = store.of(resource).change(key, |old| {
        let old = old.ok_or_else(|| ApiError::not_found(resource, &key.name))?;
        check_preconditions(resource, key, old, options)?;
        let change = retire(resource, old, options);
        gone = matches!(change, Change::Remove(_));
        Ok(match change {
            // A pod is marked first, in a version of its own, and watches see that it changed before it is removed.
            Change::Remove(last) if resource.kind == "Pod" => Change::Put(last),
            change => change,
        })
    })?;
    let object = object.ok_or_else(|| ApiError::not_found(resource, &key.name))?;
    if gone && resource.kind == "Pod" {
        store.of(resource).change(key, |marked| {
            let marked = marked.filter(|marked| text(marked, "uid") == text(&object.value, "uid"));
            // Another client may have removed it meanwhile.
            Ok(marked.map_or(Change::Keep, |marked| Change::Remove(marked.clone())))
        })?;
    }
    Ok(object)
}

fn check_preconditions(
    resource: &Resource,
    key: &Key,
    old: &Value,
    options: &Value,
) -> Result<(), ApiError> {
    let required = &options["preconditions"];
    let conflict =
        |why: String| Err(ApiError::conflict(resource.kind, resource.group, &key.name, why));
    if let Some(uid) = required["uid"].as_str().filter(|uid| *uid != text(old, "uid")) {
        return conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            text(old, "uid")
        ));
    }
    if let Some(version) =
        required["resourceVersion"].as_str().filter(|it| *it != text(old, "resourceVersion"))
    {
        return conflict(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). \
             The object might have been modified",
            text(old, "resourceVersion")
        ));
    }
    Ok(())
}

/// Decides whether a deletion removes an object or marks it as terminating.
fn retire(resource: &Resource, old: &Value, options: &Value) -> Change {
    let mut new = old.clone();
    let deleting = is_deleted(old);
    let grace = if resource.kind == "Pod" { grace_period(old, options) } else { 0 };
    if deleting {
        let present = old["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
        if grace >= present && !(grace == 0 && is_finished(old)) {
            return Change::Keep;
        }
    }
    if grace == 0 && finalizers(old).is_empty() && resource.kind != "Pod" {
        return Change::Remove(new);
    }
    new["metadata"]["deletionTimestamp"] = clock::later(grace).into();
    new["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    if !deleting {
        bump_generation(&mut new);
    }
    if is_finished(&new) { Change::Remove(new) } else { Change::Put(new) }
}

/// Ten years: longer periods would overflow times.
const LONGEST_GRACE: u64 = 315_360_000;

/// The seconds that a pod has to terminate.
fn grace_period(pod: &Value, options: &Value) -> u64 {
    let unassigned = pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    if unassigned || has_ended(pod) {
        return 0;
    }
    let seconds = options["gracePeriodSeconds"]
        .as_i64()
        .or(pod["spec"]["terminationGracePeriodSeconds"].as_i64());
    // A negative period means one second.
    u64::try_from(seconds.unwrap_or(0)).unwrap_or(1).min(LONGEST_GRACE)
}
