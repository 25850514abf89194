#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a wheel of the four programs for any distribution with the C library below or a newer one: what they use beside it is linked
# statically, from Debian's archives. One of these cannot be: Debian's libmicrohttpd speaks HTTPS, by libraries that have no static
# archive, so it is built from Debian's source without. Nor can libcurl: this dieselctl has no s3://.
#
#     packaging/wheel/tools.sh [FOLDER]      default: build/wheel/dist
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=packaging/wheel/common.sh
. packaging/wheel/common.sh
glibc=2.31 # as in Debian 11 and Ubuntu 20.04
# Static libraries of newer distributions need a newer C library.
grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || die "wheels for other machines can be built only on Debian 12"

linked=packaging/wheel/linked.txt
packages=$(sed -n 's/^\([^# ]*-dev\) .*/\1/p' "$linked")
root=$work/root

# Makes a root folder with headers and static libraries of the packages, and nothing else of this machine.
make_root() {
	local package file place
	rm -rf "$root"
	mkdir -p "$root"/{include,lib/pkgconfig,licenses}
	for package in $packages; do
		for file in $(dpkg -L "$package"); do
			place=${file#/usr/include/}
			case $file in
			/usr/include/*.h) install -D -m 644 "$file" "$root/include/${place#"$machine"-linux-gnu/}" ;;
			*.a) cp "$file" "$root/lib" ;;
			esac
		done
		install -m 644 "/usr/share/doc/$package/copyright" "$root/licenses/$package.txt"
	done
	mv "$root/lib/libuv_a.a" "$root/lib/libuv.a"
	cp /usr/share/common-licenses/{Apache-2.0,GPL-2,GPL-3,LGPL-2.1,LGPL-3} "$root/licenses"
}

# licences: prints an SPDX expression with all licences in the wheel: ours, the BPF programs', and those of linked
# libraries.
licences() {
	{ printf '%s\n' Apache-2.0 GPL-2.0-only && sed '/^#/d; s/^[^ ]* //' "$linked" | tr ' ' '\n'; } | sort -u | paste -sd '&' |
		sed 's/&/ AND /g'
}

# every_text: checks that the licence text of every linked library exists.
every_text() {
	local name
	while read -r name _; do
		[ "$name" = '#' ] || [ -s "$root/licenses/$name.txt" ] ||
			die "the licence text of $name, which $linked names, is missing"
	done <"$linked"
}

# describe MODULE LIBRARY ...: writes the pkg-config file in which CMake finds the module.
describe() {
	local library
	for library in "${@:2}"; do
		[ -e "$root/lib/lib$library.a" ] || die "no package in $linked has lib$library.a"
	done
	printf 'Name: %s\nDescription: static\nVersion: %s\nCflags: -I%s\nLibs: -L%s' "$1" "$(pkg-config --modversion "$1")" \
		"$root/include" "$root/lib" >"$root/lib/pkgconfig/$1.pc"
	printf ' -l%s' "${@:2}" >>"$root/lib/pkgconfig/$1.pc"
}

# libmicrohttpd is built again only if Debian's version, the compiler or a script changes.
microhttpd=$work/microhttpd
hardened='-fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3' # see cmake/DieselTargets.cmake
[ "$machine" != x86_64 ] || hardened+=' -fcf-protection'
make_microhttpd() (
	list=$work/apt
	lists=(-o Dir::Etc::SourceList="$list/sources.list" -o Dir::Etc::SourceParts="$list/parts"
		-o Dir::State::Lists="$list/lists" -o Dir::Cache="$list/cache" -o APT::Sandbox::User=root)
	rm -rf "$microhttpd"
	mkdir -p "$list"/{parts,lists/partial,cache} "$microhttpd"
	sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >"$list/sources.list"
	sed 's/^Types:.*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$list/parts/debian.sources"
	apt-get "${lists[@]}" update && cd "$microhttpd" && apt-get "${lists[@]}" source libmicrohttpd && cd libmicrohttpd-*/ &&
		CC=cc CFLAGS="-O2 -fPIC $hardened" ./configure --prefix="$microhttpd/made" --disable-dependency-tracking --disable-shared \
			--disable-https --disable-bauth --disable-dauth --disable-httpupgrade --disable-postprocessor --disable-curl --disable-doc \
			--disable-examples --disable-nls &&
		make -C src/include install && make -j "$(nproc)" -C src/microhttpd CC="$CC" LIBTOOLFLAGS=--tag=CC install && make install-pkgconfigDATA &&
		cp COPYING "$microhttpd/made"
)

compiler "$glibc"
say "collecting static archives"
make_root
describe libbpf bpf elf z
describe libarchive archive zstd z
describe libcrypto crypto
describe libelf elf z
describe fuse3 fuse3
describe hiredis hiredis
describe jansson jansson
describe libjpeg jpeg
describe libpng png16 z
describe libssl ssl crypto
describe libuv uv
describe liburing uring
describe libwebp webp
describe libwebpdemux webpdemux
describe libxxhash xxhash
describe libzstd zstd
describe ncursesw ncursesw tinfo
describe sqlite3 sqlite3
describe zlib z
{ dpkg-query --show libmicrohttpd-dev && cat packaging/wheel/{common.sh,tools.sh,requirements.txt}; } >"$work/wanted"
if ! cmp -s "$work/wanted" "$microhttpd/made/wanted"; then
	say "building libmicrohttpd"
	quietly microhttpd.log make_microhttpd
	cp "$work/wanted" "$microhttpd/made"
fi
cp "$microhttpd/made/COPYING" "$root/licenses/libmicrohttpd.txt"

say "building the programs"
project=$work/project
rm -rf "$project" "$work/tools"
mkdir "$project"
cp "$work"/env/lib/python3*/site-packages/ziglang/LICENSE "$root/licenses/zig.txt"
every_text
sed "s/@LICENCES@/$(licences)/" packaging/wheel/tools.toml >"$project/pyproject.toml"
cp -r CMakeLists.txt README.md LICENSE LICENSES "$root/licenses" "$project"
export PKG_CONFIG_LIBDIR=$root/lib/pkgconfig:$microhttpd/made/lib/pkgconfig
quietly tools.log python -m build --wheel --no-isolation --outdir "$work/tools" -C cmake.source-dir="$PWD" \
	-C cmake.define.CMAKE_LIBRARY_ARCHITECTURE="$machine-linux-gnu" -C cmake.define.DIESEL_S3=OFF "$project"
check "$glibc" "$work"/tools/*.whl
for program in diesel-analyze diesel-top dieselctl dieseld; do
	"$work/tried/bin/$program" --version >&2
done
deliver "${1:-$work/dist}" "$wheel"
