//! The plugins and profiles of a cluster's schedulers.

use std::sync::Arc;

use portolan::framework::{Framework, FrameworkError, Handle, Plugin};
use portolan::model::Name;
use portolan::plugins::DynamicResources;
use portolan_k8s::config::{Configuration, ExtenderConfig, PluginArgs, Profile, Registry};

/// The configuration that kube-scheduler has without one.
pub(crate) const DEFAULT: &str =
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

const NAME: &str = "DynamicResources";

/// Returns the registry of a cluster's schedulers: the in-tree plugins, with kube-scheduler's default profile.
/// DynamicResources comes before DefaultPreemption. GangScheduling is behind a feature gate that is off there, and its
/// PodGroups are not mirrored; PodLauncher is Gödel's.
pub(crate) fn registry() -> Registry {
    let mut registry = Registry::in_tree();
    let make = |_: PluginArgs<'_>, _: &Handle| Ok(Box::new(DynamicResources) as Box<dyn Plugin>);
    // The name is free: the in-tree registry only leaves it out.
    if registry.register(NAME, make).is_ok() {
        let mut profile = registry.default_profile().to_vec();
        profile.retain(|(name, _)| name != "GangScheduling" && name != "PodLauncher");
        let before = profile.iter().position(|(name, _)| name == "DefaultPreemption");
        profile.insert(before.unwrap_or(profile.len()), (NAME.to_owned(), 0));
        registry.set_default_profile(profile);
    }
    registry
}

/// Returns the text of a configuration as it may be served without authentication: a comment in its place if it
/// contains a private key (`keyData`) or the credentials of an address.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_with_a_secret_is_not_shown() {
        let shown = |user: &str, tls: &str| {
            let text: Arc<str> = format!(
                "{DEFAULT}extenders: [{{urlPrefix: 'https://{user}h/', tlsConfig: {{{tls}}}}}]\n"
            )
            .into();
            let read = Configuration::read(&text, &registry(), &Handle::default()).expect("valid");
            (shown(&text, &read.extenders), text)
        };
        let (secret, _) = shown("", "certData: YQ==, keyData: c2VjcmV0");
        assert!(!secret.contains("c2VjcmV0") && secret.contains("use keyFile"), "{secret}");
        let (secret, _) = shown("me:hidden@", "");
        assert!(!secret.contains("hidden"), "{secret}");
        let (same, text) = shown("", "certFile: cert.pem, keyFile: key.pem");
        assert_eq!(same, text);
    }
}
