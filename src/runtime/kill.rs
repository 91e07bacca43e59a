//! The kill of a container: its preStop hook, then TERM, and when the grace period is over KILL
//! (pkg/kubelet/kuberuntime/kuberuntime_container.go `killContainer`). It takes several steps, each
//! of which only starts work on a lane; a container is killed when the runtime shows it so.

use std::time::{Duration, Instant};

use super::memory::{Failure, Memory, Op};
use super::terminate::{Ending, Target};
use super::{Runtime, hook};
use crate::cri::{self, ContainerId};
use crate::pod::core;

/// A container gets at least so long between TERM and KILL, whatever the hook has used up.
const MINIMUM: Duration = Duration::from_secs(2);

/// How far the kill of a container is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Killing {
    /// When it was begun.
    pub since: Instant,
    /// For hook and stop together.
    pub grace: Duration,
    pub hook: HookState,
    /// The runtime is stopping it, as of a grace period of so long.
    pub stopping: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookState {
    /// Not run yet.
    Due,
    Running,
    /// Done with, or there is none.
    Over,
}

/// What a kill's next step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    RunHook,
    /// Look again after so long at the latest.
    Wait(Duration),
    Stop(Duration),
    /// The runtime is at it.
    Nothing,
}

impl Killing {
    /// The next step at `now`. `turn`: whether the container may be stopped, as far as the others of
    /// its pod are concerned; it is when the grace period is over.
    fn step(&self, turn: bool, now: Instant) -> Step {
        let left = self.grace.saturating_sub(now.saturating_duration_since(self.since));
        match (self.stopping, self.hook) {
            (Some(given), _) if given <= self.grace => Step::Nothing,
            // It got shorter since.
            (Some(_), _) => Step::Stop(left.max(MINIMUM)),
            (None, HookState::Due) if !left.is_zero() => Step::RunHook,
            // A hook that takes longer than the grace period is left to itself.
            (None, HookState::Running) if !left.is_zero() => Step::Wait(left),
            (None, _) if !turn && !left.is_zero() => Step::Wait(left),
            (None, _) => Step::Stop(left.max(MINIMUM)),
        }
    }
}

/// A container to be killed.
pub(super) struct Victim<'a> {
    pub target: &'a Target,
    pub container: &'a cri::Container,
    /// The container's part of the pod, where the pod is known.
    pub spec: Option<&'a core::Container>,
    /// Addresses of the pod, for a hook over the network.
    pub ips: &'a [String],
    pub grace: Duration,
    pub turn: bool,
}

impl Runtime {
    /// Takes a kill a step further, and begins it if need be. Returns after how long to look again.
    pub(super) fn kill_step(&self, victim: &Victim<'_>, memory: &mut Memory, now: Instant) -> Option<Duration> {
        let id = &victim.container.id;
        let hook = hook::pre_stop(victim.spec, victim.container);
        let killing = memory.kills.entry(id.clone()).or_insert_with(|| Killing {
            since: now,
            grace: victim.grace,
            hook: if hook.is_some() { HookState::Due } else { HookState::Over },
            stopping: None,
        });
        // It only ever gets shorter.
        killing.grace = killing.grace.min(victim.grace);
        match killing.step(victim.turn, now) {
            Step::Nothing => None,
            Step::Wait(time) => Some(time),
            Step::Stop(time) => {
                killing.stopping = Some(killing.grace);
                self.stop_on_lane(victim.target, memory, id.clone(), time);
                None
            }
            Step::RunHook => {
                killing.hook = HookState::Running;
                let left = killing.grace;
                if let Some(hook) = hook {
                    self.pre_stop_on_lane(victim, memory, hook, left);
                }
                Some(left)
            }
        }
    }

    fn pre_stop_on_lane(
        &self,
        victim: &Victim<'_>,
        memory: &mut Memory,
        hook: core::LifecycleHandler,
        timeout: Duration,
    ) {
        let id = victim.container.id.clone();
        let op = Op::PreStop(id.clone());
        memory.pending.insert(op.clone());
        let place = hook::Place::new(id.clone(), victim.spec, victim.ips);
        let (cri, resolver, done) = (self.cri.clone(), self.resolver.clone(), self.done.clone());
        let (uid, pod, name) =
            (victim.target.uid().clone(), victim.target.name().clone(), victim.container.name.clone());
        let field = victim.target.pod().and_then(|pod| pod.field_path(&name));
        self.hooks.submit(move || {
            let end = Ending::new(done, uid, op);
            let result = hook::run((&*cri, &resolver), &hook, &place, Some(timeout));
            hook::tell(&result, (&pod, field), &name, "PreStop");
            // It failed or not: what follows is the stop.
            end.tell(Ok(()));
        });
    }

    fn stop_on_lane(&self, target: &Target, memory: &mut Memory, id: ContainerId, grace: Duration) {
        let op = Op::StopContainer(id.clone());
        memory.pending.insert(op.clone());
        let (cri, done, uid) = (self.cri.clone(), self.done.clone(), target.uid().clone());
        self.stops.submit(move || {
            let end = Ending::new(done, uid, op);
            let result = cri.stop_container(&id, grace);
            end.tell(result.map_err(|e| Failure { reason: "KillContainerError", message: e.to_string() }));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_kill() {
        let start = Instant::now();
        let secs = Duration::from_secs;
        let killing = |hook, stopping| Killing { since: start, grace: secs(10), hook, stopping };
        // The hook, whether it is the container's turn, seconds since the kill began, the step.
        let table = [
            (HookState::Over, true, 0, Step::Stop(secs(10))),
            (HookState::Over, false, 0, Step::Wait(secs(10))),
            (HookState::Over, false, 4, Step::Wait(secs(6))),
            (HookState::Over, true, 4, Step::Stop(secs(6))),
            (HookState::Over, true, 9, Step::Stop(secs(2))),
            (HookState::Over, false, 10, Step::Stop(secs(2))),
            (HookState::Due, true, 0, Step::RunHook),
            (HookState::Due, false, 0, Step::RunHook),
            (HookState::Running, true, 3, Step::Wait(secs(7))),
            (HookState::Running, true, 10, Step::Stop(secs(2))),
            (HookState::Running, false, 60, Step::Stop(secs(2))),
        ];
        for (hook, turn, seconds, want) in table {
            let got = killing(hook, None).step(turn, start + secs(seconds));
            assert_eq!(got, want, "{hook:?}, turn {turn}, after {seconds} s");
        }
        assert_eq!(killing(HookState::Over, Some(secs(10))).step(true, start + secs(60)), Step::Nothing);
        let shorter = killing(HookState::Over, Some(secs(30)));
        assert_eq!(shorter.step(true, start + secs(4)), Step::Stop(secs(6)), "it got shorter");
        let at_once = Killing { grace: Duration::ZERO, ..killing(HookState::Due, None) };
        assert_eq!(at_once.step(true, start), Step::Stop(MINIMUM), "no grace, no hook");
    }
}
