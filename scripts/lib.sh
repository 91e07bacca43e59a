# What the scripts share. To be sourced by bash, from the root of the project.

# Installs the Debian packages of the list that are not there yet.
install_packages() {
	local missing=() package
	for package in "$@"; do
		dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null || { echo "these Debian packages are missing: ${missing[*]}" >&2; exit 1; }
	echo "installing ${missing[*]}"
	apt-get update -qq
	# A service that a package brings is not to be started: the scripts start their own.
	local policy=/usr/sbin/policy-rc.d made=no
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy && made=yes
	fi
	local status=0
	DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -qq -y --no-install-recommends "${missing[@]}" >/dev/null || status=$?
	if [ $made = yes ]; then rm -f $policy; fi
	return $status
}

# A C++ compiler for gRPC, and Rust if there is none: Debian 12 has a new enough one under another name.
# A compiler cache lets the C++ be built once for all profiles.
install_build_tools() {
	install_packages gcc g++ cmake make ccache
	export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
	command -v cargo >/dev/null && return
	. /etc/os-release
	case "${VERSION_ID-}" in
	12) install_packages rustc-web cargo-web ;;
	*) install_packages rustc cargo ;;
	esac
}

# Where cargo puts what it builds.
cargo_target() {
	cargo metadata --no-deps --format-version 1 | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])'
}

# write_containerd_config DIR SOCKET BRIDGE SUBNET: configuration of a containerd that keeps all it has
# below DIR, with a bridge network of its own.
write_containerd_config() {
	local dir=$1 socket=$2 bridge=$3 subnet=$4 restrict=false cni=/usr/lib/cni
	[ -x $cni/bridge ] || cni=/opt/cni/bin
	# Not everywhere may root lower the score; then containers keep what they get.
	sh -c 'echo -100 >/proc/self/oom_score_adj' 2>/dev/null || restrict=true
	cat >"$dir/containerd.toml" <<EOF
version = 2
root = "$dir/containerd-root"
state = "$dir/containerd-state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "$socket"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "cleat.local/pause:1"
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  restrict_oom_score_adj = $restrict
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$cni"
    conf_dir = "$dir/cni"
EOF
	cat >"$dir/cni/10-$bridge.conflist" <<EOF
{"cniVersion": "1.0.0", "name": "$bridge", "plugins": [
  {"type": "bridge", "bridge": "$bridge", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$dir/ipam", "ranges": [[{"subnet": "$subnet"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOF
}

# Reads a list of pods and prints a field of the status of the pod that a manifest calls NAME.
pod_field() {
	python3 -c "$(cat <<'EOF'
import json, sys
name, field = sys.argv[1:]
for pod in json.load(sys.stdin)["items"]:
    if pod["metadata"]["name"].startswith(name + "-"):
        print(pod["status"].get(field, ""))
EOF
	)" "$@"
}

# Reads a list of pods and prints a line for each.
show_pods() {
	python3 -c "$(cat <<'EOF'
import json, sys
row = "%-12s%-24s%-12s%-8s%-10s%s"
print(row % ("NAMESPACE", "NAME", "PHASE", "READY", "RESTARTS", "IP"))
for pod in json.load(sys.stdin)["items"]:
    meta, status = pod["metadata"], pod["status"]
    containers = status.get("containerStatuses", [])
    ready = "%d/%d" % (sum(c["ready"] for c in containers), len(containers))
    restarts = sum(c["restartCount"] for c in containers)
    print(row % (meta["namespace"], meta["name"], status["phase"], ready, restarts, status.get("podIP", "")))
EOF
	)"
}
