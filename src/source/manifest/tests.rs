use jiff::Timestamp;

use super::*;
use crate::pod::Source;

const ORIGIN: Origin<'_> =
    Origin { source: Source::File, node_name: "edge-1", place: "/m/web.yaml", seen: Timestamp::UNIX_EPOCH };

fn names(m: &Manifest) -> Vec<String> {
    m.pods.iter().map(|p| p.name.to_string()).collect()
}

fn problems(text: &str) -> Vec<String> {
    read(text, ORIGIN).problems.iter().map(ToString::to_string).collect()
}

fn pod(name: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: main, image: i}}]}}\n")
}

#[test]
fn a_pod_a_list_and_several_documents() {
    let items = |kind: &str, item_kind: &str| {
        format!(
            "apiVersion: v1\nkind: {kind}\nitems:\n- {item_kind}\n  metadata: {{name: a}}\n  spec: {{containers: [{{name: main, image: i}}]}}\n"
        )
    };
    assert_eq!(names(&read(&pod("web"), ORIGIN)), ["default/web-edge-1"]);
    assert_eq!(names(&read(&items("PodList", "{}").replace("- {}\n ", "-"), ORIGIN)), ["default/a-edge-1"]);
    assert_eq!(
        names(&read(
            &items("List", "{apiVersion: v1, kind: Pod}")
                .replace("{apiVersion: v1, kind: Pod}\n", "apiVersion: v1\n  kind: Pod\n"),
            ORIGIN
        )),
        ["default/a-edge-1"]
    );
    let both = format!("---\n{}---\n# nothing\n---\n{}", pod("a"), pod("b"));
    assert_eq!(names(&read(&both, ORIGIN)), ["default/a-edge-1", "default/b-edge-1"]);
}

#[test]
fn a_bad_document_harms_no_other() {
    let text = format!("{}---\nkind: [\n---\n{}---\n{}", pod("a"), pod("Not_A_Name"), pod("b"));
    let m = read(&text, ORIGIN);
    assert_eq!(names(&m), ["default/a-edge-1", "default/b-edge-1"]);
    assert_eq!(m.problems.len(), 2, "{:?}", m.problems);
    assert_eq!((m.problems[1].line, m.problems[1].field.as_str()), (10, "metadata.name"));
}

#[test]
fn what_is_refused_says_where() {
    let table = [
        ("", "there is no object in it"),
        ("# only a comment\n", "there is no object in it"),
        ("just text", "line 1: kind: Required value"),
        ("kind: Pod", "line 1: apiVersion: Required value"),
        (
            "apiVersion: v1\n\nkind: Service\n",
            "line 3: kind: \"Service\" of v1 can't be used here: only Pod, ConfigMap, Secret, PersistentVolumeClaim, PersistentVolume, RuntimeClass, PriorityClass, PodList and List",
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment\n",
            "line 1: apiVersion: \"apps/v1\" is not known: only v1, node.k8s.io/v1, scheduling.k8s.io/v1",
        ),
        ("apiVersion: v1\nkind: List\nitems: 5\n", "line 3: items: must be a list"),
    ];
    for (text, want) in table {
        assert_eq!(problems(text), [want], "{text:?}");
    }
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: main\n    image: i\n    ports:\n    - hostPort: many\n";
    assert_eq!(
        problems(text),
        ["line 9: spec.containers[0].ports[0].hostPort: invalid type: string \"many\", expected i32"]
    );
}

#[test]
fn the_identity_survives_a_rewrite_and_unknown_fields_are_told() {
    let a = read(&pod("web"), ORIGIN);
    let b = read(
        "spec:\n  containers:\n  - image: i\n    name: main\n# a comment\nmetadata:\n  name: web\nkind: Pod\napiVersion: v1\n",
        ORIGIN,
    );
    assert_eq!(a.pods, b.pods);
    let with_uid = pod("web").replace("{name: web}", "{name: web, uid: mine}");
    assert_eq!(read(&with_uid, ORIGIN).pods[0].uid.as_str(), "mine");
    let typo = pod("web").replace("image: i", "image: i, imagePullPolice: Never");
    let m = read(&typo, ORIGIN);
    assert_eq!(m.pods.len(), 1);
    assert_eq!(m.warnings, [Problem::new(4, "spec.containers[0].imagePullPolice", "unknown field")]);
}
