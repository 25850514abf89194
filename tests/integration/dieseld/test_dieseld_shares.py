# SPDX-License-Identifier: Apache-2.0
"""Who reads how much of a storage: users beside each other, by what they were given, and reading ahead beside checkpoints."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from dieseld_support import BIN, CTL, MIB, SCRATCH, Case, main, make_source, pack, probe_command
from hostile import ALICE, MALLORY, become, wait_until

MIRROR = os.path.join(BIN, "fuse_mirror")
N_SESSIONS, N_DATASETS, N_SAMPLES, SAMPLE = 50, 3, 1024, 256 << 10
DAEMON = ("--tune", "off", "--batches", "3", "--user-share", "95")
TRAINER = """
import os, sys, time
import diesel_loader.numpy as diesel, diesel_loader
path, socket, checkpoint, control = sys.argv[1:]
loader = diesel.DataLoader(diesel_loader.Dataset(path, socket=socket), batch_size=16, window_chunks=1, shuffle=True)
while True:
    for batch in loader:
        time.sleep(0.01)
        if os.path.exists(control):
            with open(checkpoint, "wb") as f:
                f.write(bytes(24 << 20))
"""


def user_probe():
    """The probe where another user can run it."""
    program = os.path.join(SCRATCH, "probe")
    if not os.path.exists(program):
        shutil.copy(os.path.join(BIN, "daemon_probe"), program)
        os.chmod(program, 0o755)
    return program


def counts_writes(folder):
    """The kernel counts what is written there."""
    def written():
        with open("/proc/self/io", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("write_bytes"))
    before = written()
    with tempfile.TemporaryFile(dir=folder) as f:
        f.write(bytes(MIB))
        f.flush()
    return written() >= before + MIB


class Shares(Case):
    def start(self, command, uid=0):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   preexec_fn=(lambda: become(uid)) if uid else None)

        def end():
            process.kill()
            process.wait()
        self.addCleanup(end)
        return process

    def jobs(self, daemon):
        done = subprocess.run([CTL, "status", "--json", "--socket", daemon.socket], capture_output=True, text=True, timeout=60, check=True)
        return json.loads(done.stdout)["jobs"]

    def read_bytes(self, daemon, uid):
        return sum(job["read_bytes"] for job in self.jobs(daemon) if job["uid"] == uid)

    def mirror(self, path):
        """The folder on slow storage."""
        where = tempfile.mkdtemp(dir=SCRATCH)
        process = subprocess.Popen([MIRROR, path, where], env={**os.environ, "FUSE_MIRROR_READ_MS": "120"})

        def end():
            process.kill()
            process.wait()
            subprocess.run(["umount", "-l", where], check=False)
        self.addCleanup(end)
        wait_until("the mount", lambda: os.path.ismount(where) or process.poll() is not None)
        if not os.path.ismount(where):
            self.skipTest("FUSE cannot be mounted here")
        return where

    def share_of(self, daemon, place):
        """Of what both read while both want more than they get: the part of the user with the single job."""
        others = [self.start(probe_command(daemon, f"{place}/{i % N_DATASETS}", "--batch", 1, "--window", 1, "--epochs", 1000, "--seed", i,
                                           program=user_probe()), MALLORY) for i in range(N_SESSIONS)]
        wait_until("fifty sessions", lambda: len(self.jobs(daemon)) == N_SESSIONS)
        own = self.start(probe_command(daemon, f"{place}/own", "--batch", 1, "--window", 1, "--epochs", 1000, program=user_probe()), ALICE)
        wait_until("the single job reads", lambda: self.read_bytes(daemon, ALICE) > 0)
        alice, mallory = self.read_bytes(daemon, ALICE), self.read_bytes(daemon, MALLORY)
        wait_until("enough is read", lambda: self.read_bytes(daemon, ALICE) + self.read_bytes(daemon, MALLORY) > alice + mallory + 160 * MIB, 240)
        alice, mallory = self.read_bytes(daemon, ALICE) - alice, self.read_bytes(daemon, MALLORY) - mallory
        self.assertTrue(all(process.poll() is None for process in (*others, own)))
        return alice / (alice + mallory)

    def datasets(self):
        """More than the cache has room for, so that reading never ends. All samples are one file."""
        place = tempfile.mkdtemp(dir=SCRATCH)
        os.chmod(place, 0o755)
        source = make_source("shares", 1, lambda rng: SAMPLE)
        for i in range(1, N_SAMPLES):
            os.link(f"{source}/class0/000000.bin", f"{source}/class0/{i:06d}.bin")
        for name in [*range(N_DATASETS), "own"]:
            subprocess.run([CTL, "pack", source, f"{place}/{name}", "--chunk-size", "4M"], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        shutil.rmtree(source)
        self.addCleanup(shutil.rmtree, place)
        return place

    def test_fifty_sessions_beside_one(self):
        if os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK) or not os.access(MIRROR, os.X_OK):
            self.skipTest("needs root, /dev/fuse and fuse_mirror")
        place = self.mirror(self.datasets())
        self.assertGreater(self.share_of(self.daemon(*DAEMON, cache="512M"), place), 0.3)  # three readers beside one: without turns, a quarter

    def test_fifty_sessions_beside_one_under_a_limit(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        daemon = self.daemon(*DAEMON, "--read-limit", "64M", cache="512M")
        self.assertGreater(self.share_of(daemon, self.datasets()), 0.35)

    def test_reading_ahead_gives_way_to_a_checkpoint(self):
        if not counts_writes(SCRATCH):
            self.skipTest(f"the kernel does not count what is written to {SCRATCH}")
        dataset = pack(make_source("ahead", 1024, lambda rng: 65536), "ahead", chunk="4M")
        daemon, control = self.daemon(cache="32M"), os.path.join(SCRATCH, "writes")
        self.start([sys.executable, "-c", TRAINER, dataset, daemon.socket, os.path.join(SCRATCH, "checkpoint"), control])
        if os.geteuid() == 0:
            self.start(probe_command(daemon, dataset, "--batch", 16, "--window", 1, "--epochs", 100000, "--pause-us", 10000, program=user_probe()),
                       ALICE)
        wait_until("the jobs read", lambda: any(job["read_bytes"] > 40 * MIB and job["uid"] == os.geteuid() for job in self.jobs(daemon)))
        self.assertEqual([job["held"] for job in self.jobs(daemon)], [None] * len(self.jobs(daemon)))
        with open(control, "w", encoding="ascii"):
            pass

        def writer():
            return next(job for job in self.jobs(daemon) if job["uid"] == os.geteuid())
        wait_until("reading ahead is held back", lambda: (writer()["held"] or {}).get("now"))
        n = writer()["batches"]
        wait_until("what is waited for is read", lambda: writer()["batches"] > n + 10)
        wait_until("it is for a bounded time, though the job writes on", lambda: not writer()["held"]["now"])
        self.assertEqual(writer()["held"]["writer"], writer()["id"])
        why = subprocess.run([CTL, "why", "--socket", daemon.socket], capture_output=True, text=True, timeout=60, check=True).stdout
        self.assertRegex(why, r"reading ahead was held back \d+ times?, .* in all, while job \d+ wrote a checkpoint to the same file system")
        for job in self.jobs(daemon):
            if job["uid"] != os.geteuid():
                self.assertIsNone(job["held"], "another user's")


if __name__ == "__main__":
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        print(f"skipped: needs {error.name}")
        sys.exit(77)
    main()
