//! `churn`: creates objects in the background, or alternately creates and deletes them, until the workload ends.

use serde_json::Value;

use super::execute::{Shared, Trouble};
use super::steps::{Churn, ChurnMode};
use super::target::{Refused, is_namespaced, metadata};
use super::template::Place;

/// The objects of the operation, one per template, without generated names.
pub(super) fn templates(
    shared: &Shared<'_>,
    churn: &Churn,
    namespace: &str,
) -> Result<Vec<Value>, Trouble> {
    let mut objects = Vec::with_capacity(churn.templates.len());
    for path in &churn.templates {
        let mut object = shared.sources.get(path)?.object(Place { index: 0, count: 1 })?;
        if object["kind"].as_str().and_then(is_namespaced) == Some(true) {
            object["metadata"]["namespace"] = namespace.into();
        }
        objects.push(object);
    }
    Ok(objects)
}

/// Runs until the workload ends, or the number of objects is reached.
pub(super) fn run(shared: &Shared<'_>, churn: &Churn, templates: &[Value]) {
    match churn.mode {
        ChurnMode::Create => shared.stop.tick(churn.interval(), |number| {
            templates.iter().for_each(|template| drop(create(shared, template)));
            churn.number == 0 || number + 1 < churn.number
        }),
        ChurnMode::Recreate => {
            let number = churn.number;
            let mut live: Vec<Vec<Option<Value>>> = vec![vec![None; number]; templates.len()];
            shared.stop.tick(churn.interval(), |tick| {
                for (template, slots) in templates.iter().zip(&mut live) {
                    let slot = &mut slots[tick % number];
                    *slot = match slot.take() {
                        Some(object) => {
                            delete(shared, &object);
                            None
                        }
                        None => create(shared, template),
                    };
                }
                true
            });
        }
    }
}

/// Creates an object with a name of its own. scheduler_perf ignores errors here, too: a template without
/// `generateName` can only exist once.
fn create(shared: &Shared<'_>, template: &Value) -> Option<Value> {
    let mut object = template.clone();
    shared.names.name(&mut object);
    shared.target.create(&object).is_ok().then_some(object)
}

fn delete(shared: &Shared<'_>, object: &Value) {
    let kind = object["kind"].as_str().unwrap_or_default();
    let (namespace, name) = (metadata(object, "namespace"), metadata(object, "name"));
    match shared.target.delete(kind, namespace, name, None) {
        // A pod may have been preempted.
        Ok(()) | Err(Refused::NotFound(_)) => {}
        Err(refused) => shared.note(refused),
    }
}
