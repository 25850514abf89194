#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the source distribution and, from it, a wheel for any distribution that has the C library below or a newer one. What
# this machine's compiler makes needs this machine's C library; zig knows the headers and symbols of older ones.
#
#     packaging/wheel/build.sh [FOLDER]      default: build/wheel/dist
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
glibc=2.28 # as in Debian 10 and RHEL 8; wheels of PyTorch ask for the same
work=$PWD/build/wheel
out=$(realpath -m "${1:-$work/dist}")
machine=$(uname -m)
platform=manylinux_${glibc/./_}_$machine

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() { printf 'wheel: %s\n' "$*" >&2; exit 1; }

wanted=packaging/wheel/requirements.txt
mkdir -p "$work"
if ! cmp -s "$wanted" "$work/installed.txt"; then
	say "installing the tools of $wanted"
	{ python3 -m venv --clear "$work/env" && "$work/env/bin/pip" install --quiet --disable-pip-version-check \
		--only-binary :all: --requirement "$wanted"; } >"$work/install.log" 2>&1 ||
		die "the tools cannot be had from PyPI: $work/install.log"
	cp "$wanted" "$work/installed.txt"
fi
export PATH=$work/env/bin:$PATH ZIG_GLOBAL_CACHE_DIR=$work/zig ZIG_LOCAL_CACHE_DIR=$work/zig

printf '#!/bin/sh\nexec "%s" -m ziglang cc -target %s-linux-gnu.%s "$@"\n' "$work/env/bin/python" "$machine" "$glibc" \
	>"$work/cc"
chmod +x "$work/cc"

# The system's folder of headers has the system's C library in it.
xxhash=$(pkg-config --variable=includedir libxxhash)/xxhash.h || die "libxxhash's header is missing: ./dev deps"
mkdir -p "$work/include"
cp "$xxhash" "$work/include"

say "building"
rm -rf "$work/built" "$work/tried"
CC=$work/cc CFLAGS='' LDFLAGS='' CMAKE_ARGS="-DXXHASH_INCLUDE=$work/include" python -m build --outdir "$work/built" . >"$work/build.log" 2>&1 ||
	die "$(tail -5 "$work/build.log"; echo "the rest is in $work/build.log")"

say "checking, as $platform"
auditwheel repair --plat "$platform" --only-plat --wheel-dir "$work/built" "$work"/built/*-linux_"$machine".whl \
	>"$work/audit.log" 2>&1 || die "$(tail -5 "$work/audit.log")"
made=("$work"/built/*-py3-none-"$platform".whl "$work"/built/*.tar.gz)
python3 -m venv "$work/tried"
"$work/tried/bin/pip" install --quiet --disable-pip-version-check --no-index "${made[0]}"
env -u DIESEL_LIB -u PYTHONPATH "$work/tried/bin/python" -c '
import diesel_loader
print("diesel_loader", diesel_loader.__version__, "can be imported")' >&2

mkdir -p "$out"
cp "${made[@]}" "$out"
printf "$out/%s\n" "${made[@]##*/}"
