//! What becomes of the pods that a manifest gave when it is read again.

use std::sync::Arc;

use crate::pod::Pod;
use crate::pod::identity;

/// The pods that a manifest gives now, after it gave `old`: the same pod stays the same value, and of
/// a `broken` manifest no pod goes.
pub fn take(new: Vec<Pod>, old: Vec<Arc<Pod>>, broken: bool) -> Vec<Arc<Pod>> {
    let mut pods: Vec<_> = new.into_iter().map(Arc::new).collect();
    for pod in &mut pods {
        if let Some(same) = old.iter().find_map(|old| identity::resized(old, pod)) {
            *pod = Arc::new(same);
        }
        if let Some(old) = old.iter().find(|old| old.uid == pod.uid && !identity::changed(old, pod)) {
            *pod = old.clone();
        }
    }
    if broken {
        let kept: Vec<_> = old.into_iter().filter(|old| pods.iter().all(|p| p.name != old.name)).collect();
        pods.extend(kept);
    }
    pods
}
