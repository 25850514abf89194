# SPDX-License-Identifier: Apache-2.0
"""A training job on diesel_loader that transforms its samples in its own process: served.py DATASET. The clock is
train.py's."""
import argparse
import sys

import torch

import diesel_loader.torch as diesel
import train


def transform(sample):
    train.hold(0.002)
    return sample[:3 * train.SIDE * train.SIDE].reshape(3, train.SIDE, train.SIDE).float() / 255


def main():
    torch.set_num_threads(1)
    options = argparse.Namespace(epochs=1, step_ms=8, trace=None)
    loader = diesel.DataLoader(sys.argv[1], batch_size=4, shuffle=True, num_workers=0, transform=transform)
    clock = train.Clock()

    def batches():
        for number, (images, labels) in enumerate(loader):
            if number == 200:
                return
            yield images, labels

    train.train(options, batches, clock)
    train.report(options, clock)


if __name__ == "__main__":
    main()
