# SPDX-License-Identifier: Apache-2.0
"""Iterates over images for some seconds after one epoch that is not counted: RandomResizedCrop(224), flip, float32, normalised,
channels first, batches of 64, as many threads or workers as cores.

    decode.py WAY DATASET SECONDS

diesel: dieseld runs the transform; python: the worker processes of diesel_loader do (native=False); torchvision: its ImageFolder,
with Pillow, and PyTorch's DataLoader; torchvision-io: its decode_jpeg() and transforms on tensors, likewise; other ways:
decode_peers.py. Prints, as JSON, samples, seconds, and CPU seconds meanwhile: of the whole machine, and of the process that started
this one with all its descendants."""
import importlib.util
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import decode_peers
from jobs import usage

BATCH, CORES = decode_peers.BATCH, decode_peers.CORES


def transform(v1):
    from torchvision import transforms
    if v1:
        return transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
                                   transforms.Normalize(decode_peers.MEAN, decode_peers.STD)])
    import torch
    from torchvision.transforms import v2
    return v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
                       v2.Normalize(decode_peers.MEAN, decode_peers.STD)])


def declared():
    """Returns the same transform, for environments without torchvision."""
    from diesel_loader import transforms
    return transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
                               transforms.Normalize(decode_peers.MEAN, decode_peers.STD)])


def diesel(dataset, python=False):
    from diesel_loader.torch import DataLoader, Decode
    steps = transform(v1=True) if python or importlib.util.find_spec("torchvision") else declared()
    return DataLoader(dataset, BATCH, shuffle=True, transform=steps, num_workers=CORES if python else "auto",
                      decode=Decode(native=False if python else "require"))


def torchvision(dataset, io=False):
    import torch.utils.data
    from torchvision import datasets
    options = {"loader": read} if io else {}
    return torch.utils.data.DataLoader(datasets.ImageFolder(dataset, transform(v1=not io), **options), BATCH, shuffle=True,
                                       num_workers=CORES, persistent_workers=True)


def read(path):
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    return decode_jpeg(read_file(path), ImageReadMode.RGB)


WAYS = {
    "diesel": diesel,
    "diesel-restarts": diesel,
    "python": lambda dataset: diesel(dataset, python=True),
    "torchvision": torchvision,
    "torchvision-io": lambda dataset: torchvision(dataset, io=True),
    **decode_peers.WAYS,
}


def look(batch):
    """Reads a batch, and returns its number of samples."""
    data = batch[0] if isinstance(batch, (list, tuple)) else batch
    assert tuple(data.shape[1:]) == (3, 224, 224) and str(data.dtype).endswith("float32"), (data.shape, data.dtype)
    data[:, :, 0, 0].sum()
    return len(data)


def main():
    way, dataset, least_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    epochs = WAYS[way](dataset)
    count = len if way == decode_peers.WHOLE else look
    for batch in epochs:
        count(batch)
    begin, busy, own, n = time.perf_counter(), usage.busy_s(), usage.cpu_of([os.getppid()]), 0
    while time.perf_counter() - begin < least_s:
        for batch in epochs:
            n += count(batch)
    took, busy, own = time.perf_counter() - begin, usage.busy_s() - busy, usage.cpu_of([os.getppid()]) - own
    print(json.dumps({"samples": n, "seconds": took, "cpu_s": busy, "own_cpu_s": own}))


if __name__ == "__main__":
    main()
