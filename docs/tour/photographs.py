# SPDX-License-Identifier: Apache-2.0
"""A training job on a folder of large photographs.

    python3 photographs.py FOLDER [--draft] [--epochs N]

--draft is the fix: JPEGs are decoded at the smallest scale that still covers what is shown to the network.
"""
import argparse
import time

import torch
from PIL import Image
from torch import nn
from torchvision import datasets, transforms

SIZE = 64


def load(path):
    with Image.open(path) as image:
        return image.convert("RGB")


def load_draft(path):
    with Image.open(path) as image:
        image.draft("RGB", (4 * SIZE, 4 * SIZE))
        return image.convert("RGB")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--draft", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    transform = transforms.Compose([transforms.RandomResizedCrop(SIZE), transforms.ToTensor()])
    dataset = datasets.ImageFolder(args.folder, transform, loader=load_draft if args.draft else load)
    loader = torch.utils.data.DataLoader(dataset, batch_size=16, shuffle=True, num_workers=1)
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, len(dataset.classes)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    n_samples, begin = 0, None
    for _ in range(args.epochs):
        for images, labels in loader:
            begin = begin or time.perf_counter()
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n_samples += len(labels)
    print(f"{(n_samples - 16) / (time.perf_counter() - begin):.1f} samples/s")


if __name__ == "__main__":
    main()
