# SPDX-License-Identifier: Apache-2.0
"""A simulated accelerator, one rank of several: takes batches of 24 images of 322,960 bytes, looks at every byte, and sleeps 47.55 ms a
batch in place of a device's step, one after the other, as MLPerf Storage does.

    storage.py LOADER WORKERS LISTS DECODED DATASET SECONDS RANK WORLD

LOADER: diesel (diesel_loader on a packed dataset) or torch (PyTorch's DataLoader on the files). LISTS: 1, a batch is a list of
samples, which nobody copies into one tensor. DECODED: 0, the bytes as they are stored; the sum of each file's 64-bit words is checked;
or 1, images decoded, resized to 800 x 800 and flipped, uint8. After one epoch that is not counted it prints "ready", waits for a line,
and goes on in whole epochs. Prints, as JSON, steps, seconds from the first request to the end of the last step, and seconds of it that
it spent looking."""
import json
import os
import pathlib
import sys
import time

import numpy
import torch
import torch.utils.data

from storage_figures import BATCH, SIDE, STEP_S, SUM


def transform():
    from torchvision import transforms
    return transforms.Compose([transforms.Resize((SIDE, SIDE)), transforms.RandomHorizontalFlip(), transforms.PILToTensor()])


class Files(torch.utils.data.Dataset):
    """torchvision's ImageFolder without its labels; decoded or not."""

    def __init__(self, folder, function):
        self.paths, self.function = sorted(map(str, pathlib.Path(folder).glob("*/*.jpg"))), function

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        if not self.function:
            return torch.from_numpy(numpy.fromfile(self.paths[i], numpy.uint8))
        from PIL import Image
        with open(self.paths[i], "rb") as file:
            return self.function(Image.open(file).convert("RGB"))


def as_they_are(samples):
    """A collate_fn: a batch is the list of its samples."""
    return samples


def diesel(workers, lists, function, dataset, rank, world):
    from diesel_loader.torch import DataLoader, list_collate
    return DataLoader(dataset, BATCH, shuffle=True, transform=function, num_workers=0, native="require" if function else True,
                      collate_fn=list_collate if lists else None, drop_last=True, rank=rank, world_size=world)


def pytorch(workers, lists, function, dataset, rank, world):
    files = Files(dataset, function)
    sampler = torch.utils.data.DistributedSampler(files, world, rank, drop_last=True)
    return torch.utils.data.DataLoader(files, BATCH, sampler=sampler, num_workers=workers, persistent_workers=workers > 0, drop_last=True,
                                       collate_fn=as_they_are if lists else None)


def look(data, decoded):
    if decoded:
        assert data.shape == (BATCH, 3, SIDE, SIDE), data.shape
        assert data.numpy().view(numpy.uint64).sum() != 0  # of every pixel
    elif isinstance(data, list):
        assert len(data) == BATCH, len(data)
        if any(int(sample.numpy().view(numpy.uint64).sum()) != SUM for sample in data):
            raise RuntimeError("a file is not what was written")
    elif not (data.numpy().view(numpy.uint64).sum(axis=1) == SUM).all():
        raise RuntimeError("a file is not what was written")


def main():
    loader, workers, lists, decoded, dataset, least_s, rank, world = sys.argv[1:]
    lists, decoded = lists == "1", decoded == "1"
    torch.set_num_threads(1)
    make, first = {"diesel": (diesel, lambda batch: batch[0]),  # [data, labels]
                   "torch": (pytorch, lambda batch: batch)}[loader]
    batches = make(int(workers), lists, transform() if decoded else None, dataset, int(rank), int(world))
    for batch in batches:
        look(first(batch), decoded)
    print("ready", flush=True)
    sys.stdin.readline()
    begin, steps, looked = time.perf_counter(), 0, 0.0
    while time.perf_counter() - begin < float(least_s):
        for batch in batches:
            at = time.perf_counter()
            look(first(batch), decoded)
            del batch
            looked += time.perf_counter() - at
            time.sleep(STEP_S)
            steps += 1
    print(json.dumps({"steps": steps, "seconds": time.perf_counter() - begin, "looked": looked}), flush=True)
    os._exit(0)  # no time is spent on the end of worker processes


if __name__ == "__main__":
    main()
