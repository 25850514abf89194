#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the source distribution of diesel_loader and, from it, a wheel for any distribution with the C library below or a newer
# one.
#
#     packaging/wheel/loader.sh [FOLDER]      default: build/wheel/dist
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=packaging/wheel/common.sh
. packaging/wheel/common.sh
glibc=2.28 # as in Debian 10 and RHEL 8, and as PyTorch's wheels require

compiler "$glibc"
say "building"
rm -rf "$work/loader" "$work/include"
# Copies only libxxhash's headers, because the system's folder also has headers of its C library.
install -D -m 644 -t "$work/include" "$(pkg-config --variable=includedir libxxhash)/xxhash.h" ||
	die "libxxhash's header is missing. Run ./dev deps"
quietly loader.log python -m build --no-isolation --outdir "$work/loader" -C cmake.define.XXHASH_INCLUDE="$work/include" .
check "$glibc" "$work"/loader/*.whl
env -u DIESEL_LIB -u PYTHONPATH "$work/tried/bin/python" -c '
import diesel_loader
print("diesel_loader", diesel_loader.__version__, "can be imported")' >&2
deliver "${1:-$work/dist}" "$wheel" "$work"/loader/*.tar.gz
