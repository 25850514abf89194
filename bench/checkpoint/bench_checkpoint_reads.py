#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long a job waits for batches that come from a disk, while diesel_loader.checkpoint writes to the same disk. Its sides are: no
checkpoints, checkpoints as they are, and a process that writes without rests. The device is simulated."""
import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import support
from serving import Daemon, pack

SAMPLE, BATCH = 128 << 10, 16
SIDES = ("alone", "paced", "unpaced")
WINDOW_S = 2.0   # of which the worst is reported


def measure(loader, checkpointer, side, step_s, seconds, every_s):
    """Returns [(time since the start, time waited for the batch)], and the number of checkpoints."""
    steps, begin, saved, n_saves = [], time.perf_counter(), 0.0, 0
    batches = iter(loader)
    while (now := time.perf_counter()) - begin < seconds:
        try:
            next(batches)
        except StopIteration:
            batches = iter(loader)
            continue
        waited = time.perf_counter() - now
        time.sleep(step_s)
        if side != "alone" and now - saved >= every_s and not checkpointer._saver.is_writing:
            saved, n_saves = now, n_saves + 1
            checkpointer.save()
        checkpointer._poll()
        steps.append((now - begin, waited))
    checkpointer.wait()
    return steps, n_saves


def summary(rounds):
    times = sorted(took for steps, _ in rounds for _, took in steps)
    windows = []
    for steps, _ in rounds:
        of = {}
        for at, took in steps:
            of.setdefault(int(at / WINDOW_S), []).append(took)
        windows += [sum(them) / len(them) for them in of.values()]
    return {"mean_wait_ms": 1e3 * sum(times) / len(times), "p99_wait_ms": 1e3 * times[len(times) * 99 // 100], "worst_2s_mean_wait_ms": 1e3 * max(windows),
            "saves": sum(n for _, n in rounds)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset-mb", type=int, default=512)
    parser.add_argument("--state-mb", type=int, default=100)
    parser.add_argument("--step", type=float, default=0.05, help="seconds of a simulated step")
    parser.add_argument("--every", type=float, default=4.0, help="seconds from one checkpoint to the next")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each side in a round")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    with support.Scratch() as scratch:
        support.random_files(scratch / "raw", (options.dataset_mb << 20) // SAMPLE, SAMPLE)
        dataset = pack(scratch / "raw", scratch / "packed")
        rounds = {side: [] for side in SIDES}
        with Daemon(scratch, "--cache", "200M", "--window", "4"):
            import diesel_loader.torch as diesel
            import torch
            from diesel_loader.checkpoint import Checkpointer
            state = {"tensor": torch.randn(options.state_mb << 18)}
            checkpointer = Checkpointer(scratch / "checkpoints", every=1, keep=1, state=lambda: state)
            checkpointer.save()   # gets the memory
            checkpointer.wait()
            loader = diesel.DataLoader(dataset, BATCH, shuffle=True, seed=1, num_workers=0)
            next(iter(loader))    # starts all that stays
            for i in range(options.rounds):
                for side in SIDES[i % 3:] + SIDES[:i % 3]:
                    spread_s = options.every / 2 if side == "paced" else 0.0
                    checkpointer._spread = lambda spread_s=spread_s: spread_s
                    rounds[side].append(measure(loader, checkpointer, side, options.step, options.seconds, options.every))
            checkpointer.close()
            loader.close()
    raw = {side: summary(them) for side, them in rounds.items()}
    print(json.dumps(raw, indent=1))
    support.result_write("checkpoint_reads", raw, **{f"{side}_{name}": value for side, them in raw.items() for name, value in them.items()})


if __name__ == "__main__":
    main()
