use super::*;
use crate::local::Body;

/// A directory as the tests write it: names and contents.
struct Dir {
    set: FileSet,
    id: DirectoryId,
    files: BTreeMap<String, String>,
    now: Instant,
}

fn pod(name: &str, label: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{v: '{label}'}}}}\nspec: {{containers: [{{name: main, image: i}}]}}\n"
    )
}

impl Dir {
    fn new() -> Dir {
        Dir::after_restart(Vec::new())
    }

    fn after_restart(ran_before: Vec<Arc<Pod>>) -> Dir {
        Dir::with_records(ran_before, Recorded::new())
    }

    fn with_records(ran_before: Vec<Arc<Pod>>, recorded: Recorded) -> Dir {
        let set = FileSet::new("/m", None, "n", ran_before, recorded);
        Dir { set, id: DirectoryId(1, 1), files: BTreeMap::new(), now: Instant::now() }
    }

    fn write(&mut self, name: &str, content: &str) -> &mut Dir {
        self.files.insert(name.to_owned(), content.to_owned());
        self
    }

    fn remove(&mut self, name: &str) -> &mut Dir {
        self.files.remove(name);
        self
    }

    /// A listing and all the readings that it asks for; returns what is told.
    fn look(&mut self) -> Vec<String> {
        let entries: Vec<_> = self
            .files
            .iter()
            .map(|(name, text)| {
                let mut hasher = DefaultHasher::new();
                text.hash(&mut hasher);
                let stamp = Stamp { inode: 1, size: text.len() as u64, mtime: i128::from(hasher.finish()), ctime: 0 };
                Entry { name: name.clone(), stamp: (text != "(directory)").then_some(stamp) }
            })
            .collect();
        let (names, mut reports) = self.set.list(self.id, &entries, &HashSet::new(), false, self.now);
        for name in names {
            let stamp = entries.iter().find(|e| e.name == name).and_then(|e| e.stamp);
            self.set.load(&name, stamp, Ok(self.files[&name].clone()), self.now, Timestamp::UNIX_EPOCH);
        }
        reports.extend(self.set.settle(self.now).0);
        reports
            .into_iter()
            .map(|r| match r {
                Report::Problem(t) => format!("E {t}"),
                Report::Warning(t) => format!("W {t}"),
                Report::Info(t) => format!("I {t}"),
            })
            .collect()
    }

    fn later(&mut self, time: Duration) -> Vec<String> {
        self.now += time;
        self.look()
    }

    /// The pods as `name=label@file`.
    fn pods(&self) -> Vec<String> {
        let pods = self.set.pods().expect("the directory has been read");
        pods.iter()
            .map(|p| {
                let label = p.meta.labels.as_ref().and_then(|l| l.get("v")).cloned().unwrap_or_default();
                format!("{}={label}@{}", p.name.name, p.origin)
            })
            .collect()
    }
}

impl Dir {
    /// The objects as `key=value`.
    fn objects(&self) -> Vec<String> {
        let (_, objects) = self.set.objects().expect("the directory has been read");
        objects
            .iter()
            .map(|o| match &o.body {
                Body::ConfigMap(map) => format!("{}={}", o.key.name, map.data["v"]),
                _ => o.key.to_string(),
            })
            .collect()
    }
}

fn map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{v: '{value}'}}\n")
}

const NONE: [&str; 0] = [];

#[test]
fn files_come_change_and_go() {
    let mut d = Dir::new();
    assert_eq!(d.set.pods(), None, "nothing is known before the first look");
    assert_eq!(d.look(), NONE);
    assert_eq!(d.pods(), NONE);
    d.write("a.yaml", &pod("a", "1")).look();
    assert_eq!(d.pods(), ["a-n=1@/m/a.yaml"]);
    d.write("a.yaml", &pod("a", "2")).look();
    assert_eq!(d.pods(), ["a-n=2@/m/a.yaml"]);
    d.remove("a.yaml").look();
    assert_eq!(d.pods().len(), 1, "it may come back at once");
    d.later(GONE);
    assert_eq!(d.pods(), NONE);
}

#[test]
fn the_same_content_is_the_same_value() {
    let mut d = Dir::new();
    d.write("a.yaml", &pod("a", "1")).look();
    let before = d.set.pods().expect("read");
    d.write("a.yaml", &format!("# a comment\n{}", pod("a", "1"))).look();
    let after = d.set.pods().expect("read");
    assert!(Arc::ptr_eq(&before[0], &after[0]));
}

/// kubernetes#83708, #40331, #43397: editors move the file away and make a new one.
#[test]
fn kubernetes_83708_a_save_by_rename_is_no_removal() {
    let mut d = Dir::new();
    d.write("web", &pod("a", "1")).look();
    let old = d.files["web"].clone();
    d.write("4913", "").remove("4913").write("web~", &old).remove("web").look();
    d.write("web", "").later(Duration::from_millis(5));
    assert_eq!(d.pods(), ["a-n=1@/m/web"]);
    d.write("web", &pod("a", "2")).remove("web~").later(Duration::from_millis(50));
    assert_eq!(d.pods(), ["a-n=2@/m/web"]);
    assert_eq!(d.later(SETTLE), NONE, "nothing of it is worth a line");
}

/// COMPLAINTS 41: a typo takes no pod down.
#[test]
fn a_file_that_stops_parsing_keeps_its_last_good_pods() {
    let mut d = Dir::new();
    d.write("a.yaml", &format!("{}---\n{}", pod("a", "1"), pod("b", "1"))).look();
    d.write("a.yaml", &format!("{}---\nkind: [\n", pod("a", "2")));
    assert_eq!(d.look(), NONE, "it may be half written");
    assert_eq!(d.pods(), ["a-n=2@/m/a.yaml", "b-n=1@/m/a.yaml"]);
    let told = d.later(SETTLE);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("E /m/a.yaml:6: "), "{told:?}");
    assert_eq!(d.later(SETTLE), NONE, "it is told once");
    d.write("a.yaml", "").look();
    assert_eq!(d.later(SETTLE), ["E /m/a.yaml: there is no object in it"]);
    assert_eq!(d.pods().len(), 2);
    assert_eq!(d.write("a.yaml", &pod("a", "3")).look(), ["I /m/a.yaml: has no problem any more"]);
    assert_eq!(d.pods(), ["a-n=3@/m/a.yaml"], "b is not in it any more");
}

#[test]
fn a_broken_file_keeps_what_ran_before_a_restart() {
    let mut d = Dir::new();
    d.write("a.yaml", &pod("a", "1")).look();
    let mut d = Dir::after_restart(d.set.pods().expect("read"));
    d.write("a.yaml", "{").look();
    assert_eq!(d.pods(), ["a-n=1@/m/a.yaml"]);
    d.remove("a.yaml").look();
    d.later(GONE);
    assert_eq!(d.pods(), NONE);
}

/// kubernetes#136962, kubeadm#2823, metalk8s#3003: copies and temporary files of tools.
#[test]
fn kubernetes_136962_backups_are_no_manifests() {
    let mut d = Dir::new();
    for name in ["x.yaml.backup", "x.yaml~", "#x#", ".x.yaml.swp", "x.yaml.dpkg-new", "x.txt"] {
        d.write(name, &pod("x", "backup"));
    }
    d.write("sub", "(directory)");
    let told = d.look();
    assert_eq!(told.len(), 7);
    assert!(told.contains(&"I /m/x.yaml.backup: not a manifest, skipped".to_owned()));
    assert_eq!(d.look(), NONE, "it is told once");
    assert_eq!(d.pods(), NONE);
    d.write(".ours.yaml.new", &pod("x", "half"));
    assert_eq!(d.look(), NONE, "what the agent itself is writing is worth no word");
    assert_eq!(d.pods(), NONE);
    for name in ["a.yaml", "b.yml", "c.json", "d.manifest", "e"] {
        assert!(is_manifest_name(name), "{name}");
    }
}

#[test]
fn of_two_files_for_one_pod_the_first_keeps_it() {
    let mut d = Dir::new();
    d.write("b.yaml", &pod("twin", "b")).look();
    d.write("a.yaml", &pod("twin", "a"));
    let conflict = "E /m/a.yaml: pod default/twin-n is that of /m/b.yaml already; this one is ignored";
    assert_eq!(d.look(), [conflict]);
    assert_eq!(d.pods(), ["twin-n=b@/m/b.yaml"]);
    assert_eq!(d.later(SETTLE), NONE);

    let ran = d.set.pods().expect("read");
    let files = d.files.clone();
    let mut d = Dir::after_restart(ran);
    d.files = files;
    assert_eq!(d.look(), [conflict], "the one that runs keeps its name over a restart");

    d.remove("b.yaml").look();
    d.later(GONE);
    assert_eq!(d.pods(), ["twin-n=a@/m/a.yaml"]);

    d.write("c.yaml", &format!("{0}---\n{0}", pod("c", "1")));
    assert_eq!(d.look(), ["E /m/c.yaml: pod default/c-n stands in it twice; the first counts"]);
    assert_eq!(d.pods().len(), 2);
}

/// COMPLAINTS 41: an unmounted or unreadable directory is not an empty one.
#[test]
fn a_directory_that_vanishes_removes_nothing() {
    let mut d = Dir::new();
    d.write("a.yaml", &pod("a", "1")).look();
    assert!(d.set.cannot_read("No such file or directory").is_some());
    assert!(d.set.cannot_read("No such file or directory").is_none(), "it is told once");
    assert_eq!(d.pods().len(), 1);
    assert_eq!(d.look(), ["I /m: can be read again"]);

    let files = std::mem::take(&mut d.files);
    d.id = DirectoryId(2, 2);
    let told = d.look();
    assert_eq!(told, ["E /m: another directory, an empty one, is in its place; the pods that it gave are kept"]);
    d.later(GONE);
    assert_eq!(d.pods().len(), 1, "the mount went away");
    d.id = DirectoryId(1, 1);
    d.files = files;
    d.look();
    d.later(GONE);
    assert_eq!(d.pods().len(), 1);

    d.id = DirectoryId(3, 3);
    d.remove("a.yaml").write("b.yaml", &pod("b", "1")).look();
    d.later(GONE);
    assert_eq!(d.pods(), ["b-n=1@/m/b.yaml"], "another directory with manifests counts");
}

#[test]
fn a_file_that_is_being_written_is_left_alone() {
    let mut d = Dir::new();
    d.write("a.yaml", &pod("a", "1")).look();
    d.set.is_written("a.yaml", d.now);
    d.write("a.yaml", &pod("half", "1")).look();
    assert_eq!(d.pods(), ["a-n=1@/m/a.yaml"]);
    d.set.is_closed("a.yaml");
    d.write("a.yaml", &pod("a", "2")).look();
    assert_eq!(d.pods(), ["a-n=2@/m/a.yaml"]);
    d.set.is_written("a.yaml", d.now);
    d.write("a.yaml", &pod("a", "3")).look();
    d.later(SETTLE);
    assert_eq!(d.pods(), ["a-n=3@/m/a.yaml"], "a writer that never closes does not hold it for ever");
}

#[test]
fn a_file_as_the_source() {
    let mut d = Dir::new();
    d.set = FileSet::new("/m", Some("pods.conf"), "n", Vec::new(), Recorded::new());
    d.write("pods.conf", &pod("a", "1")).write("other.yaml", &pod("b", "1"));
    assert_eq!(d.look(), NONE);
    assert_eq!(d.pods(), ["a-n=1@/m/pods.conf"]);
}

#[test]
fn objects_come_change_and_go() {
    let mut d = Dir::new();
    assert!(d.set.objects().is_none(), "nothing is known before the first look");
    d.write("a.yaml", &format!("{}---\n{}", map("m", "1"), pod("a", "1"))).look();
    assert_eq!((d.objects(), d.pods().len()), (vec!["m=1".to_owned()], 1));
    let before = d.set.objects().expect("read").1;
    d.write("a.yaml", &format!("# a comment\n{}", map("m", "1"))).look();
    let after = d.set.objects().expect("read").1;
    assert!(Arc::ptr_eq(&before[0], &after[0]), "the same content is the same value");
    d.write("a.yaml", &map("m", "2")).look();
    assert_eq!(d.objects(), ["m=2"]);
    d.remove("a.yaml").look();
    assert_eq!(d.objects(), ["m=2"], "it may come back at once");
    d.later(GONE);
    assert_eq!(d.objects(), NONE);
    assert_eq!(d.set.objects().expect("read").0.len(), 0);
}

#[test]
fn a_file_that_stops_parsing_keeps_its_last_good_objects() {
    let mut d = Dir::new();
    d.write("a.yaml", &format!("{}---\n{}", map("m", "1"), map("other", "1"))).look();
    d.write("a.yaml", &format!("{}---\nkind: [\n", map("m", "2"))).look();
    assert_eq!(d.objects(), ["m=2", "other=1"]);
    let (by_place, _) = d.set.objects().expect("read");
    let mut d = Dir::with_records(Vec::new(), by_place.clone());
    d.write("a.yaml", "{").write("b.yaml", &map("b", "1")).look();
    assert_eq!(d.objects(), ["m=2", "other=1", "b=1"], "over a restart too");
    d.write("a.yaml", &map("m", "3")).look();
    assert_eq!(d.objects(), ["m=3", "b=1"]);
    let mut d = Dir::with_records(Vec::new(), by_place);
    d.look();
    assert_eq!(d.objects(), NONE, "a file that went while nobody looked");
}

#[test]
fn of_two_files_for_one_object_the_first_keeps_it() {
    let mut d = Dir::new();
    d.write("b.yaml", &map("twin", "b")).look();
    d.write("a.yaml", &format!("{}---\n{}", map("twin", "a"), map("own", "a")));
    let conflict = "E /m/a.yaml: ConfigMap default/twin is that of /m/b.yaml already; this one is ignored";
    assert_eq!(d.look(), [conflict]);
    assert_eq!(d.objects(), ["own=a", "twin=b"]);
    assert_eq!(d.later(SETTLE), NONE, "it is told once");
    d.remove("b.yaml").look();
    d.later(GONE);
    assert_eq!(d.objects(), ["twin=a", "own=a"]);
    d.write("c.yaml", &format!("{0}---\n{0}", map("c", "1")));
    assert_eq!(d.look(), ["E /m/c.yaml: ConfigMap default/c stands in it twice; the first counts"]);
    assert_eq!(d.objects().len(), 3);
    // A secret and a config map of one name are two things.
    d.write("d.yaml", &map("c", "1").replace("ConfigMap", "Secret").replace("\ndata", "\nstringData"));
    assert_eq!(d.look(), NONE);
    assert_eq!(d.objects().len(), 4);
}

#[test]
fn what_is_immutable_stays_until_it_is_removed() {
    let mut d = Dir::new();
    let immutable = |value| format!("{}immutable: true\n", map("m", value));
    d.write("a.yaml", &map("m", "1")).look();
    d.write("a.yaml", &immutable("2")).look();
    assert_eq!(d.objects(), ["m=2"]);
    for text in [immutable("3"), map("m", "2")] {
        d.write("a.yaml", &text).look();
        let told = d.later(SETTLE);
        let why = "ConfigMap default/m is immutable; remove it first, or give the new one another name";
        assert_eq!(told, [format!("E /m/a.yaml: {why}")]);
        assert_eq!(d.objects(), ["m=2"]);
        d.write("a.yaml", &immutable("2")).look();
    }
    d.remove("a.yaml").look();
    d.later(GONE);
    d.write("a.yaml", &immutable("3")).look();
    assert_eq!(d.objects(), ["m=3"]);
}
