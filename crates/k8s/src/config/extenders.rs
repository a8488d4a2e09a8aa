//! The field `extenders`: services outside the process that take part in decisions.
//!
//! Checks and messages are those of kube-scheduler (pkg/scheduler/apis/config/validation `validateExtenders`).
//! Certificates and addresses are checked by the client that uses them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::duration::go_duration;
use super::{ConfigError, at};
use crate::yaml::At;

/// The timeout of a call if the configuration sets none (`DefaultExtenderTimeout`).
const TIMEOUT: Duration = Duration::from_secs(5);

/// An extender. A verb that is empty is one that the extender does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtenderConfig {
    /// The address, to which verbs are appended.
    pub url_prefix: String,
    /// The verb that filters nodes.
    pub filter_verb: String,
    /// The verb that chooses among candidates for preemption.
    pub preempt_verb: String,
    /// The verb that scores nodes.
    pub prioritize_verb: String,
    /// The weight of the scores.
    pub weight: i64,
    /// The verb that binds pods. At most one extender has it.
    pub bind_verb: String,
    /// Whether a server's certificate is accepted unchecked if no certificate authority is given.
    pub enable_https: bool,
    /// The settings of TLS.
    pub tls: Option<ExtenderTls>,
    /// The timeout of a call, or `None` for a negative one, which means no timeout.
    pub http_timeout: Option<Duration>,
    /// Whether nodes and victims are sent by name instead of as whole objects.
    pub node_cache_capable: bool,
    /// The resources of which a pod must request one for the extender to be called. If empty, all pods are sent.
    pub managed_resources: Vec<String>,
    /// Whether decisions go on without the extender if it fails.
    pub ignorable: bool,
}

/// The settings of TLS for an extender. Data takes precedence over a file.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtenderTls {
    /// Whether the server's certificate is accepted unchecked.
    pub insecure: bool,
    /// The name that the server's certificate must have, instead of the host of the address.
    pub server_name: Option<String>,
    /// The file with the client's certificate.
    pub cert_file: Option<String>,
    /// The file with the client's key.
    pub key_file: Option<String>,
    /// The file with the certificate authorities of the server.
    pub ca_file: Option<String>,
    /// The client's certificate, as PEM.
    pub cert_data: Option<Vec<u8>>,
    /// The client's key, as PEM.
    pub key_data: Option<Vec<u8>>,
    /// The certificate authorities of the server, as PEM.
    pub ca_data: Option<Vec<u8>>,
}

impl fmt::Debug for ExtenderTls {
    /// Leaves the data out, among which there is a private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtenderTls")
            .field("insecure", &self.insecure)
            .field("server_name", &self.server_name)
            .field("cert_file", &self.cert_file)
            .field("key_file", &self.key_file)
            .field("ca_file", &self.ca_file)
            .finish_non_exhaustive()
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WireExtender {
    url_prefix: Option<String>,
    filter_verb: Option<String>,
    preempt_verb: Option<String>,
    prioritize_verb: Option<String>,
    weight: Option<At<i64>>,
    bind_verb: Option<String>,
    #[serde(rename = "enableHTTPS")]
    enable_https: Option<bool>,
    tls_config: Option<WireTls>,
    http_timeout: Option<At<String>>,
    node_cache_capable: Option<bool>,
    managed_resources: Option<Vec<WireResource>>,
    ignorable: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct WireTls {
    insecure: Option<bool>,
    server_name: Option<String>,
    cert_file: Option<String>,
    key_file: Option<String>,
    ca_file: Option<String>,
    cert_data: Option<At<String>>,
    key_data: Option<At<String>>,
    ca_data: Option<At<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireResource {
    name: At<String>,
    #[serde(default)]
    ignored_by_scheduler: Option<bool>,
}

/// The extenders, and the resources that NodeResourcesFit ignores because of them.
#[derive(Default)]
pub(super) struct Extenders {
    pub(super) all: Vec<ExtenderConfig>,
    pub(super) ignored_resources: Vec<String>,
}

impl Extenders {
    /// Checks the extenders of a configuration.
    pub(super) fn read(given: &[At<WireExtender>]) -> Result<Extenders, ConfigError> {
        let mut extenders = Extenders::default();
        let mut names = BTreeSet::new();
        for (index, spanned) in given.iter().enumerate() {
            let (wire, path) = (&spanned.value, format!("extenders[{index}]"));
            let extender = wire.extender()?;
            if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
                let what = format!(
                    "{path}.weight: Invalid value: {}: must have a positive weight applied to it",
                    extender.weight
                );
                return Err(match &wire.weight {
                    Some(weight) => at(weight, what),
                    None => at(spanned, what),
                });
            }
            for (index, resource) in wire.managed_resources.iter().flatten().enumerate() {
                let name = &resource.name.value;
                let invalid = |value: String, why: &str| {
                    let path = format!("{path}.managedResources[{index}].name");
                    at(&resource.name, format!("{path}: Invalid value: {value}: {why}"))
                };
                if let Some(why) = unqualified(name).first() {
                    return Err(invalid(json(name), why));
                }
                if !is_extended_resource(name) {
                    return Err(invalid(quoted(name), "is an invalid extended resource name"));
                }
                if !names.insert(name.clone()) {
                    return Err(invalid(quoted(name), "duplicate extender managed resource name"));
                }
                if resource.ignored_by_scheduler == Some(true) {
                    extenders.ignored_resources.push(name.clone());
                }
            }
            extenders.all.push(extender);
        }
        let binders = extenders.all.iter().filter(|of| !of.bind_verb.is_empty()).count();
        match given.first() {
            Some(first) if binders > 1 => Err(at(
                first,
                format!(
                    "extenders: Invalid value: \"found {binders} extenders implementing bind\": only one \
                     extender can implement bind"
                ),
            )),
            _ => Ok(extenders),
        }
    }
}

impl WireExtender {
    fn extender(&self) -> Result<ExtenderConfig, ConfigError> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let resources = self.managed_resources.iter().flatten();
        Ok(ExtenderConfig {
            url_prefix: text(&self.url_prefix),
            filter_verb: text(&self.filter_verb),
            preempt_verb: text(&self.preempt_verb),
            prioritize_verb: text(&self.prioritize_verb),
            weight: self.weight.as_ref().map_or(0, |weight| weight.value),
            bind_verb: text(&self.bind_verb),
            enable_https: self.enable_https.unwrap_or(false),
            tls: self.tls_config.as_ref().map(WireTls::tls).transpose()?,
            http_timeout: match &self.http_timeout {
                None => Some(TIMEOUT),
                Some(given) => match go_duration(&given.value).map_err(|why| at(given, why))? {
                    0 => Some(TIMEOUT),
                    nanos => u64::try_from(nanos).ok().map(Duration::from_nanos),
                },
            },
            node_cache_capable: self.node_cache_capable.unwrap_or(false),
            managed_resources: resources.map(|resource| resource.name.value.clone()).collect(),
            ignorable: self.ignorable.unwrap_or(false),
        })
    }
}

impl WireTls {
    fn tls(&self) -> Result<ExtenderTls, ConfigError> {
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let data = |given: &Option<At<String>>| {
            let Some(given) = given.as_ref().filter(|given| !given.value.is_empty()) else {
                return Ok(None);
            };
            let compact: String =
                given.value.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
            let decoded = STANDARD.decode(compact);
            decoded.map(Some).map_err(|error| at(given, format!("illegal base64 data: {error}")))
        };
        Ok(ExtenderTls {
            insecure: self.insecure.unwrap_or(false),
            server_name: text(&self.server_name),
            cert_file: text(&self.cert_file),
            key_file: text(&self.key_file),
            ca_file: text(&self.ca_file),
            cert_data: data(&self.cert_data)?,
            key_data: data(&self.key_data)?,
            ca_data: data(&self.ca_data)?,
        })
    }
}

/// Formats a string as Go's `%q` does, for the names that pass [`unqualified`], which are ASCII.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// Formats a string as Go's `json.Marshal` does, which also escapes `<`, `>` and `&`.
fn json(text: &str) -> String {
    let text = serde_json::Value::from(text).to_string();
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

const LABEL: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Returns why a name is not a label key (apimachinery `IsLabelKey`), in order.
fn unqualified(value: &str) -> Vec<Cow<'static, str>> {
    let mut errors: Vec<Cow<'static, str>> = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".into());
            } else {
                if prefix.len() > 253 {
                    errors.push("prefix part must be no more than 253 bytes".into());
                }
                if !is_subdomain(prefix) {
                    errors.push(format!("prefix part {SUBDOMAIN}").into());
                }
            }
            name
        }
        _ => {
            let optional =
                "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {LABEL} {optional}").into()];
        }
    };
    match name.len() {
        0 => errors.push("name part must be non-empty".into()),
        1..=63 => {}
        _ => errors.push("name part must be no more than 63 bytes".into()),
    }
    if !is_label(name) {
        errors.push(format!("name part {LABEL}").into());
    }
    errors
}

fn is_label(name: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(inner)
}

pub(crate) fn is_subdomain(name: &str) -> bool {
    let is_lower = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.split('.').all(|label| {
        let bytes = label.as_bytes();
        let ends = |byte: Option<&u8>| byte.is_some_and(is_lower);
        let inner = |byte: &u8| is_lower(byte) || *byte == b'-';
        ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(inner)
    })
}

/// Returns whether a label key is the name of an extended resource (`IsExtendedResourceName`).
fn is_extended_resource(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native
        && !name.starts_with("requests.")
        && unqualified(&format!("requests.{name}")).is_empty()
}

#[cfg(test)]
mod tests {
    use portolan::plugin::Handle;

    use super::super::{Configuration, Registry};
    use super::*;

    const HEAD: &str = Configuration::DEFAULT;

    fn read(text: &str) -> Result<Configuration, (u64, String)> {
        let read =
            Configuration::read(&format!("{HEAD}{text}"), &Registry::in_tree(), &Handle::default());
        read.map_err(|error| (error.line(), error.what().to_owned()))
    }

    fn refused(text: &str) -> (u64, String) {
        read(text).err().unwrap_or_else(|| panic!("not refused: {text}"))
    }

    #[test]
    fn every_field_is_read() {
        let read = read(
            "
extenders:
- urlPrefix: https://gpu.example.com/scheduler
  filterVerb: filter
  preemptVerb: preempt
  prioritizeVerb: prioritize
  weight: 5
  bindVerb: bind
  enableHTTPS: true
  tlsConfig:
    insecure: false
    serverName: gpu
    certFile: client.pem
    keyFile: key.pem
    caFile: ca.pem
    certData: Y2VydA==
    keyData: |
      a2
      V5
    caData: Y2E=
  httpTimeout: 1m30s
  nodeCacheCapable: true
  managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]
  ignorable: true
- urlPrefix: http://localhost:8080
",
        );
        let extenders = read.unwrap().extenders;
        let tls = ExtenderTls {
            insecure: false,
            server_name: Some("gpu".to_owned()),
            cert_file: Some("client.pem".to_owned()),
            key_file: Some("key.pem".to_owned()),
            ca_file: Some("ca.pem".to_owned()),
            cert_data: Some(b"cert".to_vec()),
            key_data: Some(b"key".to_vec()),
            ca_data: Some(b"ca".to_vec()),
        };
        assert!(!format!("{tls:?}").contains("key_data"));
        let first = ExtenderConfig {
            url_prefix: "https://gpu.example.com/scheduler".to_owned(),
            filter_verb: "filter".to_owned(),
            preempt_verb: "preempt".to_owned(),
            prioritize_verb: "prioritize".to_owned(),
            weight: 5,
            bind_verb: "bind".to_owned(),
            enable_https: true,
            tls: Some(tls),
            http_timeout: Some(Duration::from_secs(90)),
            node_cache_capable: true,
            managed_resources: vec!["example.com/gpu".to_owned()],
            ignorable: true,
        };
        assert_eq!(extenders[0], first);
        let second = ExtenderConfig {
            url_prefix: "http://localhost:8080".to_owned(),
            filter_verb: String::new(),
            preempt_verb: String::new(),
            prioritize_verb: String::new(),
            weight: 0,
            bind_verb: String::new(),
            enable_https: false,
            tls: None,
            http_timeout: Some(Duration::from_secs(5)),
            node_cache_capable: false,
            managed_resources: Vec::new(),
            ignorable: false,
        };
        assert_eq!(extenders[1], second);
        assert_eq!(extenders.len(), 2);
    }

    #[test]
    fn messages_are_kube_schedulers() {
        let weight = "must have a positive weight applied to it";
        for (text, line, expected) in [
            (
                "extenders:\n- urlPrefix: a\n- {prioritizeVerb: p, weight: -1}\n",
                5,
                format!("extenders[1].weight: Invalid value: -1: {weight}"),
            ),
            ("extenders:\n- prioritizeVerb: p\n", 4, format!("extenders[0].weight: Invalid value: 0: {weight}")),
            (
                "extenders: [{bindVerb: a}, {bindVerb: b}, {}]\n",
                3,
                "extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can implement \
                 bind"
                    .to_owned(),
            ),
        ] {
            assert_eq!(refused(text), (line, expected), "{text}");
        }
        let of_names =
            |names: &str| refused(&format!("extenders:\n- managedResources: [{names}]\n")).1;
        let path =
            |index: usize| format!("extenders[0].managedResources[{index}].name: Invalid value: ");
        assert_eq!(
            of_names("{name: cpu}"),
            path(0) + "\"cpu\": is an invalid extended resource name"
        );
        assert_eq!(
            of_names("{name: a.kubernetes.io/b}"),
            path(0) + "\"a.kubernetes.io/b\": is an invalid extended resource name"
        );
        assert_eq!(
            of_names("{name: a.b/c}, {name: a.b/c}"),
            path(1) + "\"a.b/c\": duplicate extender managed resource name"
        );
        assert_eq!(of_names("{name: ''}"), path(0) + "\"\": name part must be non-empty");
        assert_eq!(of_names("{name: /a}"), path(0) + "\"/a\": prefix part must be non-empty");
        assert_eq!(
            of_names("{name: a.b/<c>}"),
            path(0)
                + "\"a.b/\\u003cc\\u003e\": name part must consist of alphanumeric characters, '-', '_' or '.', and \
                   must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex \
                   used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        );
        assert_eq!(
            of_names("{name: A.b/c}"),
            path(0)
                + "\"A.b/c\": prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                   characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
                   regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        );
        let long = format!("a.b/{}", "c".repeat(64));
        assert_eq!(
            of_names(&format!("{{name: {long}}}")),
            path(0) + &format!("\"{long}\": name part must be no more than 63 bytes")
        );
        assert!(of_names("{name: a/b/c}").contains(": a valid label key must consist of"));
    }

    #[test]
    fn resources_of_an_extender_are_ignored_by_node_resources_fit() {
        let with = |profile: &str| {
            let extender =
                "- managedResources: [{name: a.b/c, ignoredByScheduler: true}, {name: a.b/d}]";
            read(&format!("extenders:\n{extender}\n{profile}"))
        };
        let pod = portolan::model::pod("p").request("a.b/c", portolan::model::Quantity::whole(1));
        let other = portolan::model::pod("q").request("a.b/d", portolan::model::Quantity::whole(1));
        let (mut writer, _) = portolan::cache::Engine::inline(portolan::cache::Config::default());
        writer.add_node(portolan::model::node("n").cpu(1_000).pods(10).build()).unwrap();
        let passes = |read: &Configuration, pod: &portolan::model::Pod| {
            let node = writer.cluster().node("n").unwrap();
            read.profiles[0].framework.filter(writer.cluster(), pod, node).is_none()
        };
        let args = "profiles:\n- pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [a.b/d]}}]\n";
        let (pod, other) = (pod.build(), other.build());
        for profile in ["", args] {
            // The list of the arguments is replaced, as in kube-scheduler.
            let read = with(profile).unwrap_or_else(|error| panic!("{error:?}"));
            assert!(passes(&read, &pod) && !passes(&read, &other), "{profile}");
        }
        let without =
            "profiles:\n- plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}\n";
        let what = "couldn't build extenders: can't find NodeResourcesFitArgs in plugin config";
        assert_eq!(with(without).err(), Some((6, what.to_owned())));
    }

    #[test]
    fn a_timeout_has_a_default_and_may_be_negative() {
        let timeout = |text: &str| {
            let read = read(&format!("extenders: [{{httpTimeout: {text}}}]"));
            read.map(|read| read.extenders[0].http_timeout).map_err(|(_, error)| error)
        };
        assert_eq!(timeout("0s"), Ok(Some(TIMEOUT)));
        assert_eq!(timeout("-1s"), Ok(None));
        assert!(timeout("5").is_err());
        assert!(
            refused("extenders: [{tlsConfig: {caData: '%'}}]").1.contains("illegal base64 data")
        );
        assert!(refused("extenders: [{filter: x}]").1.contains("filter"));
    }
}
