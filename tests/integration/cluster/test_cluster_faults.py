# SPDX-License-Identifier: Apache-2.0
"""Tests a job over some nodes under random faults: each rank gets its samples, in their order, with their bytes, once per epoch. Lanes and
drift are random, too.

DIESEL_FAULTS=200 is the long test. DIESEL_FAULTS_SEED=N draws the same faults again, which may hit the job at other points."""
import contextlib
import errno
import faulthandler
import os
import random
import subprocess
import sys
import threading
import time
import unittest

import faults
from diesel_loader import DamagedData
from nodes import Case, Node, PATIENCE_S, digest

N_FAULTS = int(os.environ.get("DIESEL_FAULTS", "40"))
SEED = int(os.environ.get("DIESEL_FAULTS_SEED") or random.SystemRandom().getrandbits(32))
# Transient errors: the daemon is restarting, or the memory of the last session comes back only when it has seen the session's end.
FOR_NOW = errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOENT, errno.EPIPE, errno.ENOSPC


def number(item):
    return int.from_bytes(bytes(item[:8]), "little")


def take(batches):
    """Returns (the next batch, or None at the end; whether it was damaged). Keeps nothing of the exception, which holds the dataset
    open."""
    try:
        return next(batches, None), False
    except DamagedData:
        return None, True


class Rank(threading.Thread):
    """Trains until the job ends. Opens the dataset again after damage."""

    def __init__(self, test, rank):
        super().__init__(daemon=True)
        self.test, self.rank, self.loader = test, rank, None
        self.epochs, self.n_steps, self.n_reopened, self.wrong = [], 0, 0, None

    def run(self):
        try:
            self.open()
            while not self.test.is_over:
                self.epochs.append(list(self.epoch()))
                self.test.between.wait()  # watch() notices a missing rank
            self.loader.close()
        except BaseException as error:  # noqa: BLE001: it is the test's
            self.wrong = error
            self.test.between.abort()

    def open(self, state=None):
        self.loader = self.test.job[self.rank].loader(self.test.path, self.rank, len(self.test.job), **self.test.order)
        if state:
            self.loader.load_state_dict(state)

    def epoch(self):
        batches, item = iter(self.loader), None
        while True:
            batch, is_damaged = take(batches)
            if is_damaged:
                batches = item = None  # both hold memory of the daemon's
                batches = self.reopen()
                continue
            if batch is None:
                return
            for item in batch[0]:
                if digest(item) != self.test.digests.get(number(item)):
                    raise AssertionError(f"rank {self.rank}, epoch {len(self.epochs)}: sample {number(item)} has other bytes")
                yield number(item)
            self.n_steps += 1
            time.sleep(0.01)  # stands for training

    def reopen(self):
        """The daemon reads a chunk that was damaged again once no session has the dataset open."""
        if not self.test.faults.n_damaged:
            raise AssertionError("damaged data, and no chunk was")
        if not self.test.faults.whole.wait(PATIENCE_S):
            raise AssertionError("the chunk is still damaged")
        self.n_reopened += 1
        state = self.loader.state_dict()
        self.loader.close()
        self.loader = None
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.open(state)
                return iter(self.loader)
            except OSError as error:
                if error.errno not in FOR_NOW or time.monotonic() > end:
                    raise
            time.sleep(0.02)


class Faults(Case):
    n_samples = 640

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.digests = {}
        for file in (cls.folder / "src").glob("*/*.bin"):
            data = file.read_bytes()
            cls.digests[number(data)] = digest(data)

    def setUp(self):
        print(f"DIESEL_FAULTS={N_FAULTS} DIESEL_FAULTS_SEED={SEED}", flush=True)
        rng = random.Random(SEED)
        self.order = rng.choice(({"lanes": 1}, {"drift": 1}))  # both make chunks move between nodes in every epoch
        self.is_over = self.may_end = False
        n_nodes = rng.choice((3, 4))
        self.order = {"lanes": rng.choice((1, n_nodes, n_nodes, 2 * n_nodes, 5)), "drift": rng.choice((0, 1, 2, 4))}
        self.job = [faults.FixedNode(self.redis.url(""), f"node{i}", cache="56M") for i in range(n_nodes)]
        for node in self.job:
            self.addCleanup(node.daemon.stop)
        self.faults = faults.Faults(self.redis, self.job, self.path, faults.draw(SEED, N_FAULTS))
        self.addCleanup(self.faults.end)  # ends before the nodes: stopped processes continue
        self.between = threading.Barrier(len(self.job), self.end_if_wanted)
        self.ranks = [Rank(self, i) for i in range(len(self.job))]

    def end_if_wanted(self):
        self.is_over = self.may_end

    def chunks_in(self):
        return [node.status()["cluster"]["chunks_in"] for node in self.job]

    def watch(self, until):
        """Waits until the condition holds; meanwhile no rank may stand still."""
        steps, since = None, time.monotonic()
        while not until():
            for wrong in [rank.wrong for rank in self.ranks] + self.faults.wrong:
                if wrong and not isinstance(wrong, threading.BrokenBarrierError):
                    raise wrong
            now = [rank.n_steps for rank in self.ranks]
            if now != steps:
                steps, since = now, time.monotonic()
            if time.monotonic() - since > 2 * PATIENCE_S:
                self.give_up(steps)
            time.sleep(0.05)

    def give_up(self, steps):
        """Ends this process, which threads that hang in a call would keep alive."""
        print(f"the job stands still: {steps}", file=sys.stderr)
        faulthandler.dump_traceback(all_threads=True)
        for node in self.job:
            with contextlib.suppress(subprocess.SubprocessError):
                print(f"--- {node.name}, {node.socket}\n{node.status()}", file=sys.stderr)
        for node in self.job:
            print(f"--- {node.name}\n{node.daemon.output()[-3000:]}", file=sys.stderr)
            node.daemon.kill()
        self.redis.stop()
        os._exit(1)

    def test_each_rank_has_its_samples_once(self):
        for rank in self.ranks:
            rank.start()
        self.watch(lambda: all(rank.n_steps for rank in self.ranks))
        self.faults.start()
        self.watch(lambda: not any(lane.is_alive() for lane in self.faults.lanes))
        # Forged entries are gone, and all nodes find each other again.
        self.redis.cli("flushall")
        had = self.chunks_in()
        if self.order["lanes"] == 1:  # otherwise a node may have all it needs
            self.watch(lambda: all(now > before for now, before in zip(self.chunks_in(), had)))
        self.may_end = True
        self.watch(lambda: not any(rank.is_alive() for rank in self.ranks))
        self.watch(lambda: True)
        self.check_epochs()
        print(f"{len(self.job)} nodes, {self.order}, {len(self.faults.done)} faults, {len(self.ranks[0].epochs)} epochs, "
              f"reopened {[rank.n_reopened for rank in self.ranks]}, alone {[node.n_alone() for node in self.job]}")

    def check_epochs(self):
        """Compares with a node that is alone and had no faults."""
        self.assertEqual([rank.wrong for rank in self.ranks], [None] * len(self.ranks))
        self.assertEqual(len(self.faults.done), N_FAULTS)
        alone = Node(self.redis.url(""), "alone", cache="160M")
        self.addCleanup(alone.daemon.stop)
        for k, rank in enumerate(self.ranks):
            loader = alone.loader(self.path, k, len(self.job), cluster="", **self.order)
            for i, had in enumerate(rank.epochs):
                self.assertEqual(had, [number(item) for data, _ in loader for item in data], f"rank {k}, epoch {i}")
            loader.close()
        for i, of_all in enumerate(zip(*(rank.epochs for rank in self.ranks))):
            self.assertEqual(sorted(sum(of_all, [])), list(range(self.n_samples)), f"epoch {i}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
