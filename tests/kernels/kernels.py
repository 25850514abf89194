# SPDX-License-Identifier: Apache-2.0
"""Boots other kernels in QEMU, and says what the recorder can do on each.

    ./dev kernels [--short] [--update] [--cut FOLDER] [NAME ...] [--folder FOLDER]

Without names: all of Debian's that are listed below. They come from Debian's archive and stay in build/kernels (--update: fetches
them again). --folder: the kernels in a folder instead, each a package (.deb) or an image (vmlinuz*).

As root, and as a user with the three capabilities that README names, it runs `diesel-analyze check`, loads each BPF
program by itself, and records a job whose own clock measures its waits. --short leaves out the single programs, and is
for 6.1 and 6.12. A guest has no
disk: its root is an initramfs with diesel-analyze and what it is linked to. A kernel takes about a minute, or half of it with --short.

--cut: writes of each kernel's type information what the recorder needs of it to FOLDER, for test_types.py, and boots none.
"""
import argparse
import glob
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile

import core

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
BIN = os.path.abspath(os.environ.get("DIESEL_BIN", os.path.join(ROOT, "build/release/bin")))
CACHE = os.path.join(ROOT, "build/kernels")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
DEBOOTSTRAP = "/usr/sbin/debootstrap"  # which knows Debian's archive, on Ubuntu too
SUITES = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie", "newest": "trixie-backports"}
SHORT = ("6.1", "6.12")
OLDEST = (5, 15)  # as README says
BOOT_S = 900
POINTS = 0.05  # between a job's own clock and the report

# Tracepoints that came later, or were others before.
CAME = {"mm_filemap_fault": (6, 12), "mm_filemap_map_pages": (6, 12), "io_uring_complete": (5, 19), "folio_wait_writeback": (5, 16)}


class Failed(Exception):
    """Ends the work on one kernel; its text says why."""


def command(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **more)
    if done.returncode:
        raise Failed(f"{words[0]}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def mirror():
    """The address of Debian's archive."""
    with open(DEBOOTSTRAP) as file:
        return re.search(r'^DEF_MIRROR="(\S+)"', file.read(), re.M)[1]


class Suite:
    """One of Debian's releases, by apt with lists of its own: nothing of this machine changes."""

    def __init__(self, name):
        self.name = name
        self.folder = os.path.join(CACHE, "apt", name)
        for folder in ("parts", "lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(self.folder, folder), exist_ok=True)
        with open(os.path.join(self.folder, "sources.list"), "w") as file:
            file.write(f"deb [signed-by={KEYRING}] {mirror()} {name} main\n")
        self.options = []
        for option, value in (("Dir::Etc::SourceList", "sources.list"), ("Dir::Etc::SourceParts", "parts"),
                              ("Dir::State::Lists", "lists"), ("Dir::Cache", "cache")):
            self.options += ["-o", f"{option}={self.folder}/{value}"]
        self.options += ["-o", "Dir::State::Status=/dev/null", "-o", "APT::Architecture=amd64", "-o", "APT::Sandbox::User=root",
                         "-o", f"APT::Default-Release={name}"]

    def needs(self, package):
        text = command("apt-cache", *self.options, "show", "--no-all-versions", package)
        found = re.search(r"(?m)^Depends: (.*)$", text)
        return found[1] if found else ""

    def packages(self):
        """Returns the package that has the image of the release's own kernel now, by its name."""
        command("apt-get", *self.options, "update", "--error-on=any")
        image = re.search(r"linux-image-\S+", self.needs("linux-image-cloud-amd64"))
        if not image:
            raise Failed(f"{self.name} has no linux-image-cloud-amd64")
        binary = re.search(r"linux-binary-\S+", self.needs(image[0]))
        return [binary[0] if binary else image[0]]

    def download(self, folder):
        for package in self.packages():
            command("apt-get", *self.options, "download", package, cwd=folder)


def extract(image):
    """The ELF image inside of a bzImage: it boots in a third of the time, because the guest need not unpack it."""
    with open(image, "rb") as file:
        data = file.read()
    for magic, unpack in ((b"\x28\xb5\x2f\xfd", ["zstd", "-dcq"]), (b"\xfd7zXZ\x00", None), (b"\x02\x21\x4c\x18", ["lz4", "-dcq"])):
        at = data.find(magic)
        while at >= 0:
            try:
                out = subprocess.run(unpack, input=data[at:], capture_output=True, check=False).stdout if unpack else \
                    lzma.LZMADecompressor().decompress(data[at:])
            except (lzma.LZMAError, OSError):
                out = b""
            if out[:4] == b"\x7fELF" and len(out) > 8 << 20:
                return out
            at = data.find(magic, at + 1)
    raise Failed(f"{image}: no kernel in it that can be unpacked")


def unpack(source, vmlinux):
    """source: a package, or an image."""
    with tempfile.TemporaryDirectory() as folder:
        if source.endswith(".deb"):
            command("dpkg", "-x", source, folder)
            images = glob.glob(folder + "/boot/vmlinuz*") + glob.glob(folder + "/usr/lib/modules/*/vmlinuz")
            if not images:
                raise Failed(f"{source}: no kernel in this package")
            source = images[0]
        data = extract(source)
    with open(vmlinux + ".new", "wb") as file:
        file.write(data)
    os.rename(vmlinux + ".new", vmlinux)


def from_debian(name, update):
    vmlinux = os.path.join(CACHE, f"{name}.vmlinux")
    if update or not os.path.exists(vmlinux):
        with tempfile.TemporaryDirectory() as folder:
            Suite(SUITES[name]).download(folder)
            unpack(glob.glob(folder + "/*.deb")[0], vmlinux)
    return vmlinux


def from_folder(folder):
    found = {}
    for source in sorted(glob.glob(folder + "/*.deb") + glob.glob(folder + "/vmlinuz*")):
        name = re.sub(r"_.*|\.deb$", "", re.sub(r"^(linux-(image|binary)-(unsigned-)?|vmlinuz-?)", "", os.path.basename(source)))
        vmlinux = os.path.join(CACHE, f"{name}.vmlinux")
        if not os.path.exists(vmlinux):
            unpack(source, vmlinux)
        found[name] = vmlinux
    if not found:
        raise Failed(f"{folder}: no package and no vmlinuz* in it")
    return found


def archive(out, folder):
    """Writes a folder as the cpio that a kernel unpacks."""
    names = [os.path.relpath(os.path.join(at, name), folder) for at, folders, files in os.walk(folder) for name in folders + files]

    def entry(number, name, mode, data=b""):
        head = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        text = b"070701" + b"".join(b"%08x" % value for value in head) + name.encode() + b"\0"
        out.write(text + b"\0" * (-len(text) % 4) + data + b"\0" * (-len(data) % 4))

    for number, name in enumerate(sorted(names)):
        path = os.path.join(folder, name)
        data = b""
        if os.path.isfile(path):
            with open(path, "rb") as file:
                data = file.read()
        entry(number, name, os.stat(path).st_mode, data)
    entry(0, "TRAILER!!!", 0)


def copy_program(root, program, to):
    target = os.path.join(root, to)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    command("strip", "-o", target, program)
    for library in re.findall(r"(/\S+) \(0x", command("ldd", program)):
        os.makedirs(root + os.path.dirname(library), exist_ok=True)
        shutil.copy(os.path.realpath(library), root + library)


def make_root(image, short):
    with tempfile.TemporaryDirectory() as root:
        for folder in ("proc", "sys", "dev", "tmp", "run"):
            os.mkdir(os.path.join(root, folder))
        copy_program(root, os.path.join(BIN, "kernels_guest"), "init")
        copy_program(root, os.path.join(BIN, "diesel-analyze"), "bin/diesel-analyze")
        for name in ("recorder", "recorder_without_cast", "index_watch"):
            shutil.copy(os.path.join(BIN, f"../bpf/kernel/{name}.o"), root)
        if not short:
            with open(os.path.join(root, "each"), "w"):
                pass
        with open(image, "wb") as out:
            archive(out, root)


def boot(vmlinux, image, folder):
    """Returns the output of the guest, by the names of its parts."""
    results, console = os.path.join(folder, "results"), os.path.join(folder, "console")
    # One thread emulates. With more, a CPU may run into a breakpoint that the kernel has just taken out again, and the guest dies:
    # in bpf_trace_run*(), which the kernel patches when the recorder has BPF's run time counted. Real CPUs are waited for.
    words = ["qemu-system-x86_64", "-M", "pc", "-cpu", "max,la57=off", "-smp", "1", "-m", "1G", "-display", "none", "-monitor", "none",
             "-nic", "none", "-no-reboot", "-serial", "file:" + console, "-serial", "file:" + results, "-kernel", vmlinux, "-initrd",
             image, "-accel", "tcg,thread=single", "-append", "console=ttyS0 panic=-1 quiet mitigations=off psi=1 tsc=reliable no_timer_check nokaslr"]
    try:
        subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=BOOT_S)
    except subprocess.SubprocessError as e:
        raise Failed(f"QEMU: {e}") from e
    with open(results, errors="replace") as file:
        text = file.read()
    parts = dict(re.findall(r"== ([^\r\n]*)\r?\n(.*?)(?=^== |\Z)", text, re.M | re.S))
    if "end" not in parts:
        with open(console, errors="replace") as file:
            said = file.read()
        raise Failed(f"the guest did not reach its end; it wrote:\n{text[-1000:]}\nand on its console:\n{said[-1000:]}")
    return parts


def cut(vmlinux, to):
    """Writes the types of a kernel that the recorder needs: those of its relocations, and its hooks."""
    objects = [os.path.join(BIN, f"../bpf/kernel/{name}.o") for name in ("recorder", "recorder_without_cast", "index_watch")]
    with tempfile.TemporaryDirectory() as folder:
        whole, part = os.path.join(folder, "whole"), os.path.join(folder, "part")
        command("objcopy", "--dump-section", f".BTF={whole}", vmlinux, "/dev/null")
        command("bpftool", "gen", "min_core_btf", whole, part, *objects)
        with open(whole, "rb") as file:
            kernel = core.Btf(file.read())
        with open(part, "rb") as file:
            out = core.Writer(file.read())
    sections = {name for path in objects for name, *_ in core.Object(path).sections}
    for hook in sorted({name.split("/")[1] for name in sections if name.startswith(("tp_btf/", "?tp_btf/"))}):
        out.hook(kernel, "btf_trace_" + hook)
    out.function(kernel, "bpf_rdonly_cast")
    out.enumerator(kernel, "bpf_attach_type", "BPF_TRACE_UPROBE_MULTI")
    with open(to, "wb") as file:
        file.write(out.data())


def version(release):
    return tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", release).groups())


def faults_of_check(who, check, release):
    """Yields the faults of a `diesel-analyze check` on a kernel that is supported."""
    if check["mode"] != "exact":
        yield f"{who}: recordings are not exact"
    for finding in check["findings"]:
        if finding["state"] == "failed" or finding["name"].startswith("program"):
            yield f"{who}: {finding['name']}: {finding['detail']}"
    for hook in check["hooks"]:
        if not hook["present"] and version(release) >= CAME.get(hook["name"], (0, 0)):
            yield f"{who}: no tracepoint {hook['name']}"


class Told:
    """How the job waited: `own`, the share of its time by its own clock, and `reported`, by the report (None: it could not tell).
    `starved`: the share in which it lacked a core, which only its own clock can count as waiting."""

    def __init__(self, parts, who):
        text = parts[f"{who}: job"]
        own = re.search(r"(?m)^(0\.\d+)\s*$", text)
        if not own:
            raise Failed(f"{who}: the job did not end:\n{text}")
        self.own, self.reported, self.starved = float(own[1]), None, 0
        if parts[f"{who}: report ended"].strip() != "3":
            shares = json.loads(parts[f"{who}: report"])["shares"]
            self.reported, self.starved = shares["fetch_stall"] + shares["prep_stall"], shares["cpu_starved"]

    def agrees(self):
        return self.own - POINTS - self.starved < self.reported < self.own + POINTS

    def __str__(self):
        reported = "no steps" if self.reported is None else f"{self.reported:.3f}, and {self.starved:.3f} without a core"
        return f"a job waited {self.own:.3f} of its time; reported: {reported}"


def lacks_steps(check):
    """Before Linux 6.6 probes take CAP_SYS_ADMIN."""
    return any(finding["name"] == "probes" and finding["state"] == "limited" for finding in check["findings"])


def faults_of_job(who, parts, check):
    told = Told(parts, who)
    said = f"{told}; it printed:\n{parts[f'{who}: job']}\nand the report is:\n{parts[f'{who}: report']}"
    if lacks_steps(check):
        if told.reported is not None or who == "root" or version(parts["kernel"].strip()) >= (6, 6):
            yield f"{who}: check says that there are no steps; {said}"
    elif told.reported is None or not told.agrees():
        yield f"{who}: {said}"


def faults(parts):
    release = parts["kernel"].strip()
    for who in ("root", "user"):
        check = json.loads(parts[f"{who}: check"])
        if version(release) < OLDEST:
            if check["mode"] != "sampled":
                yield f"{who}: {check['mode']}, on a kernel that is too old"
            continue
        yield from faults_of_check(who, check, release)
        yield from faults_of_job(who, parts, check)
        for name in ("recorder", "index_watch"):
            if parts.get(f"{who}: {name} ended", "0").strip() != "0":
                yield f"{who}: each program of {name}:\n" + parts[f"{who}: {name}"]


def describe(parts):
    for who in ("root", "user"):
        check = json.loads(parts[f"{who}: check"])
        missing = [hook["name"] for hook in check["hooks"] if not hook["present"]]
        limited = [f"{f['name']}: {f['detail']}" for f in check["findings"] if f["state"] != "ok" and not f["name"].startswith("sampler")]
        yield f"  {who:5} {check['mode']}; tracepoints missing: {', '.join(missing) or 'none'}"
        yield from (f"        {line}" for line in limited)
        for name in ("recorder", "index_watch"):
            text = parts.get(f"{who}: {name}", "")
            if text:
                yield f"        {name}: {text.count('loaded ')} programs load by themselves, {text.count('refused ')} are refused"
        yield f"        {Told(parts, who)}"


def try_kernel(name, vmlinux, image):
    with tempfile.TemporaryDirectory() as folder:
        parts = boot(vmlinux, image, folder)
    print(f"{name}: Linux {parts['kernel'].strip()}")
    print("\n".join(describe(parts)))
    wrong = list(faults(parts))
    print("\n".join("  WRONG " + line for line in wrong) if wrong else "  as expected", flush=True)
    return not wrong


def main():
    parser = argparse.ArgumentParser(usage="./dev kernels [--short] [--update] [--cut FOLDER] [NAME ...] [--folder FOLDER]")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"suites to run: {', '.join(SUITES)}")
    parser.add_argument("--short", action="store_true", help="without single programs; of " + ", ".join(SHORT))
    parser.add_argument("--update", action="store_true", help="fetch Debian's kernels again")
    parser.add_argument("--cut", metavar="FOLDER", help="write the types that the recorder needs, and boot nothing")
    parser.add_argument("--folder", help="other kernels: packages, or images vmlinuz*")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in SUITES]
    if unknown:
        parser.error(f"no kernel {unknown[0]}; there are {', '.join(SUITES)}")
    if not shutil.which("qemu-system-x86_64"):
        sys.exit("kernels: there is no qemu-system-x86_64; ./dev deps installs it")
    os.makedirs(CACHE, exist_ok=True)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        image = os.path.join(folder, "root.cpio")
        make_root(image, options.short)
        kernels = dict.fromkeys(options.names or ([] if options.folder else SHORT if options.short else SUITES))
        if options.folder:
            kernels.update(from_folder(options.folder))
        for name, vmlinux in kernels.items():
            try:
                vmlinux = vmlinux or from_debian(name, options.update)
                if options.cut:
                    cut(vmlinux, os.path.join(options.cut, name + ".btf"))
                elif not try_kernel(name, vmlinux, image):
                    failed.append(name)
            except Failed as e:
                print(f"{name}: {e}", flush=True)
                failed.append(name)
    if failed:
        sys.exit("kernels: wrong on " + ", ".join(failed))


if __name__ == "__main__":
    main()
