# SPDX-License-Identifier: Apache-2.0
"""Tests JPEG images: image/decoder.h against Pillow on the same file."""
import io
import unittest

import numpy as np
from PIL import Image, ImageFile

import image_support
from image_support import FILTERS, differences, by_pillow, jpeg, photograph, random_crop

SAMPLINGS = {"4:4:4": (1, 1), "4:2:2": (2, 1), "4:2:0": (2, 2), "4:4:0": (1, 2), "4:1:1": (4, 1), "4:1:0": (4, 2)}
MEAN, HIGH = 2, 12  # grey levels, at a reduced scale


def random_box(rng, width, height):
    x, y = int(rng.integers(width)), int(rng.integers(height))
    return x, y, int(rng.integers(1, width - x + 1)), int(rng.integers(1, height - y + 1))


class Exact(image_support.Images):
    """The output needs more than half of the resolution, so all pixels of the image are decoded."""

    def check_boxes(self, data, what, n=12):
        path = self.write(data)
        with Image.open(path) as image:
            width, height = image.size
        for i in range(n):
            crop = (0, 0, width, height) if i == 0 else random_box(self.rng, width, height)
            size = tuple(int(self.rng.integers(side // 4 + 1, 2 * side + 2)) for side in crop[2:])
            self.check_exact(path, crop, size, what, kind=i % len(FILTERS), layout=i % 2)
            self.check_exact(path, crop, crop[2:], what)

    def test_samplings(self):
        pixels = photograph("Garden", 167, 131)
        for name, (h, v) in SAMPLINGS.items():
            for progressive in range(2):
                self.check_boxes(jpeg(pixels, h, v, progressive=progressive), f"{name} progressive {progressive}", 40)

    def test_sizes(self):
        pixels = photograph("LadyBird", 50, 50)
        for name, (h, v) in SAMPLINGS.items():
            for width, height in ((1, 1), (1, 9), (2, 1), (3, 5), (8, 8), (9, 16), (16, 17), (17, 33), (31, 2), (50, 49)):
                data = jpeg(np.ascontiguousarray(pixels[:height, :width]), h, v)
                self.check_boxes(data, f"{name} {width} x {height}", 4)

    def test_restarts_arithmetic_and_low_quality(self):
        pixels = photograph("Dune", 120, 90)
        for words in ({"restart": 1}, {"restart": 5, "progressive": 1}, {"quality": 5}, {"quality": 100},
                      {"arithmetic": 1}, {"arithmetic": 1, "progressive": 1, "restart": 3}):
            self.check_boxes(jpeg(pixels, 2, 2, **words), words)

    def test_grey_and_four_components(self):
        pixels = photograph("FreshFlower", 101, 83)
        cmyk = np.concatenate([pixels, pixels[::-1, :, :1]], axis=2)
        for words in ({}, {"progressive": 1}):
            self.check_boxes(jpeg(np.ascontiguousarray(pixels[:, :, 1]), **words), ("grey", words))
            self.check_boxes(jpeg(np.ascontiguousarray(pixels[:, :, 1]), 2, 2, **words), ("grey, sampled", words))
            for ycck in range(2):
                self.check_boxes(jpeg(cmyk, ycck=ycck, **words), ("four components", ycck, words))
            self.check_boxes(jpeg(cmyk, 2, 2, ycck=1, **words), ("YCCK 4:2:0", words))

    def test_pillow_writes_them(self):
        image = Image.fromarray(photograph("Wood", 90, 70))
        for mode in ("L", "RGB", "CMYK"):
            for words in ({}, {"progressive": True}, {"optimize": True, "subsampling": 0}):
                file = io.BytesIO()
                image.convert(mode).save(file, "JPEG", **words)
                self.check_boxes(file.getvalue(), (mode, words))

    def test_orientation_is_not_applied(self):
        exif = Image.Exif()
        exif[0x112] = 6
        file = io.BytesIO()
        Image.fromarray(photograph("Wood", 60, 40)).save(file, "JPEG", exif=exif)
        self.check_boxes(file.getvalue(), "turned")

    def test_header(self):
        path = self.write(jpeg(photograph("Wood", 61, 40), 2, 2, progressive=1))
        self.assertEqual(self.probe.ask(path, None), ["61", "40 JPEG"])


class Scaled(image_support.Images):
    """The output needs less: the decoder uses a scale of the DCT, and antialiasing does the rest."""

    def check_near(self, path, what, sizes, n=10):
        """Checks the values of n crops together, as 0.1 % of a small output is one or two values."""
        with Image.open(path) as image:
            width, height = image.size
        ours, theirs = [], []
        for i in range(n):
            crop, size, kind = random_crop(self.rng, width, height), int(self.rng.choice(sizes)), 1 + i % 2
            ours.append(self.decode(path, crop, (size, size + 3), kind, i % 2).reshape(-1))
            theirs.append(by_pillow(path, crop, (size, size + 3), kind).reshape(-1))
        most, mean, high = differences(np.concatenate(ours), np.concatenate(theirs))
        said = f"{what}: max {most}, mean {mean:.3f}, 99.9 % {high}"
        self.assertLessEqual(mean, MEAN, said)
        self.assertLessEqual(high, HIGH, said)
        return mean

    def test_photographs(self):
        for photo in ("Dune", "Garden", "YellowFlower"):
            for name, (h, v) in SAMPLINGS.items():
                path = self.write(jpeg(photograph(photo, 1000, 750), h, v))
                self.check_near(path, f"{photo} {name}", [64, 112, 224])
                self.check_near(path, f"{photo} {name}, small", [24, 40], 20)

    def test_other_kinds(self):
        pixels = photograph("Storm", 800, 600)
        cmyk = np.concatenate([pixels, pixels[::-1, :, :1]], axis=2)
        for what, data in (("progressive", jpeg(pixels, 2, 2, progressive=1)), ("restarts", jpeg(pixels, 2, 2, restart=7)),
                           ("grey", jpeg(np.ascontiguousarray(pixels[:, :, 1]))), ("CMYK", jpeg(cmyk)),
                           ("YCCK", jpeg(cmyk, 2, 2, ycck=1)), ("quality 40", jpeg(pixels, 2, 2, quality=40))):
            self.check_near(self.write(data), what, [48, 96])

    def test_a_scale_is_taken(self):
        """Otherwise the tests above would prove nothing: the pixels do differ."""
        self.assertGreater(self.check_near(self.write(jpeg(photograph("Garden", 1000, 750), 2, 2)), "small", [48]), 0)


class Damaged(image_support.Images):
    def setUp(self):
        super().setUp()
        self.pixels = photograph("Blinds", 200, 150)

    def pillow_refuses(self, data):
        try:
            Image.open(io.BytesIO(data)).convert("RGB")
        except (OSError, SyntaxError):
            return True
        return False

    def test_every_truncation(self):
        for progressive in range(2):
            data = jpeg(self.pixels, 2, 2, progressive=progressive)
            for cut in {*range(3, len(data), 331), *range(len(data) - 10, len(data))}:
                self.assertTrue(self.pillow_refuses(data[:cut]), cut)
                # An error also comes if the missing part is behind the crop.
                for crop in ((0, 0, 200, 150), (3, 3, 20, 10)):
                    answer = self.refused(data[:cut], f"^JPEG image is truncated: its {cut} bytes end ", crop)
                    self.assertEqual(answer.errno, 74)

    def test_bytes_behind_the_end(self):
        path = self.write(jpeg(self.pixels) + b"\xff\xd8 and more")
        self.check_exact(path, (5, 5, 50, 50), (50, 50), "more bytes")

    def test_flipped_bytes(self):
        """Damage that Pillow skips is skipped in the same way, and counted."""
        n_warned = n_refused = 0
        for progressive in range(2):
            good = jpeg(self.pixels, 2, 2, progressive=progressive)
            for _ in range(60):
                data = bytearray(good)
                at = int(self.rng.integers(700, len(data) - 2))
                data[at] ^= int(self.rng.integers(1, 256))
                path = self.write(data)
                answer = self.probe.ask(path, (0, 0, 200, 150), (200, 150))
                if isinstance(answer, image_support.Refused):
                    n_refused += 1
                    self.assertTrue(self.pillow_refuses(bytes(data)), (at, answer))
                    continue
                n_warned += answer[1] > 0
                if not self.pillow_refuses(bytes(data)):
                    self.assertEqual(differences(answer[0], by_pillow(path, (0, 0, 200, 150), (200, 150)))[0], 0, at)
        self.assertGreater(n_warned, 10)
        # The decoder decodes good images after damaged ones.
        self.check_exact(self.write(good), (0, 0, 200, 150), (150, 150), "after damage")

    def test_other_precision_and_components(self):
        data = bytearray(jpeg(self.pixels))
        frame = data.index(b"\xff\xc0")
        data[frame + 4] = 12
        self.assertEqual(self.refused(data, "Unsupported JPEG data precision 12").errno, 95)
        data[frame + 4] = 8
        data[frame + 1] = 0xc3  # lossless
        self.assertEqual(self.refused(data, "Unsupported JPEG process").errno, 95)

    def test_many_scans(self):
        data = jpeg(self.pixels, progressive=1)
        last = data.rindex(b"\xff\xda")
        path = self.write(data[:last] + data[last:-2] * 50 + data[-2:])
        self.decode(path, (0, 0, 200, 150), (20, 20))
        self.refused(data[:last] + data[last:-2] * 150 + data[-2:], "JPEG image has more than 100 scans")

    def test_pixel_limit(self):
        self.probe = self.probe_with(200 * 150 - 1)
        self.assertEqual(self.refused(jpeg(self.pixels), "JPEG image has 200 x 150 pixels, more than the 29999").errno, 27)


if __name__ == "__main__":
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    unittest.main(verbosity=2)
