# SPDX-License-Identifier: Apache-2.0
"""Tests dieselctl pack --jpeg-restarts: the coefficients are unchanged, by libjpeg itself, and the pixels are, by Pillow."""
import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np
from PIL import Image

from image_support import BIN, jpeg, photograph

SAMPLINGS = ((1, 1), (2, 1), (2, 2), (1, 2), (4, 1), (4, 2))
SIZES = ((1, 1), (17, 33), (96, 65), (121, 90))


def segments(data):
    """Yields the markers with data in front of the pixels: (marker, data)."""
    at, found = 2, []
    while data[at + 1] != 0xda:
        length = int.from_bytes(data[at + 2:at + 4], "big")
        found.append((data[at + 1], data[at + 4:at + 2 + length]))
        at += 2 + length
    return found


def pixels_of(data):
    with Image.open(io.BytesIO(data)) as image:
        return image.mode, np.asarray(image)


def in_scans(grey, n):
    """Returns three components, each like the grey image, in n scans of one of them."""
    frame, scan = grey.index(b"\xff\xc0"), grey.index(b"\xff\xda")
    components = b"".join(bytes([c, 0x11, 0]) for c in (1, 2, 3))
    header = grey[:frame] + b"\xff\xc0\0\x11" + grey[frame + 4:frame + 9] + b"\3" + components + grey[frame + 13:scan]
    return header + b"".join(b"\xff\xda\0\x08\1" + bytes([1 + i % 3, 0, 0, 63, 0]) + grey[scan + 10:-2] for i in range(n)) + b"\xff\xd9"


class Restarts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.source, self.dataset = self.folder / "source", self.folder / "dataset"
        self.source.mkdir()

    def dieselctl(self, verb, *args, status=0):
        done = subprocess.run([BIN / "dieselctl", verb, *args], capture_output=True)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def pack(self, files, *options):
        """Returns the packed files, by name, and the output."""
        for name, data in files.items():
            (self.source / name).write_bytes(data)
        done = self.dieselctl("pack", "--jpeg-restarts", *options, self.source, self.dataset)
        packed = {name: self.dieselctl("cat", "--force", self.dataset, name).stdout for name in files}
        return packed, done.stdout.decode(), done.stderr.decode()

    def coefficients(self, data):
        """Returns progressive, restart interval, and all the rest as bytes."""
        path = self.folder / "file"
        path.write_bytes(data)
        done = subprocess.run([BIN / "jpeg_coefficients", path], capture_output=True, check=True)
        words, rest = done.stdout.split(b"\n", 1)
        return [int(word) for word in words.split()], rest

    def check_same(self, before, after, what):
        (_, _), expected = self.coefficients(before)
        (progressive, interval), found = self.coefficients(after)
        self.assertEqual(found, expected, what)
        self.assertFalse(progressive, what)
        self.assertGreater(interval, 0, what)
        modes, pixels = zip(pixels_of(before), pixels_of(after))
        self.assertEqual(*modes, what)
        np.testing.assert_array_equal(*pixels, what)

    def test_kinds(self):
        files, photo = {}, photograph("Garden", 121, 90)
        cmyk = np.concatenate([photo, photo[::-1, :, :1]], axis=2)
        for width, height in SIZES:
            part = np.ascontiguousarray(photo[:height, :width])
            for h, v in SAMPLINGS:
                for words in ({}, {"progressive": 1}, {"restart": 5}, {"arithmetic": 1}, {"quality": 5}):
                    files[f"{h}{v} {width}x{height} {words}"] = jpeg(part, h, v, **words)
            for progressive in range(2):
                files[f"grey {width}x{height} {progressive}"] = jpeg(np.ascontiguousarray(part[:, :, 1]), 1, 1, progressive=progressive)
                files[f"sampled grey {width}x{height} {progressive}"] = jpeg(np.ascontiguousarray(part[:, :, 1]), 2, 2,
                                                                            progressive=progressive)
                for ycck in range(2):
                    files[f"cmyk {ycck} {width}x{height} {progressive}"] = jpeg(np.ascontiguousarray(cmyk[:height, :width]), ycck=ycck,
                                                                               progressive=progressive)
        files["a scan for each"] = in_scans(jpeg(np.ascontiguousarray(photo[:, :, 1])), 3)
        packed, said, warned = self.pack(files)
        self.assertEqual(warned, "")
        self.assertRegex(said, r"\nrestart markers: added to [0-9]+ JPEG files, .* before and .* now \([-+].* %\); [0-9]+ had them, "
                               r"0 packed unchanged, 0 other files\n$")
        n_same = 0
        for name, data in files.items():
            if packed[name] == data:  # five blocks between markers, of which some widths are a multiple
                self.assertIn("restart", name)
                n_same += 1
            else:
                self.check_same(data, packed[name], name)
        self.assertLess(n_same, 12)
        verified = json.loads(self.dieselctl("verify", "--json", self.dataset).stdout)
        self.assertEqual((verified["samples"], verified["damaged"]), (len(files), 0))

        # Samples that were written stay, byte for byte.
        again, said, _ = self.pack({"again": packed["22 121x90 {}"]}, "--append")
        self.assertEqual(again["again"], packed["22 121x90 {}"])
        self.assertIn(f"{len(files)} unchanged", said)
        self.assertIn("restart markers: added to 0 JPEG files; 1 had them,", said)

    def test_other_data_is_kept(self):
        exif, file = Image.Exif(), io.BytesIO()
        exif[0x112], exif[0x10e] = 6, "a garden"
        Image.fromarray(photograph("Garden", 90, 60)).save(file, "JPEG", exif=exif, icc_profile=bytes(range(256)) * 300,
                                                          dpi=(300, 300), comment=b"said", progressive=True)
        before = file.getvalue()
        comment = before.replace(b"\xff\xdb", b"\xff\xfe\0\6said\xff\xdb", 1) + b"\xff\xd8 and more behind the end"
        packed, _, _ = self.pack({"a.jpg": comment})
        self.check_same(comment, packed["a.jpg"], "exif")
        others = [segment for segment in segments(comment) if segment[0] >= 0xe0]
        self.assertEqual([segment for segment in segments(packed["a.jpg"]) if segment[0] >= 0xe0], others)
        self.assertGreater(len(others), 4)
        self.assertTrue(packed["a.jpg"].endswith(b"\xff\xd9\xff\xd8 and more behind the end"))
        with Image.open(io.BytesIO(packed["a.jpg"])) as image:
            self.assertEqual((image.getexif()[0x112], image.info["dpi"]), (6, (300, 300)))

    def test_files_that_stay(self):
        good = jpeg(photograph("Dune", 120, 90), 2, 2)
        progressive = jpeg(photograph("Dune", 120, 90), 2, 2, progressive=1)
        broken, huge = bytearray(good), bytearray(good)
        for at in range(len(good) // 2, len(good) - 20, 40):
            broken[at] ^= 0x55
        at = huge.index(b"\xff\xc0") + 5
        huge[at:at + 4] = b"\xff\xdc\xff\xdc"
        last = progressive.rindex(b"\xff\xda")
        kept = {
            "cut.jpg": good[:len(good) // 2], "broken.jpg": bytes(broken), "head.jpg": good[:40], "start.jpg": good[:3],
            "huge.jpg": bytes(huge), "several.jpg": good.replace(b"\xff\xdb", b"\xff\xe2\0\x08MPF\0xx\xff\xdb", 1),
            "without the last scan.jpg": progressive[:last] + b"\xff\xd9",
            "scans.jpg": in_scans(jpeg(photograph("Dune", 64, 64)[:, :, 1].copy()), 150),
        }
        other = {"a.png": b"\x89PNG\r\n\x1a\n", "empty": b"", "text": b"not a JPEG"}
        packed, said, warned = self.pack({"good.jpg": good, **kept, **other})
        for name, data in {**kept, **other}.items():
            self.assertEqual(packed[name], data, name)
        self.assertIn(f"; 0 had them, {len(kept)} packed unchanged, {len(other)} other files\n", said)
        for name in kept:
            self.assertRegex(warned, rf"(?m)^dieselctl pack: {name} is packed unchanged, without restart markers: [^\n]+$")
        self.assertIn("the dataset also has 2 files that are not images by their names", warned)
        self.assertEqual(warned.count("\n"), len(kept) + 1)
        self.assertRegex(warned, "huge.*more than 64 million pixels")
        self.assertRegex(warned, "several.*more than one image")
        self.assertRegex(warned, "last scan.*do not cover the whole image")
        self.assertRegex(warned, "scans.*more than 100 scans")

    def test_resume_and_digest(self):
        """Samples that an interrupted run packed are reused: a file is recognised by its own size."""
        data = jpeg(photograph("Garden", 200, 150))
        (self.source / "000.jpg").write_bytes(data)
        for i in range(5):  # a chunk each: with five, the first one has been written
            (self.source / f"{i}.bin").write_bytes(bytes(4 * 2**20))
        locked = self.source / "zzz.jpg"
        locked.write_bytes(b"")
        os.truncate(locked, 2**30 + 1)  # too large, so the run ends there
        options = "--jpeg-restarts", "--order", "source", "--chunk-size", "4M", "--digest", "sha256"
        done = self.dieselctl("pack", *options, self.source, self.dataset, status=1)
        self.assertIn(b"zzz.jpg", done.stderr)
        locked.write_bytes(data)
        said = self.dieselctl("pack", *options, self.source, self.dataset).stdout.decode()
        self.assertRegex(said, r"; [1-9][0-9]* were packed before an interruption")
        self.dieselctl("verify", self.dataset)
        self.check_same(data, self.dieselctl("cat", "--force", self.dataset, "000.jpg").stdout, "resumed")


if __name__ == "__main__":
    unittest.main(verbosity=2)
