# Architectures, and Debian packages of other architectures and releases in a cache: nothing of theirs is
# installed on this machine. To be sourced by bash, from the root of the project, after lib.sh.

# A failure inside $(...) counts.
shopt -s inherit_errexit

CROSS_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/cleat-cross

# arch_names ARCH: sets triple (Rust's name), gnu (Debian's directories), deb (Debian's packages), qemu.
arch_names() {
	case "$1" in
	aarch64) triple=aarch64-unknown-linux-gnu gnu=aarch64-linux-gnu deb=arm64 qemu=qemu-aarch64 ;;
	armv7) triple=armv7-unknown-linux-gnueabihf gnu=arm-linux-gnueabihf deb=armhf qemu=qemu-arm ;;
	x86_64) triple=x86_64-unknown-linux-gnu gnu=x86_64-linux-gnu deb=amd64 qemu=qemu-x86_64 ;;
	*) echo "no architecture $1; there are aarch64, armv7, x86_64" >&2; exit 2 ;;
	esac
}

# Where scripts/cross puts the binary of ARCH.
cross_binary() {
	echo "$(cargo_target)/cross/$1/cleat"
}

# emulated ARCH: prints a command that runs the agent of ARCH on this machine, with the oldest C library it may have.
emulated() {
	local arch=$1 triple gnu deb qemu root command
	arch_names "$arch"
	root=$(sysroot "$arch")
	command=$(cross_binary "$arch")-emulated
	printf '#!/bin/sh\nexec /usr/bin/%s-static -L %s %s "$@"\n' "$qemu" "$root" "$(cross_binary "$arch")" >"$command"
	chmod +x "$command"
	echo "$command"
}

# The version of the C library that a binary needs.
glibc_needed() {
	readelf -V "$1" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1 | cut -d_ -f2
}

# fetch SHA256 PATH: prints where the package at PATH of Debian's archive is, having fetched and checked it.
fetch() {
	local sha256=$1 path=$2 base
	local file=$CROSS_CACHE/debs/${path##*/}
	if ! sha256sum --check --status 2>/dev/null <<<"$sha256  $file"; then
		mkdir -p "$CROSS_CACHE/debs"
		# An old release moves to the archive some day.
		for base in http://deb.debian.org http://archive.debian.org; do
			/usr/lib/apt/apt-helper download-file "$base/$path" "$file.part" "SHA256:$sha256" >/dev/null 2>&1 && break
			rm -f "$file.part"
		done
		[ -e "$file.part" ] || { echo "could not fetch $path with SHA-256 $sha256" >&2; return 1; }
		mv "$file.part" "$file"
	fi
	echo "$file"
}

# unpack DIRECTORY FILE...: unpacks packages into a directory.
unpack() {
	local directory=$1 file
	shift
	mkdir -p "$directory"
	for file in "$@"; do
		dpkg-deb --fsys-tarfile "$file" | tar -x --no-same-owner -C "$directory"
	done
}

# sysroot ARCH: prints the directory of the C and C++ libraries that cleat is linked with.
sysroot() {
	local arch=$1 list=scripts/packaging/sysroot.list triple gnu deb qemu files=() a sha256 path link
	arch_names "$arch"
	local root
	# Another list, or another way to make it, gives another directory.
	root=$CROSS_CACHE/sysroot-$arch-$({ grep "^$arch " "$list" && declare -f sysroot; } | sha256sum | cut -c1-12)
	if [ ! -d "$root" ]; then
		while read -r a sha256 path; do
			[ "$a" = "$arch" ] || continue
			files+=("$(fetch "$sha256" "$path")")
		done <"$list"
		rm -rf "$root.part"
		unpack "$root.part" "${files[@]}"
		# Links with a whole path are meant for the root directory.
		find "$root.part" -type l -lname '/*' -printf '%p %l\n' | while read -r link path; do
			ln -sfrn "$root.part$path" "$link"
		done
		# Without the shared ones, the C++ library and the compiler's support are taken into the binary.
		rm "$root.part/usr/lib/gcc/$gnu/10/libstdc++.so"
		echo 'GROUP ( libgcc_eh.a libgcc.a )' >"$root.part/usr/lib/gcc/$gnu/10/libgcc_s.so"
		mv "$root.part" "$root"
	fi
	echo "$root"
}

# rust_sysroot ARCH: prints a directory with Rust's standard library for this machine and for ARCH, of the
# version that /usr/bin/rustc has.
rust_sysroot() {
	local arch=$1 version triple gnu deb qemu root file=''
	arch_names "$arch"
	version=$(dpkg-query -W -f '${Version}' rustc-web)
	root=$CROSS_CACHE/rust-$version-$arch
	if [ ! -d "$root" ]; then
		rm -rf "$root.part"
		mkdir -p "$root.part/lib/rustlib"
		ln -s /usr/lib/rustlib/x86_64-unknown-linux-gnu "$root.part/lib/rustlib/"
		if [ "$arch" != x86_64 ]; then
			file=$(std_package "$version" "$arch")
			unpack "$root.part/package" "$file"
			mv "$root.part/package/usr/lib/rustlib/$triple" "$root.part/lib/rustlib/"
			rm -rf "$root.part/package"
		fi
		mv "$root.part" "$root"
	fi
	echo "$root"
}

# std_package VERSION ARCH: prints where the package with the standard library is.
std_package() {
	local line
	line=$(awk -v v="$1" -v a="$2" '$1 == v && $2 == a { print $3, $4 }' scripts/packaging/std.list)
	if [ -n "$line" ]; then
		fetch "${line% *}" "${line#* }"
	else
		from_index "$2" "libstd-rust-web-dev=$1"
	fi
}

# from_index ARCH PACKAGE[=VERSION]: prints where a package of this machine's Debian release is, fetched with an
# apt of its own, so that this machine's knows of no other architecture.
from_index() {
	local arch=$1 package=$2 triple gnu deb qemu
	arch_names "$arch"
	local apt=$CROSS_CACHE/apt-$arch codename
	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mkdir -p "$apt"/state/lists/partial "$apt"/cache/archives/partial "$CROSS_CACHE/debs"
	: >"$apt/status"
	local keys=/usr/share/keyrings/debian-archive-keyring.gpg
	cat >"$apt/sources.list" <<-END
		deb [arch=$deb signed-by=$keys] http://deb.debian.org/debian $codename main
		deb [arch=$deb signed-by=$keys] http://deb.debian.org/debian-security $codename-security main
	END
	cat >"$apt/apt.conf" <<-END
		Dir::State "$apt/state";
		Dir::State::status "$apt/status";
		Dir::Cache "$apt/cache";
		Dir::Etc::sourcelist "$apt/sources.list";
		Dir::Etc::sourceparts "-";
		APT::Architecture "$deb";
		APT::Architectures { "$deb"; };
		APT::Sandbox::User "root";
	END
	export APT_CONFIG=$apt/apt.conf
	apt-get update -qq >&2 || true # an index that isn't right is not used, and the others may do
	(cd "$apt" && rm -f ./*.deb && apt-get download -qq "$package" >&2)
	mv "$apt"/*.deb "$CROSS_CACHE/debs/"
	unset APT_CONFIG
	ls -t "$CROSS_CACHE/debs/${package%%=*}"_*_"$deb.deb" | head -n 1
}
