# SPDX-License-Identifier: Apache-2.0
"""Makes synthetic photographs in ten classes: noise with the falling spectrum of photographs, so that they compress alike, and a texture and tint
of each class. The machine with numpy and Pillow makes them; on the machine with the GPU each is written many times."""
import pathlib
import struct

CLASSES, WIDTH, HEIGHT, QUALITY = 10, 500, 375, 92
COMMENT = b"\xff\xfe"


def draw(rng, label):
    import numpy
    from PIL import Image
    y, x = numpy.meshgrid(numpy.fft.fftfreq(HEIGHT), numpy.fft.fftfreq(WIDTH), indexing="ij")
    falls = 1 / numpy.maximum(numpy.hypot(x, y), 1 / WIDTH) ** 1.1
    angle, rows, columns = numpy.pi * label / CLASSES, *numpy.mgrid[0:HEIGHT, 0:WIDTH]
    stripes = numpy.sin((rows * numpy.sin(angle) + columns * numpy.cos(angle)) / 6 + rng.uniform(0, 6))
    channels = []
    for channel in range(3):
        plane = numpy.fft.ifft2(numpy.fft.fft2(rng.normal(size=(HEIGHT, WIDTH))) * falls).real
        plane = plane / plane.std() * 45 + 118 + 25 * numpy.cos(2 * numpy.pi * (label / CLASSES + channel / 3)) + 14 * stripes
        channels.append(plane.clip(0, 255).astype(numpy.uint8))
    return Image.fromarray(numpy.stack(channels, -1))


def make(folder, per_class):
    """Writes folder/CLASS/NUMBER.jpg, and returns their bytes."""
    import numpy
    rng, n_bytes = numpy.random.default_rng(1), 0
    for label in range(CLASSES):
        place = pathlib.Path(folder) / f"class{label}"
        place.mkdir(parents=True)
        for i in range(per_class):
            draw(rng, label).save(place / f"{i:03d}.jpg", quality=QUALITY)
            n_bytes += (place / f"{i:03d}.jpg").stat().st_size
    return n_bytes


def multiply(source, target, least):
    """Writes at least `least` images. Each source image appears equally often, in files that differ only in a numbered comment."""
    paths = sorted(pathlib.Path(source).glob("*/*.jpg"))
    if not paths:
        raise FileNotFoundError(f"there are no photographs in {source}")
    times = -(-least // len(paths))
    for path in paths:
        data, place = path.read_bytes(), pathlib.Path(target) / path.parent.name
        place.mkdir(parents=True, exist_ok=True)
        for k in range(times):
            comment = COMMENT + struct.pack(">H", 2 + 4) + struct.pack(">I", k)
            (place / f"{path.stem}-{k:03d}.jpg").write_bytes(data[:2] + comment + data[2:])
