//! One pull: with each of the credentials in turn, then without, until one succeeds
//! (pkg/kubelet/kuberuntime/kuberuntime_image.go).

use super::scrub::scrub;
use crate::cri::{self, Auth, Cri, api};

/// Why a pull failed: the kubelet's reason, and a message without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullError {
    pub reason: &'static str,
    pub message: String,
}

/// What a registry that can't be used at all says, whatever the credentials.
const HOPELESS: [&str; 11] = [
    "RegistryUnavailable",
    "SignatureValidationFailed",
    "no such host",
    "connection refused",
    "connection reset",
    "no route to host",
    "network is unreachable",
    "i/o timeout",
    "TLS handshake timeout",
    "x509: ",
    "no space left on device",
];

/// Pulls `image`. `before_each` is called before the registry is asked each time.
pub fn pull(
    cri: &dyn Cri,
    image: &str,
    auths: &[Auth],
    sandbox: &api::PodSandboxConfig,
    before_each: impl Fn(),
) -> Result<(), PullError> {
    let mut errors = Vec::new();
    for auth in auths.iter().map(Some).chain([None]) {
        before_each();
        match cri.pull_image(image, auth, sandbox) {
            Ok(_) => return Ok(()),
            Err(e) => {
                let hopeless = e.is_unreachable() || HOPELESS.iter().any(|mark| e.message.contains(mark));
                errors.push((auth.is_some(), e));
                if hopeless {
                    break;
                }
            }
        }
    }
    Err(explain(image, &errors, auths))
}

/// The errors of all attempts, each with whether there were credentials.
fn explain(image: &str, errors: &[(bool, cri::Error)], auths: &[Auth]) -> PullError {
    let mut messages: Vec<String> = Vec::new();
    for (with_auth, error) in errors {
        // The runtime's own words, unless it didn't speak.
        let message = if error.is_unreachable() { error.to_string() } else { error.message.clone() };
        let message = scrub(&message, auths);
        if messages.contains(&message) {
            continue;
        }
        match *with_auth || messages.is_empty() {
            true => messages.push(message),
            false => messages.push(format!("without credentials: {message}")),
        }
    }
    let message = match messages.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let classes = [
        ("RegistryUnavailable", "because the registry is unavailable"),
        ("SignatureValidationFailed", "because the signature validation failed"),
    ];
    for (reason, why) in classes {
        if let Some(rest) = messages.iter().find_map(|message| message.strip_prefix(reason)) {
            return PullError { reason, message: format!("image pull failed for {image} {why}{rest}") };
        }
    }
    PullError { reason: "ErrImagePull", message }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, auth, error};
    use super::*;
    use std::cell::Cell;

    fn try_all(answers: &[Result<(), &str>], auths: &[Auth]) -> (Result<(), PullError>, Vec<Option<String>>, usize) {
        let fake = Fake::default();
        fake.answer_pulls("a.io/x:1", answers.iter().map(|a| a.map_err(error)));
        let tokens = Cell::new(0);
        let result = pull(&fake, "a.io/x:1", auths, &api::PodSandboxConfig::new(), || tokens.set(tokens.get() + 1));
        let tried = fake.pulled().into_iter().map(|(_, auth)| auth.map(|a| a.username)).collect();
        (result, tried, tokens.get())
    }

    #[test]
    fn each_credential_in_turn_and_then_none() {
        let auths = [auth("one", "secret1"), auth("two", "secret2")];
        let (one, two) = (Some("one".to_owned()), Some("two".to_owned()));
        let denied = Err("denied");
        let table: [(&[Result<(), &str>], _, _); 6] = [
            (&[Ok(())], Ok(()), vec![one.clone()]),
            (&[denied, Ok(())], Ok(()), vec![one.clone(), two.clone()]),
            (&[denied, denied, Ok(())], Ok(()), vec![one.clone(), two.clone(), None]),
            (&[denied, Err("no: secret2"), denied], Err("[denied, no: ***]"), vec![one.clone(), two.clone(), None]),
            (
                &[denied, denied, Err("no")],
                Err("[denied, without credentials: no]"),
                vec![one.clone(), two.clone(), None],
            ),
            (&[Err("dial tcp: connection refused")], Err("dial tcp: connection refused"), vec![one]),
        ];
        for (answers, want, want_tried) in table {
            let (result, tried, tokens) = try_all(answers, &auths);
            assert_eq!(result.map_err(|e| e.message), want.map_err(str::to_owned), "{answers:?}");
            assert_eq!((tokens, tried), (want_tried.len(), want_tried), "{answers:?}");
        }
        assert_eq!(try_all(&[Ok(())], &[]).1, [None]);
    }

    #[test]
    fn reasons() {
        let table = [
            ("not found", "ErrImagePull", "not found"),
            (
                "RegistryUnavailable: 503",
                "RegistryUnavailable",
                "image pull failed for a.io/x:1 because the registry is unavailable: 503",
            ),
            (
                "SignatureValidationFailed",
                "SignatureValidationFailed",
                "image pull failed for a.io/x:1 because the signature validation failed",
            ),
        ];
        for (said, reason, message) in table {
            let error = try_all(&[Err(said)], &[]).0.expect_err("fails");
            assert_eq!((error.reason, error.message.as_str()), (reason, message));
        }
    }
}
