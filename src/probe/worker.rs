//! One probe of one container, from the time that the container runs until it is gone: when it is
//! tried, and what its attempts come to (pkg/kubelet/prober/worker.go). Pure: it is told what
//! happens and when, and says what is to be done. A container that is started again gets a new
//! worker, so nothing is left to be reset.

use std::time::{Duration, Instant};

use super::Kind;
use crate::pod::core;

/// The numbers of a probe, with the API's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    pub initial_delay: Duration,
    pub period: Duration,
    pub timeout: Duration,
    pub success_threshold: u32,
    pub failure_threshold: u32,
}

impl Timing {
    pub fn of(probe: &core::Probe) -> Timing {
        let number = |value: Option<i32>, default: u32| {
            value.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default)
        };
        let seconds = |value, default| Duration::from_secs(number(value, default).into());
        Timing {
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            success_threshold: number(probe.success_threshold, 1),
            failure_threshold: number(probe.failure_threshold, 3),
        }
    }
}

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// A success that somebody should look at.
    Warning(String),
    Failure(String),
    /// It could not be made, so it says nothing of the container.
    Error(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The time of [`Worker::due`] has come.
    Due,
    /// The attempt has ended.
    Ended(Outcome),
    /// The container's startup probe has passed: the others may begin.
    Started,
    /// The pod ends: no more attempts, and no bad word about the container.
    Stop,
}

/// Something to tell about the container, with the kubelet's reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tell {
    pub reason: &'static str,
    pub message: String,
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// Make an attempt, and report its end.
    pub attempt: bool,
    /// The result is another one now.
    pub change: Option<bool>,
    pub tell: Option<Tell>,
}

/// How a worker begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    /// Since when the container runs.
    pub since: Instant,
    /// A startup probe has to pass first.
    pub gated: bool,
    /// The result that is known from before the agent was started.
    pub known: Option<bool>,
    /// A wait before the first attempt, so that not all begin at once after the agent was started.
    pub jitter: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No attempts: not before the startup probe has passed.
    Gated,
    /// `due` is the tick, or later if that was missed.
    Waiting { tick: Instant, due: Instant },
    /// The attempt of that tick is being made.
    Trying { tick: Instant },
    /// No attempts any more for this container.
    Held,
}

fn waiting(tick: Instant, now: Instant) -> State {
    State::Waiting { tick, due: tick.max(now) }
}

#[derive(Debug)]
pub struct Worker {
    kind: Kind,
    timing: Timing,
    since: Instant,
    state: State,
    result: Option<bool>,
    /// How the last attempts went, and how many in a row.
    run: (bool, u32),
    told: Option<Tell>,
}

impl Worker {
    pub fn new(kind: Kind, timing: Timing, beginning: Beginning, now: Instant) -> Worker {
        let Beginning { since, gated, known, jitter } = beginning;
        let result = known.or(match kind {
            Kind::Liveness => Some(true),
            Kind::Readiness => Some(false),
            Kind::Startup => None,
        });
        let mut worker = Worker { kind, timing, since, state: State::Held, result, run: (true, 0), told: None };
        worker.state = match kind {
            Kind::Startup if known == Some(true) => State::Held,
            Kind::Readiness | Kind::Liveness if gated => State::Gated,
            _ => waiting(worker.first(since, now) + jitter, now),
        };
        worker
    }

    /// When the first attempt is due, if the probe may begin at `from`.
    ///
    /// The kubelet tries at the ticks of a clock that runs since before the container was started,
    /// which gives a container about one period of grace; liveness probes keep to that.
    fn first(&self, from: Instant, now: Instant) -> Instant {
        let delayed = self.since + self.timing.initial_delay;
        let first = match self.kind {
            Kind::Startup | Kind::Readiness => delayed.max(from),
            Kind::Liveness => delayed.max(from + self.timing.period),
        };
        first.max(now)
    }

    /// When [`Event::Due`] is to be told.
    pub fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { due, .. } => Some(due),
            State::Gated | State::Trying { .. } | State::Held => None,
        }
    }

    /// `None` while nothing is known.
    pub fn result(&self) -> Option<bool> {
        self.result
    }

    pub fn handle(&mut self, event: Event, now: Instant) -> Actions {
        match (event, self.state) {
            (Event::Due, State::Waiting { tick, due }) if due <= now => {
                self.state = State::Trying { tick };
                Actions { attempt: true, ..Actions::default() }
            }
            (Event::Ended(outcome), State::Trying { tick }) => {
                self.state = waiting(self.next(tick, now), now);
                self.ended(outcome, tick)
            }
            (Event::Started, State::Gated) => {
                self.state = waiting(self.first(now, now), now);
                Actions::default()
            }
            (Event::Stop, _) => self.stop(),
            // What comes too late.
            (Event::Due | Event::Ended(_) | Event::Started, _) => Actions::default(),
        }
    }

    /// The tick after `tick`. Of those that were missed, the last one is made up for.
    fn next(&self, tick: Instant, now: Instant) -> Instant {
        let next = tick + self.timing.period;
        let missed = now.saturating_duration_since(next).as_nanos() / self.timing.period.as_nanos().max(1);
        next + self.timing.period.saturating_mul(u32::try_from(missed).unwrap_or(u32::MAX))
    }

    fn ended(&mut self, outcome: Outcome, tick: Instant) -> Actions {
        let kind = self.kind;
        let (good, tell) = match outcome {
            Outcome::Success => (true, None),
            Outcome::Warning(output) => (true, Some(("ProbeWarning", format!("{kind} probe warning: {output}")))),
            Outcome::Failure(output) => (false, Some(("Unhealthy", format!("{kind} probe failed: {output}")))),
            Outcome::Error(error) => {
                let message = format!("{kind} probe errored: {error}");
                return Actions { tell: self.news(Some(("Unhealthy", message))), ..Actions::default() };
            }
        };
        let tell = self.news(tell);
        if !good && self.is_early(tick) {
            return Actions { tell, ..Actions::default() };
        }
        self.run = if self.run.0 == good { (good, self.run.1.saturating_add(1)) } else { (good, 1) };
        let threshold = if good { self.timing.success_threshold } else { self.timing.failure_threshold };
        if self.run.1 < threshold {
            return Actions { tell, ..Actions::default() };
        }
        // A startup probe has done its work then; and a container that is to be killed is left alone.
        if kind == Kind::Startup || (kind == Kind::Liveness && !good) {
            self.state = State::Held;
        }
        Actions { tell, change: self.set(good), ..Actions::default() }
    }

    /// The startup probe is tried as soon as it may be, so that what starts quickly is soon known to
    /// have started. That a container has not started up when the first period (or the initial delay)
    /// isn't over is no failure: it has `failureThreshold` whole periods to do so.
    fn is_early(&self, tick: Instant) -> bool {
        self.kind == Kind::Startup && tick < self.since + self.timing.initial_delay.max(self.timing.period)
    }

    fn set(&mut self, result: bool) -> Option<bool> {
        let before = self.result.replace(result);
        (before != Some(result)).then_some(result)
    }

    /// `tell`, unless it is what was told last.
    fn news(&mut self, tell: Option<(&'static str, String)>) -> Option<Tell> {
        let tell = tell.map(|(reason, message)| Tell { reason, message });
        let news = tell.clone().filter(|_| tell != self.told);
        self.told = tell;
        news
    }

    fn stop(&mut self) -> Actions {
        if self.kind != Kind::Readiness {
            self.state = State::Held;
            self.result = Some(true);
        }
        Actions::default()
    }
}

#[cfg(test)]
mod tests;
