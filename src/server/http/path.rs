//! Paths and queries of requests: percent-decoded, and refused where they could mean two things.

/// The decoded segments of a path. None of them is empty, `.` or `..`, or holds a slash or a control
/// character, so a segment can stand as a name, and several of them never lead upwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    segments: Vec<String>,
    /// Whether the path ends with a slash: `/logs/` is a directory.
    pub directory: bool,
}

impl Path {
    /// # Errors
    /// What is wrong with it.
    pub fn parse(raw: &str) -> Result<Path, &'static str> {
        let rest = raw.strip_prefix('/').ok_or("the path has to begin with a slash")?;
        let (rest, directory) = match rest.strip_suffix('/') {
            Some(rest) => (rest, true),
            None => (rest, rest.is_empty()),
        };
        let segments = match rest.is_empty() {
            true if raw.len() > 1 => return Err("the path has an empty segment"),
            true => Vec::new(),
            false => rest.split('/').map(segment).collect::<Result<_, _>>()?,
        };
        Ok(Path { segments, directory })
    }

    pub fn segments(&self) -> Vec<&str> {
        self.segments.iter().map(String::as_str).collect()
    }

    /// The segments with slashes between them, decoded: for log lines and messages.
    pub fn text(&self) -> String {
        format!("/{}", self.segments.join("/"))
    }
}

fn segment(raw: &str) -> Result<String, &'static str> {
    let text = percent_decode(raw, false).ok_or("the path has a broken percent escape")?;
    match text.as_str() {
        "" => Err("the path has an empty segment"),
        "." | ".." => Err("the path has a segment \".\" or \"..\""),
        text if text.contains('/') => Err("the path has an escaped slash"),
        text if text.contains(char::is_control) => Err("the path has a control character"),
        _ => Ok(text),
    }
}

/// The part behind the question mark.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    raw: String,
    pairs: Vec<(String, String)>,
}

impl Query {
    /// A pair that can't be decoded is left out, as in Go's net/url.
    pub fn parse(raw: &str) -> Query {
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Some((percent_decode(name, true)?, percent_decode(value, true)?))
        };
        let pairs = raw.split('&').filter(|part| !part.is_empty()).filter_map(pair).collect();
        Query { raw: raw.to_owned(), pairs }
    }

    /// The first value of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether it is there and says yes: Go's `strconv.ParseBool`, and an empty value.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|v| matches!(v, "" | "1" | "t" | "T" | "true" | "True" | "TRUE"))
    }

    /// As it came.
    pub fn raw(&self) -> &str {
        &self.raw
    }
}

/// `None` when an escape is broken, or what comes out is no UTF-8.
fn percent_decode(raw: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = raw.bytes();
    let mut out = Vec::with_capacity(raw.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digit = |b: Option<u8>| char::from(b?).to_digit(16).and_then(|d| u8::try_from(d).ok());
                let high = digit(bytes.next())?;
                high << 4 | digit(bytes.next())?
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    String::from_utf8(out).ok()
}

/// Escapes what must not stand in a path segment or a query value.
pub fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            byte => {
                let digit = |n: u8| char::from_digit(u32::from(n), 16).unwrap_or('0').to_ascii_uppercase();
                out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        type Want = Result<(&'static [&'static str], bool), &'static str>;
        let table: &[(&str, Want)] = &[
            ("/", Ok((&[], true))),
            ("/pods", Ok((&["pods"], false))),
            ("/logs/", Ok((&["logs"], true))),
            ("/exec/ns/p%6Fd/c", Ok((&["exec", "ns", "pod", "c"], false))),
            ("/a%20b/%C3%A4", Ok((&["a b", "ä"], false))),
            ("pods", Err("slash")),
            ("", Err("slash")),
            ("//", Err("empty")),
            ("//pods", Err("empty")),
            ("/a//b", Err("empty")),
            ("/a/../b", Err("\"..\"")),
            ("/a/%2e%2E/b", Err("\"..\"")),
            ("/a/.", Err("\".\"")),
            ("/a%2Fb", Err("escaped slash")),
            ("/a%2fb", Err("escaped slash")),
            ("/a%00b", Err("control")),
            ("/a%0Ab", Err("control")),
            ("/a%7f", Err("control")),
            ("/a%c0%af", Err("escape")),
            ("/a%2", Err("escape")),
            ("/a%zz", Err("escape")),
        ];
        for (raw, want) in table {
            match (Path::parse(raw), want) {
                (Ok(path), Ok((segments, directory))) => {
                    assert_eq!((path.segments().as_slice(), path.directory), (*segments, *directory), "{raw}");
                }
                (Err(got), Err(want)) => assert!(got.contains(want), "{raw}: {got}"),
                (got, _) => panic!("{raw}: {got:?}"),
            }
        }
    }

    #[test]
    fn queries() {
        let q = Query::parse("command=ls&command=-l+a%26b&tty&bad=%g&=x&limit=");
        assert_eq!(q.all("command").collect::<Vec<_>>(), ["ls", "-l a&b"]);
        assert_eq!((q.get("tty"), q.get("bad"), q.get("limit"), q.get("none")), (Some(""), None, Some(""), None));
        assert!(q.flag("tty") && !q.flag("none") && !Query::parse("tty=false").flag("tty"));
        assert_eq!(percent_encode("a b/ä-_.~"), "a%20b%2F%C3%A4-_.~");
    }
}
