//! Programs that are asked for credentials (`client.authentication.k8s.io/v1`).

use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::kubeconfig::{Access, Exec, Material};
use crate::child::{self, Limits};

pub const API_VERSION: &str = "client.authentication.k8s.io/v1";
const LIMITS: Limits = Limits { time: Duration::from_secs(60), output: 1 << 20 };

/// What it answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    pub token: Option<String>,
    pub certificate: Option<(Material, Material)>,
    /// Until when it is good; `None`: until it is refused.
    pub expires: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    status: Option<CredentialStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CredentialStatus {
    expiration_timestamp: Option<Timestamp>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs the program, which may take a minute. `authority`: the cluster's, PEM.
///
/// # Errors
/// When it fails or answers something else. Nothing of what it says on standard output is shown.
pub fn run(exec: &Exec, access: &Access, authority: Option<&[u8]>) -> Result<Answer, String> {
    let name = exec.command.display();
    let failed = |why: String| match exec.install_hint.is_empty() {
        true => format!("exec plugin {name}: {why}"),
        false => format!("exec plugin {name}: {why} ({})", exec.install_hint.trim()),
    };
    let mut command = Command::new(&exec.command);
    command.args(&exec.args).envs(exec.env.iter().map(|(name, value)| (name, value)));
    command.env("KUBERNETES_EXEC_INFO", info(exec, access, authority).to_string());
    let output = child::run(&mut command, &mut std::io::empty(), LIMITS).map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("{}: {}", output.status, output.stderr)));
    }
    answer(&output.stdout).map_err(failed)
}

fn info(exec: &Exec, access: &Access, authority: Option<&[u8]>) -> serde_json::Value {
    let mut spec = json!({"interactive": false});
    if exec.provide_cluster_info {
        spec["cluster"] = json!({
            "server": access.server, "tls-server-name": access.tls_server_name,
            "insecure-skip-tls-verify": access.insecure,
            "certificate-authority-data": authority.map(|pem| base64::engine::general_purpose::STANDARD.encode(pem)),
        });
    }
    json!({"kind": "ExecCredential", "apiVersion": API_VERSION, "spec": spec})
}

fn answer(stdout: &[u8]) -> Result<Answer, String> {
    // An error of the decoder may quote what is secret.
    let credential: ExecCredential =
        serde_json::from_slice(stdout).map_err(|_| "its answer is no JSON of an ExecCredential".to_owned())?;
    if credential.api_version != API_VERSION {
        return Err(format!("its answer is of apiVersion {:?}, not {API_VERSION}", credential.api_version));
    }
    let status = credential.status.ok_or("its answer has no status")?;
    let token = status.token.filter(|token| !token.is_empty());
    let data = |text: Option<String>| text.filter(|t| !t.is_empty()).map(|t| Material::Data(t.into_bytes()));
    let certificate = match (data(status.client_certificate_data), data(status.client_key_data)) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("its answer has a certificate without a key, or the other way round".to_owned()),
    };
    if token.is_none() && certificate.is_none() {
        return Err("its answer has neither a token nor a certificate".to_owned());
    }
    Ok(Answer { token, certificate, expires: status.expiration_timestamp })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::tests::write_program;
    use crate::kube::kubeconfig::User;

    fn access() -> Access {
        Access {
            server: "https://k".to_owned(),
            tls_server_name: None,
            insecure: false,
            authority: None,
            user: User::default(),
        }
    }

    #[test]
    fn it_is_told_and_answers() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("plugin");
        let text = r#"#!/bin/sh
case "$KUBERNETES_EXEC_INFO" in *'"server":"https://k"'*) ;; *) echo no cluster >&2; exit 1;; esac
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",'
echo '"status":{"token":"'$WHO-$1'","expirationTimestamp":"2030-01-01T00:00:00Z"}}'
"#;
        write_program(&program, text);
        let mut exec = Exec {
            command: program,
            args: vec!["x".to_owned()],
            env: vec![("WHO".to_owned(), "me".to_owned())],
            provide_cluster_info: true,
            install_hint: "install it".to_owned(),
        };
        let answer = run(&exec, &access(), None).expect("answers");
        let expires = "2030-01-01T00:00:00Z".parse().ok();
        assert_eq!(answer, Answer { token: Some("me-x".to_owned()), certificate: None, expires });
        exec.provide_cluster_info = false;
        let error = run(&exec, &access(), None).expect_err("fails");
        assert!(error.ends_with("no cluster (install it)"), "{error}");
    }

    #[test]
    fn answers() {
        let of = |status: &str| {
            answer(format!(r#"{{"apiVersion":"{API_VERSION}","status":{status}}}"#).as_bytes())
                .map_err(|e| e.to_string())
        };
        assert!(of(r#"{"clientCertificateData":"c","clientKeyData":"k"}"#).is_ok());
        for (status, why) in [
            ("null", "no status"),
            ("{}", "neither"),
            (r#"{"token":""}"#, "neither"),
            (r#"{"clientCertificateData":"c"}"#, "without a key"),
            (r#"{"token":5}"#, "no JSON"),
        ] {
            let error = of(status).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
        assert!(answer(b"{\"apiVersion\":\"v1\"}").expect_err("is another").contains("apiVersion"));
    }
}
