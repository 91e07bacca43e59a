//! The command line of `cleat run`: the kubelet's flags in the kubelet's syntax, and a few of our
//! own. What flags there are stands in `flag_table`; here they are parsed. Knows nothing of files.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;

use lexopt::Arg;

use super::duration::GoDuration;
use super::flag_table::FLAGS;
use super::flag_value::FlagValue;
use super::kubelet::KubeletConfiguration;

/// What a command line asks for.
#[derive(Debug)]
pub enum Parsed {
    /// `--help`: print [`help`].
    Help,
    Run(Box<Flags>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    #[error("unknown flag {flag}{}", hint(*nearest))]
    Unknown { flag: String, nearest: Option<&'static str> },
    #[error("--{flag} needs a value, as in --{flag}={}", kind.placeholder())]
    NoValue { flag: &'static str, kind: Kind },
    #[error("--{flag}: {message}")]
    Value { flag: &'static str, message: String },
    #[error("unexpected argument {0:?}; there are only flags here, and a boolean one takes its value as --flag=false")]
    Argument(String),
    #[error("the command line can't be read: {0}")]
    Malformed(String),
}

fn hint(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("; did you mean --{name}?"),
        None => "; --help lists the flags".to_owned(),
    }
}

/// What a flag takes for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Int,
    Text,
    Path,
    Duration,
    /// Comma-separated.
    List,
    /// `key=value`, comma-separated.
    Pairs,
    /// `signal<amount`, comma-separated.
    Thresholds,
}

impl Kind {
    fn placeholder(self) -> &'static str {
        match self {
            Kind::Bool => "true",
            Kind::Int => "N",
            Kind::Text => "TEXT",
            Kind::Path => "PATH",
            Kind::Duration => "DURATION",
            Kind::List => "A,B,...",
            Kind::Pairs => "KEY=VALUE,...",
            Kind::Thresholds => "SIGNAL<AMOUNT,...",
        }
    }
}

pub(super) type Set<T> = fn(&mut T, &[String]) -> Result<(), String>;

/// What a flag sets, from all the values that it was given, in order.
pub(super) enum Target {
    /// A field of the configuration file, by its path.
    Field(&'static str, Set<KubeletConfiguration>),
    /// Something that a file can't set.
    Own(Set<OwnFlags>),
    /// Known to the kubelet, without a use here; the reason is told.
    Ignored(&'static str),
}

pub(super) struct Flag {
    pub name: &'static str,
    pub kind: Kind,
    pub target: Target,
    pub help: &'static str,
}

/// What only the command line can set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnFlags {
    pub config: String,
    pub config_dir: String,
    pub root_dir: String,
    pub cert_dir: String,
    pub hostname_override: String,
    pub node_ip: String,
    pub node_labels: BTreeMap<String, String>,
    pub kubeconfig: String,
    pub bootstrap_kubeconfig: String,
    pub image_archive_dir: String,
    pub image_credential_provider_config: String,
    pub image_credential_provider_bin_dir: String,
    pub api_socket: Option<String>,
    pub api_port: Option<i64>,
    pub token_auth_file: String,
    pub manifest_url_ca_file: String,
    pub container_log_max_total_size: String,
    pub workers: Option<i64>,
    pub max_dead: Option<i64>,
    pub max_dead_each: Option<i64>,
    pub min_dead_age: GoDuration,
}

/// A parsed command line.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    pub own: OwnFlags,
    /// The flags that are there: an index into the table, and the values.
    given: BTreeMap<usize, Vec<String>>,
}

/// Parses the arguments after `run`. The first problem ends it; values of fields are only read by
/// [`Flags::apply`].
pub fn parse<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Result<Parsed, FlagError> {
    let mut parser = lexopt::Parser::from_args(args.into_iter().map(Into::into));
    let malformed = |e: lexopt::Error| FlagError::Malformed(e.to_string());
    let mut flags = Flags::default();
    while let Some(arg) = parser.next().map_err(malformed)? {
        let (index, flag) = match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Parsed::Help),
            Arg::Short('v') => find("v").ok_or_else(|| unknown("-v"))?,
            Arg::Short(c) => return Err(unknown(&format!("-{c}"))),
            Arg::Long(name) => find(name).ok_or_else(|| unknown(&format!("--{name}")))?,
            Arg::Value(value) => return Err(FlagError::Argument(value.to_string_lossy().into_owned())),
        };
        let value = match flag.kind {
            Kind::Bool => parser.optional_value().unwrap_or_else(|| "true".into()),
            kind => parser.value().map_err(|_| FlagError::NoValue { flag: flag.name, kind })?,
        };
        let value = value.into_string().map_err(|value| FlagError::Value {
            flag: flag.name,
            message: format!("{:?} is not UTF-8", value.to_string_lossy()),
        })?;
        flags.given.entry(index).or_default().push(value);
    }
    let mut own = OwnFlags::default();
    for (flag, values) in flags.iter() {
        if let Target::Own(set) = &flag.target {
            set(&mut own, values).map_err(|message| FlagError::Value { flag: flag.name, message })?;
        }
    }
    flags.own = own;
    Ok(Parsed::Run(Box::new(flags)))
}

impl Flags {
    fn iter(&self) -> impl Iterator<Item = (&'static Flag, &Vec<String>)> {
        self.given.iter().filter_map(|(i, values)| FLAGS.get(*i).map(|flag| (flag, values)))
    }

    /// Sets the fields that have flags over those of the files.
    pub fn apply(&self, to: &mut KubeletConfiguration) -> Result<(), FlagError> {
        for (flag, values) in self.iter() {
            if let Target::Field(_, set) = &flag.target {
                set(to, values).map_err(|message| FlagError::Value { flag: flag.name, message })?;
            }
        }
        Ok(())
    }

    /// Whether the flag is there, by its name without dashes.
    pub fn has(&self, name: &str) -> bool {
        self.iter().any(|(flag, _)| flag.name == name)
    }

    /// The fields that are set by flags.
    pub fn fields(&self) -> impl Iterator<Item = &'static str> {
        self.iter().filter_map(|(flag, _)| match flag.target {
            Target::Field(field, _) => Some(field),
            _ => None,
        })
    }

    /// The name of the flag that set a field, or the mapping or list that it is in.
    pub fn setter_of(&self, field: &str) -> Option<&'static str> {
        self.iter().find_map(|(flag, _)| match flag.target {
            Target::Field(of, _) => {
                let rest = field.strip_prefix(of)?;
                (rest.is_empty() || rest.starts_with(['.', '['])).then_some(flag.name)
            }
            _ => None,
        })
    }

    /// Names of given flags that set no field, and why they are ignored if they are.
    pub(super) fn without_field(&self) -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
        self.iter().filter_map(|(flag, _)| match flag.target {
            Target::Field(..) => None,
            Target::Own(_) => Some((flag.name, None)),
            Target::Ignored(why) => Some((flag.name, Some(why))),
        })
    }
}

/// As the kubelet does, `_` in a name counts as `-`.
fn find(name: &str) -> Option<(usize, &'static Flag)> {
    let same = |known: &str| {
        known.len() == name.len() && known.bytes().zip(name.bytes()).all(|(k, n)| k == n || (k == b'-' && n == b'_'))
    };
    FLAGS.iter().enumerate().find(|(_, flag)| same(flag.name))
}

fn unknown(flag: &str) -> FlagError {
    let name = flag.trim_start_matches('-');
    let near = FLAGS.iter().map(|f| (distance(f.name, name), f.name)).min();
    // A third of the name may be wrong, or it is another word.
    let nearest = near.filter(|(d, _)| d * 3 <= name.len()).map(|(_, name)| name);
    FlagError::Unknown { flag: flag.to_owned(), nearest }
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (slot, cb) in row.iter_mut().zip(std::iter::once(None).chain(b.chars().map(Some))) {
            let up = *slot;
            if let Some(cb) = cb {
                left = (left + 1).min(up + 1).min(diagonal + usize::from(ca != cb));
            }
            *slot = left;
            diagonal = up;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// The names of all flags.
pub fn names() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().map(|flag| flag.name)
}

/// The text of `cleat run --help`.
pub fn help() -> String {
    let mut out = String::from(
        "Keeps the pods of this node running.\n\nUsage: cleat run [flags]\n\n\
         Flags override the drop-in directory, which overrides the configuration file.\n\nFlags:\n",
    );
    for flag in FLAGS {
        let dashes = if flag.name == "v" { "  -v, --" } else { "      --" };
        let value = match flag.kind {
            Kind::Bool => String::new(),
            kind => format!(" {}", kind.placeholder()),
        };
        let left = format!("{dashes}{}{value}", flag.name);
        let gap = if left.len() >= HELP_COLUMN { format!("\n{:HELP_COLUMN$}", "") } else { String::new() };
        let _ = match flag.target {
            Target::Field(field, _) => writeln!(out, "{left:HELP_COLUMN$}{gap}{} (field {field})", flag.help),
            Target::Ignored(_) => writeln!(out, "{left:HELP_COLUMN$}{gap}{} (ignored)", flag.help),
            Target::Own(_) => writeln!(out, "{left:HELP_COLUMN$}{gap}{}", flag.help),
        };
    }
    let _ = writeln!(out, "{:HELP_COLUMN$}print this text", "  -h, --help");
    out
}

const HELP_COLUMN: usize = 44;

/// A setter of one flag: `set(&mut c.max_pods, values)`.
pub(super) fn set<T: FlagValue>(slot: &mut T, values: &[String]) -> Result<(), String> {
    *slot = T::read(values)?;
    Ok(())
}
