//! Variables, command, arguments, working directory and standard input of containers, as the processes in
//! them see them.

mod support;

use serde_json::{Value, json};
use support::manifest::Manifest;
use support::node::{Node, SOON};

/// `KIND NAME` of namespace `default`, with YAML in flow style as the rest.
fn object(kind: &str, name: &str, rest: &str) -> String {
    format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\n{rest}\n")
}

#[test]
fn variables_command_and_arguments() {
    let node = Node::start();
    node.add(&Manifest::job("references").raw(&format!(
        r#"name: main, image: {}, command: [sh, -c, 'echo "$A|$B|$C|$D|$E|$F"; printf "%s|" "$@"', "$(A)"],
        args: ["$(A)-$(MISSING)-$$(A)-$$$(A)", "$(B)", "$(E)", "$(F", "a  b"],
        env: [{{name: A, value: plain}}, {{name: B, value: "b $(A) $(A)"}}, {{name: C, value: "$$(A) $$$$ $x $"}},
          {{name: D, value: "$(LATER) $(D)"}}, {{name: LATER, value: late}}, {{name: E, value: ""}}, {{name: F}}]"#,
        support::BUSYBOX
    )));
    let twice = "env: [{name: A, value: one}, {name: B, value: $(A)}, {name: A, value: two}, {name: C, value: $(A)}]";
    node.add(&Manifest::job("override").main("echo $A $B $C", twice));
    // What the runtime and the shell have set, and nothing else.
    node.add(&Manifest::job("bare").main("env | cut -d= -f1 | sort | tr '\\n' ' '", ""));
    let want =
        "plain|b plain plain|$(A) $$ $x $|$(LATER) $(D)||\nplain-$(MISSING)-$(A)-$plain|b plain plain||$(F|a  b|";
    assert_eq!(node.output("references"), want);
    assert_eq!(node.output("override"), "two one two");
    assert_eq!(node.output("bare"), "HOME HOSTNAME PATH PWD SHLVL ");
}

/// What a container that names nothing of its own gets from its image, and what it overrides.
#[test]
fn the_images_command_variables_and_directory() {
    let node = Node::start();
    let config = json!({
        "Entrypoint": ["sh", "-c", "echo \"$FROM_IMAGE $PWD $*\"", "sh"], "Cmd": ["cmd1", "cmd2"],
        "Env": ["PATH=/bin", "FROM_IMAGE=image-value"], "WorkingDir": "/tmp",
    });
    let image = "cleat.local/with-defaults:1";
    node.containerd.import(&support::variant(node.containerd.cell().dir(), image, config), image);
    let table = [
        ("none", "", "image-value /tmp cmd1 cmd2"),
        ("args", "args: [mine]", "image-value /tmp mine"),
        ("command", "command: [echo, only]", "only"),
        ("both", "command: [echo, com], args: [arg]", "com arg"),
        ("env", "env: [{name: FROM_IMAGE, value: pods}]", "pods /tmp cmd1 cmd2"),
        ("directory", "workingDir: /var", "image-value /var cmd1 cmd2"),
    ];
    for (name, fields, _) in table {
        let comma = if fields.is_empty() { "" } else { ", " };
        node.add(&Manifest::job(name).raw(&format!("name: main, image: '{image}'{comma}{fields}")));
    }
    for (name, _, want) in table {
        assert_eq!(node.output(name), want, "{name}");
    }
}

#[test]
fn working_directory_terminal_and_input() {
    let node = Node::start();
    node.add(&Manifest::job("directory").main("pwd", "workingDir: /not/there/yet"));
    let input = "tty >/dev/null && echo terminal; read -t 2 line && echo read; echo $?";
    node.add(&Manifest::job("without").main(input, ""));
    // An open standard input that nobody writes to: reading waits.
    node.add(&Manifest::job("stdin").main("read -t 1 line; echo $?; readlink /proc/self/fd/0", "stdin: true"));
    node.add(&Manifest::job("terminal").main("tty; [ -t 1 ] && echo a terminal", "tty: true, stdin: true"));
    assert_eq!(node.output("directory"), "/not/there/yet");
    assert_eq!(node.output("without"), "1", "the end of input is there at once");
    let stdin = node.output("stdin");
    assert!(stdin.contains("pipe:"), "{stdin}");
    assert_eq!(node.output("terminal").replace('\r', ""), "/dev/pts/0\na terminal");
}

const FIELDS: &str = "env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}},
    {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}},
    {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.uid}}},
    {name: LABEL, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['tier']\"}}},
    {name: NONE, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['none']\"}}},
    {name: NOTE, valueFrom: {fieldRef: {fieldPath: \"metadata.annotations['example.org/x']\"}}},
    {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}},
    {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}},
    {name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}},
    {name: HOSTS, valueFrom: {fieldRef: {fieldPath: status.hostIPs}}},
    {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}},
    {name: IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}]";

#[test]
fn fields_of_the_pod() {
    let node = Node::start();
    let script = "echo \"$NAME|$NAMESPACE|$POD|$LABEL|$NONE|$NOTE|$NODE|$ACCOUNT|$HOST|$HOSTS|$IP|$IPS\"
        ip -4 addr show eth0 | sed -n 's/.*inet \\([0-9.]*\\).*/\\1/p'";
    let metadata = "namespace: own, labels: {tier: edge}, annotations: {example.org/x: with space}";
    node.add(&Manifest::job("fields").metadata(metadata).main(script, FIELDS));
    node.add(&Manifest::job("host").spec("hostNetwork: true").main("echo $HOST $HOSTS $IP $IPS", FIELDS));
    let text = node.output("fields");
    let (line, ip) = text.split_once('\n').expect("two lines");
    let pod = node.agent.wait_pod("fields", SOON, |_| true);
    let uid = pod["metadata"]["uid"].as_str().expect("has one");
    assert!(ip.starts_with(support::containerd::POD_NETWORK), "{ip}");
    let want = format!("fields-edge-1|own|{uid}|edge||with space|edge-1||192.0.2.10|192.0.2.10|{ip}|{ip}");
    assert_eq!(line, want);
    assert_eq!(node.output("host"), "192.0.2.10 192.0.2.10 192.0.2.10 192.0.2.10");
}

#[test]
fn resources_as_variables() {
    let node = Node::start();
    let var = |name: &str, field: &str| format!("{{name: {name}, valueFrom: {{resourceFieldRef: {{{field}}}}}}}");
    let vars = [
        var("A", "resource: limits.cpu"),
        var("B", "resource: requests.cpu"),
        var("C", "resource: requests.cpu, divisor: 1m"),
        var("D", "resource: limits.memory"),
        var("E", "resource: limits.memory, divisor: 1Mi"),
        var("F", "resource: requests.memory, divisor: 1Gi"),
        var("G", "containerName: other, resource: limits.memory, divisor: 1Ki"),
        var("H", "resource: requests.ephemeral-storage, divisor: 1Mi"),
    ];
    let resources =
        "resources: {requests: {cpu: 250m, memory: 32Mi, ephemeral-storage: 3Mi}, limits: {cpu: 1250m, memory: 64Mi}}";
    let fields = format!("{resources}, env: [{}]", vars.join(", "));
    let other = "resources: {limits: {memory: 16Mi}}";
    let script = "echo $A $B $C $D $E $F $G $H";
    node.add(&Manifest::job("given").main(script, &fields).container("other", "true", other));
    // Without a limit: what the node can give.
    let vars = [var("A", "resource: limits.cpu"), var("B", "resource: limits.memory, divisor: 1Ki")].join(", ");
    let script = "echo $A $B $(nproc) $(awk '/MemTotal/{print $2}' /proc/meminfo)";
    node.add(&Manifest::job("node").main(script, &format!("env: [{vars}]")));
    assert_eq!(node.output("given"), "2 1 250 67108864 64 1 16384 3");
    let text = node.output("node");
    let [cpu, memory, cpus, total] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert_eq!(cpu, cpus);
    // The test's threshold for eviction is 1 MiB; huge pages, if this machine has any, are not for this.
    let (memory, total): (u64, u64) = (memory.parse().expect("a number"), total.parse().expect("a number"));
    assert!(memory + 1024 <= total && memory > total / 2, "{memory} of {total} KiB");
}

#[test]
fn values_of_config_maps_and_secrets() {
    let node = Node::start();
    let map = object("ConfigMap", "map", "data: {A: from-map, B: map-b, not-a-name: odd}\nbinaryData: {bin: /w==}");
    let secret = object("Secret", "secret", "data: {B: c2VjcmV0LWI=}\nstringData: {C: secret-c}");
    let elsewhere = object("ConfigMap", "elsewhere", "data: {A: x}")
        .replace("name: elsewhere", "name: elsewhere, namespace: other");
    node.write("objects", &[map, secret, elsewhere].join("---\n"));
    let keys = "env: [{name: A, valueFrom: {configMapKeyRef: {name: map, key: A}}},
        {name: S, valueFrom: {secretKeyRef: {name: secret, key: C}}},
        {name: NOT, valueFrom: {secretKeyRef: {name: secret, key: none, optional: true}}},
        {name: NOR, valueFrom: {configMapKeyRef: {name: none, key: A, optional: true}}},
        {name: EXPANDED, value: '$(A)+$(S)'}]";
    node.add(&Manifest::job("keys").main("echo \"$A $S ${NOT-unset} ${NOR-unset} $EXPANDED\"", keys));
    // Of two sources the later one counts, and over both a variable of its own.
    let all =
        "envFrom: [{configMapRef: {name: map}}, {prefix: P_, configMapRef: {name: map}}, {secretRef: {name: secret}},
        {secretRef: {name: none, optional: true}}], env: [{name: C, value: own}]";
    let script = "echo $A $B $C $P_A $P_B; tr '\\0' '\\n' </proc/1/environ | grep -c -e not-a-name= -e bin=";
    node.add(&Manifest::job("all").main(script, all));
    let missing = |fields: &str| format!("env: [{{name: X, valueFrom: {{{fields}}}}}]");
    let refused = [
        ("no-map", missing("configMapKeyRef: {name: none, key: A}"), "configmap \"none\" not found"),
        ("no-secret", missing("secretKeyRef: {name: none, key: A}"), "secret \"none\" not found"),
        (
            "no-key",
            missing("configMapKeyRef: {name: map, key: none}"),
            "couldn't find key none in ConfigMap default/map",
        ),
        (
            "no-key-of-secret",
            missing("secretKeyRef: {name: secret, key: none}"),
            "couldn't find key none in Secret default/secret",
        ),
        ("other-namespace", missing("configMapKeyRef: {name: elsewhere, key: A}"), "configmap \"elsewhere\" not found"),
        ("none-of-all", "envFrom: [{secretRef: {name: later}}]".to_owned(), "secret \"later\" not found"),
    ];
    for (name, fields, _) in &refused {
        node.add(&Manifest::job(name).main("echo \"got $LATE\"", fields));
    }
    assert_eq!(node.output("keys"), "from-map secret-c unset unset from-map+secret-c");
    assert_eq!(
        node.output("all"),
        "from-map secret-b own from-map map-b\n2",
        "odd names are variables too, binary data are none"
    );
    for (name, _, why) in &refused {
        assert_eq!(node.waits(name, "CreateContainerConfigError"), *why, "{name}");
    }
    // What comes is used at once.
    node.write("later", &object("Secret", "later", "stringData: {LATE: in time}"));
    assert_eq!(node.output("none-of-all"), "got in time");
}

/// `fileKeyRef`: a variable out of a file that an init container has written.
#[test]
fn values_of_files() {
    let node = Node::start();
    let volume = "volumes: [{name: v, emptyDir: {}}]";
    let mount = "volumeMounts: [{name: v, mountPath: /v}]";
    let file = |key: &str, more: &str| {
        format!("{{name: {key}, valueFrom: {{fileKeyRef: {{volumeName: v, path: sub/env, key: {key}{more}}}}}}}")
    };
    let job = |name: &str, text: &str, vars: &[String]| {
        let write = format!("mkdir /v/sub && printf '%s' \"{text}\" >/v/sub/env && ln -s /etc/passwd /v/sub/link");
        let fields = format!("env: [{}]", vars.join(", "));
        Manifest::job(name).spec(volume).init("write", &write, mount).main("echo \"$A|$B|${C-unset}\"", &fields)
    };
    let good = "# a comment\nA='one'\nB='two\nlines \\$(A)'\n";
    node.add(&job("good", good, &[file("A", ""), file("B", ""), file("C", ", optional: true")]));
    node.add(&job("no-key", good, &[file("C", "")]));
    node.add(&job("malformed", "A=bare\n", &[file("A", "")]));
    node.add(&job("link", good, &[file("A", "").replace("sub/env", "sub/link")]));
    assert_eq!(node.output("good"), "one|two\nlines $(A)|unset");
    let refused = [
        ("no-key", "key C is not in it"),
        ("malformed", "line 1: a value must stand in single quotes"),
        ("link", "leads out of the volume"),
    ];
    for (name, why) in refused {
        let message = node.waits(name, "CreateContainerConfigError");
        assert!(message.contains(why), "{name}: {message}");
        assert!(!message.contains("bare") && !message.contains("root:"), "{message}");
    }
}

/// Changing an object changes no variable of a container that runs; one that starts anew has it.
#[test]
fn a_change_is_for_the_next_start() {
    let node = Node::start();
    node.write("map", &object("ConfigMap", "map", "data: {A: old}"));
    let from = "env: [{name: A, valueFrom: {configMapKeyRef: {name: map, key: A}}}]";
    node.add(&Manifest::pod("web").main("echo $A; while [ ! -e /tmp/end ]; do sleep 0.1; done", from));
    let web = node.runs("web");
    node.says(&web, "main", 0, "old");
    node.write("map", &object("ConfigMap", "map", "data: {A: new}"));
    node.add(&Manifest::job("witness").main("echo $A", from));
    assert_eq!(node.output("witness"), "new");
    assert_eq!(node.exec(&web, "main", "tr '\\0' '\\n' </proc/1/environ | grep ^A="), Ok("A=old".to_owned()));
    assert_eq!(
        node.agent.wait_pod("web", SOON, |_| true)["status"]["containerStatuses"][0]["restartCount"],
        Value::from(0)
    );
    node.exec(&web, "main", "touch /tmp/end").expect("runs");
    node.agent.wait_pod("web", SOON, |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1);
    node.says(&web, "main", 1, "new");
}
