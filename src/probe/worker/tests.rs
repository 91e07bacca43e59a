use super::*;

/// A worker of a container that runs since 0 s, and what it says to what happens.
struct Play {
    start: Instant,
    worker: Worker,
}

const EVERY_10: Timing = Timing {
    initial_delay: Duration::ZERO,
    period: Duration::from_secs(10),
    timeout: Duration::from_secs(1),
    success_threshold: 1,
    failure_threshold: 3,
};

fn delayed(seconds: u64) -> Timing {
    Timing { initial_delay: Duration::from_secs(seconds), ..EVERY_10 }
}

fn thresholds(success_threshold: u32, failure_threshold: u32) -> Timing {
    Timing { success_threshold, failure_threshold, ..EVERY_10 }
}

impl Play {
    fn begin(kind: Kind, timing: Timing, edit: impl FnOnce(&mut Beginning)) -> Play {
        let start = Instant::now();
        let mut beginning = Beginning { since: start, gated: false, known: None, jitter: Duration::ZERO };
        edit(&mut beginning);
        Play { start, worker: Worker::new(kind, timing, beginning, start) }
    }

    fn new(kind: Kind, timing: Timing) -> Play {
        Play::begin(kind, timing, |_| {})
    }

    fn at(&self, seconds: f64) -> Instant {
        self.start + Duration::from_secs_f64(seconds)
    }

    /// When the next attempt is due, in seconds.
    fn due(&self) -> Option<f64> {
        self.worker.due().map(|due| (due - self.start).as_secs_f64())
    }

    fn tell(&mut self, seconds: f64, event: Event) -> Actions {
        let now = self.at(seconds);
        self.worker.handle(event, now)
    }

    /// Makes the attempt that is due, which takes so long.
    fn attempt(&mut self, outcome: Outcome, took: f64) -> Actions {
        let due = self.due().expect("an attempt is due");
        assert!(self.tell(due, Event::Due).attempt, "an attempt is begun at {due}");
        assert_eq!(self.due(), None, "no other one while it lasts");
        self.tell(due + took, Event::Ended(outcome))
    }

    /// Makes attempts with outcomes `+`, `-` and `?`, and shows the results that they lead to in the
    /// same way, a dot for each that changes nothing; then whether there is a next attempt.
    fn run(&mut self, outcomes: &str) -> (String, bool) {
        let mut changes = String::new();
        for c in outcomes.chars() {
            let outcome = match c {
                '+' => Outcome::Success,
                '-' => Outcome::Failure("no".to_owned()),
                _ => Outcome::Error("could not".to_owned()),
            };
            changes.push(match self.attempt(outcome, 0.0).change {
                Some(true) => '+',
                Some(false) => '-',
                None => '.',
            });
        }
        (changes, self.due().is_some())
    }
}

#[test]
fn the_first_attempt() {
    use Kind::{Liveness, Readiness, Startup};
    let table = [
        (Startup, EVERY_10, Some(0.0)),
        (Readiness, EVERY_10, Some(0.0)),
        (Liveness, EVERY_10, Some(10.0)),
        (Startup, delayed(5), Some(5.0)),
        (Readiness, delayed(5), Some(5.0)),
        (Liveness, delayed(5), Some(10.0)),
        (Liveness, delayed(15), Some(15.0)),
    ];
    for (kind, timing, want) in table {
        assert_eq!(Play::new(kind, timing).due(), want, "{kind} {timing:?}");
    }
}

#[test]
fn the_first_attempt_at_a_container_that_ran_before() {
    let old = |kind, timing| {
        let mut play = Play::new(kind, timing);
        let now = play.at(100.0);
        let beginning = Beginning { since: play.start, gated: false, known: None, jitter: Duration::from_secs(4) };
        play.worker = Worker::new(kind, timing, beginning, now);
        play.due()
    };
    for kind in Kind::ALL {
        assert_eq!(old(kind, EVERY_10), Some(104.0), "{kind}");
        assert_eq!(old(kind, delayed(120)), Some(124.0), "{kind}: the initial delay isn't over");
    }
}

#[test]
fn results() {
    use Kind::{Liveness, Readiness, Startup};
    let table = [
        // Readiness goes both ways, for as long as the container runs.
        (Readiness, EVERY_10, "+", "+", true),
        (Readiness, EVERY_10, "-", ".", true),
        (Readiness, EVERY_10, "+--+---+", "+.....-+", true),
        (Readiness, thresholds(3, 1), "++-+++-", ".....+-", true),
        (Readiness, thresholds(2, 1), "+?+-", "..+-", true),
        // Liveness is good until it is bad, and that's it.
        (Liveness, EVERY_10, "++--+--+", "........", true),
        (Liveness, EVERY_10, "+---", "...-", false),
        (Liveness, EVERY_10, "-??-?-", ".....-", false),
        (Liveness, thresholds(1, 1), "-", "-", false),
        // Startup comes to an end either way. What fails within the first period doesn't count.
        (Startup, EVERY_10, "+", "+", false),
        (Startup, EVERY_10, "---+", "...+", false),
        (Startup, EVERY_10, "----", "...-", false),
        (Startup, thresholds(1, 1), "--", ".-", false),
        (Startup, thresholds(2, 3), "-+-++", "....+", false),
    ];
    for (kind, timing, outcomes, changes, goes_on) in table {
        let got = Play::new(kind, timing).run(outcomes);
        assert_eq!(got, (changes.to_owned(), goes_on), "{kind} {outcomes} {timing:?}");
    }
}

#[test]
fn a_startup_probe_has_its_threshold_in_whole_periods() {
    for (timing, want) in [(EVERY_10, 30.0), (delayed(5), 35.0), (delayed(60), 80.0)] {
        let mut play = Play::new(Kind::Startup, timing);
        let failed_at = loop {
            let due = play.due().expect("goes on until it has failed");
            if play.attempt(Outcome::Failure(String::new()), 0.0).change == Some(false) {
                break due;
            }
        };
        assert_eq!(failed_at, want, "{timing:?}");
    }
}

#[test]
fn what_is_known_before_and_what_was_known() {
    let result = |kind, known| Play::begin(kind, EVERY_10, |b| b.known = known).worker.result();
    assert_eq!(result(Kind::Liveness, None), Some(true));
    assert_eq!(result(Kind::Readiness, None), Some(false));
    assert_eq!(result(Kind::Startup, None), None);
    assert_eq!(result(Kind::Readiness, Some(true)), Some(true));
    let mut ready = Play::begin(Kind::Readiness, EVERY_10, |b| b.known = Some(true));
    assert_eq!(ready.run("+--+---"), ("......-".to_owned(), true), "it stays ready as long as any other");
    let started = Play::begin(Kind::Startup, EVERY_10, |b| b.known = Some(true));
    assert_eq!((started.worker.result(), started.due()), (Some(true), None), "it has started up");
}

#[test]
fn startup_gates_the_others() {
    let gated = |kind| Play::begin(kind, EVERY_10, |b| b.gated = true);
    for (kind, want) in [(Kind::Readiness, 42.0), (Kind::Liveness, 52.0)] {
        let mut play = gated(kind);
        assert_eq!(play.due(), None, "{kind}");
        assert_eq!(play.tell(1.0, Event::Due), Actions::default(), "{kind}");
        play.tell(42.0, Event::Started);
        assert_eq!(play.due(), Some(want), "{kind}");
        play.tell(43.0, Event::Started);
        assert_eq!(play.due(), Some(want), "{kind}: only the first time counts");
    }
    let mut delayed = Play::begin(Kind::Readiness, delayed(60), |b| b.gated = true);
    delayed.tell(42.0, Event::Started);
    assert_eq!(delayed.due(), Some(60.0));
}

#[test]
fn ticks() {
    // How long an attempt takes, and when the next ones are due.
    let table = [
        (0.0, [10.0, 20.0, 30.0]),
        (9.5, [10.0, 20.0, 30.0]),
        // The tick that was missed is made up for at once.
        (12.0, [12.0, 24.0, 36.0]),
        (25.0, [25.0, 50.0, 75.0]),
    ];
    for (took, want) in table {
        let mut play = Play::new(Kind::Readiness, EVERY_10);
        for next in want {
            play.attempt(Outcome::Success, took);
            assert_eq!(play.due(), Some(next), "{took} s");
        }
    }
    // And the clock goes on ticking as it did.
    let mut play = Play::new(Kind::Readiness, EVERY_10);
    play.attempt(Outcome::Success, 12.0);
    play.attempt(Outcome::Success, 0.0);
    assert_eq!(play.due(), Some(20.0));
}

#[test]
fn what_is_told() {
    let mut play = Play::new(Kind::Liveness, EVERY_10);
    let mut tell = |outcome: Outcome| play.attempt(outcome, 0.0).tell.map(|t| (t.reason, t.message));
    let failure = |text: &str| Outcome::Failure(text.to_owned());
    let unhealthy = |text: &str| Some(("Unhealthy", text.to_owned()));
    assert_eq!(tell(Outcome::Success), None);
    assert_eq!(tell(failure("a")), unhealthy("Liveness probe failed: a"));
    assert_eq!(tell(failure("a")), None, "no news");
    assert_eq!(tell(Outcome::Success), None);
    assert_eq!(tell(failure("a")), unhealthy("Liveness probe failed: a"), "again");
    assert_eq!(tell(failure("b")), unhealthy("Liveness probe failed: b"));
    assert_eq!(tell(Outcome::Error("c".to_owned())), unhealthy("Liveness probe errored: c"));
    let warning = Outcome::Warning("d".to_owned());
    assert_eq!(tell(warning.clone()), Some(("ProbeWarning", "Liveness probe warning: d".to_owned())));
    assert_eq!(tell(warning), None);
}

#[test]
fn the_end_of_a_pod() {
    for kind in [Kind::Startup, Kind::Liveness] {
        let mut play = Play::new(kind, thresholds(1, 1));
        let due = play.due().expect("waits");
        play.tell(due, Event::Due);
        play.tell(due, Event::Stop);
        let late = play.tell(due + 1.0, Event::Ended(Outcome::Failure(String::new())));
        assert_eq!(late, Actions::default(), "{kind}: what comes late changes nothing");
        assert_eq!((play.worker.result(), play.due()), (Some(true), None), "{kind}");
    }
    let mut play = Play::new(Kind::Readiness, thresholds(1, 1));
    play.tell(0.0, Event::Stop);
    assert_eq!(play.run("+-"), ("+-".to_owned(), true));
}

#[test]
fn the_defaults_of_a_spec() {
    let empty = core::Probe::default();
    assert_eq!(Timing::of(&empty), EVERY_10);
    let zeros = core::Probe {
        initial_delay_seconds: Some(0),
        period_seconds: Some(0),
        timeout_seconds: Some(-1),
        success_threshold: Some(0),
        failure_threshold: Some(0),
        ..Default::default()
    };
    assert_eq!(Timing::of(&zeros), EVERY_10);
    let full = core::Probe {
        initial_delay_seconds: Some(1),
        period_seconds: Some(2),
        timeout_seconds: Some(3),
        success_threshold: Some(4),
        failure_threshold: Some(5),
        ..Default::default()
    };
    let seconds = Duration::from_secs;
    let want = Timing {
        initial_delay: seconds(1),
        period: seconds(2),
        timeout: seconds(3),
        success_threshold: 4,
        failure_threshold: 5,
    };
    assert_eq!(Timing::of(&full), want);
}
