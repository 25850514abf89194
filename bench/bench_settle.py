# SPDX-License-Identifier: Apache-2.0
"""Measures how quickly the tuned daemon settles after a job's start and after a change, and whether it stays settled.

Each case is a job that begins cold and changes in mid-run: a faster device, heavier transforms, lighter ones, a slower and a faster disk.
The daemon is settled when from then on it changes at most one knob in any 10 s. The table also shows when throughput over 2 s first comes
within 5 % of that at the end of the phase. A cold cache may delay that, as it fills at the disk's pace.

    bench_settle.py [--scenario NAME ...] [--rounds N] [--minutes M] [--more]
"""
import argparse
import os
import time

from tuning import bed as testbed
import support
from tuning import judge, timeline
from tuning.scenarios import Phase, Scenario

ROUNDS, NAME, PHASE_S = 3, "settle", 30.0
NEAR = 0.05

CASES = {s.name: s for s in (
    Scenario("faster-device", (Phase(PHASE_S, 0, 80, 32), Phase(PHASE_S, 0, 20, 32)), transform=False),
    Scenario("heavier-transform", (Phase(PHASE_S, 1, 16, 64), Phase(PHASE_S, 60, 16, 64)), transform=True),
    Scenario("lighter-transform", (Phase(PHASE_S, 60, 16, 64), Phase(PHASE_S, 1, 16, 64)), transform=True),
    Scenario("slower-disk", (Phase(PHASE_S, 0, 20, 120), Phase(PHASE_S, 0, 20, 24)), transform=False),
    Scenario("faster-disk", (Phase(PHASE_S, 0, 20, 24), Phase(PHASE_S, 0, 20, 120)), transform=False),
)}


def near_s(curve, begin, end):
    """Returns the seconds after `begin` until the throughput over 2 s first comes near that of the phase's last third."""
    inside = curve[int(begin):int(end)]
    last = inside[-max(1, len(inside) // 3):]
    goal = (1 - NEAR) * sum(last) / len(last)
    for second in range(len(inside) - 1):
        if (inside[second] + inside[second + 1]) / 2 >= goal:
            return second
    return len(inside)


def judged(run):
    """Returns [(settled s, changes after, near s)] of each phase."""
    found, begin = [], 0.0
    times = judge.change_times(run)
    for index in range(len(run["phases"])):
        end = begin + PHASE_S
        settled = timeline.settled_s(times, begin, end)
        found.append((settled, sum(begin + settled < at <= end for at in times), near_s(run["curve"], begin, end)))
        begin = end
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--minutes", type=float, default=1e6, help="start no further run after this many minutes")
    parser.add_argument("--more", action="store_true", help="add to the earlier runs instead of replacing them")
    options = parser.parse_args()
    if os.geteuid() != 0:
        support.skip("throttling a disk and dropping caches need root")
    raw = support.raw_read(NAME) if options.more else {}
    stop = time.monotonic() + 60 * options.minutes
    with testbed.Bed() as bed:
        for _ in range(options.rounds):
            for name in options.scenario:
                if time.monotonic() > stop:
                    break
                run = timeline.run(bed, CASES[name], "tuned")
                raw.setdefault(name, []).append(run)
                print(f"  {name}: " + "; ".join(f"settled after {s:.1f} s, {n} changes later, throughput near its final value after {t} s"
                                                for s, n, t in judged(run)), flush=True)
    rows = [(i, *row) for runs in raw.values() for run in runs for i, row in enumerate(judged(run))]
    figures = {}
    for text, chosen in (("start", [r for r in rows if r[0] == 0]), ("change", [r for r in rows if r[0]])):
        if chosen:
            figures |= {f"{text}_median_s": support.median([r[1] for r in chosen]), f"{text}_worst_s": max(r[1] for r in chosen),
                        f"{text}_near_median_s": support.median([r[3] for r in chosen])}
    if rows:
        figures["changes_after"] = max(r[2] for r in rows)
    support.result_write(NAME, raw, **figures)


if __name__ == "__main__":
    main()
