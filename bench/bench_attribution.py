# SPDX-License-Identifier: Apache-2.0
"""Does one passive recording say what three runs of the same job say?

The truth of a configuration is the differential of DS-Analyzer: the same unmodified training script
(bench/jobs/train.py) runs with batches from memory (T_synthetic, by analyzer/truth: random values, no workers),
with its files in the page cache (T_cached), and with its files evicted on a throttled disk (T_cold):

    prep = (T_cached - T_synthetic) / T_cold        fetch = (T_cold - T_cached) / T_cold

Rounds of the three runs alternate until two of them agree within 2 points (at most 4 rounds); the truth is the mean
of these two. Then one cold run is recorded, and the report's fetch_stall is held against fetch, its prep_stall +
cpu_starved against prep, and its data wait against the job's own clock. Runs in which the host or other processes
took CPU time away are repeated. Needs root, BPF and a disk that can be throttled.

usage: bench_attribution.py [CONFIG ...] [--keep FOLDER] [--lock FILE]
"""
import argparse
import contextlib
import fcntl
import itertools
import json
import os
import pathlib
import subprocess
import sys

import support

FETCH_POINTS, PREP_POINTS, WAIT_POINTS, OTHER_POINTS = 3.0, 4.0, 1.5, 3.0
FETCH_MEAN_POINTS, PREP_MEAN_POINTS = 1.5, 2.0
TRUTH_POINTS = 2.0  # a truth that repeats no better than this is no yardstick
UNPRIVILEGED_POINTS, SPREAD_POINTS = 10.0, 2.0
ROUNDS_MAX, ATTEMPTS = 4, 3
PRIORITY = -20  # of all runs alike: other processes of the machine disturb them less
WALL_RATIO = 0.05  # a recorded run this far from the cold ones was another run: repeat it
N_FILES, FILE_BYTES, BATCH = 1300, 110_000, 16

# name: workers, MB/s of the disk, transforms a sample (27 us each), forward passes a step (3.4 ms each), steps
CONFIGS = {
    "w0-fetch": (0, 16, 40, 8, 50),
    "w0-mixed": (0, 32, 100, 16, 50),
    "w0-prep": (0, 64, 200, 8, 50),
    "w0-device": (0, 64, 40, 32, 50),
    "w1-fetch": (1, 16, 40, 8, 60),
    "w1-mixed": (1, 24, 150, 12, 60),
    "w1-prep": (1, 48, 250, 8, 50),
    "w1-device": (1, 20, 60, 32, 60),
    "w2-fetch": (2, 12, 60, 16, 60),
    "w2-mixed": (2, 24, 250, 12, 70),
    "w2-prep": (2, 48, 400, 8, 60),
    "w2-device": (2, 24, 60, 32, 60),
    "w4-fetch": (4, 12, 60, 8, 60),
    "w4-mixed": (4, 24, 200, 16, 70),
    "w4-prep": (4, 48, 400, 8, 60),
    "w4-device": (4, 24, 60, 32, 70),
}
SPREAD_CONFIG, SPREAD_RUNS = "w2-fetch", 5


class Bench:
    """A folder of files on a disk that can be throttled, and runs of jobs on them."""

    def __init__(self, folder, files, rounds=ROUNDS_MAX, attempts=ATTEMPTS):
        self.folder, self.files, self.rounds, self.attempts = folder, files, rounds, attempts

    def argv(self, name):
        workers, _, prep, repeat, steps = CONFIGS[name]
        return [support.PYTHON, str(support.ROOT / "bench/jobs/train.py"), "--data", str(self.folder / "files"),
                "--workers", str(workers), "--prep", str(prep), "--repeat", str(repeat), "--steps", str(steps),
                "--width", "32", "--batch", str(BATCH)]

    def run_once(self, name, kind, session=None, options=()):
        argv, out = self.argv(name), self.folder / "clock"
        environment = dict(os.environ)
        if session:
            argv = [support.program("diesel-analyze"), "record", *options, "-o", str(session), "--",
                    *argv, "--trace", str(session.with_suffix(".trace"))]
        else:
            environment |= support.shim("synthetic" if kind == "synthetic" else "clock", out)
        if kind == "cold":
            support.evict(self.files)
        with support.Throttle(self.folder, bps=CONFIGS[name][1] * 1_000_000) as slow, support.Steal() as steal:
            done = subprocess.run(slow.command(["nice", "-n", str(PRIORITY), *argv]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                                  env=environment)
            read = slow.read_bytes()
        if done.returncode:
            sys.exit(f"{name}, {kind}: the job failed: {done.stderr.decode()[-500:]}")
        clock = json.loads(done.stdout.splitlines()[-1])
        seconds = clock["wall_s"] if session else support.shim_seconds(out)
        return {"kind": kind, "seconds": seconds, "clock": clock, "read_bytes": read, "steal": steal.ratio,
                "neighbours": steal.neighbours, "disturbed": steal.disturbed or self.wrong_reads(kind, read)}

    def wrong_reads(self, kind, read):
        """Something else emptied the page cache, or kept the files in it."""
        return read is not None and kind != "cold" and read > 0.02 * N_FILES * FILE_BYTES

    def run(self, name, kind, **more):
        """The least disturbed of a few runs."""
        runs = []
        for _ in range(self.attempts):
            runs.append(self.run_once(name, kind, **more))
            if not runs[-1]["disturbed"]:
                break
        return min(runs, key=lambda run: (run["disturbed"], run["steal"] + run["neighbours"]))


def shares_of(seconds):
    return {"prep": (seconds["cached"] - seconds["synthetic"]) / seconds["cold"],
            "fetch": (seconds["cold"] - seconds["cached"]) / seconds["cold"]}


def difference(one, other):
    return 100 * max(abs(one[share] - other[share]) for share in ("prep", "fetch"))


def truth_of(bench, name):
    """Rounds of three runs, until two of the rounds agree."""
    rounds, best = [], None
    for _ in range(bench.rounds):
        runs = {kind: bench.run(name, kind) for kind in ("synthetic", "cached", "cold")}
        seconds = {kind: run["seconds"] for kind, run in runs.items()}
        rounds.append({"seconds": seconds, "shares": shares_of(seconds), "runs": runs})
        pairs = itertools.combinations(rounds, 2)
        best = min(pairs, key=lambda pair: difference(pair[0]["shares"], pair[1]["shares"]), default=None)
        if best and difference(best[0]["shares"], best[1]["shares"]) <= TRUTH_POINTS:
            break
    mean = {kind: sum(entry["seconds"][kind] for entry in best) / 2 for kind in best[0]["seconds"]}
    return {"seconds": mean, **shares_of(mean), "repeat_points": difference(best[0]["shares"], best[1]["shares"]),
            "rounds": rounds}


def report_of(session):
    return json.loads(subprocess.run([support.program("diesel-analyze"), "report", "--format", "json", str(session)],
                                     stdout=subprocess.PIPE, check=True).stdout)


def recorded(bench, name, truth, session, options=()):
    """A cold run under the recorder, like the cold runs of the truth."""
    for _ in range(bench.attempts):
        run = bench.run(name, "cold", session=session, options=options)
        if abs(run["seconds"] / truth["seconds"]["cold"] - 1) <= WALL_RATIO:
            break
    run["report"] = report_of(session)
    shares = run["report"].get("shares")
    if not shares:
        sys.exit(f"{name}: no shares: {run['report'].get('insufficient') or run['report']}")
    run |= {"fetch": shares["fetch_stall"], "prep": shares["prep_stall"] + shares["cpu_starved"],
            "wait": shares["fetch_stall"] + shares["prep_stall"], "other": shares["other"]}
    return run


def judge(name, truth, run):
    return {"config": name, "truth": truth, "recorded": run, "repeats": truth["repeat_points"] <= TRUTH_POINTS,
            "fetch_points": 100 * (run["fetch"] - truth["fetch"]), "prep_points": 100 * (run["prep"] - truth["prep"]),
            "wait_points": 100 * (run["wait"] - run["clock"]["wait"]), "other_points": 100 * run["other"]}


def show(entry):
    truth, run, report = entry["truth"], entry["recorded"], entry["recorded"]["report"]
    seconds = truth["seconds"]
    wrong = [text for text, bad in {
        "TRUTH DOES NOT REPEAT": not entry["repeats"],
        "FETCH": abs(entry["fetch_points"]) > FETCH_POINTS,
        "PREP": abs(entry["prep_points"]) > PREP_POINTS,
        "WAIT": abs(entry["wait_points"]) > WAIT_POINTS,
        "OTHER": entry["other_points"] > OTHER_POINTS,
        f"{report['lost_events']} LOST": report["lost_events"],
        "DISTURBED": run["disturbed"]}.items() if bad]
    print(f"{entry['config']:10} T {seconds['synthetic']:5.2f} {seconds['cached']:5.2f} {seconds['cold']:5.2f} s "
          f"(rec. {run['seconds']:5.2f}) | fetch {100 * truth['fetch']:5.1f} / {100 * run['fetch']:5.1f} "
          f"({entry['fetch_points']:+5.1f}) prep {100 * truth['prep']:5.1f} / {100 * run['prep']:5.1f} "
          f"({entry['prep_points']:+5.1f}), truth +-{truth['repeat_points']:.1f} | wait {entry['wait_points']:+.1f} "
          f"other {entry['other_points']:.1f} starved {100 * report['shares']['cpu_starved']:.1f} "
          f"{report['method']} steal {100 * run['steal']:.1f} % {' '.join(wrong)}", flush=True)


def spread(bench, name, keep):
    """The same job recorded several times: how far is each share from itself?"""
    runs = []
    for i in range(SPREAD_RUNS):
        session = keep / f"spread-{i}.db"
        run = bench.run(name, "cold", session=session)
        runs.append({**run, "shares": report_of(session)["shares"]})
    points = {share: 100 * (max(run["shares"][share] for run in runs) - min(run["shares"][share] for run in runs))
              for share in ("device", "fetch_stall", "prep_stall", "checkpoint_stall", "cpu_starved", "other")}
    print(f"{name} measured {SPREAD_RUNS} times, spread of each share in points: "
          + ", ".join(f"{share} {value:.1f}" for share, value in points.items()), flush=True)
    return {"config": name, "runs": runs, "points": points}


@contextlib.contextmanager
def turn(path):
    """Holds FILE while a configuration runs, so that other measurements of the machine can take turns."""
    if not path:
        yield
        return
    with open(path, "a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def keep_write(keep, entries):
    """What is needed to work on the analyzer without measuring again: sessions, and the truth beside them."""
    path = keep / "truth.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for entry in entries:
        truth, run = entry["truth"], entry["recorded"]
        known[entry["config"]] = {
            "fetch": truth["fetch"], "prep": truth["prep"], "repeat_points": truth["repeat_points"],
            "seconds": truth["seconds"], "config": dict(zip(("workers", "mbps", "prep", "repeat", "steps"),
                                                            CONFIGS[entry["config"]])),
            "recorded_s": run["seconds"], "clock_wait": run["clock"]["wait"], "steal": run["steal"],
            "neighbours": run["neighbours"],
            "analyzer": {"fetch": run["fetch"], "prep": run["prep"], "wait": run["wait"], "other": run["other"]}}
    path.write_text(json.dumps(known, indent=1) + "\n")


def worst(entries, key):
    return max((abs(entry[key]) for entry in entries), default=0.0)


def mean(entries, key):
    return sum(abs(entry[key]) for entry in entries) / max(1, len(entries))


def finish(entries, spread_seen, partial):
    good = [entry for entry in entries if entry["repeats"]]
    figures = {
        "configs": len(entries), "truth_repeats": len(good),
        "worst_fetch_points": worst(good, "fetch_points"), "mean_fetch_points": mean(good, "fetch_points"),
        "worst_prep_points": worst(good, "prep_points"), "mean_prep_points": mean(good, "prep_points"),
        "worst_wait_points": worst(entries, "wait_points"), "worst_other_points": worst(entries, "other_points"),
        "lost_events": sum(entry["recorded"]["report"]["lost_events"] for entry in entries)}
    if spread_seen:
        figures["spread_points"] = max(spread_seen["points"].values())
    support.result_write("attribution-part" if partial else "attribution",
                         {"configs": entries, "spread": spread_seen}, **figures)
    limits = {"worst_fetch_points": FETCH_POINTS, "mean_fetch_points": FETCH_MEAN_POINTS,
              "worst_prep_points": PREP_POINTS, "mean_prep_points": PREP_MEAN_POINTS, "worst_wait_points": WAIT_POINTS,
              "worst_other_points": OTHER_POINTS, "spread_points": SPREAD_POINTS}
    return all(figures[name] <= limit for name, limit in limits.items() if name in figures)


def warm(bench):
    """A short run, not measured: libraries that a job maps at its first step would be read at the throttled
    disk's pace, and that is neither loading nor computing."""
    subprocess.run([support.PYTHON, str(support.ROOT / "bench/jobs/train.py"), "--steps", "3", "--workers", "2",
                    "--data", str(bench.folder / "files")], stdout=subprocess.DEVNULL, check=True)
    for path in bench.files:
        path.read_bytes()


def arguments():
    parser = argparse.ArgumentParser(description="one recording against the three-run truth")
    parser.add_argument("configs", nargs="*", metavar="CONFIG", help=f"of: {', '.join(CONFIGS)}, spread")
    parser.add_argument("--keep", metavar="FOLDER", help="keep sessions, traces and truth.json there")
    parser.add_argument("--rounds", type=int, default=ROUNDS_MAX, help="at most; default: %(default)s")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="of a disturbed run; default: %(default)s")
    parser.add_argument("--lock", metavar="FILE", help="lock it while a configuration is measured")
    options = parser.parse_args()
    if unknown := set(options.configs) - set(CONFIGS) - {"spread"}:
        parser.error(f"no configuration {', '.join(sorted(unknown))}")
    return options


def main():
    options = arguments()
    names = options.configs or [*CONFIGS, "spread"]
    entries, spread_seen = [], None
    with support.Scratch() as folder:
        if why := support.Throttle.why_not(folder):
            support.skip(why)
        keep = pathlib.Path(options.keep or folder)
        keep.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, support.random_files(folder / "files", N_FILES, FILE_BYTES),
                      options.rounds, options.attempts)
        os.sync()
        for name in names:
            with turn(options.lock):
                warm(bench)
                if name == "spread":
                    spread_seen = spread(bench, SPREAD_CONFIG, folder)
                    continue
                truth = truth_of(bench, name)
                entries.append(judge(name, truth, recorded(bench, name, truth, keep / f"{name}.db")))
            show(entries[-1])
            if options.keep:
                keep_write(keep, entries[-1:])
    good = finish(entries, spread_seen, bool(options.configs))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
