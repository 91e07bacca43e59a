//! The first kubeconfig of the node: of the cluster as the bootstrap kubeconfig has it, and of the
//! certificate that was got with it (pkg/kubelet/certificate/bootstrap). Pure, but for reading what is
//! there.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::store::Held;
use crate::disk;
use crate::kube::kubeconfig::{self, Access, Bearer, Material};

/// Bytes of a file that a kubeconfig names.
const MAX_FILE: u64 = 1 << 20;

/// Whether the node has a kubeconfig that the server may take it by: then it needs no bootstrap. A
/// certificate that has ended is none.
pub fn is_valid(kubeconfig: &Path, now: Timestamp) -> bool {
    let Ok(access) = kubeconfig::load(kubeconfig) else { return false };
    match (&access.user.certificate, &access.user.bearer) {
        (Some(pair), _) => read_pair(pair).is_some_and(|held| held.validity.until > now),
        (None, Bearer::None) => false,
        (None, _) => true,
    }
}

/// The certificate of a kubeconfig.
pub fn held(kubeconfig: &Path) -> Option<Held> {
    read_pair(&kubeconfig::load(kubeconfig).ok()?.user.certificate?)
}

fn read_pair((certificate, key): &(Material, Material)) -> Option<Held> {
    let read = |material: &Material| match material {
        Material::Data(text) => Some(text.clone()),
        Material::File(path) => disk::read(path, MAX_FILE).ok(),
    };
    let (mut pem, key) = (read(certificate)?, read(key)?);
    pem.push(b'\n');
    pem.extend(key);
    Held::parse(&pem).ok()
}

/// A kubeconfig for the server of `access`, with the certificate and the key in the file `pem`.
pub fn kubeconfig(access: &Access, pem: &Path) -> String {
    let mut cluster = Map::new();
    cluster.insert("server".to_owned(), access.server.as_str().into());
    if let Some(name) = &access.tls_server_name {
        cluster.insert("tls-server-name".to_owned(), name.as_str().into());
    }
    if access.insecure {
        cluster.insert("insecure-skip-tls-verify".to_owned(), true.into());
    }
    match &access.authority {
        Some(Material::Data(pem)) => {
            cluster.insert("certificate-authority-data".to_owned(), BASE64.encode(pem).into());
        }
        Some(Material::File(path)) => {
            cluster.insert("certificate-authority".to_owned(), path.to_string_lossy().into());
        }
        None => {}
    }
    let name = "default";
    let all: Value = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "users": [{"name": name, "user": {"client-certificate": pem, "client-key": pem}}],
    });
    // JSON is YAML too.
    format!("{all:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_written_is_read_and_judged() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, pem) = (dir.path().join("kubelet.conf"), dir.path().join("current.pem"));
        assert!(!is_valid(&path, Timestamp::now()));
        let bootstrap = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
            clusters: [{name: k, cluster: {server: 'https://192.0.2.1:6443', certificate-authority-data: UEVN}}]\n\
            users: [{name: u, user: {token: abc}}]\n";
        fs::write(&path, bootstrap).expect("writes");
        assert!(is_valid(&path, Timestamp::now()), "a token is good until it is refused");
        let access = kubeconfig::load(&path).expect("is good");
        fs::write(&path, kubeconfig(&access, &pem)).expect("writes");
        assert!(!is_valid(&path, Timestamp::now()), "there is no certificate yet");
        let written = kubeconfig::load(&path).expect("is good");
        assert_eq!((&written.server, &written.authority), (&access.server, &access.authority));
        let file = Material::File(pem.clone());
        assert_eq!(written.user.certificate, Some((file.clone(), file)));
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).expect("is a name");
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2021, 1, 1));
        let key = rcgen::KeyPair::generate().expect("a key");
        fs::write(&pem, params.self_signed(&key).expect("is made").pem() + &key.serialize_pem()).expect("writes");
        for (now, good) in [("2020-06-01T00:00:00Z", true), ("2021-06-01T00:00:00Z", false)] {
            assert_eq!(is_valid(&path, now.parse().expect("is a time")), good, "{now}");
        }
    }
}
