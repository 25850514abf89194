# SPDX-License-Identifier: Apache-2.0
"""A PyTorch job whose needs are known: CPU ms per sample in its workers, ms of a device (a sleep) per step.

    job.py CPU_MS DEVICE_MS WORKERS SECONDS

Prints its steps per second by its own clock, after a warm-up of 2 s.
"""
import hashlib
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

CPU_S, DEVICE_S, WORKERS, SECONDS = float(sys.argv[1]) / 1e3, float(sys.argv[2]) / 1e3, int(sys.argv[3]), float(sys.argv[4])
WARM_UP_S = 2
BLOCK = bytes(1 << 16)

torch.set_num_threads(1)


class Samples(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        end = time.thread_time() + CPU_S
        while time.thread_time() < end:
            hashlib.sha256(BLOCK)  # without the interpreter lock, as decoders are
        return torch.ones(64)


def main():
    model = torch.nn.Linear(64, 1)
    begin, steps, since = time.monotonic(), 0, None
    for batch in DataLoader(Samples(), batch_size=4, num_workers=WORKERS):
        model(batch).sum().backward()
        time.sleep(DEVICE_S)
        now = time.monotonic()
        if since is None and now - begin > WARM_UP_S:
            since = now
        elif since is not None:
            steps += 1
        if now - begin > WARM_UP_S + SECONDS:
            break
    print(steps / (now - since), flush=True)


main()
