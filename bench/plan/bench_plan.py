# SPDX-License-Identifier: Apache-2.0
"""Does a plan of `diesel-analyze plan` hold, and what does it gain?

Measured: two PyTorch jobs, one hungry for cores and one that waits for its device (a sleep), are recorded, each by itself. From the two
recordings `plan` divides this machine's cores. Then both run at the same time in control groups with quotas of CPU time: equal ones, and
those of the plan. The error is that of the predicted steps per second; the gain is against equal quotas.

Simulated: Synergy's setting (OSDI 2022), with the throughputs that its authors published. 16 nodes have 8 accelerators, 24 cores and 500 GB
each. 7 to 9 jobs come per hour, each with one accelerator: 20 % images, 70 % language, 10 % speech.

usage: bench_plan.py [--seconds N] [--rounds N] [--only measured|simulated]
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import support  # noqa: E402: it lies above

HERE = pathlib.Path(__file__).resolve().parent
JOBS = {"hungry": ("4", "1"), "modest": ("0.5", "25")}  # ms of CPU per sample, ms of the device per step
STEP = 0.25  # of a core
PERIOD_US = 100_000
ATTEMPTS = 4
MIX = {"alexnet": 4, "resnet18": 4, "resnet50": 4, "mobilenet": 4, "shufflenet": 4, "language": 70, "m5": 5, "deepspeech": 5}
SEEDS = range(1, 6)


class Groups:
    """CPU control groups, version 1 or 2, below one that the kernel prefers to the machine's other work."""

    V1, V2 = pathlib.Path("/sys/fs/cgroup/cpu"), pathlib.Path("/sys/fs/cgroup")

    def __enter__(self):
        self.v1 = (self.V1 / "cpu.cfs_period_us").exists()
        self.parent = (self.V1 if self.v1 else self.V2) / f"diesel-plan-{os.getpid()}"
        try:
            self.parent.mkdir()
            if not self.v1:
                (self.V2 / "cgroup.subtree_control").write_text("+cpu")
                (self.parent / "cgroup.subtree_control").write_text("+cpu")
            (self.parent / ("cpu.shares" if self.v1 else "cpu.weight")).write_text("262144" if self.v1 else "10000")
            for name in JOBS:
                (self.parent / name).mkdir()
        except OSError as error:
            self.__exit__()
            support.skip(f"cannot use CPU control groups: {error}")
        return self

    def quota(self, name, cores):
        group, quota_us = self.parent / name, int(cores * PERIOD_US) if cores else -1
        if self.v1:
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us if cores else 'max'} {PERIOD_US}")

    def command(self, name, argv):
        return ["/bin/sh", "-c", f'echo $$ >{self.parent / name}/cgroup.procs && exec "$@"', "sh", *map(str, argv)]

    def __exit__(self, *_):
        for folder in [*(self.parent / name for name in JOBS), self.parent]:
            for _ in range(100):
                with contextlib.suppress(FileNotFoundError):
                    try:
                        folder.rmdir()
                    except OSError:
                        time.sleep(0.1)
                        continue
                break


def job(name, workers, seconds):
    return [support.PYTHON, HERE / "job.py", *JOBS[name], workers, seconds]


def record(groups, folder, name, workers, seconds):
    groups.quota(name, None)
    argv = [support.program("diesel-analyze"), "record", "-o", folder / f"{name}.db", "--", *job(name, workers, seconds)]
    subprocess.run(groups.command(name, argv), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def together(groups, shares, seconds):
    """Runs both jobs at the same time: {name: (cores, workers)}. Returns the steps per second of each."""
    running = {}
    for name, (cores, workers) in shares.items():
        groups.quota(name, cores)
        running[name] = subprocess.Popen(groups.command(name, job(name, workers, seconds)), stdout=subprocess.PIPE, text=True)
    return {name: float(process.communicate()[0]) for name, process in running.items()}


def ask(folder, cores):
    """Returns the plan, and why a job's figures do not suffice for one; None: they do."""
    done = subprocess.run([support.program("diesel-analyze"), "plan", "--json", "--slots", "--core-step", str(STEP), "--cluster",
                           f"2,{cores},8G", *(folder / f"{name}.db" for name in JOBS)], stdout=subprocess.PIPE, check=True)
    plan = json.loads(done.stdout)
    return plan, next((f"{one['name']}: {one['note']}" for one in plan["jobs"] if not one["cores_known"]), None)


def planned(groups, folder, cores, workers, seconds):
    """Records until the recordings suffice: the machine's other work may disturb them."""
    for _ in range(ATTEMPTS):
        for one in JOBS:
            record(groups, folder, one, workers[one], seconds)
        plan, why = ask(folder, cores)
        if not why:
            return plan
    raise SystemExit(why)


def measured(options):
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name, Groups() as groups:
        folder = pathlib.Path(name)
        workers = {"hungry": max(1, cores), "modest": 1}
        plan = dict(zip(JOBS, planned(groups, folder, cores, workers, options.seconds)["jobs"]))
        equal = {one: (plan[one]["shares"]["equal"]["cores"], workers[one]) for one in JOBS}
        tune = {one: (plan[one]["shares"]["tune"]["cores"], plan[one]["workers"]) for one in JOBS}
        print(f"shares: equal {equal}, tune {tune}", flush=True)
        rounds = []
        for _ in range(options.rounds):
            rounds.append({"equal": together(groups, equal, options.seconds), "tune": together(groups, tune, options.seconds)})
            print(rounds[-1], flush=True)
    figures = {}
    for one in JOBS:
        rates = {side: statistics.median(run[side][one] for run in rounds) for side in ("equal", "tune")}
        figures[f"{one}_of_equal"] = rates["tune"] / rates["equal"]
        for side in ("equal", "tune"):
            figures[f"{one}_{side}_error_percent"] = 100 * (plan[one]["shares"][side]["speed"] / rates[side] - 1)
    figures["together_of_equal"] = statistics.mean(figures[f"{one}_of_equal"] for one in JOBS)
    return {"plan": plan, "rounds": rounds}, figures


def simulated():
    profiles = [f"{HERE / name}.json,weight={weight}" for name, weight in MIX.items()]
    runs = []
    for load in (7, 8, 9):
        for seed in SEEDS:
            done = subprocess.run([support.program("diesel-analyze"), "plan", "--json", "--simulate", "--cluster", "16x8,24,500GB", "--load",
                                   str(load), "--seed", str(seed), *profiles], stdout=subprocess.PIPE, check=True)
            runs.append(json.loads(done.stdout))
    figures = {}
    for load in (7, 8, 9):
        of_load = [run["plans"] for run in runs if run["jobs_per_hour"] == load]
        for side in ("equal", "greedy", "tune"):
            for figure in ("mean", "p99"):
                figures[f"simulated_{load}_per_hour_{side}_{figure}_hours"] = statistics.mean(
                    plans[side][f"{figure}_s"] for plans in of_load) / 3600
        figures[f"simulated_{load}_per_hour_gain"] = statistics.mean(
            plans["equal"]["mean_s"] / plans["tune"]["mean_s"] for plans in of_load)
    return runs, figures


def main():
    parser = argparse.ArgumentParser(description="Compares plans for a cluster with real and simulated runs.")
    parser.add_argument("--seconds", type=float, default=10, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("measured", "simulated"))
    options = parser.parse_args()
    raw, figures = {}, {}
    if options.only != "simulated":
        raw["measured"], found = measured(options)
        figures |= found
    if options.only != "measured":
        raw["simulated"], found = simulated()
        figures |= found
    support.result_write("plan" if not options.only else "plan-part", raw, **figures)


main()
