#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long a job waits for batches that come from a disk, while diesel_loader.checkpoint writes to the same disk. Its sides are
no checkpoints (alone), checkpoints as they are (paced), the same while dieseld and the process that writes know nothing of each other (blind), and
also without rests (unpaced). The device is simulated. The disk is the machine's, or with --disk a slow one: a FUSE file system that gives all reads and
writes one after the other their time."""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import support
from serving import Daemon, pack

SAMPLE, BATCH = 128 << 10, 16
SIDES = ("alone", "paced", "blind", "unpaced")
WINDOW_S = 2.0   # of which the worst is reported


@contextlib.contextmanager
def slow_disk(folder, mb_s):
    """Yields a folder on a disk that reads and writes at most that fast."""
    (folder / "on-disk").mkdir()
    (folder / "disk").mkdir()
    if not mb_s:
        yield folder / "disk"
        return
    mirror = subprocess.Popen([support.program("fuse_mirror"), folder / "on-disk", folder / "disk"], env={**os.environ, "FUSE_MIRROR_MB_S": str(mb_s)})
    try:
        support.wait_for(lambda: os.path.ismount(folder / "disk") or mirror.poll() is not None, "the mount")
        if mirror.poll() is not None:
            support.skip("--disk needs root and /dev/fuse")
        yield folder / "disk"
    finally:
        subprocess.run(["umount", "--lazy", folder / "disk"], check=False)   # this process may still use it
        mirror.terminate()
        mirror.wait()


def measure(loader, checkpointer, side, step_s, seconds, every_s):
    """Returns [(time since the start, time waited for the batch)], and the times until the checkpoints were on disk."""
    newest = checkpointer.figures()["newest"]
    batches = iter(loader)
    next(batches)   # fills the window
    steps, begin, saved, written = [], time.perf_counter(), 0.0, []
    while (now := time.perf_counter()) - begin < seconds:
        try:
            next(batches)
        except StopIteration:
            batches = iter(loader)
            next(batches)
            continue
        waited = time.perf_counter() - now
        time.sleep(step_s)
        if side != "alone" and now - saved >= every_s and not checkpointer._saver.is_writing:
            saved = now
            checkpointer.save()
        checkpointer._poll()
        if checkpointer.figures()["newest"] != newest:
            newest = checkpointer.figures()["newest"]
            written.append(time.perf_counter() - saved)
        steps.append((now - begin, waited))
    checkpointer.wait()
    return steps, written


def summary(rounds):
    times = sorted(took for steps, _ in rounds for _, took in steps)
    windows = []
    for steps, _ in rounds:
        of = {}
        for at, took in steps:
            of.setdefault(int(at / WINDOW_S), []).append(took)
        windows += [sum(them) / len(them) for them in of.values()]
    return {"mean_wait_ms": 1e3 * sum(times) / len(times), "p99_wait_ms": 1e3 * times[len(times) * 99 // 100], "worst_2s_mean_wait_ms": 1e3 * max(windows),
            "saves": sum(len(written) for _, written in rounds), "written_s": max((s for _, written in rounds for s in written), default=0.0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset-mb", type=int, default=512)
    parser.add_argument("--state-mb", type=int, default=100)
    parser.add_argument("--step", type=float, default=0.05, help="seconds of a simulated step")
    parser.add_argument("--every", type=float, default=4.0, help="seconds from one checkpoint to the next")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each side in a round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--disk", type=int, default=0, metavar="MB_S", help="megabytes per second of a slow disk; 0: the machine's own")
    options = parser.parse_args()
    with support.Scratch() as scratch, slow_disk(scratch, options.disk) as disk:
        support.random_files(scratch / "raw", (options.dataset_mb << 20) // SAMPLE, SAMPLE)
        dataset = pack(scratch / "raw", scratch / ("on-disk" if options.disk else "disk") / "packed")
        dataset = str(dataset).replace("/on-disk/", "/disk/")
        rounds = {side: [] for side in SIDES}
        with Daemon(scratch, "--cache", "150M", "--window", "4", "--metrics", "off"):
            import diesel_loader.torch as diesel
            import torch
            from diesel_loader.checkpoint import Checkpointer
            state = {"tensor": torch.randn(options.state_mb << 18)}
            checkpointer = Checkpointer(disk / "checkpoints", every=1, keep=1, state=lambda: state)
            checkpointer.save()   # gets the memory
            checkpointer.wait()
            loader = diesel.DataLoader(dataset, BATCH, shuffle=True, seed=1, num_workers=0)
            next(iter(loader))    # starts all that stays
            report = checkpointer._report
            for i in range(options.rounds):
                for side in SIDES[i % 4:] + SIDES[:i % 4]:
                    spread_s = 0.0 if side == "unpaced" else options.every / 2
                    checkpointer._spread = lambda spread_s=spread_s: spread_s
                    checkpointer._report = (lambda: None) if side in ("blind", "unpaced") else report
                    rounds[side].append(measure(loader, checkpointer, side, options.step, options.seconds, options.every))
            checkpointer.close()
            loader.close()
    raw = {side: summary(them) for side, them in rounds.items()}
    print(json.dumps(raw, indent=1))
    support.result_write("checkpoint_reads", raw, **{f"{side}_{name}": value for side, them in raw.items() for name, value in them.items()})


if __name__ == "__main__":
    main()
