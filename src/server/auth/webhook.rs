//! The API server as the one who knows whose a token is and what a user may: TokenReview and
//! SubjectAccessReview, with the answers remembered (cmd/kubelet/app/auth.go).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::recent::Recent;
use super::{Attributes, User};
use crate::config::Authorization;

const TOKEN_REVIEW: (&str, &str) = ("authentication.k8s.io", "tokenreviews");
const ACCESS_REVIEW: (&str, &str) = ("authorization.k8s.io", "subjectaccessreviews");
/// A longer one is nobody's: the API server gives out none.
const MAX_TOKEN: usize = 16 << 10;

/// Creates an object of a group, version 1, and a resource, and returns it as the server answers it.
pub type Ask = Box<dyn Fn(&str, &str, &Value) -> Result<Value, String> + Send + Sync>;

pub struct Webhook {
    ask: Ask,
    node: String,
    /// How long answers about a token are good.
    token_ttl: Duration,
    allowed_ttl: Duration,
    refused_ttl: Duration,
    tokens: Recent<Option<User>>,
    access: Recent<Result<(), String>>,
}

impl Webhook {
    /// `ask` doesn't take long; it is called on the threads that serve.
    pub fn new(ask: Ask, node: &str, token_ttl: Option<Duration>, authorization: Authorization) -> Webhook {
        let (allowed_ttl, refused_ttl) = match authorization {
            Authorization::Webhook { authorized_ttl, unauthorized_ttl } => (authorized_ttl, unauthorized_ttl),
            Authorization::AlwaysAllow => Default::default(),
        };
        Webhook {
            ask,
            node: node.to_owned(),
            token_ttl: token_ttl.unwrap_or_default(),
            allowed_ttl,
            refused_ttl,
            tokens: Recent::default(),
            access: Recent::default(),
        }
    }

    /// Whose the token is; `None` when it is nobody's, or nobody can say.
    pub fn user(&self, token: &str) -> Option<User> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let now = Instant::now();
        if let Some(user) = self.tokens.get(&token, now) {
            return user;
        }
        let (group, resource) = TOKEN_REVIEW;
        let review = json!({
            "kind": "TokenReview", "apiVersion": format!("{group}/v1"), "spec": {"token": token},
        });
        match (self.ask)(group, resource, &review) {
            Ok(answer) => {
                let user = reviewed(&answer["status"]);
                self.tokens.put(&token, user.clone(), self.token_ttl, now);
                user
            }
            Err(why) => {
                log::warn!("whose a token is can't be asked: {why}");
                None
            }
        }
    }

    /// Whether the user may use one of the subresources of this node.
    ///
    /// # Errors
    /// Why not.
    pub fn may(&self, user: &User, attributes: &Attributes) -> Result<(), String> {
        let mut why = String::new();
        for subresource in &attributes.subresources {
            match self.may_use(user, attributes.verb, subresource) {
                Ok(()) => return Ok(()),
                Err(reason) => why = reason,
            }
        }
        Err(why)
    }

    fn may_use(&self, user: &User, verb: &str, subresource: &str) -> Result<(), String> {
        let now = Instant::now();
        let question = (user, verb, subresource);
        if let Some(answer) = self.access.get(&question, now) {
            return answer;
        }
        let (group, resource) = ACCESS_REVIEW;
        let review = json!({
            "kind": "SubjectAccessReview", "apiVersion": format!("{group}/v1"),
            "spec": {
                "user": user.name, "groups": user.groups, "uid": user.uid, "extra": user.extra,
                "resourceAttributes": {
                    "verb": verb, "version": "v1", "resource": "nodes", "subresource": subresource, "name": self.node,
                },
            },
        });
        // A question that nobody answers is asked again the next time.
        let answer =
            (self.ask)(group, resource, &review).map_err(|why| format!("the API server can't be asked: {why}"))?;
        let status = &answer["status"];
        let allowed = status["allowed"] == true && status["denied"] != true;
        let reason = status["reason"].as_str().unwrap_or_default().to_owned();
        let (answer, ttl) = if allowed { (Ok(()), self.allowed_ttl) } else { (Err(reason), self.refused_ttl) };
        self.access.put(&question, answer.clone(), ttl, now);
        answer
    }
}

/// The user of a review's status.
fn reviewed(status: &Value) -> Option<User> {
    let user = &status["user"];
    let name = user["username"].as_str().filter(|name| status["authenticated"] == true && !name.is_empty())?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let extra = user["extra"].as_object().into_iter().flatten();
    let extra = extra.map(|(name, values)| (name.clone(), texts(values))).collect();
    // Its groups say already that it is authenticated.
    Some(User { name: name.to_owned(), groups: texts(&user["groups"]), uid: text(&user["uid"]), extra })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::http::Head;
    use parking_lot::Mutex;
    use std::sync::Arc;

    type Asked = Arc<Mutex<Vec<Value>>>;

    /// An API server that says `answer`, or that it can't.
    fn webhook(answer: Result<Value, &str>) -> (Webhook, Asked) {
        let asked = Asked::default();
        let (noted, answer) = (asked.clone(), answer.map_err(str::to_owned));
        let ask: Ask = Box::new(move |group, resource, review| {
            assert_eq!(review["apiVersion"], format!("{group}/v1"));
            assert!(matches!(resource, "tokenreviews" | "subjectaccessreviews"), "{resource}");
            noted.lock().push(review["spec"].clone());
            answer.clone().map(|status| json!({ "status": status }))
        });
        let minute = Duration::from_secs(60);
        let authorization = Authorization::Webhook { authorized_ttl: minute, unauthorized_ttl: minute };
        (Webhook::new(ask, "edge", Some(minute), authorization), asked)
    }

    #[test]
    fn tokens() {
        let jane = json!({"authenticated": true, "user": {
            "username": "jane", "uid": "7", "groups": ["ops", "system:authenticated"], "extra": {"scopes": ["a", "b"]}}});
        let (webhook, asked) = self::webhook(Ok(jane));
        for _ in 0..2 {
            let user = webhook.user("secret").expect("is jane's");
            assert_eq!((user.name.as_str(), user.uid.as_str(), user.groups.len()), ("jane", "7", 2));
            assert_eq!(user.extra["scopes"], ["a", "b"]);
        }
        assert_eq!(*asked.lock(), [json!({"token": "secret"})], "it is asked once");
        assert_eq!(webhook.user(&"x".repeat(MAX_TOKEN + 1)), None);
        assert_eq!(asked.lock().len(), 1);
        for (answer, asked_twice) in [
            (Ok(json!({"authenticated": false, "user": {"username": "jane"}})), false),
            (Ok(json!({"authenticated": true, "user": {"username": ""}})), false),
            (Ok(json!({})), false),
            (Err("connection refused"), true),
        ] {
            let (webhook, asked) = self::webhook(answer);
            assert_eq!((webhook.user("secret"), webhook.user("secret")), (None, None));
            assert_eq!(asked.lock().len() == 2, asked_twice);
        }
    }

    #[test]
    fn what_a_user_may() {
        let user = User { name: "jane".to_owned(), groups: vec!["ops".to_owned()], ..User::default() };
        let attributes = |path| Attributes::of(&Head::example("GET", path, &[]));
        let (webhook, asked) = self::webhook(Ok(json!({"allowed": true})));
        for _ in 0..2 {
            assert_eq!(webhook.may(&user, &attributes("/metrics")), Ok(()));
        }
        assert_eq!(
            *asked.lock(),
            [json!({
                "user": "jane", "groups": ["ops"], "uid": "", "extra": {},
                "resourceAttributes": {
                    "verb": "get", "version": "v1", "resource": "nodes", "subresource": "metrics", "name": "edge"},
            })]
        );
        let (webhook, asked) = self::webhook(Ok(json!({"allowed": false, "reason": "no rule"})));
        for _ in 0..2 {
            assert_eq!(webhook.may(&user, &attributes("/pods")), Err("no rule".to_owned()));
        }
        // Either would do, so both are asked for.
        let subresources: Vec<_> =
            asked.lock().iter().map(|spec| spec["resourceAttributes"]["subresource"].clone()).collect();
        assert_eq!(subresources, ["pods", "proxy"]);
        let denied = self::webhook(Ok(json!({"allowed": true, "denied": true}))).0;
        assert!(denied.may(&user, &attributes("/metrics")).is_err());
        let (away, asked) = self::webhook(Err("connection refused"));
        for _ in 0..2 {
            let why = away.may(&user, &attributes("/metrics")).expect_err("nobody says so");
            assert_eq!(why, "the API server can't be asked: connection refused");
        }
        assert_eq!(asked.lock().len(), 2);
    }
}
