# SPDX-License-Identifier: Apache-2.0
"""Tests JPEG images with restart markers: rows above and columns left and right of the crop are skipped, and the pixels equal those of the
whole image."""
import io
import re
import subprocess
import unittest

import numpy as np
from PIL import Image

import image_support
from image_support import BIN, differences, jpeg, photograph

SAMPLINGS = ((1, 1), (2, 1), (2, 2), (1, 2), (4, 1), (4, 2), (1, 4))
RESTART = re.compile(rb"\xff[\xd0-\xd7]")


def mcus_of_row(width, h, n_components=3):
    return -(-width // (8 * h if n_components > 1 else 8))


def renumbered(data):
    """Returns the image with its restart markers renumbered in order."""
    head, *parts = RESTART.split(data)
    return head + b"".join(bytes([0xff, 0xd0 + i % 8]) + part for i, part in enumerate(parts))


class Rows(image_support.Images):
    def setUp(self):
        super().setUp()
        self.plain = self.folder / "plain"

    def random_request(self, width, height):
        x, y = int(self.rng.integers(width)), int(self.rng.integers(height))
        crop = x, y, int(self.rng.integers(1, width - x + 1)), int(self.rng.integers(1, height - y + 1))
        size = tuple(max(1, int(side * 2.0 ** self.rng.uniform(-5, 1))) for side in crop[2:])
        return crop, size, int(self.rng.integers(4)), int(self.rng.integers(2))

    def check_same(self, plain, restarts, what, n=12):
        """Checks every scale: the two files differ only in the encoding of coefficients."""
        self.plain.write_bytes(plain)
        path = self.write(restarts)
        with Image.open(path) as image:
            width, height = image.size
        for _ in range(n):
            request = self.random_request(width, height)
            expected, found = self.probe.ask(self.plain, *request), self.probe.ask(path, *request)
            self.assertEqual(found[1], expected[1], (what, request))
            self.assertEqual(differences(found[0], expected[0])[0], 0, (what, request))

    def test_samplings(self):
        for width, height in ((200, 333), (65, 129)):
            pixels = photograph("Garden", width, height)
            for h, v in SAMPLINGS:
                row = mcus_of_row(width, h)
                plain = jpeg(pixels, h, v)
                for restart in (row, 2 * row, 3 * row, 1, 5):
                    self.check_same(plain, jpeg(pixels, h, v, restart=restart), (width, h, v, restart))

    def test_grey_and_four_components(self):
        pixels = photograph("Dune", 100, 301)
        grey, cmyk = np.ascontiguousarray(pixels[:, :, 1]), np.concatenate([pixels, pixels[::-1, :, :1]], axis=2)
        for restart in (1, 13, 26):
            for v in (1, 2):
                self.check_same(jpeg(grey, 1, v), jpeg(grey, 1, v, restart=restart), ("grey", v, restart))
            for words in ({}, {"ycck": 1}, {"ycck": 1, "h": 2, "v": 2}):
                self.check_same(jpeg(cmyk, **words), jpeg(cmyk, restart=restart, **words), ("four", words, restart))

    def test_packed(self):
        source, dataset, file = self.folder / "source", self.folder / "dataset", io.BytesIO()
        Image.fromarray(photograph("Storm", 300, 200)).save(file, "JPEG", quality=95, progressive=True)
        source.mkdir()
        (source / "a.jpg").write_bytes(file.getvalue())
        subprocess.run([BIN / "dieselctl", "pack", "--jpeg-restarts", source, dataset], check=True, capture_output=True)
        packed = subprocess.run([BIN / "dieselctl", "cat", "--force", dataset, "a.jpg"], check=True, capture_output=True).stdout
        self.assertGreater(len(RESTART.findall(packed)), 100)
        self.check_same(file.getvalue(), packed, "packed", 40)

    def test_rows_above_are_not_decoded(self):
        pixels = photograph("Garden", 200, 300)
        good = jpeg(pixels, 2, 2, restart=mcus_of_row(200, 2))
        start = [found.start() for found in RESTART.finditer(good)]
        damaged = bytearray(good)
        for at in range(start[1] + 40, start[2] - 40):  # of the third row, of 16 pixels
            damaged[at] = 0x55
        self.plain.write_bytes(good)
        path = self.write(bytes(damaged))
        self.assertGreater(self.probe.ask(path, (0, 0, 200, 300), (200, 300))[1], 0)
        for y, is_seen in ((200, False), (51, False), (49, True)):  # 48 begins a row, and chroma is interpolated
            pixels, n_warnings = self.probe.ask(path, (10, y, 100, 90), (100, 90))
            self.assertEqual(n_warnings > 0, is_seen, y)
            if not is_seen:
                self.assertEqual(differences(pixels, self.probe.ask(self.plain, (10, y, 100, 90), (100, 90))[0])[0], 0)

    def test_columns_outside_are_not_decoded(self):
        pixels = photograph("Garden", 256, 96)
        good = jpeg(pixels, 2, 2, restart=2)  # 32 pixels; a row has 8 such intervals
        start = [found.start() for found in RESTART.finditer(good)]
        damaged = bytearray(good)
        for row in range(6):
            for at in range(start[8 * row + 2] + 12, start[8 * row + 3] - 12):  # from column 96 to 127
                damaged[at] = 0x55
        self.plain.write_bytes(good)
        path = self.write(bytes(damaged))
        for x, width, is_seen in ((0, 94, False), (0, 96, True), (130, 126, False), (128, 100, True), (140, 3, False), (10, 10, False)):
            pixels, n_warnings = self.probe.ask(path, (x, 0, width, 96), (width, 96))
            self.assertEqual(n_warnings > 0, is_seen, (x, width))  # chroma is interpolated
            if not is_seen:
                self.assertEqual(differences(pixels, self.probe.ask(self.plain, (x, 0, width, 96), (width, 96))[0])[0], 0)

    def test_last_columns(self):
        """A narrow image's chroma is not interpolated: a part has the same chroma as the whole."""
        pixels = photograph("Garden", 67, 48)
        for h, v in ((2, 1), (2, 2)):
            self.plain.write_bytes(jpeg(pixels, h, v))
            path = self.write(jpeg(pixels, h, v, restart=1))
            for x in (64, 65, 66):  # of the last MCU, which has 3
                request = (x, 0, 67 - x, 48), (67 - x, 48)
                self.assertEqual(differences(self.probe.ask(path, *request)[0], self.probe.ask(self.plain, *request)[0])[0], 0, (h, v, x))

    def check_as_pillow(self, data, what):
        path = self.write(data)
        try:
            with Image.open(path) as image:
                whole = image.convert("RGB")
        except (OSError, SyntaxError):
            whole = None
        n_refused = 0
        for y in (0, 31, 100, 250, 290):
            answer = self.probe.ask(path, (5, y, 60, 10), (60, 10))
            if isinstance(answer, image_support.Refused):
                self.assertIsNone(whole, (what, answer))
                n_refused += 1
            elif whole:
                self.assertEqual(differences(answer[0], np.asarray(whole.crop((5, y, 65, y + 10))))[0], 0, (what, y))
        return n_refused

    def test_markers_that_are_wrong(self):
        row = mcus_of_row(200, 2)
        good = jpeg(photograph("Garden", 200, 300), 2, 2, restart=row)
        at = [found.start() for found in RESTART.finditer(good)]
        interval = good.index(b"\xff\xdd\0\4") + 4
        for value in (1, row - 1, row + 1, 2 * row, 7 * row, 65535, 0):
            self.check_as_pillow(good[:interval] + value.to_bytes(2, "big") + good[interval + 2:], ("interval", value))
        for i in (0, 3, 9, len(at) - 1):
            self.check_as_pillow(good[:at[i]] + good[at[i] + 2:], ("missing", i))
            self.check_as_pillow(renumbered(good[:at[i]] + good[at[i] + 2:]), ("missing, renumbered", i))
            self.check_as_pillow(good[:at[i]] + good[at[i]:at[i] + 2] + good[at[i]:], ("twice", i))
            self.check_as_pillow(renumbered(good[:at[i] + 9] + good[at[i]:]), ("one more", i))
            for marker in (b"\xff\xff\xff", b"\xff\xd9", b"\xff\xfe\0\4ab", b"\xff\xc0", b"\xff\0", b"\xff\xd3\xff\xd4"):
                self.check_as_pillow(good[:at[i]] + marker + good[at[i]:], (marker, i))
                self.check_as_pillow(good[:at[i]] + marker + good[at[i] + 2:], ("instead", marker, i))

    def test_damaged_bytes(self):
        for width, restart in ((200, mcus_of_row(200, 2)), (224, 2)):
            good = jpeg(photograph("Garden", width, 300), 2, 2, restart=restart)
            for _ in range(40):
                data = bytearray(good)
                for _ in range(3):
                    data[int(self.rng.integers(600, len(data) - 2))] = int(self.rng.choice([0, 0xff, 0xd1, 0x55]))
                self.check_as_pillow(bytes(data), ("damaged", restart))

    def test_truncated(self):
        for width, restart in ((200, mcus_of_row(200, 2)), (224, 2)):
            good = jpeg(photograph("Garden", width, 300), 2, 2, restart=restart)
            for cut in range(400, len(good) - 1, 701):
                self.assertEqual(self.check_as_pillow(good[:cut], (cut, restart)), 5)

    def test_what_is_refused(self):
        good = jpeg(photograph("Garden", 200, 300), 2, 2, restart=mcus_of_row(200, 2))
        self.refused(good, "a crop of 10 x 10 pixels at 0, 295 is not within an image of 200 x 300", (0, 295, 10, 10))
        self.refused(good, "is not within an image of 200 x 300", (0, 200, 10, 2**32 - 100))
        self.probe = self.probe_with(200 * 300 - 1)
        self.refused(good, "JPEG image has 200 x 300 pixels, more than the 59999", (0, 200, 10, 10))


if __name__ == "__main__":
    unittest.main(verbosity=2)
