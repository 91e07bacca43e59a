#!/bin/sh
# The namespaces that a private containerd, and an agent, live in. The ways to call it:
#
#   cell.sh hold DIR CGROUP NODE KEEP   make the namespaces; on end of input take everything away
#   cell.sh part DIR CGROUP NODE KEEP   (called by hold) in the cgroup namespace, makes the others
#   cell.sh init DIR CGROUP NODE KEEP   (called by part) first process of the namespaces
#   cell.sh enter DIR PID COMMAND...    run a command in them; PID is the one that "ready" told
#
# DIR and KEEP are directories that stay visible in there as they are.
#
# `hold` outlives whoever started it: its standard input is a pipe from the test's process, and a
# pipe ends also when that process is killed. Then both `hold` and `init` see the end; with `init`
# the kernel ends all processes of the namespaces, and with them go mounts, interfaces and firewall
# rules. `hold` removes what namespaces can't: cgroups and DIR.
#
# The cell's cgroup is the root of a cgroup namespace, so that in there `/kubepods` and the like
# are the cell's own.
set -eu

die() {
	echo "cell: $*" >&2
	exit 1
}

# Mount point, type and (for version 1) controllers of each cgroup hierarchy, a line each.
hierarchies() {
	awk '
		FILENAME == "/proc/self/cgroup" { split($0, f, ":"); n = split(f[2], c, ","); for (i = 1; i <= n; i++) known[c[i]] = 1; next }
		{ for (i = 7; $i != "-"; i++); type = $(i + 1); if (type !~ /^cgroup2?$/) next
		  n = split($(i + 3), o, ","); ctl = ""
		  for (j = 1; j <= n; j++) if (o[j] in known && type == "cgroup") ctl = ctl (o[j] ~ /^name=/ ? ",none," : ",") o[j]
		  print $5, type, substr(ctl, 2) }
	' /proc/self/cgroup /proc/self/mountinfo
}

# Let the children of a version 2 cgroup use the controllers that containers need.
delegate() {
	for c in cpuset cpu io memory pids; do
		case " $(cat "$1/cgroup.controllers") " in
		*" $c "*) echo "+$c" >"$1/cgroup.subtree_control" ;;
		esac
	done
}

# Make the cell's cgroup, with a leaf `init` for all that isn't a container, in each hierarchy.
make_cgroups() {
	hierarchies | while read -r top type _; do
		if [ "$type" = cgroup2 ]; then delegate "$top"; fi
		mkdir "$top/$cgroup"
		echo "$top/$cgroup" >>"$dir/cgroups"
		if [ -e "$top/cpuset.cpus" ] && [ "$type" = cgroup ]; then
			cat "$top/cpuset.cpus" >"$top/$cgroup/cpuset.cpus"
			cat "$top/cpuset.mems" >"$top/$cgroup/cpuset.mems"
			echo 1 >"$top/$cgroup/cgroup.clone_children"
		fi
		mkdir "$top/$cgroup/init"
	done
}

join() {
	while read -r d; do echo 0 >"$d/$1/cgroup.procs"; done <"$dir/cgroups"
}

# Wait for the end of what is in the cell's cgroups, kill what doesn't end, and remove them.
drop_cgroups() {
	tries=0
	while [ -s "$dir/cgroups" ]; do
		left=
		while read -r d; do
			[ -d "$d" ] || continue
			# `init` has ended and all others with it, but not what is frozen, nor an nsenter that
			# stopped with its child and must now wait for it.
			find "$d" -name freezer.state | while read -r f; do echo THAWED >"$f"; done
			pids=$(find "$d" -name cgroup.procs -exec cat {} + | sort -u)
			signal=CONT
			if [ $tries -gt 20 ]; then signal=KILL; fi
			if [ -n "$pids" ]; then kill -$signal $pids; fi
			find "$d" -depth -type d -exec rmdir {} +
			if [ -d "$d" ]; then left="$left $d"; fi
		done <"$dir/cgroups" 2>/dev/null
		[ -n "$left" ] || break
		tries=$((tries + 1))
		[ $tries -lt 200 ] || die "could not remove$left"
		sleep 0.05
	done
}

hold() {
	set +e # all that can be taken away is taken away
	(set -e && make_cgroups)
	if [ $? -eq 0 ]; then
		exec 3<&0 # a background job would get /dev/null
		(join . && exec setpriv --pdeathsig KILL unshare --cgroup sh "$0" part "$dir" "$cgroup" "$node" "$keep") <&3 &
	fi
	exec >&- # "ready", or its absence, comes from init alone
	while read -r _; do :; done
	drop_cgroups
	wait
	rm -rf --one-file-system "$dir"
}

# The cgroup namespace begins where its first process was; then that must leave, for a version 2 cgroup
# has either processes or controllers.
part() {
	join init
	exec unshare --mount --net --pid --fork --kill-child --propagation private \
		sh "$0" init "$dir" "$cgroup" "$node" "$keep"
}

init() {
	# The old /proc still tells our pid outside.
	read -r pid _ </proc/self/stat
	mount -t proc proc /proc
	hierarchies >"$dir/hierarchies"
	while read -r top type controllers; do
		umount -l "$top"
		mount -t "$type" ${controllers:+-o "$controllers"} "$type" "$top"
		if [ "$type" = cgroup2 ]; then delegate "$top"; fi
	done <"$dir/hierarchies"

	# The runtime, its plug-ins and the agent write below these, whatever their configuration says.
	exec 4<"$dir" 5<"$keep"
	for d in /run /var/lib /var/log; do mount -t tmpfs tmpfs "$d"; done
	case "$dir" in /run/* | /var/lib/* | /var/log/*) mkdir -p "$dir" && mount -c --bind /proc/self/fd/4 "$dir" ;; esac
	case "$keep" in /run/* | /var/lib/* | /var/log/*) mkdir -p "$keep" && mount -c --bind /proc/self/fd/5 "$keep" ;; esac
	exec 4<&- 5<&-
	mkdir -p /run/containerd /var/log/containers "$dir/containerd"
	ln -s "$dir/containerd.sock" /run/containerd/containerd.sock
	# containerd's fsync costs nothing in memory.
	mount -t tmpfs tmpfs "$dir/containerd"

	# The node's name resolves at once, and other names fail at once.
	printf '127.0.0.1 localhost\n192.0.2.10 %s\n' "$node" >"$dir/hosts"
	printf 'nameserver 127.0.0.1\noptions timeout:1 attempts:1\n' >"$dir/resolv.conf"
	for f in hosts resolv.conf; do
		t=$(realpath -m "/etc/$f")
		[ -e "$t" ] || { mkdir -p "$(dirname "$t")" && : >"$t"; }
		mount --bind "$dir/$f" "$t"
	done
	mount --make-rshared /

	ip link set lo up
	ip link add eth0 type veth peer name wire0
	ip link set wire0 up
	ip addr add 192.0.2.10/24 dev eth0
	ip link set eth0 up
	ip route add default via 192.0.2.1

	# The first process inherits orphans; with CHLD ignored the kernel reaps them. (A shell won't ignore it.)
	echo "ready $pid"
	exec env --ignore-signal=CHLD cat >/dev/null
}

verb=$1 dir=$2
shift 2
case $verb in
hold | part | init)
	cgroup=$1 node=$2 keep=$3
	$verb
	;;
enter)
	pid=$1
	shift
	join init
	exec nsenter --target "$pid" --mount --net --pid --cgroup -- "$@"
	;;
*) die "unknown verb $verb" ;;
esac
