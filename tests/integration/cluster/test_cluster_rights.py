# SPDX-License-Identifier: Apache-2.0
"""Tests that a node gets from another one only correct data that it may read itself. Each node has a copy of the dataset in a folder of its
own, which is the same dataset by its snapshot."""
import collections
import os
import shutil
import subprocess
import sys
import threading
import unittest

from nodes import Case, MALLORY, digest, make_dataset, read_all, support, wait_until

# Runs one epoch as that rank of two, and prints the number of samples. Arguments: socket, dataset, rank.
RANK = """
import sys
import diesel_loader.numpy as diesel
from diesel_loader import dataset as served
loader = diesel.DataLoader(served.Dataset(sys.argv[2], socket=sys.argv[1]), batch_size=16, shuffle=True, seed=5,
                           job=diesel.Job(rank=int(sys.argv[3]), world_size=2, cluster="job"), order=diesel.Order(window_chunks=2, lanes=1))
print(sum(len(data) for data, _ in loader))
"""


class Rights(Case):
    n_samples = 320

    def setUp(self):
        for path in (self.folder, *self.folder.rglob("*")):
            os.chmod(path, 0o755 if path.is_dir() else 0o644)
        self.copies = [self.folder / f"{self.id().rsplit('.', 1)[1]}-{i}.diesel" for i in range(2)]
        for copy in self.copies:
            shutil.copytree(self.path, copy)
            self.addCleanup(shutil.rmtree, copy)
        self.two = self.nodes(2)

    def ranks(self, **options):
        made = [node.loader(copy, i, 2, lanes=1, **options) for i, (node, copy) in enumerate(zip(self.two, self.copies))]
        for loader in made:
            self.addCleanup(loader.close)
        return made

    def test_copies_of_a_dataset_are_one(self):
        self.check(read_all(self.ranks()))
        self.check_reads(self.two, self.n_chunks)
        group, = self.two[0].status()["cluster"]["groups"]
        self.assertEqual((group["name"], group["uid"], group["reachable"]), ("job", os.getuid(), 2))
        self.assertEqual(group["dataset"], str(self.copies[0]))

    def test_a_chunk_that_a_node_may_not_read_does_not_come_from_another(self):
        for name in support.chunk_files(self.copies[1]):
            os.chmod(name, 0o600)  # stricter than the snapshot
        loaders = self.ranks()
        batches = iter(loaders[0])
        next(batches)
        with self.assertRaises(OSError):
            next(iter(loaders[1]))
        status = wait_until("node 0 to be asked", lambda: self.two[0].status())
        self.assertEqual(self.two[1].status()["cluster"]["chunks_in"], 0)
        self.assertEqual(status["cluster"]["chunks_out"], 0)

    def test_what_is_damaged_at_its_owner_is_read_from_storage(self):
        for name in support.chunk_files(self.copies[0]):
            with open(name, "r+b") as f:
                f.seek(100000)
                f.write(b"spoilt")
        healthy, spoilt = self.ranks()[1], self.ranks()[0]
        with self.assertRaises(OSError):
            for _ in spoilt:
                pass
        want = self.two[1].loader(self.copies[1], 1, 2, cluster="", lanes=1)
        self.assertEqual(collections.Counter(digest(item) for data, _ in healthy for item in data),
                         collections.Counter(digest(item) for data, _ in want for item in data))
        want.close()

    def test_another_users_job_of_that_name_shares_nothing(self):
        if os.getuid() != 0:
            self.skipTest("takes root")
        runs = [subprocess.Popen([sys.executable, "-c", RANK, node.socket, copy, str(i)], stdout=subprocess.PIPE, text=True, **user)
                for i, (node, copy, user) in enumerate(zip(self.two, self.copies, ({}, {"user": MALLORY, "group": MALLORY})))]
        total = sum(int(run.communicate(timeout=120)[0]) for run in runs)
        self.assertEqual(total, self.n_samples)
        for node in self.two:
            status = node.status()
            self.assertEqual(status["cluster"]["chunks_in"] + status["cluster"]["chunks_out"], 0)
            self.assertGreaterEqual(node.reads(), self.n_chunks)


class Others(Case):
    n_samples = 320

    def test_another_job_does_not_wait_for_nodes(self):
        """A rank waits for its other node if that is not there yet; a parallel job does not."""
        (self.folder / "other").mkdir()
        other, _ = make_dataset(self.folder / "other", 64)
        node = self.nodes(1)[0]
        waits = iter(node.loader(self.path, 0, 2))
        first = threading.Thread(target=lambda: next(waits))
        first.start()
        node.daemon.wait_for("a session", lambda status: status["sessions"])
        alone = iter(node.loader(other, 0, 1))
        next(alone)
        self.assertEqual({s["world"]: s["delivered"] > 0 for s in node.status()["sessions"]}, {1: True, 2: False})
        first.join()  # succeeds after a while


if __name__ == "__main__":
    unittest.main(verbosity=2)
