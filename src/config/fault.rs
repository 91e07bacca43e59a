//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// `line` is from 1; 0 means the file as a whole.
    File { path: PathBuf, line: u32 },
    /// The flag's name, without dashes.
    Flag(&'static str),
    /// A default, or the machine.
    Own,
}

/// One thing that is wrong. Shown as `FILE:LINE: FIELD: MESSAGE` or `--FLAG: MESSAGE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub origin: Origin,
    /// The field's path; empty where the file as a whole is meant.
    pub field: String,
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Flag(name) => return write!(f, "--{name}: {}", self.message),
            Origin::File { path, line: 0 } => write!(f, "{}: ", path.display())?,
            Origin::File { path, line } => write!(f, "{}:{line}: ", path.display())?,
            Origin::Own => {}
        }
        match self.field.as_str() {
            "" => f.write_str(&self.message),
            field => write!(f, "{field}: {}", self.message),
        }
    }
}

/// What follows a colon: one fault on the same line, more of them a line each.
pub(super) fn list(faults: &[Fault]) -> String {
    match faults {
        [one] => format!(" {one}"),
        many => many.iter().map(|fault| format!("\n  {fault}")).collect(),
    }
}
