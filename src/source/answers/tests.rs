use super::*;

const URL: &str = "http://h/pods";

struct Given(UrlSet);

fn pod(name: &str, label: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{v: '{label}'}}}}\nspec: {{containers: [{{name: main, image: i}}]}}\n"
    )
}

fn answer(body: &str) -> Result<Answer, String> {
    Ok(Answer { status: 200, body: body.into(), ..Answer::default() })
}

fn status(status: u16) -> Result<Answer, String> {
    Ok(Answer { status, body: "x".into(), ..Answer::default() })
}

impl Given {
    fn new() -> Given {
        Given(UrlSet::new(URL, "N", Vec::new()))
    }

    fn take(&mut self, answer: Result<Answer, String>) -> Vec<String> {
        let reports = self.0.take(answer, Timestamp::UNIX_EPOCH);
        let shown = reports.into_iter().map(|report| match report {
            Report::Problem(text) => format!("E {text}"),
            Report::Warning(text) => format!("W {text}"),
            Report::Info(text) => format!("I {text}"),
        });
        shown.collect()
    }

    /// `namespace/name label`, of each.
    fn pods(&self) -> Option<Vec<String>> {
        let label = |p: &Pod| p.meta.labels.as_ref().and_then(|l| l.get("v").cloned()).unwrap_or_default();
        Some(self.0.pods()?.iter().map(|p| format!("{} {}", p.name, label(p))).collect())
    }
}

fn some(pods: &[&str]) -> Option<Vec<String>> {
    Some(pods.iter().map(|p| (*p).to_owned()).collect())
}

#[test]
fn all_forms_of_pods() {
    let json = |name: &str| {
        format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}"#)
    };
    let whole = |name: &str| json(name).replacen('{', r#"{"apiVersion":"v1","kind":"Pod","#, 1);
    let list = |kind: &str, items: &str| format!(r#"{{"apiVersion":"v1","kind":"{kind}","items":[{items}]}}"#);
    let table = [
        (pod("a", "1"), vec!["default/a-n 1"]),
        (whole("a"), vec!["default/a-n "]),
        (list("PodList", &format!("{},{}", json("a"), json("b"))), vec!["default/a-n ", "default/b-n "]),
        (list("List", &format!("{},{}", whole("a"), whole("b"))), vec!["default/a-n ", "default/b-n "]),
        (format!("{}---\n{}---\n", pod("a", "1"), pod("b", "2")), vec!["default/a-n 1", "default/b-n 2"]),
        (list("PodList", ""), vec![]),
        (list("List", ""), vec![]),
    ];
    for (body, want) in table {
        let mut given = Given::new();
        assert_eq!(given.take(answer(&body)), [""; 0], "{body}");
        assert_eq!(given.pods(), some(&want), "{body}");
    }
}

#[test]
fn pods_have_the_identity_that_the_kubelet_gives_them() {
    let mut given = Given::new();
    given.take(answer(&pod("a", "1")));
    let first = given.0.pods().expect("heard")[0].clone();
    assert_eq!((first.source, &*first.origin), (Source::Http, URL));
    let annotations = first.meta.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("kubernetes.io/config.source").map(String::as_str), Some("http"));
    assert_eq!(annotations.get("kubernetes.io/config.hash").map(String::as_str), Some(first.uid.as_str()));
    assert_eq!(first.spec.tolerations, None, "only files give one");
    let uid = |url: &str, node: &str, text: &str| {
        let mut set = UrlSet::new(url, node, Vec::new());
        set.take(answer(text), Timestamp::UNIX_EPOCH);
        set.pods().expect("heard")[0].uid.clone()
    };
    assert_eq!(uid(URL, "n", &pod("a", "1")), first.uid, "the same content from the same URL");
    assert_ne!(uid(URL, "n", &pod("a", "2")), first.uid);
    assert_ne!(uid("http://h/other", "n", &pod("a", "1")), first.uid);
}

#[test]
fn what_is_no_answer_keeps_the_last_good_set_and_is_told_once() {
    let failures: [(Result<Answer, String>, &str); 7] = [
        (Err("connection refused".into()), "connection refused"),
        (status(404), "the answer has status 404, not 200"),
        (status(503), "the answer has status 503, not 200"),
        (status(301), "the answer has status 301, not 200"),
        (status(204), "the answer has status 204, not 200"),
        (answer(""), "the answer is empty; a list without items is how to give no pods"),
        (
            Ok(Answer { status: 200, body: vec![0xff, 0xfe], ..Answer::default() }),
            "the answer is not UTF-8 text, no manifest",
        ),
    ];
    for (failure, why) in failures {
        let told = format!("E http://h/pods: {why}; the pods that it gave are kept");
        let mut given = Given::new();
        assert_eq!(given.take(failure.clone()), [told.as_str()]);
        assert_eq!(given.pods(), None, "nothing is known: {why}");
        assert_eq!(given.take(answer(&pod("a", "1"))), ["I http://h/pods: answers again"]);
        assert_eq!(given.take(failure.clone()), [told.as_str()]);
        assert_eq!(given.take(failure.clone()), [""; 0], "told already");
        assert_eq!(given.take(failure), [""; 0], "told already");
        assert_eq!(given.pods(), some(&["default/a-n 1"]), "{why}");
        assert_eq!(given.take(Err("another".into())).len(), 1);
        assert_eq!(given.take(answer(&pod("a", "1"))), ["I http://h/pods: answers again"]);
    }
}

#[test]
fn a_broken_answer_takes_no_pod_away() {
    let mut given = Given::new();
    given.take(answer(&format!("{}---\n{}", pod("a", "1"), pod("b", "1"))));
    let before = given.0.pods().expect("heard").to_vec();
    let html = given.take(answer("<html>It works!</html>"));
    assert_eq!(html.len(), 1, "{html:?}");
    assert!(html[0].starts_with("E http://h/pods:1: "), "{html:?}");
    assert_eq!(given.take(answer("<html>It works!</html>")), [""; 0]);
    assert_eq!(given.pods(), some(&["default/a-n 1", "default/b-n 1"]));
    // Each pod for itself, with its line and field; the others go on, and change.
    let bad = pod("b", "2").replace("name: main, ", "");
    let told = given.take(answer(&format!("{}---\n{bad}---\n{}", pod("a", "2"), pod("c", "1"))));
    assert_eq!(told, ["E http://h/pods:9: spec.containers[0].name: Required value"]);
    assert_eq!(given.pods(), some(&["default/a-n 2", "default/c-n 1", "default/b-n 1"]));
    let told = given.take(answer(&format!("{}---\n{}", pod("a", "2"), pod("b", "1"))));
    assert_eq!(told, ["I http://h/pods: has no problem any more"]);
    assert_eq!(given.pods(), some(&["default/a-n 2", "default/b-n 1"]));
    let now = given.0.pods().expect("heard");
    assert!(Arc::ptr_eq(&now[1], &before[1]), "what didn't change is the same value");
    // Nothing, said so.
    assert_eq!(given.take(answer("{apiVersion: v1, kind: PodList, items: []}")), [""; 0]);
    assert_eq!(given.pods(), some(&[]));
}

#[test]
fn what_is_broken_from_the_start_says_nothing_of_the_pods() {
    let mut given = Given::new();
    assert_eq!(given.take(answer("kind: [")).len(), 1);
    assert_eq!(given.pods(), None);
    let bad = pod("b", "2").replace("name: main, ", "");
    assert_eq!(given.take(answer(&format!("{bad}---\n{}", pod("a", "1")))).len(), 1);
    assert_eq!(given.pods(), some(&["default/a-n 1"]));
}

#[test]
fn doubles_and_objects() {
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n";
    let mut given = Given::new();
    let told = given.take(answer(&format!("{}---\n{}---\n{map}", pod("a", "1"), pod("a", "2"))));
    let want = [
        "E http://h/pods: pod default/a-n stands in it twice; the first counts",
        "W http://h/pods: ConfigMap default/m is ignored: objects have to be in staticPodPath",
    ];
    assert_eq!(told, want);
    assert_eq!(given.pods(), some(&["default/a-n 1"]));
    let bad = format!("{}---\n", pod("b", "2").replace("name: main, ", ""));
    let told = given.take(answer(&bad.repeat(1000)));
    assert_eq!(told.len(), MAX_TOLD + 1, "a flood is cut");
    assert_eq!(told[MAX_TOLD], "E http://h/pods: and 900 more");
}

#[test]
fn the_pods_of_before_a_restart_stay_until_the_url_was_read() {
    let mut before = Given::new();
    before.take(answer(&format!("{}---\n{}", pod("a", "1"), pod("b", "1"))));
    let ran = before.0.pods().expect("heard").to_vec();
    let restarted = |url: &str| Given(UrlSet::new(url, "N", ran.clone()));
    for url in [URL, "http://new/"] {
        let mut given = restarted(url);
        assert_eq!((given.pods(), given.0.keeps_waiting()), (None, true), "not before it was asked");
        assert_eq!(given.take(Err("no route to host".into())).len(), 1);
        assert_eq!(given.pods(), some(&["default/a-n 1", "default/b-n 1"]));
        assert!(!given.0.keeps_waiting());
    }
    let mut given = restarted(URL);
    given.take(answer("kind: ["));
    assert_eq!(given.pods(), some(&["default/a-n 1", "default/b-n 1"]));
    given.take(answer(&pod("a", "1")));
    assert_eq!(given.pods(), some(&["default/a-n 1"]));
    assert!(Arc::ptr_eq(&given.0.pods().expect("heard")[0], &ran[0]), "the same pod");
}

#[test]
fn validators() {
    let text = |s: &str| Some(s.to_owned());
    let given_with = |etag: Option<&str>, modified: Option<&str>, date: Option<&str>| {
        let mut given = Given::new();
        let validators = Validators { etag: etag.and_then(text), last_modified: modified.and_then(text) };
        let body = pod("a", "1").into_bytes();
        given.take(Ok(Answer { status: 200, validators, date: date.and_then(text), body }));
        given
    };
    let table = [
        ((None, None, None), (None, None)),
        ((Some("\"1\""), None, None), (text("\"1\""), None)),
        ((Some("W/\"1\""), Some("then"), Some("now")), (text("W/\"1\""), text("then"))),
        ((None, Some("then"), None), (None, text("then"))),
        // It was changed just now, and may be again without another time.
        ((None, Some("now"), Some("now")), (None, None)),
    ];
    for ((etag, modified, date), (want_etag, want_modified)) in table {
        let mut given = given_with(etag, modified, date);
        let want = Validators { etag: want_etag, last_modified: want_modified };
        assert_eq!(given.0.validators(), &want);
        assert_eq!(given.take(status(304)), [""; 0], "nothing is new");
        assert_eq!(given.pods(), some(&["default/a-n 1"]));
        // A failure leaves what to ask with: the content of then is the last one read.
        given.take(Err("gone".into()));
        assert_eq!(given.0.validators(), &want);
        assert_eq!(given.take(status(304)), ["I http://h/pods: answers again"]);
        given.take(answer(&pod("a", "2")));
        assert_eq!(given.0.validators(), &Validators::default());
    }
    let told = Given::new().take(status(304));
    assert_eq!(told, ["E http://h/pods: the answer has status 304, not 200; the pods that it gave are kept"]);
}

#[test]
fn waits_grow_with_failures() {
    let secs = Duration::from_secs;
    let table = [
        (secs(20), vec![1, 2, 4, 8, 16, 32, 60, 60]),
        (secs(1), vec![1, 2, 4, 8, 16, 32, 60, 60]),
        (secs(300), vec![1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
    ];
    for (frequency, want) in table {
        let mut given = Given::new();
        assert_eq!(given.0.wait(frequency), frequency);
        for wait in want {
            given.take(Err("gone".into()));
            assert_eq!(given.0.wait(frequency), secs(wait));
        }
        (0..100).for_each(|_| drop(given.take(Err("gone".into()))));
        assert_eq!(given.0.wait(frequency), frequency.max(secs(60)));
        given.take(answer("kind: ["));
        assert_eq!(given.0.wait(frequency), frequency, "the server is there");
    }
    let mut given = Given::new();
    given.take(Err("gone".into()));
    assert_eq!(given.0.wait(Duration::from_millis(100)), Duration::from_millis(100));
}

#[test]
fn passwords_are_not_shown() {
    let table = [
        ("http://h/x", "http://h/x"),
        ("http://u:secret@h:1/x?y#z", "http://u:***@h:1/x?y#z"),
        ("https://token@h", "https://token:***@h"),
        ("https://u:a@b@h/", "https://u:***@h/"),
        ("http://h/@x", "http://h/@x"),
        ("/etc/cleat/manifests/a.yaml", "/etc/cleat/manifests/a.yaml"),
    ];
    for (url, want) in table {
        assert_eq!(shown(url), want);
    }
}
