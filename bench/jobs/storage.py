# SPDX-License-Identifier: Apache-2.0
"""Simulated accelerators, each a process and one rank of several. Like MLPerf Storage, it takes batches of 24 images of 322,960 bytes one after
the other, reads every byte, and sleeps 47.55 ms per batch in place of a device's step.

    storage.py LOADER WORKERS LISTS DECODED DATASET SECONDS WORLD

LOADER: diesel (diesel_loader on a packed dataset) or torch (PyTorch's DataLoader on the files). LISTS is 1 if a batch is a list of
samples, which are not copied into one tensor. DECODED is 0 for the bytes as they are stored, with the sum of each file's 64-bit words checked,
or 1 for images decoded, resized to 800 x 800 and flipped, uint8.

The ranks are forked after all imports, which would otherwise take a hundred ranks minutes. After one epoch of each that is not counted, the
job prints "ready", waits for a line, and all continue in whole epochs. It prints, as JSON, three figures of each rank:
the steps, the seconds from the first request to the end of the last step, and the part of these in which it read the bytes."""
import json
import os
import pathlib
import signal
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
    from diesel_loader.torch import DataLoader, Decode, Job, list_collate
    return DataLoader(dataset, BATCH, shuffle=True, transform=function, num_workers=0, decode=Decode(native="require" if function else True),
                      collate_fn=list_collate if lists else None, drop_last=True, job=Job(rank=rank, world_size=world))


def pytorch(workers, lists, function, dataset, rank, world):
    files = Files(dataset, function)
    sampler = torch.utils.data.DistributedSampler(files, world, rank, drop_last=True)
    return torch.utils.data.DataLoader(files, BATCH, sampler=sampler, num_workers=workers, persistent_workers=workers > 0, drop_last=True,
                                       collate_fn=as_they_are if lists else None)


def look(data, decoded):
    if decoded:
        assert data.shape == (BATCH, 3, SIDE, SIDE), data.shape
        assert data.numpy().view(numpy.uint64).sum() != 0  # reads every pixel
    elif isinstance(data, list):
        assert len(data) == BATCH, len(data)
        if any(int(sample.numpy().view(numpy.uint64).sum()) != SUM for sample in data):
            raise RuntimeError("a file does not have the bytes that were written")
    elif not (data.numpy().view(numpy.uint64).sum(axis=1) == SUM).all():
        raise RuntimeError("a file does not have the bytes that were written")


def train(batches, first, decoded, least_s):
    begin, steps, looked = time.perf_counter(), 0, 0.0
    while time.perf_counter() - begin < least_s:
        for batch in batches:
            at = time.perf_counter()
            look(first(batch), decoded)
            del batch
            looked += time.perf_counter() - at
            time.sleep(STEP_S)
            steps += 1
    return {"steps": steps, "seconds": time.perf_counter() - begin, "looked": looked}


def rank_main(batches, first, decoded, least_s, go, said):
    for batch in batches:
        look(first(batch), decoded)
    os.write(said, b"ready\n")
    if not os.read(go, 1):
        sys.exit("the process that started this accelerator ended")
    os.write(said, json.dumps(train(batches, first, decoded, least_s)).encode() + b"\n")  # short enough to be written by one write()


def on_end(*_):
    pid, status = os.waitpid(-1, os.WNOHANG)
    while pid:
        if status:
            sys.exit(f"an accelerator ended with exit status {os.waitstatus_to_exitcode(status)}")
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return


def main():
    loader, workers, lists, decoded, dataset, least_s, world = sys.argv[1:]
    lists, decoded, world = lists == "1", decoded == "1", int(world)
    torch.set_num_threads(1)
    make, first = {"diesel": (diesel, lambda batch: batch[0]),  # [data, labels]
                   "torch": (pytorch, lambda batch: batch)}[loader]
    function = transform() if decoded else None
    if loader == "diesel":
        import diesel_loader.torch  # noqa: F401 - so that its time is not the ranks'
    (go, went), (told, said) = os.pipe(), os.pipe()
    signal.signal(signal.SIGCHLD, on_end)
    for rank in range(world):
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(went)
            try:
                rank_main(make(int(workers), lists, function, dataset, rank, world), first, decoded, float(least_s), go, said)
                os._exit(0)  # skips the slow end of worker processes
            finally:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
    with os.fdopen(told) as lines:
        for _ in range(world):
            lines.readline()
        print("ready", flush=True)
        sys.stdin.readline()
        os.write(went, bytes(world))
        print(json.dumps([json.loads(lines.readline()) for _ in range(world)]), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
