//! A certificate signing request: its making, and what has become of it
//! (k8s.io/client-go/util/certificate/csr).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde_json::{Value, json};

pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const SERVING: &str = "kubernetes.io/kubelet-serving";

/// What a certificate of this node is to be for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Who is asked to sign it.
    pub signer: &'static str,
    pub node: String,
    /// Names and addresses; a client has none.
    pub names: Vec<String>,
}

impl Wish {
    /// Signers take a request only with exactly these; those of before Kubernetes 1.27 with all three.
    fn usages(&self) -> [&'static str; 3] {
        ["digital signature", "key encipherment", if self.signer == SERVING { "server auth" } else { "client auth" }]
    }

    /// The request itself, PEM, signed with the key.
    ///
    /// # Errors
    /// When a name is none.
    pub fn sign(&self, key: &rcgen::KeyPair) -> Result<String, rcgen::Error> {
        let mut params = rcgen::CertificateParams::new(self.names.clone())?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(rcgen::DnType::CommonName, format!("system:node:{}", self.node));
        params.serialize_request(key)?.pem()
    }

    /// The object to be created: under `name`, or under one that the server makes.
    pub fn object(&self, request: &str, name: Option<&str>) -> Value {
        let metadata = match name {
            Some(name) => json!({ "name": name }),
            None => json!({"generateName": "csr-"}),
        };
        json!({
            "kind": "CertificateSigningRequest", "apiVersion": "certificates.k8s.io/v1", "metadata": metadata,
            "spec": {"request": BASE64.encode(request), "signerName": self.signer, "usages": self.usages()},
        })
    }
}

/// What has become of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Pending,
    /// The chain, PEM.
    Signed(Vec<u8>),
    Refused(String),
}

impl Outcome {
    pub fn of(object: &Value) -> Outcome {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        for condition in conditions {
            let text = |field: &str| condition[field].as_str().unwrap_or_default();
            if matches!(text("type"), "Denied" | "Failed") {
                let (kind, reason, message) = (text("type"), text("reason"), text("message"));
                return Outcome::Refused(format!("{kind}: {reason}: {message}"));
            }
        }
        match object["status"]["certificate"].as_str().filter(|text| !text.is_empty()) {
            Some(text) => match BASE64.decode(text) {
                Ok(chain) => Outcome::Signed(chain),
                Err(e) => Outcome::Refused(format!("the certificate is no base64: {e}")),
            },
            None => Outcome::Pending,
        }
    }
}

/// Certificate and key together, PEM, if they fit.
///
/// # Errors
/// When what was signed isn't a certificate for this key.
pub fn pair(chain: &[u8], key: &str) -> Result<Vec<u8>, String> {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let der = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| e.to_string())?;
    CertifiedKey::from_der(certificates, der, &rustls::crypto::ring::default_provider())
        .map_err(|e| format!("what was signed isn't a certificate for the key: {e}"))?;
    let mut all = chain.to_vec();
    if !all.ends_with(b"\n") {
        all.push(b'\n');
    }
    all.extend_from_slice(key.as_bytes());
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let client = Wish { signer: CLIENT, node: "edge".to_owned(), names: vec![] };
        let request = client.sign(&key).expect("is signed");
        assert!(request.starts_with("-----BEGIN CERTIFICATE REQUEST-----"), "{request}");
        let object = client.object(&request, Some("node-csr-1"));
        assert_eq!(object["metadata"], json!({"name": "node-csr-1"}));
        assert_eq!(object["spec"]["signerName"], "kubernetes.io/kube-apiserver-client-kubelet");
        assert_eq!(object["spec"]["usages"], json!(["digital signature", "key encipherment", "client auth"]));
        let sent = BASE64.decode(object["spec"]["request"].as_str().expect("is text")).expect("is base64");
        assert_eq!(sent, request.as_bytes());
        let serving = Wish { signer: SERVING, names: vec!["edge".to_owned(), "192.0.2.1".to_owned()], ..client };
        let object = serving.object(&serving.sign(&key).expect("is signed"), None);
        assert_eq!(object["metadata"], json!({"generateName": "csr-"}));
        assert_eq!(object["spec"]["usages"][2], "server auth");
    }

    #[test]
    fn what_has_become_of_it() {
        let table = [
            (json!({}), Outcome::Pending),
            (json!({"status": {"conditions": [{"type": "Approved"}]}}), Outcome::Pending),
            (json!({"status": {"certificate": ""}}), Outcome::Pending),
            (json!({"status": {"certificate": "UEVN"}}), Outcome::Signed(b"PEM".to_vec())),
            (
                json!({"status": {"conditions": [{"type": "Denied", "reason": "No", "message": "never"}]}}),
                Outcome::Refused("Denied: No: never".to_owned()),
            ),
            (json!({"status": {"conditions": [{"type": "Failed"}]}}), Outcome::Refused("Failed: : ".to_owned())),
        ];
        for (object, outcome) in table {
            assert_eq!(Outcome::of(&object), outcome, "{object}");
        }
        let Outcome::Refused(_) = Outcome::of(&json!({"status": {"certificate": "?"}})) else { panic!("is none") };
    }

    #[test]
    fn a_certificate_for_another_key_is_not_taken() {
        let keys = [rcgen::KeyPair::generate().expect("a key"), rcgen::KeyPair::generate().expect("a key")];
        let params = rcgen::CertificateParams::new(vec!["a".to_owned()]).expect("is a name");
        let chain = params.self_signed(&keys[0]).expect("is made").pem();
        let both = pair(chain.as_bytes(), &keys[0].serialize_pem()).expect("fit");
        assert!(
            String::from_utf8(both).expect("is text").contains("-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY")
        );
        let why = pair(chain.as_bytes(), &keys[1].serialize_pem()).expect_err("don't fit");
        assert!(why.contains("isn't a certificate for the key"), "{why}");
        assert!(pair(b"", &keys[0].serialize_pem()).is_err());
    }
}
