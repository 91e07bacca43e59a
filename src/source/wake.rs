//! Waking the thread of a source that sleeps.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Wakes a source's thread; dropping it ends the thread.
pub struct Waker(UnixStream);

impl Waker {
    /// Asks for a full reading now.
    pub fn read_now(&self) {
        // A full pipe means that the thread has been asked already.
        let _ = (&self.0).write(b"r");
    }
}

/// A waker, and what the thread waits on.
///
/// # Errors
/// When the process has too many files open.
pub fn pair() -> io::Result<(Waker, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((Waker(ours), theirs))
}

/// Takes what was asked for; `false` when the waker is gone.
pub fn asked(wake: &UnixStream) -> bool {
    let mut buffer = [0; 64];
    let mut wake = wake;
    matches!(wake.read(&mut buffer), Ok(n) if n > 0)
}

/// Sleeps so long, or until the waker is used; `false` when it is gone.
pub fn wait(wake: &UnixStream, time: Duration) -> bool {
    // No time at all would mean for ever.
    if let Err(e) = wake.set_read_timeout(Some(time.max(Duration::from_millis(1)))) {
        log::error!("waiting for {time:?}: {e}");
        return false;
    }
    let mut buffer = [0; 64];
    let mut wake = wake;
    match wake.read(&mut buffer) {
        Ok(n) => n > 0,
        Err(e) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn time_a_word_and_the_end_wake() {
        let (waker, wake) = pair().expect("a pair");
        assert!(wait(&wake, Duration::ZERO), "the time was over");
        let start = Instant::now();
        // However often it is asked for.
        (0..100_000).for_each(|_| waker.read_now());
        assert!(wait(&wake, Duration::from_secs(60)));
        drop(waker);
        while wait(&wake, Duration::from_secs(60)) {}
        assert!(start.elapsed() < Duration::from_secs(60), "it slept");
    }
}
