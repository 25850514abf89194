# SPDX-License-Identifier: Apache-2.0
"""A job's own clock: the time that it waited for its loader and spent on checkpoints, by the clock that the kernel's events use.

    clock = Clock()
    clock.watch_torch()          # every next() of a DataLoader, whoever calls it: a Trainer, accelerate, a plain loop
    for batch in clock.batches(loader): ...     # any other iterable
    with clock.time("checkpoint"): torch.save(...)
    clock.step()                 # at the end of each step
    clock.write(path)
"""
import contextlib
import json
import os
import time


class Clock:
    def __init__(self, seconds):
        self.seconds = seconds
        self.spans = {kind: [] for kind in ("wait", "checkpoint", "validation")}
        self.ends = []
        self.samples = []

    def watch_torch(self):
        """Times the iterator's __next__, and still calls the original, so that a tool that inspects the job's stack finds it there."""
        from torch.utils.data import dataloader

        own = dataloader._BaseDataLoaderIter.__next__

        def timed(iterator):
            with self.time("wait"):
                return own(iterator)

        dataloader._BaseDataLoaderIter.__next__ = timed

    def batches(self, loader):
        iterator = iter(loader)
        while True:
            with self.time("wait"):
                batch = next(iterator, None)
            if batch is None:
                return
            yield batch

    @contextlib.contextmanager
    def time(self, kind):
        begin = time.monotonic()
        try:
            yield
        finally:
            self.spans[kind].append((begin, time.monotonic()))

    def step(self):
        """Marks the end of a step. Returns whether enough seconds have passed since the first step, which may compile."""
        self.ends.append(time.monotonic())
        return self.ends[-1] - self.ends[0] > self.seconds

    def write(self, path):
        """Writes shares of the time from the first next() to the end of the last step. Waiting includes the waits of a validation pass for
        its loader; `training` is the share without validation."""
        begin, end = self.spans["wait"][0][0], self.ends[-1]
        within = {kind: [(b, min(e, end)) for b, e in spans if b < end] for kind, spans in self.spans.items()}
        validation = within["validation"]
        apart = [(b, e) for b, e in within["wait"] if any(v <= b < w for v, w in validation)]
        wall, total = end - begin, {kind: sum(e - b for b, e in spans) for kind, spans in within.items()}
        training = wall - total["validation"]
        times = [b - a for a, b in zip(self.ends, self.ends[1:])]
        summary = {"pid": os.getpid(), "wall_s": wall, "steps": len(self.ends), "begin": begin, "end": end,
                   "wait": total["wait"] / wall, "checkpoint": total["checkpoint"] / wall,
                   "checkpoints": len(within["checkpoint"]), "validation": total["validation"] / wall,
                   "training": {"wall_s": training, "wait": (total["wait"] - sum(e - b for b, e in apart)) / training},
                   "first_step_s": self.ends[0] - begin, "step_s": sorted(times)[len(times) // 2] if times else None,
                   "samples": self.samples}
        with open(path, "w", encoding="ascii") as file:
            json.dump(summary, file)
