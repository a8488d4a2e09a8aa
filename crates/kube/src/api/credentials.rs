//! Credentials that change while a client runs: files of certificates and tokens that are replaced, and exec plugins.
//!
//! A client is built from its credentials, so new credentials make a new client. Requests that have begun, and watches,
//! end on the old one.

use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::prelude::{BASE64_STANDARD, Engine};
use futures_util::FutureExt;
use http::HeaderValue;
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use portolan_k8s::yaml::from_str;
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::ConnectError;

/// How often certificate files are checked. Client-go checks them at each new connection.
const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// The longest time for a plugin that cannot ask questions.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time for a plugin that may ask questions on a terminal.
const INTERACTIVE_TIMEOUT: Duration = Duration::from_secs(300);
/// The least time between two runs of a plugin.
const PAUSE: Duration = Duration::from_secs(5);
/// The largest output of a plugin.
const OUTPUT: u64 = 1 << 20;

/// The current client of a server.
#[derive(Clone)]
pub(super) struct Client {
    current: Arc<ArcSwap<kube::Client>>,
    /// Notified when the server has refused the credentials.
    refused: Arc<Notify>,
}

impl Client {
    /// Creates a client without a plugin. Call it within a runtime, which watches the files of its certificate.
    pub(super) fn new(config: kube::Config) -> Result<Client, ConnectError> {
        if config.auth_info.exec.is_some() {
            let why = "the kubeconfig has an exec plugin, which only Connection::open runs";
            return Err(ConnectError::new(why.to_owned()));
        }
        Client::with(config, None, CHECK_PERIOD)
    }

    /// Creates a client, after the first run of its plugin if it has one.
    pub(super) async fn open(mut config: kube::Config) -> Result<Client, ConnectError> {
        let Some(exec) = config.auth_info.exec.take() else { return Client::new(config) };
        let plugin = Plugin { exec, timeouts: [TIMEOUT, INTERACTIVE_TIMEOUT] };
        let found = plugin.run().await.map_err(ConnectError::new)?;
        Client::with(config, Some((plugin, found)), CHECK_PERIOD)
    }

    fn with(
        base: kube::Config,
        plugin: Option<(Plugin, Credential)>,
        every: Duration,
    ) -> Result<Client, ConnectError> {
        let files = Files::of(&base.auth_info);
        // Read before the client reads them, so that a change in between is found.
        let known = files.read();
        let first =
            build(&base, plugin.as_ref().map(|(_, found)| found)).map_err(ConnectError::new)?;
        let client =
            Client { current: Arc::new(ArcSwap::from_pointee(first)), refused: Arc::default() };
        if plugin.is_some() || !files.0.is_empty() {
            let (current, refused) = (Arc::downgrade(&client.current), client.refused.clone());
            let renewal = Renewal { current, refused, base, files, known, plugin, every };
            tokio::spawn(renewal.run());
        }
        Ok(client)
    }

    pub(super) fn get(&self) -> Arc<kube::Client> {
        self.current.load_full()
    }

    /// Reports that the server has refused the credentials of a client (401): a plugin runs again, unless they were
    /// renewed meanwhile.
    pub(super) fn refused(&self, client: &Arc<kube::Client>) {
        if Arc::ptr_eq(&self.current.load(), client) {
            self.refused.notify_one();
        }
    }
}

fn build(base: &kube::Config, found: Option<&Credential>) -> Result<kube::Client, String> {
    let mut config = base.clone();
    // Read here: the client would send a line break at the end of the file.
    if let Some(file) = config.auth_info.token_file.take() {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        config.auth_info.token = Some(text.trim().to_owned().into());
    }
    if let Some(found) = found {
        found.apply(&mut config.auth_info);
    }
    let token = config.auth_info.token.as_ref().map(ExposeSecret::expose_secret);
    // The client would panic on such a token.
    if token.is_some_and(|token| HeaderValue::from_str(token).is_err()) {
        return Err(
            "the token has a line break or another character that no header may have".to_owned()
        );
    }
    kube::Client::try_from(config).map_err(|error| error.to_string())
}

/// The files of a client's certificate and its key, and of its token.
struct Files(Vec<String>);

impl Files {
    fn of(auth: &AuthInfo) -> Files {
        let certificate =
            auth.client_certificate.iter().filter(|_| auth.client_certificate_data.is_none());
        let key = auth.client_key.iter().filter(|_| auth.client_key_data.is_none());
        Files(certificate.chain(key).chain(&auth.token_file).cloned().collect())
    }

    fn read(&self) -> Vec<Option<Vec<u8>>> {
        self.0.iter().map(|path| std::fs::read(path).ok()).collect()
    }
}

/// Renews the client until it is dropped.
struct Renewal {
    current: Weak<ArcSwap<kube::Client>>,
    refused: Arc<Notify>,
    base: kube::Config,
    files: Files,
    known: Vec<Option<Vec<u8>>>,
    plugin: Option<(Plugin, Credential)>,
    every: Duration,
}

impl Renewal {
    async fn run(mut self) {
        // A failure is reported once, until something has changed.
        let mut reported = String::new();
        loop {
            let due = self.plugin.as_ref().and_then(|(_, found)| found.lasts(Timestamp::now()));
            let is_refused = tokio::select! {
                () = sleep(due.map_or(self.every, |due| due.min(self.every))) => false,
                () = self.refused.notified(), if self.plugin.is_some() => true,
            };
            let Some(current) = self.current.upgrade() else { return };
            let renewed = match self.renewed(is_refused).await {
                Ok(None) => continue,
                Ok(Some(client)) => {
                    current.store(Arc::new(client));
                    // Refusals of the old credentials that came while the plugin ran.
                    let _ = self.refused.notified().now_or_never();
                    tracing::info!("the credentials for the API server were renewed");
                    String::new()
                }
                Err(error) => error,
            };
            if renewed != reported && !renewed.is_empty() {
                tracing::warn!(
                    error = renewed,
                    "the credentials for the API server were not renewed"
                );
            }
            reported = renewed;
            if is_refused || !reported.is_empty() {
                sleep(PAUSE.min(self.every)).await;
            }
        }
    }

    /// Returns a new client if the credentials have changed.
    async fn renewed(&mut self, is_refused: bool) -> Result<Option<kube::Client>, String> {
        let files = self.files.read();
        let have_changed = files != self.known && files.iter().all(Option::is_some);
        if let Some((plugin, found)) = &mut self.plugin
            && (is_refused || found.lasts(Timestamp::now()).is_some_and(|left| left.is_zero()))
        {
            *found = plugin.run().await?;
        } else if !have_changed {
            return Ok(None);
        }
        let client = build(&self.base, self.plugin.as_ref().map(|(_, found)| found))?;
        // A certificate without its key is an error; the files are then read again.
        self.known = files;
        Ok(Some(client))
    }
}

/// A program that prints credentials (client.authentication.k8s.io).
struct Plugin {
    exec: ExecConfig,
    /// The longest times of a run, without and with a terminal.
    timeouts: [Duration; 2],
}

#[derive(Deserialize)]
struct Printed {
    status: Option<Credential>,
}

/// The credentials that a plugin printed.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credential {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
    #[serde(skip)]
    renew_at: Option<Timestamp>,
}

impl Credential {
    fn apply(&self, auth: &mut AuthInfo) {
        if let Some(token) = &self.token {
            auth.token = Some(token.clone().into());
        }
        if let (Some(certificate), Some(key)) =
            (&self.client_certificate_data, &self.client_key_data)
        {
            auth.client_certificate_data = Some(BASE64_STANDARD.encode(certificate));
            auth.client_key_data = Some(BASE64_STANDARD.encode(key).into());
        }
    }

    /// Returns how long the credentials can be used before they are renewed, or `None` if they do not expire.
    fn lasts(&self, now: Timestamp) -> Option<Duration> {
        let left = self.renew_at?.duration_since(now);
        Some(Duration::try_from(left).unwrap_or_default())
    }
}

impl Plugin {
    /// Runs the program. Its standard error is that of this process; its output is never printed, since it contains
    /// secrets.
    async fn run(&self) -> Result<Credential, String> {
        let exec = &self.exec;
        let program =
            exec.command.as_deref().ok_or("the exec plugin of the kubeconfig has no command")?;
        let failed = |why: String| {
            let hint =
                exec.install_hint.as_deref().map_or(String::new(), |hint| format!(": {hint}"));
            format!("exec plugin {program}: {why}{hint}")
        };
        let has_terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
        let interactive = has_terminal && exec.interactive_mode != Some(ExecInteractiveMode::Never);
        if exec.interactive_mode == Some(ExecInteractiveMode::Always) && !has_terminal {
            return Err(failed("it needs a terminal (interactiveMode: Always)".to_owned()));
        }
        let mut spec = json!({ "interactive": interactive });
        if let Some(cluster) = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info) {
            spec["cluster"] =
                serde_json::to_value(cluster).map_err(|error| failed(error.to_string()))?;
        }
        let info = json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec});
        let mut command = Command::new(program);
        command.args(exec.args.iter().flatten()).env("KUBERNETES_EXEC_INFO", info.to_string());
        let pairs =
            exec.env.iter().flatten().filter_map(|env| env.get("name").zip(env.get("value")));
        command.envs(pairs).stdout(Stdio::piped()).kill_on_drop(true);
        command.stdin(if interactive { Stdio::inherit() } else { Stdio::null() });
        for name in exec.drop_env.iter().flatten() {
            command.env_remove(name);
        }
        let mut child =
            command.spawn().map_err(|error| failed(format!("it cannot be started: {error}")))?;
        let longest = self.timeouts[usize::from(interactive)];
        let output = timeout(longest, async {
            let mut output = Vec::new();
            if let Some(stdout) = child.stdout.take() {
                stdout.take(OUTPUT).read_to_end(&mut output).await?;
            }
            Ok::<_, std::io::Error>((child.wait().await?, output))
        });
        let output = output
            .await
            .map_err(|_| failed(format!("it did not end within {} s", longest.as_secs_f32())))?;
        let (status, output) = output.map_err(|error| failed(error.to_string()))?;
        if !status.success() {
            return Err(failed(format!("it failed ({status})")));
        }
        let printed = str::from_utf8(&output).ok();
        let printed: Option<Printed> = printed.and_then(|text| from_str(text).ok());
        let printed = printed.ok_or_else(|| failed("it printed no ExecCredential".to_owned()))?;
        let mut found =
            printed.status.ok_or_else(|| failed("its ExecCredential has no status".to_owned()))?;
        let has_certificate = found.client_certificate_data.is_some();
        if has_certificate != found.client_key_data.is_some() {
            return Err(failed("its ExecCredential has a certificate or a key alone".to_owned()));
        }
        if found.token.as_deref().unwrap_or_default().is_empty() && !has_certificate {
            return Err(failed(
                "its ExecCredential has neither a token nor a certificate".to_owned(),
            ));
        }
        if let Some(text) = &found.expiration_timestamp {
            let now = Timestamp::now();
            let expires: Timestamp = text
                .parse()
                .map_err(|_| failed("its expirationTimestamp is not a time".to_owned()))?;
            // A tenth early, so that no request is sent with credentials that expire on the way. The time is that of
            // another clock and may be over already.
            let left = Duration::try_from(expires.duration_since(now)).unwrap_or_default();
            found.renew_at = Some(now + (left * 9 / 10).max(PAUSE));
        }
        Ok(found)
    }
}

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;
