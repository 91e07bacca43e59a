//! The flags of the commands that ask: of one meaning in all of them, as with kubectl.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::Arg;

use super::Error;

const SOCKET: &str = "/run/cleat/api.sock";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Table { wide: bool },
    Json,
    Yaml,
    Name,
}

/// A flag of some commands.
#[derive(Debug)]
pub struct Flag {
    pub long: &'static str,
    pub short: Option<char>,
    /// What stands behind it.
    pub value: Option<&'static str>,
    pub help: &'static str,
}

const fn flag(short: Option<char>, long: &'static str, value: Option<&'static str>, help: &'static str) -> Flag {
    Flag { long, short, value, help }
}

pub const FLAGS: &[Flag] = &[
    flag(Some('n'), "namespace", Some("NAMESPACE"), "of the objects, \"default\" unless given"),
    flag(Some('A'), "all-namespaces", None, "of all namespaces"),
    flag(Some('o'), "output", Some("FORMAT"), "wide, json, yaml or name"),
    flag(Some('l'), "selector", Some("LABELS"), "those with these labels: app=web,tier!=db"),
    flag(Some('w'), "watch", None, "go on with what changes"),
    flag(Some('f'), "follow", None, "go on with what is written"),
    flag(Some('f'), "filename", Some("FILE"), "a file of objects; - is standard input"),
    flag(Some('p'), "previous", None, "of the container before this one"),
    flag(None, "timestamps", None, "with the time of each line"),
    flag(None, "tail", Some("LINES"), "the last lines alone"),
    flag(None, "since", Some("SECONDS"), "what is not older"),
    flag(Some('c'), "container", Some("CONTAINER"), "a container of the pod, the first one unless given"),
    flag(None, "containers", None, "of each container"),
    flag(Some('i'), "stdin", None, "pass on standard input"),
    flag(Some('t'), "tty", None, "be its terminal"),
    flag(None, "address", Some("ADDRESS"), "where to listen, 127.0.0.1 unless given"),
    flag(None, "socket", Some("PATH"), "of the agent, /run/cleat/api.sock unless given"),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub socket: PathBuf,
    /// `None` means all.
    pub namespace: Option<String>,
    pub output: Output,
    pub labels: String,
    pub watch: bool,
    pub follow: bool,
    pub files: Vec<PathBuf>,
    pub previous: bool,
    pub timestamps: bool,
    pub container: Option<String>,
    pub tail: Option<u64>,
    pub since: Option<u64>,
    pub containers: bool,
    pub stdin: bool,
    pub tty: bool,
    pub address: Option<String>,
    pub arguments: Vec<String>,
    /// What stands behind `--`.
    pub rest: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            socket: SOCKET.into(),
            namespace: Some("default".to_owned()),
            output: Output::Table { wide: false },
            labels: String::new(),
            watch: false,
            follow: false,
            files: Vec::new(),
            previous: false,
            timestamps: false,
            container: None,
            tail: None,
            since: None,
            containers: false,
            stdin: false,
            tty: false,
            address: None,
            arguments: Vec::new(),
            rest: Vec::new(),
        }
    }
}

/// The command line of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    Help,
    Options(Box<Options>),
}

impl Options {
    /// `flags`: the long names of those that the command has, beside `--socket`.
    pub fn parse(flags: &[&str], args: impl Iterator<Item = OsString>) -> Result<Parsed, Error> {
        use lexopt::prelude::*;
        let mut options = Options::default();
        let mut args: Vec<OsString> = args.collect();
        if let Some(at) = args.iter().position(|arg| arg == "--") {
            let rest = args.split_off(at).into_iter().skip(1);
            options.rest = rest.map(|arg| arg.string()).collect::<Result<_, _>>()?;
        }
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            let name = match arg {
                Short('h') | Long("help") => return Ok(Parsed::Help),
                Value(argument) => {
                    options.arguments.push(argument.string()?);
                    continue;
                }
                arg => known(flags, &arg).ok_or_else(|| arg.unexpected())?,
            };
            match name {
                "socket" => options.socket = parser.value()?.into(),
                "namespace" => options.namespace = Some(parser.value()?.string()?),
                "all-namespaces" => options.namespace = None,
                "output" => options.output = output(&parser.value()?.string()?)?,
                "selector" => options.labels = parser.value()?.string()?,
                "watch" => options.watch = true,
                "follow" => options.follow = true,
                "filename" => options.files.push(parser.value()?.into()),
                "previous" => options.previous = true,
                "timestamps" => options.timestamps = true,
                "container" => options.container = Some(parser.value()?.string()?),
                "containers" => options.containers = true,
                "tail" => options.tail = Some(parser.value()?.parse()?),
                "since" => options.since = Some(parser.value()?.parse()?),
                "stdin" => options.stdin = true,
                "tty" => options.tty = true,
                "address" => options.address = Some(parser.value()?.string()?),
                name => return Err(Error::Usage(format!("--{name} is not understood"))),
            }
        }
        Ok(Parsed::Options(Box::new(options)))
    }

    /// Kind and name, `pod web` or `pod/web`.
    pub fn kind_and_name(&self) -> Result<(String, Option<String>), Error> {
        match self.arguments.as_slice() {
            [one] => Ok(match one.split_once('/') {
                Some((kind, name)) => (kind.to_owned(), Some(name.to_owned())),
                None => (one.clone(), None),
            }),
            [kind, name] => Ok((kind.clone(), Some(name.clone()))),
            _ => Err(Error::Usage("there have to be a kind and, it may be, a name: pods, pod web, pod/web".to_owned())),
        }
    }

    /// The namespace of one object.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// The one pod that a command is about, `web` or `pod/web`.
    pub fn pod(&self) -> Result<&str, Error> {
        match self.arguments.as_slice() {
            [pod] => Ok(pod_name(pod)),
            _ => Err(Error::Usage("there has to be one pod".to_owned())),
        }
    }
}

pub fn pod_name(text: &str) -> &str {
    ["pod/", "pods/", "po/"].iter().find_map(|kind| text.strip_prefix(kind)).unwrap_or(text)
}

/// The flag that this is, of those that a command has.
pub fn of<'f>(flags: &'f [&str]) -> impl Iterator<Item = &'static Flag> + use<'f> {
    FLAGS.iter().filter(move |flag| flag.long == "socket" || flags.contains(&flag.long))
}

/// The long name of the flag that this word is, if its value is the next word.
pub fn takes_value(flags: &[&str], word: &str) -> Option<&'static str> {
    let mut taking = of(flags).filter(|flag| flag.value.is_some());
    let found = match word.strip_prefix("--") {
        Some(long) => taking.find(|flag| flag.long == long),
        // The last of several letters.
        None => taking.find(|flag| flag.short.is_some_and(|short| word.ends_with(short))),
    };
    found.map(|flag| flag.long)
}

fn known(flags: &[&str], arg: &Arg<'_>) -> Option<&'static str> {
    let found = of(flags).find(|flag| match arg {
        Arg::Short(short) => flag.short == Some(*short),
        Arg::Long(long) => flag.long == *long,
        Arg::Value(_) => false,
    });
    found.map(|flag| flag.long)
}

fn output(text: &str) -> Result<Output, Error> {
    Ok(match text {
        "wide" => Output::Table { wide: true },
        "json" => Output::Json,
        "yaml" => Output::Yaml,
        "name" => Output::Name,
        text => return Err(Error::Usage(format!("-o {text}: there are wide, json, yaml and name"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[&str] = &[
        "namespace",
        "all-namespaces",
        "output",
        "selector",
        "watch",
        "follow",
        "previous",
        "tail",
        "since",
        "container",
        "stdin",
        "tty",
    ];

    fn parse(flags: &[&str], line: &str) -> Result<Options, Error> {
        match Options::parse(flags, line.split_whitespace().map(OsString::from))? {
            Parsed::Options(options) => Ok(*options),
            Parsed::Help => Err(Error::Usage("help".to_owned())),
        }
    }

    #[test]
    fn flags() {
        let parse_all = |line: &str| parse(ALL, line).expect("parses");
        let o = parse_all("pods -A -o wide -l app=web -w");
        assert_eq!(
            (o.namespace, o.output, o.labels.as_str(), o.watch),
            (None, Output::Table { wide: true }, "app=web", true)
        );
        let o = parse_all("-n ns web -fp -c main --tail 5 --since=60 --socket /s");
        assert_eq!((o.namespace(), o.follow, o.previous), ("ns", true, true));
        assert_eq!((o.container.as_deref(), o.tail, o.since), (Some("main"), Some(5), Some(60)));
        assert_eq!((o.arguments, o.socket), (vec!["web".to_owned()], "/s".into()));
        let o = parse_all("-it web -- sh -c -- -t");
        assert_eq!((o.stdin, o.tty, o.pod().ok(), o.rest.join(" ")), (true, true, Some("web"), "sh -c -- -t".into()));
        for (line, want) in [("pod/web", Some("web")), ("pod web", Some("web")), ("pod", None)] {
            let (kind, name) = parse_all(line).kind_and_name().expect("is one");
            assert_eq!((kind.as_str(), name.as_deref()), ("pod", want), "{line}");
        }
        assert!(parse_all("a b c").kind_and_name().is_err() && parse_all("a b").pod().is_err());
        for wrong in ["pods -o xml", "pods --none", "--tail x", "-n", "--help", "-f=x --address 1"] {
            assert!(parse(ALL, wrong).is_err(), "{wrong}");
        }
        // What one letter means is the command's.
        let o = parse(&["filename"], "-f a.yaml -f -").expect("parses");
        assert_eq!((o.files, o.follow), (vec!["a.yaml".into(), "-".into()], false));
        assert!(parse(&["filename"], "-w").is_err());
    }
}
