//! Calls an extender over HTTP (`extender.go` `HTTPExtender`).

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use kube::config::Kubeconfig;
use portolan::BinderError;
use portolan::cache::NodeInfo;
use portolan::model::{Name, Pod, Uid};
use portolan::plugin::preemption::Candidate;
use portolan::plugin::{Extender, ExtenderError, ExtenderFilter, ExtenderVictims};
use portolan_k8s::config::{ExtenderConfig, ExtenderTls};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::address::{Address, redacted};
use super::wire::{self, Args, BindingArgs, FilterAnswer, MetaPod, MetaVictims, NodeList, Victims};
use crate::api::{is_unsent, reasons};
use crate::mirror::RawObjects;
use crate::write::{ApiBinder, Blocking, RuntimeEnded, Unbound};

/// The largest answer, in bytes.
const MAX_ANSWER: usize = 256 << 20;

/// Why an extender cannot be called at all.
#[derive(Debug, thiserror::Error)]
#[error("couldn't build extenders: extender {url:?}: {why}")]
pub struct HttpExtenderError {
    url: String,
    why: String,
}

/// An extender that is called over HTTP. Its calls block, and must not be made on threads of the runtime.
pub(crate) struct HttpExtender {
    config: ExtenderConfig,
    address: Address,
    client: kube::Client,
    blocking: Blocking,
    objects: Arc<RawObjects>,
    binder: ApiBinder,
}

/// Why a call failed.
struct Failed {
    why: String,
    /// Whether the call may have taken effect in the extender.
    is_unknown: bool,
}

impl From<Failed> for ExtenderError {
    fn from(failed: Failed) -> ExtenderError {
        failed.why.into()
    }
}

impl HttpExtender {
    /// Creates a client. Does not connect yet. `objects` must be the store of a mirror that keeps the pods, and the
    /// nodes and placed pods if the extender is not `nodeCacheCapable`. `binder` confirms the bindings of the extender,
    /// and reports them.
    ///
    /// # Errors
    ///
    /// The address or a certificate cannot be used.
    pub(crate) fn new(
        mut config: ExtenderConfig,
        runtime: &Handle,
        objects: Arc<RawObjects>,
        binder: ApiBinder,
    ) -> Result<HttpExtender, HttpExtenderError> {
        let invalid = |why: String| {
            let url = redacted(&config.url_prefix);
            HttpExtenderError { url, why }
        };
        let address = Address::read(&config.url_prefix).map_err(invalid)?;
        config.url_prefix.clone_from(&address.shown);
        let invalid = |why: String| HttpExtenderError { url: address.shown.clone(), why };
        let client = connection(&config, &address.server).map_err(invalid)?;
        let _within = runtime.enter();
        let client = kube::Client::try_from(client).map_err(|error| invalid(reasons(&error)))?;
        let blocking = Blocking::new(runtime);
        Ok(HttpExtender { config, address, client, blocking, objects, binder })
    }

    fn url(&self, verb: &str) -> String {
        format!("{}/{verb}", self.address.shown.trim_end_matches('/'))
    }

    fn pod(&self, pod: &Pod) -> Result<Arc<RawValue>, ExtenderError> {
        let gone = || ExtenderError::from(format!("pod {} no longer exists", pod.key()));
        self.objects.pod(&pod.uid).ok_or_else(gone)
    }

    /// Calls a verb with arguments that name a pod and nodes.
    fn ask<T>(
        &self,
        verb: &str,
        pod: &Pod,
        nodes: &[NodeInfo<'_>],
        read: impl FnOnce(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Result<T, ExtenderError> {
        let pod = self.pod(pod)?;
        let names = nodes.iter().map(|node| &**node.name());
        let mut objects: Vec<Arc<RawValue>> = Vec::new();
        let mut args = Args { pod: &pod, nodes: None, node_names: None };
        if self.config.node_cache_capable {
            args.node_names = Some(names.collect());
        } else {
            // A node that was removed since the version of the decision is left out, and thus rejected.
            objects.extend(names.filter_map(|name| self.objects.node(name)));
            let items = objects.iter().map(|node| Cow::Borrowed(&**node)).collect();
            args.nodes = Some(NodeList { metadata: wire::Empty {}, items });
        }
        Ok(self.wait(self.send(verb, &args, read))?)
    }

    /// Waits for a call. It fails if the runtime ends.
    fn wait<T>(&self, call: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
        let ended = |ended: RuntimeEnded| Err(Failed { why: ended.to_string(), is_unknown: true });
        self.blocking.run(call).unwrap_or_else(ended)
    }

    /// Posts the arguments and reads the answer.
    async fn send<T>(
        &self,
        verb: &str,
        args: &impl Serialize,
        read: impl FnOnce(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Result<T, Failed> {
        let url = self.url(verb);
        let unsent = |why: String| Failed { why, is_unknown: false };
        let body = serde_json::to_vec(args).map_err(|error| unsent(error.to_string()))?;
        // The client prepends the prefix.
        let mut request =
            Request::post(format!("/{verb}")).header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.address.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request
            .body(Body::from(body))
            .map_err(|error| unsent(format!("Post {url:?}: {error}")))?;
        let is_reading = Cell::new(false);
        let call = async {
            let response = self.client.send(request).await.map_err(|error| Failed {
                why: format!("Post {url:?}: {}", reasons(&error)),
                is_unknown: !is_unsent(&error),
            })?;
            if response.status() != StatusCode::OK {
                let code = response.status().as_u16();
                let why = format!("failed {verb} with extender at URL {url}, code {code}");
                return Err(Failed { why, is_unknown: code >= 500 });
            }
            is_reading.set(true);
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|error| {
                let why = match error.downcast_ref::<LengthLimitError>() {
                    Some(_) => {
                        format!("Post {url:?}: the answer is larger than {MAX_ANSWER} bytes")
                    }
                    // The body was truncated. This is the error of Go's decoder.
                    None => "unexpected EOF".to_owned(),
                };
                Failed { why, is_unknown: true }
            })?;
            Ok(body.to_bytes())
        };
        let body = match self.config.http_timeout {
            None => call.await?,
            Some(limit) => timeout(limit, call).await.unwrap_or_else(|_| {
                let exceeded = "context deadline exceeded (Client.Timeout";
                let why = match is_reading.get() {
                    true => format!("{exceeded} or context cancellation while reading body)"),
                    false => format!("Post {url:?}: {exceeded} exceeded while awaiting headers)"),
                };
                Err(Failed { why, is_unknown: true })
            })?,
        };
        read(&body).map_err(|error| {
            let why = match error.is_eof() {
                // Go's decoder has a different error for an empty body.
                true if body.trim_ascii().is_empty() => "EOF".to_owned(),
                true => "unexpected EOF".to_owned(),
                false => error.to_string(),
            };
            Failed { why, is_unknown: true }
        })
    }

    /// Sends a binding. Fails if the extender reports an error.
    async fn send_binding(&self, pod: &Pod, node: &Name) -> Result<(), Unbound> {
        let args = BindingArgs {
            name: pod.name.to_string(),
            namespace: pod.namespace().to_string(),
            uid: pod.uid.to_string(),
            node: node.to_string(),
        };
        match self.send(&self.config.bind_verb, &args, wire::read_error).await {
            Ok(error) if error.is_empty() => Ok(()),
            Ok(error) => Err(Unbound::Refused(error)),
            Err(Failed { why, is_unknown: true }) => Err(Unbound::Unknown(why)),
            Err(Failed { why, is_unknown: false }) => Err(Unbound::Refused(why)),
        }
    }
}

impl Extender for HttpExtender {
    fn name(&self) -> &str {
        &self.address.shown
    }

    fn is_interested(&self, pod: &Pod) -> bool {
        let managed = &self.config.managed_resources;
        if managed.is_empty() {
            return true;
        }
        self.objects.names_resource(&pod.uid, managed, wire::resources).unwrap_or_else(|| {
            // The JSON of a pod is dropped when the pod is removed or bound. The parsed pod still has its requests.
            let scalars = &pod.template.resources.incoming.scalars;
            managed.iter().any(|name| scalars.get(name).is_some())
        })
    }

    fn is_ignorable(&self) -> bool {
        self.config.ignorable
    }

    fn is_filter(&self) -> bool {
        !self.config.filter_verb.is_empty()
    }

    fn filter(&self, pod: &Pod, nodes: &[NodeInfo<'_>]) -> Result<ExtenderFilter, ExtenderError> {
        let answer = self.ask(&self.config.filter_verb, pod, nodes, FilterAnswer::read)?;
        if !answer.error.is_empty() {
            return Err(answer.error.into());
        }
        let names = answer.node_names.filter(|_| self.config.node_cache_capable).or(answer.nodes);
        let named = |failed: Vec<(String, String)>| {
            failed.into_iter().map(|(node, why)| (Name::from(node), why)).collect()
        };
        let mut filter = ExtenderFilter::default();
        filter.passed = names.unwrap_or_default().into_iter().map(Name::from).collect();
        (filter.failed, filter.unresolvable) = (named(answer.failed), named(answer.unresolvable));
        Ok(filter)
    }

    fn weight(&self) -> Option<i64> {
        (!self.config.prioritize_verb.is_empty()).then_some(self.config.weight)
    }

    fn prioritize(
        &self,
        pod: &Pod,
        nodes: &[NodeInfo<'_>],
    ) -> Result<Vec<(Name, i64)>, ExtenderError> {
        let scores = self.ask(&self.config.prioritize_verb, pod, nodes, wire::read_scores);
        Ok(scores?.into_iter().map(|(node, score)| (Name::from(node), score)).collect())
    }

    fn supports_preemption(&self) -> bool {
        !self.config.preempt_verb.is_empty()
    }

    fn preempt(
        &self,
        pod: &Pod,
        candidates: &[Candidate],
    ) -> Result<Vec<ExtenderVictims>, ExtenderError> {
        let pod = self.pod(pod)?;
        let violations =
            |candidate: &Candidate| i64::try_from(candidate.violations).unwrap_or(i64::MAX);
        let named = |candidate: &Candidate| MetaVictims {
            pods: candidate
                .victims
                .iter()
                .map(|pod| MetaPod { uid: pod.uid.to_string() })
                .collect(),
            violations: violations(candidate),
        };
        let whole = |candidate: &Candidate| Victims {
            pods: candidate.victims.iter().filter_map(|pod| self.objects.pod(&pod.uid)).collect(),
            violations: violations(candidate),
        };
        let is_named = self.config.node_cache_capable;
        let args = wire::PreemptionArgs {
            pod: &pod,
            node_name_to_victims: (!is_named)
                .then(|| candidates.iter().map(|of| (&*of.node, whole(of))).collect()),
            node_name_to_meta_victims: is_named
                .then(|| candidates.iter().map(|of| (&*of.node, named(of))).collect()),
        };
        let sent = self.send(&self.config.preempt_verb, &args, wire::read_victims);
        let victims: BTreeMap<String, MetaVictims> = self.wait(sent)?;
        let victims = victims.into_iter().map(|(node, victims)| ExtenderVictims {
            node: node.into(),
            pods: victims.pods.iter().map(|pod| Uid::new(&pod.uid)).collect(),
            violations: usize::try_from(victims.violations).unwrap_or(0),
        });
        Ok(victims.collect())
    }

    fn is_binder(&self) -> bool {
        !self.config.bind_verb.is_empty()
    }

    fn bind(&self, pod: &Pod, node: &Name) -> Result<(), BinderError> {
        let sent = self.send_binding(pod, node);
        self.binder.outcome(self.binder.bind_through(pod, node, sent))
    }
}

/// Returns the configuration of the connection to an extender (`makeTransport`).
fn connection(config: &ExtenderConfig, server: &str) -> Result<kube::Config, String> {
    let url: http::Uri = server.parse().map_err(|error| format!("{error}"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none() {
        return Err("write an address such as http://host:8080/scheduler".to_owned());
    }
    let none = ExtenderTls::default();
    let tls = config.tls.as_ref().unwrap_or(&none);
    let has_ca = tls.ca_data.is_some() || tls.ca_file.is_some();
    let insecure = tls.insecure || (config.enable_https && !has_ca);
    if insecure && has_ca {
        let why = "specifying a root certificates file with the insecure flag is not allowed";
        return Err(why.to_owned());
    }
    let data = |data: &Option<Vec<u8>>| data.as_ref().map(|data| STANDARD.encode(data));
    let has_identity = (tls.cert_data.is_some() || tls.cert_file.is_some())
        && (tls.key_data.is_some() || tls.key_file.is_some());
    // As in client-go, a certificate without a key is not used.
    let user = match has_identity {
        true => json!({
            "client-certificate": tls.cert_file,
            "client-certificate-data": data(&tls.cert_data),
            "client-key": tls.key_file,
            "client-key-data": data(&tls.key_data),
        }),
        false => json!({}),
    };
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "extender", "cluster": {
            "server": server,
            "insecure-skip-tls-verify": insecure,
            "certificate-authority": tls.ca_file,
            "certificate-authority-data": data(&tls.ca_data),
            "tls-server-name": tls.server_name,
        }}],
        "users": [{"name": "extender", "user": user}],
        "contexts": [{"name": "extender", "context": {"cluster": "extender", "user": "extender"}}],
        "current-context": "extender",
    });
    let kubeconfig: Kubeconfig =
        serde_json::from_value(kubeconfig).map_err(|error| error.to_string())?;
    let mut client = kube::Config::try_from(kubeconfig).map_err(|error| reasons(&error))?;
    client.proxy_url = None;
    client.default_retry = false;
    client.read_timeout = None;
    client.write_timeout = None;
    Ok(client)
}
