# SPDX-License-Identifier: Apache-2.0
"""Tests decoded copies in the cache: the tensors are the same with and without them. Tests also who may use them, and their eviction when
others need the memory."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

LOADER = pathlib.Path(__file__).resolve().parents[1] / "loader"
sys.path.insert(0, str(LOADER))
from test_native import NativeCase, encoded, picture
from common.waiting import wait_until
from torch_support import Daemon, pack, support

import torch

from torchvision_support import v1

BOX = v1.Compose([v1.RandomResizedCrop(64), v1.RandomHorizontalFlip(), v1.ColorJitter(0.4, 0.4), v1.ToTensor()])
MIDDLE = v1.Compose([v1.Resize(140), v1.CenterCrop((96, 128)), v1.RandomGrayscale(0.5), v1.RandomVerticalFlip(), v1.PILToTensor()])
WHOLE = v1.Compose([v1.Resize((90, 70), v1.InterpolationMode.BICUBIC), v1.PILToTensor()])
LARGE = v1.Compose([v1.RandomResizedCrop(300), v1.PILToTensor()])
SMALL = v1.Compose([v1.RandomResizedCrop(24, (0.3, 1)), v1.PILToTensor()])  # decoded at a smaller scale about half of the time

OTHER_USER = """
import json, os, sys
os.setgid(65534); os.setuid(65534)
from common.waiting import wait_until
from diesel_loader.torch import Batches, DataLoader
import test_dieseld_decoded as test_forms
loader = DataLoader(sys.argv[1], transform=test_forms.BOX, batch_size=8, shuffle=True, seed=5, batches=Batches(return_ids=True))
for epoch in range(int(sys.argv[2])):
    for batch in loader:
        pass
print("maps", sum("diesel-decoded" in line for line in open("/proc/self/maps")), flush=True)
sys.stdin.readline()
"""


class Forms(NativeCase):
    """48 pictures with decoded copies of 90 to 340 KB, and knobs that only the test changes."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon.__exit__(None, None, None)
        cls.daemon = Daemon(cls.folder, "--cache", "160M", "--tune", "off", "--metrics", "off", "--workers", "1")
        cls.daemon.__enter__()

    def setUp(self):
        self.set("decoded-cache=auto")

    def ask(self, verb):
        return json.loads(subprocess.run([support.program("dieselctl"), verb, "--json", "--socket", str(self.daemon.socket)],
                                         check=True, capture_output=True, text=True, timeout=60).stdout)

    def set(self, *arguments):
        subprocess.run([support.program("dieselctl"), "set", "all", *arguments, "--socket", str(self.daemon.socket)],
                       check=True, stdout=subprocess.DEVNULL, timeout=60)

    def job(self):
        """Returns the newest job of these tests that decodes: this process has one, and each child its own."""
        return max((job for job in self.ask("jobs")["jobs"] if job["decoding"]), key=lambda job: job["id"])

    def give(self, loader, value):
        """Sets the knob, and waits until it is in force: the tuner applies it once per second."""
        iter(loader)
        self.set(f"decoded-cache={value}")
        wanted = int(value[:-1]) << 20 if value != "0" else 0
        wait_until("the knob's value", lambda: self.job()["knobs"]["decoded-bytes"]["value"] == wanted)

    def epochs(self, loader):
        for epoch in range(3):
            loader.set_epoch(epoch)
            yield self.samples(loader)

    def agree(self, loader, wanted):
        for epoch, got in enumerate(self.epochs(loader)):
            self.assertEqual(got.keys(), wanted[epoch].keys())
            for number, sample in got.items():
                self.assertTrue(torch.equal(sample, wanted[epoch][number]), (epoch, number))

    def fill(self, loader, wanted, n_decoded_copies):
        """Runs epochs until that many samples have a decoded copy: copies that do not fit in one epoch are made in a later one."""
        def filled():
            self.agree(loader, wanted)
            return self.job()["decoding"]["samples_with_decoded_copy"] >= n_decoded_copies

        wait_until("forms", filled)
        return self.job()["decoding"]

    def check_same(self, transform, n_decoded_copies, path=None):
        loader = self.loader(transform, path or self.path, native="require")
        self.give(loader, "0")
        wanted = list(self.epochs(loader))
        self.assertEqual(self.job()["decoding"]["samples_with_decoded_copy"], 0)
        self.give(loader, "60M")
        decoding = self.fill(loader, wanted, n_decoded_copies)
        self.agree(loader, wanted)
        after = self.job()["decoding"]
        self.assertGreaterEqual(after["from_decoded_copies"] - decoding["from_decoded_copies"], n_decoded_copies)
        self.give(loader, "0")
        self.assertEqual(self.job()["decoding"]["samples_with_decoded_copy"], 0)
        self.assertEqual(self.job()["memory"]["decoded_bytes"], 0)
        self.agree(loader, wanted)
        loader.close()
        return decoding["from_decoded_copies"], after["from_decoded_copies"], after["samples"] - decoding["samples"]

    def test_random_boxes_are_the_same_with_decoded_copies(self):
        self.check_same(BOX, 48)

    def test_fixed_transforms_are_the_same_with_decoded_copies(self):
        self.check_same(MIDDLE, 48)
        self.check_same(WHOLE, 48)

    def test_crops_at_a_smaller_scale_are_the_same_with_decoded_copies(self):
        self.check_same(SMALL, 1)

    def test_large_photographs_are_the_same_with_decoded_copies(self):
        """Makes copies at a smaller scale, which serve the crops that are decoded at it, and copies of small images at their own size."""
        folder = self.folder / "large/class0"
        folder.mkdir(parents=True)
        for i in range(24):
            kind, image = i % 6, picture(i, 1100, 900) if i % 6 < 5 else picture(i, 150, 100)
            if kind == 3:
                image = image.convert("L")
            options = {"subsampling": 0 if kind == 1 else 1 if kind == 4 else 2} if kind != 3 else {}
            (folder / f"{i:02d}.jpg").write_bytes(encoded(image, progressive=kind == 2, **options))
        path = str(pack(self.folder / "large", self.folder / "large.diesel", "--jpeg-restarts"))
        # Not every image: only three epochs are requested, repeatedly, and an image of which no crop can use a copy gets none.
        before, after, n = self.check_same(BOX, 16, path)
        # Most crops have a copy, but never all.
        self.assertGreater(after - before, n // 3)
        self.assertLess(after - before, n)

    def test_an_image_without_planes_gets_an_extent_of_its_own(self):
        """The last image's planes would fit after all other copies, but it has no copy, and its pixels take an extent of their own."""
        for i in range(32):
            path = self.folder / f"few/class0/{i:02d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(picture(i, *((590, 590) if i == 31 else (100, 100))), subsampling=0 if i == 31 else 2))
        loader = self.loader(LARGE, str(pack(self.folder / "few", self.folder / "few.diesel")), batch_size=4, shuffle=False)
        wanted = list(self.epochs(loader))
        self.give(loader, "60M")
        self.fill(loader, wanted, 32)

    def test_decoded_copies_stay_within_their_memory(self):
        loader = self.loader(BOX)
        self.give(loader, "0")
        wanted = list(self.epochs(loader))
        self.give(loader, "4M")
        self.agree(loader, wanted)
        job = self.job()
        self.assertGreater(job["decoding"]["samples_with_decoded_copy"], 5)
        self.assertLess(job["decoding"]["samples_with_decoded_copy"], 40)
        self.assertLessEqual(job["memory"]["decoded_bytes"], 4 << 20)
        self.agree(loader, wanted)

    def test_sessions_come_first(self):
        """A session that needs the space gets it, and the other session's samples stay the same."""
        loader = self.loader(BOX)
        wanted = list(self.epochs(loader))
        self.give(loader, "60M")
        self.agree(loader, wanted)
        cache = self.ask("status")["cache"]
        before, space = cache["decoded_bytes"], cache["budget_bytes"] - cache["slot_bytes"] - cache["snapshot_bytes"]
        # Three batches, and a decoder of 16 MiB, which leave space for little more than chunks.
        side = int(((space - (19 << 20)) / 3 / 16 / 3) ** 0.5)
        large = self.loader(v1.Compose([v1.Resize((side, side)), v1.PILToTensor()]), batch_size=16)
        next(iter(large))
        cache = self.ask("status")["cache"]
        self.assertLess(cache["decoded_bytes"], before)
        self.assertLessEqual(sum(cache[kind] for kind in ("decoded_bytes", "segment_bytes", "slot_bytes", "snapshot_bytes")),
                             cache["budget_bytes"])
        self.agree(loader, wanted)
        large.close()

    def test_decoded_copies_stay_for_the_next_session(self):
        loader = self.loader(BOX)
        wanted = list(self.epochs(loader))
        self.give(loader, "60M")
        self.fill(loader, wanted, 48)
        loader.close()
        self.set("decoded-cache=auto")
        other = self.loader(BOX)
        before = self.job()["decoding"]
        self.agree(other, wanted)
        after = self.job()["decoding"]
        self.assertGreater(after["from_decoded_copies"] - before["from_decoded_copies"], 48)
        self.assertLess(after["samples"] - after["from_decoded_copies"] - before["samples"] + before["from_decoded_copies"], 12)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be another user")
    def test_another_user_has_decoded_copies_of_its_own(self):
        loader = self.loader(BOX)
        wanted = list(self.epochs(loader))
        self.give(loader, "30M")
        self.agree(loader, wanted)
        here = str(pathlib.Path(__file__).parent)
        with subprocess.Popen([sys.executable, "-c", OTHER_USER, self.path, "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path]), "PYTHONNOUSERSITE": "1"}) as other:
            self.addCleanup(other.kill)
            # No client of any user maps the copies, and another user's client does not get those of the first user.
            self.assertEqual(other.stdout.readline(), "maps 0\n")
            jobs = sorted(((job["uid"], job) for job in self.ask("jobs")["jobs"] if job["decoding"]), key=lambda pair: pair[0])
            self.assertEqual([uid for uid, _ in jobs], [0, 65534])
            theirs = jobs[1][1]["decoding"]
            self.assertGreaterEqual(theirs["samples"] - theirs["from_decoded_copies"], 48)
            other.communicate("\n", timeout=60)
        self.assertNotIn("diesel-decoded", pathlib.Path("/proc/self/maps").read_text())
        self.agree(loader, wanted)


if __name__ == "__main__":
    unittest.main(verbosity=2)
