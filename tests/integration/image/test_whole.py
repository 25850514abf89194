# SPDX-License-Identifier: Apache-2.0
"""Tests crops out of a whole image that was decoded once, at the scale at which each crop would be decoded by itself. They must be equal
bit for bit, for large photographs and for small ones whose last blocks are not full."""
import io
import unittest

import numpy as np
from PIL import Image

import image_support
from image_support import Refused, differences, jpeg, photograph, png, random_crop

PIXELS_MAX = 178956970


def first_scans(data, n):
    """Returns a progressive image with only these of its scans: libjpeg smooths the unknown rest."""
    at = [i for i in range(len(data) - 1) if data[i:i + 2] == b"\xff\xda"]
    return data[:at[n]] + b"\xff\xd9"


class Whole(image_support.Images):
    def setUp(self):
        super().setUp()
        self.wholes = self.probe_with(PIXELS_MAX, "whole")
        self.n = 0

    def check(self, data, what, sizes, n):
        self.n += 1
        path = self.folder / f"{self.n}"
        path.write_bytes(data)
        with Image.open(path) as image:
            width, height = image.size
        for i in range(n):
            crop = random_crop(self.rng, width, height)
            request = crop, sizes[i % len(sizes)], i % 4
            alone, out_of_it = self.probe.ask(path, *request), self.wholes.ask(path, *request)
            self.assertNotIsInstance(alone, Refused, (what, request, alone))
            self.assertNotIsInstance(out_of_it, Refused, (what, request, out_of_it))
            self.assertEqual(differences(out_of_it[0], alone[0])[0], 0, (what, request))

    def test_photographs(self):
        """With an output of 224 x 224, most crops of 2048 x 1536 are decoded at a half, and of 4000 x 3000 at a quarter."""
        for width, height in ((2048, 1536), (4000, 3000)):
            pixels = photograph("Garden", width, height)
            grey = np.ascontiguousarray(pixels[:, :, 1])
            row = -(-width // 16)
            for what, data in (("4:2:0", jpeg(pixels, 2, 2)), ("4:4:4", jpeg(pixels)), ("4:2:2", jpeg(pixels, 2, 1)), ("grey", jpeg(grey)),
                               ("progressive", jpeg(pixels, 2, 2, progressive=1)), ("restarts", jpeg(pixels, 2, 2, restart=row)),
                               ("restarts in rows", jpeg(pixels, 2, 2, restart=5))):
                self.check(data, (what, width), ((224, 224), (96, 128), (32, 32)), 12)

    def test_small(self):
        for width, height in ((333, 250), (65, 129)):
            pixels = photograph("Dune", width, height)
            noise = self.rng.integers(0, 256, (height, width, 3), np.uint8)
            cmyk = np.concatenate([pixels, pixels[::-1, :, :1]], axis=2)
            sizes = (24, 24), (12, 10), (5, 6), (3, 3), (100, 90)
            for h, v in ((1, 1), (2, 1), (2, 2), (1, 2), (4, 1), (1, 4), (4, 2)):
                for restart in (0, 1, -(-width // (8 * h))):
                    self.check(jpeg(pixels, h, v, restart=restart), (width, h, v, restart), sizes, 25)
                self.check(jpeg(noise, h, v), ("noise", width, h, v), sizes, 25)
                self.check(jpeg(pixels, h, v, progressive=1), ("progressive", width, h, v), sizes, 25)
            for words in ({}, {"ycck": 1, "h": 2, "v": 2}):
                self.check(jpeg(cmyk, **words), ("four components", words), sizes, 25)
            self.check(png(pixels.astype(int), 8, 2), "PNG", sizes, 10)

    def test_scans_that_are_not_there(self):
        file = io.BytesIO()
        Image.fromarray(photograph("Storm", 400, 300)).save(file, "JPEG", quality=90, progressive=True)
        for n in (1, 3, 6):
            self.check(first_scans(file.getvalue(), n), ("scans", n), ((24, 24), (60, 50), (100, 100)), 60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
