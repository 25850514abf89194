# SPDX-License-Identifier: Apache-2.0
"""A training job that is careful about its checkpoints, and makes them too often.

    python3 checkpoints.py FILE [--every STEPS] [--steps N]
"""
import argparse
import os
import time

import torch
from torch import nn


def save(model, optimizer, path):
    with open(path + ".tmp", "wb") as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dataset = torch.utils.data.TensorDataset(torch.randn(4096, 512), torch.randint(0, 10, (4096,)))
    loader = torch.utils.data.DataLoader(dataset, batch_size=16, shuffle=True, num_workers=1)
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps, begin = 0, None
    while steps < args.steps:
        for features, labels in loader:
            begin = begin or time.perf_counter()
            loss = nn.functional.cross_entropy(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps % args.every == 0:
                save(model, optimizer, args.path)
            if steps == args.steps:
                break
    print(f"{16 * (steps - 1) / (time.perf_counter() - begin):.1f} samples/s")


if __name__ == "__main__":
    main()
