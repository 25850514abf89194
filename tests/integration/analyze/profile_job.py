# SPDX-License-Identifier: Apache-2.0
"""A training job whose preparation costs are known: profile_job.py KIND N_WORKERS N_BATCHES [ARG ...]."""
import ctypes
import io
import os
import random
import sys

import numpy
import torch

KIND, N_WORKERS, N_BATCHES = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
BATCH = 8


def photographs(n):
    """Returns JPEG files like those of cameras: smooth shapes with some noise."""
    from PIL import Image

    noise = numpy.random.default_rng(7)
    y, x = numpy.mgrid[0:480, 0:640]
    files = []
    for _ in range(n):
        waves = [numpy.sin(x / noise.uniform(20, 90) + y / noise.uniform(20, 90)) for _ in range(3)]
        pixels = 128 + 80 * numpy.stack(waves, axis=2) + noise.normal(0, 8, (480, 640, 3))
        stream = io.BytesIO()
        Image.fromarray(pixels.clip(0, 255).astype("uint8")).save(stream, "JPEG", quality=90)
        files.append(stream.getvalue())
    return files


class Files(torch.utils.data.Dataset):
    """Samples in real files, so that the recorder sees loading. A subclass defines the preparation."""

    def __init__(self, folder, contents):
        self.paths = []
        for i, content in enumerate(contents):
            path = os.path.join(folder, f"{i:04}")
            with open(path, "wb") as file:
                file.write(content)
            self.paths.append(path)

    def __len__(self):
        return N_BATCHES * BATCH

    def __getitem__(self, i):
        with open(self.paths[i % len(self.paths)], "rb") as file:
            return self.prepare(file.read())


class Decode(Files):
    def prepare(self, content):
        return self.decode_and_shrink(content)

    def decode_and_shrink(self, content):
        from PIL import Image

        image = Image.open(io.BytesIO(content)).convert("RGB").resize((224, 224), Image.BICUBIC)
        return torch.from_numpy(numpy.asarray(image).astype("float32"))


class Matrix(Files):
    def prepare(self, content):
        return self.many_cosines(content)

    def many_cosines(self, content):
        values = numpy.frombuffer(content, dtype="uint8").astype("float64")
        for _ in range(100):
            values = numpy.cos(values)
        return torch.from_numpy(values[:1000].astype("float32"))


class Ratio(Files):
    """Spends three parts of time in one C function and one in another. The duration varies: a job in step with the sampling would be seen
    in the same place each time."""

    def prepare(self, content):
        library = ctypes.CDLL(sys.argv[4])
        part = random.randint(100, 300)
        library.spend_three(3 * part)
        library.spend_one(part)
        return torch.zeros(1000)


def served(dataset, native):
    """Yields batches of a dataset of photographs from dieseld, which decodes them if `native` is set."""
    from torchvision import transforms

    from diesel_loader.torch import DataLoader, Decode

    transform = transforms.Compose([transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    batches = DataLoader(dataset, batch_size=BATCH, shuffle=True, seed=1, transform=transform, num_workers=N_WORKERS,
                         decode=Decode(native="require" if native == "native" else False))
    for epoch in range(N_BATCHES * BATCH // len(batches.dataset)):
        yield from batches


def main():
    if KIND == "photographs":
        folder = sys.argv[4]
        for i, content in enumerate(photographs(20)):
            with open(os.path.join(folder, f"{i:02d}.jpg"), "wb") as file:
                file.write(content)
        return
    if KIND == "served":
        train(served(*sys.argv[4:]))
        return
    folder = os.environ["DIESEL_PROFILE_FOLDER"]
    if KIND == "decode":
        dataset = Decode(folder, photographs(8))
    elif KIND == "matrix":
        dataset = Matrix(folder, [os.urandom(20000)] * 32)
    else:
        dataset = Ratio(folder, [b"0" * 1000] * 32)
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, num_workers=N_WORKERS)
    train((batch,) for batch in loader)


def train(batches):
    weights = torch.ones(4, 4, requires_grad=True)
    for batch, *_ in batches:
        ((weights * weights).sum() + 0 * batch.sum()).backward()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
