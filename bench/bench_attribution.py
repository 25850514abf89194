# SPDX-License-Identifier: Apache-2.0
"""Does one passive recording agree with three runs of the same job?

The truth of a configuration is the differential of DS-Analyzer, that is, three runs of one unmodified training script
(bench/jobs/train.py). Its batches come from memory (T_synthetic, by analyzer/truth, with random values and no workers), from files in the
page cache (T_cached), or from files evicted on a throttled disk (T_cold):

    prep = (T_cached - T_synthetic) / T_cold        fetch = (T_cold - T_cached) / T_cold

Rounds of the three runs follow each other, at most 4. The means of the two fastest runs of each kind are the truth, once choosing only one
of the two would change no share by more than 2 points.

Then one cold run is recorded. The report's fetch_stall is compared with fetch, its prep_stall + cpu_starved with prep, and its data wait
with the job's own clock. By that clock, the recorded run must have waited as long as the cold ones, within 2 points. If it did not, or if the
truth does not repeat, the figures are shown but not judged. Another cold run is recorded without privilege.

One configuration is recorded 5 times, for the spread. Runs in which the host or other processes took CPU time away
are repeated. Needs root, BPF and a disk that can be throttled.

usage: bench_attribution.py [CONFIG ...] [--keep FOLDER] [--again FOLDER] [--lock FILE]
"""
import argparse
import itertools
import json
import pathlib
import sys

import support
from jobs import trials
from jobs.trials import Config

FETCH_POINTS, PREP_POINTS, WAIT_POINTS, OTHER_POINTS = 3.0, 4.0, 1.5, 3.0
FETCH_MEAN_POINTS, PREP_MEAN_POINTS = 1.5, 2.0
TRUTH_POINTS = 2.0  # maximum difference between repetitions of a usable truth
UNPRIVILEGED_POINTS, SPREAD_POINTS = 10.0, 2.0
ALIKE_POINTS = 2.0  # maximum difference of a recorded run's wait from the cold runs' wait, by the job's own clock

CONFIGS = {
    "w0-fetch": Config(0, 16, 40, 8, 50),
    "w0-mixed": Config(0, 32, 100, 16, 50),
    "w0-prep": Config(0, 64, 200, 8, 50),
    "w0-device": Config(0, 64, 40, 32, 50),
    "w1-fetch": Config(1, 16, 40, 8, 60),
    "w1-mixed": Config(1, 24, 150, 12, 60),
    "w1-prep": Config(1, 48, 250, 8, 50),
    "w1-device": Config(1, 20, 60, 32, 60),
    "w2-fetch": Config(2, 12, 60, 16, 60),
    "w2-mixed": Config(2, 24, 250, 12, 70),
    "w2-prep": Config(2, 48, 400, 8, 60),
    "w2-device": Config(2, 24, 60, 32, 60),
    "w4-fetch": Config(4, 12, 60, 8, 60),
    "w4-mixed": Config(4, 24, 200, 16, 70),
    "w4-prep": Config(4, 48, 400, 8, 60),
    "w4-device": Config(4, 24, 60, 32, 70),
}
KEPT = ("shares", "steps", "verdict", "method", "lost_events", "workers", "warmup_s")  # the report's fields that are kept in the results
KINDS = ("synthetic", "cached", "cold")
SPREAD_CONFIG, SPREAD_RUNS = "w2-fetch", 5


def shares_of(seconds):
    return {"prep": (seconds["cached"] - seconds["synthetic"]) / seconds["cold"],
            "fetch": (seconds["cold"] - seconds["cached"]) / seconds["cold"]}


def truth_of_rounds(rounds):
    """Returns the mean of the two fastest runs of each kind, as disturbances make a run slower and never faster. Also returns how well it
    repeats: the largest change of a share when only one of the two runs is taken of each kind."""
    fastest = {kind: sorted(entry["seconds"][kind] for entry in rounds)[:2] for kind in KINDS}
    mean = {kind: sum(seconds) / len(seconds) for kind, seconds in fastest.items()}
    choices = [shares_of(dict(zip(KINDS, choice))) for choice in itertools.product(*(fastest[kind] for kind in KINDS))]
    truth = shares_of(mean)
    apart = [abs(choice[share] - truth[share]) for choice in choices for share in truth]
    return {"seconds": mean, **truth, "repeat_points": 100 * max(apart), "rounds": rounds, "cold_wait": cold_wait(rounds)}


def truth_of(bench, config):
    """Repeats rounds of three runs, at least two rounds, until the truth is stable."""
    rounds, truth = [], None
    for _ in range(bench.rounds):
        runs = {"synthetic": bench.run(config, synthetic=True), "cached": bench.run(config, cached=1.0),
                "cold": bench.run(config)}
        rounds.append({"seconds": {kind: run["seconds"] for kind, run in runs.items()}, "runs": runs})
        truth = truth_of_rounds(rounds)
        if len(rounds) > 1 and truth["repeat_points"] <= TRUTH_POINTS:
            break
    return truth


def cold_wait(rounds):
    """Returns the waits that the clocks of the cold runs showed around next(loader). Where the disk sets the pace, a trainer that is slower
    for another reason waits less and ends at the same time."""
    waits = [entry["runs"]["cold"]["clock"]["wait"] for entry in rounds]
    return sum(waits) / len(waits)


def recorded(bench, config, truth, recording, options=()):
    """Records cold runs until one waits as long as the cold runs of the truth, and returns the last one."""
    for _ in range(bench.attempts):
        run = bench.run(config, recording=recording, options=options)
        if 100 * abs(run["clock"]["wait"] - truth["cold_wait"]) <= ALIKE_POINTS:
            break
    return run | {"report": trials.report_of(recording)}


def judge(name, truth, run, unprivileged=None):
    shares = run["report"].get("shares")
    if not shares:
        sys.exit(f"{name}: no shares: {run['report'].get('insufficient') or run['report']}")
    run |= {"fetch": shares["fetch_stall"], "prep": shares["prep_stall"] + shares["cpu_starved"],
            "wait": shares["fetch_stall"] + shares["prep_stall"], "other": shares["other"]}
    entry = {"config": name, "truth": truth, "recorded": run, "repeats": truth["repeat_points"] <= TRUTH_POINTS,
             "unlike_points": 100 * (run["clock"]["wait"] - truth["cold_wait"]),
             "fetch_points": 100 * (run["fetch"] - truth["fetch"]),
             "prep_points": 100 * (run["prep"] - truth["prep"]),
             "wait_points": 100 * (run["wait"] - run["clock"]["wait"]), "other_points": 100 * run["other"]}
    if unprivileged:
        seen = unprivileged["report"].get("shares") or {}
        entry |= {"unprivileged": unprivileged, "unprivileged_points": 100 * max(
            abs(seen.get("fetch_stall", 0) - truth["fetch"]),
            abs(seen.get("prep_stall", 0) + seen.get("cpu_starved", 0) - truth["prep"]))}
    return entry


def show(entry):
    truth, run, report = entry["truth"], entry["recorded"], entry["recorded"]["report"]
    seconds = truth["seconds"]
    wrong = [text for text, bad in {
        "TRUTH DOES NOT REPEAT": not entry["repeats"],
        f"RECORDED RUN WAITED {entry['unlike_points']:+.1f} POINTS": abs(entry["unlike_points"]) > ALIKE_POINTS,
        "FETCH": abs(entry["fetch_points"]) > FETCH_POINTS,
        "PREP": abs(entry["prep_points"]) > PREP_POINTS,
        "WAIT": abs(entry["wait_points"]) > WAIT_POINTS,
        "OTHER": entry["other_points"] > OTHER_POINTS,
        "UNPRIVILEGED": entry.get("unprivileged_points", 0) > UNPRIVILEGED_POINTS,
        f"{report['lost_events']} LOST": report["lost_events"],
        "disturbed": run.get("disturbed")}.items() if bad]
    unprivileged = f" unpriv. {entry['unprivileged_points']:.1f}" if "unprivileged_points" in entry else ""
    print(f"{entry['config']:9} T {seconds['synthetic']:5.2f} {seconds['cached']:5.2f} {seconds['cold']:5.2f} s "
          f"(rec. {run['seconds']:5.2f}) | fetch {100 * truth['fetch']:5.1f} / {100 * run['fetch']:5.1f} "
          f"({entry['fetch_points']:+5.1f}) prep {100 * truth['prep']:5.1f} / {100 * run['prep']:5.1f} "
          f"({entry['prep_points']:+5.1f}), truth +-{truth['repeat_points']:.1f} | wait {entry['wait_points']:+.1f} "
          f"other {entry['other_points']:.1f} starved {100 * report['shares']['cpu_starved']:.1f}{unprivileged} "
          f"{report['method']} steal {100 * run['steal']:.1f} % {' '.join(wrong)}", flush=True)


def spread(bench, name, keep):
    """Records the same job several times, and returns how far each share varies."""
    runs = []
    for i in range(SPREAD_RUNS):
        recording = keep / f"spread-{i}.db"
        run = bench.run(CONFIGS[name], recording=recording)
        runs.append({**run, "shares": trials.report_of(recording)["shares"]})
    points = {share: 100 * (max(run["shares"][share] for run in runs) - min(run["shares"][share] for run in runs))
              for share in ("device", "fetch_stall", "prep_stall", "checkpoint_stall", "cpu_starved", "other")}
    print(f"{name} recorded {SPREAD_RUNS} times, spread of each share in percentage points: "
          + ", ".join(f"{share} {value:.1f}" for share, value in points.items()), flush=True)
    return {"config": name, "runs": runs, "points": points}


def keep_write(keep, entry):
    """Writes the truth next to the recordings, so that work on the analyzer needs no new measurement."""
    path = keep / "truth.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    truth, run = entry["truth"], entry["recorded"]
    known[entry["config"]] = {
        "config": CONFIGS[entry["config"]]._asdict(), "fetch": truth["fetch"], "prep": truth["prep"],
        "repeat_points": truth["repeat_points"], "seconds": truth["seconds"],
        "rounds": [{"seconds": each["seconds"], "runs": {"cold": {"clock": each["runs"]["cold"]["clock"]}}}
                   for each in truth["rounds"]],
        "recorded_s": run["seconds"], "clock_wait": run["clock"]["wait"], "steal": run["steal"],
        "neighbours": run["neighbours"]}
    path.write_text(json.dumps(known, indent=1) + "\n")


def judge_again(folder, names):
    """Judges kept recordings with the current analyzer."""
    entries = []
    for name, kept in json.loads((folder / "truth.json").read_text()).items():
        if name in names:
            run = {"seconds": kept["recorded_s"], "clock": {"wait": kept["clock_wait"]}, "steal": kept["steal"],
                   "report": trials.report_of(folder / f"{name}.db")}
            sampled = folder / f"{name}-unprivileged.db"
            entries.append(judge(name, truth_of_rounds(kept["rounds"]), run,
                                 {"report": trials.report_of(sampled)} if sampled.exists() else None))
            show(entries[-1])
    return entries


def worst(entries, key):
    return max((abs(entry[key]) for entry in entries), default=0.0)


def mean(entries, key):
    return sum(abs(entry[key]) for entry in entries) / max(1, len(entries))


def finish(entries, spread_seen, name):
    good = [entry for entry in entries if entry["repeats"] and abs(entry["unlike_points"]) <= ALIKE_POINTS]
    sampled = [entry for entry in good if "unprivileged_points" in entry]
    figures = {
        "configs": len(entries), "judged": len(good),
        "worst_fetch_points": worst(good, "fetch_points"), "mean_fetch_points": mean(good, "fetch_points"),
        "worst_prep_points": worst(good, "prep_points"), "mean_prep_points": mean(good, "prep_points"),
        "worst_wait_points": worst(entries, "wait_points"), "worst_other_points": worst(entries, "other_points"),
        "lost_events": sum(entry["recorded"]["report"]["lost_events"] for entry in entries)}
    if spread_seen:
        figures["spread_points"] = max(spread_seen["points"].values())
    if sampled:
        figures["unprivileged_worst_points"] = worst(sampled, "unprivileged_points")
    for run in (entry[kind] for entry in entries for kind in ("recorded", "unprivileged") if kind in entry):
        run["report"] = {part: run["report"].get(part) for part in KEPT}
    support.result_write(name, {"configs": entries, "spread": spread_seen}, **figures)
    limits = {"worst_fetch_points": FETCH_POINTS, "mean_fetch_points": FETCH_MEAN_POINTS,
              "worst_prep_points": PREP_POINTS, "mean_prep_points": PREP_MEAN_POINTS, "worst_wait_points": WAIT_POINTS,
              "worst_other_points": OTHER_POINTS, "spread_points": SPREAD_POINTS,
              "unprivileged_worst_points": UNPRIVILEGED_POINTS}
    return all(figures[figure] <= limit for figure, limit in limits.items() if figure in figures)


def measure(bench, name, keep, unprivileged):
    config, sampled = CONFIGS[name], None
    with bench.turn():
        truth = truth_of(bench, config)
        run = recorded(bench, config, truth, keep / f"{name}.db")
        if unprivileged:
            sampled = recorded(bench, config, truth, keep / f"{name}-unprivileged.db", ("--unprivileged",))
    return judge(name, truth, run, sampled)


def arguments():
    parser = argparse.ArgumentParser(description="Compares one recording with the truth from three runs.")
    parser.add_argument("configs", nargs="*", metavar="CONFIG", help=f"one or more of: {', '.join(CONFIGS)}, spread")
    parser.add_argument("--keep", metavar="FOLDER", help="keep recordings, traces and truth.json in FOLDER")
    parser.add_argument("--again", metavar="FOLDER", help="measure nothing, but judge the recordings that --keep left in FOLDER")
    parser.add_argument("--no-unprivileged", action="store_true", help="leave out the recording without privilege")
    trials.add_arguments(parser)
    options = parser.parse_args()
    return options, trials.names_of(parser, options, [*CONFIGS, "spread"])


def main():
    options, names = arguments()
    entries, spread_seen = [], None
    if options.again:
        entries = judge_again(pathlib.Path(options.again), names)
        return 0 if finish(entries, None, "attribution-again") else 1
    with trials.prepared(options) as bench:
        keep = pathlib.Path(options.keep or bench.folder)
        keep.mkdir(parents=True, exist_ok=True)
        for name in names:
            if not bench.time_left:
                print(f"{name}: left out, because the time of --minutes is over", flush=True)
                continue
            if name == "spread":
                with bench.turn():
                    spread_seen = spread(bench, SPREAD_CONFIG, bench.folder)
                continue
            entries.append(measure(bench, name, keep, not options.no_unprivileged))
            show(entries[-1])
            if options.keep:
                keep_write(keep, entries[-1])
    return 0 if finish(entries, spread_seen, "attribution-part" if options.configs else "attribution") else 1


if __name__ == "__main__":
    sys.exit(main())
