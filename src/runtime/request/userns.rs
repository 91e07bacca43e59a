//! Ranges of the node's user and group IDs for pods with a user namespace of their own
//! (pkg/kubelet/userns). Each pod gets a range that no other pod has, and the same one for as long
//! as it lives: its files belong to these IDs. Pure: what is allotted is kept in the pod's directory
//! by the caller, and told again after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;

use serde::{Deserialize, Serialize};

use crate::cri::api;
use crate::pod::PodUid;

/// IDs of the node, as many as `length`, that are 0, 1, … in the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    pub first: u32,
    pub length: u32,
}

#[derive(Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// The kubelet's file `userns` in a pod's directory.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

impl IdRange {
    /// The text of the file that keeps the range.
    pub fn to_file(self) -> String {
        let mapping = |range: IdRange| Mapping { host_id: range.first, container_id: 0, length: range.length };
        let file = File { uid_mappings: vec![mapping(self)], gid_mappings: vec![mapping(self)] };
        // Numbers in structs: nothing that JSON can't express.
        serde_json::to_string(&file).unwrap_or_default()
    }

    /// The range that a file keeps, ours or the kubelet's; `None` when it is no such file.
    pub fn from_file(text: &str) -> Option<IdRange> {
        let file: File = serde_json::from_str(text).ok()?;
        match (file.uid_mappings.as_slice(), file.gid_mappings.as_slice()) {
            ([uids], [gids]) if uids == gids && uids.container_id == 0 => {
                Some(IdRange { first: uids.host_id, length: uids.length })
            }
            _ => None,
        }
    }

    pub(super) fn mapping(self) -> api::IDMapping {
        api::IDMapping { host_id: self.first, container_id: 0, length: self.length, ..Default::default() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("IDs from {first} on, {length}, can't be divided into ranges of {each}")]
    Uneven { first: u32, length: u32, each: u32 },
    #[error("the range of IDs of pod {0} is not one of ours")]
    Foreign(PodUid),
    #[error("the range of IDs of pod {0} is that of another pod")]
    Taken(PodUid),
    #[error("all {0} ranges of IDs for user namespaces are in use")]
    Exhausted(u32),
}

/// Who has which range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocator {
    all: IdRange,
    /// IDs in each range.
    each: u32,
    /// Number of each pod's range, counted from `all.first`.
    slots: BTreeMap<PodUid, u32>,
    taken: BTreeSet<u32>,
}

impl Allocator {
    /// All IDs of the node but the first range, which the node itself uses: what the kubelet takes
    /// unless the machine says otherwise.
    pub fn all_but_the_nodes(each: u32) -> Result<Allocator, Error> {
        let rest = 0u32.wrapping_sub(each);
        let whole = rest.checked_rem(each).map_or(0, |over| rest - over);
        Allocator::new(IdRange { first: each, length: whole }, each)
    }

    /// Ranges of `each` IDs from `all`. The node's own IDs, the first `each`, must not be among them.
    pub fn new(all: IdRange, each: u32) -> Result<Allocator, Error> {
        let even = each > 0 && all.first % each == 0 && all.length % each == 0;
        if !even || all.first < each || all.length < each {
            return Err(Error::Uneven { first: all.first, length: all.length, each });
        }
        Ok(Allocator { all, each, slots: BTreeMap::new(), taken: BTreeSet::new() })
    }

    fn count(&self) -> u32 {
        self.all.length / self.each
    }

    fn range(&self, slot: u32) -> IdRange {
        IdRange { first: self.all.first + slot * self.each, length: self.each }
    }

    /// Takes note of a range that a pod has had since before a restart.
    pub fn restore(&mut self, pod: &PodUid, range: IdRange) -> Result<(), Error> {
        let slot = range.first.checked_sub(self.all.first).map(|offset| offset / self.each);
        let slot = slot.filter(|slot| *slot < self.count() && self.range(*slot) == range);
        let slot = slot.ok_or_else(|| Error::Foreign(pod.clone()))?;
        match self.slots.get(pod) {
            Some(had) if *had == slot => return Ok(()),
            Some(_) => return Err(Error::Taken(pod.clone())),
            None if !self.taken.insert(slot) => return Err(Error::Taken(pod.clone())),
            None => {}
        }
        self.slots.insert(pod.clone(), slot);
        Ok(())
    }

    /// The pod's range: the one that it has, else a free one. Which one depends on the pod's UID, so
    /// that a pod whose file was lost gets its old one again, as long as no other took it.
    pub fn allot(&mut self, pod: &PodUid) -> Result<IdRange, Error> {
        if let Some(slot) = self.slots.get(pod) {
            return Ok(self.range(*slot));
        }
        let count = self.count();
        let wanted = u32::try_from(hash(pod) % u64::from(count)).unwrap_or(0);
        let slot = (wanted..count).chain(0..wanted).find(|slot| !self.taken.contains(slot));
        let slot = slot.ok_or(Error::Exhausted(count))?;
        self.taken.insert(slot);
        self.slots.insert(pod.clone(), slot);
        Ok(self.range(slot))
    }

    /// The pod is gone, and so are its files.
    pub fn release(&mut self, pod: &PodUid) {
        if let Some(slot) = self.slots.remove(pod) {
            self.taken.remove(&slot);
        }
    }
}

/// FNV-1a: the same in each run and version.
fn hash(pod: &PodUid) -> u64 {
    struct Fnv(u64);
    impl Hasher for Fnv {
        fn finish(&self) -> u64 {
            self.0
        }

        fn write(&mut self, bytes: &[u8]) {
            for b in bytes {
                self.0 = (self.0 ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hasher.write(pod.as_str().as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: u32 = 65536;

    fn uid(n: usize) -> PodUid {
        PodUid::new(format!("pod-{n}"))
    }

    fn small(ranges: u32) -> Allocator {
        Allocator::new(IdRange { first: 10 * EACH, length: ranges * EACH }, EACH).expect("even")
    }

    #[test]
    fn each_pod_has_its_own_until_it_is_gone() {
        let mut ids = small(3);
        let ranges: Vec<_> = (0..3).map(|n| ids.allot(&uid(n)).expect("free")).collect();
        let firsts: BTreeSet<_> = ranges.iter().map(|r| r.first / EACH).collect();
        assert_eq!(firsts, BTreeSet::from([10, 11, 12]));
        assert!(ranges.iter().all(|r| r.length == EACH));
        assert_eq!(ids.allot(&uid(1)), Ok(ranges[1]));
        assert_eq!(ids.allot(&uid(9)), Err(Error::Exhausted(3)));
        ids.release(&uid(1));
        ids.release(&uid(1));
        assert_eq!(ids.allot(&uid(9)), Ok(ranges[1]));
    }

    #[test]
    fn a_range_is_the_pods_own_in_another_run() {
        let all = || Allocator::all_but_the_nodes(EACH).expect("even");
        let (mut one, mut other) = (all(), all());
        let first = one.allot(&uid(7)).expect("free");
        other.allot(&uid(1)).expect("free");
        assert_eq!(other.allot(&uid(7)), Ok(first));
        assert!(first.first >= EACH && u64::from(first.first) + u64::from(EACH) <= 1 << 32);
        let mut again = small(4);
        let range = IdRange { first: 12 * EACH, length: EACH };
        assert_eq!(again.restore(&uid(1), range), Ok(()));
        assert_eq!(again.restore(&uid(1), range), Ok(()));
        assert_eq!(again.restore(&uid(2), range), Err(Error::Taken(uid(2))));
        let other = IdRange { first: 13 * EACH, length: EACH };
        assert_eq!(again.restore(&uid(1), other), Err(Error::Taken(uid(1))));
        assert_eq!(again.allot(&uid(1)), Ok(range));
        let others: Vec<_> = (2..5).map(|n| again.allot(&uid(n)).expect("free").first / EACH).collect();
        assert!(!others.contains(&12), "{others:?}");
    }

    #[test]
    fn ranges_that_can_not_be() {
        let mut ids = small(4);
        for (first, length) in [(9, EACH), (14, EACH), (10, 1), (0, EACH)] {
            let foreign = IdRange { first: first * EACH, length };
            assert_eq!(ids.restore(&uid(1), foreign), Err(Error::Foreign(uid(1))), "{first}");
        }
        let odd = IdRange { first: 10 * EACH + 1, length: EACH };
        assert_eq!(ids.restore(&uid(1), odd), Err(Error::Foreign(uid(1))));
        for (first, length, each) in [(0, EACH, EACH), (EACH, EACH, 0), (EACH + 1, EACH, EACH), (EACH, 0, EACH)] {
            let refused = Allocator::new(IdRange { first, length }, each);
            assert_eq!(refused, Err(Error::Uneven { first, length, each }));
        }
    }

    #[test]
    fn files() {
        let range = IdRange { first: 196_608, length: EACH };
        let mapping = r#"[{"hostId":196608,"containerId":0,"length":65536}]"#;
        let text = &format!(r#"{{"uidMappings":{mapping},"gidMappings":{mapping}}}"#);
        assert_eq!(range.to_file(), *text);
        assert_eq!(IdRange::from_file(text), Some(range));
        for bad in
            ["", "{}", &text.replacen("196608", "65536", 1), &text.replace("\"containerId\":0", "\"containerId\":1")]
        {
            assert_eq!(IdRange::from_file(bad), None, "{bad}");
        }
    }
}
