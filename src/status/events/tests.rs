use super::*;
use crate::pod::PodUid;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
}

fn event(pod: &str, reason: &str, message: &str, seconds: i64) -> Occurrence {
    Occurrence {
        kind: Kind::Normal,
        pod: PodName::new("default", pod),
        field: Box::default(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        at: at(seconds),
    }
}

/// `pod reason message xCOUNT`, the one told of last standing last.
fn shown(recorder: &Recorder) -> Vec<String> {
    let text = |e: &std::sync::Arc<Event>| format!("{} {} {} x{}", e.involved.name, e.reason, e.message, e.count);
    recorder.events().map(text).collect()
}

#[test]
fn the_same_again_is_counted() {
    type Given = &'static [(&'static str, &'static str, &'static str, i64)];
    let table: &[(Given, &[&str])] = &[
        (&[("a", "Pulled", "x", 0), ("a", "Pulled", "x", 5)], &["a Pulled x x2"]),
        (&[("a", "Pulled", "x", 0), ("b", "Pulled", "x", 1)], &["a Pulled x x1", "b Pulled x x1"]),
        (&[("a", "Pulled", "x", 0), ("a", "Pulled", "y", 1)], &["a Pulled x x1", "a Pulled y x1"]),
        (
            &[("a", "Pulled", "x", 0), ("a", "Started", "x", 1), ("a", "Pulled", "x", 2)],
            &["a Started x x1", "a Pulled x x2"],
        ),
    ];
    for (given, want) in table {
        let mut recorder = Recorder::default();
        for (pod, reason, message, seconds) in *given {
            assert!(recorder.observe(event(pod, reason, message, *seconds), None));
        }
        assert_eq!(shown(&recorder), *want, "{given:?}");
    }
}

#[test]
fn containers_are_told_apart() {
    let mut recorder = Recorder::default();
    for (field, seconds) in [("spec.containers{a}", 0), ("spec.containers{b}", 1), ("spec.containers{a}", 2), ("", 3)] {
        recorder.observe(Occurrence { field: field.into(), ..event("p", "Unhealthy", "x", seconds) }, None);
    }
    let told: Vec<_> = recorder.events().map(|e| (&*e.field, e.count)).collect();
    assert_eq!(told, [("spec.containers{b}", 1), ("spec.containers{a}", 2), ("", 1)]);
    let text = serde_json::to_string(&told_of(&recorder)).expect("is JSON");
    let read: Vec<Event> = serde_json::from_str(&text).expect("reads");
    assert_eq!(read, told_of(&recorder));
}

fn told_of(recorder: &Recorder) -> Vec<Event> {
    recorder.events().map(|event| Event::clone(event)).collect()
}

#[test]
fn when_it_was_and_whose_it_is() {
    let mut recorder = Recorder::default();
    let uid = PodUid::new("u1");
    recorder.observe(event("a", "BackOff", "x", 10), Some(&uid));
    recorder.observe(event("a", "BackOff", "x", 70), Some(&uid));
    recorder.observe(event("a", "BackOff", "x", 80), Some(&PodUid::new("u2")));
    let events: Vec<_> = recorder.events().collect();
    let [first, second] = events[..] else { panic!("{events:?}") };
    assert_eq!((first.first, first.last, first.count, first.involved.uid.as_str()), (at(10), at(70), 2, "u1"));
    assert_eq!((second.count, second.involved.uid.as_str()), (1, "u2"));
    assert_ne!(first.name, second.name);
}

#[test]
fn a_pod_that_floods_is_held_to_its_rate() {
    let mut recorder = Recorder::default();
    let told = |recorder: &mut Recorder, seconds| recorder.observe(event("a", "BackOff", "x", seconds), None);
    assert_eq!((0..100).filter(|_| told(&mut recorder, 0)).count(), 25);
    assert_eq!(shown(&recorder), ["a BackOff x x25"]);
    assert!(recorder.observe(event("b", "BackOff", "x", 0), None), "another pod");
    assert!(!told(&mut recorder, 299));
    assert!(told(&mut recorder, 300));
    assert!(!told(&mut recorder, 300));
    // Those that were not told of are counted with the next that is.
    assert_eq!(shown(&recorder), ["b BackOff x x1", "a BackOff x x102"]);
    assert!(!told(&mut recorder, -86_400), "a clock that is set back gives nothing");
    assert!(told(&mut recorder, 300 * 25));
}

#[test]
fn similar_ones_are_combined() {
    let mut recorder = Recorder::default();
    for i in 0..12 {
        recorder.observe(event("a", "Failed", &format!("try {i}"), i), None);
    }
    let all = shown(&recorder);
    assert_eq!(all.len(), 10, "{all:?}");
    assert_eq!(all.last().map(String::as_str), Some("a Failed (combined from similar events): try 11 x3"));
    recorder.observe(event("a", "Failed", "try 99", 700), None);
    assert_eq!(shown(&recorder).last().map(String::as_str), Some("a Failed try 99 x1"), "after a pause");
}

#[test]
fn bounds() {
    let mut recorder = Recorder::default();
    for i in 0..1500 {
        recorder.observe(event(&format!("p{i}"), "Started", &"ä".repeat(2000), i), None);
    }
    assert_eq!(recorder.events().count(), 1000);
    assert!(recorder.events().next().is_some_and(|e| e.involved.name == "p500" && e.message.len() == 1024));
}

#[test]
fn over_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("events.json");
    let log = Log::open(path.clone());
    log.write();
    assert!(!path.exists(), "nothing happened, nothing is written");
    for i in 0..400 {
        log.observe(event(&format!("p{i}"), "Started", "x", i), None);
    }
    log.write();
    let again = Log::open(path.clone());
    let (before, after) = (log.events(), again.events());
    assert_eq!((before.len(), after.len()), (400, 300));
    assert_eq!(before[100..], after[..]);
    again.observe(event("p399", "Started", "x", 500), None);
    assert_eq!(again.events().last().map(|e| e.count), Some(2), "it goes on counting");
    std::fs::write(&path, "[{").expect("writes");
    assert!(Log::open(path).events().is_empty());
}
