# SPDX-License-Identifier: Apache-2.0
"""Odd images by name, as real data sets have them. WHAT_PILLOW_HAS must decode to Pillow's pixels. REFUSED must give an error with the
reason, whether or not Pillow opens them."""
import io
import struct

import numpy as np
from image_support import chunk, jpeg, photograph, png
from PIL import Image

import webp_support as riff

WIDTH, HEIGHT = 90, 70
PIXELS = photograph("Garden", WIDTH, HEIGHT)
PICTURE = Image.fromarray(PIXELS)
GREY = np.ascontiguousarray(PIXELS[:, :, 1])
FOUR = np.concatenate([PIXELS, PIXELS[::-1, :, :1]], axis=2)
RGBA = Image.fromarray(FOUR, "RGBA")


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def turned(orientation):
    exif = Image.Exif()
    exif[0x112] = orientation
    return exif


def segment(marker, data):
    return struct.pack(">BBH", 255, marker, len(data) + 2) + data


def behind_start(data, *segments):
    """Returns a JPEG file with additional segments."""
    return data[:2] + b"".join(segments) + data[2:]


def without_names():
    """Returns RGB in three components, as Adobe's marker defines: neither JFIF, nor YCbCr."""
    data = jpeg(PIXELS)
    length = struct.unpack(">H", data[4:6])[0]
    return behind_start(data[:2] + data[4 + length:], segment(0xee, b"Adobe\0\x64\0\0\0\0\0"))


def patched(data, at, value):
    return data[:at] + bytes([value]) + data[at + 1:]


def of_frame(offset, value):
    """Returns a JPEG file with another byte in the frame's header."""
    data = jpeg(PIXELS)
    return patched(data, data.index(b"\xff\xc0") + offset, value)


def samples(n, depth):
    """Returns samples of `depth` bits, up to 16."""
    return np.resize(np.random.default_rng(5).integers(1 << depth, size=997), (HEIGHT, WIDTH, n))


PALETTE = chunk(b"PLTE", bytes(range(256)) * 3)
WEBP = riff.still(PIXELS, quality=70)

WHAT_PILLOW_HAS = {
    "JPEG, grey": jpeg(GREY),
    "JPEG, grey, sampled 2 x 2": jpeg(GREY, 2, 2),
    "JPEG, grey, progressive": jpeg(GREY, progressive=1),
    "JPEG, CMYK": jpeg(FOUR),
    "JPEG, CMYK by Pillow": saved(PICTURE.convert("CMYK"), "JPEG"),
    "JPEG, YCCK": jpeg(FOUR, ycck=1),
    "JPEG, YCCK 4:2:0, progressive": jpeg(FOUR, 2, 2, ycck=1, progressive=1),
    "JPEG, RGB by Adobe's marker": without_names(),
    "JPEG, progressive 4:2:0": jpeg(PIXELS, 2, 2, progressive=1),
    "JPEG, arithmetic coding": jpeg(PIXELS, 2, 2, arithmetic=1),
    "JPEG, arithmetic coding, progressive": jpeg(PIXELS, arithmetic=1, progressive=1),
    "JPEG, 4:1:1": jpeg(PIXELS, 4, 1),
    "JPEG, 4:1:0": jpeg(PIXELS, 4, 2),
    "JPEG, 4:4:0": jpeg(PIXELS, 1, 2),
    "JPEG, a restart after each block": jpeg(PIXELS, 2, 2, restart=1),
    "JPEG, quality 1": jpeg(PIXELS, 2, 2, quality=1),
    "JPEG, quality 100": jpeg(PIXELS, quality=100),
    "JPEG, turned by EXIF": saved(PICTURE, "JPEG", exif=turned(6)),
    "JPEG, mirrored by EXIF": saved(PICTURE, "JPEG", exif=turned(5)),
    "JPEG, a colour profile": saved(PICTURE, "JPEG", icc_profile=bytes(70000)),
    "JPEG, a long comment": behind_start(jpeg(PIXELS), segment(0xfe, b"\xff\xd9" * 30000)),
    "JPEG, fill bytes": jpeg(PIXELS)[:2] + b"\xff" * 99 + jpeg(PIXELS)[2:],
    "JPEG, another image behind it": jpeg(PIXELS) + jpeg(PIXELS[::-1].copy()),
    "JPEG, 1 x 1": jpeg(PIXELS[:1, :1].copy(), 2, 2),
    "JPEG, 1 x 70": jpeg(PIXELS[:, :1].copy(), 2, 2),
    "JPEG, 90 x 1": jpeg(PIXELS[:1].copy(), 2, 2),
    "PNG, black and white": png(samples(1, 1), 1, 0),
    "PNG, 4 greys": png(samples(1, 2), 2, 0),
    "PNG, 16-bit grey": png(samples(1, 16), 16, 0),
    "PNG, 16-bit RGB": png(samples(3, 16), 16, 2),
    "PNG, 16-bit RGBA, interlaced": png(samples(4, 16), 16, 6, True),
    "PNG, grey and alpha": png(samples(2, 8), 8, 4),
    "PNG, transparent": saved(RGBA, "PNG"),
    "PNG, a transparent colour": png(samples(3, 8), 8, 2, before=chunk(b"tRNS", b"\0\1\0\2\0\3")),
    "PNG, palette": png(samples(1, 8), 8, 3, before=PALETTE),
    "PNG, palette of 2, interlaced": png(samples(1, 1), 1, 3, True, chunk(b"PLTE", b"\1\2\3\xf0\xf1\xf2")),
    "PNG, transparent palette": png(samples(1, 4), 4, 3, before=chunk(b"PLTE", bytes(range(48))) + chunk(b"tRNS", b"\0\x80\xff")),
    "PNG, interlaced": png(samples(3, 8), 8, 2, True),
    "PNG, 1 x 1, interlaced": png(samples(3, 8)[:1, :1], 8, 2, True),
    "PNG, 1 x 70": png(samples(3, 8)[:, :1], 8, 2),
    "PNG, gamma and turned by EXIF": png(samples(3, 8), 8, 2, before=chunk(b"gAMA", struct.pack(">I", 100000))
                                         + chunk(b"eXIf", turned(3).tobytes()[6:])),
    "PNG, animated": saved(PICTURE, "PNG", save_all=True, append_images=[PICTURE.transpose(Image.ROTATE_180)]),
    "PNG, bytes behind it": saved(PICTURE, "PNG") + b"more",
    "WebP": WEBP,
    "WebP, lossless": riff.still(PIXELS, lossless=True),
    "WebP, transparent": riff.still(FOUR, quality=70),
    "WebP, lossless, transparent": riff.still(FOUR, lossless=True),
    "WebP, grey": riff.still(GREY),
    "WebP, 1 x 1": riff.still(PIXELS[:1, :1]),
    "WebP, turned by EXIF": riff.still(PIXELS, exif=turned(6).tobytes()),
    "WebP, animated": saved(PICTURE, "WEBP", save_all=True, append_images=[PICTURE.transpose(Image.ROTATE_180)]),
    "WebP, a frame that is smaller than its canvas": riff.animation(110, 90, riff.frame(WEBP, 6, 4, WIDTH, HEIGHT)),
}

WHAT_PILLOW_HAS |= {
    "PNG, without its end": saved(PICTURE, "PNG")[:-12],
    "PNG, with half of its end": saved(PICTURE, "PNG")[:-6],
    "JPEG, zeros in place of its end": jpeg(PIXELS)[:-2] + bytes(100),
    "JPEG, with restart markers, zeros in place of its end": jpeg(PIXELS, restart=1)[:-2] + bytes(100),
    "WebP, and something behind it": WEBP + b"\0",
}

# Name, file and error text.
REFUSED = {
    "JPEG, half of it": (jpeg(PIXELS)[:900], "^JPEG image is truncated: its 900 bytes end before the image does"),
    "JPEG, progressive, half of it": (jpeg(PIXELS, progressive=1)[:900], "^JPEG image is truncated"),
    "JPEG, without its end": (jpeg(PIXELS)[:-2], "^JPEG image is truncated"),
    "JPEG, nothing but a header": (jpeg(PIXELS)[:200], "^JPEG image is truncated"),
    "JPEG, 12 bits": (of_frame(4, 12), "JPEG data precision 12"),
    "JPEG, lossless": (of_frame(1, 0xc3), "Unsupported JPEG process"),
    "JPEG, 2 components": (jpeg(GREY).replace(b"\xff\xc0\0\x0b\x08" + struct.pack(">HH", HEIGHT, WIDTH) + b"\1\1\x11\0",
                                              b"\xff\xc0\0\x0e\x08" + struct.pack(">HH", HEIGHT, WIDTH) + b"\2\1\x11\0\2\x11\0"),
                           "^JPEG image has 2 components: must be 1, 3 or 4"),
    "PNG, half of it": (saved(PICTURE, "PNG")[:900], "^PNG image is truncated"),
    "PNG, damaged": (patched(saved(PICTURE, "PNG"), 41, 0), "^PNG image of [0-9]+ bytes cannot be decoded"),
    "PNG, a bomb": (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 100000, 100000, 8, 2, 0, 0, 0)) + chunk(b"IDAT", bytes(9)),
                    "^PNG image has 100000 x 100000 pixels, more than the 178956970 that are permitted"),
    "WebP, half of it": (WEBP[:300], "^WebP image is truncated"),
    "GIF": (saved(PICTURE, "GIF"), "^neither a JPEG, PNG nor WebP image"),
    "BMP": (saved(PICTURE, "BMP"), "^neither a JPEG, PNG nor WebP image"),
    "TIFF": (saved(PICTURE, "TIFF"), "^neither a JPEG, PNG nor WebP image"),
    "a page that says that there is no such image": (b"<!DOCTYPE html><title>404</title>", "^neither a JPEG, PNG nor WebP image"),
    "nothing": (b"", "^neither a JPEG, PNG nor WebP image"),
}
