//! What a kubeconfig says of where the API server is and who asks it
//! (client-go/tools/clientcmd). Only the current context counts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use serde::Deserialize;

use crate::disk;
use crate::yaml;

/// Bytes; certificates of a large company's authorities may be in it.
const MAX_FILE: u64 = 4 << 20;

#[derive(Debug, thiserror::Error)]
#[error("kubeconfig {path}: {why}")]
pub struct Error {
    pub path: String,
    pub why: String,
    /// There is no such file, which may still come.
    pub missing: bool,
}

impl Error {
    pub fn new(path: &Path, why: impl Into<String>) -> Error {
        Error { path: path.display().to_string(), why: why.into(), missing: false }
    }
}

/// Where the server is, and what it is asked with.
#[derive(Debug, Clone, PartialEq)]
pub struct Access {
    /// `https://HOST[:PORT][/PATH]`, without a slash at its end.
    pub server: String,
    /// The name that the server's certificate has to be for, if it isn't that of the host.
    pub tls_server_name: Option<String>,
    /// Whoever has the address is believed.
    pub insecure: bool,
    /// Those who may have signed the server's certificate; `None`: whom the system trusts.
    pub authority: Option<Material>,
    pub user: User,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct User {
    /// The certificate and its key.
    pub certificate: Option<(Material, Material)>,
    pub bearer: Bearer,
}

/// PEM.
#[derive(Clone, PartialEq)]
pub enum Material {
    File(PathBuf),
    Data(Vec<u8>),
}

/// What comes with each request.
#[derive(Clone, Default, PartialEq)]
pub enum Bearer {
    #[default]
    None,
    Token(String),
    /// Read again when it changes.
    TokenFile(PathBuf),
    /// A program that is asked for a token or a certificate.
    Exec(Exec),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exec {
    pub command: PathBuf,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub install_hint: String,
    /// It is told of the cluster.
    pub provide_cluster_info: bool,
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Material::File(path) => write!(f, "{}", path.display()),
            // It may be a key.
            Material::Data(_) => f.write_str("(given)"),
        }
    }
}

impl std::fmt::Debug for Bearer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bearer::None => f.write_str("none"),
            Bearer::Token(_) => f.write_str("a token"),
            Bearer::TokenFile(path) => write!(f, "the token in {}", path.display()),
            Bearer::Exec(exec) => write!(f, "what {} answers", exec.command.display()),
        }
    }
}

/// Reads the file at `path`; `~` in it is the home directory.
///
/// # Errors
/// When it can't be read, or asks for what is not served.
pub fn load(path: &Path) -> Result<Access, Error> {
    let path = &home(path);
    let text = disk::read_text(path, MAX_FILE).map_err(|e| {
        let missing = e.kind() == std::io::ErrorKind::NotFound;
        Error { missing, ..Error::new(path, e.to_string()) }
    })?;
    parse(&text, path)
}

/// `path`: where the text was read from; relative paths in it are relative to that.
///
/// # Errors
/// When it is no kubeconfig, or asks for what is not served.
pub fn parse(text: &str, path: &Path) -> Result<Access, Error> {
    let file = decode(text).and_then(|file| file.access(path.parent().unwrap_or(Path::new("."))));
    file.map_err(|why| Error::new(path, why))
}

fn decode(text: &str) -> Result<File, String> {
    let node = yaml::parse_one(text, &mut Vec::new()).map_err(|problem| problem.to_string())?;
    let node = node.ok_or("the file is empty")?;
    // Tools leave notes of their own in it.
    yaml::decode::<File>(&node).map(|decoded| decoded.value).map_err(|problem| problem.to_string())
}

fn home(path: &Path) -> PathBuf {
    let home = || std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    match path.strip_prefix("~") {
        Ok(rest) => home().unwrap_or_else(|| "/root".into()).join(rest),
        Err(_) => path.to_owned(),
    }
}

#[derive(Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[derive(Default)]
struct File {
    current_context: String,
    clusters: Option<Vec<Named>>,
    users: Option<Vec<Named>>,
    contexts: Option<Vec<Named>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Named {
    name: String,
    cluster: Option<ClusterEntry>,
    user: Option<UserEntry>,
    context: Option<ContextEntry>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ContextEntry {
    cluster: String,
    user: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct ClusterEntry {
    server: String,
    tls_server_name: String,
    insecure_skip_tls_verify: bool,
    certificate_authority: String,
    certificate_authority_data: String,
    proxy_url: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct UserEntry {
    client_certificate: String,
    client_certificate_data: String,
    client_key: String,
    client_key_data: String,
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: String,
    username: String,
    #[serde(rename = "as")]
    impersonate: String,
    auth_provider: Option<BTreeMap<String, serde::de::IgnoredAny>>,
    exec: Option<ExecEntry>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ExecEntry {
    api_version: String,
    command: String,
    args: Option<Vec<String>>,
    env: Option<Vec<EnvEntry>>,
    install_hint: String,
    provide_cluster_info: bool,
    interactive_mode: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct EnvEntry {
    name: String,
    value: String,
}

/// The entry with this name; of several the first counts.
fn find<T>(list: Option<Vec<Named>>, what: &str, name: &str, part: impl Fn(Named) -> Option<T>) -> Result<T, String> {
    let named = list.into_iter().flatten().find(|entry| entry.name == name);
    named.and_then(part).ok_or_else(|| format!("there is no {what} {name:?} in it"))
}

impl File {
    fn access(self, base: &Path) -> Result<Access, String> {
        if self.current_context.is_empty() {
            return Err("current-context is not set".to_owned());
        }
        let context = find(self.contexts, "context", &self.current_context, |n| n.context)?;
        let cluster = find(self.clusters, "cluster", &context.cluster, |n| n.cluster)?;
        // Some servers ask for nobody's name.
        let user = match context.user.is_empty() {
            true => User::default(),
            false => find(self.users, "user", &context.user, |n| n.user)?.user(base)?,
        };
        cluster.access(user, base)
    }
}

impl ClusterEntry {
    fn access(self, user: User, base: &Path) -> Result<Access, String> {
        if !self.proxy_url.is_empty() {
            return Err("proxy-url is not served; the environment (HTTPS_PROXY) may name a proxy".to_owned());
        }
        let server = self.server.trim_end_matches('/').to_owned();
        let scheme = server.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        if !matches!(scheme.as_deref(), Some("https" | "http")) {
            return Err(format!("the cluster's server {server:?} is no http or https URL"));
        }
        let authority = material(&self.certificate_authority, &self.certificate_authority_data, base)?;
        if self.insecure_skip_tls_verify && authority.is_some() {
            return Err("certificate-authority with insecure-skip-tls-verify: it is either or".to_owned());
        }
        let tls_server_name = Some(self.tls_server_name).filter(|name| !name.is_empty());
        Ok(Access { server, tls_server_name, insecure: self.insecure_skip_tls_verify, authority, user })
    }
}

impl UserEntry {
    fn user(self, base: &Path) -> Result<User, String> {
        let unserved = [
            ("username and password", !self.username.is_empty()),
            ("auth-provider", self.auth_provider.is_some()),
            ("as (impersonation)", !self.impersonate.is_empty()),
        ];
        if let Some((what, _)) = unserved.iter().find(|(_, given)| *given) {
            return Err(format!("the user's {what} is not served; use a certificate, a token or an exec plugin"));
        }
        let certificate = material(&self.client_certificate, &self.client_certificate_data, base)?;
        let key = material(&self.client_key, &self.client_key_data, base)?;
        let certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err("the user has a client certificate without a key, or the other way round".to_owned()),
        };
        let bearer = match (self.token_file.as_str(), self.token.as_str(), self.exec) {
            ("", "", None) => Bearer::None,
            ("", "", Some(exec)) => Bearer::Exec(exec.exec(base)?),
            ("", token, _) => Bearer::Token(token.to_owned()),
            (file, _, _) => Bearer::TokenFile(place(file, base)),
        };
        Ok(User { certificate, bearer })
    }
}

impl ExecEntry {
    fn exec(self, base: &Path) -> Result<Exec, String> {
        if self.api_version != super::exec::API_VERSION {
            return Err(format!(
                "the exec plugin's apiVersion is {:?}, not {}",
                self.api_version,
                super::exec::API_VERSION
            ));
        }
        if self.interactive_mode == "Always" {
            return Err("the exec plugin wants somebody to talk to (interactiveMode Always)".to_owned());
        }
        if self.command.is_empty() {
            return Err("the exec plugin has no command".to_owned());
        }
        // One without a slash is looked for where programs are.
        let command = match self.command.contains('/') {
            true => place(&self.command, base),
            false => self.command.into(),
        };
        let env = self.env.into_iter().flatten().map(|e| (e.name, e.value)).collect();
        Ok(Exec {
            command,
            args: self.args.unwrap_or_default(),
            env,
            install_hint: self.install_hint,
            provide_cluster_info: self.provide_cluster_info,
        })
    }
}

fn place(path: &str, base: &Path) -> PathBuf {
    base.join(home(Path::new(path)))
}

/// What is given counts more than a file.
fn material(file: &str, data: &str, base: &Path) -> Result<Option<Material>, String> {
    if !data.is_empty() {
        let data: String = data.split_whitespace().collect();
        let bytes = base64::engine::general_purpose::STANDARD.decode(data);
        return bytes.map(|bytes| Some(Material::Data(bytes))).map_err(|_| "data that is not base64".to_owned());
    }
    Ok(Some(file).filter(|file| !file.is_empty()).map(|file| Material::File(place(file, base))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
apiVersion: v1
kind: Config
preferences: {}
current-context: c
contexts:
- {name: other, context: {cluster: nowhere, user: nobody}}
- {name: c, context: {cluster: k, user: u, namespace: x}}
clusters:
- name: k
  cluster: CLUSTER
users:
- name: u
  user: USER
";

    fn parse_with(cluster: &str, user: &str) -> Result<Access, String> {
        let text = FILE.replace("CLUSTER", cluster).replace("USER", user);
        parse(&text, Path::new("/etc/k/config")).map_err(|e| e.to_string())
    }

    const CLUSTER: &str = "{server: 'https://k:6443/'}";

    #[test]
    fn what_is_given() {
        let access = parse_with(
            "{server: 'https://k:6443/', certificate-authority: pki/ca.crt, tls-server-name: kubernetes}",
            "{client-certificate: /c.pem, client-key-data: a2V5, token: t, tokenFile: tok}",
        );
        let certificate = (Material::File("/c.pem".into()), Material::Data(b"key".to_vec()));
        let user = User { certificate: Some(certificate), bearer: Bearer::TokenFile("/etc/k/tok".into()) };
        let want = Access {
            server: "https://k:6443".to_owned(),
            tls_server_name: Some("kubernetes".to_owned()),
            insecure: false,
            authority: Some(Material::File("/etc/k/pki/ca.crt".into())),
            user,
        };
        assert_eq!(access, Ok(want));
        let exec = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: ./get-token, args: [a], \
                    env: [{name: NAME, value: V}], interactiveMode: Never}}";
        let bearer = parse_with(CLUSTER, exec).map(|access| access.user.bearer);
        let exec = Exec {
            command: "/etc/k/./get-token".into(),
            args: vec!["a".to_owned()],
            env: vec![("NAME".to_owned(), "V".to_owned())],
            ..Exec::default()
        };
        assert_eq!(bearer, Ok(Bearer::Exec(exec)));
    }

    #[test]
    fn what_is_refused() {
        let table = [
            ("{server: 'https://k', proxy-url: 'http://p'}", "{}", "proxy-url is not served"),
            ("{server: 'ftp://k'}", "{}", "is no http or https URL"),
            ("{server: k}", "{}", "is no http or https URL"),
            ("{server: 'https://k', insecure-skip-tls-verify: true, certificate-authority: c}", "{}", "either or"),
            ("{server: 'https://k', certificate-authority-data: '*'}", "{}", "not base64"),
            (CLUSTER, "{client-certificate: c}", "without a key"),
            (CLUSTER, "{username: a, password: b}", "username and password is not served"),
            (CLUSTER, "{auth-provider: {name: oidc}}", "auth-provider is not served"),
            (CLUSTER, "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: x}}", "apiVersion is"),
            (
                CLUSTER,
                "{exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Always}}",
                "wants somebody",
            ),
        ];
        for (cluster, user, why) in table {
            let error = parse_with(cluster, user).expect_err(why);
            assert!(error.starts_with("kubeconfig /etc/k/config: ") && error.contains(why), "{error}");
        }
        for (text, why) in [("", "empty"), ("a: [", ""), ("kind: Config", "current-context is not set")] {
            let error = parse(text, Path::new("/k")).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(load(Path::new("/no/such/file")).expect_err("is not there").missing);
    }

    #[test]
    fn nothing_secret_is_shown() {
        let access =
            parse_with(CLUSTER, "{client-certificate-data: c2VjcmV0, client-key-data: c2VjcmV0, token: secret}");
        let shown = format!("{access:?}");
        assert!(!shown.contains("secret") && !shown.contains("115, 101"), "{shown}");
    }
}
