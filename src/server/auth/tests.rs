use std::net::SocketAddr;

use super::*;
use crate::server::http::Address;

fn peer(certificate: Option<Vec<u8>>) -> Peer {
    Peer { address: Address::Tcp(SocketAddr::from(([192, 0, 2, 1], 1))), certificate }
}

const FILE: &str = "# for the tests\n\nsecret,jane,1\nother , \"root\" ,2,\"system:masters,ops\"\n";

#[test]
fn tokens() {
    let tokens = Tokens::parse(FILE).expect("is good");
    let user = |token: &str| tokens.user(token).map(|u| (u.name, u.groups.join(" ")));
    assert_eq!(user("secret"), Some(("jane".to_owned(), "system:authenticated".to_owned())));
    assert_eq!(user("other"), Some(("root".to_owned(), "system:masters ops system:authenticated".to_owned())));
    for wrong in ["", "secre", "secrets", "secreT", "jane", "# for the tests"] {
        assert_eq!(user(wrong), None, "{wrong}");
    }
    for (text, line) in [("a,b\n", 1), ("\n,b,c\n", 2), ("a,,c\n", 1), ("a,b,c\na,d,e\n", 2)] {
        assert_eq!(Tokens::parse(text).map_err(|(line, _)| line).map(drop), Err(line), "{text:?}");
    }
    assert!(!format!("{tokens:?}").contains("secret"));
}

#[test]
fn who_asks() {
    let open = Authenticator { tokens: Tokens::parse(FILE).expect("is good"), anonymous: true, webhook: None };
    let closed = Authenticator { tokens: Tokens::parse(FILE).expect("is good"), anonymous: false, webhook: None };
    // (headers, with anonymous requests, without)
    type Table<'a> = &'a [(&'a [(&'a str, &'a str)], Option<&'a str>, Option<&'a str>)];
    let table: Table<'_> = &[
        (&[], Some("system:anonymous"), None),
        (&[("Authorization", "Bearer secret")], Some("jane"), Some("jane")),
        (&[("Authorization", "bearer  secret ")], Some("jane"), Some("jane")),
        (&[("Authorization", "Bearer wrong")], None, None),
        (&[("Authorization", "Bearer ")], None, None),
        (&[("Authorization", "Basic c2VjcmV0")], None, None),
        (&[("Authorization", "Bearer secret"), ("Authorization", "Bearer other")], None, None),
    ];
    for (headers, with, without) in table {
        let head = Head::example("GET", "/pods", headers);
        for (authenticator, want) in [(&open, with), (&closed, without)] {
            let user = authenticator.authenticate(&head, &peer(None));
            assert_eq!(user.as_ref().map(|u| u.name.as_str()), *want, "{headers:?}");
        }
        assert_eq!(open.authenticate(&head, &peer(Some(b"no certificate".to_vec()))), None);
    }
}

#[cfg(feature = "tls")]
#[test]
fn a_certificate_comes_before_a_token() {
    let mut params = rcgen::CertificateParams::new(vec![]).expect("has no names");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "kubelet-client");
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
    let key = rcgen::KeyPair::generate().expect("a key");
    let der = params.self_signed(&key).expect("is made").der().to_vec();
    let authenticator = Authenticator { tokens: Tokens::parse(FILE).expect("is good"), anonymous: true, webhook: None };
    let head = Head::example("GET", "/pods", &[("Authorization", "Bearer secret")]);
    let user = authenticator.authenticate(&head, &peer(Some(der))).expect("is known");
    assert_eq!((user.name.as_str(), user.is_in("system:masters")), ("kubelet-client", true));
}

#[test]
fn what_is_asked_of_the_node() {
    let table: &[(&str, &str, &str, &[&str])] = &[
        ("GET", "/pods", "get", &["pods", "proxy"]),
        ("GET", "/runningpods/", "get", &["pods", "proxy"]),
        ("GET", "/healthz/syncloop", "get", &["healthz", "proxy"]),
        ("GET", "/configz", "get", &["configz", "proxy"]),
        ("GET", "/stats/summary", "get", &["stats"]),
        ("GET", "/metrics/cadvisor", "get", &["metrics"]),
        ("GET", "/logs/", "get", &["log"]),
        ("POST", "/checkpoint/a/b/c", "create", &["checkpoint"]),
        ("POST", "/exec/a/b/c", "create", &["proxy"]),
        ("GET", "/exec/a/b/c", "get", &["proxy"]),
        ("GET", "/containerLogs/a/b/c", "get", &["proxy"]),
        ("GET", "/podsx", "get", &["proxy"]),
        ("PUT", "/", "update", &["proxy"]),
        ("PATCH", "/", "patch", &["proxy"]),
        ("DELETE", "/", "delete", &["proxy"]),
        ("HEAD", "/pods", "", &["pods", "proxy"]),
    ];
    for (method, path, verb, subresources) in table {
        let attributes = Attributes::of(&Head::example(method, path, &[]));
        assert_eq!((attributes.verb, attributes.subresources.as_slice()), (*verb, *subresources), "{method} {path}");
    }
}

#[test]
fn what_they_may() {
    let attributes = Attributes::of(&Head::example("GET", "/metrics", &[]));
    let jane = User::authenticated("jane".to_owned(), vec![]);
    let root = User::authenticated("root".to_owned(), vec![MASTERS.to_owned()]);
    assert_eq!(Authorizer::AlwaysAllow.authorize(&User::anonymous(), &attributes), Ok(()));
    assert_eq!(Authorizer::WebhookWithoutServer.authorize(&root, &attributes), Ok(()));
    let refusal = Authorizer::WebhookWithoutServer.authorize(&jane, &attributes).expect_err("may not");
    let start = "Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[metrics]): ";
    assert!(refusal.starts_with(start), "{refusal}");
}
