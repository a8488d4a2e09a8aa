//! The API server of a running cluster, for the commands that otherwise read files.

use std::path::PathBuf;

use crate::error::CommandError;

/// How to reach an API server.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Server {
    /// Kubeconfig of a running cluster (default: the service account in a pod, else $KUBECONFIG or ~/.kube/config).
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Address of the API server, which overrides the kubeconfig's.
    #[arg(long, value_name = "URL")]
    pub(crate) master: Option<String>,
}

impl Server {
    /// Lists all objects of the cluster.
    #[cfg(feature = "cluster")]
    pub(crate) fn fetch(&self) -> Result<Fetched, CommandError> {
        crate::live::fetch::fetch(self)
    }

    /// Refuses to read a cluster.
    #[cfg(not(feature = "cluster"))]
    pub(crate) fn fetch(&self) -> Result<Fetched, CommandError> {
        Err(Absent::failure("a running cluster"))
    }
}

/// The objects of a cluster.
pub(crate) struct Fetched {
    /// A list of each kind, with the path that it was read from.
    pub(crate) lists: Vec<(String, Vec<u8>)>,
    /// Notes about the kinds that may not be read, or that the server does not have.
    pub(crate) notes: Vec<String>,
}

/// A command that this build does not have.
#[cfg(not(feature = "cluster"))]
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Absent {
    /// Arguments of the build with this command.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<std::ffi::OsString>,
}

#[cfg(not(feature = "cluster"))]
impl Absent {
    pub(crate) fn run(&self, name: &str) -> Result<std::process::ExitCode, CommandError> {
        let Absent { arguments: _ } = self;
        Err(Absent::failure(name))
    }

    fn failure(what: &str) -> CommandError {
        CommandError::Usage(format!(
            "{what} needs a build with the feature cluster: \
             cargo install --locked --path cli --features cluster"
        ))
    }
}
