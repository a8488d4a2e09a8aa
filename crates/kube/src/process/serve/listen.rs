//! Where a server listens: a TCP address or a Unix socket.
//!
//! The file of a Unix socket has the mode 0600 before the socket listens, so other users can never connect. A file that
//! is not a socket is never replaced, and a socket only if no process listens on it. Replacing takes no lock: if two
//! processes replace a socket at the same moment, one of them may get no clients.

use std::fmt;
use std::io;
use std::net::{AddrParseError, IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};

/// The prefix of a Unix socket's path.
const UNIX: &str = "unix:";

/// The maximum length of a Unix socket's path, in bytes.
const MAX_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Where a server listens.
///
/// ```
/// use portolan_kube::process::ListenAddress;
///
/// let tcp: ListenAddress = "127.0.0.1:10261".parse()?;
/// assert_eq!(tcp, ListenAddress::Tcp(([127, 0, 0, 1], 10261).into()));
/// let unix: ListenAddress = "unix:/run/portolan.sock".parse()?;
/// assert_eq!(unix, ListenAddress::Unix("/run/portolan.sock".into()));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenAddress {
    /// An IP address and a port. Port 0 selects a free port.
    Tcp(SocketAddr),
    /// The path of a Unix socket, to which only the user of this process and root can connect. The file is created, and
    /// removed at the end of the server.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Returns the address unless it is a Unix socket.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            ListenAddress::Tcp(address) => Some(*address),
            ListenAddress::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> ListenAddress {
        ListenAddress::Tcp(address)
    }
}

impl FromStr for ListenAddress {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<ListenAddress, AddrParseError> {
        match text.strip_prefix(UNIX) {
            Some(path) => Ok(ListenAddress::Unix(path.into())),
            None => text.parse().map(ListenAddress::Tcp),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => address.fmt(f),
            ListenAddress::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The path of a Unix socket is relative, too long, or contains a zero byte.
    #[error("a Unix socket needs an absolute path of at most {MAX_PATH} bytes")]
    Path,
    /// The path of a Unix socket is another kind of file, or a link.
    #[error("the file exists and is not a socket")]
    NotASocket,
    /// A process listens on the Unix socket.
    #[error("another process serves this socket")]
    InUse,
    /// The platform is not a Unix.
    #[error("Unix sockets are not supported on this platform")]
    Unsupported,
    /// The address is in use or not allowed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A listening socket.
pub(in crate::process) enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix {
        /// Before the listener, so that the file is removed before the socket is closed.
        _file: unix::SocketFile,
        listener: UnixListener,
    },
}

/// A connection.
pub(super) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    /// Returns whether the client used a loopback address, which a page in a browser of this machine reaches, too. No
    /// page reaches a Unix socket.
    pub(super) fn is_loopback(&self) -> bool {
        match self {
            Stream::Tcp(stream) => {
                stream.local_addr().is_ok_and(|here| here.ip().to_canonical().is_loopback())
            }
            #[cfg(unix)]
            Stream::Unix(_) => false,
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Listener {
        Listener::Tcp(listener)
    }
}

impl Listener {
    /// Listens on an address, and returns it with the port that was selected.
    pub(super) async fn bind(
        address: ListenAddress,
    ) -> Result<(Listener, ListenAddress), ListenError> {
        match &address {
            ListenAddress::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted).await?;
                let address = listener.local_addr()?.into();
                Ok((Listener::Tcp(listener), address))
            }
            #[cfg(unix)]
            ListenAddress::Unix(path) => {
                let (_file, listener) = unix::bind(path).await?;
                Ok((Listener::Unix { _file, listener }, address))
            }
            #[cfg(not(unix))]
            ListenAddress::Unix(_) => Err(ListenError::Unsupported),
        }
    }

    /// Accepts a connection, with its client's address. The clients of a Unix socket have none, and count as one
    /// client: they are the same user.
    pub(super) async fn accept(&self) -> io::Result<(Stream, Option<IpAddr>)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok((Stream::Tcp(stream), Some(from.ip())))
            }
            #[cfg(unix)]
            Listener::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                Ok((Stream::Unix(stream), None))
            }
        }
    }
}

#[cfg(unix)]
mod unix {
    use std::fs::{self, Permissions};
    use std::io::{self, ErrorKind};
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
    use std::os::unix::net::SocketAddr;
    use std::path::{Path, PathBuf};

    use tokio::net::{UnixListener, UnixSocket, UnixStream};

    use super::ListenError;

    /// The backlog of tokio's listeners.
    const BACKLOG: u32 = 1_024;

    /// The file of a listening socket. It is removed when this is dropped, unless another process has replaced it.
    pub(in crate::process) struct SocketFile {
        path: PathBuf,
        /// The device and the inode, which is not reused while the socket is open.
        identity: (u64, u64),
    }

    impl SocketFile {
        fn of(path: &Path) -> io::Result<SocketFile> {
            Ok(SocketFile { path: path.to_owned(), identity: identity(path)? })
        }
    }

    impl Drop for SocketFile {
        fn drop(&mut self) {
            if identity(&self.path).is_ok_and(|now| now == self.identity) {
                let _ = fs::remove_file(&self.path);
            }
        }
    }

    fn identity(path: &Path) -> io::Result<(u64, u64)> {
        let file = fs::symlink_metadata(path)?;
        Ok((file.dev(), file.ino()))
    }

    pub(super) async fn bind(path: &Path) -> Result<(SocketFile, UnixListener), ListenError> {
        if !path.is_absolute() || SocketAddr::from_pathname(path).is_err() {
            return Err(ListenError::Path);
        }
        if let Ok(found) = fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                return Err(ListenError::NotASocket);
            }
            match UnixStream::connect(path).await {
                // No process listens.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    fs::remove_file(path)?;
                }
                // A process listens, and too many connections wait.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(ListenError::InUse);
                }
                Err(error) => return Err(error.into()),
                Ok(_) => return Err(ListenError::InUse),
            }
        }
        let socket = UnixSocket::new_stream()?;
        socket.bind(path)?;
        let file = SocketFile::of(path)?;
        // No client can connect before the socket listens.
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok((file, socket.listen(BACKLOG)?))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::Duration;

    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::super::connections::{Bounds, serve};
    use super::super::refusals::{Reason, Refusals};
    use crate::testing::Folder;

    const LONG: Duration = Duration::from_secs(20);

    async fn bind(path: impl Into<PathBuf>) -> Result<Listener, ListenError> {
        let bound = Listener::bind(ListenAddress::Unix(path.into())).await;
        bound.map(|(listener, _)| listener)
    }

    fn start(listener: Listener, connections: usize, refusals: &Refusals) -> JoinHandle<()> {
        let router = Router::new().route("/", get(|| async { "ok" }));
        let bounds = Bounds { connections, ..Bounds::default() };
        tokio::spawn(serve(listener, None, router, bounds, refusals.clone()))
    }

    async fn ask(path: &Path) -> String {
        let mut stream = UnixStream::connect(path).await.expect("connected");
        let request = b"GET / HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("sent");
        let mut answer = String::new();
        timeout(LONG, stream.read_to_string(&mut answer)).await.expect("in time").expect("text");
        answer
    }

    #[tokio::test]
    async fn requests_over_a_socket_of_mode_0600_are_answered_until_the_end() {
        let folder = Folder::new();
        let path = folder.path("s");
        let server = start(bind(&path).await.expect("bound"), 8, &Refusals::default());
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        // No browser sends requests to a socket, so the header Host is not checked.
        let answer = ask(&path).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
        server.abort();
        let _ = server.await;
        assert!(fs::symlink_metadata(&path).is_err(), "the file is removed");
    }

    #[tokio::test]
    async fn all_clients_of_a_socket_count_as_one() {
        let folder = Folder::new();
        let refusals = Refusals::default();
        let _server = start(bind(folder.path("s")).await.expect("bound"), 1, &refusals);
        let mut first = UnixStream::connect(folder.path("s")).await.expect("connected");
        assert!(ask(&folder.path("s")).await.ends_with("ok"));
        let read = timeout(LONG, first.read(&mut [0; 1])).await.expect("in time");
        assert!(matches!(read, Ok(0) | Err(_)), "closed");
        assert_eq!(refusals.of(Reason::Displaced), 1);
    }

    #[tokio::test]
    async fn a_socket_on_which_no_process_listens_is_replaced() {
        let folder = Folder::new();
        drop(std::os::unix::net::UnixListener::bind(folder.path("s")).expect("bound"));
        let _server = start(bind(folder.path("s")).await.expect("bound"), 8, &Refusals::default());
        assert!(ask(&folder.path("s")).await.ends_with("ok"));
    }

    #[tokio::test]
    async fn a_socket_of_another_server_is_refused() {
        let folder = Folder::new();
        let _server = start(bind(folder.path("s")).await.expect("bound"), 8, &Refusals::default());
        assert!(matches!(bind(folder.path("s")).await, Err(ListenError::InUse)));
        assert!(ask(&folder.path("s")).await.ends_with("ok"));
    }

    /// Other systems refuse the connection, as if no process listened.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_socket_of_a_server_that_does_not_accept_is_refused() {
        let folder = Folder::new();
        let other = tokio::net::UnixSocket::new_stream().expect("a socket");
        other.bind(folder.path("s")).expect("bound");
        let _other = other.listen(0).expect("listens");
        let _first = UnixStream::connect(folder.path("s")).await.expect("connected");
        assert!(matches!(bind(folder.path("s")).await, Err(ListenError::InUse)));
    }

    #[tokio::test]
    async fn a_file_that_is_not_a_socket_is_kept() {
        let folder = Folder::new();
        fs::write(folder.path("s"), "text").expect("written");
        assert!(matches!(bind(folder.path("s")).await, Err(ListenError::NotASocket)));
        assert_eq!(fs::read_to_string(folder.path("s")).expect("kept"), "text");

        let (target, link) = (folder.path("target"), folder.path("link"));
        drop(std::os::unix::net::UnixListener::bind(&target).expect("bound"));
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        assert!(matches!(bind(&link).await, Err(ListenError::NotASocket)));
        assert!(target.exists() && fs::read_link(&link).is_ok());
    }

    #[tokio::test]
    async fn the_file_of_another_server_is_not_removed_at_the_end() {
        let folder = Folder::new();
        let first = bind(folder.path("s")).await.expect("bound");
        fs::remove_file(folder.path("s")).expect("removed");
        let _second = bind(folder.path("s")).await.expect("bound");
        drop(first);
        assert!(folder.path("s").exists());
    }

    #[tokio::test]
    async fn a_path_must_be_absolute_and_short() {
        let folder = Folder::new();
        let mut longest = folder.path("s").into_os_string();
        longest.push("s".repeat(MAX_PATH - longest.len()));
        assert!(bind(&longest).await.is_ok());
        longest.push("s");
        let too_long = longest.into_string().expect("UTF-8");
        for path in [too_long.as_str(), "", "s", "/tmp/a\0b"] {
            assert!(matches!(bind(path).await, Err(ListenError::Path)), "{path}");
        }
    }
}
