#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does a report say truly what saving costs, and how often to save?

Jobs of saves.py save in one way each, with PyPI's packages, under `diesel-analyze record`. Each clocks its calls, its waits for the save
before, and its steps. The report's causes are compared with these in points of the job's time. --sweep: a job also runs with many intervals,
which take turns; the best is the shortest one within a bound on the cost, and it is compared with the advised one.

usage: bench_saves.py [KIND ...] [--seconds N] [--python PYTHON]... [--sweep] | --table
"""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import support  # noqa: E402: it lies above
from peers.stock_python import Pythons  # noqa: E402

JOB = pathlib.Path(__file__).parent / "saves.py"
NEEDS = {"safetensors": "torch safetensors", "safetensors_thread": "torch safetensors", "orbax": "torch orbax",
         "lightning": "torch lightning", "accelerate": "torch accelerate", "transformers": "torch transformers accelerate"}
KINDS = dict(re.findall(r'^@kind\ndef (\w+)\(clock, folder\):\n    """(.*)"""', JOB.read_text(encoding="utf-8"), re.MULTILINE))
SWEPT = ("inline", "clone_thread", "dcp_thread")
CAUSES = ("stall", "wait", "tail")
POINTS = 2.0
LIMIT_S = 240
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
               "JAX_PLATFORMS": "cpu"}
BOUND = 0.10
STEPS_OF_A_TURN, SWEEP_RATIO, SWEEP_SECONDS = 60, 1.25, 70


def call(argv):
    done = subprocess.run([*support.PREFERRED, *map(str, argv)], env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False,
                          timeout=LIMIT_S)
    if done.returncode:
        sys.exit(f"bench_saves: {argv[-4]}: {(done.stderr.strip() or 'no output').splitlines()[-1]}")
    return done.stdout


def record(python, kind, folder, seconds, bound):
    """Returns (the job's own clock, the report)."""
    own = folder / kind
    own.mkdir(exist_ok=True)
    analyze = support.program("diesel-analyze")
    call([analyze, "record", "-o", own / "job.db", "--", python, JOB, kind, own, own / "clock", seconds])
    report = json.loads(call([analyze, "report", "--format", "json", "--checkpoint-overhead", f"{bound:.0%}", own / "job.db"]))
    return json.loads((own / "clock").read_text()), report


def times_of(clock):
    """Returns the length of each step without calls that save."""
    times = [after - before for before, after in zip(clock["ends"], clock["ends"][1:])]
    for save in clock["saves"]:
        if save["step"] < len(times):
            times[save["step"]] -= save["call"] + save["wait"]
    return times


def own_causes(clock, n_seen):
    """Returns the mean of each cause over the saves that the report sees, without the first, in seconds."""
    times, saves = times_of(clock), clock["saves"]
    last = len(times)
    behind = [next((k for k in range(save["step"], last) if clock["ends"][k] >= save.get("end", math.inf)), last) for save in saves]
    firsts = [save["step"] for save in saves] + [last]
    over = [min(at, first) for at, first in zip(behind, firsts[1:])]
    free = [k for k in range(3, last) if not any(first <= k < end for first, end in zip(firsts, over)) and k not in firsts]
    rows = []
    for i in range(1, min(n_seen, len(saves))):
        around = [times[k] for k in free if over[i - 1] <= k < firsts[i + 1]] or [times[k] for k in free]
        steps = range(firsts[i], max(over[i], min(firsts[i] + 1, last)))
        tail = sum(times[k] for k in steps) - len(steps) * statistics.fmean(around) if around else math.nan
        rows.append((saves[i]["call"], saves[i]["wait"], tail))
    return dict(zip(CAUSES, map(statistics.fmean, zip(*rows))))


def row_of(entry):
    """Returns the row of the table: seconds, and errors in points of the time."""
    clock, found = entry["clock"], entry["report"]["checkpoints"]
    wall = clock["ends"][-1] - clock["ends"][0]
    row = {"kind": entry["kind"], "saves": len(clock["saves"]), "wall_s": wall, "seen": len((found or {}).get("items") or [])}
    if not found or not found["causes"]:
        return row | {"wrong": "no causes"}
    causes = found["causes"]
    row["own"] = own_causes(clock, row["seen"])
    row["report"] = {"stall": causes["copy_s"] + causes["write_s"] + causes["await_s"], "wait": causes["wait_s"],
                     "tail": sum(causes[name] for name in ("lock_s", "cores_s", "storage_s", "loader_s", "unknown_s"))}
    row["points"] = {name: 100 * row["saves"] / wall * (row["report"][name] - row["own"][name]) for name in CAUSES}
    worst = max(row["points"].values(), key=abs)
    row["wrong"] = "" if abs(worst) <= POINTS else f"{worst:+.1f} points"
    if abs(row["seen"] - row["saves"]) > 1:
        row["wrong"] += f" {row['seen']} of {row['saves']} saves"
    return row


def keep(raw):
    raw = {kind: raw[kind] for kind in KINDS if kind in raw}
    points = [abs(value) for entry in raw.values() for value in entry["row"].get("points", {}).values()]
    support.result_write("saves", raw, quiet=True, kinds=len(raw), right=sum(not entry["row"]["wrong"] for entry in raw.values()),
                         worst_points=max(points, default=math.nan))


def show(raw):
    print("| save | with | saves | call, ms: own clock, report | wait for the save before | slower steps | largest error (points) |")
    print("|---|---|---|---|---|---|---|")
    for entry in raw.values():
        row = row_of(entry)
        cells = [f"{1000 * row['own'][name]:.0f}, {1000 * row['report'][name]:.0f}" for name in CAUSES] if "own" in row else ["-"] * 3
        error = f"{max(row['points'].values(), key=abs):+.1f}" if "points" in row else row["wrong"]
        print(f"| {KINDS[row['kind']]} | {entry['versions'].removeprefix('Python ')} | {row['saves']} | {' | '.join(cells)} | {error} |")


def crossing(costs):
    """Returns the interval at which the cost falls to the bound, on the straight line through the logarithms of all that were run."""
    logs = [(math.log(k), math.log(cost)) for k, cost in costs.items() if cost > 0]
    slope, at_one = statistics.linear_regression(*zip(*logs)) if len(logs) > 2 else (0, 0)
    return math.exp((math.log(BOUND) - at_one) / slope) if slope < 0 else None


def swept(clock):
    """Returns the cost of each interval as a ratio to the turns without saves around it, by the median of all turns."""
    ends, turns = clock["ends"], clock["turns"]
    steps = [(ends[behind] - ends[first]) / (behind - first) for (_, first), (_, behind) in zip(turns, turns[1:])]
    costs = {}
    for i in range(1, len(steps) - 1):
        if turns[i][0]:
            costs.setdefault(turns[i][0], []).append(steps[i] / statistics.fmean((steps[i - 1], steps[i + 1])) - 1)
    return {k: statistics.median(found) for k, found in costs.items()}


def sweep(python, kind, folder, seconds):
    clock, report = record(python, kind, folder, seconds, BOUND)
    found = report["checkpoints"]
    advised = found["advised_steps"] or (found["advised_least"] + found["advised_most"]) // 2
    around = sorted({max(1, round(advised * SWEEP_RATIO ** i)) for i in range(-3, 4)})
    every = ",".join(f"{k},0" for k in around)
    own = folder / kind
    call([python, JOB, kind, own, own / "clock", SWEEP_SECONDS, every, STEPS_OF_A_TURN])
    costs = swept(json.loads((own / "clock").read_text()))
    return {"kind": kind, "advised": advised, "clear": found["advised_steps"] is not None, "costs": costs, "best": crossing(costs)}


def keep_swept(raw):
    support.result_write("saves_sweep", raw, quiet=True, **{f"{kind}_{name}": found[name] for kind, found in raw.items()
                                                            for name in ("advised", "best")})


def main():
    parser = argparse.ArgumentParser(description="Compares what reports say about checkpoints with the jobs' own clocks.")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"one or more of: {', '.join(KINDS)}")
    parser.add_argument("--seconds", type=float, default=15, help="of training (default: %(default)s)")
    parser.add_argument("--python", action="append", help="a Python with PyTorch; may be repeated (default: as bench_stock.py)")
    parser.add_argument("--sweep", action="store_true", help=f"sweep intervals (default kinds: {', '.join(SWEPT)})")
    parser.add_argument("--table", action="store_true", help="measure nothing, but print the table of earlier runs")
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"no kind {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}")
    raw = support.raw_read("saves")
    if not options.table:
        if os.geteuid():
            support.skip("recording by BPF needs root")
        pythons = Pythons(options.python)
        with support.Scratch() as folder:
            for kind in options.kinds or (SWEPT if options.sweep else KINDS):
                python, versions = pythons.for_job(NEEDS.get(kind, "torch"))
                if options.sweep:
                    print(json.dumps(found := sweep(python, kind, folder, options.seconds)), flush=True)
                    keep_swept(support.raw_read("saves_sweep") | {kind: found})
                    continue
                clock, report = record(python, kind, folder, options.seconds, BOUND)
                raw[kind] = {"kind": kind, "versions": versions, "clock": clock, "report": {"checkpoints": report["checkpoints"]}}
                row = row_of(raw[kind])
                raw[kind]["row"] = row
                print(json.dumps(row), flush=True)
                keep(raw)
    show(raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())
