# SPDX-License-Identifier: Apache-2.0
"""Kills random processes a hundred times with kill -9: the daemon, a training job, its workers, a client in C, a mount. Each sample of
each epoch is delivered once, with its bytes, and a mount returns the packed bytes, or an error."""
import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

from common.commands import needs
from common.processes import children, send
from common.waiting import wait_until
from dieseld_support import CTL, SCRATCH, Case, finish_probe, main, make_source, pack, start_probe

needs("numpy")

JOB = pathlib.Path(__file__).with_name("killed_job.py")
FUSE = os.access("/dev/fuse", os.R_OK | os.W_OK)
KILLS = int(os.environ.get("DIESEL_TEST_KILLS", 100))
N, BYTES = 6000, 32768
NOBODY = "no dieseld at"
WAIT_S = 240


class Job:
    """Runs killed_job.py, which restarts where its journal ends."""

    def __init__(self, daemon, dataset):
        self.journal = pathlib.Path(tempfile.mktemp(dir=SCRATCH))
        self.errors = tempfile.TemporaryFile("w+", dir=SCRATCH)
        self.command = [sys.executable, JOB, dataset, daemon.socket, self.journal]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stderr=self.errors)

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def ended(self):
        """Returns the job's output if the job ended by itself, else None. Restarts a job that found no daemon when it started."""
        if self.process.poll() is None:
            return None
        self.errors.seek(0)
        said = self.errors.read()
        if NOBODY in said:
            self.errors.seek(0)
            self.errors.truncate()
            self.start()
            return None
        return f"the job ended with {self.process.returncode}: {said}"

    def lines(self):
        """Returns the complete lines. A job that was killed while it wrote a line starts a new line after its restart."""
        with contextlib.suppress(FileNotFoundError):
            return [json.loads(line) for line in self.journal.read_text().splitlines() if line.endswith("}}")]
        return []

    def n_lines(self):
        """Returns the number of complete lines, and decodes none: the test polls it."""
        return self.journal.read_bytes().count(b"}}\n") if self.journal.exists() else 0

    def workers(self):
        return [worker for fork_server in children(self.process.pid) for worker in children(fork_server)]


class Mount:
    """Reads files of a mount all the time, and compares them with the source."""

    def __init__(self, daemon, dataset, source):
        self.where = tempfile.mkdtemp(dir=SCRATCH)
        self.command = [CTL, "mount", "--foreground", "--socket", daemon.socket, dataset, self.where]
        self.source, self.wrong, self.n_read, self.stopped = pathlib.Path(source), [], 0, False
        self.names = sorted(path.relative_to(source) for path in self.source.rglob("*.bin"))
        self.start()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stderr=subprocess.DEVNULL)

    def read(self):
        rng = random.Random(2)
        while not self.stopped:
            name = rng.choice(self.names)
            try:
                data = pathlib.Path(self.where, name).read_bytes()
            except OSError:  # not mounted, or no daemon runs
                time.sleep(0.01)
                continue
            self.n_read += 1
            if data != (self.source / name).read_bytes():
                self.wrong.append(name)
            time.sleep(0.001)

    def end(self):
        self.process.wait()
        subprocess.run(["fusermount3", "-quz", self.where], check=False)

    def stop(self):
        self.process.terminate()
        self.end()
        self.stopped = True
        self.thread.join()


class Killed(Case):
    def until(self, what, holds):
        def has_come():
            return holds() or self.assertIsNone(self.job.ended(), what)
        wait_until(what, has_come, WAIT_S)

    def job_goes_on(self):
        n = self.job.n_lines()
        self.until("the job goes on", lambda: self.job.n_lines() > n + 3)

    def kill_daemon(self):
        self.node.kill()
        time.sleep(self.rng.random() / 10)
        self.node.start()

    def kill_worker(self):
        self.until("the job has workers", self.job.workers)
        for worker in self.job.workers()[:1]:
            send(worker)

    def kill_job(self):
        self.job.kill()
        self.job.start()

    def kill_client(self):
        self.client.kill()
        self.client.communicate()
        self.client = self.start_client()

    def kill_opening(self):
        """Kills the daemon while a job or a client opens a dataset or a session, or before that."""
        if self.rng.random() < 0.5:
            self.kill_client()
            time.sleep(self.rng.random() / 50)
        else:
            self.kill_job()
            time.sleep(self.rng.random() / 2)  # from its start until after its modules are loaded
        self.kill_daemon()

    def kill_mount(self):
        n = self.mount.n_read
        self.mount.process.kill()
        self.mount.end()
        self.mount.start()
        self.until("the mount is read", lambda: self.mount.n_read > n)

    def start_client(self):
        return start_probe(self.node, self.dataset, "--source", self.source, "--epochs", 2, "--pause-us", 500, "--batch", 32, "--window", 1,
                           "--seed", self.rng.randrange(1 << 30), "--reconnect-ms", 60000)

    def client_goes_on(self):
        """Restarts the client, if it has ended, to read and check two epochs. Only a client that found no daemon at its start may fail."""
        if self.client.poll() is None:
            return
        self.client_ended_well()
        self.client = self.start_client()

    def client_ended_well(self):
        try:
            finish_probe(self.client)
        except AssertionError as error:
            self.assertIn(NOBODY, str(error))

    def test_each_sample_comes_once_though_anybody_is_killed(self):
        self.rng = random.Random(6)
        self.source = make_source("killed", N, lambda rng: BYTES)
        self.dataset = pack(self.source, "killed", order="random")
        self.node = self.daemon(cache="128M")
        self.job = Job(self.node, self.dataset)
        self.addCleanup(lambda: (self.job.kill(), self.job.errors.close()))
        self.client = self.start_client()
        self.addCleanup(lambda: (self.client.kill(), self.client.communicate()))
        whom = [self.kill_daemon, self.kill_worker, self.kill_job, self.kill_client, self.kill_opening]
        if FUSE:
            self.mount = Mount(self.node, self.dataset, self.source)
            self.addCleanup(self.mount.stop)
            whom.append(self.kill_mount)
        self.job_goes_on()
        self.until("the mount is read", lambda: not FUSE or self.mount.n_read > 0)
        for _ in range(KILLS):
            time.sleep(self.rng.random() / 5)
            self.rng.choice(whom)()
            self.client_goes_on()
            self.job_goes_on()
        self.job.process.communicate(b"\n")  # so that the job ends with this epoch
        self.assertEqual(self.job.process.returncode, 0, self.job.ended())
        self.client_ended_well()
        if FUSE:
            self.assertEqual(self.mount.wrong, [])
        epochs = {}
        for line in self.job.lines():
            epochs.setdefault(line["epoch"], []).extend(line["samples"])
        self.assertGreater(len(epochs), 1)
        for epoch, samples in epochs.items():
            self.assertEqual(sorted(samples), list(range(N)), f"epoch {epoch}")


if __name__ == "__main__":
    main()
