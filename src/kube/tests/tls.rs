//! TLS: authorities, other names, client certificates, their renewal.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::kube::kubeconfig::Material;

struct Authority(rcgen::CertifiedIssuer<'static, rcgen::KeyPair>);

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = rcgen::CertificateParams::new(vec![]).expect("has no names");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key");
        Authority(rcgen::CertifiedIssuer::self_signed(params, key).expect("signs"))
    }

    /// Certificate and key, PEM.
    fn sign(&self, name: &str, year: i32) -> (String, String) {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("is a name");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.0).expect("signs").pem(), key.serialize_pem())
    }
}

/// A server with this certificate, that wants one of the authority's from its clients; it answers
/// with the client's name.
fn serve(authority: &Authority, (certificate, key): (String, String)) -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.0.der().clone()).expect("is one");
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let chain = rustls::pki_types::CertificateDer::from_pem_slice(certificate.as_bytes()).expect("is one");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("has versions")
        .with_client_cert_verifier(clients.allow_unauthenticated().build().expect("verifies"))
        .with_single_cert(vec![chain], PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("is one"))
        .expect("is a certificate with its key");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("has an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(config.clone()).expect("begins");
            let mut stream = BufReader::new(StreamOwned::new(connection, stream.expect("accepts")));
            let Some((head, _)) = read_request(&mut stream) else { continue };
            let client = stream.get_ref().conn.peer_certificates().and_then(<[_]>::first);
            let subject = client.and_then(|der| crate::certificates::subject(der)).unwrap_or_default();
            let host =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("host: ").map(str::to_owned));
            let said = answer(200, &json!({"client": subject.common_name, "host": host}));
            stream
                .get_mut()
                .write_all(said.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes())
                .expect("is read");
            stream.get_mut().conn.send_close_notify();
            _ = stream.get_mut().flush();
        }
    });
    format!("127.0.0.1:{port}")
}

fn secure(host: &str, authority: Option<&Authority>) -> Access {
    let authority = authority.map(|a| Material::Data(a.0.pem().into_bytes()));
    Access { authority, ..access(format!("https://{host}")) }
}

#[test]
fn who_is_believed() {
    let (authority, other) = (Authority::new("a"), Authority::new("b"));
    let good = serve(&authority, authority.sign("127.0.0.1", 2100));
    let named = serve(&authority, authority.sign("kubernetes", 2100));
    let late = serve(&authority, authority.sign("127.0.0.1", 2001));
    let get = |access: Access| Client::of(access, None).get("/x").map_err(|e| e.to_string());
    let host = |host: &str| Ok(json!({"client": "", "host": host}));
    assert_eq!(get(secure(&good, Some(&authority))), host(&good));
    assert_eq!(get(Access { insecure: true, ..secure(&late, None) }), host(&late));
    let by_name = Access { tls_server_name: Some("kubernetes".to_owned()), ..secure(&named, Some(&authority)) };
    assert_eq!(get(by_name), host(&named));
    for (access, why) in [
        (secure(&good, Some(&other)), "UnknownIssuer"),
        (secure(&named, Some(&authority)), "not valid for name"),
        (secure(&late, Some(&authority)), "expired"),
    ] {
        let error = get(access).expect_err(why);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_new_certificate_is_used() {
    let authority = Authority::new("a");
    let host = serve(&authority, authority.sign("127.0.0.1", 2100));
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("current.pem");
    let write = |name: &str| {
        let (certificate, key) = authority.sign(name, 2100);
        std::fs::write(&file, certificate + &key).expect("writes");
    };
    let mut access = secure(&host, Some(&authority));
    access.user.certificate = Some((Material::File(file.clone()), Material::File(file.clone())));
    let client = Client::of(access.clone(), None);
    let name = || client.get("/x").map(|said| said["client"].clone()).map_err(|e| e.to_string());
    assert!(name().expect_err("is not there").contains("client-certificate"));
    write("node-1");
    assert_eq!(name(), Ok(json!("node-1")));
    write("node-2");
    client.reload();
    assert_eq!(name(), Ok(json!("node-2")));
    // A key that isn't the certificate's is found out before it is used.
    let (certificate, key) = (authority.sign("a", 2100).0, authority.sign("b", 2100).1);
    access.user.certificate = Some((Material::Data(certificate.into()), Material::Data(key.into())));
    let error = Client::of(access, None).check().expect_err("is another").to_string();
    assert!(error.contains("the client certificate with its key"), "{error}");
}

#[test]
fn a_kubeconfig_leads_there() {
    let authority = Authority::new("a");
    let host = serve(&authority, authority.sign("127.0.0.1", 2100));
    let dir = tempfile::tempdir().expect("a directory");
    let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("writes");
    let (certificate, key) = authority.sign("node-1", 2100);
    put("ca.crt", &authority.0.pem());
    put("client.crt", &certificate);
    put("client.key", &key);
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://{host}', certificate-authority: ca.crt}}}}]\n\
         users: [{{name: u, user: {{client-certificate: client.crt, client-key: client.key}}}}]\n"
    );
    put("config", &text);
    let client = Client::of_file(Path::new(&dir.path().join("config")), None);
    assert_eq!(client.get("/x").expect("answers")["client"], "node-1");
}
