# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Read by loader.sh and tools.sh, in the root of the tree: tools from PyPI in an environment of their own, and compilers for older
# C libraries. What this machine's compiler makes needs this machine's C library; zig knows the headers and symbols of older ones.
work=$PWD/build/wheel
machine=$(uname -m)

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() { printf 'wheel: %s\n' "$*" >&2; exit 1; }

# quietly LOG COMMAND ...: runs the command and shows the end of its output only if the command fails. A function that
# it runs must chain its commands by &&, because set -e has no effect there.
quietly() {
	local log=$work/$1
	shift
	"$@" >"$log" 2>&1 || die "$(tail -5 "$log"; echo "the rest is in $log")"
}

# compiler GLIBC: makes a compiler for this version of glibc, and sets CC.
compiler() {
	mkdir -p "$work"
	exec {lock}>"$work/lock"
	flock "$lock" # lets one process at a time continue
	[ -e "$work/env/installed.txt" ] || say "installing the tools of packaging/wheel/requirements.txt"
	quietly install.log packaging/wheel/environment.py "$work/env" packaging/wheel/requirements.txt
	CC=$work/cc-$1
	# `python -m ziglang` would start Python for each object, to run the same program. Without -O, as CMake tries a compiler, zig would
	# build runtimes of UBSan and for debugging, too, which takes longer than to build libdiesel.
	printf '#!/bin/sh\nexec "%s" cc -target %s-linux-gnu.%s -O2 "$@"\n' "$work"/env/lib/python3*/site-packages/ziglang/zig "$machine" "$1" >"$CC"
	chmod +x "$CC"
	unset CFLAGS LDFLAGS CMAKE_ARGS
	export CC PATH=$work/env/bin:$PATH ZIG_GLOBAL_CACHE_DIR=$work/zig ZIG_LOCAL_CACHE_DIR=$work/zig
}

# check GLIBC WHEEL: checks that the wheel needs no newer C library and no other library, and writes the platform into
# its name. Sets wheel.
check() {
	local platform=manylinux_${1/./_}_$machine
	say "checking, as $platform"
	quietly audit.log auditwheel repair --plat "$platform" --only-plat --wheel-dir "$work/checked" "$2"
	wheel=$work/checked/$(basename "${2%-*}")-$platform.whl
	rm -rf "$work/tried"
	python3 -m venv --without-pip "$work/tried"
	build/pip/bin/python -m pip --python "$work/tried" --disable-pip-version-check install --quiet --no-index "$wheel"
}

# deliver FOLDER FILE ...: puts files into the folder.
deliver() {
	local folder
	folder=$(realpath -m "$1")
	shift
	mkdir -p "$folder"
	cp "$@" "$folder"
	printf "$folder/%s\n" "${@##*/}"
}
