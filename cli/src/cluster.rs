//! Loads a cluster from files into a writer.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use portolan::framework::{Framework, Handle};
use portolan::model::{Object, ObjectKind, Pod, PodState};
use portolan::scheduler::queue::QueueConfig;
use portolan::snapshot::GodelConfig;
use portolan::{CommitPolicy, Config, Engine, Writer};
use portolan_k8s::config::{Configuration, Registry};

use crate::error::Failure;
use crate::input;
use crate::live::fetch::{self, Fetched, Server};
use crate::text::count;

/// The scheduler of pods that name none.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The option that enables Gödel semantics.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Godel {
    /// Gödel scheduler type of the cluster: enables assumed pods, Reservations and Movements.
    #[arg(long = "godel", value_name = "SCHEDULER_TYPE")]
    scheduler_type: Option<String>,
}

impl Godel {
    /// The engine's configuration.
    pub(crate) fn config(&self) -> Config {
        let godel = self.scheduler_type.as_deref().map(|scheduler_type| GodelConfig {
            // No later event confirms objects that are read from files.
            reservations: Some(std::time::Duration::ZERO),
            movements: true,
            preemption_marks: true,
            ..GodelConfig::new(scheduler_type)
        });
        // The files are authoritative, and the only scheduler follows its profile, which
        // may ignore resources.
        Config { godel, commit_check: CommitPolicy::Unchecked, ..Config::default() }
    }

    /// Whether Gödel semantics are enabled.
    pub(crate) fn is_enabled(&self) -> bool {
        self.scheduler_type.is_some()
    }

    /// Whether the pod is assumed on a node by annotation, without a node name.
    pub(crate) fn is_assumed(&self, pod: &Pod) -> bool {
        let scheduler_type = self.scheduler_type.as_deref();
        scheduler_type.is_some_and(|of| pod.is_for(of)) && pod.state() == Ok(PodState::Assumed)
    }

    /// A note if objects are ignored because `--godel` is missing.
    pub(crate) fn note(&self, objects: &portolan_k8s::Objects) -> Option<String> {
        if self.scheduler_type.is_some() {
            return None;
        }
        let kinds = [ObjectKind::Reservation, ObjectKind::Movement];
        let of_godel = objects.objects.iter().filter(|object| kinds.contains(&object.kind()));
        let assumed = objects.pods.iter().filter(|pod| pod.state() == Ok(PodState::Assumed));
        let (objects, pods) = (of_godel.count(), assumed.count());
        (objects + pods > 0).then(|| {
            format!(
                "ignored {} and {}: pass --godel SCHEDULER_TYPE to use them",
                count(objects, "Gödel object"),
                count(pods, "assumed pod")
            )
        })
    }
}

/// Where the objects of a cluster are read.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct From {
    /// Output of `kubectl get nodes,pods,… -A -o json` (or yaml), instead of a running cluster.
    ///
    /// Also directories (all .json, .yaml and .yml files in them, such as those of `kubectl cluster-info dump` and
    /// must-gather), `-` for standard input, and exports of kube-scheduler-simulator. Files may be compressed with
    /// gzip or zstd.
    #[arg(
        long,
        num_args = 1..,
        value_name = "FILE",
        required_unless_present_any = ["kubeconfig", "context", "master"],
        conflicts_with_all = ["kubeconfig", "context", "master"]
    )]
    cluster: Vec<PathBuf>,
    #[command(flatten)]
    server: Server,
}

/// The content of files: a cluster with its placed pods, and the pending pods.
pub(crate) struct Loaded {
    pub(crate) writer: Writer,
    pub(crate) pending: Vec<Pod>,
    /// Notes for the reader about defaulted and skipped input.
    pub(crate) notes: Vec<String>,
}

/// Reads all objects of the files and directories, as printed by `kubectl get … -o json|yaml`.
pub(crate) fn read(files: &[PathBuf]) -> Result<portolan_k8s::Objects, Failure> {
    read_with_notes(files).map(|(objects, _)| objects)
}

/// Reads all objects of the files and directories; returns notes about files that are ignored.
pub(crate) fn read_with_notes(
    files: &[PathBuf],
) -> Result<(portolan_k8s::Objects, Vec<String>), Failure> {
    let mut reader = portolan_k8s::Reader::new();
    let notes = input::objects(files, &mut reader, |_, _| ())?;
    Ok((reader.finish(), notes))
}

/// The pods of the files, including those of their controllers.
pub(crate) fn pods(files: &[PathBuf]) -> Result<Vec<Pod>, Failure> {
    let mut objects = read(files)?;
    objects.expand();
    Ok(objects.pods)
}

/// A read error with its file; the line number appears once, after the file name.
pub(crate) fn not_read(file: &Path, error: &portolan_k8s::ReadError) -> Failure {
    let (file, text) = (file.to_owned(), error.to_string());
    match error.line() {
        Some(line) => {
            let what = text.strip_prefix(&format!("line {line}, ")).unwrap_or(&text);
            Failure::Line { file, line, what: what.to_owned() }
        }
        None => Failure::File { file, what: text },
    }
}

/// The objects of a cluster that are not in an engine yet.
pub(crate) struct Contents {
    objects: portolan_k8s::Objects,
    /// Notes for the reader about defaulted and skipped input.
    pub(crate) notes: Vec<String>,
}

/// Loads a cluster from files, or from its API server.
pub(crate) fn load(from: &From, godel: &Godel) -> Result<Loaded, Failure> {
    let mut contents = contents(from, godel)?;
    let (mut writer, _) = Engine::inline(godel.config());
    let pending = contents.put(&mut writer, godel)?;
    Ok(Loaded { writer, pending, notes: contents.notes })
}

/// Reads a cluster from files, or from its API server.
pub(crate) fn contents(from: &From, godel: &Godel) -> Result<Contents, Failure> {
    let (objects, mut notes) = match from.server.is_given() {
        false => read_with_notes(&from.cluster)?,
        true => {
            let Fetched { lists, notes } = fetch::fetch(&from.server)?;
            let mut reader = portolan_k8s::Reader::new();
            for (path, list) in lists {
                let read = reader.read(&list);
                read.map_err(|error| not_read(Path::new(&path), &error))?;
            }
            (reader.finish(), notes)
        }
    };
    notes.extend(godel.note(&objects));
    for (kind, number) in &objects.skipped {
        notes.push(skipped(kind, *number));
    }
    if objects.finished_pods > 0 {
        notes.push(finished(objects.finished_pods));
    }
    let is_nm_node = |object: &Object| object.kind() == ObjectKind::NmNode;
    if objects.nodes.is_empty() && !objects.objects.iter().any(is_nm_node) {
        let what = "no nodes found: pass the output of `kubectl get nodes,pods -A -o json`";
        return Err(match from.cluster.first() {
            Some(file) => Failure::File { file: file.clone(), what: what.to_owned() },
            None => Failure::Usage("the cluster has no nodes that may be read".to_owned()),
        });
    }
    Ok(Contents { objects, notes })
}

impl Contents {
    /// The pod controllers, whose daemon sets add pods to new nodes.
    pub(crate) fn controllers(&self) -> &[portolan_k8s::PodController] {
        &self.objects.controllers
    }

    /// Adds everything to an empty engine; returns the pending pods.
    pub(crate) fn put(&mut self, writer: &mut Writer, godel: &Godel) -> Result<Vec<Pod>, Failure> {
        let portolan_k8s::Objects { objects, nodes, pods, .. } = &mut self.objects;
        let mut names = HashSet::new();
        if let Some(node) = nodes.iter().find(|node| !names.insert(&node.name)) {
            return Err(duplicate(&format!("node {}", node.name)));
        }
        let mut keys = HashSet::new();
        if let Some(pod) = pods.iter().find(|pod| !keys.insert((pod.namespace(), &pod.name))) {
            return Err(duplicate(&format!("pod {}/{}", pod.namespace(), pod.name)));
        }
        let is_placed = |pod: &Pod| {
            pod.node_name.as_ref().is_some_and(|node| !node.is_empty()) || godel.is_assumed(pod)
        };
        let (placed, pending): (Vec<Pod>, Vec<Pod>) =
            std::mem::take(pods).into_iter().partition(is_placed);
        let (objects, nodes) = (std::mem::take(objects), std::mem::take(nodes));
        let applied = writer.load(objects, nodes, placed);
        if let Some((object, error)) = applied.rejected.into_iter().next() {
            return Err(Failure::Refused { object, error });
        }
        writer.publish();
        Ok(pending)
    }
}

/// The error for an object that occurs twice.
pub(crate) fn duplicate(object: &str) -> Failure {
    Failure::Usage(format!("{object} occurs twice: pass each object once"))
}

/// A note about skipped objects of an unsupported kind.
pub(crate) fn skipped(kind: &str, number: usize) -> String {
    format!("skipped {} of unsupported kind {kind}", count(number, "object"))
}

/// A note about skipped pods that have finished.
pub(crate) fn finished(number: usize) -> String {
    format!("skipped {}", count(number, "finished pod"))
}

/// The scheduling policy of one scheduler.
pub(crate) struct Policy {
    pub(crate) framework: Framework,
    /// The scheduler's name.
    pub(crate) profile: String,
    /// `percentageOfNodesToScore`, if the configuration sets it.
    pub(crate) percentage_of_nodes: Option<u8>,
    /// The queue's settings.
    pub(crate) queue: QueueConfig,
    /// A note that the configuration has extenders, which are not called.
    pub(crate) note: Option<String>,
}

/// The scheduling policies of all profiles of a configuration.
pub(crate) struct Policies {
    /// Not empty.
    pub(crate) profiles: Vec<Profile>,
    /// The queue's settings.
    pub(crate) queue: QueueConfig,
    /// A note that the configuration has extenders, which are not called.
    pub(crate) note: Option<String>,
}

/// One profile of a configuration.
pub(crate) struct Profile {
    pub(crate) framework: Framework,
    pub(crate) scheduler_name: String,
    /// `percentageOfNodesToScore` of the profile or the configuration, if it is set.
    pub(crate) percentage_of_nodes: Option<u8>,
}

/// The configuration's only profile, or the one for this scheduler name; the default
/// profile if there is no configuration. The profile's plugins share the handle.
pub(crate) fn policy(
    file: Option<&PathBuf>,
    scheduler: Option<&str>,
    handle: &Handle,
) -> Result<Policy, Failure> {
    let wanted = scheduler.unwrap_or(DEFAULT_SCHEDULER);
    let Policies { profiles, queue, note } = policies(file, handle)?;
    let names: Vec<String> =
        profiles.iter().map(|profile| profile.scheduler_name.clone()).collect();
    let only = names.len() == 1;
    let mut profiles = profiles.into_iter();
    let found = profiles.find(|profile| only || profile.scheduler_name == wanted);
    let found = found.ok_or_else(|| Failure::File {
        file: file.cloned().unwrap_or_default(),
        what: format!(
            "no profile has schedulerName {wanted:?}, only {}: add a profile",
            names.join(", ")
        ),
    })?;
    let profile = match file {
        Some(_) => found.scheduler_name,
        None => wanted.to_owned(),
    };
    let (framework, percentage_of_nodes) = (found.framework, found.percentage_of_nodes);
    Ok(Policy { framework, profile, percentage_of_nodes, queue, note })
}

/// All profiles of the configuration; the default profile if there is none. The profiles'
/// plugins share the handle.
pub(crate) fn policies(file: Option<&PathBuf>, handle: &Handle) -> Result<Policies, Failure> {
    let Some(file) = file else {
        let profile = Profile {
            framework: Framework::default_profile_with(handle),
            scheduler_name: DEFAULT_SCHEDULER.to_owned(),
            percentage_of_nodes: None,
        };
        let queue = QueueConfig::default();
        return Ok(Policies { profiles: vec![profile], queue, note: None });
    };
    let bytes = input::read(file)?;
    let text = String::from_utf8(bytes).map_err(|error| Failure::File {
        file: file.clone(),
        what: format!("not UTF-8 text ({error}): pass a YAML file"),
    })?;
    let configuration =
        Configuration::read(&text, &Registry::in_tree(), handle).map_err(|error| {
            Failure::Line { file: file.clone(), line: error.line(), what: error.what().to_owned() }
        })?;
    let percentage = Some(configuration.percentage_of_nodes).filter(|percentage| *percentage > 0);
    let extenders = configuration.extenders.iter().map(|extender| &*extender.url_prefix);
    let extenders: Vec<&str> = extenders.collect();
    let note = (!extenders.is_empty())
        .then(|| format!("the configuration's extenders are not called: {}", extenders.join(", ")));
    let profiles = configuration.profiles.into_iter().map(|profile| Profile {
        framework: profile.framework,
        scheduler_name: profile.scheduler_name,
        percentage_of_nodes: profile.percentage_of_nodes.or(percentage),
    });
    Ok(Policies { profiles: profiles.collect(), queue: configuration.queue, note })
}
