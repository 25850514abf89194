# SPDX-License-Identifier: Apache-2.0
"""Tests samples that are .npy files or bare numbers: batches of NumPy's arrays and of torch's tensors, compared with NumPy's results."""
import importlib.util
import itertools
import logging
import pathlib
import tempfile
import unittest

from loader_support import Daemon, diesel, grouped, numpy, pack

import diesel_loader
from diesel_loader import transforms as t

f32 = numpy.float32
N = 6
INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", "float32", "float64"]


def numbers(rng, dtype, shape):
    """Returns numbers of the whole range, with special values."""
    dtype = numpy.dtype(dtype)
    if dtype.kind in "iu":
        info = numpy.iinfo(dtype)
        array = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        special = [info.min, info.max]
    elif dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    else:
        with numpy.errstate(over="ignore"):
            array = (rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 6, shape)).astype(dtype)
            special = numpy.array([0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 65519, 65520, 6e-8, 1e-8, 2e-5, 3e38]).astype(dtype)
    array.reshape(-1)[:len(special)] = special
    return array


class ArraysCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.daemon = cls.enterClassContext(Daemon(cls.folder))
        cls.rng, cls.paths = numpy.random.default_rng(7), itertools.count()

    def dataset(self, arrays, save=numpy.save):
        """Returns the dataset's path. Samples have the numbers of the arrays."""
        folder = self.folder / f"set{next(self.paths)}"
        folder.mkdir()
        for i, array in enumerate(arrays):
            with open(folder / f"{i:03d}.npy", "wb") as out:
                save(out, array)
        return str(pack(folder, folder.with_suffix(".diesel"), "--order", "source"))

    def raw(self, arrays):
        return self.dataset(arrays, lambda out, array: out.write(array.tobytes()))

    def loader(self, path, *steps, make=diesel.DataLoader, **options):
        loader = make(path, transform=t.Compose(steps), **grouped({"batch_size": 4, "seed": 5, "return_ids": True, **options}))
        self.addCleanup(loader.close)
        return loader

    def samples(self, path, *steps, **options):
        return {int(n): sample for samples, _, ids in self.loader(path, *steps, **options) for sample, n in zip(samples, ids)}

    def agree(self, got, wanted):
        """Compares sample by sample, bit for bit except NaNs."""
        self.assertEqual(len(got), len(wanted))
        for n, array in enumerate(wanted):
            self.assertEqual((got[n].dtype, got[n].shape), (array.dtype, array.shape))
            numpy.testing.assert_array_equal(got[n], array)
            if array.dtype.kind == "f":
                numpy.testing.assert_array_equal(numpy.signbit(got[n][array == 0]), numpy.signbit(array[array == 0]))


class Values(ArraysCase):
    def test_as_they_are_stored(self):
        for dtype, save in zip(["?", *INTEGERS, *FLOATS, ">i2", ">u4", ">f8", ">f2"], itertools.cycle([
                numpy.save, lambda out, a: numpy.lib.format.write_array(out, a, (2, 0)),
                lambda out, a: numpy.save(out, numpy.asfortranarray(a)), lambda out, a: numpy.lib.format.write_array(out, a, (3, 0))])):
            with self.subTest(dtype=dtype):
                arrays = [numbers(self.rng, numpy.dtype(dtype).newbyteorder("="), (3, 5, 7)).astype(dtype) for _ in range(N)]
                got = self.samples(self.dataset(arrays, save), t.FromNumpy())
                self.agree(got, [array.astype(array.dtype.newbyteorder("=")) for array in arrays])

    def test_other_numbers(self):
        for dtype in ["bool", *INTEGERS, *FLOATS]:
            arrays = [numbers(self.rng, dtype, (37, 61)) for _ in range(N)]
            path = self.raw(arrays)
            first = t.FromBytes(dtype, (37, 61))
            with self.subTest(dtype=dtype), numpy.errstate(all="ignore"):
                single = [array.astype(f32) for array in arrays]
                self.agree(self.samples(path, first, t.ToDtype("float32")), single)
                self.agree(self.samples(path, first, t.ToDtype("float16")), [array.astype("float16") for array in single])
                if dtype in INTEGERS:
                    unit = [array / f32(numpy.iinfo(dtype).max) for array in single]
                    self.agree(self.samples(path, first, t.ToDtype("float32", scale=True)), unit)
                    self.agree(self.samples(path, first, t.ToDtype("uint8")), [array.astype("uint8") for array in arrays])
                    self.agree(self.samples(path, first, t.ToDtype("float32", scale=True), t.Normalize([.25], [.75]), t.ToDtype("float16")),
                               [((array - f32(.25)) / f32(.75)).astype("float16") for array in unit])

    def test_images(self):
        for layout, order in (("HWC", "C"), ("HWC", "F"), ("CHW", "C")):
            arrays = [numbers(self.rng, "uint8", (20, 30, 5)) for _ in range(N)]
            stored = arrays if layout == "HWC" else [array.transpose(2, 0, 1) for array in arrays]
            path = self.dataset([numpy.asarray(array, order=order) for array in stored])
            mean, std = f32([.1, .2, .3, .4, .5]), f32([.5, .4, .3, .2, .1])
            wanted = [(array / f32(255) - mean) / std for array in arrays]
            with self.subTest(layout=layout, order=order):
                first, unit, normal = t.FromNumpy(layout), t.ToTensor(layout="HWC"), t.Normalize(mean, std)
                self.agree(self.samples(path, first, unit, normal), wanted)
                self.agree(self.samples(path, first, t.ToTensor(), normal), [array.transpose(2, 0, 1) for array in wanted])
                self.agree(self.samples(path, first, t.CenterCrop((7, 8)), t.RandomVerticalFlip(1), unit, normal),
                           [array[6:13, 11:19][::-1] for array in wanted])
                self.agree(self.samples(path, first, t.RandomHorizontalFlip(1), t.ToTensor("uint8", layout="HWC")),
                           [array[:, ::-1] for array in arrays])

    def test_random_crops_are_the_samples(self):
        arrays = [numpy.arange(h * w, dtype="int32").reshape(h, w) + 1000 * i for i, (h, w) in enumerate(
            [(9, 9), (12, 10), (20, 31), (9, 30)] * 3)]
        path = self.dataset(arrays)
        steps = [t.FromNumpy("HW"), t.RandomCrop((8, 9)), t.RandomHorizontalFlip()]
        first, places = self.samples(path, *steps, shuffle=True), set()
        for n, crop in first.items():
            whole, begin = arrays[n], min(crop[0, 0], crop[0, -1]) - 1000 * n
            row, column = divmod(begin, whole.shape[1])
            piece = whole[row:row + 8, column:column + 9]
            self.assertTrue(numpy.array_equal(crop, piece) or numpy.array_equal(crop, piece[:, ::-1]), n)
            places.add((row, column, crop[0, 0] > crop[0, 1]))
        self.assertGreater(len(places), 5)
        for n, crop in self.samples(path, *steps, batch_size=5).items():
            numpy.testing.assert_array_equal(crop, first[n])

    def test_single_numbers_and_what_is_behind(self):
        path = self.raw([numpy.int64(i) for i in range(N)])
        self.assertEqual([int(v) for v in self.samples(path, t.FromBytes("int64", ())).values()], list(range(N)))
        loader = self.loader(path, t.FromBytes("int64", ()), lambda v: v + 100, num_workers=0)
        self.assertEqual([step.where for step in loader.plan().steps], ["dieseld", "Python"])
        self.assertEqual([v for data, _, _ in loader for v in data.tolist()], list(range(100, 100 + N)))


class Mistakes(ArraysCase):
    def test_parameters(self):
        for why, make in (("layout must", lambda: t.FromNumpy("NCHW")), ("both dtype and shape", lambda: t.FromNumpy(dtype="uint8")),
                          ("dtype must be", lambda: t.FromBytes("complex64", (3,))), ("shape must be", lambda: t.FromBytes("uint8", 3)),
                          ("shape must be", lambda: t.FromBytes("uint8", (1 << 20, 1 << 20))), ("shape must", lambda: t.FromBytes("uint8", [1] * 9)),
                          ("shape must be", lambda: t.FromBytes("uint8", (0, 3))), ("little-endian", lambda: t.FromBytes(numpy.dtype(">i2"), (3,))),
                          ("has 3 dimensions, but shape has 2", lambda: t.FromBytes("uint8", (3, 3), "HWC"))):
            with self.assertRaisesRegex(ValueError, why):
                make()

    def test_what_dieseld_cannot_run(self):
        path = self.dataset([numpy.zeros((8, 9, 3), "float32")] * 2)
        plain, rows = t.FromNumpy(), t.FromNumpy("HWC")
        for why, steps in (("dimension of the height", [plain, t.RandomCrop(3)]), ("dimension of the channels", [plain, t.ToTensor()]),
                           ("dimension of the height", [plain, t.RandomHorizontalFlip()]), ("dieseld does not support it", [rows, t.Resize((8, 8))]),
                           ("cannot convert float32 to uint8", [plain, t.ToDtype("uint8")]), ("crops once", [rows, t.RandomCrop(3), t.CenterCrop(2)]),
                           ("flips once", [rows, t.RandomVerticalFlip(), t.RandomVerticalFlip()]), ("the first transform", [rows, rows]),
                           ("2 channels, but the arrays have 3", [rows, t.Normalize([0, 0], [1, 1])]),
                           ("layout 'HW' has 2", [t.FromNumpy("HW")]), ("normalise only float32", [plain, t.ToDtype("float16"), t.Normalize([0], [1])]),
                           ("are too small", [t.FromBytes("uint8", (8, 9, 3), "HWC"), t.RandomCrop(9)]), ("Resize with one number", [t.CenterCrop(3), rows])):
            with self.assertRaisesRegex(ValueError, why):
                self.loader(path, *steps)
        for why, options in (("native=False", {"native": False}), ("a Python function", {"loader": bytes})):
            with self.assertRaisesRegex(ValueError, why):
                self.loader(path, plain, **options)

    def test_samples_that_differ_are_named(self):
        good = numpy.ones((3, 4), "int16")
        path = self.dataset([good, good, good, good, good[:2], good, good.astype("int32"), good])
        batches = iter(self.loader(path, t.FromNumpy()))
        next(batches)
        with self.assertRaisesRegex(diesel_loader.DamagedData, r"004\.npy: the array is int16 \[2, 4\], but must be int16 \[3, 4\]; batch 1"):
            next(batches)
        for policy, wanted in (("skip", [0, 1, 2, 3, 5, 7]), ("zero", list(range(8)))):
            loader = self.loader(path, t.FromNumpy(), damaged=policy)
            with self.assertLogs("diesel_loader", logging.WARNING):
                samples = {n: data for batch, _, ids in loader for n, data in zip(ids.tolist(), batch)}
            self.assertEqual((sorted(samples), loader.n_damaged), (wanted, 2))
            self.assertEqual([n for n, data in samples.items() if not data.any()], [n for n in wanted if n in (4, 6)])
        with self.assertRaisesRegex(diesel_loader.DamagedData, r"000\.npy: the sample has \d+ bytes, but int16 \[3, 4\] needs 24"):
            list(self.loader(path, t.FromBytes("int16", (3, 4))))

    def test_arrays_that_are_none(self):
        objects = self.dataset([numpy.array([1, None])] * 2, lambda out, a: numpy.save(out, a, allow_pickle=True))
        for why, path in (("Python objects", objects), ("not a .npy file", self.raw([numpy.zeros(200, "uint8")])),
                          ("type '<c8'", self.dataset([numpy.zeros(3, "complex64")])), ("an empty array", self.dataset([numpy.zeros((0, 3))])),
                          ("type \\[\\('a'", self.dataset([numpy.zeros(3, [("a", "i4")])])),
                          ("damaged header", self.dataset([0], lambda out, _: out.write(b"\x93NUMPY\1\0\4\0{'x'")))):
            with self.assertRaisesRegex(ValueError, f"the first sample, 000.npy, is .*{why}"):
                self.loader(path, t.FromNumpy())
        with self.assertRaisesRegex(diesel_loader.DamagedData, "Python objects"):
            next(iter(self.loader(objects, t.FromNumpy(dtype="int64", shape=(2,)))))


@unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
class Tensors(ArraysCase):
    def test_the_same_as_tensors(self):
        import torch

        from diesel_loader.torch import DataLoader
        for dtype in ("bool", "uint8", "int16", "int64", "float16", "float64"):
            arrays = [numbers(self.rng, dtype, (4, 5, 2)) for _ in range(N)]
            path = self.dataset(arrays)
            for n, tensor in self.samples(path, t.FromNumpy(), make=DataLoader).items():
                numpy.testing.assert_array_equal(tensor.numpy(), arrays[n])
            steps = [t.FromNumpy("HWC"), t.RandomCrop(3), t.ToTensor(torch.float32)]
            wanted = self.samples(path, *steps)
            for n, tensor in self.samples(path, *steps, make=DataLoader).items():
                numpy.testing.assert_array_equal(tensor.numpy(), wanted[n])
            for n, tensor in self.samples(path, *steps, t.ToDtype("bfloat16"), make=DataLoader).items():
                half = torch.from_numpy(numpy.array(wanted[n])).to(torch.bfloat16)
                self.assertTrue(torch.equal(tensor.nan_to_num(), half.nan_to_num()), dtype)
        # The last ones, of float64.
        by_rows = self.loader(path, *steps, make=DataLoader, memory_format=torch.channels_last)
        for data, _, ids in by_rows:
            self.assertTrue(data.is_contiguous(memory_format=torch.channels_last))
            for n, tensor in zip(ids.tolist(), data):
                numpy.testing.assert_array_equal(tensor.numpy(), wanted[n])
        with self.assertRaisesRegex(ValueError, "makes arrays without channels"):
            self.loader(path, t.FromNumpy(), make=DataLoader, memory_format=torch.channels_last)
        if not hasattr(torch, "uint16"):
            with self.assertRaisesRegex(ValueError, "has no uint16"):
                self.loader(self.dataset([numpy.zeros(3, "uint16")]), t.FromNumpy(), make=DataLoader)


if __name__ == "__main__":
    unittest.main(verbosity=2)
