# SPDX-License-Identifier: Apache-2.0
"""Jobs on diesel_loader and a dieseld ($DIESEL_SOCKET)."""
import torch

import frameworks
import parts
from parts import BATCH, CHANNELS, SAMPLE_CPU_S, SIDE, busy, train

RANKS, EPOCHS = 2, 4


def transform(raw, cpu_s=SAMPLE_CPU_S):
    """Takes the CPU time of an image transform."""
    values = busy(raw.numpy().astype("float32") / 255, cpu_s)
    return torch.from_numpy(values).reshape(CHANNELS, SIDE, SIDE)


def costly(raw):
    return transform(raw, 3 * SAMPLE_CPU_S)


def named(raw):
    """Returns the image, and the bytes that name the sample."""
    return transform(raw), int.from_bytes(raw[:6].numpy().tobytes(), "little")


def loader_of(folder, **options):
    import diesel_loader.torch

    return diesel_loader.torch.DataLoader(str(folder / "packed"), batch_size=BATCH, shuffle=True, seed=1, **options)


def none(clock, folder):
    train(clock, loader_of(folder, transform=transform, num_workers=0), batches=clock.batches)


def auto(clock, folder):
    train(clock, loader_of(folder, transform=costly, num_workers="auto"), batches=clock.batches)


class Timed:
    """A loader whose next() is timed, for a framework that calls it. Remembers the samples of the last epoch."""

    def __init__(self, clock, loader):
        self.clock, self.loader = clock, loader

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        self.clock.samples.append([])
        for (images, names), labels in self.clock.batches(self.loader):
            self.clock.samples[-1] += names.tolist()
            yield images, labels


def ddp(clock, folder):
    """Two ranks that Lightning starts, whole epochs."""
    torch.set_num_threads(1)
    clock.seconds = float("inf")
    frameworks.fit(clock, folder, Timed(clock, loader_of(folder, transform=named, num_workers=0)),
                   max_epochs=EPOCHS, devices=RANKS, strategy="ddp")


def prepare(folder):
    parts.random_files(folder / "raw", 640)
