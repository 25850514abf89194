# SPDX-License-Identifier: Apache-2.0
"""Times two epochs of images, shuffled, from the construction of the data set to the last batch.

    imagefolder.py files|diesel|python PATH WORKERS

files: torchvision's ImageFolder and PyTorch's DataLoader. diesel: the line changed to diesel_loader's. python: the same, but the same
Python code as for files decodes the images, not dieseld. Prints, as JSON, the images and
seconds of each epoch, and the sum of all labels."""
import json
import os
import sys
import time

import torch
from torchvision import transforms
from torchvision.datasets import ImageFolder

SIDE, BATCH, EPOCHS = 64, 64, 2


def loader_of(kind, path, workers):
    transform = transforms.Compose([transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip(), transforms.PILToTensor()])
    if kind != "files":
        from diesel_loader.torch import DataLoader, Decode
        options = {"decode": Decode(native=False), "num_workers": workers} if kind == "python" else {}
        return DataLoader(path, batch_size=BATCH, shuffle=True, seed=1, transform=transform, **options)
    return torch.utils.data.DataLoader(ImageFolder(path, transform), batch_size=BATCH, shuffle=True, num_workers=workers,
                                       persistent_workers=workers > 0)


def main():
    kind, path, workers = sys.argv[1:]
    if kind != "files":
        import diesel_loader.torch  # noqa: F401  imports are not counted
    torch.set_num_threads(1)
    torch.manual_seed(1)
    begin, seconds, images, labels = time.perf_counter(), [], 0, 0
    loader = loader_of(kind, path, int(workers))
    for epoch in range(EPOCHS):
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(epoch)
        for data, label in loader:
            images += len(data)
            labels += int(label.sum())
        seconds.append(time.perf_counter() - begin)
        begin = time.perf_counter()
    print(json.dumps({"images": images // EPOCHS, "seconds": seconds, "labels": labels}), flush=True)
    os._exit(0)  # skips the slow end of worker processes


if __name__ == "__main__":
    main()
