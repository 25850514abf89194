# SPDX-License-Identifier: Apache-2.0
"""Training job that may be killed at any time. It writes each batch and its position as one line of a journal, and restarts where the
journal ends. After a line of input it ends with the current epoch.

    killed_job.py DATASET SOCKET JOURNAL"""
import hashlib
import json
import os
import select
import sys

import diesel_loader
import diesel_loader.numpy as diesel
import numpy


def digest(data):
    return numpy.frombuffer(hashlib.md5(data).digest(), numpy.uint8)


def last_state(journal):
    """Returns the state of the last complete line, or None. Ignores a line that was cut off."""
    lines = [line for line in journal.splitlines() if line.endswith("}}")]
    return json.loads(lines[-1])["state"] if lines else None


def main():
    path, socket, name = sys.argv[1:]
    dataset = diesel_loader.Dataset(path, socket=socket)
    loader = diesel.DataLoader(dataset, batch_size=32, shuffle=True, seed=5, order=diesel.Order(window_chunks=1), transform=digest, num_workers=2, batches=diesel.Batches(return_ids=True))
    journal = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with open(journal, encoding="utf-8", closefd=False) as file:
        text = file.read()
    if text and not text.endswith("\n"):
        os.write(journal, b"\n")
    state = last_state(text)
    if state:
        loader.load_state_dict(state)
    epoch = state["epoch"] if state else 0
    if state and state["samples"] == len(dataset):
        epoch += 1
        loader.set_epoch(epoch)
    while True:
        for data, _, ids in loader:
            samples = ids.tolist()
            for sample, made in zip(samples, data):
                if bytes(made) != hashlib.md5(dataset[sample][0]).digest():
                    sys.exit(f"sample {sample} is not what was packed")
            line = json.dumps({"epoch": epoch, "samples": samples, "state": loader.state_dict()}) + "\n"
            if os.write(journal, line.encode()) != len(line):
                sys.exit("the journal cannot be written")
        epoch += 1
        if select.select([sys.stdin], [], [], 0)[0]:
            return


if __name__ == "__main__":
    main()
