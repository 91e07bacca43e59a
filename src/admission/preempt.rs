//! Which pods are ended to make room for a critical one (pkg/kubelet/preemption): no Guaranteed pod
//! where Burstable ones do, no Burstable one where BestEffort ones do; and of each class as few, and
//! as small ones, as will do.

use std::cmp::Ordering;
use std::fmt;

use crate::pod::qos::{QosClass, is_critical};
use crate::pod::resources::{Amounts, requests};
use crate::pod::{Pod, PodUid};

/// What is lacking; CPU in thousandths, all else in units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    pub resource: String,
    pub quantity: i64,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(res: {}, q: {})", self.resource, self.quantity)
    }
}

/// A pod that may be ended, and what that frees.
struct Candidate<'a> {
    pod: &'a Pod,
    class: QosClass,
    frees: Amounts,
}

fn may_preempt(pod: &Pod, other: &Pod) -> bool {
    let more_important = pod.spec.priority.zip(other.spec.priority).is_some_and(|(own, other)| own > other);
    (is_critical(pod) && !is_critical(other)) || more_important
}

/// # Errors
/// What would still be lacking if all that may be ended were.
pub fn victims(pod: &Pod, others: &[&Pod], needs: Vec<Need>) -> Result<Vec<PodUid>, Vec<Need>> {
    let candidates: Vec<_> = others.iter().filter(|other| may_preempt(pod, other)).map(|pod| candidate(pod)).collect();
    let of = |class| candidates.iter().filter(|c| c.class == class).collect::<Vec<_>>();
    let (best_effort, burstable, guaranteed) =
        (of(QosClass::BestEffort), of(QosClass::Burstable), of(QosClass::Guaranteed));
    // Of each class what it takes if the lower ones are ended altogether, and the higher ones as far
    // as was found that they must be.
    let guaranteed = choose(guaranteed, left(left(needs.clone(), &best_effort), &burstable))?;
    let burstable = choose(burstable, left(left(needs.clone(), &best_effort), &guaranteed))?;
    let best_effort = choose(best_effort, left(left(needs, &burstable), &guaranteed))?;
    Ok([best_effort, burstable, guaranteed].concat().iter().map(|c| c.pod.uid.clone()).collect())
}

fn candidate(pod: &Pod) -> Candidate<'_> {
    let mut frees = Amounts::from(requests(&pod.spec));
    frees.set("pods", 1);
    Candidate { pod, class: QosClass::of(&pod.spec), frees }
}

fn left(mut needs: Vec<Need>, freed: &[&Candidate<'_>]) -> Vec<Need> {
    for need in &mut needs {
        let sum = freed.iter().fold(0i64, |sum, c| sum.saturating_add(c.frees.get(&need.resource)));
        need.quantity = need.quantity.saturating_sub(sum);
    }
    needs.retain(|need| need.quantity > 0);
    needs
}

/// Takes the candidate that brings nearest to what is needed, until nothing is.
fn choose<'a>(mut from: Vec<&'a Candidate<'a>>, mut needs: Vec<Need>) -> Result<Vec<&'a Candidate<'a>>, Vec<Need>> {
    let mut chosen = Vec::new();
    while !needs.is_empty() {
        let nearest = from.iter().enumerate().min_by(|(_, a), (_, b)| {
            let by_distance = distance(a, &needs).partial_cmp(&distance(b, &needs)).unwrap_or(Ordering::Equal);
            by_distance.then_with(|| size(a).cmp(&size(b)))
        });
        let Some((index, _)) = nearest else { return Err(needs) };
        let candidate = from.swap_remove(index);
        needs = left(needs, &[candidate]);
        chosen.push(candidate);
    }
    Ok(chosen)
}

/// How far from what is needed this one leaves it, each need by its own measure.
#[allow(clippy::cast_precision_loss)]
fn distance(candidate: &Candidate<'_>, needs: &[Need]) -> f64 {
    let share = |need: &Need| {
        let left = need.quantity.saturating_sub(candidate.frees.get(&need.resource)).max(0);
        (left as f64 / need.quantity as f64).powi(2)
    };
    needs.iter().map(share).sum()
}

fn size(candidate: &Candidate<'_>) -> (i64, i64) {
    (candidate.frees.get("memory"), candidate.frees.get("cpu"))
}
