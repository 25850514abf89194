# SPDX-License-Identifier: Apache-2.0
"""Tests samples with fields of which dieseld decodes one: images with captions, as for CLIP, of a dataset with fields and of tar shards in
place. A dataset without fields has the same images."""
import gc
import io
import json
import pathlib
import random
import signal
import sys
import tarfile
import tempfile
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "loader"), str(pathlib.Path(__file__).resolve().parents[1])]
from fields_support import Daemon, FieldsCase, ctl, set_layout, write  # noqa: E402

import torch_support  # noqa: E402, F401

import numpy  # noqa: E402
from PIL import Image  # noqa: E402

import diesel_loader  # noqa: E402
import diesel_loader.numpy as of_numpy  # noqa: E402
import diesel_loader.torch as of_torch  # noqa: E402
from diesel_loader import transforms  # noqa: E402
from diesel_loader.errors import DamagedData  # noqa: E402
from diesel_loader.options import Batches, Decode, Order  # noqa: E402

from common.waiting import wait_until  # noqa: E402
from standin_cuda import StandInCuda  # noqa: E402
from torchvision_support import v1  # noqa: E402

N, BATCH, SEED = 24, 5, 7
OURS = transforms.Compose([transforms.RandomResizedCrop(32), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
THEIRS = v1.Compose([v1.RandomResizedCrop(32), v1.ToTensor()])


def picture(k):
    rng = numpy.random.default_rng(k)
    small = rng.integers(0, 255, (8, 9, 3), dtype=numpy.uint8)
    file = io.BytesIO()
    Image.fromarray(small).resize((120 + 7 * (k % 5), 90 + 5 * (k % 3)), Image.BICUBIC).save(file, ("JPEG", "PNG", "WEBP")[k % 3])
    return file.getvalue()


def caption(k):
    return f"picture {k}"


def write_tar(path, samples):
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for key, fields in samples:
            for name, data in fields.items():
                info = tarfile.TarInfo(f"{key}.{name}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))


def doubled(image):
    return image * 2


def size(image):
    return image.size


def length(text):
    return len(text)


class Case(FieldsCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for k in range(N):
            path = cls.folder / f"tree/class{k % 2}/{k:03d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture(k))
        done = ctl("pack", cls.folder / "tree", cls.folder / "plain.diesel")
        assert done.returncode == 0, done.stderr
        cls.plain = diesel_loader.Dataset(cls.folder / "plain.diesel")
        cls.numbers = [int(pathlib.Path(cls.plain.sample_path(n)).stem) for n in range(N)]  # the image of each sample
        cls.of_fields = cls.folder / "pairs.diesel"
        with diesel_loader.create(cls.of_fields) as w:
            for n, k in enumerate(cls.numbers):
                w.put(f"class{k % 2}/{n:03d}", {"caption": caption(k), "k": k, "image": picture(k), "mask": numpy.full((4, 4), k, "uint8")})
        write_tar(cls.folder / "shards/a.tar", [(f"{n:03d}", {"json": b"{}", "jpg": picture(k), "txt": caption(k).encode()})
                                                for n, k in enumerate(cls.numbers)])
        cls.of_tars = cls.folder / "over.diesel"
        done = ctl("index", cls.folder / "shards", "--output", cls.of_tars)
        assert done.returncode == 0, done.stderr

    def loader(self, module, path, transform, *fields, **options):
        made = module.DataLoader(diesel_loader.Dataset(path, fields=fields or None), BATCH, shuffle=True, seed=SEED, transform=transform,
                                 **{"batches": Batches(return_ids=True), **options})
        self.addCleanup(made.close)
        return made

    def images(self, batches, name):
        """Returns the image of each sample, by the number of the sample."""
        return {int(n): numpy.asarray(image) for batch in batches for n, image in zip(batch["__id__"], batch[name])}

    def wanted(self, module, transform, epochs, **options):
        loader = self.loader(module, self.plain.path, transform, **options)
        return [{int(n): numpy.asarray(image) for images, _, numbers in loader for n, image in zip(numbers, images)} for _ in range(epochs)]

    def equal(self, got, wanted):
        self.assertEqual(sorted(got), sorted(wanted))
        for n, image in wanted.items():
            self.assertEqual((got[n].dtype, got[n].shape), (image.dtype, image.shape))
            numpy.testing.assert_array_equal(got[n], image)


class SameAsPlain(Case):
    def test_images_are_bit_equal_to_those_without_fields_and_captions_come_along(self):
        for module, transform in (of_torch, OURS), (of_torch, THEIRS), (of_numpy, OURS):
            wanted = self.wanted(module, transform, 2, decode=Decode(native="require"))
            for path, image, text in (self.of_fields, "image", "caption"), (self.of_tars, "jpg", "txt"):
                for fields in (), (image,), (text, "__label__", image):
                    loader = self.loader(module, path, {image: transform}, *fields, decode=Decode(native="require"))
                    for epoch in range(2):
                        batches = list(loader)
                        self.equal(self.images(batches, image), wanted[epoch])
                        for batch in batches:
                            ks = [self.numbers[n] for n in batch["__id__"].tolist()]
                            self.assertEqual(batch.get(text), [caption(k) for k in ks] if len(fields) != 1 else None)
                            self.assertEqual(list(batch), [*(fields or loader.dataset.fields), "__id__"])
                            if not fields and path is self.of_fields:
                                self.assertEqual((batch["k"].tolist(), batch["mask"][:, 0, 0].tolist()), (ks, ks))
                            if "__label__" in fields and path is self.of_fields:
                                self.assertEqual(batch["__label__"].tolist(), [k % 2 for k in ks])

    def test_an_array_is_converted_in_dieseld_and_the_image_in_python(self):
        for module in of_torch, of_numpy:
            loader = self.loader(module, self.of_fields, {"image": size, "mask": transforms.Compose([transforms.FromNumpy(), transforms.ToDtype("float32")])},
                                 "image", "mask", num_workers=0)
            for batch in loader:
                self.assertEqual(batch["image"], [Image.open(io.BytesIO(picture(self.numbers[n]))).size for n in batch["__id__"].tolist()])
                wanted = numpy.array([numpy.full((4, 4), self.numbers[n], "float32") for n in batch["__id__"].tolist()])
                numpy.testing.assert_array_equal(numpy.asarray(batch["mask"]), wanted)

    def test_python_finishes_what_dieseld_began_in_workers_and_in_the_trainer(self):
        wanted = self.wanted(of_torch, OURS, 1)[0]
        for workers in 0, 2:
            for path, image, text in (self.of_fields, "image", "caption"), (self.of_tars, "jpg", "txt"):
                loader = self.loader(of_torch, path, {text: length, image: transforms.Compose([OURS, doubled])}, num_workers=workers)
                batches = list(loader)
                self.equal(self.images(batches, image), {n: 2 * one for n, one in wanted.items()})
                for batch in batches:
                    self.assertEqual(batch[text].tolist(), [len(caption(self.numbers[n])) for n in batch["__id__"].tolist()])

    def test_decoded_copies_are_of_one_field_and_change_no_image(self):
        path = write(self.folder / "two.diesel", N, lambda k: {"a": picture(k), "b": picture(k + 1)})
        centre = transforms.Compose([transforms.Resize(40), transforms.CenterCrop(32), transforms.ToTensor()])
        plain = {name: self.images(self.loader(of_numpy, path, {name: centre}), name) for name in "ab"}
        self.assertFalse(numpy.array_equal(plain["a"][0], plain["b"][0]))
        self.assertEqual(ctl("set", "all", "decoded-cache=64M").returncode, 0)
        self.addCleanup(ctl, "set", "all", "decoded-cache=auto")

        def from_copies():
            return max(job["decoding"]["from_decoded_copies"] for job in json.loads(ctl("jobs", "--json").stdout)["jobs"] if job["decoding"])

        for name in "a", "b":
            loader, before = self.loader(of_numpy, path, {name: centre}), from_copies()

            def filled():
                self.equal(self.images(loader, name), plain[name])
                return from_copies() >= before + 2 * N
            wait_until("decoded copies", filled)

    def test_jobs_with_the_same_batches_decode_for_themselves(self):
        loaders = [self.loader(of_numpy, self.of_fields, {"image": OURS}, job=of_numpy.Job(group="pairs")) for _ in range(2)]
        together = [list(zip(*loaders)) for _ in range(2)]
        for batches in together:
            for one, other in batches:
                numpy.testing.assert_array_equal(one["image"], other["image"])
                self.assertEqual(one["caption"], other["caption"])

    def test_a_device_gets_the_images_and_the_trainer_the_captions(self):
        wanted = self.wanted(of_torch, OURS, 1)[0]
        with StandInCuda().installed() as standin:
            loader = self.loader(of_torch, self.of_fields, {"image": OURS}, "image", "caption", batches=Batches(return_ids=True, device="cuda"))
            batches = list(loader)
            standin.synchronize()
            self.equal(self.images(batches, "image"), wanted)
            self.assertEqual({text for batch in batches for text in batch["caption"]}, {caption(k) for k in range(N)})
            del batches
            loader.close()
            gc.collect()
            self.assertEqual((standin.faults, standin.registered), ([], {}))

    def test_a_job_resumes_and_keeps_its_batches(self):
        wanted = self.wanted(of_numpy, OURS, 1)[0]
        loader = self.loader(of_numpy, self.of_tars, {"jpg": OURS})
        iterator, kept = iter(loader), []
        kept = [next(iterator) for _ in range(2)]
        state = json.loads(json.dumps(loader.state_dict()))
        resumed = self.loader(of_numpy, self.of_tars, {"jpg": OURS}, "jpg", "txt")
        resumed.load_state_dict(state)
        self.equal(self.images([*kept, *resumed], "jpg"), wanted)

    def test_a_restarted_daemon_goes_on_with_the_field(self):
        wanted = self.wanted(of_numpy, OURS, 1)[0]
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        with Daemon(folder, "--metrics", "off") as daemon:
            iterator = iter(self.loader(of_numpy, self.of_fields, {"image": OURS}))
            batches = [next(iterator)]
            daemon.process.send_signal(signal.SIGKILL)
            daemon.process.wait()
            with Daemon(folder, "--metrics", "off"):
                batches += list(iterator)
        self.equal(self.images(batches, "image"), wanted)


class Damaged(Case):
    def test_a_sample_without_the_field_or_with_a_damaged_image_is_named(self):
        bad = {0: {"caption": "first"}, 3: {"caption": "none"}, 5: {"caption": "cut", "image": picture(0)[:200]}}
        path = write(self.folder / "bad.diesel", 12, lambda k: bad.get(k, {"caption": caption(k), "image": picture(k)}))
        write_tar(self.folder / "bad/a.tar", [(f"{k:03d}", {"jpg" if "image" in one else "png": one.get("image", b""), "txt": one["caption"].encode()})
                                              for k in range(12) for one in [bad.get(k, {"caption": caption(k), "image": picture(k)})]])
        over = self.folder / "bad_over.diesel"
        self.assertEqual(ctl("index", self.folder / "bad", "--output", over).returncode, 0)
        for where, image, text, there in (path, "image", "caption", "caption"), (over, "jpg", "txt", "png, txt"):
            for k, why in (3, f"it has no field '{image}', but {there}"), (5, "JPEG image is truncated"):
                with self.assertRaisesRegex(DamagedData, f"{where}: .*{k:03d}: {why}"):
                    subset = diesel_loader.Dataset(where).select([1, k])
                    list(of_numpy.DataLoader(subset, 2, transform={image: OURS}))
            loader = self.loader(of_numpy, where, {image: OURS}, decode=Decode(damaged="skip"))
            with self.assertLogs("diesel_loader", "WARNING") as logged:
                batches = list(loader)
            self.assertEqual((loader.n_damaged, sum("is left out" in line for line in logged.output)), (3, 3))
            found = {int(n): one for batch in batches for n, one in zip(batch["__id__"], batch[text])}
            self.assertEqual(sorted(found), [k for k in range(12) if k not in bad])
            self.assertEqual(found[4], caption(4))

    def test_a_sample_that_holds_no_fields_is_named(self):
        good, tree = diesel_loader.Dataset(self.of_fields).read(0), self.folder / "garbage"
        rng = random.Random(1)
        tree.mkdir()
        for k in range(30):
            (tree / f"{k:03d}").write_bytes(good if k == 0 else good[:rng.randrange(len(good))] if k % 2 else rng.randbytes(500))
        self.assertEqual(ctl("pack", "--order", "source", tree, self.folder / "garbage.diesel").returncode, 0)
        path = set_layout(self.folder / "garbage.diesel", "fields")
        loader = of_numpy.DataLoader(path, 10, transform={"image": OURS}, decode=Decode(damaged="skip"))
        with self.assertLogs("diesel_loader", "WARNING"):
            self.assertEqual([len(batch["image"]) for batch in loader], [1])
        with self.assertRaisesRegex(DamagedData, f"{path}: 001: its fields are damaged"):
            next(iter(of_numpy.DataLoader(path, 10, transform={"image": OURS})))

    def test_what_dieseld_cannot_run_is_refused_with_the_reason(self):
        path = self.of_fields
        for options, transform, text in (
                ({}, OURS, "samples have fields: give transform={FIELD: ...}"),
                ({}, {"picture": OURS}, "the first sample, class./000, has no field 'picture', but caption, image, k, mask"),
                ({}, {"caption": OURS}, "is no JPEG, PNG or WebP image"),
                ({}, {"image": OURS, "mask": OURS}, "decodes one field of a sample, here 'image'"),
                ({"decode": Decode(damaged="zero")}, {"image": OURS}, 'damaged="skip"'),
                ({"decode": Decode(damaged="skip")}, {"caption": length}, "has none"),
                ({"decode": Decode(damaged="skip")}, None, "has none:\nit has no transform="),
                ({"decode": Decode(native="require")}, {"image": transforms.Compose([OURS, doubled])}, 'native="require"'),
                ({"decode": Decode(native=False)}, {"image": OURS}, "native=False"),
                ({"order": Order(bucket_by_length=2)}, {"image": OURS}, "bucket_by_length"),
                ({"decode": Decode(loader=of_torch.pil_loader), "sampler": [0]}, {"image": OURS}, "by number")):
            with self.assertRaisesRegex(ValueError, text):
                of_torch.DataLoader(path, BATCH, **{"shuffle": None if "sampler" in options else True, **options}, transform=transform)

    def test_the_plan_says_where_each_field_is_made(self):
        text = str(self.loader(of_torch, self.of_fields, {"caption": length, "image": THEIRS}).plan())
        self.assertRegex(text, r"(?m)^Python +<function length.*field 'caption'")
        self.assertRegex(text, r"(?m)^dieseld +RandomResizedCrop.*field 'image'")


if __name__ == "__main__":
    unittest.main()
