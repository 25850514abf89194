# SPDX-License-Identifier: Apache-2.0
"""Tests PNG images: image/decoder.h against Pillow on the same file."""
import struct
import unittest
import zlib

import image_support
from image_support import chunk, photograph, png

# Colour type, its name, channels, depths.
KINDS = [(0, "grey", 1, (1, 2, 4, 8, 16)), (2, "RGB", 3, (8, 16)), (3, "palette", 1, (1, 2, 4, 8)),
         (4, "grey and alpha", 2, (8, 16)), (6, "RGB and alpha", 4, (8, 16))]
SIZES = ((1, 1), (5, 1), (1, 7), (13, 11), (40, 31))


class Pngs(image_support.Images):
    def samples(self, width, height, n, depth):
        return self.rng.integers(1 << depth, size=(height, width, n))

    def check(self, data, width, height, what):
        path = self.write(data)
        self.check_exact(path, (0, 0, width, height), (width, height), what)
        self.assertEqual(self.probe.ask(path, None), [str(width), f"{height} PNG"])
        for i in range(4):
            x, y = int(self.rng.integers(width)), int(self.rng.integers(height))
            crop = x, y, int(self.rng.integers(1, width - x + 1)), int(self.rng.integers(1, height - y + 1))
            self.check_exact(path, crop, (7, 9), what, kind=i, layout=i % 2)

    def test_kinds(self):
        for colour, name, n, depths in KINDS:
            for depth in depths:
                for interlaced in (False, True):
                    for width, height in SIZES:
                        palette = chunk(b"PLTE", self.rng.bytes(3 << depth)) if colour == 3 else b""
                        self.check(png(self.samples(width, height, n, depth), depth, colour, interlaced, palette), width, height,
                                   f"{name}, {depth} bits, interlaced {interlaced}, {width} x {height}")

    def test_transparency_is_dropped(self):
        for colour, n, depth, entry in ((0, 1, 8, b"\0\x07"), (2, 3, 8, b"\0\1\0\2\0\3"), (0, 1, 1, b"\0\1"), (0, 1, 16, b"\0\1")):
            self.check(png(self.samples(20, 20, n, depth), depth, colour, before=chunk(b"tRNS", entry)), 20, 20, (colour, depth))
        palette = chunk(b"PLTE", self.rng.bytes(48)) + chunk(b"tRNS", b"\0\x80\xff")
        self.check(png(self.samples(20, 20, 1, 4), 4, 3, before=palette), 20, 20, "palette")

    def test_indices_beyond_the_palette(self):
        """Pillow 13 makes them black, and Pillow 9 grey. They are compared with a palette whose rest is black."""
        samples, colours = self.samples(20, 20, 1, 8), self.rng.bytes(30)
        for interlaced in (False, True):
            pixels = [self.decode(self.write(png(samples, 8, 3, interlaced, chunk(b"PLTE", palette))), (0, 0, 20, 20), (20, 20))
                      for palette in (colours, colours + bytes(3 * 246))]
            self.assertEqual(image_support.differences(*pixels)[0], 0)
            self.assertEqual(pixels[0][samples[:, :, 0] >= 10].max(), 0)

    def test_photograph_with_what_is_of_no_account(self):
        before = chunk(b"gAMA", struct.pack(">I", 100000)) + chunk(b"tEXt", b"Title\0A flower") + chunk(b"tIME", b"\7\xd0\1\1\0\0\0")
        self.check(png(photograph("FreshFlower", 90, 70), 8, 2, before=before), 90, 70, "gamma")

    def test_a_chunk_before_the_header(self):
        data = png(self.samples(20, 10, 3, 8), 8, 2)
        self.check(data[:8] + chunk(b"prIv", b"IHDR") + data[8:], 20, 10, "private")

    def as_pillow(self, data, what):
        """Checks that the decoder returns Pillow's picture, or an error where Pillow raises. Returns whether it is a picture."""
        path, size = self.write(data), (16, 16)
        try:
            image_support.by_pillow(path, (0, 0, *size), size)
        except (OSError, SyntaxError):
            for crop in ((0, 0, *size), (2, 1, 3, 3)):
                answer = self.refused(data, f"^PNG image is truncated: its {len(data)} bytes end before ", crop)
                self.assertEqual(answer.errno, 74, what)
            return False
        for crop in ((0, 0, *size), (2, 1, 3, 3), (0, 13, 16, 3)):
            self.check_exact(path, crop, crop[2:], what)
        return True

    def test_every_truncation(self):
        """Chunks after the pixels may be missing, but not a part of one."""
        samples = self.samples(16, 16, 3, 8)
        packed = zlib.compress(b"".join(b"\0" + row.astype("u1").tobytes() for row in samples))
        several = b"".join(chunk(b"IDAT", packed[i:i + 100]) for i in range(0, len(packed), 100))
        head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0))
        end, text = chunk(b"IEND", b""), chunk(b"tEXt", b"Title\0A flower")
        for name, data, n_pictures in (("plain", png(samples, 8, 2), 16), ("interlaced", png(samples, 8, 2, True), 16),
                                       ("a palette", png(self.samples(16, 16, 1, 4), 4, 3, before=chunk(b"PLTE", self.rng.bytes(48))), 16),
                                       ("several chunks", head + several + end, 16), ("an empty chunk", head + several + chunk(b"IDAT", b"") + end, 16),
                                       ("a text", head + several + text + end, 16)):
            found = sum(self.as_pillow(data[:cut], (name, cut)) for cut in range(8, len(data)))
            self.assertGreaterEqual(found, n_pictures, name)

    def test_other_ends(self):
        whole = png(self.samples(16, 16, 3, 8), 8, 2)
        for what, data in (("zeros", whole[:-12] + bytes(1000)), ("signs", whole[:-12] + b"%&/()=?+" * 9), ("a wrong checksum", whole[:-4] + b"xxxx"),
                           ("another file", whole[:-12] + whole)):
            self.assertTrue(self.as_pillow(data, what))
        self.assertFalse(self.as_pillow(whole[:-12] + b"qwertyuiopasdf", "letters"))
        damaged = bytearray(whole[:-12])
        damaged[-8] ^= 1  # in the pixels, whose checksum exists
        self.refused(bytes(damaged), "^PNG image is truncated", (0, 0, 16, 16))

    def test_damage(self):
        data = bytearray(png(self.samples(16, 16, 3, 8), 8, 2))
        data[60] ^= 1
        self.refused(data, "^PNG image of [0-9]+ bytes cannot be decoded: .*", (0, 0, 16, 16))
        self.refused(png(self.samples(16, 16, 1, 8), 8, 3), "cannot be decoded: .*PLTE")
        data = png(self.samples(3, 3, 3, 8), 8, 2)
        self.refused(data.replace(b"IHDR\0\0\0\3", b"IHDR\0\0\0\0"), "^PNG image of [0-9]+ bytes cannot be decoded: .*")

    def test_image_that_unpacks_to_much(self):
        """Refused by the header, before memory is allocated."""
        data = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 999999, 999999, 16, 6, 0, 0, 1))
                + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b""))
        self.assertEqual(self.refused(data, "^PNG image has 999999 x 999999 pixels, more than the 178956970 ").errno, 27)

    def test_photograph_made_small(self):
        """Tests only the resize, which is exact at any size."""
        pixels = photograph("Garden", 300, 200)
        path = self.write(png(pixels, 8, 2))
        for size in ((224, 224), (30, 20), (7, 150), (1, 1), (300, 3), (450, 333)):
            for kind in range(len(image_support.FILTERS)):
                self.check_exact(path, (0, 0, 300, 200), size, "small", kind)
                self.check_exact(path, (31, 17, 170, 120), size, "small", kind, layout=1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
