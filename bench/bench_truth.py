# SPDX-License-Identifier: Apache-2.0
"""Does the analyzer agree with the job's own clock?

Unmodified PyTorch training scripts (bench/jobs/train.py) run under `diesel-analyze record`, one per kind of job.
At its end each prints the shares of its time that its own clock measured around next(loader) and around its
checkpoints. The report must agree: data wait within 5 points, checkpoints within 3, the right verdict, less
than 5 % unexplained, no event lost. Needs root, BPF and a disk that can be throttled.

usage: bench_truth.py [JOB ...] [--keep FOLDER]
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

import support

WAIT_POINTS, CHECKPOINT_POINTS, OTHER_POINTS = 0.05, 0.03, 0.05
ATTEMPTS = 3  # a run with a burst of stolen CPU time is repeated
FILE_BYTES = 110_000  # size of a photograph in an ImageNet-like tree

# name: (arguments of the job, its files and their limit in reads per second, right verdicts). Files are None (samples in memory), 0 (files
# in the page cache), or the reads per second that the disk of evicted files allows.
JOBS = {
    "fetch-bound": ("--workers 2 --steps 80 --prep 4 --width 32 --repeat 8", 200, ["fetch-bound"]),
    "prep-bound": ("--workers 2 --steps 80 --prep 600 --width 32 --repeat 8", None, ["prep-bound"]),
    "device-bound": ("--workers 2 --steps 150 --prep 4 --width 32 --repeat 16", None, ["device-bound"]),
    "checkpoint": ("--workers 1 --steps 120 --prep 4 --width 32 --repeat 8 --checkpoint-every 20 "
                   "--checkpoint-mb 60", None, ["checkpoint-bound"]),
    "inline": ("--workers 0 --steps 80 --prep 20 --width 32 --repeat 8", 250, ["fetch-bound"]),
    "inline-prep": ("--workers 0 --steps 80 --prep 150 --width 32 --repeat 8", 0, ["prep-bound"]),
    "workers-1": ("--workers 1 --steps 70 --prep 50 --width 32 --repeat 8", 250, ["fetch-bound"]),
    "workers-4": ("--workers 4 --steps 80 --prep 40 --width 32 --repeat 8", 250, ["fetch-bound"]),
    "persistent": ("--workers 2 --steps 80 --prep 4 --width 32 --repeat 4 --epochs 2 --persistent", 200,
                   ["fetch-bound"]),
    "epochs": ("--workers 2 --steps 80 --prep 4 --width 32 --repeat 4 --epochs 2", 200, ["fetch-bound"]),
}


def run_once(name, folder, files):
    arguments, iops, verdicts = JOBS[name]
    recording = folder / f"{name}.db"
    argv = [support.PYTHON, str(support.ROOT / "bench/jobs/train.py"), *arguments.split(),
            "--trace", str(folder / f"{name}.trace")]
    if "--checkpoint-every" in arguments:
        argv += ["--checkpoint", str(folder / "checkpoint.pt")]
    record = [support.program("diesel-analyze"), "record", "-o", str(recording), "--"]
    with support.Steal() as steal:
        if iops is not None:
            argv += ["--data", str(folder / "files")]
        if iops:
            support.evict(files)
            with support.Throttle(folder, iops=iops, bps=200_000_000) as slow:
                output = subprocess.run(slow.command(record + argv), stdout=subprocess.PIPE, check=True)
        else:
            output = subprocess.run(record + argv, stdout=subprocess.PIPE, check=True)
    report = json.loads(subprocess.run(
        [support.program("diesel-analyze"), "report", "--format", "json", str(recording)],
        stdout=subprocess.PIPE, check=True).stdout)
    clock = json.loads(output.stdout.splitlines()[-1])
    shares = report["shares"]
    return {"job": name, "steal": steal.ratio, "clock": clock, "report": report,
            "wait_error": shares["fetch_stall"] + shares["prep_stall"] - clock["wait"],
            "checkpoint_error": shares["checkpoint_stall"] - clock["checkpoint"],
            "verdict_right": report["verdict"] in verdicts}


def failures(run):
    report = run["report"]
    checks = {
        f"data wait off by {100 * run['wait_error']:+.1f} points": abs(run["wait_error"]) <= WAIT_POINTS,
        f"checkpoints off by {100 * run['checkpoint_error']:+.1f} points":
            abs(run["checkpoint_error"]) <= CHECKPOINT_POINTS,
        f"verdict {report['verdict']}": run["verdict_right"],
        f"other {100 * report['shares']['other']:.1f} %": report["shares"]["other"] < OTHER_POINTS,
        f"{report['lost_events']} events lost": report["lost_events"] == 0,
    }
    return [text for text, good in checks.items() if not good]


def show(run):
    clock, shares = run["clock"], run["report"]["shares"]
    print(f"{run['job']:13} wait {100 * clock['wait']:5.1f} % by the job's clock, "
          f"{100 * (shares['fetch_stall'] + shares['prep_stall']):5.1f} % by the analyzer "
          f"(fetch {100 * shares['fetch_stall']:.1f}, prep {100 * shares['prep_stall']:.1f}); checkpoints "
          f"{100 * clock['checkpoint']:.1f} and {100 * shares['checkpoint_stall']:.1f} %; "
          f"{run['report']['verdict']}; other {100 * shares['other']:.1f} %, starved "
          f"{100 * shares['cpu_starved']:.1f} %, {clock['wall_s']:.1f} s, steal {100 * run['steal']:.1f} %", flush=True)
    for text in failures(run):
        print(f"{'':13} WRONG: {text}", flush=True)


def warm(files):
    """A short run, not measured: otherwise libraries that a job maps at its first step would be read at the throttled disk's pace, and that
    is neither loading nor computing."""
    subprocess.run([support.PYTHON, str(support.ROOT / "bench/jobs/train.py"), "--steps", "3", "--workers", "2",
                    "--data", str(files[0].parent)], stdout=subprocess.DEVNULL, check=True)


def measure(name, folder, files):
    """Measures a run, and repeats it if the host took CPU time away. Keeps all runs."""
    runs = []
    for _ in range(ATTEMPTS):
        runs.append(run_once(name, folder, files))
        if runs[-1]["steal"] <= support.Steal.LIMIT:
            break
    show(runs[-1])
    return runs


def main():
    parser = argparse.ArgumentParser(description="Compares the analyzer's report with the job's own clock.")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"one or more of: {', '.join(JOBS)}")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the recordings in FOLDER")
    options = parser.parse_args()
    names = options.jobs or list(JOBS)
    if unknown := set(names) - set(JOBS):
        parser.error(f"no job {', '.join(sorted(unknown))}")
    with support.Scratch(options.keep) as folder:
        if why := support.Throttle.why_not(folder):
            support.skip(why)
        files = support.random_files(folder / "files", 1300, FILE_BYTES)
        os.sync()
        warm(files)
        runs = [run for name in names for run in measure(name, folder, files)]
        if options.keep:
            kept = pathlib.Path(options.keep)
            for recording in folder.glob("*.[dt]*"):
                recording.rename(kept / recording.name)
    last = {run["job"]: run for run in runs}.values()
    wrong = sum(bool(failures(run)) for run in last)
    support.result_write(
        "truth", runs,
        jobs=len(last), wrong=wrong,
        worst_wait_points=100 * max(abs(run["wait_error"]) for run in last),
        worst_checkpoint_points=100 * max(abs(run["checkpoint_error"]) for run in last),
        worst_other_points=100 * max(run["report"]["shares"]["other"] for run in last),
        lost_events=sum(run["report"]["lost_events"] for run in last))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
