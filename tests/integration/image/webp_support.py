# SPDX-License-Identifier: Apache-2.0
"""Makes WebP files, including some that Pillow cannot write."""
import io
import struct

from PIL import Image


def still(pixels, **options):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "WEBP", **options)
    return out.getvalue()


def chunk(name, data):
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def riff(*chunks):
    return chunk(b"RIFF", b"WEBP" + b"".join(chunks))


def three(number):
    return struct.pack("<I", number)[:3]


def extended(flags, width, height):
    return chunk(b"VP8X", struct.pack("<I", flags) + three(width - 1) + three(height - 1))


def frame(data, x, y, width, height):
    """Returns a frame of an animation, from a still image without VP8X."""
    return chunk(b"ANMF", three(x // 2) + three(y // 2) + three(width - 1) + three(height - 1) + three(100) + b"\2" + data[12:])


def animation(width, height, *frames):
    return riff(extended(2, width, height), chunk(b"ANIM", b"\x80\x90\xa0\xff\0\0"), *frames)
