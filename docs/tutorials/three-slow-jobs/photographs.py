# SPDX-License-Identifier: Apache-2.0
"""A training job on a folder of large photographs.

    python3 photographs.py FOLDER [--dieseld DATASET] [--epochs N]

--dieseld is the fix: the same photographs, packed, come from dieseld, which runs the same transform.
"""
import argparse
import time

import torch
from torch import nn
from torchvision import datasets, transforms

SIZE = 64


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--dieseld", metavar="DATASET")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    transform = transforms.Compose([transforms.RandomResizedCrop(SIZE), transforms.ToTensor()])
    dataset = datasets.ImageFolder(args.folder, transform)
    if args.dieseld:
        from diesel_loader.torch import DataLoader
        loader = DataLoader(args.dieseld, batch_size=16, shuffle=True, seed=1, transform=transform)
    else:
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
