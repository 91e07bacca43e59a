//! One connection, with TLS or without, over TCP or a unix socket. Nothing here waits, but for
//! [`Connection::wait`].

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub address: Address,
    /// The client's certificate, DER. It was checked against the authorities of the listener.
    pub certificate: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    /// The user that the process at the other end of a unix socket runs as.
    Unix {
        uid: u32,
    },
}

pub struct Connection {
    transport: Transport,
    address: Address,
}

enum Transport {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<tls::Session>),
}

impl Connection {
    /// # Errors
    /// When the socket can't be set up.
    pub fn tcp(socket: TcpStream, peer: SocketAddr) -> io::Result<Connection> {
        socket.set_nonblocking(true)?;
        // Answers are written whole, and frames of terminals must not wait for more.
        socket.set_nodelay(true)?;
        Ok(Connection { transport: Transport::Tcp(socket), address: Address::Tcp(peer) })
    }

    /// # Errors
    /// When the socket can't be set up.
    pub fn unix(socket: UnixStream) -> io::Result<Connection> {
        socket.set_nonblocking(true)?;
        let uid = crate::sys::peer_uid(&socket)?;
        Ok(Connection { transport: Transport::Unix(socket), address: Address::Unix { uid } })
    }

    /// TLS over a TCP connection; the handshake comes with the reading.
    #[cfg(feature = "tls")]
    pub fn secured(self, config: std::sync::Arc<rustls::ServerConfig>) -> io::Result<Connection> {
        let Transport::Tcp(socket) = self.transport else {
            return Err(io::Error::other("there is no TLS over unix sockets"));
        };
        let session = Box::new(tls::Session::new(socket, config)?);
        Ok(Connection { transport: Transport::Tls(session), address: self.address })
    }

    pub fn address(&self) -> Address {
        self.address
    }

    pub fn peer(&self) -> Peer {
        let certificate = match &self.transport {
            #[cfg(feature = "tls")]
            Transport::Tls(session) => session.certificate(),
            _ => None,
        };
        Peer { address: self.address, certificate }
    }

    /// Reads what is there. 0 is the end.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there yet.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.transport {
            Transport::Tcp(socket) => socket.read(buffer),
            Transport::Unix(socket) => socket.read(buffer),
            #[cfg(feature = "tls")]
            Transport::Tls(session) => session.read(buffer),
        }
    }

    /// Takes as much as there is room for.
    ///
    /// # Errors
    /// `WouldBlock` when there is none.
    pub fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match &mut self.transport {
            Transport::Tcp(socket) => socket.write(buffer),
            Transport::Unix(socket) => socket.write(buffer),
            #[cfg(feature = "tls")]
            Transport::Tls(session) => session.write(buffer),
        }
    }

    /// # Errors
    /// `WouldBlock` when something that was taken could not be sent yet.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.transport {
            Transport::Tcp(_) | Transport::Unix(_) => Ok(()),
            #[cfg(feature = "tls")]
            Transport::Tls(session) => session.flush(),
        }
    }

    /// Whether something that was taken could not be sent yet.
    pub fn is_pending(&self) -> bool {
        match &self.transport {
            Transport::Tcp(_) | Transport::Unix(_) => false,
            #[cfg(feature = "tls")]
            Transport::Tls(session) => session.is_pending(),
        }
    }

    /// Bytes that TLS has read and holds before the handshake is done.
    pub fn held(&self) -> usize {
        match &self.transport {
            Transport::Tcp(_) | Transport::Unix(_) => 0,
            #[cfg(feature = "tls")]
            Transport::Tls(session) => session.held(),
        }
    }

    /// Tells the other side that nothing more comes.
    pub fn finish(&mut self) {
        // It may be gone; then it needs not be told.
        let _ = match &mut self.transport {
            Transport::Tcp(socket) => socket.shutdown(std::net::Shutdown::Write),
            Transport::Unix(socket) => socket.shutdown(std::net::Shutdown::Write),
            #[cfg(feature = "tls")]
            Transport::Tls(session) => session.finish(),
        };
    }

    /// Waits for room, if `writing`, else for something to read; `false` when the time is over.
    ///
    /// # Errors
    /// Of the system.
    pub fn wait(&self, writing: bool, time: Duration) -> io::Result<bool> {
        let flags = if writing { PollFlags::OUT } else { PollFlags::IN };
        wait(&mut [PollFd::from_borrowed_fd(self.as_fd(), flags)], time)
    }

    /// The other side has gone, or will send nothing more.
    pub fn has_hung_up(&self) -> bool {
        let flags = PollFlags::RDHUP;
        let mut fds = [PollFd::from_borrowed_fd(self.as_fd(), flags)];
        wait(&mut fds, Duration::ZERO).unwrap_or(true)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.transport {
            Transport::Tcp(socket) => socket.as_fd(),
            Transport::Unix(socket) => socket.as_fd(),
            #[cfg(feature = "tls")]
            Transport::Tls(session) => session.socket.as_fd(),
        }
    }
}

/// `poll` that goes on after a signal; whether anything happened.
pub fn wait(fds: &mut [PollFd<'_>], time: Duration) -> io::Result<bool> {
    let time = Timespec::try_from(time).ok();
    match poll(fds, time.as_ref()) {
        Ok(n) => Ok(n > 0),
        // The caller looks, finds nothing, and waits again.
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// Whether nothing is there, or nothing has room, for now.
pub fn is_pending(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;
    use std::sync::Arc;

    use rustls::{ServerConfig, ServerConnection};

    /// Plain bytes that wait for their turn to be sent.
    const BUFFER: usize = 32 << 10;
    /// What a client may send until the handshake is done: certificates with all they are signed by.
    const MAX_HANDSHAKE: usize = 32 << 10;

    pub struct Session {
        pub socket: TcpStream,
        tls: ServerConnection,
        /// Bytes of the handshake.
        received: usize,
    }

    impl Session {
        pub fn new(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Session> {
            let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
            tls.set_buffer_limit(Some(BUFFER));
            Ok(Session { socket, tls, received: 0 })
        }

        pub fn certificate(&self) -> Option<Vec<u8>> {
            let chain = self.tls.peer_certificates().filter(|_| !self.tls.is_handshaking())?;
            chain.first().map(|certificate| certificate.to_vec())
        }

        pub fn held(&self) -> usize {
            if self.tls.is_handshaking() { self.received } else { 0 }
        }

        pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            loop {
                match self.tls.reader().read(buffer) {
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    // An end without a farewell: what came before was whole or is found not to be.
                    Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                    result => return result,
                }
                if self.received > MAX_HANDSHAKE && self.tls.is_handshaking() {
                    return Err(io::Error::new(ErrorKind::InvalidData, "the handshake is too long"));
                }
                let n = self.tls.read_tls(&mut self.socket)?;
                self.received = self.received.saturating_add(n);
                let result = self.tls.process_new_packets();
                // Answers of the handshake, and what tells why there is none.
                match self.flush() {
                    Err(e) if !is_pending(&e) => return Err(e),
                    _ => {}
                }
                if let Err(e) = result {
                    return Err(io::Error::new(ErrorKind::InvalidData, e));
                }
            }
        }

        pub fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            // What was taken before goes first, or there would be no end to what is taken.
            self.flush()?;
            match self.tls.writer().write(buffer) {
                Ok(0) if !buffer.is_empty() => Err(ErrorKind::WouldBlock.into()),
                Ok(n) => match self.flush() {
                    Err(e) if !is_pending(&e) => Err(e),
                    _ => Ok(n),
                },
                Err(e) => Err(e),
            }
        }

        pub fn flush(&mut self) -> io::Result<()> {
            while self.tls.wants_write() {
                if self.tls.write_tls(&mut self.socket)? == 0 {
                    return Err(ErrorKind::WriteZero.into());
                }
            }
            Ok(())
        }

        pub fn is_pending(&self) -> bool {
            self.tls.wants_write()
        }

        pub fn finish(&mut self) -> io::Result<()> {
            self.tls.send_close_notify();
            self.flush()?;
            self.socket.shutdown(std::net::Shutdown::Write)
        }
    }
}
