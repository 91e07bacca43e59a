//! A program that is run for what it says: its input is streamed to it, its time and its output
//! are bounded, and nothing of it is left when the call returns.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};

/// What is read of the input at once.
const CHUNK: usize = 64 << 10;
/// How much of what it says on standard error is kept.
const MAX_STDERR: usize = 4 << 10;

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub time: Duration,
    /// Bytes on standard output.
    pub output: usize,
}

#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    /// The beginning of it.
    pub stderr: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it can't be started: {0}")]
    Start(io::Error),
    #[error("it was not done after {} seconds and was stopped", .0.as_secs())]
    Time(Duration),
    #[error("it said more than {0} bytes and was stopped")]
    Output(usize),
    #[error("reading its input: {0}")]
    Input(io::Error),
    #[error("talking to it: {0}")]
    Io(#[from] io::Error),
}

/// Runs `command` with what `input` holds on its standard input.
///
/// # Errors
/// When it can't be run, takes too long, or says too much. How it ended is in the output.
pub fn run(command: &mut Command, input: &mut dyn Read, limits: Limits) -> Result<Output, Error> {
    let deadline = Instant::now() + limits.time;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, so that what it starts ends with it.
    let child = command.process_group(0).spawn().map_err(Error::Start)?;
    let mut running = Running(child);
    let mut talk = Talk::new(&mut running.0, input)?;
    while !talk.is_over() {
        let left = deadline.checked_duration_since(Instant::now()).ok_or(Error::Time(limits.time))?;
        talk.step(left, limits.output)?;
    }
    let (stdout, stderr) = (std::mem::take(&mut talk.stdout.text), std::mem::take(&mut talk.stderr.text));
    drop(talk);
    // It has closed its ends, which a program does by ending.
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = running.0.try_wait()? {
            return Ok(Output { status, stdout, stderr: String::from_utf8_lossy(&stderr).trim().to_owned() });
        }
        if Instant::now() >= deadline {
            return Err(Error::Time(limits.time));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// Ends the program, and what it has started, when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // The group is gone when all of it has ended.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        if let Err(e) = self.0.wait() {
            log::warn!("waiting for process {}: {e}", self.0.id());
        }
    }
}

struct Stream<R> {
    /// `None` when it has come to its end.
    from: Option<R>,
    text: Vec<u8>,
}

struct Talk<'i> {
    stdin: Option<ChildStdin>,
    input: &'i mut dyn Read,
    /// What has been read of the input and not been taken yet.
    chunk: Vec<u8>,
    taken: usize,
    stdout: Stream<std::process::ChildStdout>,
    stderr: Stream<std::process::ChildStderr>,
}

impl<'i> Talk<'i> {
    fn new(child: &mut Child, input: &'i mut dyn Read) -> io::Result<Talk<'i>> {
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        for fd in [stdin.as_ref().map(AsFd::as_fd), stdout.as_ref().map(AsFd::as_fd), stderr.as_ref().map(AsFd::as_fd)]
            .into_iter()
            .flatten()
        {
            fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        }
        let stream = |from| Stream { from, text: Vec::new() };
        let stderr = Stream { from: stderr, text: Vec::new() };
        Ok(Talk { stdin, input, chunk: Vec::new(), taken: 0, stdout: stream(stdout), stderr })
    }

    fn is_over(&self) -> bool {
        self.stdout.from.is_none() && self.stderr.from.is_none()
    }

    /// Waits until something can be done, at most `left`, and does it.
    fn step(&mut self, left: Duration, max_output: usize) -> Result<(), Error> {
        self.fill()?;
        let mut fds = Vec::with_capacity(3);
        fds.extend(self.stdin.as_ref().map(|fd| PollFd::new(fd, PollFlags::OUT)));
        fds.extend(self.stdout.from.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.extend(self.stderr.from.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let left =
            Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::Io(e.into())),
        }
        self.write()?;
        self.stdout.read(max_output + 1)?;
        if self.stdout.text.len() > max_output {
            return Err(Error::Output(max_output));
        }
        Ok(self.stderr.read(MAX_STDERR)?)
    }

    /// Reads more of the input once the last of it has been taken.
    fn fill(&mut self) -> Result<(), Error> {
        if self.stdin.is_none() || self.taken < self.chunk.len() {
            return Ok(());
        }
        self.chunk.resize(CHUNK, 0);
        self.taken = 0;
        let n = loop {
            match self.input.read(&mut self.chunk) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                result => break result.map_err(Error::Input)?,
            }
        };
        self.chunk.truncate(n);
        if n == 0 {
            self.stdin = None;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(stdin) = &mut self.stdin else { return Ok(()) };
        match stdin.write(self.chunk.get(self.taken..).unwrap_or_default()) {
            Ok(n) => self.taken += n,
            // It wants no more; how it ends tells why.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => self.stdin = None,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

impl<R: Read> Stream<R> {
    /// Takes what is there, and keeps the first `max` bytes of all.
    fn read(&mut self, max: usize) -> io::Result<()> {
        let Some(from) = &mut self.from else { return Ok(()) };
        let mut buffer = [0; 4096];
        match from.read(&mut buffer) {
            Ok(0) => self.from = None,
            Ok(n) => {
                let room = max.saturating_sub(self.text.len()).min(n);
                self.text.extend_from_slice(buffer.get(..room).unwrap_or_default());
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use std::path::Path;

    use super::*;

    /// Writes a program by another process: one that is forked here meanwhile would hold it open,
    /// and it could not be run.
    pub fn write_program(path: &Path, text: &str) {
        let mut write = shell(r#"cat > "$0" && chmod 755 "$0""#);
        let output = run(write.arg(path), &mut text.as_bytes(), LIMITS).expect("runs");
        assert!(output.status.success(), "{}", output.stderr);
    }

    const LIMITS: Limits = Limits { time: Duration::from_secs(20), output: 1 << 20 };

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn input_goes_in_and_output_comes_out() {
        // More than all pipes hold, both ways at once.
        let text = "0123456789abcdef".repeat(40_000);
        let output = run(&mut shell("cat; echo done >&2; exit 3"), &mut text.as_bytes(), LIMITS).expect("runs");
        assert_eq!(output.status.code(), Some(3));
        assert!(output.stdout == text.as_bytes());
        assert_eq!(output.stderr, "done");
    }

    #[test]
    fn one_that_reads_nothing_is_no_error() {
        let text = "x".repeat(1 << 20);
        let output = run(&mut shell("exec <&-; echo enough"), &mut text.as_bytes(), LIMITS).expect("runs");
        assert_eq!((output.status.success(), output.stdout.as_slice()), (true, b"enough\n".as_slice()));
    }

    #[test]
    fn bounds() {
        let started = Instant::now();
        let limits = Limits { time: Duration::from_millis(100), ..LIMITS };
        // What it started holds the pipes; it has to end too.
        let error = run(&mut shell("sleep 60 & sleep 60"), &mut io::empty(), limits).expect_err("takes too long");
        assert!(matches!(error, Error::Time(_)), "{error}");
        let error = run(&mut shell("exec >&- 2>&-; exec sleep 60"), &mut io::empty(), limits).expect_err("stays");
        assert!(matches!(error, Error::Time(_)), "{error}");
        let limits = Limits { output: 1000, ..LIMITS };
        let error = run(&mut shell("yes"), &mut io::empty(), limits).expect_err("says too much");
        assert!(matches!(error, Error::Output(1000)), "{error}");
        let many = "yes | head -c 100000 >&2";
        assert_eq!(run(&mut shell(many), &mut io::empty(), LIMITS).expect("runs").stderr.len(), MAX_STDERR - 1);
        assert!(started.elapsed() < Duration::from_secs(20), "one was waited for");
    }

    #[test]
    fn errors() {
        let error = run(&mut Command::new("/no/such/program"), &mut io::empty(), LIMITS).expect_err("is not there");
        assert!(matches!(error, Error::Start(_)), "{error}");
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("broken"))
            }
        }
        let error = run(&mut shell("cat"), &mut Broken, LIMITS).expect_err("can't be read");
        assert!(matches!(error, Error::Input(_)), "{error}");
    }
}
