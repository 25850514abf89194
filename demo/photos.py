# SPDX-License-Identifier: Apache-2.0
"""Makes an ImageNet-like tree of real photographs: crops of the photographs that Debian's and Ubuntu's
mate-backgrounds package brings, one class folder a photograph, JPEGs of about 110 KB.

    python3 demo/photos.py FOLDER [FILES]
"""
import io
import pathlib
import random
import sys

from PIL import Image

SOURCE = pathlib.Path("/usr/share/backgrounds/mate")
TARGET_BYTES = 110_000
CROP = (500, 375)  # the usual size of an ImageNet photograph


def photographs():
    """Returns the package's photographs (its other pictures are drawings)."""
    found = sorted((SOURCE / "nature").glob("*.jpg")) + [SOURCE / "abstract" / "Elephants_3840x2160.jpg"]
    found = [path for path in found if path.exists()]
    if not found:
        sys.exit(f"no photographs in {SOURCE}: install mate-backgrounds (./dev deps)")
    return found


def encode(image):
    """Returns a JPEG of about TARGET_BYTES. Bisects the quality, on which the size depends monotonically."""
    low, high, best = 50, 100, b""
    while low <= high:
        quality = (low + high) // 2
        out = io.BytesIO()
        image.save(out, "JPEG", quality=quality, subsampling=0)
        if not best or abs(out.tell() - TARGET_BYTES) < abs(len(best) - TARGET_BYTES):
            best = out.getvalue()
        low, high = (quality + 1, high) if out.tell() < TARGET_BYTES else (low, quality - 1)
    return best


def make(folder, n_files, progress=lambda done: None):
    """Writes n_files photographs below folder. The same n_files gives the same files."""
    folder = pathlib.Path(folder)
    sources = photographs()
    rng = random.Random(2026)
    for c, path in enumerate(sources):
        with Image.open(path) as opened:
            photo = opened.convert("RGB")
        group = folder / path.stem.lower()
        group.mkdir(parents=True, exist_ok=True)
        for i in range(c, n_files, len(sources)):
            zoom = rng.uniform(1.0, max(1.0, min(photo.width / CROP[0], photo.height / CROP[1], 2.0)))
            width, height = int(CROP[0] * zoom), int(CROP[1] * zoom)
            left, top = rng.randint(0, photo.width - width), rng.randint(0, photo.height - height)
            crop = photo.crop((left, top, left + width, top + height)).resize(CROP)
            (group / f"{i:05d}.jpg").write_bytes(encode(crop))
            progress(c * n_files // len(sources) + i // len(sources))


if __name__ == "__main__":
    make(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2048)
