//! Reading a resolv.conf (resolv.conf(5), pkg/kubelet/network/dns).

use std::path::Path;

/// The nameserver that systemd-resolved offers to the node alone: nothing answers there in a pod's
/// network.
const STUBS: [&str; 2] = ["127.0.0.53", "127.0.0.54"];
/// The file in which systemd-resolved keeps the real ones.
const BEHIND_STUB: &str = "/run/systemd/resolve/resolv.conf";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvConf {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

/// Reads the text of a resolv.conf. Nameservers add up, the last `search` counts, and so does the
/// last of each option.
pub fn parse(text: &str) -> ResolvConf {
    let mut conf = ResolvConf::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => conf.servers.extend(words.next().map(str::to_owned)),
            Some("search") => {
                // With or without a dot at its end, it is the same domain.
                let domains = words.filter(|w| *w != ".").map(|w| w.strip_suffix('.').unwrap_or(w).to_owned());
                conf.searches = domains.collect();
            }
            Some("options") => words.for_each(|w| set_option(&mut conf.options, w.to_owned())),
            _ => {}
        }
    }
    conf
}

/// Adds an option, in place of one of the same name.
pub fn set_option(options: &mut Vec<String>, option: String) {
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    match options.iter_mut().find(|old| name(old) == name(&option)) {
        Some(old) => *old = option,
        None => options.push(option),
    }
}

/// The file that pods' name servers are to be taken from: `configured`, whose text is `text`, unless
/// that names the stub of systemd-resolved only; then the file behind it. If that can't be read,
/// `configured` has to do.
pub fn pick_resolv_conf<'a>(configured: &'a Path, text: &str) -> &'a Path {
    let servers = parse(text).servers;
    let stub = !servers.is_empty() && servers.iter().all(|server| STUBS.contains(&server.as_str()));
    if stub { Path::new(BEHIND_STUB) } else { configured }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(servers: &[&str], searches: &[&str], options: &[&str]) -> ResolvConf {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        ResolvConf { servers: own(servers), searches: own(searches), options: own(options) }
    }

    #[test]
    fn lines() {
        let table = [
            ("", conf(&[], &[], &[])),
            ("nameserver 1.1.1.1\nnameserver\t::1 # v6\nnameserver", conf(&["1.1.1.1", "::1"], &[], &[])),
            ("# nameserver 1.1.1.1\n;nameserver 2.2.2.2\n  nameserver 3.3.3.3  \r\n", conf(&["3.3.3.3"], &[], &[])),
            ("search a b\nsearch c. . d\n", conf(&[], &["c", "d"], &[])),
            ("search a\nsearch\n", conf(&[], &[], &[])),
            ("domain a\nsortlist x\nnameservers 1.1.1.1", conf(&[], &[], &[])),
            ("options ndots:2 edns0\noptions rotate ndots:3\n", conf(&[], &[], &["ndots:3", "edns0", "rotate"])),
        ];
        for (text, want) in table {
            assert_eq!(parse(text), want, "{text}");
        }
    }

    #[test]
    fn the_stub_of_systemd_resolved_is_passed_by() {
        let configured = Path::new("/etc/resolv.conf");
        let behind = Path::new(BEHIND_STUB);
        let table = [
            ("nameserver 127.0.0.53\noptions edns0\n", behind),
            ("nameserver 127.0.0.53\nnameserver 127.0.0.54\n", behind),
            ("nameserver 127.0.0.53\nnameserver 1.1.1.1\n", configured),
            ("nameserver 127.0.0.1\n", configured),
            ("", configured),
        ];
        for (text, want) in table {
            assert_eq!(pick_resolv_conf(configured, text), want, "{text}");
        }
    }
}
