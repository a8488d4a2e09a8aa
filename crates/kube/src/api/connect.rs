//! Where the API server is, and who asks it.

use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig};

use super::{Api, ConnectError, Limits};

/// The way to an API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connection {
    /// The kubeconfig file. Without one, a process in a pod uses its service account, and any other process uses the
    /// files that `$KUBECONFIG` names, or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, or `None` for its current context.
    pub context: Option<String>,
    /// The address of the API server, which overrides the kubeconfig's. Without a kubeconfig, nobody is authenticated.
    pub server: Option<String>,
}

impl Connection {
    /// Returns the connection of an address without authentication, as of a server for tests.
    #[must_use]
    pub fn unauthenticated(server: impl Into<String>) -> Connection {
        Connection { server: Some(server.into()), ..Connection::default() }
    }

    /// Reads the configuration and creates a client. Sends nothing. Call it within a tokio runtime.
    ///
    /// # Errors
    ///
    /// There is no configuration, or it is invalid.
    pub async fn open(&self, limits: Limits) -> Result<Api, ConnectError> {
        Api::new(self.config().await?, limits)
    }

    async fn config(&self) -> Result<kube::Config, ConnectError> {
        let failed = |error: &dyn std::fmt::Display| ConnectError::new(error.to_string());
        let server = self.server.as_deref().map(str::parse::<http::Uri>).transpose();
        let server = server.map_err(|error| failed(&format!("server address: {error}")))?;
        let options = KubeConfigOptions { context: self.context.clone(), ..Default::default() };
        let mut config = match (&self.kubeconfig, &server) {
            (Some(path), _) => {
                let read = Kubeconfig::read_from(path).map_err(|error| failed(&error))?;
                kube::Config::from_custom_kubeconfig(read, &options)
                    .await
                    .map_err(|error| failed(&error))?
            }
            (None, Some(server)) => return Ok(kube::Config::new(server.clone())),
            (None, None) if self.context.is_some() => {
                kube::Config::from_kubeconfig(&options).await.map_err(|error| failed(&error))?
            }
            (None, None) => match kube::Config::incluster() {
                Ok(config) => config,
                // The process does not run in a pod.
                Err(_) => {
                    kube::Config::from_kubeconfig(&options).await.map_err(|error| failed(&error))?
                }
            },
        };
        if let Some(server) = server {
            config.cluster_url = server;
        }
        Ok(config)
    }
}
