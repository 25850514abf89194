# SPDX-License-Identifier: Apache-2.0
"""The peers of jobs/decode.py that bring a pipeline of their own. Each follows its documentation for this task, with as many threads as
cores, and is an object whose iteration is an epoch.

spdl: its pipeline of threads; FFmpeg decodes, crops, scales and flips, torch normalises. dali: NVIDIA DALI's pipeline without a GPU, with
its decoder of random crops. ffcv: its loader, from a file of its own with the same JPEG bytes. whole: only libjpeg-turbo's decoding of all
images to RGB, through libturbojpeg, an upper bound for all decoders of whole images."""
import concurrent.futures
import ctypes
import math
import os
import pathlib
import random

BATCH, CORES = 64, len(os.sched_getaffinity(0))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
WHOLE = "whole"


def files(dataset):
    return sorted(map(str, pathlib.Path(dataset).glob("*/*.jpg")))


def shuffled(dataset):
    paths = files(dataset)
    random.shuffle(paths)
    return paths


def crop_of(width, height):
    """Returns x, y, width and height, drawn as torchvision's RandomResizedCrop does."""
    for _ in range(10):
        area = width * height * random.uniform(*SCALE)
        ratio = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


class Spdl:
    def __init__(self, dataset):
        import spdl.io
        import torch
        from spdl.pipeline import PipelineBuilder
        torch.set_num_threads(1)
        self.dataset, self.io, self.torch, self.builder = dataset, spdl.io, torch, PipelineBuilder
        self.scale = 1 / (255 * torch.tensor(STD).view(3, 1, 1))
        self.shift = torch.tensor(MEAN).view(3, 1, 1) / torch.tensor(STD).view(3, 1, 1)

    def decode(self, path):
        packets = self.io.demux_image(path)
        x, y, w, h = crop_of(packets.codec.width, packets.codec.height)
        flip = "hflip," if random.random() < 0.5 else ""
        return self.io.decode_packets(packets, filter_desc=f"crop={w}:{h}:{x}:{y},scale=224:224:flags=bilinear,{flip}format=pix_fmts=rgb24")

    def convert(self, frames):
        pixels = self.io.to_torch(self.io.convert_frames(frames))
        pixels = pixels.permute(0, 3, 1, 2).to(self.torch.float32, memory_format=self.torch.contiguous_format)
        return pixels.mul_(self.scale).sub_(self.shift)

    def __iter__(self):
        pipeline = (self.builder().add_source(shuffled(self.dataset)).pipe(self.decode, concurrency=CORES).aggregate(BATCH)
                    .pipe(self.convert).add_sink(4).build(num_threads=CORES))
        with pipeline.auto_stop():
            yield from pipeline


class Dali:
    def __init__(self, dataset):
        from nvidia.dali import fn, pipeline_def, types

        @pipeline_def(batch_size=BATCH, num_threads=CORES, device_id=None)
        def images():
            data, _ = fn.readers.file(file_root=str(dataset), random_shuffle=True, name="files")
            pixels = fn.decoders.image_random_crop(data, device="cpu", output_type=types.RGB, random_area=SCALE,
                                                   random_aspect_ratio=RATIO, num_attempts=10)
            pixels = fn.resize(pixels, size=(224, 224), interp_type=types.INTERP_LINEAR, antialias=True)
            return fn.crop_mirror_normalize(pixels, dtype=types.FLOAT, output_layout="CHW", mean=[255 * m for m in MEAN],
                                            std=[255 * s for s in STD], mirror=fn.random.coin_flip())

        self.pipeline = images()
        self.pipeline.build()
        self.n = self.pipeline.epoch_size("files")

    def __iter__(self):
        import numpy
        for _ in range(self.n // BATCH):
            yield numpy.asarray(self.pipeline.run()[0].as_tensor())


class Ffcv:
    def __init__(self, dataset):
        import numpy
        from ffcv.fields.decoders import RandomResizedCropRGBImageDecoder
        from ffcv.loader import Loader, OrderOption
        from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
        beton = pathlib.Path(dataset).with_suffix(".beton")
        if not beton.exists():
            self.write(beton, files(dataset))
        mean, std = 255 * numpy.array(MEAN), 255 * numpy.array(STD)
        steps = [RandomResizedCropRGBImageDecoder((224, 224), SCALE, RATIO), RandomHorizontalFlip(),
                 NormalizeImage(mean, std, numpy.float32), ToTensor(), ToTorchImage(channels_last=False)]
        self.loader = Loader(str(beton), BATCH, num_workers=CORES, order=OrderOption.RANDOM, os_cache=True, drop_last=False,
                             pipelines={"image": steps})

    @staticmethod
    def write(beton, paths):
        """Writes the bytes of the files as they are, because FFCV would encode the images again."""
        import numpy
        from ffcv.fields import RGBImageField
        from ffcv.fields.rgb_image import IMAGE_MODES
        from ffcv.writer import DatasetWriter
        from PIL import Image

        def encode(field, destination, path, malloc):
            data = numpy.fromfile(path, numpy.uint8)
            with Image.open(path) as image:
                destination["width"], destination["height"] = image.size
            destination["mode"] = IMAGE_MODES["jpg"]
            destination["data_ptr"], storage = malloc(data.nbytes)
            storage[:] = data

        RGBImageField.encode = encode
        DatasetWriter(str(beton), {"image": RGBImageField(write_mode="jpg")}, num_workers=1).from_indexed_dataset(
            [(path,) for path in paths], chunksize=50)

    def __iter__(self):
        for data, in self.loader:
            yield data


class Whole:
    """Decoding of whole images. Each thread has a decompressor and a buffer of its own."""

    def __init__(self, dataset):
        self.library = ctypes.CDLL("libturbojpeg.so.0")
        self.library.tjInitDecompress.restype = ctypes.c_void_p
        self.paths = files(dataset)

    def decode(self, paths):
        handle, buffer = ctypes.c_void_p(self.library.tjInitDecompress()), ctypes.create_string_buffer(500 * 375 * 3)
        for path in paths:
            data = pathlib.Path(path).read_bytes()
            if self.library.tjDecompress2(handle, data, ctypes.c_ulong(len(data)), buffer, 500, 0, 375, 0, 0):
                raise RuntimeError(f"libturbojpeg cannot decode {path}")
        self.library.tjDestroy(handle)
        return paths

    def __iter__(self):
        with concurrent.futures.ThreadPoolExecutor(CORES) as threads:
            yield from threads.map(self.decode, (self.paths[i::CORES] for i in range(CORES)))


WAYS = {"spdl": Spdl, "dali": Dali, "ffcv": Ffcv, WHOLE: Whole}
