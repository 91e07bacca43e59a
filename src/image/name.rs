//! Names of images: `[REGISTRY/]PATH[:TAG][@DIGEST]`, read as the kubelet reads them
//! (pkg/util/parsers, github.com/distribution/reference).

/// What Docker Hub is called in a name that names no registry.
const DOCKER_HUB: &str = "docker.io";
/// Bytes of a path.
const MAX_PATH: usize = 255;
const MAX_TAG: usize = 128;

/// A name with nothing left out: `busybox` is `docker.io/library/busybox`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    registry: String,
    path: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// Why a name is none. The words are those that the kubelet puts into a pod's status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    #[error("invalid reference format")]
    Format,
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Id(String),
    #[error("repository name must not be more than 255 characters")]
    TooLong,
    #[error("invalid checksum digest format")]
    Digest,
    #[error("invalid checksum digest length")]
    DigestLength,
    #[error("unsupported digest algorithm")]
    DigestAlgorithm,
}

impl Name {
    pub fn parse(text: &str) -> Result<Name, InvalidName> {
        if text.len() == 64 && text.bytes().all(is_lower_hex) {
            return Err(InvalidName::Id(text.to_owned()));
        }
        let (registry, rest) = split_registry(text);
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (rest, None),
        };
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (rest, None),
        };
        if path.chars().any(char::is_uppercase) {
            return Err(InvalidName::Uppercase(path.to_owned()));
        }
        let (registry, path) = match (registry, path) {
            (DOCKER_HUB, path) if !path.contains('/') => (DOCKER_HUB, format!("library/{path}")),
            (registry, path) if is_registry(registry) => (registry, path.to_owned()),
            // What can't be a host may be a directory yet.
            (directory, path) => ("", format!("{directory}/{path}")),
        };
        if !path.split('/').all(is_component) || !tag.is_none_or(is_tag) || !digest.is_none_or(looks_like_digest) {
            return Err(InvalidName::Format);
        }
        if path.len() > MAX_PATH {
            return Err(InvalidName::TooLong);
        }
        digest.map_or(Ok(()), check_digest)?;
        let owned = |part: Option<&str>| part.map(str::to_owned);
        Ok(Name { registry: registry.to_owned(), path, tag: owned(tag), digest: owned(digest) })
    }

    /// Host and port of the registry.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Registry and path: what credentials are for.
    pub fn repository(&self) -> String {
        match self.registry.as_str() {
            "" => self.path.clone(),
            registry => format!("{registry}/{}", self.path),
        }
    }

    /// `latest` when the name has neither tag nor digest, and no tag when it has a digest alone.
    pub fn tag(&self) -> Option<&str> {
        match (&self.tag, &self.digest) {
            (Some(tag), _) => Some(tag),
            (None, None) => Some("latest"),
            (None, Some(_)) => None,
        }
    }

    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// The one way to write it, by which runtimes keep images: where there is a digest, a tag says
    /// nothing more.
    pub fn canonical(&self) -> String {
        match &self.digest {
            Some(digest) => format!("{}@{digest}", self.repository()),
            None => format!("{}:{}", self.repository(), self.tag().unwrap_or_default()),
        }
    }

    /// This repository's image with the digest.
    pub fn with_digest(&self, digest: &str) -> Option<Name> {
        looks_like_digest(digest).then_some(())?;
        check_digest(digest).ok()?;
        Some(Name { tag: None, digest: Some(digest.to_owned()), ..self.clone() })
    }

    /// How the runtime is asked for the image that a pod calls `text`, which is this: as the pod
    /// calls it, with the tag made plain. Registries for short names are the runtime's affair.
    pub fn with_tag(&self, text: &str) -> String {
        match (&self.tag, &self.digest) {
            (None, None) => format!("{text}:latest"),
            _ => text.to_owned(),
        }
    }
}

/// The registry is what stands before the first slash, if it looks like a host.
fn split_registry(text: &str) -> (&str, &str) {
    match text.split_once('/') {
        Some(("index.docker.io", rest)) => (DOCKER_HUB, rest),
        Some((first, rest))
            if first == "localhost" || first.contains(['.', ':']) || first.chars().any(char::is_uppercase) =>
        {
            (first, rest)
        }
        _ => (DOCKER_HUB, text),
    }
}

/// A host name or address, with or without a port.
fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port_fits = port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    let host_fits = match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(v6) => !v6.is_empty() && v6.bytes().all(|b| b.is_ascii_hexdigit() || b == b':'),
        None => host.split('.').all(|part| {
            let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
            !part.is_empty() && part.bytes().all(fits) && !part.starts_with('-') && !part.ends_with('-')
        }),
    };
    port_fits && host_fits
}

/// Lower case letters and digits, with `.`, `_`, `__` or any number of `-` between them.
fn is_component(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut separators = text.split(is_plain).filter(|s| !s.is_empty());
    text.starts_with(is_plain)
        && text.ends_with(is_plain)
        && separators.all(|s| matches!(s, "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

fn is_tag(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= MAX_TAG
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|b| is_word(b) || matches!(b, b'.' | b'-'))
}

fn looks_like_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let mut parts = algorithm.split(['-', '_', '+', '.']);
    parts.all(|part| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
    }) && hex.len() >= 32
        && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

fn check_digest(text: &str) -> Result<(), InvalidName> {
    let (algorithm, hex) = text.split_once(':').ok_or(InvalidName::Digest)?;
    let len = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(InvalidName::DigestAlgorithm),
    };
    match hex {
        hex if hex.len() != len => Err(InvalidName::DigestLength),
        hex if !hex.bytes().all(is_lower_hex) => Err(InvalidName::Digest),
        _ => Ok(()),
    }
}

fn is_lower_hex(b: u8) -> bool {
    matches!(b, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "7cc4b5aefd1d0cadf8d97d4350462ba51c694ebca145b08d7d41b41acc8db5aa";

    #[test]
    fn names_are_completed() {
        let digest = format!("sha256:{HEX}");
        let table = [
            ("busybox", "docker.io", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io", "docker.io/library/busybox:1.36"),
            ("library/busybox", "docker.io", "docker.io/library/busybox:latest"),
            ("docker.io/busybox", "docker.io", "docker.io/library/busybox:latest"),
            ("index.docker.io/me/app:2", "docker.io", "docker.io/me/app:2"),
            ("me/app", "docker.io", "docker.io/me/app:latest"),
            ("localhost/app", "localhost", "localhost/app:latest"),
            ("localhost:5000/app:1", "localhost:5000", "localhost:5000/app:1"),
            ("quay.io/a/b/c", "quay.io", "quay.io/a/b/c:latest"),
            ("[fd00::1]:5000/app", "[fd00::1]:5000", "[fd00::1]:5000/app:latest"),
            ("[fd00::1]/app", "[fd00::1]", "[fd00::1]/app:latest"),
            ("REGISTRY/app", "REGISTRY", "REGISTRY/app:latest"),
            ("under_score.io/app", "", "under_score.io/app:latest"),
            ("a/b__c--d.e_f:v_1.-", "docker.io", "docker.io/a/b__c--d.e_f:v_1.-"),
            (&format!("busybox@{digest}"), "docker.io", &format!("docker.io/library/busybox@{digest}")),
            (&format!("quay.io/app:1@{digest}"), "quay.io", &format!("quay.io/app@{digest}")),
        ];
        for (text, registry, canonical) in table {
            let name = Name::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(name.registry(), registry, "{text}");
            assert_eq!(name.canonical(), canonical, "{text}");
            // What is complete stays as it is.
            assert_eq!(Name::parse(canonical).expect("parses").canonical(), canonical);
        }
    }

    #[test]
    fn what_is_no_name() {
        let long = format!("quay.io/{}", "a".repeat(256));
        let table = [
            ("", "invalid reference format"),
            ("NOT//a valid:image:name", "invalid reference format"),
            ("localhost/UPPER:1", "invalid reference format: repository name (UPPER) must be lowercase"),
            ("Busybox", "invalid reference format: repository name (Busybox) must be lowercase"),
            (HEX, &format!("invalid repository name ({HEX}), cannot specify 64-byte hexadecimal strings")),
            ("busybox:", "invalid reference format"),
            ("busybox:a:b", "invalid reference format"),
            ("busybox:-a", "invalid reference format"),
            (&format!("busybox:{}", "t".repeat(129)), "invalid reference format"),
            ("quay.io/", "invalid reference format"),
            ("quay.io/a//b", "invalid reference format"),
            ("quay.io/a._b", "invalid reference format"),
            ("quay.io/-a", "invalid reference format"),
            ("quay.io:port/a", "invalid reference format"),
            ("quay.io:/a", "invalid reference format"),
            ("-quay.io/a", "invalid reference format"),
            ("https://quay.io/a", "invalid reference format"),
            ("busybox@", "invalid reference format"),
            ("busybox@sha256:abc", "invalid reference format"),
            ("busybox@sha256:0123456789abcdef0123456789abcdef", "invalid checksum digest length"),
            (&format!("busybox@md5:{HEX}"), "unsupported digest algorithm"),
            (&format!("busybox@sha256:{}", HEX.to_uppercase()), "invalid checksum digest format"),
            (&long, "repository name must not be more than 255 characters"),
        ];
        for (text, message) in table {
            let error = Name::parse(text).expect_err(text);
            assert_eq!(error.to_string(), message, "{text:?}");
        }
    }

    #[test]
    fn the_runtime_is_asked_for_the_name_with_a_tag() {
        let digest = format!("busybox@sha256:{HEX}");
        for (text, want) in [("busybox", "busybox:latest"), ("a:5000/b", "a:5000/b:latest"), ("b:1", "b:1")]
            .into_iter()
            .chain([(digest.as_str(), digest.as_str())])
        {
            assert_eq!(Name::parse(text).expect("parses").with_tag(text), want);
        }
    }

    #[test]
    fn digests_of_a_repository() {
        let name = Name::parse("busybox:1").expect("parses");
        let by_digest = name.with_digest(&format!("sha256:{HEX}")).expect("is a digest");
        assert_eq!(by_digest.canonical(), format!("docker.io/library/busybox@sha256:{HEX}"));
        assert_eq!(by_digest.tag(), None);
        assert_eq!(name.with_digest("sha256:x"), None);
    }
}
