# SPDX-License-Identifier: Apache-2.0
"""Makes JPEG images that compress like photographs: parts of those in Debian's package mate-backgrounds."""
import io
import itertools
import pathlib
import random
import struct

import support

PHOTOGRAPHS = pathlib.Path("/usr/share/backgrounds/mate")
COMMENT_MAX = 65533  # bytes in a JPEG comment


def parts(width, height, seed=3):
    """Yields parts of the photographs endlessly, one photograph after the other, scaled to this many pixels."""
    from PIL import Image
    rng, sources = random.Random(seed), []
    for path in sorted(PHOTOGRAPHS.glob("*/*.jpg")):
        with Image.open(path) as image:
            sources.append(image.convert("RGB"))
    if not sources:
        support.skip("needs the package mate-backgrounds (apt install mate-backgrounds)")
    for image in itertools.cycle(sources):
        scale = rng.uniform(1, max(1, min(image.width / width, image.height / height) / 2))
        w, h = min(int(width * scale), image.width), min(int(height * scale), image.height)
        left, top = rng.randint(0, image.width - w), rng.randint(0, image.height - h)
        yield image.crop((left, top, left + w, top + h)).resize((width, height), Image.LANCZOS)


def encoded(image, quality):
    data = io.BytesIO()
    image.save(data, "JPEG", quality=quality)
    return data.getvalue()


def write(folder, n, width, height, quality):
    """Writes n images in two classes, and returns their mean length in bytes."""
    n_bytes = 0
    for i, image in enumerate(itertools.islice(parts(width, height), n)):
        n_bytes += put(folder, i, encoded(image, quality))
    return n_bytes / n


def put(folder, i, data):
    path = pathlib.Path(folder) / "ab"[i % 2] / f"{i:05d}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(data)


def of_length(n, width, height, n_bytes, n_64bit=0):
    """Returns n images of exactly n_bytes, a multiple of 8: each has the best quality that fits, and comments fill the rest. The 64-bit
    words of each have the sum n_64bit, modulo 2^64, so that a reader's sum proves that it read every byte."""
    found = []
    for image in parts(width, height):
        low, high = 75, 100  # quality 75 nearly always fits; 100 does not, unless the image is too smooth
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if len(encoded(image, middle)) <= n_bytes - 40 else (low, middle)
        data = encoded(image, low)
        if high < 100 and len(data) <= n_bytes - 40:
            found.append(balanced(data, n_bytes, n_64bit))
        if len(found) == n:
            return found
    return found


def balanced(data, n_bytes, n_64bit):
    """Returns the JPEG file with comments after its first marker. The last one ends with 8 bytes, at a multiple of 8, that set the sum."""
    missing, comments = n_bytes - len(data), b""
    while missing > COMMENT_MAX + 4:
        comments += comment(COMMENT_MAX - 100)
        missing -= COMMENT_MAX - 100 + 4
    comments += comment(missing - 4)
    file = bytearray(data[:2] + comments + data[2:])
    at = (2 + len(comments) - 8) // 8 * 8
    rest = sum(struct.unpack(f"<{n_bytes // 8}Q", file)) % (1 << 64)
    file[at:at + 8] = struct.pack("<Q", (n_64bit - rest) % (1 << 64))
    return bytes(file)


def comment(n):
    return struct.pack(">HH", 0xfffe, n + 2) + b"\0" * n
