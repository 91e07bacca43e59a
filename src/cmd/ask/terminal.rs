//! The terminal of the one who asks: handed over as it is, and given back whatever happens.

use std::io::{self, IsTerminal};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

/// The terminal passes on every key, until this is dropped.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// # Errors
    /// When standard input is no terminal.
    pub fn enter() -> io::Result<Raw> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Raw { before })
    }

    /// Tells of each new size from now on; a signal that ends the program finds the terminal restored.
    ///
    /// # Errors
    /// When signals can't be heard.
    pub fn follow(&self, mut resized: impl FnMut((u16, u16)) + Send + 'static) -> io::Result<()> {
        let mut signals = Signals::new([SIGWINCH, SIGTERM, SIGHUP, SIGINT, SIGQUIT])?;
        let before = self.before.clone();
        std::thread::Builder::new().name("terminal".to_owned()).spawn(move || {
            for signal in signals.forever() {
                match signal {
                    SIGWINCH => size().into_iter().for_each(&mut resized),
                    signal => {
                        restore(&before);
                        std::process::exit(128 + signal);
                    }
                }
            }
        })?;
        Ok(())
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore(&self.before);
    }
}

fn restore(before: &Termios) {
    // There is nobody to tell, and nothing else to do.
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
}

/// Columns and rows.
pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdin()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

pub fn is_here() -> bool {
    io::stdin().is_terminal()
}
