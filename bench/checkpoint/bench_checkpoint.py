#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how often checkpoints can be taken at an overhead of 3.5 %, by diesel_loader.checkpoint, torch.save() and DCP's
async_save(), on states of 50 MB to 1 GB. The device is simulated (a step sleeps), and the storage is this machine's."""
import argparse
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import support

JOB = pathlib.Path(__file__).parent / "job.py"
BOUND = 0.035
WAYS = ("diesel", "torch_save", "async_save")


def run(python, way, megabytes, step_s, seconds, folder):
    done = subprocess.run([python, JOB, way, str(megabytes), str(step_s), str(seconds), folder], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench_checkpoint: {way} failed: {(done.stderr.strip() or 'no output').splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=support.PYTHON, help="a Python with PyTorch 2 or newer, for async_save()")
    parser.add_argument("--sizes", default="50,250,1000", help="MB of state, with commas")
    parser.add_argument("--step", type=float, default=0.1, help="seconds of a simulated step")
    parser.add_argument("--seconds", type=float, default=20, help="of each run of diesel_loader; from 61 on, the worst minute is reported")
    options = parser.parse_args()
    version = subprocess.run([options.python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=False).stdout.strip()
    ways = WAYS if version >= "2" else WAYS[:2]
    figures, raw = {"torch": version, "step_s": options.step}, {}
    with support.Scratch() as scratch:
        for megabytes in map(int, options.sizes.split(",")):
            raw[megabytes] = {way: run(options.python, way, megabytes, options.step, options.seconds, scratch / f"{way}-{megabytes}")
                              for way in ways}
            mine = raw[megabytes]["diesel"]
            # A short run of a large state has not paid back its first checkpoint yet.
            at_bound = mine["per_hour"] * min(1, BOUND / max(mine["overhead"], 1e-9))
            figures |= {f"overhead_{megabytes}mb": mine["overhead"], f"per_hour_{megabytes}mb": at_bound,
                        f"snapshot_s_{megabytes}mb": mine["snapshot_s"]}
            if mine["worst_minute"] is not None:
                figures[f"worst_minute_{megabytes}mb"] = mine["worst_minute"]
            for way in ways[1:]:
                figures[f"{way}_per_hour_{megabytes}mb"] = raw[megabytes][way]["per_hour"]
                figures[f"more_often_than_{way}_{megabytes}mb"] = at_bound / raw[megabytes][way]["per_hour"]
            print(json.dumps({megabytes: raw[megabytes]}), flush=True)
    support.result_write("checkpoint", raw, **figures)


if __name__ == "__main__":
    main()
