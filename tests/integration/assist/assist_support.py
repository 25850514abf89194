# SPDX-License-Identifier: Apache-2.0
"""Runs jobs with dieseld --assist, and returns its reports of them."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import dieseld_support as support
from common import mirror
from common.commands import needs
from common.mirror import Mirror
from common.processes import family, named, parent
from common.waiting import wait_until

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


def wait_for(what, holds, daemon):
    return wait_until(what, holds, 180, daemon.output)


class Case(support.Case):
    def setUp(self):
        self.folder = pathlib.Path(support.SCRATCH) / f"assist-{id(self)}"
        self.folder.mkdir()
        for i in range(FILES):
            (self.folder / f"{i:05}").write_bytes(os.urandom(9000))

    def mirror(self, read_ms=5):
        """Shows the folder on slow storage."""
        slow = Mirror(self.folder, read_ms)
        self.addCleanup(slow.close)
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
        return wait_for(f"one of {states}", look, daemon)

    @staticmethod
    def is_of(pid, uid):
        try:
            return f"Uid:\t{uid}\t" in pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:  # the process has ended
            return False

    @staticmethod
    def grandparent(path):
        return parent(parent(int(path.name)))

    def readers(self, daemon, uid):
        """Returns the processes that read ahead for this user."""
        found = named("dieseld-ahead", family(daemon.process.pid))
        return [p for p in (pathlib.Path(f"/proc/{pid}") for pid in found if self.is_of(pid, uid)) if self.grandparent(p) == daemon.process.pid]


def main():
    needs("torch")
    mirror.require()
    support.main()
