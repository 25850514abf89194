# SPDX-License-Identifier: Apache-2.0
"""Pictures of all kinds, image/decoder.h through image_probe, and Pillow for comparison."""
import collections
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest
import zlib

import numpy as np
from PIL import Image

BIN = pathlib.Path(os.environ.get("DIESEL_BIN", pathlib.Path(__file__).resolve().parents[3] / "build" / "release" / "bin"))
PHOTOGRAPHS = pathlib.Path("/usr/share/backgrounds/mate/nature")
FILTERS = [Image.BOX, Image.BILINEAR, Image.BICUBIC, Image.LANCZOS]  # in the order of enum image_filter
BILINEAR = 1
HWC, CHW = range(2)
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]

Refused = collections.namedtuple("Refused", "errno text")


def photograph(name, width, height):
    """Returns a reduced photograph of the package mate-backgrounds: RGB as an array."""
    with Image.open(PHOTOGRAPHS / f"{name}.jpg") as image:
        return np.asarray(image.convert("RGB").resize((width, height), Image.LANCZOS))


def jpeg(pixels, h=1, v=1, quality=90, progressive=0, restart=0, arithmetic=0, ycck=0):
    height, width = pixels.shape[:2]
    n = 1 if pixels.ndim == 2 else pixels.shape[2]
    words = [width, height, n, h, v, quality, progressive, restart, arithmetic, ycck]
    return subprocess.run([BIN / "jpeg_maker", *map(str, words)], input=pixels.tobytes(), capture_output=True, check=True).stdout


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed_rows(samples, depth):
    """Returns rows with the filter byte in front. samples: height x width x channels."""
    for row in samples.reshape(samples.shape[0], -1):
        if depth == 16:
            yield b"\0" + row.astype(">u2").tobytes()
        else:
            bits = np.unpackbits(row.astype(np.uint8)[:, None], axis=1)[:, 8 - depth:]
            yield b"\0" + np.packbits(bits.reshape(-1)).tobytes()


def png(samples, depth, colour, interlaced=False, before=b""):
    """Returns a PNG file of height x width x channels samples. before: chunks in front of the data, such as a palette."""
    height, width = samples.shape[:2]
    parts = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7] if interlaced else [samples]
    data = b"".join(row for part in parts if part.size for row in packed_rows(part, depth))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))
            + before + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


def by_pillow(path, crop, size, kind=BILINEAR):
    """Returns Pillow's pixels. crop: x, y, width, height. Resizes rows before columns; Pillow 13 uses the other order for some sizes."""
    x, y, width, height = crop
    with Image.open(path) as image:
        whole = image.convert("RGB").crop((x, y, x + width, y + height))
    return np.asarray(whole.resize((size[0], height), FILTERS[kind]).resize(size, FILTERS[kind]))


def differences(one, other):
    d = np.abs(one.astype(int) - other.astype(int))
    return d.max(), d.mean(), np.percentile(d, 99.9)


def random_crop(rng, width, height):
    """Draws a crop like RandomResizedCrop: 8 % to all of the area, and 3:4 to 4:3."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1)
        ratio = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1)), w, h
    return 0, 0, width, height


class Probe:
    def __init__(self, *words):
        self.process = subprocess.Popen([BIN / "image_probe", *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self):
        self.process.stdin.close()
        status = self.process.wait()
        self.process.stdout.close()
        return status

    def ask(self, path, crop, size=(1, 1), kind=BILINEAR, layout=HWC, window=(0, 0, 0, 0)):
        """Returns pixels as height x width x 3 and the number of warnings, or raises Refused. Without a crop: returns the header."""
        request = [*(crop or (0, 0, 0, 0)), *size, kind, layout, *window, path]
        self.process.stdin.write((" ".join(map(str, request)) + "\n").encode())
        self.process.stdin.flush()
        word, *rest = self.process.stdout.readline().decode().rstrip("\n").split(" ", 2)
        if word == "error":
            return Refused(int(rest[0]), rest[1])
        if word == "info":
            return rest
        data = np.frombuffer(self.process.stdout.read(int(rest[0])), np.uint8)
        width, height = window[2:] if any(window) else size
        pixels = data.reshape(height, width, 3) if layout == HWC else data.reshape(3, height, width).transpose(1, 2, 0)
        return pixels, int(rest[1])


class Images(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.rng = np.random.default_rng(7)
        self.probe = self.probe_with()

    def probe_with(self, *words):
        probe = Probe(*words)
        self.addCleanup(lambda: self.assertEqual(probe.close(), 0))
        return probe

    def write(self, data):
        path = self.folder / "image"
        path.write_bytes(data)
        return path

    def decode(self, path, crop, size, kind=BILINEAR, layout=HWC):
        answer = self.probe.ask(path, crop, size, kind, layout)
        self.assertNotIsInstance(answer, Refused, (answer, crop, size))
        return answer[0]

    def check_exact(self, path, crop, size, what, kind=BILINEAR, layout=HWC):
        most, mean, high = differences(self.decode(path, crop, size, kind, layout), by_pillow(path, crop, size, kind))
        self.assertEqual(most, 0, f"{what}: crop {crop} to {size}: max {most}, mean {mean:.3f}, 99.9 % {high}")

    def refused(self, data, text, crop=(0, 0, 1, 1)):
        answer = self.probe.ask(self.write(data), crop)
        self.assertIsInstance(answer, Refused)
        self.assertRegex(answer.text, text)
        return answer
