# SPDX-License-Identifier: Apache-2.0
"""What does recording cost the job?

One training job runs on, and in turns it is recorded (`diesel-analyze record -p`) and left alone for one
second; its own trace says how many steps it made meanwhile. Each recorded slice is compared with the mean of
the two beside it, and the median of these ratios must be at least 0.97. (Whole runs with and without recording
differ by 20 % among themselves on a virtual machine, which hides what is looked for.)

Judged are two ordinary jobs: steps of tens of ms from memory, and photograph-sized files from the page cache.
Shown beside them, not judged: thousands of small cached files a second, which makes the most records there can
be. Needs root and BPF.

usage: bench_overhead.py [--slices N] [--job NAME]
"""
import argparse
import bisect
import json
import os
import sqlite3
import subprocess
import sys
import time

import support

RATIO_MIN = 0.97
SLICE_S = 1.0
SETTLE_S = 0.2  # after the recorder has gone: unloading its programs takes CPU time, too
START_S = 9.0  # imports, first batches

JOBS = {
    "compute": "--workers 1 --prep 20 --width 32 --repeat 4",
    "photos": "--workers 2 --prep 20 --width 32 --repeat 2 --data {files}/large",
    "small-files": "--workers 2 --batch 64 --width 4 --data {files}/small",
}
JUDGED = ("compute", "photos")


def quiet_slice():
    time.sleep(SETTLE_S)
    begin = time.monotonic()
    time.sleep(SLICE_S)
    return begin, time.monotonic()


def recorded_slice(pid, session):
    """From the moment the job is tagged to the end of the recording; loading and unloading are not in it."""
    subprocess.run([support.program("diesel-analyze"), "record", "-o", str(session), "-d", f"{SLICE_S}s", "-p", str(pid)],
                   stderr=subprocess.DEVNULL, check=True)
    with sqlite3.connect(session) as database:
        info = dict(database.execute("SELECT key, value FROM info"))
    session.unlink()
    return int(info["start_ns"]) / 1e9, int(info["stop_ns"]) / 1e9, int(info["lost_events"])


def steps_per_second(begins, begin, end):
    """begins: when each step began. Steps are counted with fractions at the edges."""
    def position(at):
        i = bisect.bisect_right(begins, at) - 1
        return i + (at - begins[i]) / (begins[i + 1] - begins[i])
    return (position(end) - position(begin)) / (end - begin)


def measure(name, folder, n_slices):
    trace, session = folder / "trace", folder / "overhead.db"
    seconds = START_S + (n_slices + 1) * (2 * SLICE_S + SETTLE_S + 3)
    argv = [support.PYTHON, str(support.ROOT / "bench/jobs/train.py"), *JOBS[name].format(files=folder).split(),
            "--steps", "1000000", "--seconds", str(seconds), "--trace", str(trace)]
    slices, lost = [], 0
    with support.Steal() as steal, subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        time.sleep(START_S)
        slices.append(quiet_slice())
        for _ in range(n_slices):
            begin, end, n_lost = recorded_slice(job.pid, session)
            lost += n_lost
            slices += [(begin, end), quiet_slice()]
        job.wait()
    begins = [step[0] for step in json.loads(trace.read_text())]
    rates = [steps_per_second(begins, begin, end) for begin, end in slices]
    ratios = [2 * rates[i] / (rates[i - 1] + rates[i + 1]) for i in range(1, len(rates), 2)]
    print(f"{name:12} {support.median(rates[::2]):6.1f} steps/s alone, {support.median(rates[1::2]):6.1f} recorded: "
          f"ratio {support.median(ratios):.3f} (median of {n_slices}, {min(ratios):.3f} to {max(ratios):.3f}); "
          f"{lost} events lost", flush=True)
    return {"job": name, "ratio": support.median(ratios), "ratios": ratios, "steps_per_s": rates, "lost_events": lost,
            "steal": steal.ratio, "neighbours": steal.neighbours}


def main():
    parser = argparse.ArgumentParser(description="throughput of a job with and without recording")
    parser.add_argument("--slices", type=int, default=25, help="recorded ones of each job")
    parser.add_argument("--job", choices=JOBS, help="only this one")
    options = parser.parse_args()
    if os.geteuid() != 0:
        support.skip("recording needs root here")
    with support.Scratch() as folder:
        support.random_files(folder / "small", 2000, 16_000)
        support.random_files(folder / "large", 1000, 110_000)
        os.sync()
        runs = [measure(name, folder, options.slices) for name in JOBS if options.job in (None, name)]
    support.result_write("overhead", runs, **{f"{run['job'].replace('-', '_')}_ratio": run["ratio"] for run in runs},
                         lost_events=sum(run["lost_events"] for run in runs))
    return 0 if all(run["ratio"] >= RATIO_MIN for run in runs if run["job"] in JUDGED) else 1


if __name__ == "__main__":
    sys.exit(main())
