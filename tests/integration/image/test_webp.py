# SPDX-License-Identifier: Apache-2.0
"""Tests WebP images: image/decoder.h against Pillow on the same file, which uses the same libwebp."""
import io
import struct
import unittest

import image_support
import numpy as np
from image_support import photograph
from PIL import Image
from webp_support import animation, chunk, frame, riff, still as webp

SIZES = ((1, 1), (2, 1), (1, 7), (16, 16), (17, 15), (40, 31), (33, 130))
KINDS = [{"quality": 80}, {"quality": 5, "method": 0}, {"quality": 100, "method": 6}, {"lossless": True}, {"lossless": True, "quality": 0},
         {"lossless": True, "exact": True}]


class WebPs(image_support.Images):
    def pixels(self, width, height, n=3):
        smooth = Image.fromarray(self.rng.integers(256, size=(height // 8 + 2, width // 8 + 2, n), dtype=np.uint8))
        noise = self.rng.integers(-9, 9, size=(height, width, n))
        return np.clip(np.asarray(smooth.resize((width, height), Image.BICUBIC), int) + noise, 0, 255).astype(np.uint8)

    def check(self, data, width, height, what):
        path = self.write(data)
        self.check_exact(path, (0, 0, width, height), (width, height), what)
        self.assertEqual(self.probe.ask(path, None), [str(width), f"{height} WebP"])
        for i in range(8):
            x, y = int(self.rng.integers(width)), int(self.rng.integers(height))
            crop = x, y, int(self.rng.integers(1, width - x + 1)), int(self.rng.integers(1, height - y + 1))
            self.check_exact(path, crop, (crop[2], crop[3]) if i < 4 else (7, 9), what, kind=i % 4, layout=i % 2)

    def test_kinds(self):
        for options in KINDS:
            for width, height in SIZES:
                for n in (3, 4):
                    self.check(webp(self.pixels(width, height, n), **options), width, height, (options, width, height, n))

    def test_grey(self):
        self.check(webp(self.pixels(30, 20)[:, :, 0]), 30, 20, "grey")

    def test_crops_of_a_photograph(self):
        for options in KINDS[:4]:
            path = self.write(webp(photograph("Garden", 300, 200), **options))
            for _ in range(25):
                crop = image_support.random_crop(self.rng, 300, 200)
                self.check_exact(path, crop, (crop[2], crop[3]), options)
                self.check_exact(path, crop, (64, 48), options)

    def test_of_an_animation_the_first_frame(self):
        out, frames = io.BytesIO(), [Image.fromarray(self.pixels(40, 30, 4)) for _ in range(3)]
        frames[0].save(out, "WEBP", save_all=True, append_images=frames[1:])
        self.check(out.getvalue(), 40, 30, "animation")

    def test_a_frame_that_is_smaller_than_its_canvas(self):
        """The rest of the canvas is black, whatever background the file requests."""
        for options in ({"quality": 80}, {"lossless": True}):
            small = webp(self.pixels(20, 10), **options)
            for x, y in ((0, 0), (6, 4), (20, 20)):
                self.check(animation(40, 30, frame(small, x, y, 20, 10), frame(small, 0, 0, 20, 10)), 40, 30, (options, x, y))
        path = self.write(animation(40, 30, frame(small, 6, 4, 20, 10)))
        self.assertEqual(self.decode(path, (30, 20, 5, 5), (3, 3)).max(), 0)

    def test_what_is_of_no_account(self):
        data = webp(self.pixels(20, 10), exif=b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0", icc_profile=b"profile")
        self.check(data, 20, 10, "orientation and a profile")
        self.check(webp(self.pixels(20, 10)) + b"behind the image", 20, 10, "bytes after the image")

    def test_every_truncation(self):
        animated = animation(20, 12, *[frame(webp(self.pixels(20, 12)), 0, 0, 20, 12)] * 2)
        for data in (webp(self.pixels(20, 12)), webp(self.pixels(20, 12, 4)), webp(self.pixels(20, 12), lossless=True), animated):
            for cut in range(12, len(data)):
                for crop in ((0, 0, 20, 12), (2, 1, 3, 3)):
                    answer = self.refused(data[:cut], f"^WebP image is truncated: its {cut} bytes end before ", crop)
                    self.assertEqual(answer.errno, 74)

    def test_damage(self):
        """A damaged image gives an error or pixels, as in Pillow."""
        n_refused = 0
        for options in KINDS[:4]:
            whole = webp(self.pixels(24, 18, 4), **options)
            for at in range(12, len(whole), 3):
                data = bytearray(whole)
                data[at] ^= 1 << at % 8
                try:
                    with Image.open(io.BytesIO(data)) as image:
                        wanted = np.asarray(image.convert("RGB"))
                except (OSError, Image.DecompressionBombError):
                    self.refused(data, "^WebP image (of [0-9]+ bytes cannot be decoded|is truncated|has .* pixels, more)|^neither a JPEG",
                                 (0, 0, 24, 18))
                    n_refused += 1
                else:
                    height, width = wanted.shape[:2]
                    ours = self.decode(self.write(data), (0, 0, width, height), (width, height))
                    self.assertEqual(image_support.differences(ours, wanted)[0], 0, (options, at))
        self.assertGreater(n_refused, 30)
        small = webp(self.pixels(20, 12))
        self.refused(riff(), "^WebP image of 12 bytes cannot be decoded: the header is damaged$")
        self.refused(animation(20, 12), "^WebP image of [0-9]+ bytes cannot be decoded: the RIFF chunks are damaged$")
        self.refused(animation(20, 12, frame(small, 2, 0, 20, 12)), "the RIFF chunks are damaged$")
        cut = small[12:-30]
        self.refused(riff(cut[:4] + struct.pack("<I", len(cut) - 8) + cut[8:]), "cannot be decoded: the data", (0, 0, 20, 12))

    def test_image_that_unpacks_to_much(self):
        """Refused by the header, before memory is allocated."""
        small = webp(self.pixels(20, 12))
        for data in (animation(1 << 24, 250, frame(small, 0, 0, 20, 12)), animation(60000, 60000, frame(small, 0, 0, 20, 12))):
            self.assertEqual(self.refused(data, "^WebP image has [0-9]+ x [0-9]+ pixels, more than the 178956970 ").errno, 27)
        lossless = chunk(b"VP8L", b"\x2f" + struct.pack("<I", 16383 | 16383 << 14) + bytes(40))
        self.assertEqual(self.refused(riff(lossless), "^WebP image has 16384 x 16384 pixels, more than ").errno, 27)


if __name__ == "__main__":
    unittest.main(verbosity=2)
