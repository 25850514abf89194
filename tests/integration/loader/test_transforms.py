# SPDX-License-Identifier: Apache-2.0
"""Tests diesel_loader.transforms: batches of NumPy's arrays and of torch's tensors that dieseld decodes, without torchvision."""
import importlib.util
import io
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from loader_support import Daemon, diesel, grouped, numpy, pack
from PIL import Image, ImageEnhance

import diesel_loader
from diesel_loader import transforms as t

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
N = 24

# A job whose Python has neither torch nor its companions.
JOB = """
import sys
for name in ("torch", "torchvision", "PIL"):
    sys.modules[name] = None
from diesel_loader import transforms
from diesel_loader.numpy import DataLoader, Decode
transform = transforms.Compose([transforms.RandomResizedCrop((30, 40)), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
                                transforms.Normalize((.5, .5, .5), (.25, .25, .25))])
loader = DataLoader(sys.argv[1], 8, shuffle=True, transform=transform, decode=Decode(native="require"))
batches = list(loader)
assert [(data.shape, str(data.dtype), labels.shape) for data, labels in batches] == [((8, 3, 30, 40), "float32", (8,))] * 3
assert loader.num_workers == 0
"""


def means(data):
    """Runs after dieseld's part, in a worker."""
    return numpy.array([data.mean(), data.shape[0], os.getpid()])


class TransformsCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        rng, source = numpy.random.default_rng(3), cls.folder / "src"
        for i in range(N):
            small = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=numpy.uint8))
            path = source / f"class{i % 2}" / f"{i:02d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            out = io.BytesIO()
            small.resize((90 + i, 70 + i % 5), Image.BICUBIC).save(out, "JPEG", quality=90)
            path.write_bytes(out.getvalue())
        cls.path = str(pack(source, cls.folder / "pictures.diesel"))
        damaged = source / "class0" / "04.jpg"
        damaged.write_bytes(damaged.read_bytes()[:300])
        cls.bad = str(pack(source, cls.folder / "bad.diesel"))
        cls.daemon = cls.enterClassContext(Daemon(cls.folder))

    def loader(self, *steps, path=None, make=diesel.DataLoader, **options):
        options = {"batch_size": 8, "seed": 5, "return_ids": True, **options}
        loader = make(path or self.path, transform=t.Compose(steps), **grouped(options))
        self.addCleanup(loader.close)
        return loader

    def samples(self, loader):
        """Returns {number: sample} of an epoch."""
        return {int(number): sample for samples, _, numbers in loader for sample, number in zip(samples, numbers)}

    def original(self, number):
        return Image.open(io.BytesIO(diesel_loader.Dataset(self.path).read(number))).convert("RGB")


class Arrays(TransformsCase):
    def test_without_torch_or_pillow(self):
        done = subprocess.run([sys.executable, "-c", JOB, self.path], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_values_are_pillows(self):
        wanted = {n: numpy.asarray(self.original(n).resize((60, 50), Image.BICUBIC)) for n in range(N)}
        pixels = [t.Resize((50, 60), "bicubic")]
        unit = {n: (image.astype("float32") / numpy.float32(255)) for n, image in wanted.items()}
        normal = {n: (image - numpy.float32(MEAN)) / numpy.float32(STD) for n, image in unit.items()}
        cases = [(pixels, wanted), ([*pixels, t.ToTensor("uint8")], {n: image.transpose(2, 0, 1) for n, image in wanted.items()}),
                 ([*pixels, t.ToTensor(layout="HWC")], unit),
                 ([*pixels, t.ToDtype("float32")], {n: image.astype("float32") for n, image in wanted.items()}),
                 ([*pixels, t.ToTensor(numpy.float16, layout="HWC")], {n: image.astype("float16") for n, image in unit.items()}),
                 ([*pixels, t.ToTensor(layout="HWC"), t.Normalize(MEAN, STD), t.ToDtype("float16")],
                  {n: image.astype("float16") for n, image in normal.items()})]
        for steps, images in cases:
            with self.subTest(steps=steps):
                got = self.samples(self.loader(*steps))
                self.assertEqual(got.keys(), images.keys())
                for n, image in images.items():
                    self.assertEqual(got[n].dtype, image.dtype)
                    numpy.testing.assert_array_equal(got[n], image)

    def test_colours(self):
        grey = self.samples(self.loader(t.Resize((50, 60), "bicubic"), t.Grayscale(), t.ToTensor("uint8")))
        for n, image in grey.items():
            wanted = self.original(n).resize((60, 50), Image.BICUBIC).convert("L")
            numpy.testing.assert_array_equal(image, numpy.asarray(wanted)[None])
        bright = self.samples(self.loader(t.Resize((50, 60), "bicubic"), t.ColorJitter(brightness=(0.5, 0.5)), t.RandomGrayscale(0)))
        for n, image in bright.items():
            wanted = ImageEnhance.Brightness(self.original(n).resize((60, 50), Image.BICUBIC)).enhance(0.5)
            numpy.testing.assert_array_equal(image, numpy.asarray(wanted))
        some = self.samples(self.loader(t.Resize((50, 60), "bicubic"), t.RandomApply([t.ColorJitter(brightness=(0.5, 0.5))])))
        self.assertTrue(4 <= sum(numpy.array_equal(some[n], bright[n]) for n in some) <= N - 4)

    def test_random_parameters_are_the_samples(self):
        steps = [t.RandomResizedCrop(32), t.RandomHorizontalFlip(), t.RandomVerticalFlip(0.1)]
        first = self.samples(self.loader(*steps, shuffle=True))
        again, second = self.loader(*steps, batch_size=5), self.loader(*steps)
        second.set_epoch(1)
        self.assertTrue(all(numpy.array_equal(image, first[n]) for n, image in self.samples(again).items()))
        self.assertFalse(any(numpy.array_equal(image, first[n]) for n, image in self.samples(second).items()))

    def test_functions_behind_run_in_workers(self):
        for workers in (0, 1):
            loader = self.loader(t.Resize(40), t.CenterCrop((30, 40)), t.ToTensor(), means, num_workers=workers)
            self.assertEqual([step.where for step in loader.plan().steps], ["dieseld"] * 3 + ["Python"])
            for n, (mean, channels, pid) in self.samples(loader).items():
                image = numpy.asarray(self.original(n).resize(
                    (40 * self.original(n).width // self.original(n).height, 40)), dtype=float).mean() / 255
                self.assertAlmostEqual(mean, image, delta=0.1)
                self.assertEqual((channels, pid == os.getpid()), (3, workers == 0))

    def test_bfloat16_needs_its_package(self):
        steps = [t.Resize((8, 8)), t.ToTensor("bfloat16")]
        if importlib.util.find_spec("ml_dtypes"):
            half = self.samples(self.loader(*steps))
            for n, image in self.samples(self.loader(t.Resize((8, 8)), t.ToTensor())).items():
                numpy.testing.assert_array_equal(half[n], image.astype(half[n].dtype))
        else:
            with self.assertRaisesRegex(ValueError, "pip install ml_dtypes"):
                self.loader(*steps)

    def test_damaged_images(self):
        steps = [t.Resize((8, 8))]
        with self.assertRaisesRegex(diesel_loader.DamagedData, "class0/04.jpg"):
            list(self.loader(*steps, path=self.bad))
        for policy, n in (("skip", N - 1), ("zero", N)):
            loader = self.loader(*steps, path=self.bad, damaged=policy)
            with self.assertLogs("diesel_loader", logging.WARNING):
                samples = self.samples(loader)
            self.assertEqual((len(samples), loader.n_damaged), (n, 1))
        self.assertEqual(sum(not image.any() for image in samples.values()), 1)

    def test_mixtures(self):
        mixed = diesel.Mixture([self.loader(t.Resize((8, 8))), self.loader(t.Resize((9, 9)))], weights=[1, 1], stop="once")
        self.assertEqual({data.shape[1:] for data, _, _ in mixed}, {(8, 8, 3), (9, 9, 3)})


class Mistakes(TransformsCase):
    def refused(self, why, *steps, **options):
        with self.assertRaisesRegex(ValueError, why):
            self.loader(*steps, **options)

    def test_parameters(self):
        for why, make in (("size must be", lambda: t.RandomResizedCrop(0)), ("size must be", lambda: t.Resize((8, 8, 8))),
                          ("size must be", lambda: t.CenterCrop(8.5)), ("scale must", lambda: t.RandomResizedCrop(8, scale=(1, 0.5))),
                          ("scale must", lambda: t.RandomResizedCrop(8, scale=0.5)), ("scale must", lambda: t.RandomResizedCrop(8, (0, 0))),
                          ("ratio must", lambda: t.RandomResizedCrop(8, ratio=(0, 1))), ("p must be", lambda: t.RandomHorizontalFlip(1.5)),
                          ("p must be", lambda: t.RandomVerticalFlip(float("nan"))), ("dtype must be", lambda: t.ToTensor("int64")),
                          ("layout must", lambda: t.ToTensor(layout="NCHW")), ("interpolation must", lambda: t.Resize(8, "nearest")),
                          ("mean and std", lambda: t.Normalize([0.5], [0.5] * 3)), ("mean and std", lambda: t.Normalize(MEAN, [1, 1, 0])),
                          ("hue must", lambda: t.ColorJitter(hue=0.6)), ("contrast must", lambda: t.ColorJitter(contrast=-1)),
                          ("num_output_channels", lambda: t.Grayscale(2)), ("p must be", lambda: t.RandomGrayscale(2)),
                          ("Compose takes", lambda: t.Compose([3]))):
            with self.assertRaisesRegex(ValueError, why):
                make()

    def test_what_dieseld_cannot_run(self):
        size = t.Resize((8, 8))
        self.refused(r"Resize\(size=8.*which dieseld needs", t.Resize(8))
        self.refused(r"only dieseld can run RandomHorizontalFlip\(p=0.5\).*only after resizing", t.RandomHorizontalFlip(), size)
        self.refused("follows a transform that runs in Python", size, means, t.ToTensor())
        self.refused("before ToTensor", size, t.ToTensor(), t.ColorJitter(0.5))
        self.refused("ColorJitter at random", size, t.RandomApply([t.RandomHorizontalFlip()]))
        self.refused("crops only after Resize", t.RandomCrop(8))
        self.refused("normalise only float32", size, t.ToTensor("float16"), t.Normalize(MEAN, STD))
        self.refused("larger than the output of Resize", t.Resize(8), t.CenterCrop(9))
        self.refused("native=False", size, native=False)
        self.refused("cannot run the whole", size, means, native="require")
        self.refused("bucket_by_length needs samples as stored", size, bucket_by_length=True)
        self.refused("a Python function loads", size, loader=bytes)
        with self.assertRaisesRegex(TypeError, "only dieseld can run.*cannot be called"):
            size(numpy.zeros((9, 9, 3)))

        class Mine(t.Resize):
            pass
        self.refused("dieseld does not support it", Mine((8, 8)))

    def test_samples_that_are_no_images(self):
        source = self.folder / "text"
        source.mkdir()
        (source / "a.txt").write_bytes(b"text")
        self.refused("the names of some samples are not those of JPEG, PNG or WebP files, such as a.txt", t.Resize((8, 8)), path=str(pack(source, self.folder / "text.diesel")))


@unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
class Tensors(TransformsCase):
    def test_the_same_as_tensors(self):
        import torch

        from diesel_loader.torch import DataLoader, Dataset
        steps = [t.RandomResizedCrop(16), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)]
        arrays = self.samples(self.loader(*steps))
        for n, tensor in self.samples(self.loader(*steps, make=DataLoader, native="require")).items():
            numpy.testing.assert_array_equal(tensor.numpy(), arrays[n])
        for dtype in (torch.bfloat16, "float16"):
            half = self.samples(self.loader(*steps, t.ToDtype(dtype), make=DataLoader))
            self.assertTrue(all(torch.equal(tensor, torch.from_numpy(arrays[n]).to(tensor.dtype)) for n, tensor in half.items()))
            self.assertEqual(half[0].dtype, getattr(torch, str(dtype).replace("torch.", "")))
        with self.assertRaisesRegex(TypeError, r"nor applied by dataset\[i\]"):
            Dataset(self.path, t.Compose(steps))[0]
        with self.assertRaisesRegex(ValueError, "by number"):
            DataLoader(Dataset(self.path, t.Compose(steps)), sampler=torch.utils.data.SubsetRandomSampler([1, 2]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
