# SPDX-License-Identifier: Apache-2.0
"""Samples that one node has decoded are had from there by another one, in later epochs: the same values as without, whatever goes
wrong on the way."""
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "loader"))
from test_native import encoded, picture  # noqa: E402
import nodes  # noqa: E402
from nodes import Case, MALLORY, PATIENCE_S, support, wait_until  # noqa: E402
from faults import talker  # noqa: E402

import torch  # noqa: E402

from diesel_loader import dataset as served  # noqa: E402
from diesel_loader.torch import DataLoader, Dataset  # noqa: E402
from torchvision_support import v1  # noqa: E402

BOX = v1.Compose([v1.RandomResizedCrop(64), v1.RandomHorizontalFlip(), v1.ColorJitter(0.4, 0.4), v1.ToTensor()])
N_EPOCHS = 4
OPTIONS = {"batch_size": 8, "shuffle": True, "seed": 5, "return_ids": True, "native": "require", "window_chunks": 2}

# As another user; arguments: socket, dataset, rank, epochs. One rank of two.
RANK = """
import sys
import test_cluster_forms as t
loader = t.DataLoader(t.Dataset(sys.argv[2], socket=sys.argv[1]), transform=t.BOX, rank=int(sys.argv[3]), world_size=2, cluster="job", **t.OPTIONS)
for epoch in range(int(sys.argv[4])):
    loader.set_epoch(epoch)
    print(sum(len(samples) for samples, _, _ in loader))
"""


def laden(image):
    """The same image in a larger file, so that few fill a chunk."""
    return image[:2] + 8 * (b"\xff\xef\xff\xff" + bytes(65533)) + image[2:]


def make_pictures(folder):
    for i in range(96):
        path = folder / f"class{i % 4}" / f"{i:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(laden(encoded(picture(i, 200 + 37 * (i % 7), 150 + 29 * (i % 5)), quality=90)))


class Forms(Case):
    @classmethod
    def setUpClass(cls):
        support.require(os.path.join(support.BIN, "dieseld"))
        os.environ["LOCAL_WORLD_SIZE"] = "1"
        cls.folder = pathlib.Path(cls.enterClassContext(nodes.tempfile.TemporaryDirectory()))
        os.chmod(cls.folder, 0o755)
        make_pictures(cls.folder / "src")
        cls.path = cls.folder / "data.diesel"
        subprocess.run([support.CTL, "pack", cls.folder / "src", cls.path, "--chunk-size", "4M"], check=True, stdout=subprocess.DEVNULL)
        cls.redis = nodes.servers.Server(cls.folder)
        cls.addClassCleanup(lambda: cls.redis.stop())
        alone = support.Daemon("--tune", "off", "--forms", "0")
        cls.addClassCleanup(alone.stop)
        loaders = [cls.make(alone.socket, rank, cluster="") for rank in range(2)]
        cls.wanted = [[cls.epoch(loader, epoch) for epoch in range(N_EPOCHS)] for loader in loaders]
        for loader in loaders:
            loader.close()

    @classmethod
    def make(cls, socket, rank, **options):
        dataset = Dataset(str(cls.path), socket=socket)
        return DataLoader(dataset, transform=BOX, rank=rank, world_size=2, **{**OPTIONS, "cluster": "job", **options})

    @staticmethod
    def epoch(loader, epoch):
        loader.set_epoch(epoch)
        return {number: sample for samples, _, numbers in loader for sample, number in zip(samples, numbers.tolist())}

    def two(self, *options, forms="100M", when="always"):
        return self.nodes(2, "--forms", forms, "--cluster-forms", when, *options)

    def ranks(self, two):
        made = [self.make(node.socket, rank) for rank, node in enumerate(two)]
        for loader in made:
            self.addCleanup(loader.close)
        return made

    def read(self, loaders, epoch, compare=(0, 1)):
        """An epoch of both ranks at once; each value is what one node makes alone."""
        got, wrong = [None, None], []

        def run(rank):
            try:
                got[rank] = self.epoch(loaders[rank], epoch)
            except BaseException as error:  # noqa: BLE001: it is the test's
                wrong.append(error)
        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if wrong:
            raise wrong[0]
        for rank in compare:
            wanted = self.wanted[rank][epoch]
            self.assertEqual(got[rank].keys(), wanted.keys())
            for number, sample in got[rank].items():
                self.assertTrue(torch.equal(sample, wanted[number]), (rank, epoch, number))

    def forms(self, node):
        return node.status()["cluster"]["forms"]

    def read_until_both_have_some(self, two, loaders, n=5):
        """The same epochs again and again: forms are kept from when the knob is in force, a second after the job's begin at most."""
        epochs = itertools.cycle(range(N_EPOCHS))

        def read():
            self.read(loaders, next(epochs))
            return all(self.forms(node)["in"] >= n for node in two)
        wait_until("forms to come to both nodes", read)

    def test_they_come_from_where_they_were_made(self):
        two = self.two()
        self.read_until_both_have_some(two, self.ranks(two))
        figures = [self.forms(node) for node in two]
        for one, other in (figures, figures[::-1]):
            self.assertGreater(one["in_bytes"] / one["in"], 50000)
            self.assertGreater(other["out"], 0)  # it reads ahead, between the two looks, too
            self.assertEqual(one["spoilt"], 0)

    def test_the_model_decides_and_says_why(self):
        """Which way it goes is the machine's affair."""
        two = self.two(when="auto")
        loaders = self.ranks(two)
        for epoch in range(N_EPOCHS):
            self.read(loaders, epoch)
        for node in two:
            def ask(*arguments, node=node):
                return subprocess.run([support.CTL, *arguments, "--socket", node.socket], check=True, capture_output=True, text=True).stdout
            decoded = json.loads(ask("jobs", "--json"))["jobs"][0]["nodes"]["decoded"]
            self.assertIn(decoded["reason"], ("unknown", "link", "cpu", "not-there"))
            self.assertIn(type(decoded["decode_s"]), (float, type(None)))
            self.assertIn("decoded samples: ", ask("why"))
            self.assertIn("decoded samples: ", ask("status"))

    def test_nothing_travels_unless_it_is_said(self):
        two = self.nodes(2, "--forms", "100M")
        loaders = self.ranks(two)
        for epoch in range(2):
            self.read(loaders, epoch)
        self.assertEqual([self.forms(node) for node in two], [None, None])

    def test_of_two_nodes_that_do_not_agree_none_waits(self):
        two = self.nodes(1, "--forms", "100M", "--cluster-forms", "always")
        two.append(nodes.Node(self.redis.url(""), "node-that-gives-none", "--forms", "100M"))
        self.addCleanup(two[1].daemon.stop)
        loaders = self.ranks(two)
        for epoch in range(N_EPOCHS):
            self.read(loaders, epoch)
        figures = self.forms(two[0])
        self.assertEqual((figures["in"], figures["out"], figures["late"]), (0, 0, 0))

    def test_where_memory_is_short_each_keeps_those_of_its_chunks(self):
        two = self.two(forms="8M")  # all would take some 9 MB
        self.read_until_both_have_some(two, self.ranks(two))
        for node in two:
            wait_until("its memory", lambda node=node: node.status()["cache"]["form_bytes"] <= 8 << 20)

    def test_what_is_spoilt_in_the_owners_memory_is_decoded(self):
        """Of all forms at node 0, each some bytes are changed."""
        if os.getuid() != 0:
            self.skipTest("takes root")
        two = self.two()
        loaders = self.ranks(two)
        self.read_until_both_have_some(two, loaders)
        pid = two[0].status()["pid"]
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
                found = re.match(r"(\w+)-(\w+) rw.*memfd:diesel-forms", line)
                for at in range(int(found[1], 16) + 1000, int(found[2], 16), 4096) if found else ():
                    memory.seek(at)
                    memory.write(b"spoilt" * 150)
        for epoch in range(N_EPOCHS):  # asks pause when one was wrong
            self.read(loaders, epoch, compare=(1,))
        self.assertGreater(self.forms(two[1])["spoilt"], 0)
        self.assertIn("not what was decoded", two[1].daemon.output())

    def test_a_node_that_is_gone_or_stops_in_the_middle(self):
        two = self.two()
        loaders = self.ranks(two)
        self.read_until_both_have_some(two, loaders)
        for number, epoch in ((signal.SIGSTOP, 2), (signal.SIGKILL, 3)):
            pid = wait_until("its process", lambda: talker(two[0].status()["pid"]))
            os.kill(pid, number)
            got = self.epoch(loaders[1], epoch)
            if number == signal.SIGSTOP:
                os.kill(pid, signal.SIGCONT)
            self.assertEqual(got.keys(), self.wanted[1][epoch].keys())
            for at, sample in got.items():
                self.assertTrue(torch.equal(sample, self.wanted[1][epoch][at]), (number, at))

    def test_another_user_gets_none(self):
        """His job has the same name, dataset and recipe, on the other node."""
        if os.getuid() != 0:
            self.skipTest("takes root")
        for path in (self.path, *self.path.rglob("*")):
            os.chmod(path, 0o755 if path.is_dir() else 0o644)
        two = self.two()
        mine = self.make(two[0].socket, 0)
        self.addCleanup(mine.close)
        run = subprocess.Popen([sys.executable, "-c", RANK, two[1].socket, self.path, "1", "3"], user=MALLORY, group=MALLORY,
                               stdout=subprocess.PIPE, text=True, cwd=pathlib.Path(__file__).parent, env={**os.environ, "HOME": "/"})
        self.addCleanup(run.kill)
        for epoch in range(3):
            self.epoch(mine, epoch)
        self.assertEqual(run.communicate(timeout=PATIENCE_S)[0].split(), [str(len(self.wanted[1][0]))] * 3)
        for node in two:
            figures = self.forms(node)
            self.assertEqual((figures["in"], figures["out"]), (0, 0))


if __name__ == "__main__":
    unittest.main(verbosity=2)
