//! The scheduler's configuration: profiles, the queue, and ignored parts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use portolan::Framework;
use portolan::model::Pod;
use portolan::plugin::Handle;
use portolan::scheduler::queue::QueueConfig;
use portolan_dra::plugin::{Backend, DryRunBackend};
use portolan_k8s::config::{Configuration, Registry};

use crate::cluster::Godel;
use crate::error::CommandError;
use crate::input;
use crate::text::count;

/// The options that select a configuration.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ConfigFile {
    /// KubeSchedulerConfiguration in YAML or JSON, which may be one of several documents or in a ConfigMap (default:
    /// the default profile).
    ///
    /// What-if questions evaluate all nodes for each pod, unless the configuration sets
    /// percentageOfNodesToScore.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    reading: Reading,
}

/// The options for reading configurations.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Reading {
    /// Profile for all pods, instead of the profile that a pod's schedulerName selects. If a configuration has only one
    /// profile, replay and compare use it for all pods.
    #[arg(long, value_name = "SCHEDULER_NAME")]
    profile: Option<String>,
    /// Ignore plugins of the configuration that portolan lacks, instead of refusing the configuration.
    #[arg(long)]
    ignore_unknown_plugins: bool,
    /// Ignore the configuration's extenders, which this command never calls, instead of refusing the configuration.
    /// Nodes that an extender would reject are then feasible.
    #[arg(long)]
    ignore_extenders: bool,
}

impl Reading {
    /// The options by which parts of a configuration are ignored.
    #[cfg(feature = "cluster")]
    pub(crate) fn ignoring(unknown_plugins: bool, extenders: bool) -> Reading {
        Reading {
            ignore_unknown_plugins: unknown_plugins,
            ignore_extenders: extenders,
            profile: None,
        }
    }
}

/// A configuration to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// `None` for the default profile.
    pub(crate) file: Option<&'a Path>,
    pub(crate) reading: &'a Reading,
}

impl ConfigFile {
    pub(crate) fn source(&self) -> Source<'_> {
        Source { file: self.config.as_deref(), reading: &self.reading }
    }
}

/// A configuration whose text is known.
pub(crate) struct Text {
    file: Option<PathBuf>,
    reading: Reading,
    text: String,
}

/// The rules by which questions about a cluster are answered.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) config: Arc<Text>,
    pub(crate) godel: Arc<Godel>,
    /// The seed for breaking ties.
    pub(crate) seed: u64,
}

/// The scheduling policies of the profiles of a configuration.
pub(crate) struct Policies {
    /// Not empty.
    pub(crate) profiles: Vec<Profile>,
    /// Whether `--profile` names the only profile, which then applies to all pods, regardless of their schedulerName.
    is_for_all: bool,
    /// The queue's settings.
    pub(crate) queue: QueueConfig,
    /// Notes about the configuration for the reader.
    pub(crate) notes: Vec<String>,
}

/// The default profile of a cluster's scheduler. It writes no claims.
pub(crate) fn default_framework() -> Result<Framework, CommandError> {
    let registry = Registry::of_cluster(Arc::new(DryRunBackend));
    let read = Configuration::read(Configuration::DEFAULT, &registry, &Handle::default());
    let mut profiles = read.map_err(|error| CommandError::Usage(error.to_string()))?.profiles;
    Ok(profiles.swap_remove(0).framework)
}

/// One profile of a configuration.
pub(crate) struct Profile {
    pub(crate) framework: Framework,
    pub(crate) scheduler_name: String,
    /// `percentageOfNodesToScore` of the profile or the configuration, if it is set.
    pub(crate) percentage_of_nodes: Option<u8>,
}

impl Source<'_> {
    /// Reads the file and makes its policies once.
    pub(crate) fn policies(
        self,
        handle: &Handle,
        backend: Arc<dyn Backend>,
    ) -> Result<Policies, CommandError> {
        self.read()?.policies(handle, backend)
    }

    fn refuses(self, what: String) -> CommandError {
        match self.file {
            Some(file) => CommandError::File { file: file.to_owned(), what },
            None => CommandError::Usage(what),
        }
    }

    /// Reads the file, for any number of policies.
    pub(crate) fn read(self) -> Result<Text, CommandError> {
        let text = match self.file {
            None => Configuration::DEFAULT.to_owned(),
            Some(file) => String::from_utf8(input::read(file)?).map_err(|error| {
                self.refuses(format!("not UTF-8 text ({error}): pass a YAML file"))
            })?,
        };
        Ok(Text { file: self.file.map(Path::to_owned), reading: self.reading.clone(), text })
    }
}

impl Text {
    /// A configuration that is not in a file. Errors refer to it by this name. An empty text is the default profile.
    #[cfg(feature = "cluster")]
    pub(crate) fn given(name: &str, text: &str, reading: Reading) -> Text {
        let text = if text.trim().is_empty() { Configuration::DEFAULT } else { text };
        Text { file: Some(name.into()), reading, text: text.to_owned() }
    }

    /// The file of the configuration.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    fn source(&self) -> Source<'_> {
        Source { file: self.file(), reading: &self.reading }
    }

    /// All profiles of the configuration, or the one that `--profile` names; the default
    /// profile if there is no configuration. The profiles' plugins share the handle, and write
    /// claims with the backend.
    pub(crate) fn policies(
        &self,
        handle: &Handle,
        backend: Arc<dyn Backend>,
    ) -> Result<Policies, CommandError> {
        let mut policies = self.parse(handle, backend)?;
        if let Some(name) = &self.reading.profile {
            let profiles = &mut policies.profiles;
            let at = find(profiles, name).ok_or_else(|| {
                let names = names(profiles);
                let what = format!("there is no profile {name:?}: pass one of {names}");
                self.source().refuses(what)
            })?;
            *profiles = vec![profiles.swap_remove(at)];
            policies.is_for_all = true;
        }
        Ok(policies)
    }

    fn parse(&self, handle: &Handle, backend: Arc<dyn Backend>) -> Result<Policies, CommandError> {
        let Source { file, reading } = self.source();
        let mut registry = Registry::of_cluster(backend);
        if reading.ignore_unknown_plugins {
            registry.ignore_unknown();
        }
        let configuration =
            Configuration::read(&self.text, &registry, handle).map_err(|error| {
                let what = match error.unknown_plugin() {
                    Some(name) => format!(
                        "plugin {name:?} does not exist: check the spelling, or pass \
                     --ignore-unknown-plugins"
                    ),
                    None => error.what().to_owned(),
                };
                match (file, error.line()) {
                    (Some(file), line) if line > 0 => {
                        CommandError::Line { file: file.to_owned(), line, what }
                    }
                    _ => self.source().refuses(what),
                }
            })?;
        let mut notes = configuration.notes;
        let extenders: Vec<&str> =
            configuration.extenders.iter().map(|extender| &*extender.url_prefix).collect();
        if !extenders.is_empty() {
            let extenders = extenders.join(", ");
            if !reading.ignore_extenders {
                let way_out = "pass --ignore-extenders to ignore them";
                return Err(self
                    .source()
                    .refuses(format!("extenders are not called here ({extenders}): {way_out}")));
            }
            notes.push(format!(
                "the configuration's extenders are not called ({extenders}): nodes that they would \
                 reject are feasible here"
            ));
        }
        let percentage =
            Some(configuration.percentage_of_nodes).filter(|percentage| *percentage > 0);
        let profiles = configuration.profiles.into_iter().map(|profile| Profile {
            framework: profile.framework,
            scheduler_name: profile.scheduler_name,
            percentage_of_nodes: profile.percentage_of_nodes.or(percentage),
        });
        let (profiles, queue) = (profiles.collect(), configuration.queue);
        Ok(Policies { profiles, is_for_all: false, queue, notes })
    }
}

impl Policies {
    /// The profile of the pod: a single one is for all pods.
    pub(crate) fn of(&self, pod: &Pod) -> Option<&Profile> {
        match &self.profiles[..] {
            [only] => Some(only),
            all => all.iter().find(|profile| profile.scheduler_name == pod.scheduler_name()),
        }
    }

    /// Whether the only profile applies to all pods: it is named, or Gödel's schedulers share the pods of one scheduler
    /// name.
    pub(crate) fn are_for_all(&self, godel: &Godel) -> bool {
        self.is_for_all || godel.is_enabled() && self.profiles.len() == 1
    }
}

/// Why a pod is not scheduled that none of the profiles schedules.
pub(crate) fn no_profile(pod: &Pod) -> String {
    format!(
        "no profile has schedulerName {:?}: pass --profile, or --config with such a profile",
        pod.scheduler_name()
    )
}

/// The message of the condition `PodScheduled` that the API server sets for pods with scheduling gates.
const GATED: &str = "Scheduling is blocked due to non-empty scheduling gates";

/// Why the pod does not enter the scheduling queue, if it does not, as its condition reports it.
pub(crate) fn why_not_queued(framework: &Framework, pod: &Pod, godel: &Godel) -> Option<String> {
    if let Some(why) = godel.why_not_dispatched(pod) {
        return Some(why);
    }
    let status = framework.pre_enqueue(pod).err()?;
    Some(match status.plugin {
        "SchedulingGates" => GATED.to_owned(),
        _ => status.to_string(),
    })
}

/// A warning about pods that none of the profiles schedules.
pub(crate) fn unscheduled<'p>(
    pods: impl IntoIterator<Item = &'p Pod>,
    profiles: &[&str],
) -> Option<String> {
    let is_foreign = |pod: &&Pod| !profiles.contains(&pod.scheduler_name());
    let mut foreign = pods.into_iter().filter(is_foreign);
    let first = foreign.next()?;
    let (pods, name) = (count(1 + foreign.count(), "pod"), first.scheduler_name());
    let options: Vec<String> = profiles.iter().map(|name| format!("--profile {name}")).collect();
    Some(format!(
        "no profile schedules {pods} (the first: {}, schedulerName {name:?}): to schedule all pods by one profile, \
         pass {}",
        first.key(),
        options.join(" or ")
    ))
}

fn find(profiles: &[Profile], name: &str) -> Option<usize> {
    profiles.iter().position(|profile| profile.scheduler_name == name)
}

fn names(profiles: &[Profile]) -> String {
    let names: Vec<&str> = profiles.iter().map(|profile| &*profile.scheduler_name).collect();
    names.join(", ")
}
