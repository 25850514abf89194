# SPDX-License-Identifier: Apache-2.0
"""Tests that a window of the output has the same values as in the whole output, for every kind of image, at every scale."""
import io
import unittest

import numpy as np
from PIL import Image

import image_support
from image_support import differences, jpeg, photograph, png


def written(pixels, **words):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, **words)
    return file.getvalue()


class Window(image_support.Images):
    def random_box(self, width, height):
        x, y = int(self.rng.integers(width)), int(self.rng.integers(height))
        return x, y, int(self.rng.integers(1, width - x + 1)), int(self.rng.integers(1, height - y + 1))

    def check(self, data, what, width, height):
        path = self.write(data)
        for i in range(40):
            crop = (0, 0, width, height) if i % 4 == 0 else self.random_box(width, height)
            by = 2.0 ** self.rng.uniform(-4, 1) if i % 5 else 1
            size = tuple(max(1, int(side * by)) for side in crop[2:])
            window = self.random_box(*size)
            request = crop, size, i % 4, i // 4 % 2
            x, y, w, h = window
            whole, part = self.probe.ask(path, *request), self.probe.ask(path, *request, window)
            self.assertNotIsInstance(part, image_support.Refused, (what, request, window))
            self.assertEqual(differences(part[0], whole[0][y:y + h, x:x + w])[0], 0, (what, request, window))

    def test_kinds(self):
        pixels = photograph("Garden", 210, 170)
        cmyk = np.concatenate([pixels, pixels[::-1, :, :1]], axis=2)
        for h, v in ((1, 1), (2, 1), (2, 2), (1, 2), (4, 1)):
            self.check(jpeg(pixels, h, v), (h, v), 210, 170)
            self.check(jpeg(pixels, h, v, restart=-(-210 // (8 * h))), (h, v, "restarts"), 210, 170)
        self.check(jpeg(pixels, 2, 2, progressive=1), "progressive", 210, 170)
        self.check(jpeg(cmyk), "four components", 210, 170)
        for interlaced in (False, True):
            self.check(png(pixels[:90, :70].astype(int), 8, 2, interlaced), ("PNG", interlaced), 70, 90)
        self.check(written(pixels, format="WEBP", quality=90), "WebP", 210, 170)

    def test_what_is_refused(self):
        path = self.write(jpeg(photograph("Garden", 40, 30)))
        for window in ((0, 0, 21, 1), (20, 0, 1, 1), (0, 9, 1, 2), (1, 1, 0, 1), (1, 1, 1, 0), (2**32 - 1, 0, 2, 1)):
            answer = self.probe.ask(path, (0, 0, 40, 30), (20, 10), window=window)
            self.assertIsInstance(answer, image_support.Refused, window)
            self.assertRegex(answer.text, r"^a window of .* is not within an output of 20 x 10$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
