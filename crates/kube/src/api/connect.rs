//! The address and credentials of an API server.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::{Api, ConnectError, Limits};

/// The address of an API server, and the credentials to use there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connection {
    /// The kubeconfig file. Without one, a process in a pod uses its service account, and any other process uses the
    /// files that `$KUBECONFIG` names, or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, or `None` for its current context.
    pub context: Option<String>,
    /// The address of the API server, which overrides the kubeconfig's. Without a kubeconfig, requests are not
    /// authenticated.
    pub server: Option<String>,
}

impl Connection {
    /// Returns an unauthenticated connection to an address, such as that of a test server.
    #[must_use]
    pub fn unauthenticated(server: impl Into<String>) -> Connection {
        Connection { server: Some(server.into()), ..Connection::default() }
    }

    /// Reads the configuration and creates a client. Sends no request. Runs the exec plugin of the kubeconfig, if it
    /// has one. Call it within a tokio runtime.
    ///
    /// Certificate files that are replaced are read again within seconds. A plugin runs again when its credentials are
    /// about to expire, or when the server refuses them.
    ///
    /// # Errors
    ///
    /// There is no configuration, it is invalid, or its exec plugin fails or does not end in time.
    pub async fn open(&self, limits: Limits) -> Result<Api, ConnectError> {
        Api::open(self.config().await?, limits).await
    }

    /// Creates a client for the delegated authentication or authorization of requests to this process: with a
    /// kubeconfig, or else with the service account of the pod. Returns `None` if there is neither. Sends no request.
    /// Call it within a tokio runtime.
    ///
    /// The limits are those of kube-scheduler's servers, 200 requests a second and 400 at once, since clients determine
    /// the number of reviews.
    ///
    /// # Errors
    ///
    /// The kubeconfig cannot be read or is invalid.
    pub async fn delegated(kubeconfig: Option<&Path>) -> Result<Option<Api>, ConnectError> {
        let limits = Limits {
            in_flight: 64,
            qps: Some(200.0),
            burst: NonZeroU32::new(400).unwrap_or(NonZeroU32::MIN),
            timeout: Duration::from_secs(10),
            ..Limits::default()
        };
        match kubeconfig {
            Some(path) => {
                let kubeconfig = Some(path.to_owned());
                let connection = Connection { kubeconfig, ..Connection::default() };
                connection.open(limits).await.map(Some)
            }
            None if Connection::is_in_cluster() => {
                let config = kube::Config::incluster();
                let config = config.map_err(|error| ConnectError::new(error.to_string()))?;
                Api::new(config, limits).map(Some)
            }
            None => Ok(None),
        }
    }

    /// Returns whether the process runs in a pod. Its service account may still be unreadable.
    #[must_use]
    pub fn is_in_cluster() -> bool {
        std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
    }

    async fn config(&self) -> Result<kube::Config, ConnectError> {
        let failed = |error: &dyn std::fmt::Display| ConnectError::new(error.to_string());
        let server = self.server.as_deref().map(str::parse::<http::Uri>).transpose();
        let server = server.map_err(|error| failed(&format!("server address: {error}")))?;
        let options = KubeConfigOptions { context: self.context.clone(), ..Default::default() };
        let mut config = match (&self.kubeconfig, &server) {
            (Some(path), _) => {
                let read =
                    Kubeconfig::read_from(path).map_err(|error| unread(Some(path), &error))?;
                kube::Config::from_custom_kubeconfig(read, &options)
                    .await
                    .map_err(|error| unread(Some(path), &error))?
            }
            (None, Some(server)) if self.context.is_none() => {
                return Ok(kube::Config::new(server.clone()));
            }
            (None, None) if self.context.is_none() && Connection::is_in_cluster() => {
                kube::Config::incluster().map_err(|error| failed(&error))?
            }
            (None, _) => kube::Config::from_kubeconfig(&options)
                .await
                .map_err(|error| unread(None, &error))?,
        };
        if let Some(server) = server {
            config.cluster_url = server;
        }
        Ok(config)
    }
}

/// Returns the error of a kubeconfig without its lines, which contain secrets.
fn unread(path: Option<&Path>, error: &KubeconfigError) -> ConnectError {
    let file = path.map_or(String::new(), |path| format!("{}: ", path.display()));
    let why = match error {
        KubeconfigError::ReadConfig(error, path) => format!("{}: {error}", path.display()),
        KubeconfigError::Parse(_) => {
            let text = error.to_string();
            let place = text.find("line ").map(|at| &text[at..]);
            let place = place.and_then(|place| place.split([':', '\n']).next());
            let place = place.map_or(String::new(), |place| format!(", {place}"));
            format!("{file}not a valid kubeconfig{place}")
        }
        error => format!("{file}{error}"),
    };
    ConnectError::new(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_invalid_kubeconfig_is_not_quoted() {
        let folder = crate::testing::Folder::new();
        let path = folder.path("config");
        let text = "users:\n- name: a\n  user:\n    token: s3cret\n    username: [oops]\n";
        std::fs::write(&path, text).expect("written");
        let connection = Connection { kubeconfig: Some(path), ..Connection::default() };
        let error = connection.open(Limits::default()).await.expect_err("invalid").to_string();
        assert!(error.contains("not a valid kubeconfig, line 5 column "), "{error}");
        assert!(!error.contains("s3cret") && !error.contains("oops"), "{error}");
    }
}
