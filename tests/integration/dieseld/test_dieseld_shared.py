# SPDX-License-Identifier: Apache-2.0
"""Tests jobs with the same order and the same transform: each batch is decoded once, and no job suffers from the fate of another."""
import collections
import contextlib
import hashlib
import itertools
import json
import logging
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench"))
import support
from serving import Daemon, grouped, pack

try:
    import numpy
    from PIL import Image

    import diesel_loader
    from diesel_loader import transforms
    from diesel_loader.numpy import DataLoader
except ImportError as error:
    support.skip(f"needs {error.name}")

N, BATCH, EPOCHS = 160, 8, 3
BATCHES, SIDE = N // BATCH, 48
NOBODY = 65534
BOX = [transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
OTHER = [transforms.RandomResizedCrop(SIDE), transforms.ToTensor()]


def make_pictures(folder, size=(640, 480)):
    """Makes pictures so large that decoding is most of the work."""
    folder.mkdir()
    rng = numpy.random.default_rng(4)
    for i in range(N):
        small = Image.fromarray(rng.integers(0, 255, (60, 80, 3), dtype=numpy.uint8))
        small.resize(size, Image.BICUBIC).save(folder / f"{i:03d}.jpg", quality=95)


# Prints its process id; with "apart" it is no child of the test. Begins when a line comes on standard input, prints a line of JSON for each
# batch (index, samples, hash of the data), and ends with standard input.
JOB = """
import hashlib, json, os, sys
from diesel_loader import transforms
from diesel_loader.numpy import Batches, DataLoader, Decode
if sys.argv[4:] and os.fork():
    os._exit(0)
path, epochs, side = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
loader = DataLoader(path, 8, shuffle=True, seed=1, batches=Batches(return_ids=True), decode=Decode(native="require"), transform=transforms.Compose([
    transforms.RandomResizedCrop(side), transforms.RandomHorizontalFlip(), transforms.ToTensor()]))
print(os.getpid(), flush=True)
sys.stdin.readline()
n = 0
for _ in range(epochs):
    for data, _, ids in loader:
        print(json.dumps([n, ids.tolist(), hashlib.sha1(data.tobytes()).hexdigest()]), flush=True)
        n += 1
sys.stdin.read()
"""


def digest(data):
    return hashlib.sha1(data.tobytes()).hexdigest()


class SharedCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="diesel-shared-")
        cls.folder = pathlib.Path(cls.scratch.name)
        os.chmod(cls.folder, 0o755)
        make_pictures(cls.folder / "src")
        cls.path = str(pack(cls.folder / "src", cls.folder / "pictures.diesel"))
        cls.daemon = Daemon(cls.folder, "--tune", "off", "--metrics", "off")
        cls.daemon.__enter__()
        with contextlib.closing(cls.make()) as alone:
            cls.batches = [(ids.tolist(), data.copy()) for _ in range(EPOCHS) for data, _, ids in alone]

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)
        cls.scratch.cleanup()

    @classmethod
    def make(cls, path=None, transform=BOX, **options):
        return DataLoader(path or cls.path, **grouped({"batch_size": BATCH, "shuffle": True, "seed": 1, "return_ids": True,
                                               "native": "require", **options}), transform=transforms.Compose(transform))

    def loader(self, *args, **options):
        made = self.make(*args, **options)
        self.addCleanup(made.close)
        return made

    def at_rest(self, n):
        """Waits until n sessions are open with all slots full. Returns for each the number of ready batches, and how many of these were
        decoded for another session."""
        for _ in range(3000):
            found = diesel_loader.status(str(self.daemon.socket))["sessions"]
            if len(found) == n and all(s["ready"] + s["held"] == s["slots"] for s in found):
                return [(s["delivered"], s["shared"]) for s in found]
            time.sleep(0.02)
        self.fail(f"{n} sessions do not come to rest: {found}")

    def check(self, batch, index, epoch=0):
        data, _, ids = batch
        numbers, wanted = self.batches[epoch * BATCHES + index]
        self.assertEqual(ids.tolist(), numbers)
        numpy.testing.assert_array_equal(data, wanted)


class Together(SharedCase):
    """Sessions of one process, driven batch by batch."""

    def go_together(self, *loaders, epochs=(0,)):
        """Takes a batch of each alternately, and checks it. Then closes them, and returns their figures."""
        for epoch in epochs:
            for index, batches in enumerate(zip(*loaders)):
                for batch in batches:
                    self.check(batch, index, epoch)
        del batch, batches
        return self.close(loaders)

    def close(self, loaders):
        figures = self.at_rest(len(loaders))
        for loader in loaders:
            loader.close()
        self.at_rest(0)
        return figures

    def test_each_batch_is_decoded_once(self):
        for n in (2, 3):
            figures = self.go_together(*(self.loader(group=f"search {k}") for k in range(n)))
            self.assertEqual(sum(ready - shared for ready, shared in figures), max(ready for ready, _ in figures), figures)

    def ready(self, n):
        """Waits until n sessions are open, each with ready batches in half of its slots."""
        for _ in range(3000):
            found = diesel_loader.status(str(self.daemon.socket))["sessions"]
            if len(found) == n and all(2 * s["ready"] >= s["slots"] for s in found):
                return
            time.sleep(0.02)
        self.fail(f"{n} sessions do not get ready: {found}")

    def test_a_job_with_a_slow_device_has_what_another_decoded(self):
        """Two jobs are nine batches apart and never wait: the second one soon gets all batches that the first one decoded."""
        loaders = [self.loader() for _ in range(2)]
        first, second = (itertools.chain.from_iterable(itertools.repeat(loader, EPOCHS)) for loader in loaders)
        for i in range(9):
            self.check(next(first), i)
        for i in range(EPOCHS * BATCHES - 20):
            self.check(next(second), i % BATCHES, i // BATCHES)
            self.ready(2)
            self.check(next(first), (i + 9) % BATCHES, (i + 9) // BATCHES)
            self.ready(2)
        figures = [s["shared"] for s in diesel_loader.status(str(self.daemon.socket))["sessions"]]
        for loader in loaders:
            loader.close()
        self.at_rest(0)
        self.assertGreater(sum(figures), EPOCHS * BATCHES // 3, figures)

    def test_status_and_why_name_the_group(self):
        loaders = [self.loader(group="search 7"), self.loader()]
        for batch in zip(*loaders):
            pass
        job, = diesel_loader.status(str(self.daemon.socket))["jobs"]
        self.assertEqual(job["group"], "search 7")
        text = subprocess.run([support.program("dieselctl"), "status", "--socket", str(self.daemon.socket)], capture_output=True,
                              text=True, check=True).stdout
        self.assertRegex(text, r"\d+ of its \d+ batches were decoded for another session")
        text = subprocess.run([support.program("dieselctl"), "why", "--socket", str(self.daemon.socket)], capture_output=True,
                              text=True, check=True).stdout
        self.assertRegex(text, r"shared: \d+ of its \d+ batches were decoded for another session, most recently one of its own\n")
        del batch
        self.assertEqual(len(self.close(loaders)), 2)
        for name in ("", "x" * 32, "a\0b", 7):
            with self.assertRaisesRegex(ValueError, "group must be a name of 1 to 31 bytes"):
                self.loader(group=name)
        for name in ("x" * 64, "a\0b", "a\nb", "\x85", "\udcff", 7):
            with self.assertRaisesRegex(ValueError, "cluster must be the job's name, of at most 63 bytes"):
                self.loader(cluster=name)

    def test_jobs_share_epoch_after_epoch(self):
        figures = self.go_together(self.loader(), self.loader(), epochs=(0, 1))
        self.assertGreaterEqual(sum(shared for _, shared in figures), 2 * BATCHES, figures)

    def test_what_differs_is_not_shared(self):
        half = diesel_loader.Dataset(self.path).select(range(N // 2))
        ours = self.loader()
        for options in ({"seed": 2}, {"shuffle": False}, {"batch_size": 4}, {"transform": OTHER}, {"path": half},
                        {"drop_last": True}, {"damaged": "zero"}, {"window_chunks": 1}, {"rank": 0, "world_size": 2}):
            theirs = self.loader(**options)
            collections.deque(itertools.islice(zip(ours, theirs), 5), maxlen=0)
            figures = self.at_rest(2)
            self.assertEqual(sum(shared for _, shared in figures), 0, options)
            theirs.close()
            self.at_rest(1)

    def test_a_resumed_job_joins_another(self):
        ours, theirs = self.loader(), self.loader()
        batches = iter(ours)
        for _ in range(6):
            next(batches)
        state = ours.state_dict()
        theirs.load_state_dict(state)
        for index, pair in enumerate(zip(batches, theirs), 6):
            for batch in pair:
                self.check(batch, index)
        del batch, pair
        # Seeks back to a position where no session is any more, and again while the other continues.
        theirs.load_state_dict(state)
        follower = iter(ours)
        for index, batch in enumerate(theirs, 6):
            self.check(batch, index)
            if index % 2:
                self.check(next(follower), index // 2 - 3, 1)
        del batch, batches, follower
        figures = self.close([ours, theirs])
        self.assertGreaterEqual(sum(shared for _, shared in figures), BATCHES - 6, figures)

    def memory(self):
        """Returns the bytes that the daemon's batches take, and the bytes that it charges to its sessions."""
        folder, blocks = pathlib.Path(f"/proc/{self.daemon.process.pid}/fd"), 0
        for fd in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if "memfd:diesel-batches" in os.readlink(fd):
                    blocks += fd.stat().st_blocks
        return blocks * 512, diesel_loader.status(str(self.daemon.socket))["cache"]["slot_bytes"]

    def test_a_batch_lies_in_memory_once(self):
        """A client that writes into a batch affects only itself, and one that keeps batches does not stop another."""
        loaders = [self.loader(), self.loader()]
        first, second = map(iter, loaders)
        kept = [next(first) for _ in range(4)]
        for data, _, _ in kept:
            data += 1
        for index, batch in enumerate(second):
            self.check(batch, index)
        for index, (data, _, ids) in enumerate(kept):
            data -= 1
            numpy.testing.assert_allclose(data, self.batches[index][1], atol=1e-6)
        del batch, data, ids, kept
        for index, batch in enumerate(first, 4):
            self.check(batch, index)
        del batch, first, second
        self.at_rest(2)
        memory, counted = self.memory()
        self.assertLessEqual(memory, counted)
        loaders.pop().close()
        self.at_rest(1)
        for _ in range(3000):
            memory, counted = self.memory()
            if memory <= counted:
                break
            time.sleep(0.02)
        self.assertLessEqual(memory, counted)
        for index, batch in enumerate(loaders[0]):
            self.check(batch, index, 1)

    def test_a_damaged_image_is_an_error_for_all(self):
        source = self.folder / "bad"
        source.mkdir()
        for i, path in enumerate(sorted((self.folder / "src").iterdir())[:32]):
            data = path.read_bytes()
            (source / path.name).write_bytes(data[:len(data) // 2] if i in (3, 9, 10) else data)
        path = str(pack(source, self.folder / "bad.diesel", "--order", "source"))
        for damaged, lengths in (("skip", [7, 6, 8, 8]), ("zero", [8, 8, 8, 8])):
            loaders = [self.loader(path, shuffle=False, damaged=damaged) for _ in range(2)]
            with self.assertLogs("diesel_loader", logging.WARNING):
                both = list(zip(*loaders))
            self.assertEqual([len(data) for (data, _, _), _ in both], lengths)
            for (data, labels, ids), theirs in both:
                for ours, other in zip((data, labels, ids), theirs):
                    numpy.testing.assert_array_equal(ours, other)
                if damaged == "zero":
                    self.assertEqual([i for i, sample in zip(ids, data) if not sample.any()], [i for i in ids if i in (3, 9, 10)])
                else:
                    self.assertFalse({3, 9, 10} & set(ids.tolist()))
            self.assertEqual([loader.n_damaged for loader in loaders], [3, 3])
            del both, data, labels, ids, theirs, ours, other
            self.assertGreater(sum(shared for _, shared in self.close(loaders)), 0)
        loaders = [self.loader(path, shuffle=False) for _ in range(2)]
        for batches in [iter(loader) for loader in loaders]:
            for index, name in enumerate(("003.jpg", "009.jpg")):
                with self.assertRaisesRegex(diesel_loader.DamagedData, f"{name}: .*; batch {index} "):
                    next(batches)
            self.assertEqual(next(batches)[2].tolist(), list(range(16, 24)))


# As JOB, but each line on standard input requests one batch, like a device that is slower than the decoders.
PACED = """
import hashlib, json, os, sys
from diesel_loader import transforms
from diesel_loader.numpy import Batches, DataLoader, Decode
path, epochs, side = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
loader = DataLoader(path, 8, shuffle=True, seed=1, batches=Batches(return_ids=True), decode=Decode(native="require"), transform=transforms.Compose([
    transforms.RandomResizedCrop(side), transforms.RandomHorizontalFlip(), transforms.ToTensor()]))
print(os.getpid(), flush=True)
n = 0
sys.stdin.readline()
for _ in range(epochs):
    for data, _, ids in loader:
        print(json.dumps([n, ids.tolist(), hashlib.sha1(data.tobytes()).hexdigest()]), flush=True)
        n += 1
        sys.stdin.readline()
sys.stdin.read()
"""


# There is space for the session's own batches, but not for those of eight sessions.
LIMITED = """
import resource, sys
from diesel_loader import transforms
from diesel_loader.numpy import Batches, DataLoader, Decode
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, 2 * (pages * resource.getpagesize() + (160 << 20),))
loader = DataLoader(sys.argv[1], 8, decode=Decode(native="require"), transform=transforms.Compose([
    transforms.Resize((224, 224)), transforms.ToTensor()]))
print(sum(len(data) for data, _ in loader))
"""


class Processes(SharedCase):
    """Jobs in processes that start and end."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.wanted = [[n, ids, digest(data)] for n, (ids, data) in enumerate(cls.batches)]

    def start(self, *arguments, user=None, program=JOB, path=None, epochs=EPOCHS):
        """Starts a job that is ready to begin."""
        job = subprocess.Popen([sys.executable, "-c", program, path or self.path, str(epochs), str(SIDE), *arguments],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=user,
                               extra_groups=None if user is None else [])
        self.addCleanup(job.communicate)
        self.addCleanup(job.kill)
        job.process = int(job.stdout.readline())
        return job

    def go(self, *jobs):
        for job in jobs:
            job.stdin.write("\n")
            job.stdin.flush()

    def take(self, job, n):
        return [json.loads(job.stdout.readline()) for _ in range(n)]

    def check_all(self, job, taken=()):
        """Checks the batches that the job has printed and will print. Returns the number of batches made ready for it, and how many of
        these were decoded for another job."""
        self.assertEqual([*taken, *self.take(job, len(self.wanted) - len(taken))], self.wanted)
        found, = (s for s in diesel_loader.status(str(self.daemon.socket))["sessions"] if s["pid"] == job.process)
        return found["delivered"], found["shared"]

    def test_three_jobs_share_what_they_decode(self):
        jobs = [self.start(), self.start(), self.start("apart")]
        self.go(*jobs)
        figures = [self.check_all(job) for job in jobs]
        found = {job["pid"]: job for job in diesel_loader.status(str(self.daemon.socket))["jobs"]}
        apart = found[jobs[2].process]
        if apart["shared_batches"]:
            others = {job["id"] for job in found.values()} - {apart["id"]}
            self.assertIn(apart["shared_from"], others)
            text = subprocess.run([support.program("dieselctl"), "why", "--socket", str(self.daemon.socket), str(apart["id"])],
                                  capture_output=True, text=True, check=True).stdout
            self.assertRegex(text, f"batches were decoded for another session, most recently one of job {apart['shared_from']}\n")
        else:
            self.assertIsNone(apart["shared_from"])
        # The jobs need not run evenly, and one continues into the next epoch.
        self.assertLess(sum(ready - shared for ready, shared in figures), 2 * len(self.wanted), figures)

    def test_a_job_with_a_limited_address_space_shares(self):
        done = subprocess.run([sys.executable, "-c", LIMITED, self.path], capture_output=True, text=True)
        self.assertEqual((done.stdout, done.returncode), (f"{N}\n", 0), done.stderr)

    def test_jobs_go_on_when_one_is_killed(self):
        first, second = self.start(), self.start()
        self.go(first, second)
        self.take(first, 12)
        first.kill()
        self.check_all(second)

    def test_jobs_go_on_when_one_is_stopped(self):
        first, second = self.start(), self.start()
        self.go(first, second)
        taken = self.take(first, 12)
        first.send_signal(signal.SIGSTOP)
        self.check_all(second)
        first.send_signal(signal.SIGCONT)
        self.check_all(first, taken)

    def test_a_late_job_catches_up(self):
        """The other job waits for it: otherwise they would stay farther apart than slots reach."""
        first, second = self.start(), self.start()
        self.go(first)
        taken = self.take(first, 25)
        self.go(second)
        figures = [self.check_all(second), self.check_all(first, taken)]
        self.assertGreater(sum(shared for _, shared in figures), 15, figures)

    def decoded(self, status):
        """Returns the samples of all existing jobs."""
        return sum(job["decoding"]["samples"] for job in status["jobs"] if job["decoding"])

    def step(self, job):
        self.go(job)
        return self.take(job, 1)[0]

    def test_jobs_with_slow_devices_that_are_far_apart_share(self):
        """Two jobs are 60 batches apart and never wait: the second one decodes batches that the first one had earlier."""
        behind, epochs = 60, 20
        make_pictures(self.folder / "small", (64, 48))
        path = str(pack(self.folder / "small", self.folder / "small.diesel"))
        with contextlib.closing(self.make(path)) as alone:
            wanted = [[n, ids.tolist(), digest(data)] for n, (data, _, ids) in
                      enumerate(batch for _ in range(epochs) for batch in alone)]
        before = self.decoded(diesel_loader.status(str(self.daemon.socket)))
        first, second = (self.start(program=PACED, path=path, epochs=epochs) for _ in range(2))
        taken = [self.step(first) for _ in range(behind)], []
        for _ in range(len(wanted) - behind):
            taken[0].append(self.step(first))
            taken[1].append(self.step(second))
        status = diesel_loader.status(str(self.daemon.socket))
        self.assertLessEqual(self.decoded(status) - before, 1.2 * len(wanted) * BATCH)
        self.assertGreater(status["cache"]["kept_batch_bytes"], (behind - 20) * BATCH * SIDE * SIDE * 3 * 4)
        self.assertEqual(taken[0], wanted)
        first.communicate()
        # The first job has ended, and the batches that it left for the second stay until that takes them.
        taken[1].extend(self.step(second) for _ in range(behind))
        self.assertEqual(taken[1], wanted)
        found, = (s for s in diesel_loader.status(str(self.daemon.socket))["sessions"] if s["pid"] == second.process)
        self.assertLessEqual(found["delivered"] - found["shared"], behind + found["slots"])
        second.communicate()
        self.at_rest(0)
        self.assertEqual(diesel_loader.status(str(self.daemon.socket))["cache"]["kept_batch_bytes"], 0)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be another user")
    def test_another_user_has_nothing_of_it(self):
        jobs = [self.start(), self.start(user=NOBODY)]
        self.go(*jobs)
        self.assertEqual([shared for _, shared in map(self.check_all, jobs)], [0, 0])


if __name__ == "__main__":
    unittest.main()
