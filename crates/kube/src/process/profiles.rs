//! The plugins and profiles of a cluster's schedulers.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use portolan::model::Name;
use portolan::plugin::{Extender, Handle};
use portolan::{Framework, FrameworkError};
use portolan_dra::plugin::{Backend, DryRunBackend};
use portolan_k8s::config::{
    ConfigError, Configuration, ExtenderConfig, ProcessSettings, Profile, Registry,
};
use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::runtime::Handle as Runtime;

use super::live::StartError;
use crate::extender::{HttpExtender, HttpExtenderError};
use crate::mirror::{RawKinds, RawObjects};
use crate::write::Writes;

/// Returns the registry of a cluster's schedulers: kube-scheduler's plugins and default profile, with a backend for
/// resource claims. The profile lacks GangScheduling, whose feature gate is off in kube-scheduler and whose PodGroups
/// are not mirrored, and Gödel's PodLauncher.
pub(crate) fn registry(backend: Arc<dyn Backend>) -> Registry {
    let mut registry = Registry::of_cluster(backend);
    let mut profile = registry.default_profile().to_vec();
    profile.retain(|(name, _)| name != "GangScheduling" && name != "PodLauncher");
    registry.set_default_profile(profile);
    registry
}

/// Reads the settings of the process from a `KubeSchedulerConfiguration`, and checks all of it as
/// [`LiveScheduler::start`](super::LiveScheduler::start) does.
///
/// # Errors
///
/// Returns an error if kube-scheduler would reject the configuration, or if it names an unknown plugin. The error has
/// the line.
pub fn checked_settings(text: &str) -> Result<ProcessSettings, ConfigError> {
    let registry = registry(Arc::new(DryRunBackend));
    Configuration::read(text, &registry, &Handle::default()).map(|read| read.process)
}

/// Returns the text of a configuration for serving without authentication, or a comment in its place if it contains a
/// private key (`keyData`) or the credentials of an address.
pub(crate) fn shown(text: &Arc<str>, extenders: &[ExtenderConfig]) -> Arc<str> {
    let has_secret = |of: &ExtenderConfig| {
        of.tls.as_ref().is_some_and(|tls| tls.key_data.is_some()) || of.url_prefix.contains('@')
    };
    match extenders.iter().any(has_secret) {
        true => "# not shown, because it contains a secret: use keyFile, and no password\n".into(),
        false => text.clone(),
    }
}

/// Reads one profile with the handle of the scheduler.
pub(crate) fn framework(
    text: &str,
    registry: &Registry,
    handle: &Handle,
    name: &Name,
) -> Result<Framework, FrameworkError> {
    let read = Configuration::read(text, registry, handle);
    let read = read.map_err(|error| FrameworkError::Other(error.to_string()))?;
    let mut profiles = read.profiles.into_iter();
    let found = profiles.find(|profile| *profile.scheduler_name == **name);
    let missing = || FrameworkError::NotFound(name.to_string());
    let own =
        |profile: Profile| profile.framework.with_percentage_of_nodes(profile.percentage_of_nodes);
    found.map(own).ok_or_else(missing)
}

/// Returns the threads that share a decision (`parallelism`), or `None` for the scheduling thread alone. More threads
/// than processors would not help.
pub(super) fn pool(settings: &ProcessSettings) -> Result<Option<Arc<ThreadPool>>, StartError> {
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let wanted = settings.parallelism.map_or(1, |wanted| usize::try_from(wanted).unwrap_or(1));
    let threads = wanted.min(processors);
    if threads < 2 {
        return Ok(None);
    }
    // The scheduling thread is another one.
    let pool = ThreadPoolBuilder::new().num_threads(threads - 1);
    let pool = pool.thread_name(|n| format!("nodes-{n}")).build();
    pool.map(|pool| Some(Arc::new(pool))).map_err(|error| std::io::Error::other(error).into())
}

/// Creates the extenders, and the store of the objects that they are sent.
#[expect(clippy::type_complexity, reason = "used once")]
pub(super) fn extenders(
    configs: Vec<ExtenderConfig>,
    runtime: &Runtime,
    writes: &Writes,
) -> Result<(Vec<Arc<dyn Extender>>, Option<Arc<RawObjects>>), HttpExtenderError> {
    if configs.is_empty() {
        return Ok((Vec::new(), None));
    }
    let mut kinds = RawKinds::default();
    for config in configs.iter().filter(|config| !config.node_cache_capable) {
        kinds.nodes = true;
        kinds.placed_pods |= !config.preempt_verb.is_empty();
    }
    let objects = Arc::new(RawObjects::new(kinds));
    let extenders = configs.into_iter().map(|config| {
        let made = HttpExtender::new(config, runtime, objects.clone(), writes.binder());
        made.map(|made| Arc::new(made) as Arc<dyn Extender>)
    });
    Ok((extenders.collect::<Result<_, _>>()?, Some(objects)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::cache::{Config, Engine};
    use portolan::model::{node, pod};
    use portolan::{Algorithm, AlgorithmConfig};

    const DEFAULT: &str = Configuration::DEFAULT;

    #[test]
    fn a_configuration_with_a_secret_is_not_shown() {
        let shown = |user: &str, tls: &str| {
            let text: Arc<str> = format!(
                "{DEFAULT}extenders: [{{urlPrefix: 'https://{user}h/', tlsConfig: {{{tls}}}}}]\n"
            )
            .into();
            let read =
                Configuration::read(&text, &registry(Arc::new(DryRunBackend)), &Handle::default())
                    .expect("valid");
            (shown(&text, &read.extenders), text)
        };
        let (secret, _) = shown("", "certData: YQ==, keyData: c2VjcmV0");
        assert!(!secret.contains("c2VjcmV0") && secret.contains("use keyFile"), "{secret}");
        let (secret, _) = shown("me:hidden@", "");
        assert!(!secret.contains("hidden"), "{secret}");
        let (same, text) = shown("", "certFile: cert.pem, keyFile: key.pem");
        assert_eq!(same, text);
    }

    #[test]
    fn a_profile_may_have_a_percentage_of_nodes_of_its_own() {
        let text = format!(
            "{DEFAULT}percentageOfNodesToScore: 100\nprofiles: [{{schedulerName: all}}, {{schedulerName: half, \
             percentageOfNodesToScore: 50}}]\n"
        );
        let (mut writer, reader) = Engine::inline(Config::default());
        for n in 0..400 {
            writer.add_node(node(format!("n{n}")).cpu(1_000).build()).expect("added");
        }
        writer.publish();
        let looked_at = |name: &str| {
            let handle = Handle::default();
            let framework =
                framework(&text, &registry(Arc::new(DryRunBackend)), &handle, &name.into())
                    .expect("a profile");
            let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
            let mut algorithm = Algorithm::new(framework, config, None);
            algorithm.schedule(&reader.snapshot(), &pod("p").build()).expect("a node").looked_at
        };
        assert_eq!((looked_at("all"), looked_at("half")), (400, 200));
    }

    #[test]
    fn a_pool_is_made_only_if_the_configuration_asks_for_threads() {
        let read = |text: &str| ProcessSettings::read(&format!("{DEFAULT}{text}")).expect("valid");
        let threads = |text: &str| {
            let pool = pool(&read(text)).expect("threads");
            1 + pool.map_or(0, |pool| pool.current_num_threads())
        };
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        assert_eq!((threads(""), threads("parallelism: 1")), (1, 1));
        assert_eq!(threads("parallelism: 16"), processors.min(16));
        assert_eq!(threads("parallelism: 100000"), processors);
    }
}
