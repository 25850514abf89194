# SPDX-License-Identifier: Apache-2.0
"""An ordinary training script: a small CNN on class folders of photographs.

    python3 train.py DATA [--diesel] [--epochs N] [--workers N|auto]

With --diesel, DATA is what `dieselctl pack` made, and the loader comes from diesel_loader: that one
statement is the whole difference. Only it knows auto workers.
"""
import argparse
import json
import time

import torch
from torch import nn
from torchvision import datasets, transforms

SIZE = 64


def network(n_classes):
    def block(n_in, n_out):
        return [nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(*block(3, 24), *block(24, 48), *block(48, 64), *block(64, 64), nn.Flatten(),
                         nn.Linear(64 * (SIZE // 16) ** 2, n_classes))


def make_loader(args):
    transform = transforms.Compose([transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(),
                                    transforms.ToTensor()])
    if args.diesel:
        import diesel_loader.torch
        return diesel_loader.torch.DataLoader(args.data, batch_size=args.batch_size, shuffle=True,
                                              transform=transform, num_workers=args.workers)
    return torch.utils.data.DataLoader(datasets.ImageFolder(args.data, transform),
                                       batch_size=args.batch_size, shuffle=True, num_workers=args.workers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--diesel", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--workers", type=lambda text: text if text == "auto" else int(text), default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(1)  # the loader's workers need cores too
    loader = make_loader(args)
    model = network(len(loader.dataset.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    n_samples, begin = 0, None
    for _ in range(args.epochs):
        for images, labels in loader:
            begin = begin or time.perf_counter()  # leaves out the start-up
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n_samples += len(labels)
    seconds = time.perf_counter() - begin
    print(json.dumps({"samples": n_samples, "seconds": round(seconds, 3), "loss": round(loss.item(), 3),
                      "samples_per_s": round((n_samples - args.batch_size) / seconds, 1)}))


if __name__ == "__main__":
    main()
