# SPDX-License-Identifier: Apache-2.0
"""A training job on diesel_loader whose own clock measures its waits: sensed_job.py DATASET OPTIONS.

Prints a JSON object per second: seconds covered, waited for data, and steps. Ends when its standard input does.
--step-ms: time of a step in addition to the model's work; --batch."""
import argparse
import json
import sys
import threading
import time

import torch

import diesel_loader.torch as diesel

parser = argparse.ArgumentParser()
parser.add_argument("dataset")
parser.add_argument("--step-ms", type=float, default=0)
parser.add_argument("--batch", type=int, default=64)
arguments = parser.parse_args()

torch.set_num_threads(1)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
model = torch.nn.Linear(64, 8)
waited = steps = epoch = 0
since = time.monotonic()
while not ended.is_set():
    loader = iter(diesel.DataLoader(arguments.dataset, batch_size=arguments.batch, shuffle=True, seed=epoch))
    epoch += 1
    while not ended.is_set():
        begin = time.monotonic()
        batch = next(loader, None)
        if batch is None:
            break
        now = time.monotonic()
        waited += now - begin
        steps += 1
        data = batch[0] if isinstance(batch[0], torch.Tensor) else torch.stack([item[:64] for item in batch[0]])
        model(data[:, :64].float()).sum().backward()
        # Computes instead of sleeping: a device that the trainer drives.
        until = time.monotonic() + arguments.step_ms / 1000
        while time.monotonic() < until:
            time.sleep(min(0.001, arguments.step_ms / 1000))
        if now - since >= 1:
            print(json.dumps({"covered": now - since, "waited": waited, "steps": steps}), flush=True)
            waited, steps, since = 0, 0, now
