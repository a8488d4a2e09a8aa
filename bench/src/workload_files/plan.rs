//! Decides whether a workload can run, and reads all templates that it needs before anything runs.

use portolan_cli::CommandError;

use super::cases::Workload;
use super::sources::Sources;
use super::steps::Step;
use super::target::is_namespaced;
use super::template::Place;

/// Reads the templates of a workload. Returns why the workload cannot run, or `None` if it can.
pub(super) fn plan(
    workload: &Workload,
    sources: &mut Sources,
) -> Result<Option<String>, CommandError> {
    if let Some(why) = unsupported_operation(workload) {
        return Ok(Some(why));
    }
    if let Some(name) = &workload.unused_parameter {
        // A test in Go may read it, as those of NodeDeclaredFeatures do.
        return Ok(Some(format!(
            "no operation uses the parameter {name}: check the spelling, or the code that belongs to the file"
        )));
    }
    for path in paths(workload) {
        sources.load(path)?;
    }
    for step in &workload.steps {
        let (path, expected) = match step {
            Step::CreateNodes(nodes) => (nodes.template.as_deref(), "Node"),
            Step::CreatePods(pods) => {
                (pods.template.as_deref().or(workload.default_pod_template.as_deref()), "Pod")
            }
            _ => continue,
        };
        let Some(path) = path else { continue };
        let object = sources.get(path)?.object(Place { index: 0, count: 1 })?;
        match object["kind"].as_str() {
            Some(kind) if kind != expected => {
                let what = format!("expected a {expected}, found a {kind}");
                return Err(CommandError::File { file: sources.file(path), what });
            }
            _ => {}
        }
    }
    for path in paths(workload) {
        if let Some(why) = unsupported_object(sources, path)? {
            return Ok(Some(why));
        }
    }
    let mut gates = workload.feature_gates.iter();
    Ok(gates.find_map(|(name, value)| portolan_cli::unimplemented(name, *value)))
}

fn unsupported_operation(workload: &Workload) -> Option<String> {
    workload.steps.iter().find_map(|step| match step {
        Step::AllocResourceClaims | Step::CreateResourceClaims | Step::CreateResourceDriver => {
            Some(format!("the operation {step:?} is not supported"))
        }
        Step::UpdateAny(any) => {
            let other = any.subresources.iter().find(|name| *name != "resize");
            other.map(|name| format!("updateAny of the subresource {name} is not supported"))
        }
        _ => None,
    })
}

/// The paths of all templates of a workload.
fn paths(workload: &Workload) -> Vec<&str> {
    let mut paths: Vec<&str> = Vec::new();
    for step in &workload.steps {
        match step {
            Step::CreateNodes(nodes) => paths.extend(nodes.template.as_deref()),
            Step::CreateNamespaces { template, .. } => paths.extend(template.as_deref()),
            Step::CreatePods(pods) => {
                paths.extend(pods.template.as_deref().or(workload.default_pod_template.as_deref()));
                paths
                    .extend(pods.volumes().into_iter().flat_map(|(volume, claim)| [volume, claim]));
            }
            Step::CreateAny(any) | Step::UpdateAny(any) => paths.push(&any.template),
            Step::Churn(churn) => paths.extend(churn.templates.iter().map(|path| &**path)),
            _ => {}
        }
    }
    paths
}

fn unsupported_object(sources: &Sources, path: &str) -> Result<Option<String>, CommandError> {
    let object = sources.get(path)?.object(Place { index: 0, count: 1 })?;
    let has_claims = |pod: &serde_json::Value| {
        pod["spec"]["resourceClaims"].as_array().is_some_and(|claims| !claims.is_empty())
    };
    Ok(match object["kind"].as_str() {
        Some("Pod") if has_claims(&object) => {
            Some(format!("{path}: portolan does not implement resource claims of pods"))
        }
        Some(kind) if is_namespaced(kind).is_none() => {
            Some(format!("{path}: portolan does not schedule by objects of the kind {kind}"))
        }
        _ => None,
    })
}
