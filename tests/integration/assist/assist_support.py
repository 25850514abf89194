# SPDX-License-Identifier: Apache-2.0
"""Runs jobs with dieseld --assist, and returns its reports of them."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import dieseld_support as support

MIRROR = os.path.join(support.BIN, "fuse_mirror")
SOMEBODY = 100_000 + os.getpid() % 10_000  # a user of this test only: dieseld inspects all jobs of the machine
FILES = 384

# Reads FOLDER until its standard input ends. each: an index opens a file of its own. other: an index opens any file.
JOB = """
import hashlib, os, random, sys, threading
import torch
from torch.utils.data import DataLoader, Dataset

class Files(Dataset):
    def __init__(self, folder, kind, work):
        self.names, self.kind, self.work = sorted(os.scandir(folder), key=lambda e: e.name), kind, work
        self.names = [entry.path for entry in self.names]
    def __len__(self):
        return len(self.names)
    def __getitem__(self, index):
        name = self.names[index] if self.kind == "each" else random.choice(self.names)
        with open(name, "rb") as file:
            data = file.read()
        for _ in range(self.work):
            data = hashlib.sha256(data).digest()
        return len(data)

torch.set_num_threads(1)
ended = threading.Event()
threading.Thread(target=lambda: (os.read(0, 1), ended.set()), daemon=True).start()
files = Files(sys.argv[1], sys.argv[2], int(sys.argv[3]))
while not ended.is_set():
    for name in files.names:
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED) if sys.argv[4] == "cold" else None
        os.close(fd)
    for batch in DataLoader(files, batch_size=16, shuffle=True, num_workers=2):
        if ended.is_set():
            break
os._exit(0)
"""


def wait_until(what, predicate, daemon):
    end = time.monotonic() + 180
    while time.monotonic() < end:
        value = predicate()
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError(f"{what} did not happen: {daemon.output()}")


class Case(support.Case):
    def setUp(self):
        self.folder = pathlib.Path(support.SCRATCH) / f"assist-{id(self)}"
        self.folder.mkdir()
        for i in range(FILES):
            (self.folder / f"{i:05}").write_bytes(os.urandom(9000))

    def mirror(self, name="slow", control=None):
        """Mounts a mirror of the folder, where each read takes 5 ms."""
        slow = self.folder.with_name(f"{self.folder.name}-{name}")
        slow.mkdir()
        process = subprocess.Popen([MIRROR, self.folder, slow, *([control] if control else [])], env=dict(os.environ, FUSE_MIRROR_READ_MS="5"),
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(subprocess.run, ["umount", "-l", slow], check=True)
        while not os.path.ismount(slow):
            time.sleep(0.05)
        return slow

    def job(self, folder, kind="each", work=0, cache="cold", uid=SOMEBODY):
        command = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", sys.executable, "-c", JOB,
                   str(folder), kind, str(work), cache]
        return self.start(command)

    def start(self, command, **options):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True, **options)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(self.kill, process.pid)
        return process

    @staticmethod
    def kill(group):
        """Also kills workers: PyTorch's never end if their parent had ended before they first read its process id."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)

    def assist(self, daemon):
        told = subprocess.run([support.CTL, "why", "--json", "--socket", daemon.socket], capture_output=True, text=True, check=True)
        return json.loads(told.stdout)["assist"]

    def of(self, daemon, process):
        return next((job for job in self.assist(daemon)["jobs"] if job["pid"] == process.pid), None)

    def state(self, daemon, process, *states):
        def look():
            job = self.of(daemon, process)
            return job if job and job["state"] in states else None
        return wait_until(f"one of {states}", look, daemon)

    @staticmethod
    def reads_for(path, uid):
        try:
            return (path / "comm").read_text() == "dieseld-ahead\n" and f"Uid:\t{uid}\t" in (path / "status").read_text()
        except OSError:  # the process has ended
            return False

    @staticmethod
    def grandparent(path):
        parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
        return int(pathlib.Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])

    def readers(self, daemon, uid):
        return [p for p in pathlib.Path("/proc").glob("[0-9]*") if self.reads_for(p, uid) and self.grandparent(p) == daemon.process.pid]


def main():
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skipped: needs torch")
        sys.exit(77)
    if os.geteuid() or not os.access("/dev/fuse", os.R_OK) or not os.access(MIRROR, os.X_OK):
        print("skipped: needs root, /dev/fuse and fuse_mirror")
        sys.exit(77)
    support.main()
