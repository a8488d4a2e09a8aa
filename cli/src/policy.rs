//! The scheduler's configuration: profiles, the queue, and ignored parts.

use std::path::{Path, PathBuf};

use portolan::framework::{Framework, Handle};
use portolan::model::{DEFAULT_SCHEDULER, Pod};
use portolan::scheduler::queue::QueueConfig;
use portolan_k8s::config::{Configuration, Registry};

use crate::error::Failure;
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
    /// profile, explain, replay and compare use it for all pods.
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

/// A configuration whose file has been read.
pub(crate) struct Text<'a> {
    source: Source<'a>,
    /// `None` for the default profile.
    text: Option<String>,
}

/// The scheduling policies of the profiles of a configuration.
pub(crate) struct Policies {
    /// Not empty.
    pub(crate) profiles: Vec<Profile>,
    /// Whether the only profile applies to all pods, regardless of their schedulerName.
    pub(crate) is_for_all: bool,
    /// The queue's settings.
    pub(crate) queue: QueueConfig,
    /// Notes about the configuration for the reader.
    pub(crate) notes: Vec<String>,
}

/// One profile of a configuration.
pub(crate) struct Profile {
    pub(crate) framework: Framework,
    pub(crate) scheduler_name: String,
    /// `percentageOfNodesToScore` of the profile or the configuration, if it is set.
    pub(crate) percentage_of_nodes: Option<u8>,
}

impl Source<'_> {
    /// The plugins of the configuration's only profile, or of the one for this scheduler name,
    /// and notes; the default profile if there is no configuration. The plugins share the handle.
    pub(crate) fn framework(
        self,
        scheduler: &str,
        handle: &Handle,
    ) -> Result<(Framework, Vec<String>), Failure> {
        let Policies { mut profiles, notes, .. } = self.policies(handle)?;
        let at = match profiles.len() {
            1 => 0,
            _ => find(&profiles, scheduler).ok_or_else(|| {
                self.refuses(format!(
                    "no profile has schedulerName {scheduler:?}, only {}: pass --profile",
                    names(&profiles)
                ))
            })?,
        };
        Ok((profiles.swap_remove(at).framework, notes))
    }

    /// Reads the file and makes its policies once.
    pub(crate) fn policies(self, handle: &Handle) -> Result<Policies, Failure> {
        self.read()?.policies(handle)
    }

    fn refuses(self, what: String) -> Failure {
        match self.file {
            Some(file) => Failure::File { file: file.to_owned(), what },
            None => Failure::Usage(what),
        }
    }
}

impl<'a> Source<'a> {
    /// Reads the file, for any number of policies.
    pub(crate) fn read(self) -> Result<Text<'a>, Failure> {
        let text = self.file.map(|file| {
            let what = |error| format!("not UTF-8 text ({error}): pass a YAML file");
            String::from_utf8(input::read(file)?)
                .map_err(|error| Failure::File { file: file.to_owned(), what: what(error) })
        });
        Ok(Text { source: self, text: text.transpose()? })
    }
}

impl Text<'_> {
    /// All profiles of the configuration, or the one that `--profile` names; the default
    /// profile if there is no configuration. The profiles' plugins share the handle.
    pub(crate) fn policies(&self, handle: &Handle) -> Result<Policies, Failure> {
        let Source { file, reading } = self.source;
        let mut policies = match file.zip(self.text.as_deref()) {
            None => Policies {
                profiles: vec![Profile {
                    framework: Framework::default_profile_with(handle),
                    scheduler_name: DEFAULT_SCHEDULER.to_owned(),
                    percentage_of_nodes: None,
                }],
                is_for_all: false,
                queue: QueueConfig::default(),
                notes: Vec::new(),
            },
            Some((file, text)) => parse(file, text, reading, handle)?,
        };
        if let Some(name) = &reading.profile {
            let profiles = &mut policies.profiles;
            let at = find(profiles, name).ok_or_else(|| {
                let names = names(profiles);
                let what = format!("there is no profile {name:?}: pass one of {names}");
                self.source.refuses(what)
            })?;
            *profiles = vec![profiles.swap_remove(at)];
            policies.is_for_all = true;
        }
        Ok(policies)
    }
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

fn parse(file: &Path, text: &str, reading: &Reading, handle: &Handle) -> Result<Policies, Failure> {
    let refuses = |what| Failure::File { file: file.to_owned(), what };
    let mut registry = Registry::in_tree();
    if reading.ignore_unknown_plugins {
        registry.ignore_unknown();
    }
    let configuration = Configuration::read(text, &registry, handle).map_err(|error| {
        let what = match error.unknown_plugin() {
            Some(name) => format!(
                "plugin {name:?} does not exist: check the spelling, or pass --ignore-unknown-plugins"
            ),
            None => error.what().to_owned(),
        };
        match error.line() {
            0 => refuses(what),
            line => Failure::Line { file: file.to_owned(), line, what },
        }
    })?;
    let mut notes = configuration.notes;
    let extenders: Vec<&str> =
        configuration.extenders.iter().map(|extender| &*extender.url_prefix).collect();
    if !extenders.is_empty() {
        let extenders = extenders.join(", ");
        if !reading.ignore_extenders {
            let way_out = "pass --ignore-extenders to ignore them";
            return Err(refuses(format!("extenders are not called here ({extenders}): {way_out}")));
        }
        notes.push(format!(
            "the configuration's extenders are not called ({extenders}): nodes that they would \
             reject are feasible here"
        ));
    }
    let percentage = Some(configuration.percentage_of_nodes).filter(|percentage| *percentage > 0);
    let profiles = configuration.profiles.into_iter().map(|profile| Profile {
        framework: profile.framework,
        scheduler_name: profile.scheduler_name,
        percentage_of_nodes: profile.percentage_of_nodes.or(percentage),
    });
    let (profiles, queue) = (profiles.collect(), configuration.queue);
    Ok(Policies { profiles, is_for_all: false, queue, notes })
}
