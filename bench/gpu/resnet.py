# SPDX-License-Identifier: Apache-2.0
"""Trains a ResNet on photographs by SGD for some seconds, with RandomResizedCrop, flip and normalisation. On a GPU it uses bfloat16 and
channels last.

    resnet.py WAY DATASET SECONDS WORKERS [--small]

torch: torchvision's ImageFolder and Pillow under PyTorch's DataLoader, with pin_memory. diesel: diesel_loader with device="cuda", whose
daemon decodes. alone: one batch on the device, repeated, which shows the device's speed without a loader. --small: on the CPU, a narrow
net, images of 64 x 64. Prints, as JSON, images, seconds, seconds in next(loader), CPU seconds of the machine, and the loss: mean of the
first and of the last tenth of the steps. The first 10 steps do not count."""
import argparse
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch
from jobs import usage
from torch import nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WARM_UP = 10


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.short = nn.Identity() if stride == 1 and channels == out else nn.Sequential(
            nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def resnet(classes, width=64, depths=(3, 4, 6, 3)):
    """Returns a ResNet-50 whose 3 x 3 convolution has the stride, as in torchvision."""
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = width
    for i, depth in enumerate(depths):
        for k in range(depth):
            layers.append(Bottleneck(channels, width << i, 2 if i and not k else 1))
            channels = 4 * (width << i)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def stock(dataset, batch, size, workers, device):
    from torchvision import datasets, transforms
    steps = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    loader = torch.utils.data.DataLoader(datasets.ImageFolder(dataset, transforms.Compose(steps)), batch, shuffle=True, drop_last=True,
                                         num_workers=workers, pin_memory=device == "cuda", persistent_workers=workers > 0)
    return ((images.to(device, non_blocking=True), labels.to(device, non_blocking=True)) for images, labels in endless(loader))


def diesel(dataset, batch, size, _, device):
    from diesel_loader import transforms
    from diesel_loader.torch import Batches, DataLoader
    steps = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    return endless(DataLoader(dataset, batch, shuffle=True, drop_last=True, transform=transforms.Compose(steps), batches=Batches(device=device)))


def endless(loader):
    """Repeats the loader endlessly. An epoch must have a batch, or this would never return."""
    if not len(loader):
        raise SystemExit("there are fewer images than one batch needs")
    while True:
        yield from loader


def alone(_, batch, size, __, device):
    images, labels = torch.randn(batch, 3, size, size, device=device), torch.randint(0, 10, (batch,), device=device)
    while True:
        yield images, labels


WAYS = {"torch": stock, "diesel": diesel, "alone": alone}


def train(options):
    device = "cpu" if options.small else "cuda"
    batch, size = (16, 64) if options.small else (256, 224)
    torch.manual_seed(1)
    model = resnet(10, 8, (1, 1, 1, 1)) if options.small else resnet(10)
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    batches = WAYS[options.way](options.dataset, batch, size, options.workers, device)
    losses, waited, n, begin, busy = [], 0.0, -WARM_UP, None, 0.0
    while begin is None or time.perf_counter() - begin < options.seconds:
        if n == 0:
            if device == "cuda":
                torch.cuda.synchronize()
            begin, busy = time.perf_counter(), usage.busy_s()
        before = time.perf_counter()
        images, labels = next(batches)
        waited += time.perf_counter() - before if n >= 0 else 0
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        n += 1
        if n > 0:
            losses.append(loss.detach())
        if n % 10 == 0:
            loss.item()  # so that no more than 10 steps are queued
    losses = torch.stack(losses).float().cpu()
    tenth, learns = max(1, len(losses) // 10), options.way != "alone"
    return {"images": n * batch, "seconds": time.perf_counter() - begin, "next_s": waited, "cpu_s": usage.busy_s() - busy,
            "loss_first": float(losses[:tenth].mean()) if learns else None, "loss_last": float(losses[-tenth:].mean()) if learns else None, "batch": batch, "size": size}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("dataset")
    parser.add_argument("seconds", type=float)
    parser.add_argument("workers", type=int)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    if options.small:
        torch.set_num_threads(1)
    print(json.dumps(train(options)), flush=True)
    os._exit(0)  # a loader's processes are in mid-epoch


if __name__ == "__main__":
    main()
