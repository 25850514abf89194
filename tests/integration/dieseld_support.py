# SPDX-License-Identifier: Apache-2.0
"""Runs a real dieseld on a socket of its own, makes datasets to serve, and runs the probe that reads and checks them."""
import atexit
import contextlib
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from common.memory import memory
from common.waiting import wait_until
from common.wire_client import Client
import exact
from free_ports import free_port  # noqa: F401: many tests have it from here

BIN = os.environ.get("DIESEL_BIN", "build/release/bin")
CTL = os.environ.get("DIESELCTL", os.path.join(BIN, "dieselctl"))
SCRATCH = tempfile.mkdtemp(prefix="diesel-test-")
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)
os.chmod(SCRATCH, 0o755)
MIB = 1 << 20
SOURCES = tempfile.mkdtemp(prefix="diesel-test-", dir=memory())  # many small files
atexit.register(shutil.rmtree, SOURCES, ignore_errors=True)
os.chmod(SOURCES, 0o755)


def require(path):
    if not os.access(path, os.X_OK):
        print(f"skipped: {path} is not built")
        sys.exit(77)


def make_source(name, n, sizes, seed=1):
    """Makes n files of random bytes in seven class folders. sizes: a function of a random.Random."""
    root, rng = os.path.join(SOURCES, name + ".src"), random.Random(seed)
    for i in range(n):
        folder = os.path.join(root, f"class{i % 7}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{i:06d}.bin"), "wb") as f:
            f.write(rng.randbytes(sizes(rng)))
    return root


def pack(source, name, *options, chunk="4M", order="random"):
    dataset = os.path.join(SCRATCH, name)
    subprocess.run([CTL, "pack", source, dataset, "--chunk-size", chunk, "--order", order, *options], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return dataset


KINDS = {  # samples and their sizes
    "packed": (12288, lambda rng: 4096),  # 48 MiB
    "views": (2000, lambda rng: rng.randint(0, 40000)),  # about 40 MiB
    "small": (8000, lambda rng: 4096),  # 31 MiB
    "few": (150, lambda rng: rng.randint(0, 400000)),  # about seven chunks
}


@functools.cache
def dataset(kind):
    """Returns (dataset, source) that all tests of a file share."""
    source = make_source(kind, *KINDS[kind])
    return pack(source, kind), source


def chunk_files(path):
    folder = os.path.join(path, "chunks")
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".chunk"))


class Daemon:
    def __init__(self, *options, cache="256M", socket=None, prefix=lambda command: command):
        self.socket = socket or tempfile.mktemp(prefix="s", dir=SCRATCH)
        self.log = tempfile.TemporaryFile(mode="w+", dir=SCRATCH)
        self.command = prefix([os.path.join(BIN, "dieseld"), "--socket", self.socket, "--metrics", "off",
                               *(["--cache", cache] if cache else []), *options])
        self.start()

    def launch(self, ready):
        return subprocess.Popen(self.command + ["--ready-fd", str(ready)], pass_fds=[ready], stderr=self.log)

    def start(self):
        read, write = os.pipe()
        self.process = self.launch(write)
        os.close(write)
        ready = os.read(read, 16)
        os.close(read)
        if ready != b"ready\n":
            self.process.wait()
            raise RuntimeError("dieseld did not start: " + self.output())

    def output(self):
        # Reads without seeking: the daemon writes at the position that this descriptor shares with it.
        fd = self.log.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

    def status(self):
        with contextlib.closing(Client(self.socket)) as client:
            return client.status()

    def wait_for(self, what, predicate):
        """Returns the first status for which the predicate holds."""
        def holds():
            self.seen = self.status()
            return predicate(self.seen)
        wait_until(what, holds, why=lambda: self.seen)
        return self.seen

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:")) * 1024

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def probe_command(daemon, path, *options, program=None):
    return [program or os.path.join(BIN, "daemon_probe"), "--dataset", path, "--socket", daemon.socket,
            *map(str, options)]


PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def start_probe(daemon, path, *options, program=None, **more):
    return subprocess.Popen(probe_command(daemon, path, *options, program=program), **{**PIPES, **more})


def finish_probe(process):
    """Returns its JSON object and its messages. The probe exits with 1 at the first wrong byte, label or order."""
    out, said = process.communicate(timeout=120)
    if process.returncode != 0:
        raise AssertionError(f"probe: {said}")
    return json.loads(out.strip().splitlines()[-1]), said


def probe(daemon, path, *options):
    return finish_probe(start_probe(daemon, path, *options))[0]


class Case(unittest.TestCase):
    def start(self, command, **more):
        """Starts a program that ends with the test at the latest."""
        process = subprocess.Popen(list(map(str, command)), **more)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def start_probe(self, daemon, path, *options, program=None, **more):
        return self.start(probe_command(daemon, path, *options, program=program), **{**PIPES, **more})

    def copy(self, kind, name):
        """Returns (dataset, source). The test may damage the dataset."""
        path, source = dataset(kind)
        copy = os.path.join(SCRATCH, name)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        self.addCleanup(shutil.rmtree, copy, ignore_errors=True)
        return copy, source

    def daemon(self, *options, **more):
        daemon = Daemon(*options, **more)
        self.addCleanup(daemon.log.close)
        self.addCleanup(lambda: self.assertEqual(daemon.stop() if daemon.process.poll() is None else 0, 0,
                                                 daemon.output()))
        return daemon

    def refused(self, daemon, path, *options, **more):
        result = subprocess.run(probe_command(daemon, path, *options, **more), capture_output=True, text=True,
                                timeout=60)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, "one line: " + result.stderr)
        return result.stderr


def main():
    for program in (CTL, os.path.join(BIN, "dieseld"), os.path.join(BIN, "daemon_probe")):
        require(program)
    exact.run_chosen()
