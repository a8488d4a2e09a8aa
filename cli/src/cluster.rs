//! A cluster from files, as a writer's state.

use std::path::{Path, PathBuf};

use portolan::framework::config::Configuration;
use portolan::framework::{Framework, Handle, Registry};
use portolan::model::{Object, ObjectKind, Pod, PodState, k8s};
use portolan::snapshot::GodelConfig;
use portolan::{CommitPolicy, Config, Engine, Writer};

use crate::error::Failure;
use crate::input;

/// Whether a cluster is one of Gödel's.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Godel {
    /// Gödel schedulers of this type run the cluster: pods that they have assumed count
    /// where they are to go, and the places that Reservations hold are held.
    #[arg(long = "godel", value_name = "SCHEDULER_TYPE")]
    scheduler_type: Option<String>,
}

impl Godel {
    /// What the engine has to know of it.
    pub(crate) fn config(&self) -> Config {
        let godel = self.scheduler_type.as_deref().map(|scheduler_type| GodelConfig {
            // What is read from files is not confirmed by and by.
            reservations: Some(std::time::Duration::ZERO),
            movements: true,
            preemption_marks: true,
            ..GodelConfig::new(scheduler_type)
        });
        // What a file says is taken as it is, and one scheduler places pods by its
        // profile, which may not look at resources at all.
        Config { godel, commit_check: CommitPolicy::Unchecked, ..Config::default() }
    }

    /// Whether the pod counts on a node that it does not name yet.
    pub(crate) fn is_assumed(&self, pod: &Pod) -> bool {
        let scheduler_type = self.scheduler_type.as_deref();
        scheduler_type.is_some_and(|of| pod.is_for(of)) && pod.state() == Ok(PodState::Assumed)
    }

    /// Says of objects that mean something under this setting alone that it is missing.
    pub(crate) fn note(&self, objects: &k8s::Objects) -> Option<String> {
        if self.scheduler_type.is_some() {
            return None;
        }
        let kinds = [ObjectKind::Reservation, ObjectKind::Movement];
        let of_godel = objects.objects.iter().filter(|object| kinds.contains(&object.kind()));
        let assumed = objects.pods.iter().filter(|pod| pod.state() == Ok(PodState::Assumed));
        let (objects, pods) = (of_godel.count(), assumed.count());
        (objects + pods > 0).then(|| {
            format!(
                "{objects} Gödel objects and {pods} pods that are assumed by annotation say \
                 nothing here: give --godel SCHEDULER_TYPE"
            )
        })
    }
}

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
pub(crate) fn load(files: &[PathBuf], godel: &Godel) -> Result<Loaded, Failure> {
    let objects = read(files)?;
    let mut notes: Vec<String> = godel.note(&objects).into_iter().collect();
    for (kind, count) in &objects.skipped {
        notes.push(format!("{count} objects of kind {kind} are not read here"));
    }
    if objects.finished_pods > 0 {
        notes.push(format!("{} pods have finished and take nothing", objects.finished_pods));
    }
    let is_nm_node = |object: &Object| object.kind() == ObjectKind::NmNode;
    if objects.nodes.is_empty() && !objects.objects.iter().any(is_nm_node) {
        let what = "there is no node in it: give the output of `kubectl get nodes,pods -A -o json`";
        return Err(Failure::File { file: files[0].clone(), what: what.to_owned() });
    }
    let (mut writer, _) = Engine::inline(godel.config());
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
        let is_bound = pod.node_name.as_ref().is_some_and(|node| !node.is_empty());
        if !is_bound && !godel.is_assumed(&pod) {
            pending.push(pod);
            continue;
        }
        let name = format!("pod {}/{}", pod.namespace(), pod.name);
        writer.add_pod(pod).map_err(|error| Failure::Refused { object: name, error })?;
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
