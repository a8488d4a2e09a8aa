//! Loads a cluster from files into a writer.

#[cfg(all(test, feature = "cluster"))]
pub(crate) mod random;
#[cfg(feature = "cluster")]
mod readings;
mod rest;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portolan::Algorithm;
use portolan::cache::{CommitPolicy, Config, Engine, Event, GodelConfig, Snapshot, Writer};
use portolan::model::{
    EventError, Name, Node, Object, ObjectKind, Pod, PodDisruptionBudget, PodState, Template, Uid,
};
use portolan::plugin::Partition;
use portolan_k8s::{
    BudgetLimit, ControllerKind, DeviceObjects, Objects, PodController, PodCounts, PodFacts,
    Scales, TooManyPods,
};

#[cfg(feature = "cluster")]
use crate::creation::Creation;
use crate::error::{CommandError, Quotes};
use crate::input;
use crate::intake::Intake;
use crate::pod_list::PodList;
use crate::resource_claims::{ClaimController, missing_claims};
use crate::server::{Fetched, Server};
use crate::simulation::{closed, event};
use crate::text::{count, shortened};

#[cfg(feature = "cluster")]
pub(crate) use readings::{Readings, device_events};
#[cfg(feature = "cluster")]
use rest::Controllers;
pub(crate) use rest::Rest;

/// The option that enables Gödel semantics.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Godel {
    /// Gödel scheduler type of the cluster: enables assumed pods, Reservations and Movements.
    ///
    /// Parts KEY=VALUE may follow, separated by commas. component=NAME selects one of several schedulers: only the pods
    /// that are dispatched to it are scheduled, and the nodes that are assigned to it come first. unit-status=true
    /// keeps a pod group scheduled after its minimum number of members was bound.
    #[arg(long = "godel", value_name = "SCHEDULER_TYPE[,KEY=VALUE]...", value_parser = parse_godel)]
    of: Option<GodelConfig>,
}

/// Parses the value of `--godel`.
fn parse_godel(text: &str) -> Result<GodelConfig, String> {
    let quoted = |part: &str| format!("{:?}", shortened(part, 60));
    let mut parts = text.split(',');
    let scheduler_type = parts.next().unwrap_or_default();
    if scheduler_type.is_empty() || scheduler_type.contains('=') {
        let what = format!("the first part {} is not a scheduler type", quoted(scheduler_type));
        return Err(format!("{what}: begin with one, as in godel-scheduler,component=NAME"));
    }
    let mut config = GodelConfig {
        // No later event confirms objects that are read from files.
        reservations: Some(std::time::Duration::ZERO),
        movements: true,
        preemption_marks: true,
        ..GodelConfig::new(scheduler_type)
    };
    for part in parts {
        match part.split_once('=') {
            Some(("component", name)) if !name.is_empty() => config.component = Some(name.into()),
            Some(("unit-status", value @ ("true" | "false"))) => {
                config.unit_status = value == "true"
            }
            _ => {
                let what = format!("part {} is not a setting", quoted(part));
                return Err(format!("{what}: pass component=NAME or unit-status=true|false"));
            }
        }
    }
    Ok(config)
}

impl Godel {
    /// The engine's configuration.
    pub(crate) fn config(&self, claims: Option<&ClaimController>) -> Config {
        let godel = self.of.clone();
        // The files are authoritative, and the only scheduler follows its profile, which
        // may ignore resources.
        let commit_check = CommitPolicy::Unchecked;
        // Questions name pods.
        let config = Config { godel, commit_check, pod_names: true, ..Config::default() };
        match claims {
            Some(claims) => config.with_store(claims.devices().clone()),
            None => config,
        }
    }

    /// Whether Gödel semantics are enabled.
    pub(crate) fn is_enabled(&self) -> bool {
        self.of.is_some()
    }

    /// The algorithm with the partition of the component, if one is named.
    pub(crate) fn partitioned(&self, algorithm: Algorithm) -> Algorithm {
        match self.component() {
            Some(name) => algorithm.with_partition(Partition::Scheduler(name.clone())),
            None => algorithm,
        }
    }

    /// Why the component does not schedule the pod: no dispatcher has assigned it.
    pub(crate) fn why_not_dispatched(&self, pod: &Pod) -> Option<String> {
        let (godel, name) = (self.of.as_ref()?, self.component()?);
        (!pod.is_for(&godel.scheduler_type) || !pod.is_dispatched_to(name)).then(|| {
            format!("the pod is not dispatched to {name}: omit component={name} to schedule it")
        })
    }

    /// A note about pods that the component does not schedule.
    pub(crate) fn not_dispatched<'p>(
        &self,
        pods: impl IntoIterator<Item = &'p Pod>,
    ) -> Option<String> {
        let mut left = pods.into_iter().filter(|pod| self.why_not_dispatched(pod).is_some());
        let (first, name) = (left.next()?, self.component()?);
        Some(format!(
            "{} not dispatched to {name} (the first: {}): omit component={name} to schedule all",
            count(1 + left.count(), "pod"),
            first.key()
        ))
    }

    fn component(&self) -> Option<&Name> {
        self.of.as_ref()?.component.as_ref()
    }

    /// Whether the pod is assumed on a node by annotation, without a node name.
    pub(crate) fn is_assumed(&self, pod: &Pod) -> bool {
        let godel = self.of.as_ref();
        godel.is_some_and(|of| pod.is_for(&of.scheduler_type))
            && pod.state() == Ok(PodState::Assumed)
    }

    /// A note if objects are ignored because `--godel` is missing.
    pub(crate) fn note(&self, objects: &Objects) -> Option<String> {
        if self.is_enabled() {
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

/// The source of a cluster's objects.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct From {
    /// Output of `kubectl get nodes,pods,… -A -o json` (or yaml), instead of the cluster of the current context.
    ///
    /// docs/cli.md has the kubectl command that saves every kind the program reads. Several files are read together.
    ///
    /// Also directories (all .json, .yaml and .yml files in them, as in dumps of `kubectl
    /// cluster-info dump` and must-gather), - for standard input, several JSON values in a
    /// file, and exports of kube-scheduler-simulator. Files may be compressed with gzip or zstd.
    #[arg(
        long,
        num_args = 1..,
        value_name = "FILE",
        conflicts_with_all = ["kubeconfig", "context", "master"]
    )]
    #[cfg_attr(
        not(feature = "cluster"),
        arg(required_unless_present_any = ["kubeconfig", "context", "master"])
    )]
    cluster: Vec<PathBuf>,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    pub(crate) strict: Strict,
    #[command(flatten)]
    pub(crate) limit: PodLimit,
}

impl From {
    /// Whether the objects come from a running cluster.
    pub(crate) fn is_live(&self) -> bool {
        self.cluster.is_empty()
    }

    /// Whether neither files nor a running cluster are named.
    #[cfg(feature = "cluster")]
    pub(crate) fn is_unspecified(&self) -> bool {
        let Server { kubeconfig, context, master } = &self.server;
        self.is_live() && kubeconfig.is_none() && context.is_none() && master.is_none()
    }

    /// The running cluster, if no files are named.
    #[cfg(feature = "cluster")]
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// The files of the cluster.
    #[cfg(feature = "cluster")]
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.cluster
    }
}

/// The option that limits the pods of controllers.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct PodLimit {
    /// Largest number of pods that the controllers of the input may create, and of their claims.
    #[arg(long, value_name = "COUNT", default_value_t = PodLimit::default().max_pods)]
    max_pods: usize,
}

impl Default for PodLimit {
    fn default() -> PodLimit {
        PodLimit { max_pods: 1_000_000 }
    }
}

impl PodLimit {
    /// Creates the pods that the controllers lack in a cluster, of which others have created pods already. Returns the
    /// number of all of them.
    pub(crate) fn expand(
        self,
        created: usize,
        objects: &mut Objects,
        cluster: &Objects,
    ) -> Result<usize, CommandError> {
        let left = self.max_pods.saturating_sub(created);
        let expanded = objects.expand_up_to(left, cluster).map_err(|error| {
            let TooManyPods { controller, pods, objects, .. } = error;
            CommandError::Usage(format!(
                "{} has {}: controllers would create more than {} {objects}: correct the number, or raise --max-pods",
                shortened(&controller, 120),
                count(pods, "pod"),
                self.max_pods
            ))
        })?;
        Ok(created + expanded)
    }
}

/// The option that makes warnings of inputs errors.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Strict {
    /// Reject inputs that an API server would reject, as `kubectl --validate=strict` does:
    /// unknown fields, invalid operators, negative replicas, pods without containers,
    /// missing priority classes. Without this option they are warnings.
    #[arg(long)]
    strict: bool,
}

/// The largest input that is checked without `--strict`: the check takes longer than reading.
const CHECKED: usize = 1 << 20;

impl Strict {
    /// Warns about the parts of an input that an API server would reject, and refuses values of the wrong type.
    pub(crate) fn examine(
        self,
        file: &Path,
        bytes: &[u8],
        quotes: Quotes,
        intake: &mut Intake,
    ) -> Result<(), CommandError> {
        if self.strict || bytes.len() <= CHECKED {
            for problem in portolan_k8s::check(bytes) {
                if problem.is_wrong_type {
                    return Err(wrong_type(file, &problem).quoting(quotes));
                }
                let file = shortened(&file.display().to_string(), 80);
                let text = quotes.of(text_of(&problem));
                intake.warn(&format!("{file}:{}: {text}", problem.line));
            }
        }
        Ok(())
    }

    /// Refuses inputs with warnings if the option is set.
    pub(crate) fn check(self, intake: &Intake) -> Result<(), CommandError> {
        if self.strict { intake.refuse() } else { Ok(()) }
    }
}

/// A cluster in an engine, with which questions begin.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub(crate) contents: Contents,
    /// The version with the placed pods and the other objects of the scheduler.
    pub(crate) cluster: Arc<Snapshot>,
    pub(crate) pending: PodList,
    /// The controller of the pods' claims, if there are any.
    pub(crate) claims: Option<ClaimController>,
}

/// Reads all objects of the files and directories, as printed by `kubectl get … -o json|yaml`.
pub(crate) fn read(files: &[PathBuf]) -> Result<Objects, CommandError> {
    reader(files, Strict::default(), &mut Intake::default()).map(portolan_k8s::Reader::finish)
}

/// Reads all objects of the files and directories into a reader.
pub(crate) fn reader(
    files: &[PathBuf],
    strict: Strict,
    intake: &mut Intake,
) -> Result<portolan_k8s::Reader, CommandError> {
    let mut reader = portolan_k8s::Reader::new();
    input::objects(files, strict, &mut reader, intake)?;
    Ok(reader)
}

/// A read error with its file, and with the line of its field if the parser does not know it. A value of the wrong type
/// is described as the API server describes it.
pub(crate) fn not_read_at(
    file: &Path,
    bytes: &[u8],
    error: &portolan_k8s::ReadError,
) -> CommandError {
    let found = || portolan_k8s::line_of(bytes, error.path()).filter(|_| !error.path().is_empty());
    let Some(line) = error.line().or_else(found) else { return not_read(file, error) };
    let mismatch = portolan_k8s::check(bytes)
        .into_iter()
        .find(|problem| problem.line == line && problem.is_wrong_type)
        .filter(|_| matches!(error.cause(), portolan_k8s::Cause::Syntax(_)));
    match mismatch {
        Some(problem) => wrong_type(file, &problem),
        None if error.line().is_some() => not_read(file, error),
        None => CommandError::Line { file: file.to_owned(), line, what: error.to_string() },
    }
}

fn wrong_type(file: &Path, problem: &portolan_k8s::Problem) -> CommandError {
    CommandError::Line { file: file.to_owned(), line: problem.line, what: text_of(problem) }
}

fn text_of(problem: &portolan_k8s::Problem) -> String {
    let portolan_k8s::Problem { object, path, what, .. } = problem;
    format!("{}: {}: {what}", shortened(object, 60), shortened(path, 80))
}

/// A read error with its file; the line number appears once, after the file name.
pub(crate) fn not_read(file: &Path, error: &portolan_k8s::ReadError) -> CommandError {
    let (file, text) = (file.to_owned(), error.to_string());
    match error.line() {
        Some(line) => {
            let what = text.strip_prefix(&format!("line {line}, ")).unwrap_or(&text);
            CommandError::Line { file, line, what: what.to_owned() }
        }
        None => CommandError::File { file, what: text },
    }
}

/// The objects of a cluster before they are in an engine.
#[derive(Clone)]
pub(crate) struct Input {
    pub(crate) contents: Contents,
    /// The other objects. Copied when a holder changes them.
    objects: Arc<Objects>,
    /// The numbers of pods and of other objects before controllers created more.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code))]
    read: [usize; 2],
}

/// The objects of a cluster that an engine does not have, and notes about all of them.
#[derive(Clone)]
pub(crate) struct Contents {
    rest: Rest,
    /// The files of the cluster and those that are added to it.
    files: Vec<PathBuf>,
    limit: PodLimit,
    /// Notes for the reader about the input.
    pub(crate) notes: Vec<String>,
    /// The objects that were read and ignored.
    pub(crate) intake: Arc<Intake>,
}

/// The beginning of the note about pods that controllers lacked.
const CREATED: &str = "created";

/// Objects that are added to a cluster.
#[derive(Default)]
pub(crate) struct Added {
    /// The pods, including those of controllers.
    pub(crate) pods: Vec<Pod>,
    /// The other objects.
    pub(crate) objects: Vec<Object>,
    /// The controllers, which are also the last ones of the cluster.
    pub(crate) controllers: Vec<PodController>,
    /// Facts about the pods that the scheduler does not read.
    pub(crate) facts: PodFacts,
}

/// Loads a cluster from files, or from its API server.
pub(crate) fn load(from: &From, godel: &Godel) -> Result<Loaded, CommandError> {
    let (input, added) = read_with(from, godel, &[])?;
    input.load(godel, added.objects)
}

/// Reads a cluster, and files of objects that are added to it. Objects of both may refer to
/// each other, such as pods to priority classes.
pub(crate) fn read_with(
    from: &From,
    godel: &Godel,
    more: &[PathBuf],
) -> Result<(Input, Added), CommandError> {
    let mut intake = Intake::default();
    let of_cluster = read_from(from, &mut intake)?;
    input_with(of_cluster, from, godel, more, intake)
}

/// The cluster of objects that were read from the source, with notes about kinds that were not.
#[cfg(feature = "cluster")]
pub(crate) fn input_of(
    read: (portolan_k8s::Reader, Vec<String>),
    from: &From,
    godel: &Godel,
) -> Result<Input, CommandError> {
    Ok(input_with(read, from, godel, &[], Intake::default())?.0)
}

fn input_with(
    (of_cluster, mut notes): (portolan_k8s::Reader, Vec<String>),
    from: &From,
    godel: &Godel,
    more: &[PathBuf],
    mut intake: Intake,
) -> Result<(Input, Added), CommandError> {
    let added = reader(more, from.strict, &mut intake)?;
    let [mut objects, mut added] = portolan_k8s::Reader::finish_together([of_cluster, added]);
    intake.count(&objects);
    intake.count(&added);
    from.strict.check(&intake)?;
    notes.extend(godel.note(&objects));
    // Nodes of added files are not part of the cluster: `what-if --add` adds nodes.
    intake.unread("Node", added.nodes.len(), "not in --cluster");
    added.nodes.clear();
    // The jobs of a cron job exist only at their scheduled times.
    let is_cron_job = |it: &PodController| it.kind == ControllerKind::CronJob;
    let cron_jobs = objects.controllers.extract_if(.., |it| is_cron_job(it)).count();
    intake.unread("CronJob", cron_jobs, "no job is due");
    let read = [objects.pods.len(), objects.objects.len()];
    // The controllers of a live cluster create their pods themselves.
    let created = match from.is_live() {
        true => 0,
        false => from.limit.expand(0, &mut objects, &Objects::default())?,
    };
    if created > 0 {
        notes.push(format!("{CREATED} {} that controllers lack", count(created, "pod")));
    }
    from.limit.expand(created, &mut added, &objects)?;
    objects.admission.extend(&added.admission);
    notes.extend(smaller(&added.controllers, &objects.controllers));
    objects.controllers.extend_from_slice(&added.controllers);
    objects.devices.extend(std::mem::take(&mut added.devices));
    check_nodes(&objects, from, &intake)?;
    notes.extend(missing_claims(&objects.devices, &objects.pods));
    let Objects { pods, objects: others, controllers, facts, .. } = added;
    let added = Added { pods, objects: others, controllers, facts };
    let files = [&from.cluster, more].concat();
    Ok((Input { read, ..Input::new(objects, files, from.limit, notes, intake) }, added))
}

/// Reads a cluster as it is, without the pods that its controllers lack.
pub(crate) fn read_alone(from: &From, godel: &Godel) -> Result<Input, CommandError> {
    let mut intake = Intake::default();
    let (reader, mut notes) = read_from(from, &mut intake)?;
    let objects = reader.finish();
    intake.count(&objects);
    from.strict.check(&intake)?;
    notes.extend(godel.note(&objects));
    check_nodes(&objects, from, &intake)?;
    notes.extend(missing_claims(&objects.devices, &objects.pods));
    Ok(Input::new(objects, from.cluster.clone(), from.limit, notes, intake))
}

/// The cluster of these manifests, whose controllers create their pods.
#[cfg(feature = "cluster")]
pub(crate) fn read_manifests(manifests: &str, godel: &Godel) -> Result<Input, CommandError> {
    let mut reader = portolan_k8s::Reader::new();
    let read = reader.read(manifests.as_bytes());
    read.map_err(|error| CommandError::Usage(error.to_string()))?;
    let mut objects = reader.finish();
    let (limit, mut intake) = (PodLimit::default(), Intake::default());
    intake.count(&objects);
    limit.expand(0, &mut objects, &Objects::default())?;
    let notes = godel.note(&objects).into_iter().collect();
    Ok(Input::new(objects, Vec::new(), limit, notes, intake))
}

/// Reads the objects of a cluster, and returns notes about kinds that are not read.
fn read_from(
    from: &From,
    intake: &mut Intake,
) -> Result<(portolan_k8s::Reader, Vec<String>), CommandError> {
    if !from.is_live() {
        return Ok((reader(&from.cluster, from.strict, intake)?, Vec::new()));
    }
    let Fetched { lists, notes } = from.server.fetch()?;
    let mut reader = portolan_k8s::Reader::new();
    for (path, list) in lists {
        reader.read(&list).map_err(|error| not_read(Path::new(&path), &error))?;
    }
    Ok((reader, notes))
}

/// Refuses a cluster without nodes.
fn check_nodes(objects: &Objects, from: &From, intake: &Intake) -> Result<(), CommandError> {
    let is_nm_node = |object: &Object| object.kind() == ObjectKind::NmNode;
    if !objects.nodes.is_empty() || objects.objects.iter().any(is_nm_node) {
        return Ok(());
    }
    intake.print_warnings();
    let what = "no nodes found: pass the output of `kubectl get nodes,pods -A -o json`";
    Err(match from.cluster.first() {
        Some(file) => CommandError::File { file: file.clone(), what: what.to_owned() },
        None => CommandError::Usage("the cluster has no nodes that may be read".to_owned()),
    })
}

/// Notes about controllers that are in the cluster with more replicas: added files remove no pods.
fn smaller(added: &[PodController], of_cluster: &[PodController]) -> Vec<String> {
    if added.is_empty() {
        return Vec::new();
    }
    let key = |it: &PodController| (it.kind, it.namespace.clone(), it.name.clone());
    let known: HashMap<_, _> = of_cluster.iter().map(|it| (key(it), it)).collect();
    let smaller = added.iter().filter_map(|it| {
        // A rollout changes the number of replicas, too.
        let known = known.get(&key(it)).filter(|known| known.has_template_of(it))?.replicas;
        let known = Some(known).filter(|known| *known > it.replicas)?;
        Some(format!(
            "{} has {known} replicas in the cluster: added files do not reduce them to {}, what-if --scale does",
            named(it),
            it.replicas
        ))
    });
    smaller.collect()
}

/// The kind, namespace and name of a controller.
fn named(controller: &PodController) -> String {
    let PodController { kind, namespace, name, .. } = controller;
    format!("{} {namespace}/{name}", kind.as_str())
}

impl Loaded {
    /// The pod of this namespace and name. O(pending pods).
    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<Pod> {
        let mut pending = self.pending.iter();
        let found = pending.find(|pod| **pod.namespace() == *namespace && *pod.name == *name);
        let placed = || self.cluster.pod_named(namespace, name).map(|pod| pod.to_pod());
        found.cloned().or_else(placed)
    }

    /// Whether the cluster has the pod, placed or pending.
    pub(crate) fn has(&self, uid: &Uid) -> bool {
        self.cluster.pod(uid).is_some() || self.pending.iter().any(|pod| pod.uid == *uid)
    }

    /// Creates the claims of the pending pods, as their controller does.
    pub(crate) fn create_claims(&mut self) -> Result<(), CommandError> {
        let Some(claims) = &mut self.claims else { return Ok(()) };
        let engine = Engine::at(&self.cluster, Config::default());
        let pending = self.pending.iter().map(|pod| claims.create_in(&engine, pod));
        let pending: Vec<Pod> = pending.collect::<Result<_, _>>()?;
        self.pending = PodList::of(pending, &self.pending);
        self.cluster = engine.reader().map_err(closed)?.snapshot();
        Ok(())
    }

    /// The objects of the cluster, as if they had been read. O(cluster).
    #[cfg(feature = "cluster")]
    pub(crate) fn to_input(&self) -> Input {
        let mut objects = self.existing();
        objects.controllers.clear();
        let read = [objects.pods.len(), objects.objects.len()];
        Input { contents: self.contents.clone(), objects: objects.into(), read }
    }

    /// The objects that decide which pods controllers lack. O(cluster).
    pub(crate) fn existing(&self) -> Objects {
        let mut objects = Objects::default();
        let nodes = self.cluster.nodes().filter_map(|info| info.node());
        objects.nodes = nodes.map(|node| Node::clone(node)).collect();
        let placed = self.cluster.nodes().flat_map(|node| node.pods()).map(|pod| pod.to_pod());
        objects.pods = placed.chain(self.pending.iter().cloned()).collect();
        for kind in ObjectKind::ALL.into_iter().filter(|kind| !kind.is_node_part()) {
            let keys = self.cluster.object_keys(kind).into_iter();
            let known = keys.filter_map(|(space, name)| self.cluster.object(kind, &space, &name));
            objects.objects.extend(known);
        }
        objects.controllers = self.contents.controllers().to_vec();
        objects
    }

    /// The same cluster with these contents, and with added objects.
    pub(crate) fn beside(
        &self,
        contents: Contents,
        added: Vec<Object>,
    ) -> Result<Loaded, CommandError> {
        let (pending, claims) = (self.pending.clone(), self.claims.clone());
        if added.is_empty() {
            return Ok(Loaded { contents, cluster: self.cluster.clone(), pending, claims });
        }
        let engine = Engine::at(&self.cluster, Config::default());
        for object in added {
            let name = format!("{} {}", object.kind().as_str(), object.name());
            let put = event(&engine, Event::PutObject(object))?;
            put.map_err(|error| CommandError::Refused { object: name, error })?;
        }
        let cluster = engine.reader().map_err(closed)?.snapshot();
        Ok(Loaded { contents, cluster, pending, claims })
    }
}

impl Input {
    fn new(
        mut objects: Objects,
        files: Vec<PathBuf>,
        limit: PodLimit,
        notes: Vec<String>,
        intake: Intake,
    ) -> Input {
        let (rest, intake) = (Rest::take(&mut objects), Arc::new(intake));
        let contents = Contents { rest, files, limit, notes, intake };
        let read = [objects.pods.len(), objects.objects.len()];
        Input { contents, objects: objects.into(), read }
    }

    #[cfg(test)]
    pub(crate) fn of(objects: Objects) -> Input {
        Input::new(objects, Vec::new(), PodLimit::default(), Vec::new(), Intake::default())
    }

    /// Loads the cluster and the added objects into an engine. O(cluster).
    pub(crate) fn load(self, godel: &Godel, added: Vec<Object>) -> Result<Loaded, CommandError> {
        Ok(self.engine(godel, added, &PodList::default())?.1)
    }

    /// Loads everything into a new engine. The pending pods share what is equal with an older list.
    fn engine(
        self,
        godel: &Godel,
        added: Vec<Object>,
        before: &PodList,
    ) -> Result<(Writer, Loaded), CommandError> {
        let claims = self.claims();
        let (mut writer, _) = Engine::inline(godel.config(claims.as_ref()));
        let Objects { objects, nodes, .. } = &*self.objects;
        let (placed, pending) = self.partition(godel)?;
        let applied = writer.load(objects.clone(), nodes.clone(), placed);
        if let Some((object, error)) = applied.rejected.into_iter().next() {
            return Err(rejected(object, error));
        }
        for object in added {
            put(&mut writer, object)?;
        }
        self.contents.allow_disruptions(&mut writer, &pending)?;
        writer.publish();
        let (cluster, pending) = (writer.snapshot(), PodList::of(pending, before));
        Ok((writer, Loaded { contents: self.contents, cluster, pending, claims }))
    }

    /// The controller of the pods' claims, if there are any.
    fn claims(&self) -> Option<ClaimController> {
        let Contents { rest, .. } = &self.contents;
        ClaimController::of(&rest.devices, &self.objects.pods, rest.controllers.all())
    }

    /// The input without the pods that controllers lacked, and their claims.
    #[cfg(feature = "cluster")]
    pub(crate) fn as_read(&self) -> Input {
        let mut input = self.clone();
        input.contents.notes.retain(|note| !note.starts_with(CREATED));
        input.contents.rest.created = Arc::default();
        let [pods, others] = self.read;
        if (pods, others) != (self.objects.pods.len(), self.objects.objects.len()) {
            let objects = input.objects_mut();
            objects.pods.truncate(pods);
            objects.objects.truncate(others);
        }
        input
    }

    /// The objects without those of [`Input::contents`].
    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The objects without those of [`Input::contents`], to be corrected before they are loaded.
    pub(crate) fn objects_mut(&mut self) -> &mut Objects {
        Arc::make_mut(&mut self.objects)
    }

    /// The controllers, to be corrected before they are loaded.
    pub(crate) fn controllers_mut(&mut self) -> &mut Vec<PodController> {
        Arc::make_mut(&mut self.contents.rest.controllers).all_mut()
    }

    /// The objects that decide which pods controllers lack. O(cluster).
    pub(crate) fn existing(&self) -> Objects {
        let mut objects = Objects::clone(&self.objects);
        objects.controllers = self.contents.controllers().to_vec();
        objects
    }

    /// The pods of another file, including the pods of its controllers, with the classes and limit ranges of the
    /// cluster. Refuses a file whose first pod the API server would refuse.
    ///
    /// Other references are not checked, because they may name objects of the cluster.
    pub(crate) fn pods_beside(
        &self,
        file: &PathBuf,
        strict: Strict,
        intake: &mut Intake,
    ) -> Result<(Vec<Pod>, DeviceObjects), CommandError> {
        let reader = reader(std::slice::from_ref(file), strict, intake)?;
        let mut objects = reader.finish_beside(&self.objects);
        objects.missing.clear();
        intake.count(&objects);
        strict.check(intake)?;
        self.contents.limit.expand(0, &mut objects, &Objects::default())?;
        let first = objects.pods.first();
        if let Some(Err(why)) = first.map(|pod| objects.admission.clone().admit(pod)) {
            let what = format!("the API server refuses the pod: {why}");
            return Err(CommandError::File { file: file.clone(), what });
        }
        Ok((objects.pods, objects.devices))
    }

    /// The pods that are on a node, and the others. Refuses nodes and pods that occur twice.
    fn partition(&self, godel: &Godel) -> Result<(Vec<Pod>, Vec<Pod>), CommandError> {
        let Objects { nodes, pods, .. } = &*self.objects;
        let mut names = HashSet::new();
        if let Some(node) = nodes.iter().find(|node| !names.insert(&node.name)) {
            return Err(duplicate_node(&self.contents.files(), &node.name));
        }
        let mut keys = HashSet::new();
        if let Some(pod) = pods.iter().find(|pod| !keys.insert((pod.namespace(), &pod.name))) {
            return Err(duplicate_pod(&self.contents.files(), pod));
        }
        let is_placed = |pod: &Pod| {
            pod.node_name.as_ref().is_some_and(|node| !node.is_empty()) || godel.is_assumed(pod)
        };
        Ok(pods.iter().cloned().partition(is_placed))
    }
}

/// Adds or replaces an object.
fn put(writer: &mut Writer, object: Object) -> Result<(), CommandError> {
    let name = format!("{} {}", object.kind().as_str(), object.name());
    let put = writer.put_object(object);
    put.map(drop).map_err(|error| CommandError::Refused { object: name, error })
}

/// The error for an object that an engine refuses.
fn rejected(object: String, error: EventError) -> CommandError {
    match error {
        EventError::AlreadyAdded { uid } => CommandError::Usage(format!(
            "{object} has the uid {uid} of another pod: pass each pod once"
        )),
        error => CommandError::Refused { object, error },
    }
}

impl Contents {
    /// The files of the cluster and those that are added to it.
    pub(crate) fn files(&self) -> Vec<&Path> {
        self.files.iter().map(PathBuf::as_path).collect()
    }

    /// Adds the pods that the controllers would create if each had one more replica than in the cluster. A daemon set
    /// has no further pods.
    pub(crate) fn add_replica(&mut self, existing: &Objects, added: &mut Added) {
        let mut larger = Objects::default();
        for controller in &added.controllers {
            let is_same = |it: &&PodController| {
                (it.kind, &it.namespace, &it.name)
                    == (controller.kind, &controller.namespace, &controller.name)
            };
            let known = self.controllers().iter().filter(is_same).map(|it| it.replicas).max();
            let mut controller = controller.clone();
            controller.replicas = known.unwrap_or(0) + 1;
            larger.controllers.push(controller);
        }
        larger.expand_in(existing);
        if let (Some(_), Some(first)) = (larger.pods.first(), added.controllers.first()) {
            self.notes.push(format!(
                "the cluster has all pods of {}: evaluated as if it had one more replica",
                named(first)
            ));
        }
        if !(self.admission().is_empty() && larger.admission.is_empty()) {
            Arc::make_mut(&mut self.rest.admission).extend(&larger.admission);
        }
        added.pods = larger.pods;
        added.objects.extend(larger.objects);
    }

    /// Why there is no pod to evaluate: neither the file nor one more replica of the controllers adds any.
    pub(crate) fn no_pod(&self, controllers: &[PodController], existing: &Objects) -> String {
        let owned = controllers.iter().find_map(|by| {
            let pod = existing.pods.iter().find(|pod| by.owns(&pod.template))?;
            Some((by, pod))
        });
        match owned {
            Some((by, pod)) => format!(
                "the cluster has all pods of {}: pass one of them, such as --pod {}",
                named(by),
                pod.key()
            ),
            None if self.intake.has_finished_pods() => {
                "no pods found that have not finished: pass a file with another pod".to_owned()
            }
            None => "no pods found: pass a file with a pod".to_owned(),
        }
    }

    /// The same contents with other controllers.
    #[cfg(feature = "cluster")]
    pub(crate) fn with_controllers(&self, controllers: Vec<PodController>) -> Contents {
        let controllers = Controllers::new(controllers).into();
        let rest = Rest { controllers, ..self.rest.clone() };
        Contents { rest, ..self.clone() }
    }

    /// The contents of a workload. The statuses of its budgets are not those of the replay.
    #[cfg(feature = "cluster")]
    pub(crate) fn of(
        mut rest: Rest,
        files: Vec<PathBuf>,
        limit: PodLimit,
        notes: Vec<String>,
        intake: Intake,
    ) -> Contents {
        let limits = Arc::make_mut(&mut rest.budget_limits);
        limits.iter_mut().for_each(|limit| limit.has_status = false);
        Contents { rest, files, limit, notes, intake: intake.into() }
    }

    /// The same contents at a moment of a replay, in which these pods are pending.
    #[cfg(feature = "cluster")]
    pub(crate) fn during(&self, creation: &Creation, pending: &[Pod]) -> Contents {
        if !creation.is_needed() && creation.admission.is_empty() {
            return self.clone();
        }
        let (admission, created) = (creation.admission.clone(), creation.new_of(pending));
        let rest =
            Rest { admission: admission.into(), created: created.into(), ..self.rest.clone() };
        Contents { rest, ..self.clone() }
    }

    /// The objects of dynamic resource allocation.
    pub(crate) fn devices(&self) -> &DeviceObjects {
        &self.rest.devices
    }

    /// The pod controllers, whose daemon sets add pods to new nodes.
    pub(crate) fn controllers(&self) -> &[PodController] {
        self.rest.controllers.all()
    }

    /// The desired numbers of pods of the controllers.
    pub(crate) fn scales(&self) -> &Arc<Scales> {
        self.rest.controllers.scales()
    }

    /// The limits of the disruption budgets.
    pub(crate) fn budget_limits(&self) -> &[portolan_k8s::BudgetLimit] {
        &self.rest.budget_limits
    }

    /// Facts about the pods that the scheduler does not read.
    pub(crate) fn facts(&self) -> &PodFacts {
        &self.rest.facts
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn shared_facts(&self) -> &Arc<PodFacts> {
        &self.rest.facts
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn replace_facts(&mut self, facts: Arc<PodFacts>) -> Arc<PodFacts> {
        std::mem::replace(&mut self.rest.facts, facts)
    }

    /// Decides whether new pods are admitted.
    pub(crate) fn admission(&self) -> &portolan_k8s::Admission {
        &self.rest.admission
    }

    /// The pods that controllers lack and create in steps.
    pub(crate) fn created(&self) -> &HashSet<Uid> {
        &self.rest.created
    }

    /// Computes the disruptions that budgets without a status allow, as the disruption
    /// controller would. Returns how many budgets changed.
    fn allow_disruptions(
        &self,
        writer: &mut Writer,
        pending: &[Pod],
    ) -> Result<usize, CommandError> {
        let limits = self.budget_limits().iter().filter(|limit| !limit.has_status);
        let limits: Vec<&BudgetLimit> = limits.collect();
        if limits.is_empty() {
            return Ok(0);
        }
        let scales = self.scales();
        let mut budgets = Vec::new();
        let cluster = writer.cluster();
        let mut counts: HashMap<Arc<Template>, PodCounts> = HashMap::new();
        for pod in cluster.nodes().flat_map(|node| node.pods()) {
            let is_ready = self.facts().is_ready(&pod.uid());
            let counts = counts.entry(pod.template().clone()).or_default();
            counts.add(is_ready, pod.deletion_time().is_some());
        }
        for pod in pending {
            counts.entry(pod.template.clone()).or_default().add(false, pod.deletion_time.is_some());
        }
        for limit in limits {
            let store = &cluster.objects().pod_disruption_budgets;
            let Some(budget) = store.get(&limit.namespace, &limit.name) else { continue };
            let pods = counts.iter().map(|(template, counts)| (&**template, *counts));
            let allowed = limit.health(pods, scales).map_or(0, |health| health.margin().max(0));
            let disruptions_allowed = i32::try_from(allowed).unwrap_or(i32::MAX);
            if budget.disruptions_allowed != disruptions_allowed {
                budgets.push(PodDisruptionBudget { disruptions_allowed, ..(**budget).clone() });
            }
        }
        let changed = budgets.len();
        for budget in budgets {
            let object = format!("budget {}", budget.name);
            let put = writer.put_object(Object::from(budget));
            put.map_err(|error| CommandError::Refused { object, error })?;
        }
        Ok(changed)
    }
}

/// The error for a node that occurs twice in the files.
pub(crate) fn duplicate_node(files: &[&Path], name: &str) -> CommandError {
    let places = input::places(files, "Node", None, name);
    duplicate(format!("node {name}"), places)
}

/// The error for a pod that occurs twice in the files.
pub(crate) fn duplicate_pod(files: &[&Path], pod: &Pod) -> CommandError {
    let (namespace, name) = (pod.namespace(), &pod.name);
    let places = input::places(files, "Pod", Some(namespace), name);
    duplicate(format!("pod {namespace}/{name}"), places)
}

/// The error for an object that occurs twice, with its places if they are known: those of a pod that a controller
/// creates are not.
fn duplicate(object: String, places: Vec<(PathBuf, u64)>) -> CommandError {
    let remedy = "pass each object once";
    match &*places {
        [(first, at), (file, line), ..] => {
            let first = shortened(&first.display().to_string(), 80);
            let what = format!("{object} occurs twice, first at {first}:{at}: {remedy}");
            CommandError::Line { file: file.clone(), line: *line, what }
        }
        _ => CommandError::Usage(format!("{object} occurs twice: {remedy}")),
    }
}
