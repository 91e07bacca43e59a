//! Where connections come from: TCP, with TLS or without, and unix sockets.

use std::fs::{self, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
#[cfg(feature = "tls")]
use std::sync::Arc;

use super::connection::Connection;
use super::reactor::Listen;
#[cfg(feature = "tls")]
use crate::server::tls::Acceptor;

pub struct Tcp(TcpListener);

impl Tcp {
    /// # Errors
    /// When it can't listen there.
    pub fn bind(address: SocketAddr) -> io::Result<Tcp> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Tcp(listener))
    }

    /// Where it listens, with the port that it was given.
    ///
    /// # Errors
    /// Of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// The same with TLS.
    #[cfg(feature = "tls")]
    pub fn secured(self, acceptor: Arc<Acceptor>) -> Tls {
        Tls { tcp: self, acceptor }
    }
}

impl Listen for Tcp {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn accept(&self) -> io::Result<Connection> {
        let (socket, peer) = self.0.accept()?;
        Connection::tcp(socket, peer)
    }
}

#[cfg(feature = "tls")]
pub struct Tls {
    tcp: Tcp,
    acceptor: Arc<Acceptor>,
}

#[cfg(feature = "tls")]
impl Listen for Tls {
    fn fd(&self) -> BorrowedFd<'_> {
        self.tcp.fd()
    }

    fn accept(&self) -> io::Result<Connection> {
        self.tcp.accept()?.secured(self.acceptor.current(std::time::Instant::now()))
    }
}

pub struct Unix(UnixListener);

impl Unix {
    /// Listens at `path` for processes that the mode lets in; what was there before is replaced.
    ///
    /// # Errors
    /// When it can't listen there.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Unix> {
        // Nobody can connect before it has its mode, nor finds no socket there meanwhile.
        let fresh = path.with_extension("new");
        match fs::remove_file(&fresh) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(&fresh)?;
        fs::set_permissions(&fresh, Permissions::from_mode(mode))?;
        fs::rename(&fresh, path)?;
        listener.set_nonblocking(true)?;
        Ok(Unix(listener))
    }
}

impl Listen for Unix {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn accept(&self) -> io::Result<Connection> {
        let (socket, _) = self.0.accept()?;
        Connection::unix(socket)
    }
}
