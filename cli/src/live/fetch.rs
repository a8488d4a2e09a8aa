//! Reads the objects of a running cluster, for the commands that otherwise read files.

use portolan_kube::api::{Api, Connection, Limits, Resource};
use portolan_kube::mirror::{Copies, Pauses};

use crate::error::CommandError;
use crate::server::{Fetched, Server};

use super::{live, runtime};

impl Server {
    pub(crate) fn connection(&self) -> Connection {
        let mut connection = Connection::default();
        connection.kubeconfig = self.kubeconfig.clone();
        connection.context = self.context.clone();
        connection.server = self.master.clone();
        connection
    }
}

/// Schedulers do not read templates, and what-if questions create claims from them.
const RESOURCE_CLAIM_TEMPLATES: Resource = Resource {
    kind: "ResourceClaimTemplate",
    api_version: "resource.k8s.io/v1",
    plural: "resourceclaimtemplates",
    is_namespaced: true,
};

/// The kinds that the commands use.
const KINDS: [Resource; 22] = [
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
    Resource::DEVICE_CLASSES,
    Resource::RESOURCE_SLICES,
    Resource::RESOURCE_CLAIMS,
    RESOURCE_CLAIM_TEMPLATES,
];

async fn open(server: &Server) -> Result<Api, CommandError> {
    let opened = server.connection().open(Limits::default()).await;
    opened.map_err(|error| live(format!("{error}: or read files with -f")))
}

/// Lists all objects of the cluster, and follows them from then on.
pub(crate) async fn follow(server: &Server) -> Result<Copies, CommandError> {
    let copies = Copies::start(&open(server).await?, &KINDS, &Pauses::default()).map_err(live)?;
    copies.listed().await.map_err(live)?;
    Ok(copies)
}

/// Lists all objects of the cluster. The lists are read one after the other, so an object may refer to one that was
/// created or deleted in between.
pub(crate) fn fetch(server: &Server) -> Result<Fetched, CommandError> {
    runtime()?.block_on(async {
        let api = open(server).await?;
        let mut fetched = Fetched { lists: Vec::new(), notes: Vec::new() };
        for kind in KINDS {
            let path = kind.collection(None);
            match api.get(&path).await {
                Ok(list) => fetched.lists.push((path, list.into())),
                Err(error) if matches!(error.code(), Some(403 | 404)) => {
                    fetched.notes.push(format!("without {}: {error}", kind.plural));
                }
                Err(error) => return Err(CommandError::Live(format!("{path}: {error}"))),
            }
        }
        Ok(fetched)
    })
}
