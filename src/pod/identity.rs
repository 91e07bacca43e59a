//! The identity of static pods and the hashes that tell whether something changed
//! (pkg/kubelet/config/common.go, pkg/kubelet/container/helpers.go).

use std::collections::BTreeMap;
use std::io;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use super::{Pod, PodName, PodUid, Source, core, labels, resize};

/// FNV-1a with 128 bits.
struct Fnv128a(u128);

impl Fnv128a {
    fn new() -> Fnv128a {
        Fnv128a(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl io::Write for Fnv128a {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        for b in bytes {
            self.0 = (self.0 ^ u128::from(*b)).wrapping_mul(PRIME);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// FNV-1a with 32 bits.
struct Fnv32a(u32);

impl io::Write for Fnv32a {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for b in bytes {
            self.0 = (self.0 ^ u32::from(*b)).wrapping_mul(0x0100_0193);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hashes `value` as JSON, whose maps are sorted here: the same value gives the same bytes.
fn hash_json<H: io::Write>(mut hasher: H, value: &impl Serialize) -> H {
    // API types hold no value that JSON can't express, and the hashers take all bytes.
    if let Err(e) = serde_json::to_writer(&mut hasher, value) {
        log::error!("cannot hash a value of the API: {e}");
    }
    hasher
}

/// The UID of a pod that gives none: a hash over its content, the node and the place that it was
/// read from, the same over restarts of the agent. It is taken before defaults are filled in, so
/// that a later version of the agent with more defaults doesn't see another pod.
pub fn static_uid(pod: &core::Pod, origin: Origin<'_>) -> PodUid {
    use io::Write;
    let mut hasher = hash_json(Fnv128a::new(), pod);
    let written = match origin.source {
        Source::File => write!(hasher, "host:{}file:{}", origin.node_name, origin.place),
        Source::Http | Source::Api => write!(hasher, "url:{}", origin.place),
    };
    if let Err(e) = written {
        log::error!("cannot hash where a pod was read from: {e}");
    }
    PodUid::new(format!("{:032x}", hasher.0))
}

/// Hash of the fields of a container whose change demands a restart, in hexadecimal: name and
/// image.
pub fn container_hash(container: &core::Container) -> String {
    let picked = BTreeMap::from([("image", container.image.as_deref()), ("name", Some(container.name.as_str()))]);
    format!("{:x}", hash_json(Fnv32a(0x811c_9dc5), &picked).0)
}

/// Where a static pod was read from.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    pub source: Source,
    pub node_name: &'a str,
    /// The file's path or the URL.
    pub place: &'a str,
    pub seen: Timestamp,
}

/// Turns a decoded and defaulted pod from a file or a URL into the static pod of this node.
/// `uid` is that of the pod itself, else [`static_uid`] of it as it was before the defaults.
pub fn static_pod(mut object: core::Pod, uid: PodUid, origin: Origin<'_>) -> Pod {
    let Origin { source, node_name, place, seen } = origin;
    let meta = &mut object.metadata;
    let name = format!("{}-{}", meta.name.as_deref().unwrap_or_default(), node_name.to_lowercase());
    let namespace = meta.namespace.take().filter(|n| !n.is_empty()).unwrap_or_else(|| "default".to_owned());
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(labels::CONFIG_HASH.to_owned(), uid.to_string());
    annotations.insert(labels::CONFIG_SOURCE.to_owned(), source.as_str().to_owned());
    annotations.insert(labels::CONFIG_SEEN.to_owned(), seen.to_string());
    meta.name = Some(name.clone());
    meta.namespace = Some(namespace.clone());
    meta.uid = Some(uid.to_string());
    let mut spec = object.spec.unwrap_or_default();
    spec.node_name = Some(node_name.to_owned());
    if source == Source::File {
        tolerate_no_execute(&mut spec);
    }
    Pod {
        uid,
        name: PodName::new(namespace, name),
        source,
        origin: place.into(),
        status: None,
        meta: object.metadata,
        spec,
    }
}

/// Static pods from files stay when the node has problems.
fn tolerate_no_execute(spec: &mut core::PodSpec) {
    let toleration = core::Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Default::default()
    };
    let tolerations = spec.tolerations.get_or_insert_default();
    if !tolerations.contains(&toleration) {
        tolerations.push(toleration);
    }
}

/// Whether `new` differs from `old`, two versions of one pod, in anything that the node acts on:
/// the spec, the labels, the deletion, or an annotation that is the pod's own.
pub fn changed(old: &Pod, new: &Pod) -> bool {
    old.spec != new.spec || meta_changed(old, new)
}

/// If `new`, a pod from a manifest, is `old` with other amounts of CPU and memory, it is the same pod,
/// though the UID that its content gives is another: then it with the UID that it keeps.
pub fn resized(old: &Pod, new: &Pod) -> Option<Pod> {
    if old.name != new.name || old.spec == new.spec {
        return None;
    }
    let mut pod = new.clone();
    pod.uid = old.uid.clone();
    pod.meta.uid = old.meta.uid.clone();
    let hash = old.meta.annotations.as_ref().and_then(|all| all.get(labels::CONFIG_HASH));
    pod.meta
        .annotations
        .get_or_insert_default()
        .extend(hash.map(|hash| (labels::CONFIG_HASH.to_owned(), hash.clone())));
    let same = !meta_changed(old, &pod) && resize::identity(&old.spec) == resize::identity(&pod.spec);
    same.then_some(pod)
}

fn meta_changed(old: &Pod, new: &Pod) -> bool {
    fn own(meta: &ObjectMeta) -> impl Iterator<Item = (&String, &String)> {
        let all = meta.annotations.iter().flatten();
        all.filter(|(k, _)| !labels::LOCAL_ANNOTATIONS.contains(&k.as_str()))
    }
    old.meta.labels != new.meta.labels
        || old.meta.deletion_timestamp != new.meta.deletion_timestamp
        || old.meta.deletion_grace_period_seconds != new.meta.deletion_grace_period_seconds
        || !own(&old.meta).eq(own(&new.meta))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    fn pod(image: &str) -> core::Pod {
        let container =
            core::Container { name: "main".to_owned(), image: Some(image.to_owned()), ..Default::default() };
        core::Pod {
            metadata: ObjectMeta { name: Some("web".to_owned()), ..Default::default() },
            spec: Some(core::PodSpec { containers: vec![container], ..Default::default() }),
            ..Default::default()
        }
    }

    fn origin(source: Source, node_name: &str) -> Origin<'_> {
        Origin { source, node_name, place: "/m/web.yaml", seen: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn the_hashes_are_fnv_1a() {
        use io::Write;
        let mut h = Fnv128a::new();
        h.write_all(b"foobar").expect("takes all bytes");
        assert_eq!(format!("{:032x}", h.0), "343e1662793c64bf6f0d3597ba446f18");
        let mut h = Fnv32a(0x811c_9dc5);
        h.write_all(b"foobar").expect("takes all bytes");
        assert_eq!(h.0, 0xbf9c_f968);
    }

    #[test]
    fn the_uid_is_of_content_node_and_place() {
        let uid = |image, source, node_name, place| {
            static_uid(&pod(image), Origin { source, node_name, place, seen: Timestamp::UNIX_EPOCH })
        };
        let base = uid("a", Source::File, "n1", "/m/web.yaml");
        assert_eq!(base.as_str().len(), 32);
        assert_eq!(base, uid("a", Source::File, "n1", "/m/web.yaml"));
        for other in [
            uid("b", Source::File, "n1", "/m/web.yaml"),
            uid("a", Source::File, "n2", "/m/web.yaml"),
            uid("a", Source::File, "n1", "/m/other.yaml"),
            uid("a", Source::Http, "n1", "/m/web.yaml"),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn a_static_pod_has_the_kubelets_identity() {
        let p = static_pod(pod("a"), PodUid::new("u1"), origin(Source::File, "Edge-1"));
        assert_eq!(p.name.to_string(), "default/web-edge-1");
        assert_eq!(p.meta.uid.as_deref(), Some("u1"));
        assert_eq!(p.spec.node_name.as_deref(), Some("Edge-1"));
        let annotations = p.meta.annotations.clone().unwrap_or_default();
        assert_eq!(annotations.get(labels::CONFIG_HASH).map(String::as_str), Some("u1"));
        assert_eq!(annotations.get(labels::CONFIG_SOURCE).map(String::as_str), Some("file"));
        assert_eq!(p.spec.tolerations.as_ref().map(Vec::len), Some(1));
        let from_url = static_pod(pod("a"), PodUid::new("u1"), origin(Source::Http, "edge-1"));
        assert_eq!(from_url.spec.tolerations, None);
    }

    #[test]
    fn only_name_and_image_restart_a_container() {
        let mut c = core::Container { name: "a".into(), image: Some("i:1".into()), ..Default::default() };
        let hash = container_hash(&c);
        c.command = Some(vec!["x".into()]);
        assert_eq!(container_hash(&c), hash);
        c.image = Some("i:2".into());
        assert_ne!(container_hash(&c), hash);
    }

    #[test]
    fn another_amount_of_cpu_is_no_other_pod() {
        let of = |uid: &str, cpu: &str, image: &str| {
            let mut object = pod(image);
            let requests = BTreeMap::from([("cpu".to_owned(), Quantity(cpu.to_owned()))]);
            let resources = core::ResourceRequirements { requests: Some(requests), ..Default::default() };
            object.spec.get_or_insert_default().containers[0].resources = Some(resources);
            static_pod(object, PodUid::new(uid), origin(Source::File, "n"))
        };
        let old = of("u1", "1", "a");
        let new = resized(&old, &of("u2", "2", "a")).expect("is the same");
        assert_eq!(new, of("u1", "2", "a"));
        assert_eq!(resized(&old, &of("u2", "2", "b")), None);
        assert_eq!(resized(&old, &old), None);
    }

    #[test]
    fn what_counts_as_a_change() {
        let base = static_pod(pod("a"), PodUid::new("u1"), origin(Source::File, "n"));
        let edit = |f: fn(&mut Pod)| {
            let mut p = base.clone();
            f(&mut p);
            changed(&base, &p)
        };
        let annotate = |p: &mut Pod, key: &str| {
            p.meta.annotations.get_or_insert_default().insert(key.to_owned(), "x".to_owned());
        };
        assert!(!edit(|_| {}));
        assert!(edit(|p| p.spec.hostname = Some("h".into())));
        assert!(edit(|p| p.meta.labels = Some(BTreeMap::from([("a".into(), "b".into())]))));
        assert!(edit(|p| p.meta.deletion_grace_period_seconds = Some(5)));
        let mut p = base.clone();
        annotate(&mut p, labels::CONFIG_SEEN);
        assert!(!changed(&base, &p));
        annotate(&mut p, "mine");
        assert!(changed(&base, &p));
    }
}
