# SPDX-License-Identifier: Apache-2.0
"""dieseld --assist beside real PyTorch jobs that know nothing of it."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request

import dieseld_support as support

MIRROR = os.path.join(support.BIN, "fuse_mirror")
SOMEBODY = 100_000 + os.getpid() % 10_000  # nobody else's: dieseld looks at all jobs of the machine
FILES = 384

# Reads FOLDER until its standard input ends. each: an index opens a file of its own; other: any one.
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


class Assist(support.Case):
    def setUp(self):
        self.folder = pathlib.Path(support.SCRATCH) / f"assist-{id(self)}"
        self.folder.mkdir()
        for i in range(FILES):
            (self.folder / f"{i:05}").write_bytes(os.urandom(9000))

    def mirror(self):
        """The folder, where each read takes 5 ms."""
        slow = self.folder.with_name(self.folder.name + "-slow")
        slow.mkdir()
        process = subprocess.Popen([MIRROR, self.folder, slow], env=dict(os.environ, FUSE_MIRROR_READ_MS="5"),
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

    def start(self, command):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(self.kill, process.pid)
        return process

    @staticmethod
    def kill(group):
        """Workers too: PyTorch's never end where their parent was gone before they first asked for its number."""
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

    def test_files_come_before_the_job_and_with_its_rights(self):
        address = f"127.0.0.1:{support.free_port()}"
        daemon = self.daemon("--assist", "--history", "off", "--metrics", address)
        process = self.job(self.mirror())
        told = self.state(daemon, process, "helps", "rests", "stopped")
        self.assertEqual(told["state"], "helps", told)
        self.assertEqual((told["uid"], told["misses"], told["failed"]), (SOMEBODY, 0, 0))
        self.assertGreater(told["known_samples"], FILES * 3 // 4)  # it tries as soon as batches are known but for an eighth
        self.assertGreater(told["bytes_read_ahead"], 0)
        readers = [p for p in pathlib.Path("/proc").glob("[0-9]*") if self.reads_for(p, SOMEBODY)
                   and self.grandparent(p) == daemon.process.pid]
        self.assertEqual(len(readers), 1)
        status = (readers[0] / "status").read_text()
        self.assertEqual(set(re.search(r"Uid:\s*(.*)", status)[1].split()), {str(SOMEBODY)})
        self.assertEqual(set(re.search(r"Gid:\s*(.*)", status)[1].split()), {str(SOMEBODY)})
        self.assertEqual(re.search(r"Groups:[ \t]*(.*)", status)[1].strip(), "")
        for kind in ("CapPrm", "CapEff"):
            self.assertEqual(int(re.search(rf"{kind}:\s*(\w+)", status)[1], 16), 0)
        why = subprocess.run([support.CTL, "why", "--socket", daemon.socket], capture_output=True, text=True, check=True).stdout
        self.assertIn(f"process {process.pid} (", why)
        self.assertIn("reading ahead helps: a batch takes the job ", why)
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            metrics = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
        self.assertGreaterEqual(int(metrics['diesel_assist_jobs{state="helps"}']), 1)
        self.assertGreaterEqual(int(metrics["diesel_assist_bytes_total"]), told["bytes_read_ahead"])
        process.stdin.close()
        process.wait()
        wait_until("the end of its reader", lambda: not readers[0].exists(), daemon)
        self.assertIsNone(self.of(daemon, process))

    @staticmethod
    def reads_for(path, uid):
        try:
            return (path / "comm").read_text() == "dieseld-ahead\n" and f"Uid:\t{uid}\t" in (path / "status").read_text()
        except OSError:  # it has ended
            return False

    @staticmethod
    def grandparent(path):
        parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
        return int(pathlib.Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])

    def test_a_job_that_computes_is_left_alone(self):
        daemon = self.daemon("--assist", "--history", "off")
        process = self.job(self.folder, work=2000, cache="warm")
        told = self.state(daemon, process, "rests", "helps", "stopped")
        self.assertEqual(told["state"], "rests", told)

    def test_a_job_whose_indices_lie_is_given_up(self):
        daemon = self.daemon("--assist", "--history", "off")
        process = self.job(self.mirror(), kind="other")
        told = self.state(daemon, process, "stopped")
        self.assertIn("does not open the same file", told["why"])

    def test_a_process_with_rights_of_others_is_refused(self):
        daemon = self.daemon("--assist", "--history", "off")
        for who, change in (("user", f"os.setresuid({SOMEBODY}, {SOMEBODY}, 0)"), ("group", f"os.setresgid({SOMEBODY}, 0, 0)")):
            with self.subTest(who):
                command = [sys.executable, "-c", f"import os\n{change}\n{JOB}", self.folder, "each", "0", "warm"]
                process = self.start(command)
                told = self.state(daemon, process, "stopped", "helps", "rests")
                self.assertIn("has the rights of several users or groups", told["why"])
                self.assertEqual(told["bytes_read_ahead"], 0)

    def test_other_users_jobs_are_not_shown(self):
        daemon = self.daemon("--assist", "--history", "off")
        process = self.job(self.mirror())
        wait_until("the job", lambda: self.of(daemon, process), daemon)
        told = subprocess.run(["setpriv", "--reuid", "54322", "--regid", "54322", "--clear-groups", support.CTL, "why",
                               "--json", "--socket", daemon.socket], capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(told.stdout)["assist"]["jobs"], [])

    def test_without_privilege_it_says_so(self):
        for bounding, text in (("-bpf,-sys_admin", "no privilege to load BPF programs"),):
            daemon = self.daemon("--assist", "--history", "off",
                                 prefix=lambda command, b=bounding: ["setpriv", "--bounding-set", b, *command])
            told = wait_until("why not", lambda d=daemon: self.assist(d)["problem"], daemon)
            self.assertIn(text, told)
            self.assertEqual(daemon.output().count("nothing is read ahead"), 1)


if __name__ == "__main__":
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skipped: needs torch")
        sys.exit(77)
    if os.geteuid() or not os.access("/dev/fuse", os.R_OK) or not os.access(MIRROR, os.X_OK):
        print("skipped: needs root, /dev/fuse and fuse_mirror")
        sys.exit(77)
    support.main()
