//! The server: its options and its life cycle.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc as blocking};
use std::thread;
use std::time::Duration;

use axum::Router;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::audit::{Audit, Write};
use crate::connection::{Acceptor, Connections, Peer};
use crate::controllers;
use crate::direct::known;
use crate::error::ApiError;
use crate::faults::{Fault, Plan};
use crate::resources;
use crate::routes;
use crate::store::Store;
use crate::verbs;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The port on 127.0.0.1; 0 chooses a free one.
    pub port: u16,
    /// The time that each write takes, as in etcd. Concurrent writes wait in parallel. A client that disconnects in the
    /// meantime cancels its write.
    pub write_delay: Duration,
    /// The number of events in the watch cache of each kind. A watch from an older version gets 410.
    pub watch_cache: usize,
    /// The maximum number of concurrent requests, not counting watches. Further requests get 429.
    pub max_in_flight: usize,
    /// The time between bookmarks of a watch that asks for them.
    pub bookmark_every: Duration,
    /// Whether to run the controllers of Deployments, ReplicaSets, volumes, disruption budgets and resource
    /// claims.
    pub controllers: bool,
    /// The users for token and access reviews.
    pub users: Vec<User>,
    /// Whether the admission plugin Priority runs. Without it, pods keep the priority that they name.
    pub admits_priorities: bool,
}

impl Default for Options {
    /// No delay, 100,000 events per kind, 600 concurrent requests (kube-apiserver allows 400 reads and 200 writes), a
    /// bookmark per minute, controllers, and all admission plugins.
    fn default() -> Self {
        Options {
            port: 0,
            write_delay: Duration::ZERO,
            watch_cache: 100_000,
            max_in_flight: 600,
            bookmark_every: Duration::from_secs(60),
            controllers: true,
            users: Vec::new(),
            admits_priorities: true,
        }
    }
}

/// A user for TokenReviews and SubjectAccessReviews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The bearer token.
    pub token: String,
    /// The name.
    pub name: String,
    /// Whether access reviews allow everything. Otherwise they allow nothing.
    pub allowed: bool,
}

/// The number of worker threads of a server.
const THREADS: usize = 2;

/// The state that all tasks of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) store: Store,
    pub(crate) audit: Audit,
    pub(crate) faults: Plan,
    pub(crate) in_flight: AtomicUsize,
    /// The token and access reviews that were answered.
    pub(crate) reviews: Mutex<Vec<Value>>,
    users: Mutex<Vec<User>>,
    paused: watch::Sender<bool>,
    connections: Arc<Connections>,
}

impl Shared {
    pub(crate) fn users(&self) -> MutexGuard<'_, Vec<User>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the server is paused.
    pub(crate) async fn unpaused(&self) {
        if *self.paused.borrow() {
            // The sender lives as long as this.
            let _ = self.paused.subscribe().wait_for(|paused| !paused).await;
        }
    }
}

enum Command {
    Restart { down: Duration, done: blocking::Sender<io::Result<()>> },
    Stop,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct ApiServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    handle: Handle,
    commands: mpsc::UnboundedSender<Command>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl ApiServer {
    /// Starts a server on its own threads. It has the namespaces default, kube-system, kube-public and kube-node-lease,
    /// and the priority classes of the system.
    ///
    /// # Errors
    /// If the port is in use or threads cannot be started.
    pub fn start(mut options: Options) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("apiserver")
            .enable_all()
            .build()?;
        let bound = {
            let _context = runtime.enter();
            listen((Ipv4Addr::LOCALHOST, options.port).into())
        };
        let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = match bound {
            Ok(bound) => bound,
            Err(error) => {
                // The caller may be in a runtime of its own, where dropping this one would panic.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let shared = Arc::new(Shared {
            store: Store::new(options.watch_cache, options.admits_priorities),
            audit: Audit::new(),
            faults: Plan::default(),
            in_flight: AtomicUsize::new(0),
            reviews: Mutex::default(),
            users: Mutex::new(std::mem::take(&mut options.users)),
            paused: watch::Sender::new(false),
            connections: Arc::default(),
            options,
        });
        prepare(&shared.store).map_err(io::Error::other)?;
        let handle = runtime.handle().clone();
        if shared.options.controllers {
            handle.spawn(controllers::run(shared.clone()));
        }
        let (commands, received) = mpsc::unbounded_channel();
        let served = shared.clone();
        let thread = thread::Builder::new().name("apiserver".into()).spawn(move || {
            runtime.block_on(run(&served, listener, address, received));
            served.connections.reset_all();
            runtime.shutdown_timeout(Duration::from_secs(1));
        })?;
        Ok(ApiServer { shared, address, handle, commands, thread: Mutex::new(Some(thread)) })
    }

    /// The base URL: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the users for token and access reviews.
    pub fn set_users(&self, users: Vec<User>) {
        *self.shared.users() = users;
    }

    /// Resets all connections and stops serving. Calls in the process still work.
    pub fn stop(&self) {
        // An error means that it has stopped already.
        let _ = self.commands.send(Command::Stop);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Resets all connections, refuses new ones for the time `down`, and serves again on the same port with the same
    /// objects and an empty watch cache: a watch from a version before the restart gets 410. Returns when the server
    /// listens again.
    ///
    /// # Errors
    /// If another process takes the port in the meantime, or the server has been stopped.
    pub fn restart(&self, down: Duration) -> io::Result<()> {
        let (done, answered) = blocking::channel();
        let stopped = || io::Error::other("the server is stopped");
        self.commands.send(Command::Restart { down, done }).map_err(|_| stopped())?;
        answered.recv().map_err(|_| stopped())?
    }

    /// Drops all events so far: a new watch, or the next page of a list, from an older version gets 410. A running
    /// watch that has not sent these events yet ends.
    pub fn forget_events(&self) {
        self.shared.store.forget(self.version());
    }

    /// Stalls the watch cache of a kind, as on a server that lags behind etcd: watches get no further events, and watches
    /// from version 0 show the present state, until [`ApiServer::resume_cache`]. Gets and lists are quorum reads and not
    /// affected. A streaming list without a version waits up to 3 seconds.
    ///
    /// # Errors
    /// If the server does not serve the kind.
    pub fn stall_cache(&self, kind: &str) -> Result<(), ApiError> {
        self.shared.store.of(known(kind)?).set_stalled(true);
        Ok(())
    }

    /// Lets the watch cache of a kind catch up.
    ///
    /// # Errors
    /// If the server does not serve the kind.
    pub fn resume_cache(&self, kind: &str) -> Result<(), ApiError> {
        self.shared.store.of(known(kind)?).set_stalled(false);
        Ok(())
    }

    /// Resets all open connections.
    pub fn reset_connections(&self) {
        self.shared.connections.reset_all();
    }

    /// Delays all responses and events until [`ApiServer::resume`]. Requests that arrive in the meantime wait and are
    /// served afterwards. Calls in the process and controllers are not affected.
    pub fn pause(&self) {
        self.shared.paused.send_replace(true);
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.shared.paused.send_replace(false);
    }

    /// Replaces all faults and their counts. `seed` determines the outcome of probabilities.
    pub fn set_faults(&self, seed: u64, faults: Vec<Fault>) {
        self.shared.faults.set(seed, faults);
    }

    /// The number of times each fault has fired, in the order of [`ApiServer::set_faults`].
    pub fn faults_fired(&self) -> Vec<u64> {
        self.shared.faults.fired()
    }

    /// The writes of clients so far, including refused writes. Writes of the server's controllers and of kubelets are
    /// not recorded. Two concurrent writes may appear in either order. The record grows until
    /// [`ApiServer::take_writes`].
    pub fn writes(&self) -> Vec<Write> {
        self.shared.audit.writes()
    }

    /// The number of recorded writes. O(1).
    pub fn write_count(&self) -> usize {
        self.shared.audit.len()
    }

    /// Returns the writes of clients so far and clears the record, so that each write is returned once.
    pub fn take_writes(&self) -> Vec<Write> {
        self.shared.audit.take()
    }

    /// The TokenReviews and SubjectAccessReviews so far, as they were answered. The record grows with each review.
    pub fn reviews(&self) -> Vec<Value> {
        self.shared.reviews.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The latest resourceVersion.
    pub fn version(&self) -> u64 {
        self.shared.store.clock.version()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Creates the objects that every cluster has.
fn prepare(store: &Store) -> Result<(), ApiError> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = json!({"metadata": {"name": name}});
        verbs::create(store, resources::namespaces(), "", namespace)?;
    }
    for (name, value) in
        [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]
    {
        let class = json!({"metadata": {"name": name}, "value": value});
        verbs::create(store, resources::priority_classes(), "", class)?;
    }
    Ok(())
}

/// Serves until the command to stop.
async fn run(
    shared: &Arc<Shared>,
    mut listener: TcpListener,
    address: SocketAddr,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    loop {
        let router = Router::new().fallback(routes::handle).with_state(shared.clone());
        let acceptor = Acceptor { listener, connections: shared.connections.clone() };
        let service = router.into_make_service_with_connect_info::<Peer>();
        let command = tokio::select! {
            _ = axum::serve(acceptor, service) => return,
            command = commands.recv() => command,
        };
        let Some(Command::Restart { down, done }) = command else { return };
        shared.connections.reset_all();
        sleep(down).await;
        shared.store.forget(shared.store.clock.version());
        match listen_again(address).await {
            Ok(again) => {
                listener = again;
                // The caller may have stopped waiting.
                let _ = done.send(Ok(()));
            }
            Err(error) => {
                let _ = done.send(Err(error));
                return;
            }
        }
    }
}

/// The number of connections that may wait to be accepted. A client beyond this limit waits a second before it tries
/// again.
const BACKLOG: u32 = 4096;

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Listens again on a port that was in use until now.
async fn listen_again(address: SocketAddr) -> io::Result<TcpListener> {
    let mut tries = 0;
    loop {
        match listen(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < 100 => tries += 1,
            bound => return bound,
        }
        sleep(Duration::from_millis(10)).await;
    }
}
