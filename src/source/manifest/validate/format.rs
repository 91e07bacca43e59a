//! How names, keys and addresses must be written (apimachinery/pkg/util/validation). Formats are
//! ASCII, so lengths are counted in bytes.

use std::net::IpAddr;

/// A way in which a text must be written.
#[derive(Clone, Copy)]
pub struct Format {
    pub holds: fn(&str) -> bool,
    /// What to say when it is not: "must be …".
    pub says: &'static str,
}

pub const DNS_LABEL: Format = Format {
    holds: is_dns_label,
    says: "must be a DNS label: at most 63 lower case letters, digits and '-', with a letter or digit at both ends",
};

pub const DNS_SUBDOMAIN: Format = Format {
    holds: is_dns_subdomain,
    says: "must be a DNS subdomain: at most 253 lower case letters, digits, '-' and '.', \
           with a letter or digit at both ends of each part",
};

/// A DNS subdomain that more may be put behind, so that it may end in '-'.
pub const DNS_SUBDOMAIN_PREFIX: Format = Format { holds: is_dns_subdomain_prefix, says: DNS_SUBDOMAIN.says };

/// A search domain for names: underscores are usual in them.
pub const SEARCH_DOMAIN: Format = Format {
    holds: is_search_domain,
    says: "must be a domain: at most 253 lower case letters, digits, '_', '-' and '.', \
           with a letter or digit at both ends of each part",
};

pub const QUALIFIED_NAME: Format = Format {
    holds: is_qualified_name,
    says: "must be at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends; \
           a DNS subdomain and '/' may stand before it",
};

/// A key of an annotation: a qualified name whose prefix may have capitals.
pub const ANNOTATION_KEY: Format =
    Format { holds: |key| is_qualified_name(&key.to_lowercase()), says: QUALIFIED_NAME.says };

pub const LABEL_VALUE: Format = Format {
    holds: |value| value.is_empty() || is_label(value),
    says: "must be empty, or at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
};

pub const PORT_NAME: Format = Format {
    holds: is_port_name,
    says: "must be a port name: at most 15 lower case letters, digits and single '-', \
           with at least one letter, and a letter or digit at both ends",
};

pub const ENV_NAME: Format = Format { holds: is_env_name, says: "must be printable ASCII characters other than '='" };

/// A key in a config map or a secret.
pub const DATA_KEY: Format = Format {
    holds: is_data_key,
    says: "must be a key: at most 253 letters, digits, '-', '_' and '.', not beginning with '..', and not '.'",
};

pub const HEADER_NAME: Format = Format {
    holds: |name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'),
    says: "must be a name of an HTTP header: letters, digits and '-'",
};

pub const IP: Format = Format { holds: is_ip, says: "must be an IP address, such as 10.9.8.7 or 2001:db8::ffff" };

pub const SYSCTL: Format = Format {
    holds: is_sysctl,
    says: "must be a sysctl: at most 253 lower case letters, digits, '-' and '_', in parts divided by '.' or '/', \
           with a letter or digit at both ends of each part",
};

pub const SIGNER_NAME: Format = Format {
    holds: is_signer_name,
    says: "must be a domain of at least two parts, '/' and a name, such as example.com/signer",
};

pub const RELATIVE_PATH: Format =
    Format { holds: is_relative_path, says: "must be a relative path without '..' in it" };

/// A file that we write into a volume, beside our own `..data`.
pub const FILE_PATH: Format = Format {
    holds: |path| is_relative_path(path) && !path.starts_with(".."),
    says: "must be a relative path without '..' in it or at its beginning",
};

pub const NO_BACKSTEPS: Format = Format { holds: has_no_backsteps, says: "must not contain '..'" };

/// Whether `text` is not empty, consists of `inner`, and has `edge` at both ends.
fn enclosed(text: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| edge(*b)) && bytes.last().is_some_and(|b| edge(*b)) && bytes.iter().all(|b| inner(*b))
}

fn lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn dns_part(text: &str) -> bool {
    enclosed(text, lower, |b| lower(b) || b == b'-')
}

fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && dns_part(text)
}

pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(dns_part)
}

fn is_dns_subdomain_prefix(text: &str) -> bool {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => is_dns_subdomain(&format!("{rest}a")),
        _ => is_dns_subdomain(text),
    }
}

fn is_search_domain(text: &str) -> bool {
    if text == "." {
        return true;
    }
    let part = |part: &str| {
        let part = part.strip_prefix('_').unwrap_or(part);
        enclosed(part, lower, |b| lower(b) || b == b'-' || b == b'_')
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    text.len() <= 253 && text.split('.').all(part)
}

fn is_label(text: &str) -> bool {
    text.len() <= 63
        && enclosed(text, |b| b.is_ascii_alphanumeric(), |b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_label(name),
        None => is_label(text),
    }
}

fn is_port_name(text: &str) -> bool {
    text.len() <= 15
        && enclosed(text, lower, |b| lower(b) || b == b'-')
        && text.bytes().any(|b| b.is_ascii_lowercase())
        && !text.contains("--")
}

fn is_env_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| (b == b' ' || b.is_ascii_graphic()) && b != b'=')
}

fn is_data_key(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && text != "."
        && !text.starts_with("..")
}

/// Neither zeros before a number nor IPv4 dressed as IPv6: others read those otherwise.
fn is_ip(text: &str) -> bool {
    match text.parse() {
        Ok(IpAddr::V4(_)) => true,
        Ok(IpAddr::V6(ip)) => ip.to_ipv4_mapped().is_none(),
        Err(_) => false,
    }
}

fn is_sysctl(text: &str) -> bool {
    text.len() <= 253
        && text.split(['.', '/']).all(|part| enclosed(part, lower, |b| lower(b) || b == b'-' || b == b'_'))
}

fn is_signer_name(text: &str) -> bool {
    let Some((domain, path)) = text.split_once('/') else { return false };
    text.len() <= 571
        && domain.len() <= 253
        && domain.contains('.')
        && domain.split('.').all(is_dns_label)
        && path.split('.').all(is_dns_subdomain)
}

fn is_relative_path(path: &str) -> bool {
    !path.starts_with('/') && has_no_backsteps(path)
}

fn has_no_backsteps(path: &str) -> bool {
    path.split('/').all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        let long = |n: usize| "a".repeat(n);
        let sub = |n: usize| format!("{}.{}", "a".repeat(100), "b".repeat(n - 101));
        let table: &[(Format, &[&str], &[&str])] = &[
            (DNS_LABEL, &["a", "0", "a-b", "0a", &long(63)], &["", "-a", "a-", "A", "a.b", "a_b", "ä", &long(64)]),
            (
                DNS_SUBDOMAIN,
                &["a", "a.b", "a-b.c", &long(253), &sub(253)],
                &["", ".", "a.", ".a", "a..b", "a.-b", "A", "a_b", &long(254)],
            ),
            (DNS_SUBDOMAIN_PREFIX, &["a", "a-", "a.b-"], &["", "-", "a.", "A-"]),
            (SEARCH_DOMAIN, &[".", "a.b", "a.b.", "_a.b_c", "a__b"], &["", "..", "a..b", "A", "__a", "a_", "-a"]),
            (
                QUALIFIED_NAME,
                &["a", "A.b_c-D", "a.b/C", &long(63), &format!("{}/a", sub(253))],
                &["", "/a", "a/", "A/b", "a/b/c", "a b", "-a", "a-", &long(64), &format!("{}/a", sub(254))],
            ),
            (ANNOTATION_KEY, &["a", "A.b/C"], &["", "a b", "a/b/c"]),
            (LABEL_VALUE, &["", "a", "A.b_c-0", &long(63)], &["-a", "a b", "a/b", &long(64)]),
            (PORT_NAME, &["a", "http", "a-1", "1-a", &long(15)], &["", "1", "A", "a--b", "-a", "a-", "a_b", &long(16)]),
            (ENV_NAME, &["A", "a b", "1", "a.b", "~", "$x"], &["", "=", "a=b", "a\tb", "ä", "\u{7f}"]),
            (DATA_KEY, &["a", ".a", "a..b", "A_b-C.d", &long(253)], &["", ".", "..", "..a", "a/b", "a b", &long(254)]),
            (HEADER_NAME, &["Host", "X-A-1"], &["", "a b", "a_b", "a:"]),
            (
                IP,
                &["10.0.0.1", "::1", "2001:db8::1"],
                &["", "10.0.0", "010.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "a"],
            ),
            (SYSCTL, &["kernel.shm_rmid_forced", "net/ipv4/a.b", "a"], &["", "a.", "a..b", "A", "_a", &long(254)]),
            (SIGNER_NAME, &["a.b/c", "a.b/c.d"], &["", "a.b", "a/b", "a.b/c/d", "A.b/c", "a.b/", "a..b/c"]),
            (RELATIVE_PATH, &["", "a", "a/..b", "..a"], &["/a", "..", "a/..", "../a", "a/../b"]),
            (FILE_PATH, &["a", "a/..b", ".a"], &["/a", "..", "..a", "a/../b"]),
            (NO_BACKSTEPS, &["/a", "/a/..b"], &["/a/..", "/../a"]),
        ];
        for (format, good, bad) in table {
            for text in *good {
                assert!((format.holds)(text), "{text:?}: {}", format.says);
            }
            for text in *bad {
                assert!(!(format.holds)(text), "{text:?}: {}", format.says);
            }
        }
    }
}
