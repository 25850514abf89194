# SPDX-License-Identifier: Apache-2.0
"""Tests DataLoaders of samples with fields: order, collation, workers, transforms, resuming."""
import importlib.util
import io
import itertools
import json
import os
import pathlib
import resource
import sys
import unittest

# Imported first: adds the path of the other modules, and skips where modules are missing.
from fields_support import N, FieldsCase, image, path_of, same, sample, stored, write

import numpy
from PIL import Image

import diesel_loader
import diesel_loader.numpy as of_numpy
from diesel_loader import native
from diesel_loader.options import Batches, Decode
from diesel_loader.order import EpochOrder

if importlib.util.find_spec("torch"):
    import torch
    import torch.utils.data

    import diesel_loader.torch as of_torch
else:
    torch = of_torch = None

MODULES = [of_numpy, *([of_torch] if of_torch else [])]
EQUAL_SHAPES = ("tokens", "scalar")


def whole(one):
    return {"sum": sum(one["tokens"].tolist()) + one["n"], "key": one["__key__"], "pid": os.getpid()}


def mean(picture):
    assert picture.mode == "RGB", picture
    return numpy.asarray(picture).mean()


def mean_of_pixels(picture):
    return picture.getpixel((0, 0))


def negative(value):
    return -value


def fails(one):
    raise ArithmeticError("no")


def as_list(samples):
    return samples


class Case(FieldsCase):
    def loader(self, module, *fields, batch_size=7, shuffle=True, path=None, **options):
        made = module.DataLoader(self.dataset(*fields, path=path), batch_size, shuffle=shuffle, seed=3, **options)
        self.addCleanup(made.close)
        return made

    def numbers(self, loader, epoch=0):
        """Returns the sample numbers of an epoch, batch by batch."""
        dealt = loader._lanes_of(epoch, 1)
        order = EpochOrder(loader.dataset, seed=loader.seed, epoch=epoch, flags=native.SHUFFLE if loader.shuffle else 0, rank=0, world=1,
                           batch=loader.batch_size, window_chunks=loader._window(dealt) or 1, lanes=dealt[0], drift=dealt[1])
        return [list(order.batch(k)) for k in range(len(order))]


def listed(column):
    return column if isinstance(column, list) else column.tolist()


class Native(Case):
    def test_batches_have_the_samples_of_the_order_by_number(self):
        for module in MODULES:
            loader = self.loader(module, "__id__", "__key__", "__label__", *sample(0))
            for epoch in range(2):
                batches, dataset = list(loader), self.dataset()
                self.assertEqual([batch["__id__"].tolist() for batch in batches], self.numbers(loader, epoch))
                for batch in batches:
                    for i, number in enumerate(batch["__id__"].tolist()):
                        wanted = dataset[number]
                        self.assertEqual((batch["__key__"][i], batch["__label__"][i]), (dataset.sample_path(number), dataset.label(number)))
                        for name, value in wanted.items():
                            got = batch[name][i]
                            got = numpy.asarray(got) if isinstance(value, numpy.ndarray) else got.item() if hasattr(got, "item") else got
                            self.assertTrue(same(got, value), (name, got, value))

    def test_numbers_and_equal_arrays_are_stacked_and_others_listed(self):
        for module in MODULES:
            batch = next(iter(self.loader(module)))
            self.assertEqual(list(batch), list(sample(0)))
            kind = torch.Tensor if module is of_torch else numpy.ndarray
            types = {"n": "int64", "far": "int64", "x": "float64", "ok": "bool", "tokens": "int32", "scalar": "float64"}
            for name, column in batch.items():
                if name in types:
                    self.assertIsInstance(column, kind)
                    self.assertEqual((str(column.dtype).rpartition(".")[2], tuple(column.shape)), (types[name], (7, 8) if name == "tokens" else (7,)))
                else:
                    self.assertEqual((type(column), len(column)), (list, 7), name)
                    self.assertIs(type(column[0]), type(stored(sample(0)[name])))

    def test_batches_may_be_written_to_and_kept(self):
        for module in MODULES:
            loader = self.loader(module, "n", "tokens")
            kept = list(loader)
            for batch in kept:
                batch["n"] += 1
                batch["tokens"][:] = 0
            again = list(self.loader(module, "n", "tokens"))
            self.assertEqual([b["n"].tolist() for b in kept], [(b["n"] + 1).tolist() for b in again])
            self.assertTrue(any(b["tokens"].any() for b in again))

    def test_samples_that_lack_a_field_are_named(self):
        path = write(self.folder / "ragged.diesel", 8, lambda k: {"a": k, **({"b": "x"} if k != 5 else {})})
        for module in MODULES:
            with self.assertRaisesRegex(KeyError, f"sample .*{path_of(5)} of {path} has no field 'b', but a"):
                list(self.loader(module, "a", "b", path=path))
            with self.assertRaisesRegex(KeyError, "different fields.*fields="):
                list(self.loader(module, path=path))
            batches = self.loader(module, path=path, collate_fn=as_list, num_workers=0, batch_size=8)
            self.assertEqual(sorted(len(one) for one in next(iter(batches))), [1] + [2] * 7)
            self.assertEqual(sorted(itertools.chain.from_iterable(b["a"].tolist() for b in self.loader(module, "a", path=path))), list(range(8)))

    def test_a_job_resumes_in_the_middle_of_an_epoch(self):
        for module in MODULES:
            wanted = [batch["n"].tolist() for batch in self.loader(module, "n")]
            loader = self.loader(module, "n")
            head = [batch["n"].tolist() for batch in itertools.islice(iter(loader), 3)]
            resumed = self.loader(module, "n", "caption")
            resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
            self.assertEqual(head + [batch["n"].tolist() for batch in resumed], wanted)

    def test_a_mixture_gives_dicts(self):
        for module in MODULES:
            mixed = module.Mixture([self.loader(module, "n"), self.loader(module, "caption", batch_size=5)], seed=1)
            names = {tuple(batch) for batch in itertools.islice(mixed, 8)}
            self.assertEqual(names, {("n",), ("caption",)})

    def test_numbers_of_samples_come_with_them(self):
        batch = next(iter(self.loader(of_numpy, "n", batches=Batches(return_ids=True))))
        self.assertEqual([self.dataset("n")[i]["n"] for i in batch["__id__"].tolist()], batch["n"].tolist())

    def test_dicts_in_a_list_come_from_no_worker(self):
        for module, collate_fn in ((module, one) for module in MODULES for one in (list, module.list_collate)):
            loader = self.loader(module, "n", "caption", collate_fn=collate_fn, num_workers=2)
            batch = next(iter(loader))
            self.assertEqual([list(one) for one in batch], [["n", "caption"]] * 7)
            self.assertEqual((loader.num_workers, loader.workers), (0, 0))

    @unittest.skipIf("DIESEL_ASAN_PRELOAD" in os.environ, "malloc is AddressSanitizer's")
    def test_memory_of_a_batch_is_used_again(self):
        n, size = 32, 200_000
        path = write(self.folder / "large.diesel", n, lambda k: {"data": bytes([k]) * size, "n": k})
        loader = self.loader(of_numpy, path=path, collate_fn=list, batch_size=8)
        for epoch in range(3):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for batch in loader:
                self.assertEqual([one["data"][-1] for one in batch], [one["n"] for one in batch])
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        self.assertLess(faults, n * size // resource.getpagesize() // 10)

    def test_arrays_of_different_lengths_are_padded(self):
        path = write(self.folder / "texts.diesel", 10, lambda k: {"tokens": numpy.arange(k + 1, dtype="int32"), "n": k})
        for module in MODULES:
            for batch in self.loader(module, path=path, collate_fn=module.pad_collate, num_workers=0, batch_size=5):
                self.assertEqual((batch["tokens_lengths"] - 1).tolist(), batch["n"].tolist())
                self.assertEqual(batch["tokens"].shape[1], max(batch["tokens_lengths"].tolist()))
                self.assertEqual(batch["tokens"].sum(1).tolist(), [k * (k + 1) // 2 for k in batch["n"].tolist()])

    def test_padding_neither_narrows_nor_repeats_nor_drops(self):
        wide = [{"tokens": numpy.array([1], "uint8")}, {"tokens": numpy.array([300, 2**40])}]
        for module in MODULES:
            self.assertEqual(module.pad_collate(wide)["tokens"].tolist(), [[1, 0], [300, 2**40]])
            with self.assertRaisesRegex(KeyError, "different fields: .'tokens'. and .'mask', 'tokens'."):
                module.pad_collate([wide[0], {**wide[1], "mask": 1}])
            with self.assertRaisesRegex(ValueError, r"shapes \(1, 4\) and \(2, 1\)"):
                make = torch.ones if module is of_torch else numpy.ones
                module.pad_collate([(make((1, 4)), 0), (make((2, 1)), 0)])

    def test_bucketed_batches_have_every_sample(self):
        for options in {}, {"transform": {"n": negative}, "num_workers": 2}:
            loader = self.loader(of_numpy, "n", order=of_numpy.Order(bucket_by_length=2), **options)
            sign = -1 if options else 1
            self.assertEqual(sorted(sign * n for b in loader for n in b["n"].tolist()), sorted(sample(k)["n"] for k in range(N)))


class Transformed(Case):
    def test_a_function_of_the_dict_runs_in_workers(self):
        wanted = {path_of(k): sum(range(8)) + 8 * k + k - 5 for k in range(N)}
        for module in MODULES:
            for workers in 0, 2:
                batches = list(self.loader(module, "tokens", "n", "__key__", transform=whole, num_workers=workers))
                got = {key: total for batch in batches for key, total in zip(batch["key"], batch["sum"].tolist())}
                self.assertEqual(got, wanted)
                self.assertEqual(os.getpid() in set(itertools.chain.from_iterable(b["pid"].tolist() for b in batches)), not workers)

    def test_functions_by_field_get_these_fields_and_rgb_images(self):
        for module in MODULES:
            for workers in 0, 1:
                loader = self.loader(module, "image", "n", "caption", "__key__", transform={"image": mean, "n": negative}, num_workers=workers)
                for batch in loader:
                    ks = [int(key[-3:]) for key in batch["__key__"]]
                    self.assertEqual(batch["n"].tolist(), [5 - k for k in ks])
                    self.assertEqual([round(3 * value) for value in batch["image"].tolist()], ks)
                    self.assertEqual(batch["caption"], [sample(k)["caption"] for k in ks])
            with self.assertRaisesRegex(ValueError, "'mask'.*fields="):
                self.loader(module, "n", transform={"mask": mean})
            with self.assertRaisesRegex(ValueError, "'imgae', which the samples lack; they have boxes, caption"):
                next(iter(self.loader(module, transform={"imgae": mean}, num_workers=0)))
            with self.assertRaisesRegex(ValueError, "__label__ is no field: target_transform= changes labels"):
                self.loader(module, "n", "__label__", transform={"__label__": negative})

    def test_pil_loader_decodes_all_images(self):
        for module in MODULES:
            batch = next(iter(self.loader(module, "image", "raw", transform=dict, decode=Decode(loader=module.pil_loader), num_workers=0)))
            self.assertEqual({(type(one), one.mode) for one in batch["image"]}, {(Image.Image, "RGB")})
            self.assertIsInstance(batch["raw"][0], bytes)
            loader = self.loader(module, "raw", decode=Decode(loader={"raw": len}), num_workers=0)
            self.assertEqual(sorted(itertools.chain.from_iterable(b["raw"].tolist() for b in loader)), [2 * k for k in range(N)])

    def test_an_error_of_a_function_says_what_it_got(self):
        """Checks hints for functions that do not fit what samples are."""
        plain = f"{self.path}-plain"
        with diesel_loader.create(plain) as writer:
            writer.put("0", image(1))
        for module in MODULES:
            with self.assertRaisesRegex(AttributeError, "gets all fields as a dict: for one field, use transform={'image': ...}"):
                next(iter(self.loader(module, "image", "n", transform=mean_of_pixels, num_workers=0)))
            with self.assertRaisesRegex(AttributeError, r"decode images with decode=Decode\(loader=pil_loader\)"):
                next(iter(module.DataLoader(plain, transform=mean_of_pixels, num_workers=0)))
        if of_torch:
            with self.assertRaisesRegex(TypeError, r"call data.numpy\(\) for an object like bytes"):
                next(iter(of_torch.DataLoader(plain, decode=Decode(loader=io.BytesIO), num_workers=0)))

    def test_an_error_names_the_sample(self):
        for module in MODULES:
            for workers in 0, 1:
                with self.assertRaisesRegex(Exception, rf"no \(sample \d+, class\d/\d+ of {self.path}"):
                    next(iter(self.loader(module, "n", transform=fails, num_workers=workers)))

    def test_options_for_dieseld_s_decoder_are_refused(self):
        for options in {"native": "require"}, {"damaged": "skip"}:
            with self.assertRaisesRegex(ValueError, "samples have fields"):
                self.loader(of_numpy, transform=whole, decode=Decode(**options))
        with self.assertRaisesRegex(ValueError, "__label__"):
            self.loader(of_numpy, "n", decode=Decode(target_transform=negative))
        loader = self.loader(of_numpy, "n", "__label__", decode=Decode(target_transform=negative), num_workers=0)
        self.assertEqual(sorted(set(itertools.chain.from_iterable(b["__label__"].tolist() for b in loader))), [-2, -1, 0])
        with self.assertRaisesRegex(TypeError, r"DataLoader\(diesel_loader.Dataset\(PATH, fields="):
            of_numpy.DataLoader(self.path, fields=["n"])


@unittest.skipUnless(torch, "needs torch")
class OfTorch(Case):
    def test_a_map_style_dataset_gives_dicts(self):
        dataset = of_torch.Dataset(self.path, fields=["n", "image", "__key__"], transform={"image": mean})
        one = dataset[3]
        k = int(one["__key__"][-3:])
        self.assertEqual((one["n"], round(3 * one["image"])), (k - 5, k))
        self.assertEqual([o["n"] for o in dataset.__getitems__([3, 4])], [dataset[3]["n"], dataset[4]["n"]])

    def test_an_order_of_one_s_own_gives_the_same_batches(self):
        numbers = [5, 3, 9, 0]
        dataset = self.dataset("n", "caption", "boxes", "meta")
        for options in {"sampler": numbers, "batch_size": 2}, {"batch_sampler": [numbers[:2], numbers[2:]]}:
            batches = list(of_torch.DataLoader(dataset, num_workers=0, **options))
            self.assertEqual([b["n"].tolist() for b in batches], [[dataset[i]["n"] for i in numbers[at:at + 2]] for at in (0, 2)])
            self.assertIsInstance(batches[0]["n"], torch.Tensor)
            self.assertEqual(batches[0]["meta"], [dataset[i]["meta"] for i in numbers[:2]])
        singles = list(of_torch.DataLoader(dataset, batch_size=None, num_workers=0))
        self.assertEqual((len(singles), singles[0]["caption"]), (N, dataset[0]["caption"]))
        stock = torch.utils.data.DataLoader(self.dataset("n", "tokens"), 4, num_workers=1)
        self.assertEqual(next(iter(stock))["tokens"].shape, (4, 8))

    def test_masks_and_boxes_follow_the_image(self):
        folder = str(pathlib.Path(__file__).resolve().parents[1] / "loader")
        sys.path.insert(0, folder)
        self.addCleanup(sys.path.remove, folder)
        try:
            importlib.import_module("torchvision_support")
            from torchvision import tv_tensors
            from torchvision.transforms import v2
        except (ImportError, SystemExit):
            self.skipTest("needs torchvision")
        path = write(self.folder / "detection.diesel", 12, detection)
        cropped = v2.Compose([v2.RandomCrop(20), v2.RandomHorizontalFlip()])

        def augment(one):
            picture = tv_tensors.Image(torch.as_tensor(numpy.array(Image.open(io.BytesIO(one["image"])))).permute(2, 0, 1))
            return cropped({"image": picture, "mask": tv_tensors.Mask(torch.as_tensor(one["mask"])),
                            "boxes": tv_tensors.BoundingBoxes(torch.as_tensor(one["boxes"]), format="XYXY", canvas_size=picture.shape[-2:])})

        loader = self.loader(of_torch, path=path, transform=augment, batch_size=6, num_workers=0)
        for batch in loader:
            self.assertEqual((batch["image"].shape, batch["mask"].shape), ((6, 3, 20, 20), (6, 20, 20)))
            for picture, mask, boxes in zip(batch["image"], batch["mask"], batch["boxes"]):
                self.assertTrue((picture[0] == mask).all())
                x0, y0, x1, y1 = (int(side) for side in boxes[0])
                inside = torch.zeros_like(mask)
                inside[y0:y1, x0:x1] = 200
                self.assertTrue((inside == mask).all())


def detection(k):
    """An image with a bright rectangle, its mask and its box."""
    pixels = numpy.zeros((32, 32, 3), numpy.uint8)
    x, y = 8 + k % 4, 9 + k % 3
    pixels[y:y + 10, x:x + 8] = 200
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return {"image": file.getvalue(), "mask": pixels[:, :, 0].copy(), "boxes": numpy.array([[x, y, x + 8, y + 10]], "float32")}


if __name__ == "__main__":
    unittest.main(verbosity=2)
