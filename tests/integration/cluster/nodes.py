# SPDX-License-Identifier: Apache-2.0
"""Runs nodes of a job on one machine: a dieseld each, with its own socket and cache, one Redis, one folder as storage. Ranks are loaders in
this process or in processes of their own."""
import collections
import hashlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = pathlib.Path(__file__).resolve()
sys.path += [str(HERE.parents[1]), str(HERE.parents[1] / "redis"), str(HERE.parents[3] / "bench")]
import dieseld_support as support  # noqa: E402
from common.users import MALLORY  # noqa: E402, F401
from common.waiting import PATIENCE_S, wait_until  # noqa: E402, F401
import servers  # noqa: E402
from serving import grouped  # noqa: E402

try:
    import numpy  # noqa: F401

    import diesel_loader.numpy as diesel
    from diesel_loader import dataset as served
except ImportError as error:
    print(f"skipped: needs {error.name}")
    sys.exit(77)

SAMPLE = 128 << 10


def digest(data):
    return hashlib.blake2b(data, digest_size=16).digest()


WHY_NOT = "late", "failed", "refused"


def had_no_answer(status):
    return any(status["cluster"][why] for why in WHY_NOT)


def make_dataset(folder, n_samples, *options, less=0):
    """Makes samples of SAMPLE bytes, about 32 per chunk, each `less` bytes shorter than the last, seven lengths in all.
    Returns the path, and how often each content occurs."""
    rng, want = random.Random(7), collections.Counter()
    for i in range(n_samples):
        (folder / "src" / f"class{i % 4}").mkdir(parents=True, exist_ok=True)
        data = i.to_bytes(8, "little") + rng.randbytes(SAMPLE - 8 - less * (i % 7))
        (folder / "src" / f"class{i % 4}" / f"{i:05d}.bin").write_bytes(data)
        want[digest(data)] += 1
    path = folder / "data.diesel"
    subprocess.run([support.CTL, "pack", folder / "src", path, "--chunk-size", "4M", *options], check=True, stdout=subprocess.DEVNULL)
    return path, want


class Node:
    def __init__(self, redis, name, *options, cache="160M", **more):
        self.name = name
        self.daemon = support.Daemon("--cluster", redis, "--cluster-listen", "127.0.0.1:0", "--cluster-name", name, "--tune", "off", "--prefetch", "2",
                                     *options, cache=cache, **more)

    @property
    def socket(self):
        return self.daemon.socket

    def status(self):
        return self.daemon.status()

    def reads(self):
        return self.status()["cache"]["reads"]

    def was_unreachable(self):
        return " is unreachable" in self.daemon.output()

    def is_disturbed(self):
        """Returns whether another node was late, as on a busy machine: then its chunks are read from storage."""
        return had_no_answer(self.status()) or self.was_unreachable()

    def loader(self, path, rank, world, **options):
        dataset = served.Dataset(str(path), socket=self.socket)
        return diesel.DataLoader(dataset, **grouped({"batch_size": 16, "shuffle": True, "seed": 5, "rank": rank, "world_size": world,
                                             "cluster": "job", "window_chunks": 2, **options}))


def read_all(loaders, in_step=True):
    """Runs one epoch of all loaders at once, step by step like ranks that train together. Returns the samples of each."""
    had, wrong = [collections.Counter() for _ in loaders], []
    barrier = threading.Barrier(len(loaders))

    def run(i):
        try:
            for data, _ in loaders[i]:
                had[i].update(digest(item) for item in data)
                if in_step:
                    barrier.wait(PATIENCE_S)
        except BaseException as error:  # noqa: BLE001: it is the test's
            barrier.abort()
            wrong.append(error)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(loaders))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if wrong:
        raise wrong[0]
    return had


class Case(unittest.TestCase):
    n_samples, options, less = 1280, (), 0

    @classmethod
    def setUpClass(cls):
        support.require(os.path.join(support.BIN, "dieseld"))
        os.environ["LOCAL_WORLD_SIZE"] = "1"  # like torchrun with a rank per node
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.path, cls.want = make_dataset(cls.folder, cls.n_samples, *cls.options, less=cls.less)
        cls.n_chunks = len(support.chunk_files(cls.path))
        cls.redis = servers.Server(cls.folder)
        cls.addClassCleanup(lambda: cls.redis.stop())  # stops the server that runs then

    def nodes(self, n, *options, **more):
        made = [Node(self.redis.url(""), f"node-{self.id().rsplit('.', 1)[1][5:25]}-{i}", *options, **more) for i in range(n)]
        for node in made:
            self.addCleanup(node.daemon.log.close)
            self.addCleanup(node.daemon.stop)
        return made

    def loaders(self, nodes, **options):
        made = [node.loader(self.path, i, len(nodes), **options) for i, node in enumerate(nodes)]
        for loader in made:
            self.addCleanup(loader.close)
        return made

    def check(self, had, times=1):
        """Checks that every sample came this many times, with its bytes, over all loaders."""
        got = sum(had, collections.Counter())
        self.assertEqual(got, collections.Counter({data: n * times for data, n in self.want.items()}))

    def check_reads(self, nodes, n, *about, at_most=False):
        """Asserts that n chunks were read in all. On a busy machine, a chunk whose answer came too late may be read twice. at_most: at most
        n, and a tenth more for chunks that were evicted before a node a step behind requested them."""
        reads = sum(node.reads() for node in nodes)
        twice = sum(sum(node.status()["cluster"][why] for why in WHY_NOT) for node in nodes)
        if reads > n and any(node.was_unreachable() for node in nodes):
            print(f"nodes were unreachable: {reads} chunks were read, not {n}")
        elif at_most:
            self.assertLessEqual(reads, n + twice + n // 10, about)
        else:
            self.assertLessEqual(reads, n + twice, about)
            self.assertGreaterEqual(reads, n, about)
