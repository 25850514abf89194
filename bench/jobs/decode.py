# SPDX-License-Identifier: Apache-2.0
"""Goes through images for some seconds after one epoch that is not counted: RandomResizedCrop(224), flip, ToTensor, Normalize,
batches of 64, a worker a core.

    decode.py diesel|python|torchvision DATASET SECONDS

diesel: dieseld runs the transform; python: the worker processes of diesel_loader do (native=False); torchvision: its ImageFolder
and PyTorch's DataLoader. Prints, as JSON, samples, seconds, and the CPU seconds of the whole machine meanwhile."""
import json
import os
import sys
import time

import torch
import torch.utils.data
from torchvision import datasets, transforms

BATCH, CORES = 64, len(os.sched_getaffinity(0))
TRANSFORM = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
                                transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])


def busy_s():
    """CPU seconds that all processes of the machine have used, as the kernel counts them."""
    with open("/proc/stat", encoding="ascii") as f:
        ticks = [int(field) for field in f.readline().split()[1:]]
    return (sum(ticks[:3]) + sum(ticks[5:7])) / os.sysconf("SC_CLK_TCK")


def make(way, dataset):
    if way == "torchvision":
        return torch.utils.data.DataLoader(datasets.ImageFolder(dataset, TRANSFORM), BATCH, shuffle=True, num_workers=CORES,
                                           persistent_workers=True)
    from diesel_loader.torch import DataLoader
    return DataLoader(dataset, BATCH, shuffle=True, transform=TRANSFORM, num_workers=CORES if way == "python" else "auto",
                      native="require" if way == "diesel" else False)


def main():
    torch.set_num_threads(1)
    loader, least_s = make(sys.argv[1], sys.argv[2]), float(sys.argv[3])
    for _ in loader:
        pass
    begin, busy, n = time.perf_counter(), busy_s(), 0
    while time.perf_counter() - begin < least_s:
        for data, _ in loader:
            n += len(data)
            data[:, :, 0, 0].sum()  # it is looked at
    took = time.perf_counter() - begin
    print(json.dumps({"samples": n, "seconds": took, "cpu_s": busy_s() - busy}))


if __name__ == "__main__":
    main()
