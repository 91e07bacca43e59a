//! The flags of the commands that ask: one set for all, as with kubectl.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Error;

const SOCKET: &str = "/run/cleat/api.sock";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Table { wide: bool },
    Json,
    Yaml,
    Name,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub socket: PathBuf,
    /// `None` means all.
    pub namespace: Option<String>,
    pub output: Output,
    pub labels: String,
    pub watch: bool,
    /// `-f` of logs.
    pub follow: bool,
    /// `-f` of apply.
    pub files: Vec<PathBuf>,
    pub previous: bool,
    pub timestamps: bool,
    pub container: Option<String>,
    pub tail: Option<u64>,
    pub since: Option<u64>,
    pub arguments: Vec<String>,
}

impl Options {
    pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Options, Error> {
        use lexopt::prelude::*;
        let mut options = Options {
            socket: std::env::var_os("CLEAT_SOCKET").unwrap_or_else(|| SOCKET.into()).into(),
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
            arguments: Vec::new(),
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Long("socket") => options.socket = parser.value()?.into(),
                Short('n') | Long("namespace") => options.namespace = Some(parser.value()?.string()?),
                Short('A') | Long("all-namespaces") => options.namespace = None,
                Short('o') | Long("output") => options.output = output(&parser.value()?.string()?)?,
                Short('l') | Long("selector") => options.labels = parser.value()?.string()?,
                Short('w') | Long("watch") => options.watch = true,
                // Of logs it is a switch, of apply it has a file behind it, which stands as an argument.
                Short('f') | Long("follow") => options.follow = true,
                Long("filename") => options.files.push(parser.value()?.into()),
                Short('p') | Long("previous") => options.previous = true,
                Long("timestamps") => options.timestamps = true,
                Short('c') | Long("container") => options.container = Some(parser.value()?.string()?),
                Long("tail") => options.tail = Some(parser.value()?.parse()?),
                Long("since") => options.since = Some(parser.value()?.parse()?),
                Value(argument) => options.arguments.push(argument.string()?),
                arg => return Err(arg.unexpected().into()),
            }
        }
        Ok(options)
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

    #[test]
    fn flags() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(OsString::from));
        let o = parse("pods -A -o wide -l app=web -w").expect("parses");
        assert_eq!(
            (o.namespace, o.output, o.labels.as_str(), o.watch),
            (None, Output::Table { wide: true }, "app=web", true)
        );
        let o = parse("-n ns web -fp -c main --tail 5 --since=60 --socket /s").expect("parses");
        assert_eq!((o.namespace.as_deref(), o.follow, o.previous), (Some("ns"), true, true));
        assert_eq!((o.container.as_deref(), o.tail, o.since), (Some("main"), Some(5), Some(60)));
        assert_eq!((o.arguments, o.socket), (vec!["web".to_owned()], "/s".into()));
        for (line, want) in [("pod/web", Some("web")), ("pod web", Some("web")), ("pod", None)] {
            let (kind, name) = parse(line).expect("parses").kind_and_name().expect("is one");
            assert_eq!((kind.as_str(), name.as_deref()), ("pod", want), "{line}");
        }
        assert!(parse("a b c").expect("parses").kind_and_name().is_err());
        assert!(parse("pods -o xml").is_err() && parse("pods --none").is_err() && parse("--tail x").is_err());
    }
}
