# SPDX-License-Identifier: Apache-2.0
"""What does recording cost the job?

The same training script runs under `diesel-analyze record` and without, in turns, and the medians of its
throughput are compared: at least 0.97 of it must be left. Two kinds of job: one whose steps take tens of ms, and
one with many small files a second, which makes the most events. Needs root and BPF.

usage: bench_overhead.py [--pairs N]
"""
import argparse
import json
import os
import subprocess
import sys

import support

RATIO_MIN = 0.97

JOBS = {
    "compute": "--workers 2 --steps 60 --prep 40 --width 32 --repeat 4",
    "small-files": "--workers 2 --steps 700 --batch 64 --width 4 --files",
}


def throughput(arguments, folder, recorded):
    argv = [support.PYTHON, str(support.ROOT / "bench/jobs/train.py"),
            *arguments.replace("--files", f"--data {folder / 'files'}").split()]
    session = folder / "overhead.db"
    if recorded:
        argv = [support.program("diesel-analyze"), "record", "-o", str(session), "--", *argv]
    output = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    session.unlink(missing_ok=True)
    return json.loads(output.splitlines()[-1])["samples_per_s"]


def measure(name, folder, n_pairs):
    """Alternating runs. A pair that was disturbed by the host or by other processes does not count, but there
    are at most four tries for each: then the least disturbed ones are taken."""
    pairs = []
    while len(pairs) < 4 * n_pairs and sum(not pair["disturbed"] for pair in pairs) < n_pairs:
        with support.Steal() as steal:
            without = throughput(JOBS[name], folder, False)
            recorded = throughput(JOBS[name], folder, True)
        pairs.append({"without": without, "recorded": recorded, "steal": steal.ratio,
                      "neighbours": steal.neighbours, "disturbed": steal.disturbed})
    chosen = sorted(pairs, key=lambda pair: pair["steal"] + pair["neighbours"])[:n_pairs]
    without = support.median([pair["without"] for pair in chosen])
    recorded = support.median([pair["recorded"] for pair in chosen])
    print(f"{name:12} {without:8.0f} samples/s without, {recorded:8.0f} recorded: ratio {recorded / without:.3f} "
          f"(medians of {n_pairs} pairs of {len(pairs)}; {sum(pair['disturbed'] for pair in chosen)} of them "
          f"disturbed)", flush=True)
    return {"job": name, "ratio": recorded / without, "pairs": pairs}


def main():
    parser = argparse.ArgumentParser(description="throughput of a job with and without recording")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--job", choices=JOBS, help="only this one")
    options = parser.parse_args()
    if os.geteuid() != 0:
        support.skip("recording needs root here")
    with support.Scratch() as folder:
        support.random_files(folder / "files", 2000, 16_000)
        os.sync()
        throughput(JOBS["small-files"], folder, False)  # warms libraries and files
        runs = [measure(name, folder, options.pairs) for name in JOBS if options.job in (None, name)]
    support.result_write("overhead", runs, **{f"{run['job'].replace('-', '_')}_ratio": run["ratio"] for run in runs})
    return 0 if min(run["ratio"] for run in runs) >= RATIO_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
