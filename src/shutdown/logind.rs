//! The thread that has logind wait, and hears from it (systemd.io, "Inhibitor Locks";
//! pkg/kubelet/nodeshutdown/systemd). What breaks off is begun anew.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam::channel::Sender;

use super::{Event, Lock};
use crate::dbus::{self, Address, Connection, Message, Value};
use crate::disk;

const LOGIND: &str = "org.freedesktop.login1";
const LOGIND_PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
const SYSTEMD: &str = "org.freedesktop.systemd1";
const SYSTEMD_PATH: &str = "/org/freedesktop/systemd1";
const SYSTEMD_MANAGER: &str = "org.freedesktop.systemd1.Manager";
const SIGHUP: i32 = 1;

/// Where logind is told how long it has to wait, at best for good, else until the next boot; and in what
/// file, the kubelet's, so that one of an earlier kubelet says nothing else.
const DROP_INS: [&str; 2] = ["/etc/systemd/logind.conf.d", "/run/systemd/logind.conf.d"];
const DROP_IN: &str = "99-kubelet.conf";
/// Beyond what pods get, for the API server to hear of the last ones.
const MARGIN: Duration = Duration::from_secs(5);
/// How long logind may take to read it.
const RELOAD: Duration = Duration::from_secs(10);
const RELOAD_STEP: Duration = Duration::from_millis(100);
/// Between two tries: doubled each time.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

pub struct Settings {
    /// How long the machine is to wait.
    pub time: Duration,
    pub tell: Sender<Event>,
}

pub struct Watch {
    settings: Settings,
    drop_ins: Vec<PathBuf>,
    /// What is held while the machine isn't shutting down.
    lock: Option<Lock>,
    /// It is shutting down, as was told last.
    shutting_down: bool,
    /// What was said of its waiting time last.
    said: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Bus(#[from] dbus::Error),
    #[error("logind's answer to {0} isn't what it should be")]
    Unexpected(&'static str),
    #[error("logind has gone, or another has come")]
    Another,
    /// The agent ends.
    #[error("nobody hears of it any more")]
    Unheard,
}

impl Watch {
    pub fn new(settings: Settings) -> Watch {
        let drop_ins = DROP_INS.map(PathBuf::from).to_vec();
        Watch { settings, drop_ins, lock: None, shutting_down: false, said: None }
    }

    /// Runs as long as the agent does.
    pub fn run(mut self) {
        let mut told = None;
        let mut wait = RETRY;
        loop {
            let mut ready = false;
            let why = match self.session(&mut ready) {
                Error::Unheard => return,
                why => why.to_string(),
            };
            if ready {
                (told, wait) = (None, RETRY);
            }
            if told.as_ref() != Some(&why) {
                log::warn!("pods are not sure to get their time when the machine shuts down: {why}; it is tried again");
            }
            told = Some(why);
            std::thread::sleep(wait);
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    /// Listens until something breaks. `ready`: it has begun to.
    fn session(&mut self, ready: &mut bool) -> Error {
        match self.try_session(ready) {
            Ok(never) => match never {},
            Err(why) => why,
        }
    }

    fn try_session(&mut self, ready: &mut bool) -> Result<std::convert::Infallible, Error> {
        let mut bus = Connection::open(&Address::system()?)?;
        // First of all, so that nothing goes unheard.
        bus.add_match(&format!("type='signal',sender='{LOGIND}',interface='{MANAGER}',member='PrepareForShutdown'"))?;
        bus.add_match(&format!(
            "type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='{LOGIND}'"
        ))?;
        let shutting_down = preparing(&mut bus)?;
        // Anybody may send a signal; the bus says who did.
        let owner = bus.owner(LOGIND)?;
        if !shutting_down {
            self.ensure_time(&mut bus)?;
            self.lock = Some(inhibit(&mut bus)?);
        }
        self.tell(shutting_down)?;
        *ready = true;
        log::info!("logind tells of shutdowns, and waits for pods to end");
        loop {
            let Some(message) = bus.receive(None)? else { continue };
            if message.is("org.freedesktop.DBus", "NameOwnerChanged")
                && message.sender.as_deref() == Some("org.freedesktop.DBus")
            {
                match message.args().get(2) {
                    // It has come because it was asked.
                    Some(Value::Text(new)) if *new == owner => continue,
                    _ => return Err(Error::Another),
                }
            }
            if !message.is(MANAGER, "PrepareForShutdown") || message.sender.as_deref() != Some(&owner) {
                continue;
            }
            let [Value::Bool(begins)] = message.args() else { return Err(Error::Unexpected("PrepareForShutdown")) };
            if !begins {
                // Before anything else: another shutdown may follow at once.
                match inhibit(&mut bus) {
                    Ok(lock) => self.lock = Some(lock),
                    Err(e) => {
                        self.tell(*begins)?;
                        return Err(e);
                    }
                }
            }
            self.tell(*begins)?;
        }
    }

    fn tell(&mut self, shutting_down: bool) -> Result<(), Error> {
        if std::mem::replace(&mut self.shutting_down, shutting_down) == shutting_down {
            return Ok(());
        }
        let event = if shutting_down { Event::Begins(self.lock.take()) } else { Event::Cancelled };
        self.settings.tell.send(event).map_err(|_| Error::Unheard)
    }

    /// Has logind wait long enough, if it doesn't. If that can't be, what there is is used.
    fn ensure_time(&mut self, bus: &mut Connection) -> Result<(), Error> {
        let (before, needed) = (inhibit_delay(bus)?, self.settings.time);
        if before >= needed {
            self.said = None;
            return Ok(());
        }
        let why = match write_drop_in(&self.drop_ins, needed.saturating_add(MARGIN)) {
            Ok(path) => match reload(bus, needed) {
                Ok(true) => {
                    log::info!("logind waits for {} s now, as {} says", needed.as_secs(), path.display());
                    self.said = None;
                    return Ok(());
                }
                Ok(false) => format!("{} says so, but logind doesn't go by it", path.display()),
                Err(Error::Bus(e @ dbus::Error::Answer { .. })) => format!("having logind reload: {e}"),
                Err(e) => return Err(e),
            },
            Err((path, e)) => format!("writing {}: {e}", path.display()),
        };
        let (now, needed) = (inhibit_delay(bus)?.as_secs(), needed.as_secs());
        let text = format!(
            "logind waits for {now} s at most when the machine shuts down, but pods are to get {needed} s ({why}): set \
             InhibitDelayMaxSec={needed} in the section [Login] of /etc/systemd/logind.conf, or shorten the periods"
        );
        if self.said.as_ref() != Some(&text) {
            log::error!("{text}");
        }
        self.said = Some(text);
        Ok(())
    }
}

/// Has logind read its configuration, and waits until it goes by it. Returns whether it does.
fn reload(bus: &mut Connection, needed: Duration) -> Result<bool, Error> {
    let unit =
        vec![Value::Text("systemd-logind.service".to_owned()), Value::Text("all".to_owned()), Value::I32(SIGHUP)];
    bus.call(Message::call(SYSTEMD, SYSTEMD_PATH, SYSTEMD_MANAGER, "KillUnit", unit))?;
    let until = Instant::now() + RELOAD;
    while inhibit_delay(bus)? < needed {
        if Instant::now() >= until {
            return Ok(false);
        }
        std::thread::sleep(RELOAD_STEP);
    }
    Ok(true)
}

fn inhibit(bus: &mut Connection) -> Result<Lock, Error> {
    let arguments = ["shutdown", "cleat", "Pods need time to end", "delay"];
    let body = arguments.map(|text| Value::Text(text.to_owned())).to_vec();
    let mut answer = bus.call(Message::call(LOGIND, LOGIND_PATH, MANAGER, "Inhibit", body))?;
    answer.fds.pop().map(Lock).ok_or(Error::Unexpected("Inhibit"))
}

/// How long logind waits for locks at most.
fn inhibit_delay(bus: &mut Connection) -> Result<Duration, Error> {
    match property(bus, "InhibitDelayMaxUSec")? {
        Value::U64(micros) => Ok(Duration::from_micros(micros)),
        _ => Err(Error::Unexpected("InhibitDelayMaxUSec")),
    }
}

/// Whether a shutdown has begun already.
fn preparing(bus: &mut Connection) -> Result<bool, Error> {
    match property(bus, "PreparingForShutdown")? {
        Value::Bool(preparing) => Ok(preparing),
        _ => Err(Error::Unexpected("PreparingForShutdown")),
    }
}

fn property(bus: &mut Connection, name: &'static str) -> Result<Value, Error> {
    let body = [MANAGER, name].map(|text| Value::Text(text.to_owned())).to_vec();
    let get = Message::call(LOGIND, LOGIND_PATH, "org.freedesktop.DBus.Properties", "Get", body);
    match bus.call(get)?.body.and_then(|mut body| body.pop()) {
        Some(Value::Variant(value)) => Ok(*value),
        _ => Err(Error::Unexpected(name)),
    }
}

/// Writes how long logind is to wait, to the first of the directories that can be written to.
fn write_drop_in(directories: &[PathBuf], time: Duration) -> Result<PathBuf, (PathBuf, io::Error)> {
    let text =
        format!("# Written by cleat, as its grace periods ask for.\n[Login]\nInhibitDelayMaxSec={}\n", time.as_secs());
    let write = |directory: &Path| {
        fs::create_dir_all(directory)?;
        disk::write_atomic(&directory.join(DROP_IN), text.as_bytes(), 0o644)
    };
    let mut first = None;
    for directory in directories {
        let path = directory.join(DROP_IN);
        match write(directory) {
            Ok(()) => return Ok(path),
            Err(e) => _ = first.get_or_insert((path, e)),
        }
    }
    Err(first.unwrap_or_else(|| (DROP_IN.into(), io::ErrorKind::NotFound.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drop_in_goes_where_it_can() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, good) = (dir.path().join("file"), dir.path().join("run/logind.conf.d"));
        fs::write(&file, "").expect("writes");
        let written = write_drop_in(&[file.join("d"), good.clone()], Duration::from_secs(35)).expect("is written");
        assert_eq!(written, good.join("99-kubelet.conf"));
        let text = fs::read_to_string(&written).expect("reads");
        assert!(text.ends_with("\n[Login]\nInhibitDelayMaxSec=35\n"), "{text}");
        let (path, _) = write_drop_in(&[file.join("d"), file.join("e")], Duration::ZERO).expect_err("can't be");
        assert_eq!(path, file.join("d/99-kubelet.conf"), "the first one's reason is told");
    }
}
