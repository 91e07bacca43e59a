//! `cleat cp`: files to and from a container, through a tar in it.

mod pack;
mod place;
mod unpack;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use place::{Place, Remote};

use super::Error;
use super::client::Client;
use super::options::Options;
use super::remote::{self, Process};

/// Bytes of what a tar complains of.
const MAX_COMPLAINT: u64 = 64 << 10;

pub fn run(client: &Client, options: &Options) -> Result<(), Error> {
    let (from, to) = match options.arguments.as_slice() {
        [from, to] => (Place::parse(from, options.namespace()), Place::parse(to, options.namespace())),
        _ => return Err(Error::Usage("there have to be two places: cp web:/etc/hosts hosts".to_owned())),
    };
    match (from?, to?) {
        (Place::Here(from), Place::There(to)) => upload(client, options, &from, &to),
        (Place::There(from), Place::Here(to)) => download(client, options, &from, &to),
        _ => Err(Error::Usage("one of the two places has to be in a pod, POD:PATH, and the other one here".to_owned())),
    }
}

fn upload(client: &Client, options: &Options, from: &Path, to: &Remote) -> Result<(), Error> {
    // What is named as the place to put it in, or under which name.
    let is_directory =
        match start(client, options, to, false, &["test", "-d", &to.path])?.run(&mut io::sink(), &mut io::sink()) {
            Ok(()) => true,
            Err(Error::Exit(1)) => false,
            other => return other,
        };
    let (directory, name) = match is_directory {
        true => (to.path.clone(), place::name_of(from)?),
        false => {
            let (directory, name) = to.split();
            (directory.to_owned(), name.to_owned())
        }
    };
    if name == "." {
        return Err(Error::Usage(format!("{}: there is no such directory in the container", to.path)));
    }
    let (ours, theirs) = pair()?;
    let process = start(client, options, to, true, &["tar", "-xmf", "-", "-C", &directory])?;
    process.feed(theirs)?;
    let from = from.to_owned();
    let packing = thread::spawn(move || pack::pack(&from, &name, io::BufWriter::new(ours)));
    let ended = finish(process, &mut io::sink());
    let packed = packing.join().unwrap_or_else(|_| Err(Error::Refused("the packing failed".to_owned())));
    // A tar that ended early is the reason why nobody took the rest.
    match (ended, packed) {
        (Ok(()), packed) => packed,
        (Err(e), Ok(()) | Err(Error::Write(_))) => Err(e),
        (Err(_), Err(e)) => Err(e),
    }
}

fn download(client: &Client, options: &Options, from: &Remote, to: &Path) -> Result<(), Error> {
    let (directory, name) = from.split();
    let wanted = format!("./{name}");
    let process = start(client, options, from, false, &["tar", "-cf", "-", "-C", directory, &wanted])?;
    let to = match to.is_dir() && name != "." {
        true => to.join(name),
        false => to.to_owned(),
    };
    let (mut ours, theirs) = pair()?;
    let prefix = name.to_owned();
    let unpacking = thread::spawn(move || unpack::unpack(theirs, &prefix, &to));
    let ended = finish(process, &mut ours);
    // The end for the one who unpacks.
    drop(ours);
    let unpacked = unpacking.join().unwrap_or_else(|_| Err(Error::Refused("the unpacking failed".to_owned())));
    // Who unpacks gives up because of what came, and then nobody takes the rest.
    match (ended, unpacked) {
        (Err(Error::Write(_)) | Ok(()), unpacked) => unpacked,
        (Err(e), _) => Err(e),
    }
}

fn start(client: &Client, options: &Options, place: &Remote, stdin: bool, command: &[&str]) -> Result<Process, Error> {
    let options = Options { namespace: Some(place.namespace.clone()), ..options.clone() };
    Process::start(client, &remote::command(&options, &place.pod, stdin, command), stdin, false)
}

/// Waits for the tar in the container, and says what it complained of.
fn finish(process: Process, stdout: &mut impl Write) -> Result<(), Error> {
    let mut complaint = Complaint(Vec::new());
    let result = process.run(stdout, &mut complaint);
    let complaint = String::from_utf8_lossy(&complaint.0).trim_end().to_owned();
    match result {
        Err(Error::Exit(code)) => Err(Error::Refused(format!("tar in the container ended with {code}: {complaint}"))),
        Err(Error::Refused(why)) if why.contains("tar") => {
            Err(Error::Refused(format!("{why} (cp needs a tar in the container)")))
        }
        result => {
            if !complaint.is_empty() {
                eprintln!("cleat: tar in the container: {complaint}");
            }
            result
        }
    }
}

/// The first part of what is written.
struct Complaint(Vec<u8>);

impl Write for Complaint {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MAX_COMPLAINT.saturating_sub(self.0.len() as u64);
        bytes.take(room).read_to_end(&mut self.0)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn pair() -> Result<(UnixStream, UnixStream), Error> {
    UnixStream::pair().map_err(Error::Write)
}
