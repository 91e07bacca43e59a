//! The little of URLs that probes need: the place of a request, and where a `Location` leads from it.

use std::net::IpAddr;

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub tls: bool,
    /// A name, or an address without brackets.
    pub host: String,
    pub port: u16,
    /// Host and port as the `Host` header shows them.
    pub authority: String,
    /// Path and query, as they stand in the request.
    pub target: String,
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.target)
    }
}

impl Url {
    pub fn new(tls: bool, host: &str, port: u16, path: &str) -> Url {
        let authority = match host.parse() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
            _ => format!("{host}:{port}"),
        };
        Url { tls, host: host.to_owned(), port, authority, target: target(path) }
    }

    /// Where `location` leads from here.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn join(&self, location: &str) -> Result<Url, String> {
        let location = location.split('#').next().unwrap_or_default();
        let (tls, rest) = match location.split_once(':') {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, _)) if is_scheme(scheme) => return Err(format!("a redirect to {scheme:?}")),
            _ => (self.tls, location),
        };
        if let Some(rest) = rest.strip_prefix("//") {
            let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            let (host, port) = split_authority(authority).ok_or_else(|| format!("a redirect to {location:?}"))?;
            let port = port.unwrap_or(if tls { 443 } else { 80 });
            return Ok(Url { tls, host, port, authority: authority.to_owned(), target: target(path) });
        }
        let (here, _) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let path = match rest.chars().next() {
            None => self.target.clone(),
            Some('/') => rest.to_owned(),
            Some('?') => format!("{here}{rest}"),
            Some(_) => format!("{}/{rest}", here.rsplit_once('/').map_or("", |(directory, _)| directory)),
        };
        Ok(Url { tls, target: target(&without_dots(&path)), ..self.clone() })
    }
}

fn is_scheme(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic())
        && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// `host`, `host:port`, `[v6]:port`, without the user that may stand before.
fn split_authority(authority: &str) -> Option<(String, Option<u16>)> {
    let authority = authority.rsplit_once('@').map_or(authority, |(_, authority)| authority);
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (host, after.strip_prefix(':'))
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None | Some("") => None,
        Some(port) => Some(port.parse().ok()?),
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// A path with its query as it may stand in a request: from a slash, without fragment, and with what
/// has no place there in percent notation.
fn target(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut out = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        out.push('/');
    }
    let bytes = path.as_bytes();
    for (i, b) in bytes.iter().enumerate() {
        let plain = match b {
            b'%' => bytes.get(i + 1..i + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)),
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => false,
            b => b.is_ascii_graphic(),
        };
        match plain {
            true => out.push(char::from(*b)),
            false => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

/// A path with its `.` and `..` resolved; the query stays as it is.
fn without_dots(path: &str) -> String {
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let mut out: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    out.pop();
                }
                if last {
                    out.push("");
                }
            }
            part => out.push(part),
        }
    }
    format!("/{}{query}", out.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let table = [
            ("", "/"),
            ("/", "/"),
            ("healthz", "/healthz"),
            ("/a?b=c&d=%20e", "/a?b=c&d=%20e"),
            ("/a b#c", "/a%20b"),
            ("?x=1", "/?x=1"),
            ("/100%", "/100%25"),
            ("/ü\r\nX: y", "/%C3%BC%0D%0AX:%20y"),
        ];
        for (path, want) in table {
            assert_eq!(target(path), want, "{path:?}");
        }
    }

    #[test]
    fn urls() {
        assert_eq!(Url::new(false, "10.0.0.1", 80, "/x").to_string(), "http://10.0.0.1:80/x");
        assert_eq!(Url::new(true, "::1", 8443, "").to_string(), "https://[::1]:8443/");
    }

    #[test]
    fn redirects() {
        let base = Url::new(false, "10.0.0.1", 8080, "/a/b?q=1");
        let table = [
            ("/x", Ok("http://10.0.0.1:8080/x")),
            ("/x/../y/./z", Ok("http://10.0.0.1:8080/y/z")),
            ("c", Ok("http://10.0.0.1:8080/a/c")),
            ("../c?d=..#e", Ok("http://10.0.0.1:8080/c?d=..")),
            ("..", Ok("http://10.0.0.1:8080/")),
            ("?r=2", Ok("http://10.0.0.1:8080/a/b?r=2")),
            ("", Ok("http://10.0.0.1:8080/a/b?q=1")),
            ("HTTPS://10.0.0.1/x", Ok("https://10.0.0.1/x")),
            ("http://other:81", Ok("http://other:81/")),
            ("//other/x?y", Ok("http://other/x?y")),
            ("http://[fe80::1]:8080/", Ok("http://[fe80::1]:8080/")),
            ("/a:b", Ok("http://10.0.0.1:8080/a:b")),
            ("ftp://10.0.0.1/", Err("a redirect to \"ftp\"")),
            ("http://10.0.0.1:99999/", Err("a redirect to \"http://10.0.0.1:99999/\"")),
            ("http:///x", Err("a redirect to \"http:///x\"")),
        ];
        for (location, want) in table {
            let joined = base.join(location).map(|url| url.to_string());
            assert_eq!(joined, want.map(str::to_owned).map_err(str::to_owned), "{location:?}");
        }
        assert_eq!(base.join("https://[::1]/").map(|u| (u.host, u.port)), Ok(("::1".to_owned(), 443)));
        assert_eq!(base.join("http://u:p@h:1/").map(|u| (u.host, u.port)), Ok(("h".to_owned(), 1)));
    }
}
