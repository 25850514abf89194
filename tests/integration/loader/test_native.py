# SPDX-License-Identifier: Apache-2.0
"""Tests transforms that dieseld runs: values compared with torchvision's, the set of supported transforms, damaged images, decoders that
end."""
import collections
import contextlib
import io
import logging
import math
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from torch_support import Daemon, grouped, pack, support

import numpy
import torch
import PIL
from PIL import Image, ImageEnhance

import diesel_loader
from diesel_loader import transforms
from diesel_loader.torch import DataLoader, Dataset, pil_loader
from torchvision_support import v1, v2

BICUBIC = v1.InterpolationMode.BICUBIC
MASK = (1 << 64) - 1
SAME_ORDER = int(PIL.__version__.split(".")[0]) < 12  # newer Pillows resize columns first where the height shrinks much more
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def picture(seed, width, height):
    """Returns a picture like a photograph: smooth shapes of all sizes, and a little noise."""
    rng, total = numpy.random.default_rng(seed), numpy.zeros((height, width, 3))
    for scale in (4, 16, 64):
        small = rng.uniform(0, 255, (height // scale + 2, width // scale + 2, 3)).astype("uint8")
        total += numpy.asarray(Image.fromarray(small).resize((width, height), Image.BICUBIC), float) * {4: .1, 16: .3, 64: .6}[scale]
    return Image.fromarray(numpy.clip(total + rng.normal(0, 3, total.shape), 0, 255).astype("uint8"))


def encoded(image, kind="JPEG", **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def make_pictures(folder):
    """Makes 48 images in two classes: JPEG of several kinds, PNG and WebP."""
    kinds = [{"quality": 90}, {"quality": 75, "subsampling": 0}, {"quality": 95, "progressive": True}, {"quality": 85, "optimize": True}]
    for i in range(48):
        path = folder / f"class{i % 2}" / f"{i:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = picture(i, 200 + 37 * (i % 7), 150 + 29 * (i % 5))
        if i % 12 == 5:
            image = image.convert("L")
        if i % 12 == 7:
            image = image.convert("CMYK")
        if i % 12 == 3:
            path.with_suffix(".webp").write_bytes(encoded(image, "WEBP", quality=80, lossless=i % 24 == 3))
        elif i % 12 == 11:
            path.with_suffix(".png").write_bytes(encoded(image, "PNG"))
        else:
            path.write_bytes(encoded(image, **kinds[i % 4]))


class Draw:
    """A copy of recipe_place() of image/recipe.h, for a random box: torchvision's distribution, from splitmix64."""

    def __init__(self, seed, epoch, sample):
        self.state = seed
        key = self.next() ^ epoch
        self.state = key
        key = self.next() ^ sample
        self.state = key
        self.state = self.next()

    def next(self):
        self.state = self.state + 0x9e3779b97f4a7c15 & MASK
        z = self.state
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & MASK
        z = (z ^ z >> 27) * 0x94d049bb133111eb & MASK
        return z ^ z >> 31

    def uniform(self, low, high):
        return low + (high - low) * ((self.next() >> 11) * 2.0 ** -53)

    def below(self, n):
        return self.next() * n >> 64

    def box(self, width, height, scale=(0.08, 1), ratio=(3 / 4, 4 / 3)):
        for _ in range(10):
            area = width * height * self.uniform(*scale)
            aspect = math.exp(self.uniform(math.log(ratio[0]), math.log(ratio[1])))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                top = self.below(height - h + 1)
                left = self.below(width - w + 1)
                return left, top, left + w, top + h
        raise AssertionError("no box of these pictures is that large")


class Colours(Draw):
    """A copy of recipe_draw_colours(), for a ColorJitter that is applied with probability p, and a RandomGrayscale."""

    def __init__(self, seed, epoch, sample, jitter, p=1.0, grey=0.0):
        super().__init__(seed, epoch, sample)
        self.state ^= 0x636f6c6f75727321
        self.grey, self.steps = self.uniform(0, 1) < grey, []
        if self.uniform(0, 1) >= p:
            return
        order = ["brightness", "contrast", "saturation", "hue"]
        for i in (3, 2, 1):
            k = self.below(i + 1)
            order[i], order[k] = order[k], order[i]
        self.steps = [(name, self.uniform(*getattr(jitter, name))) for name in order if getattr(jitter, name)]

    def apply_to_tensor(self, image):
        for name, factor in self.steps:
            image = getattr(v1.functional, "adjust_" + name)(image, float(numpy.float32(factor)))
        return v1.functional.rgb_to_grayscale(image, 3) if self.grey else image

    def apply(self, image):
        enhance = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast, "saturation": ImageEnhance.Color}
        for name, factor in self.steps:
            factor = float(numpy.float32(factor))  # torchvision draws float32
            image = v1.functional.adjust_hue(image, factor) if name == "hue" else enhance[name](image).enhance(factor)
        return v1.functional.to_grayscale(image, 3) if self.grey else image


class NativeCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="diesel-native-")
        cls.folder = pathlib.Path(cls.scratch.name)
        os.chmod(cls.folder, 0o755)
        make_pictures(cls.folder / "src")
        cls.path = str(pack(cls.folder / "src", cls.folder / "pictures.diesel"))
        cls.daemon = Daemon(cls.folder)
        cls.daemon.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)
        cls.scratch.cleanup()

    def decoding(self):
        """Returns the daemon's counts of this process's sessions."""
        job, = (job for job in diesel_loader.status()["jobs"] if job["pid"] == os.getpid())
        return job["decoding"]

    def loader(self, transform, path=None, **options):
        options = {"batch_size": 8, "shuffle": True, "seed": 5, "return_ids": True, **options}
        loader = DataLoader(path or self.path, transform=transform, **grouped(options))
        self.addCleanup(loader.close)
        return loader

    def samples(self, loader):
        """Returns {number: sample} of an epoch."""
        return {number: sample for samples, _, numbers in loader for sample, number in zip(samples, numbers.tolist())}

    def original(self, number):
        return pil_loader(torch.frombuffer(Dataset(self.path).read(number), dtype=torch.uint8))

    def compare(self, transform, reference, native="require"):
        """Compares all samples of an epoch with reference(PIL image, number). Returns the differences."""
        differences = []
        ours = self.samples(self.loader(transform, native=native))
        self.assertEqual(len(ours), 48)
        for number, sample in ours.items():
            wanted = reference(self.original(number), number)
            self.assertEqual((sample.shape, sample.dtype), (wanted.shape, wanted.dtype))
            differences.append((sample.double() - wanted.double()).abs().flatten())
        return torch.cat(differences)

    def agree(self, transform, reference=None, grey_level=1.0, **options):
        """Checks that differences stay within those allowed for the same crop: 2 grey levels in the mean, 12 in the 99.9th percentile."""
        d = self.compare(transform, reference or (lambda image, _: transform(image)), **options) / grey_level
        self.assertLess(d.mean().item(), 2)
        self.assertLess(numpy.quantile(d.numpy(), 0.999), 12)


class Values(NativeCase):
    def test_the_middle(self):
        for mode in (v1.InterpolationMode.BILINEAR, BICUBIC):
            self.agree(v1.Compose([v1.Resize(140, mode), v1.CenterCrop((96, 128)), v1.PILToTensor()]))

    def test_a_random_crop(self):
        def reference(image, number):
            draw = Draw(5, 0, number)
            made = v1.functional.resize(image, 140)
            top = draw.below(made.height - 96 + 1)
            left = draw.below(made.width - 128 + 1)
            made = made.crop((left, top, left + 128, top + 96))
            if draw.uniform(0, 1) < 0.5:
                made = made.transpose(Image.FLIP_LEFT_RIGHT)
            return v1.functional.pil_to_tensor(made)
        for version in (v1, v2):
            if version:
                self.agree(version.Compose([version.Resize(140), version.RandomCrop((96, 128)), version.RandomHorizontalFlip(),
                                            version.PILToTensor()]), reference)

    def test_what_weights_say(self):
        """Like torchvision.models.ResNet50_Weights.DEFAULT.transforms() and similar ones."""
        from torchvision.transforms._presets import ImageClassification
        for options in ({"resize_size": 232}, {"interpolation": BICUBIC}, {"resize_size": 224}, {"mean": [0.5] * 3, "std": [0.5] * 3}):
            preset = ImageClassification(crop_size=224, **options)
            self.agree(preset, grey_level=1 / 255 / 0.225)
            self.agree(v1.Compose([torch.nn.Identity(), preset, torch.nn.Identity()]), lambda image, _: preset(image), grey_level=1 / 255 / 0.225)
        self.assertEqual({step.where for step in self.loader(ImageClassification(crop_size=224, resize_size=223)).plan().steps}, {"Python"})

    def test_the_whole(self):
        self.agree(v1.Compose([v1.Resize((90, 70)), v1.PILToTensor()]))
        self.agree(v1.Compose([v1.Resize((300, 400), BICUBIC), v1.PILToTensor()]))

    def test_numbers(self):
        self.agree(v1.Compose([v1.Resize((64, 64)), v1.ToTensor()]), grey_level=1 / 255)
        self.agree(v1.Compose([v1.Resize((64, 64)), v1.ToTensor(), v1.Normalize(MEAN, STD)]), grey_level=1 / 255 / 0.225)
        self.agree(v1.Compose([v1.Resize((64, 64)), v1.PILToTensor(), v1.ConvertImageDtype(torch.float16)]), grey_level=1 / 255)

    def test_types_and_layouts(self):
        """The values are the same for all types and layouts."""
        sized = [v1.Resize((200, 240)), v1.PILToTensor()]
        wanted = self.samples(self.loader(v1.Compose(sized), native="require"))
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            got = self.samples(self.loader(v1.Compose([*sized, v1.ConvertImageDtype(dtype)]), native="require"))
            for number, sample in got.items():
                self.assertTrue(torch.equal(sample, (wanted[number].float() / 255).to(dtype)), (dtype, number))
        to_float = [*sized, v1.ConvertImageDtype(torch.float32)]
        for steps, options in ((sized, {}), (to_float, {}), ([*sized, v1.ConvertImageDtype(torch.bfloat16)], {}),
                               ([*to_float, v1.RandomErasing(0)], {"num_workers": 0}), ([*to_float, v1.RandomErasing(0)], {"num_workers": 1}),
                               (to_float, {"num_workers": 1, "native": False}), ([v1.Resize((20, 30)), v1.Grayscale(), *sized[1:]], {})):
            plain = self.samples(self.loader(v1.Compose(steps), native=options.get("native")))
            for data, _, numbers in self.loader(v1.Compose(steps), memory_format=torch.channels_last, **options):
                self.assertTrue(data.is_contiguous(memory_format=torch.channels_last), (steps, options))
                self.assertTrue(all(torch.equal(sample, plain[n]) for sample, n in zip(data, numbers.tolist())), (steps, options))

    def test_layouts_that_there_are_not(self):
        for options in ({"memory_format": torch.preserve_format}, {"memory_format": torch.channels_last, "collate_fn": list},
                        {"memory_format": torch.channels_last, "shuffle": None, "sampler": [1, 2, 3]}):
            with self.assertRaisesRegex(ValueError, "memory_format"):
                self.loader(v1.Compose([v1.Resize((8, 8)), v1.ToTensor()]), **options)
        with self.assertRaisesRegex(ValueError, r"\[B, H, W, C\]"):
            self.loader(transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor(layout="HWC")]),
                        memory_format=torch.channels_last)

    def test_a_random_box(self):
        def reference(image, number):
            draw = Draw(5, 0, number)
            image = image.crop(draw.box(*image.size)).resize((80, 60), Image.BILINEAR)
            if draw.uniform(0, 1) < 0.5:
                image = image.transpose(Image.FLIP_LEFT_RIGHT)
            if draw.uniform(0, 1) < 0.25:
                image = image.transpose(Image.FLIP_TOP_BOTTOM)
            return v1.functional.pil_to_tensor(image)
        self.agree(v1.Compose([v1.RandomResizedCrop((60, 80)), v1.RandomHorizontalFlip(), v1.RandomVerticalFlip(0.25),
                               v1.PILToTensor()]), reference)

    def test_colours(self):
        """Equal to Pillow's bit for bit, if it resizes like dieseld, from images that are decoded whole: neither size is half of any
        picture's."""
        for jitter, p, grey in ((v1.ColorJitter(0.4, 0.4, 0.4, 0.1), 0.8, 0.2), (v1.ColorJitter(brightness=(0, 3), hue=0.5), 1, 0)):
            transform = v1.Compose([v1.Resize((200, 240)), v1.RandomApply([jitter], p), v1.RandomGrayscale(grey),
                                    v1.RandomHorizontalFlip(1), v1.PILToTensor()])

            def reference(image, number):
                image = Colours(5, 0, number, jitter, p, grey).apply(image.resize((240, 200), Image.BILINEAR))
                return v1.functional.pil_to_tensor(image.transpose(Image.FLIP_LEFT_RIGHT))
            if SAME_ORDER:
                self.assertEqual(self.compare(transform, reference).max().item(), 0)
            else:
                self.agree(transform, reference)

    def test_colours_of_tensors(self):
        """With torchvision's tensor arithmetic, each step differs by at most one grey level."""
        jitter = v1.ColorJitter(0.4, 0.4, 0.4, 0.1)
        transform = v1.Compose([v1.Resize((200, 240)), v1.PILToTensor(), v1.RandomApply([jitter], 0.8), v1.RandomGrayscale(0.2)])
        d = self.compare(transform, lambda image, number: Colours(5, 0, number, jitter, 0.8, 0.2).apply_to_tensor(
            v1.functional.pil_to_tensor(image.resize((240, 200), Image.BILINEAR))))
        self.assertLess(d.mean().item(), 0.5)
        self.assertLess(numpy.quantile(d.numpy(), 0.999), 4)

    def test_one_channel(self):
        grey = v1.Compose([v1.Resize((64, 64)), v1.Grayscale(), v1.ToTensor(), v1.Normalize([0.5], [0.25])])
        self.agree(grey, grey_level=1 / 255 / 0.25)
        self.agree(v1.Compose([v1.Resize((64, 64)), v1.Grayscale(3), v1.PILToTensor(), v1.ConvertImageDtype(torch.float32),
                               v1.Normalize([0.5], [0.25])]), grey_level=1 / 255 / 0.25)
        modes = collections.Counter()

        def look(image):
            modes[image.mode] += 1
            return image
        self.agree(v1.Compose([v1.Resize((48, 56)), v1.Grayscale(), look, v1.PILToTensor()]), native=None)
        self.assertEqual(set(modes), {"L"})

    def test_a_beginning_alone(self):
        """The later steps run in Python, on PIL images of the right size."""
        sizes = collections.Counter()

        def look(image):
            sizes[type(image).__name__, image.size, image.mode] += 1
            return image
        for workers in (0, 2):
            transform = v1.Compose([v1.Resize((48, 56)), look, v1.RandomInvert(1), v1.ToTensor()])
            d = self.compare(transform, lambda image, _: v1.functional.to_tensor(
                v1.functional.invert(image.resize((56, 48), Image.BILINEAR))), native=None)
            self.assertLess(d.mean().item() * 255, 2)
        self.assertEqual(set(sizes) - {("Image", (56, 48), "RGB")}, set())


@unittest.skipUnless(v2, "needs torchvision's v2")
class Second(NativeCase):
    """Tests the second generation of torchvision's transforms."""

    def test_on_pil_images(self):
        self.agree(v2.Compose([v2.Resize(140), v2.CenterCrop(128), v2.PILToTensor()]))
        self.agree(v2.Compose([v2.Resize((90, 70), v2.InterpolationMode.BICUBIC), v2.ToImage(), v2.ToPureTensor()]))

    def test_on_tensors(self):
        self.agree(v2.Compose([v2.ToImage(), v2.Resize(140, antialias=True), v2.CenterCrop([96, 128])]))
        self.agree(v2.Compose([v2.ToImage(), v2.Resize((64, 48), v2.InterpolationMode.BICUBIC)]))
        self.agree(v2.Compose([v2.PILToTensor(), v2.Resize((64, 48)), v2.ConvertImageDtype(torch.float32)]), grey_level=1 / 255)

    def test_numbers(self):
        sized = [v2.Resize((64, 64)), v2.ToImage()]
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            self.agree(v2.Compose([*sized, v2.ToDtype(dtype, scale=True)]), grey_level=1 / 255)
        self.agree(v2.Compose([*sized, v2.ToDtype(torch.float32)]))
        self.agree(v2.Compose([*sized, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD), v2.ToDtype(torch.float16)]),
                   grey_level=1 / 255 / 0.225)

    def test_colours(self):
        jitter = v2.ColorJitter(0.4, (0.5, 2), 0.3, 0.2)
        transform = v2.Compose([v2.Resize((200, 240)), v2.RandomApply([jitter], 0.8), v2.RandomGrayscale(0.2), v2.ToImage()])
        self.agree(transform, lambda image, number: v1.functional.pil_to_tensor(
            Colours(5, 0, number, jitter, 0.8, 0.2).apply(image.resize((240, 200), Image.BILINEAR))))
        on_tensors = v2.Compose([v2.ToImage(), v2.Resize((200, 240)), v2.RandomHorizontalFlip(0), jitter, v2.RandomGrayscale(0.2)])
        self.agree(on_tensors, lambda image, number: Colours(5, 0, number, jitter, 1, 0.2).apply_to_tensor(
            v2.functional.resize(v2.functional.pil_to_tensor(image), [200, 240])))
        self.agree(v2.Compose([v2.Resize((64, 64)), v2.Grayscale(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
                               v2.Normalize([0.5], [0.25])]), grey_level=1 / 255 / 0.25)

    def test_what_torchvision_recommends(self):
        """Tests steps that change nothing at their position."""
        def reference(image, number):
            draw = Draw(5, 0, number)
            left, top, right, bottom = draw.box(*image.size)
            image = v2.functional.resized_crop(v2.functional.pil_to_tensor(image), top, left, bottom - top, right - left, [60, 80], antialias=True)
            image = image.flip(-1) if draw.uniform(0, 1) < 0.5 else image
            return v2.functional.normalize(v2.functional.to_dtype(image, torch.float32, scale=True), MEAN, STD)
        begin = [[v2.ToImage(), v2.ToDtype(torch.uint8, scale=True)], [v2.ToDtype(torch.uint8, scale=True), v2.ToImage()],
                 [v2.ToImage(), v2.ToImage(), v2.PILToTensor()], [torch.nn.Identity(), v2.RandomHorizontalFlip(0), v2.ToImage()],
                 [v2.PILToTensor(), v2.ToPureTensor(), v2.RandomGrayscale(0)], [v2.ToDtype(torch.float32), v2.ColorJitter(), v2.PILToTensor()]]
        if hasattr(v2, "RGB"):
            begin.append([v2.RGB(), v2.ToImage(), v2.RGB()])
        end = [v2.RandomHorizontalFlip(p=0.5), v2.CenterCrop((60, 80)), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD),
               v2.ToPureTensor()]
        for steps in begin:
            with self.subTest(steps=steps):
                transform = v2.Compose([*steps, v2.RandomResizedCrop((60, 80), antialias=True), *end])
                self.agree(transform, reference, grey_level=1 / 255 / 0.225)
                self.assertEqual({type(sample) for sample in self.samples(self.loader(transform)).values()}, {torch.Tensor})

    def test_a_beginning_alone(self):
        seen = collections.Counter()

        def look(image):
            seen[type(image).__name__, tuple(image.shape)] += 1
            return image
        transform = v2.Compose([v2.ToImage(), v2.RandomResizedCrop((40, 50)), look, v2.ToDtype(torch.float32, scale=True)])
        loader = self.loader(transform, num_workers=0)
        self.assertEqual([step.where for step in loader.plan().steps], ["dieseld", "dieseld", "Python", "Python"])
        self.assertEqual({sample.dtype for sample in self.samples(loader).values()}, {torch.float32})
        self.assertEqual(seen, {("Image", (3, 40, 50)): 48})

    def test_what_is_not_understood(self):
        for steps in ([v2.ToImage(), v2.RandomResizedCrop(32, antialias=False)], [v2.Resize(size=None, max_size=40)],
                      [v2.ToDtype({torch.Tensor: torch.float32})], [v2.RandomResizedCrop(32, interpolation=v2.InterpolationMode.NEAREST)]):
            plan = self.loader(v2.Compose(steps)).plan()
            self.assertEqual({step.where for step in plan.steps}, {"Python"}, plan)


class Order(NativeCase):
    def test_a_sample_is_the_same_whoever_asks(self):
        transform = v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.PILToTensor()])
        first = self.samples(self.loader(transform))
        for options in ({"batch_size": 5}, {"shuffle": False}, {"num_workers": 2, "target_transform": int}):
            for number, sample in self.samples(self.loader(transform, **options)).items():
                self.assertTrue(torch.equal(sample, first[number]), (number, options))
        ranks = {}
        for rank in range(3):
            ranks.update(self.samples(self.loader(transform, rank=rank, world_size=3)))
        self.assertEqual(ranks.keys(), first.keys())
        self.assertTrue(all(torch.equal(ranks[number], first[number]) for number in first))

    def test_epochs_and_seeds_differ(self):
        transform = v1.Compose([v1.RandomResizedCrop(32), v1.PILToTensor()])
        loader = self.loader(transform)
        first, second, other = self.samples(loader), self.samples(loader), self.samples(self.loader(transform, seed=6))
        for changed in (second, other):
            self.assertGreater(sum(not torch.equal(changed[number], first[number]) for number in first), 45)
        loader.set_epoch(0)
        again = self.samples(loader)
        self.assertTrue(all(torch.equal(again[number], first[number]) for number in first))

    def test_a_state_goes_on_in_mid_epoch(self):
        transform = v1.Compose([v1.RandomResizedCrop(32), v1.PILToTensor()])
        loader = self.loader(transform)
        batches = iter(loader)
        for _ in range(2):
            next(batches)
        state, rest = loader.state_dict(), list(batches)
        other = self.loader(transform)
        other.load_state_dict(state)
        for ours, theirs in zip(list(other), rest):
            self.assertTrue(all(map(torch.equal, ours, theirs)))

    def test_batches_may_be_written_to_and_kept(self):
        loader = self.loader(v1.Compose([v1.Resize((16, 16)), v1.ToTensor()]), shuffle=False)
        kept = [data.mul_(0).add_(1) for data, _, _ in loader]
        self.assertTrue(all((data == 1).all() for data in kept))
        self.assertFalse(any((data == 1).all() for data, _, _ in loader))


class Plans(NativeCase):
    def where(self, transform, **options):
        return [step.where for step in self.loader(transform, **options).plan().steps]

    def test_what_is_understood(self):
        whole = v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, STD)])
        self.assertEqual(self.where(whole), ["dieseld"] * 4)
        self.assertEqual(self.loader(whole).num_workers, 0)
        self.assertEqual(self.where(v1.RandomResizedCrop(32)), ["dieseld"])
        nested = v1.Compose([torch.nn.Sequential(v1.Resize((8, 8))), v1.Compose([v1.ToTensor()])])
        self.assertEqual(self.where(nested), ["dieseld"] * 2)
        blur = v1.Compose([v1.RandomResizedCrop(32), v1.GaussianBlur(3), v1.RandomHorizontalFlip(), v1.ToTensor()])
        self.assertEqual(self.where(blur), ["dieseld", "Python", "Python", "Python"])

    def test_which_colours_are_understood(self):
        sized, jitter = v1.Resize((32, 32)), v1.ColorJitter(0.4, hue=0.1)
        for k, steps in ((4, [sized, v1.RandomHorizontalFlip(), jitter, v1.RandomGrayscale()]), (3, [sized, jitter, v1.Grayscale()]),
                         (2, [sized, v1.RandomApply(torch.nn.ModuleList([jitter]), 0.3)]), (0, [jitter, sized]),
                         (3, [sized, v1.PILToTensor(), jitter]),
                         (2, [sized, v1.ToTensor(), jitter]), (3, [sized, jitter, v1.PILToTensor(), v1.RandomGrayscale()]), (2, [sized, v1.RandomGrayscale(), jitter]), (2, [sized, jitter, jitter]),
                         (1, [sized, v1.RandomApply([jitter, v1.GaussianBlur(3)])]), (1, [sized, v1.RandomApply([v1.Grayscale(3)])])):
            plan = self.loader(v1.Compose(steps)).plan()
            self.assertEqual([step.where for step in plan.steps], ["dieseld"] * k + ["Python"] * (len(steps) - k), plan)
            self.assertTrue(all(step.why for step in plan.steps[k:]), plan)

    def test_what_is_not(self):
        class Mine(v1.RandomResizedCrop):
            pass
        for transform in (Mine(32), v1.Resize(32), v1.ToTensor(), v1.CenterCrop(32), lambda image: torch.zeros(1),
                          v1.RandomResizedCrop(32, interpolation=v1.InterpolationMode.NEAREST),
                          v1.Compose([v1.Resize(32), v1.CenterCrop(33)]), v1.Compose([v1.Resize(32), v1.ToTensor()]),
                          v1.Compose([v1.RandomHorizontalFlip(), v1.RandomResizedCrop(32)]),
                          v1.RandomApply([v1.RandomResizedCrop(32)])):
            plan = self.loader(transform).plan()
            self.assertEqual({step.where for step in plan.steps}, {"Python"}, plan)
            self.assertTrue(all(step.why for step in plan.steps), plan)

    def test_it_is_the_users_to_decide(self):
        transform = v1.Compose([v1.RandomResizedCrop(32), v1.ToTensor()])
        self.assertEqual(self.where(transform, native=False), ["Python"] * 2)
        self.assertIn("native=False", str(self.loader(transform, native=False).plan()))
        self.loader(transform, native="require")
        with self.assertRaisesRegex(ValueError, r'native="require".*\n(.*\n)*.*Python +<function'):
            self.loader(v1.Compose([transform, v1.Lambda(lambda x: x).lambd]), native="require")
        with self.assertRaisesRegex(ValueError, "native must be"):
            self.loader(transform, native="yes")
        with self.assertRaisesRegex(ValueError, "damaged must be"):
            self.loader(transform, damaged="ignore")
        with self.assertRaisesRegex(ValueError, "this loader has none"):
            self.loader(transform, native=False, damaged="skip")

    def test_where_dieseld_does_not_serve(self):
        transform = v1.Compose([v1.RandomResizedCrop(32), v1.ToTensor()])
        dataset = Dataset(self.path)
        for options in ({"sampler": torch.utils.data.SubsetRandomSampler([1, 2])}, {"loader": lambda data: None},
                        {"bucket_by_length": True}):
            self.assertEqual(self.where(transform, path=dataset, **{"shuffle": None, **options}), ["Python"] * 2, options)

    def test_a_cache_that_is_too_small_says_what_to_do(self):
        loader = self.loader(v1.Compose([v1.Resize((4096, 4096)), v1.ToTensor()]), batch_size=48)
        with self.assertRaisesRegex(OSError, r"larger --cache.*native=False"):
            next(iter(loader))

    def test_samples_that_are_no_images(self):
        source = self.folder / "mixed"
        source.mkdir()
        (source / "a.jpg").write_bytes(encoded(picture(1, 50, 40)))
        (source / "b.txt").write_bytes(b"text")
        path = str(pack(source, self.folder / "mixed.diesel"))
        transform = v1.Compose([v1.Resize((8, 8)), v1.ToTensor()])
        self.assertEqual(self.where(transform, path=path), ["Python"] * 2)
        images = Dataset(path).filter(paths="*.jpg")
        self.assertEqual(self.where(transform, path=images), ["dieseld"] * 2)
        (data, _, _), = self.loader(transform, path=images)
        self.assertEqual(data.shape, (1, 3, 8, 8))


class Damaged(NativeCase):
    TRANSFORM = v1.Compose([v1.Resize((8, 8)), v1.ToTensor()])

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        source = cls.folder / "bad"
        source.mkdir()
        for i in range(20):
            (source / f"{i:02d}.jpg").write_bytes(encoded(picture(i, 60, 50)))
        whole = (source / "05.jpg").read_bytes()
        (source / "05.jpg").write_bytes(whole[:len(whole) // 2])
        (source / "06.jpg").write_bytes(b"no image at all")
        (source / "13.png").write_bytes(encoded(picture(1, 60, 50), "PNG")[:-30])
        (source / "13.jpg").unlink()
        cls.bad = str(pack(source, cls.folder / "bad.diesel", "--order", "source"))

    def loader(self, **options):
        return super().loader(self.TRANSFORM, path=self.bad, batch_size=4, shuffle=False, **options)

    def test_an_error_names_the_sample(self):
        batches, seen, errors = iter(self.loader()), [], []
        while True:
            try:
                seen += next(batches)[2].tolist()
            except StopIteration:
                break
            except diesel_loader.DamagedData as error:
                errors.append(str(error))
        self.assertEqual(seen, [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19])
        self.assertEqual(len(errors), 2)
        self.assertRegex(errors[0], r"bad\.diesel: 05\.jpg: .*; batch 1 of epoch 0")
        self.assertRegex(errors[1], r"bad\.diesel: 13\.png: .*; batch 3 of epoch 0")

    def test_they_may_be_left_out(self):
        loader = self.loader(damaged="skip")
        next(iter(self.loader()))
        before = self.decoding()
        with self.assertLogs("diesel_loader", logging.WARNING) as log:
            batches = list(loader)
        after = self.decoding()
        # Batches prefetched beyond an epoch's end belong to the next epoch.
        self.assertGreaterEqual(after["damaged"] - before["damaged"], 3)
        self.assertGreaterEqual(after["samples"] - before["samples"], 17)
        self.assertGreater(after["cpu_s"], before["cpu_s"])
        self.assertEqual([ids.tolist() for _, _, ids in batches],
                         [[0, 1, 2, 3], [4, 7], [8, 9, 10, 11], [12, 14, 15], [16, 17, 18, 19]])
        self.assertEqual([len(data) for data, _, _ in batches], [4, 2, 4, 3, 4])
        self.assertEqual(loader.n_damaged, 3)
        for name in ("05.jpg", "06.jpg", "13.png"):
            self.assertTrue(any(f"{name} is damaged: it is left out" in line for line in log.output), log.output)
        whole = dict(zip(range(20), torch.cat([data for data, _, _ in super().loader(
            self.TRANSFORM, path=Dataset(self.bad).select([i for i in range(20) if i not in (5, 6, 13)]), batch_size=1,
            shuffle=False)])))
        left = torch.cat([data for data, _, _ in batches])
        self.assertTrue(torch.equal(left, torch.stack(list(whole.values()))))

    def test_they_may_be_zeros(self):
        loader = self.loader(damaged="zero")
        with self.assertLogs("diesel_loader", logging.WARNING):
            data, ids = (torch.cat(parts) for parts in zip(*((data, ids) for data, _, ids in loader)))
        self.assertEqual(ids.tolist(), list(range(20)))
        self.assertEqual([i for i in range(20) if not data[i].any()], [5, 6, 13])
        self.assertEqual(loader.n_damaged, 3)

    def test_a_batch_of_which_nothing_is_left(self):
        loader = super().loader(self.TRANSFORM, path=Dataset(self.bad).select([4, 5, 6, 7]), batch_size=2, shuffle=False,
                                damaged="skip")
        with self.assertLogs("diesel_loader", logging.WARNING):
            self.assertEqual([ids.tolist() for _, _, ids in loader], [[0], [3]])   # 4 and 7 of the whole dataset
        loader = super().loader(self.TRANSFORM, path=Dataset(self.bad).select([3, 5, 6]), batch_size=1, shuffle=False,
                                damaged="skip")
        with self.assertLogs("diesel_loader", logging.WARNING):
            self.assertEqual([[ids.tolist() for _, _, ids in loader] for _ in range(2)], [[[0]]] * 2)

    def test_batches_of_which_nothing_is_left_are_left_out(self):
        """Such batches are left out in mid-epoch and at its end, wherever the rest of the work is done. A state continues after them."""
        def part(indices, **options):
            return super(Damaged, self).loader(self.TRANSFORM, path=Dataset(self.bad).select(indices), batch_size=1, shuffle=False,
                                               damaged="skip", **options)
        with self.assertLogs("diesel_loader", logging.WARNING):
            for options in ({}, {"collate_fn": torch.utils.data.default_collate, "num_workers": 0},
                            {"collate_fn": torch.utils.data.default_collate, "num_workers": 2}):
                loader = part([4, 5, 6, 7, 13], **options)
                self.assertEqual([ids.tolist() for _, _, ids in loader], [[0], [3]])   # 4 and 7 of the whole dataset
                self.assertEqual(len(loader), 5)
                batches = iter(loader)
                next(batches)
                again = part([4, 5, 6, 7, 13], **options)
                again.load_state_dict(loader.state_dict())
                self.assertEqual([[ids.tolist() for _, _, ids in again] for _ in range(2)], [[[3]], [[0], [3]]])
            # Other ranks have a batch at that step, and wait for this one.
            rank = part([4, 5, 6, 7], rank=1, world_size=2)
            with self.assertRaisesRegex(diesel_loader.DamagedData, 'other ranks have some: give damaged="zero"'):
                list(rank)


def parent(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Processes(NativeCase):
    TRANSFORM = v1.Compose([v1.RandomResizedCrop(200), v1.ToTensor()])

    def ours(self):
        """Returns process ids of the decoders of our daemon, which its fork server forked."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (entry / "comm").read_text() == "dieseld-codec\n" and parent(parent(entry.name)) == self.daemon.process.pid:
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def test_they_are_locked_up(self):
        loader, n = self.loader(self.TRANSFORM), 0
        end = time.monotonic() + 150
        while n < 5 and time.monotonic() < end:
            for _ in loader:
                # A decoder may have ended meanwhile: with a sanitizer's memory use, idle ones are not kept.
                for pid in self.ours():
                    with contextlib.suppress(OSError):
                        n += self.is_locked_up(pid)
        self.assertGreaterEqual(n, 5)

    def is_locked_up(self, pid):
        """Returns false while the decoder prepares itself, when it holds no user's data yet."""
        fields = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
        open_files = [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd") if int(n) > 2]
        if fields["Seccomp"] != "2":
            return False
        self.assertEqual((fields["CapEff"], fields["NoNewPrivs"]), ("0" * 16, "1"))
        # The decoder gets the chunks of the current batch one after the other, and maps them.
        self.assertTrue(all(name.startswith(("socket:", "/memfd:", "anon_inode:[pidfd]")) for name in open_files), open_files)
        return True

    def test_one_that_is_killed_is_replaced(self):
        wanted = self.samples(self.loader(self.TRANSFORM))
        before = self.decoding()
        loader, n_killed, killed_at = self.loader(self.TRANSFORM), 0, 0
        end = time.monotonic() + 150
        # An idle decoder is also replaced, but only when it gets its next work.
        while (n_killed < 4 or self.decoding()["replaced"] == before["replaced"]) and time.monotonic() < end:
            loader.set_epoch(0)
            got = {}
            for data, _, numbers in loader:
                # The sample would be blamed for three ends of processes in a row.
                pids = self.ours() if time.monotonic() - killed_at > 0.1 else []
                killed_at = time.monotonic() if pids else killed_at
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        n_killed += 1
                got.update(zip(numbers.tolist(), data))
            self.assertEqual(got.keys(), wanted.keys())
            self.assertTrue(all(torch.equal(got[number], wanted[number]) for number in wanted))
        self.assertGreater(n_killed, 3)
        after = self.decoding()
        self.assertGreaterEqual(after["replaced"] - before["replaced"], 1)
        self.assertEqual(after["damaged"], before["damaged"])
        text = subprocess.run([support.program("dieselctl"), "status"], check=True, capture_output=True, text=True).stdout
        self.assertRegex(text, rf"(?m)^decoding  job \d+: \d+ samples, {after['damaged']} damaged, .* of CPU time, \d+ decoders? replaced$")

    def test_they_end_with_their_session(self):
        loader = self.loader(self.TRANSFORM)
        next(iter(loader))
        loader.close()
        del loader
        end, n_quiet = time.monotonic() + 150, 0
        while n_quiet < 20 and time.monotonic() < end:  # lets the work under way end
            n_quiet = 0 if self.ours() else n_quiet + 1
            time.sleep(0.05)
        self.assertEqual(n_quiet, 20)

    def test_without_a_sandbox_it_says_so_once(self):
        """The system's limit is below the one that the sandbox sets."""
        status = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        limit_kb = int(status.partition("VmData:")[2].split()[0]) + (100 << 10)
        folder = self.folder / "bare"
        folder.mkdir()
        bare = ["sh", "-c", f'ulimit -d {limit_kb} && exec "$@" 2> {folder}/log', "sh"]
        with Daemon(folder, prefix=lambda argv: [*bare, *argv]):
            for _ in range(2):
                loader = self.loader(self.TRANSFORM)
                self.assertEqual(len(self.samples(loader)), 48)
                loader.close()
        self.assertEqual((folder / "log").read_text().count("images are decoded without a sandbox, because this system does not allow one ("), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
