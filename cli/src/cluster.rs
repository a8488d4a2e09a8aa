//! A cluster from files, as a writer's state.

use std::path::{Path, PathBuf};

use portolan::framework::config::Configuration;
use portolan::framework::{Framework, Handle, Registry};
use portolan::model::{Pod, k8s};
use portolan::{Config, Engine, Writer};

use crate::error::Failure;
use crate::input;

/// What files held: a cluster with its placed pods, and the others.
pub(crate) struct Loaded {
    pub(crate) writer: Writer,
    pub(crate) pending: Vec<Pod>,
    /// What makes pods: daemon sets put them on new nodes.
    pub(crate) controllers: Vec<k8s::PodController>,
    /// What was filled in or left out, for people.
    pub(crate) notes: Vec<String>,
}

/// Reads all objects of some files, as `kubectl get … -o json|yaml` writes them.
pub(crate) fn read(files: &[PathBuf]) -> Result<k8s::Objects, Failure> {
    let mut reader = k8s::Reader::new();
    for file in files {
        let bytes = input::read(file)?;
        reader.read(&bytes).map_err(|error| not_read(file, &error))?;
    }
    Ok(reader.finish())
}

/// The pods of some files, and those that what is in them makes.
pub(crate) fn pods(files: &[PathBuf]) -> Result<Vec<Pod>, Failure> {
    let mut objects = read(files)?;
    objects.expand();
    Ok(objects.pods)
}

/// Why a file was not read; the place is said once, as file and line.
pub(crate) fn not_read(file: &Path, error: &k8s::ReadError) -> Failure {
    let (file, text) = (file.to_owned(), error.to_string());
    match error.line() {
        Some(line) => {
            let what = text.strip_prefix(&format!("line {line}, ")).unwrap_or(&text);
            Failure::Line { file, line, what: format!("{what}: mend it there") }
        }
        None => Failure::File { file, what: text },
    }
}

/// A cluster of all that some files hold.
pub(crate) fn load(files: &[PathBuf]) -> Result<Loaded, Failure> {
    let objects = read(files)?;
    let mut notes = Vec::new();
    for (kind, count) in &objects.skipped {
        notes.push(format!("{count} objects of kind {kind} are not read here"));
    }
    if objects.finished_pods > 0 {
        notes.push(format!("{} pods have finished and take nothing", objects.finished_pods));
    }
    if objects.nodes.is_empty() {
        let what = "there is no node in it: give the output of `kubectl get nodes,pods -A -o json`";
        return Err(Failure::File { file: files[0].clone(), what: what.to_owned() });
    }
    let (mut writer, _) = Engine::inline(Config::default());
    for object in objects.objects {
        let name = format!("{} {}/{}", object.kind().as_str(), object.namespace(), object.name());
        writer.put_object(object).map_err(|error| Failure::Refused { object: name, error })?;
    }
    for node in objects.nodes {
        let name = format!("node {}", node.name);
        writer.add_node(node).map_err(|error| Failure::Refused { object: name, error })?;
    }
    let mut pending = Vec::new();
    for pod in objects.pods {
        match pod.node_name.as_ref().is_some_and(|node| !node.is_empty()) {
            false => pending.push(pod),
            true => {
                let name = format!("pod {}/{}", pod.namespace(), pod.name);
                writer.add_pod(pod).map_err(|error| Failure::Refused { object: name, error })?;
            }
        }
    }
    writer.publish();
    Ok(Loaded { writer, pending, controllers: objects.controllers, notes })
}

/// How pods of one scheduler are placed.
pub(crate) struct Decides {
    pub(crate) framework: Framework,
    /// The name of its scheduler.
    pub(crate) profile: String,
    /// The percentage of nodes that the configuration asks for, if it does.
    pub(crate) percentage_of_nodes: Option<u8>,
}

/// The profile of a configuration for pods that name this scheduler, or the only
/// one; without a configuration the default profile. Its plugins share the handle.
pub(crate) fn decides(
    file: Option<&PathBuf>,
    scheduler: Option<&str>,
    handle: &Handle,
) -> Result<Decides, Failure> {
    let wanted = scheduler.unwrap_or("default-scheduler");
    let Some(file) = file else {
        let framework = Framework::default_profile_with(handle);
        return Ok(Decides { framework, profile: wanted.to_owned(), percentage_of_nodes: None });
    };
    let bytes = input::read(file)?;
    let text = String::from_utf8(bytes).map_err(|error| Failure::File {
        file: file.clone(),
        what: format!("it is no UTF-8 text ({error}): give YAML"),
    })?;
    let configuration =
        Configuration::read(&text, &Registry::in_tree(), handle).map_err(|error| {
            Failure::Line { file: file.clone(), line: error.line(), what: error.what().to_owned() }
        })?;
    let percentage = Some(configuration.percentage_of_nodes).filter(|percentage| *percentage > 0);
    let names: Vec<String> =
        configuration.profiles.iter().map(|profile| profile.scheduler_name.clone()).collect();
    let only = names.len() == 1;
    let mut profiles = configuration.profiles.into_iter();
    let found = profiles.find(|profile| only || profile.scheduler_name == wanted);
    let found = found.ok_or_else(|| Failure::File {
        file: file.clone(),
        what: format!(
            "there is no profile for scheduler {wanted:?}, only for {}: add one",
            names.join(", ")
        ),
    })?;
    Ok(Decides {
        framework: found.framework,
        profile: found.scheduler_name,
        percentage_of_nodes: found.percentage_of_nodes.or(percentage),
    })
}
