//! Who asks, and what they may: the kubelet's rules (pkg/kubelet/server/auth.go,
//! cmd/kubelet/app/auth.go).
//!
//! Knows nothing of what is asked for but method and path.

mod attributes;
mod recent;
#[cfg(test)]
mod tests;
mod token;
mod webhook;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::server::http::{Head, Peer};
pub use attributes::Attributes;
pub use token::{Error as TokenError, Tokens};
pub use webhook::{Ask, Webhook};

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";
/// May do everything: an API server doesn't even ask its own authorisers about its members.
pub const MASTERS: &str = "system:masters";

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
    /// What else the API server knows of who this is; those who decide are told it too.
    pub uid: String,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    fn authenticated(name: String, mut groups: Vec<String>) -> User {
        groups.push(AUTHENTICATED.to_owned());
        User { name, groups, ..User::default() }
    }

    /// One who may do everything.
    pub fn master(name: String) -> User {
        User::authenticated(name, vec![MASTERS.to_owned()])
    }

    fn anonymous() -> User {
        User { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..User::default() }
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// Finds out who asks.
#[derive(Default)]
pub struct Authenticator {
    pub tokens: Tokens,
    /// Asked about other tokens (`authentication.webhook`).
    pub webhook: Option<Arc<Webhook>>,
    /// Whether a request without credentials is somebody's.
    pub anonymous: bool,
}

impl Authenticator {
    /// The user: of the client's certificate, else of its token, else nobody in particular where that
    /// is allowed. `None` when it is nobody; credentials that are wrong are never overlooked.
    pub fn authenticate(&self, head: &Head, peer: &Peer) -> Option<User> {
        if let Some(certificate) = &peer.certificate {
            return certificate_user(certificate);
        }
        match head.headers().any(|(name, _)| name == "authorization") {
            true => {
                let token = bearer(head.header("authorization")?)?;
                self.tokens.user(token).or_else(|| self.webhook.as_ref()?.user(token))
            }
            false => self.anonymous.then(User::anonymous),
        }
    }
}

/// The certificate's common name is the user, its organisations the groups.
fn certificate_user(certificate: &[u8]) -> Option<User> {
    #[cfg(feature = "tls")]
    if let Some(subject) = crate::certificates::subject(certificate).filter(|s| !s.common_name.is_empty()) {
        return Some(User::authenticated(subject.common_name, subject.organizations));
    }
    let _ = certificate;
    None
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// Decides what they may (`authorization.mode`).
pub enum Authorizer {
    AlwaysAllow,
    /// Webhook, on a node without an API server that could be asked. What such a one always answers
    /// is known: members of `system:masters` may do everything.
    WebhookWithoutServer,
    /// The same with one.
    Webhook(Arc<Webhook>),
}

impl Authorizer {
    /// # Errors
    /// Why it may not be.
    pub fn authorize(&self, user: &User, attributes: &Attributes) -> Result<(), String> {
        let why = match self {
            Authorizer::AlwaysAllow => return Ok(()),
            _ if user.is_in(MASTERS) => return Ok(()),
            Authorizer::WebhookWithoutServer => {
                "authorization.mode is Webhook and there is no API server to ask, so only members of system:masters may"
                    .to_owned()
            }
            Authorizer::Webhook(webhook) => match webhook.may(user, attributes) {
                Ok(()) => return Ok(()),
                Err(why) => why,
            },
        };
        let (name, verb, subresources) = (&user.name, attributes.verb, attributes.subresources.join(" "));
        let colon = if why.is_empty() { "" } else { ": " };
        Err(format!(
            "Forbidden (user={name}, verb={verb}, resource=nodes, subresource(s)=[{subresources}]){colon}{why}\n"
        ))
    }
}
