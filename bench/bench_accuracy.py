# SPDX-License-Identifier: Apache-2.0
"""Does chunk-wise shuffle learn as well as a full shuffle? A small CNN on scikit-learn's 1,797 digits.

The digits are stored as 128 x 128 pixel images (each of the 8 x 8 pixels repeated 16 x 16 times, undone by
the loader), so that the training set fills six chunks of 4 MiB; the window is one chunk, the hardest case.
Full shuffle: PyTorch's RandomSampler over the same samples. Five seeds each, same network, same epochs.
"""
import argparse

import numpy
import support
import torch
from serving import Daemon, pack
from sklearn.datasets import load_digits
from torch import nn

import diesel_loader.torch

SEEDS = range(5)
EPOCHS = 12
BATCH = 32
ZOOM = 16
SIDE = 8


def write_tree(folder, images, labels):
    for i, (image, label) in enumerate(zip(images, labels)):
        group = folder / str(label)
        group.mkdir(parents=True, exist_ok=True)
        (group / f"{i:04d}.bin").write_bytes(numpy.kron(image, numpy.ones((ZOOM, ZOOM), numpy.uint8)).tobytes())


def pixels(data):
    """[B, 16384] uint8 as stored -> [B, 1, 8, 8] float."""
    side = SIDE * ZOOM
    return data.view(-1, 1, side, side)[:, :, ::ZOOM, ::ZOOM].float() / 16


def train_and_test(seed, epochs_of_batches, test_images, test_labels):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batches in epochs_of_batches:
        for images, labels in batches:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return (model(test_images).argmax(1) == test_labels).float().mean().item()


def diesel_epochs(dataset, seed):
    loader = diesel_loader.torch.DataLoader(dataset, batch_size=BATCH, shuffle=True, seed=seed, window_chunks=1)
    for _ in range(EPOCHS):
        yield ((pixels(data), labels) for data, labels in loader)


def full_epochs(images, labels, seed):
    generator = torch.Generator().manual_seed(seed)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=BATCH,
                                         shuffle=True, generator=generator)
    for _ in range(EPOCHS):
        yield loader


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    digits = load_digits()
    order = numpy.random.default_rng(0).permutation(len(digits.target))
    images, labels = digits.images[order].astype(numpy.uint8), digits.target[order]
    n_test = len(labels) // 5
    tensors = torch.from_numpy(images)[:, None].float() / 16, torch.from_numpy(labels)
    test = [t[:n_test] for t in tensors]
    train = [t[n_test:] for t in tensors]
    raw = {"full": [], "chunk": []}
    with support.Scratch() as scratch:
        write_tree(scratch / "raw", images[n_test:], labels[n_test:])
        dataset = pack(scratch / "raw", scratch / "packed", "--chunk-size", "4M")
        with Daemon(scratch):
            for seed in SEEDS:
                raw["full"].append(train_and_test(seed, full_epochs(*train, seed), *test))
                raw["chunk"].append(train_and_test(seed, diesel_epochs(dataset, seed), *test))
                print(f"  seed {seed}: full shuffle {raw['full'][-1]:.4f}, chunk-wise {raw['chunk'][-1]:.4f}",
                      flush=True)
    mean = {name: sum(values) / len(values) for name, values in raw.items()}
    spread = max(max(values) - min(values) for values in raw.values())
    support.result_write("accuracy", raw, full=mean["full"], chunk=mean["chunk"], spread=spread,
                         same=int(abs(mean["full"] - mean["chunk"]) <= spread))


if __name__ == "__main__":
    main()
