//! `cleat port-forward`: ports of this machine that lead to those of a pod. Each connection has one of
//! its own to the agent, so that none waits for another, and a restart of the agent costs only those
//! that are open.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::client::Client;
use super::options::{Options, pod_name};
use super::spdy::{Frame, Session};
use super::{Error, path};
use crate::api::Resource;

const PROTOCOL: &str = "portforward.k8s.io";
/// Connections at the same time; the agent serves some more.
const MAX_OPEN: usize = 32;

pub fn run(client: &Client, options: &Options) -> Result<(), Error> {
    let (pod, ports) = match options.arguments.as_slice() {
        [pod, ports @ ..] if !ports.is_empty() => (pod_name(pod), ports),
        _ => return Err(Error::Usage("there have to be a pod and ports: port-forward web 8080:80".to_owned())),
    };
    let address = match options.address.as_deref() {
        None | Some("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(text) => text.parse().map_err(|_| Error::Usage(format!("--address {text} is no IP address")))?,
    };
    let ports: Vec<Ports> = ports.iter().map(|text| Ports::parse(text)).collect::<Result<_, _>>()?;
    let path = path(Resource::Pods, Some(options.namespace()), Some(pod));
    // That there is such a pod is told at once.
    client.json(&path, "")?;
    let open = Arc::new(AtomicUsize::new(0));
    let mut listening = Vec::new();
    for Ports { local, remote } in ports {
        let failed = |source| Error::Listen { address: SocketAddr::new(address, local).to_string(), source };
        let listener = TcpListener::bind((address, local)).map_err(failed)?;
        println!("Forwarding from {} -> {remote}", listener.local_addr().map_err(failed)?);
        let target = format!("{path}/portforward?ports={remote}");
        let (client, open) = (client.clone(), open.clone());
        listening.push(spawn(move || accept(&listener, &client, &target, remote, &open))?);
    }
    io::stdout().flush().map_err(Error::Write)?;
    // They don't end by themselves.
    listening.into_iter().for_each(|thread| _ = thread.join());
    Ok(())
}

/// `8080:80`, `80`, and `:80` for any port that is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ports {
    local: u16,
    remote: u16,
}

impl Ports {
    fn parse(text: &str) -> Result<Ports, Error> {
        let wrong = || Error::Usage(format!("{text:?} are no ports: 80, 8080:80 or :80"));
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
        let (local, remote) = text.split_once(':').unwrap_or((text, text));
        let local = if local.is_empty() { 0 } else { port(local)? };
        Ok(Ports { local, remote: port(remote)? })
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>, Error> {
    thread::Builder::new().name("forward".to_owned()).spawn(work).map_err(Error::Thread)
}

fn accept(listener: &TcpListener, client: &Client, target: &str, remote: u16, open: &Arc<AtomicUsize>) {
    for socket in listener.incoming() {
        let socket = match socket {
            Ok(socket) if open.fetch_add(1, Ordering::Relaxed) < MAX_OPEN => socket,
            Ok(_) => {
                open.fetch_sub(1, Ordering::Relaxed);
                eprintln!("cleat: a connection is refused: {MAX_OPEN} are open");
                continue;
            }
            Err(e) => {
                eprintln!("cleat: accepting a connection: {e}");
                // It may be for want of something that others give back.
                thread::sleep(std::time::Duration::from_millis(100));
                continue;
            }
        };
        let (client, target, count) = (client.clone(), target.to_owned(), open.clone());
        let thread = spawn(move || {
            if let Err(e) = forward(socket, &client, &target, remote) {
                eprintln!("cleat: port {remote}: {e}");
            }
            count.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(e) = thread {
            open.fetch_sub(1, Ordering::Relaxed);
            eprintln!("cleat: {e}");
        }
    }
}

/// One connection, to its end.
fn forward(mut socket: TcpStream, client: &Client, target: &str, remote: u16) -> Result<(), Error> {
    let mut session = Session::open(client, target, PROTOCOL)?;
    let port = remote.to_string();
    let mut stream = |kind| session.stream(&[("streamtype", kind), ("port", &port), ("requestid", "0")]);
    let error = stream("error")?;
    let data = stream("data")?;
    let writer = session.writer();
    writer.end(error).map_err(Error::Answer)?;
    let from = socket.try_clone().map_err(Error::Write)?;
    let up = spawn(move || {
        // What breaks off here is seen by the one who reads.
        let _ = writer.copy(data, from);
    })?;
    let result = down(&mut session, &mut socket, (error, data));
    // Who is still sending is told that nobody hears.
    let _ = socket.shutdown(Shutdown::Both);
    session.close();
    _ = up.join();
    result
}

fn down(session: &mut Session, socket: &mut impl Write, (error, data): (u32, u32)) -> Result<(), Error> {
    let mut complaint = Vec::new();
    let mut open = vec![error, data];
    while !open.is_empty() {
        let (stream, bytes, last) = match session.next_frame()? {
            None | Some(Frame::Away) => break,
            Some(Frame::Reset(stream)) => (stream, Vec::new(), true),
            Some(Frame::Data { stream, bytes, last }) => (stream, bytes, last),
            Some(_) => continue,
        };
        if stream == error {
            complaint.extend(bytes);
        } else if socket.write_all(&bytes).is_err() {
            // The client has gone away.
            return Ok(());
        }
        open.retain(|open| !(last && *open == stream));
    }
    match complaint.is_empty() {
        true => Ok(()),
        false => Err(Error::Refused(String::from_utf8_lossy(&complaint).trim_end().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports() {
        let table = [
            ("80", Some((80, 80))),
            ("8080:80", Some((8080, 80))),
            (":80", Some((0, 80))),
            ("80:", None),
            ("0", None),
            ("x", None),
            ("1:70000", None),
            ("1:2:3", None),
        ];
        for (text, want) in table {
            assert_eq!(Ports::parse(text).ok(), want.map(|(local, remote)| Ports { local, remote }), "{text}");
        }
    }
}
