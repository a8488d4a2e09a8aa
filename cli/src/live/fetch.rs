//! Reads the objects of a running cluster, for the commands that otherwise read files.

use bytes::Bytes;
use portolan_kube::api::{Connection, Limits, Resource};

use crate::error::Failure;

use super::{live, runtime};

/// How to reach an API server.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Server {
    /// Kubeconfig of a running cluster (default of `run`, `shadow` and `extender`: the service account in a pod, else $KUBECONFIG or
    /// ~/.kube/config).
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<std::path::PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Address of the API server, which overrides the kubeconfig's.
    #[arg(long, value_name = "URL")]
    pub(crate) master: Option<String>,
}

impl Server {
    /// Returns whether any part is given.
    pub(crate) fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some() || self.master.is_some()
    }

    pub(crate) fn connection(&self) -> Connection {
        let mut connection = Connection::default();
        connection.kubeconfig = self.kubeconfig.clone();
        connection.context = self.context.clone();
        connection.server = self.master.clone();
        connection
    }
}

/// The kinds that the commands use.
const KINDS: [Resource; 18] = [
    Resource::NODES,
    Resource::PODS,
    Resource::NAMESPACES,
    Resource::SERVICES,
    Resource::REPLICATION_CONTROLLERS,
    Resource::REPLICA_SETS,
    Resource::STATEFUL_SETS,
    Resource::DAEMON_SETS,
    Resource::PRIORITY_CLASSES,
    Resource::RUNTIME_CLASSES,
    Resource::POD_DISRUPTION_BUDGETS,
    Resource::PERSISTENT_VOLUMES,
    Resource::PERSISTENT_VOLUME_CLAIMS,
    Resource::STORAGE_CLASSES,
    Resource::CSI_NODES,
    Resource::CSI_DRIVERS,
    Resource::CSI_STORAGE_CAPACITIES,
    Resource::VOLUME_ATTACHMENTS,
];

/// The objects of a cluster.
pub(crate) struct Fetched {
    /// A list of each kind, with the path that it was read from.
    pub(crate) lists: Vec<(String, Bytes)>,
    /// Notes about the kinds that may not be read, or that the server does not have.
    pub(crate) notes: Vec<String>,
}

/// Lists all objects of the cluster. The lists are read one after the other, so an object may refer to one that was
/// created or deleted in between.
pub(crate) fn fetch(server: &Server) -> Result<Fetched, Failure> {
    runtime()?.block_on(async {
        let api = server.connection().open(Limits::default()).await.map_err(live)?;
        let mut fetched = Fetched { lists: Vec::new(), notes: Vec::new() };
        for kind in KINDS {
            let path = kind.collection(None);
            match api.get(&path).await {
                Ok(list) => fetched.lists.push((path, list)),
                Err(error) if matches!(error.code(), Some(403 | 404)) => {
                    fetched.notes.push(format!("without {}: {error}", kind.plural));
                }
                Err(error) => return Err(Failure::Live(format!("{path}: {error}"))),
            }
        }
        Ok(fetched)
    })
}
