# SPDX-License-Identifier: Apache-2.0
"""Two and three unequal jobs on one node: the tuned daemon against an equal split of cache and workers.

The jobs share one throttled disk, each has a dataset of its own. Equal split: a daemon per job, each with its share of the cache, prefetch
8 and one worker, and for Python work the same number of client workers for all. Tuned: one daemon with the whole budget, which divides it.
Both begin cold, and throughput is that of the last seconds. The two alternate for some rounds.

    bench_multi.py [--scenario two|three ...] [--rounds N] [--minutes M]
"""
import argparse
import contextlib
import json
import os
import time
from dataclasses import dataclass

from tuning import bed as testbed
import support
from tuning.bed import MIB, Knobs
from jobs import usage

ROUNDS, SECONDS, STEADY_S = 3, 45.0, 15.0
NAME = "multi"


@dataclass(frozen=True)
class Need:
    """A job: transform passes per sample (None: no Python work), milliseconds of device time per step."""
    name: str
    passes: int | None
    device_ms: float


@dataclass(frozen=True)
class Mix:
    cache_bytes: int
    mbps: float
    jobs: tuple


MIXES = {
    "two": Mix(192 * MIB, 32, (Need("reader", None, 12), Need("slow", None, 160))),
    "three": Mix(288 * MIB, 40, (Need("reader", None, 12), Need("slow", None, 160), Need("transformer", 40, 60))),
}


def start(bed, stack, mix, datasets, tuned):
    """Starts the jobs of a mix, and returns them in order."""
    share, daemons = mix.cache_bytes // len(mix.jobs), []
    if tuned:
        daemons = [stack.enter_context(bed.serving(Knobs(mix.cache_bytes), tune="on"))]
        daemons *= len(mix.jobs)
    else:
        daemons = [stack.enter_context(bed.serving(Knobs(share, 8, 1))) for _ in mix.jobs]
    jobs = []
    for need, daemon, dataset in zip(mix.jobs, daemons, datasets):
        workers = 0 if need.passes is None else "auto" if tuned else 1
        jobs.append(stack.enter_context(bed.job(
            "diesel", workers=workers, transform=need.passes is not None, passes=need.passes or 0,
            device_ms=need.device_ms, socket=daemon.socket, data=dataset)))
    return jobs, daemons


def run(bed, mix, datasets, tuned):
    support.drop_caches()
    bed.slow.change(bps=mix.mbps * 1_000_000)
    with contextlib.ExitStack() as stack:
        jobs, daemons = start(bed, stack, mix, datasets, tuned)
        time.sleep(SECONDS)
        end = time.monotonic()
        roots = [job.pid for job in jobs] + sorted({daemon.process.pid for daemon in daemons})
        rates = {need.name: testbed.rate_of(job.steps(end - STEADY_S, end)) for need, job in zip(mix.jobs, jobs)}
        memory = sum(testbed.memory_of(None if tuned and i else daemon, job)  # the memory of a shared daemon counts once
                     for i, (job, daemon) in enumerate(zip(jobs, daemons)))
        return {"tuned": tuned, "rates": rates, "cpu_s": usage.cpu_of(roots), "memory": memory,
                "knobs": json.loads(daemons[0].ctl("jobs", "--json").stdout or "null") if tuned else None,
                "why": daemons[0].ctl("why", "--json").stdout if tuned else None}


def judged(runs):
    """Returns ratios of medians, tuned to equal: of the total, and the lowest of a single job."""
    def rates(tuned, name):
        return support.median([r["rates"][name] for r in runs if r["tuned"] == tuned])
    names = list(runs[0]["rates"])
    ours, equal = ({n: rates(t, n) for n in names} for t in (True, False))
    return {"total": sum(ours.values()) / sum(equal.values()), "least": min(ours[n] / equal[n] for n in names)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", nargs="+", choices=list(MIXES), default=list(MIXES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--minutes", type=float, default=1e6, help="start no further run after this many minutes")
    parser.add_argument("--more", action="store_true", help="add to the earlier runs instead of replacing them")
    options = parser.parse_args()
    if os.geteuid() != 0:
        support.skip("throttling a disk and dropping caches need root")
    raw = support.raw_read(NAME) if options.more else {}
    stop = time.monotonic() + 60 * options.minutes
    with testbed.Bed() as bed:
        datasets = [bed.dataset, bed.another_dataset(), bed.another_dataset()]
        for _ in range(options.rounds):
            for name in options.scenario:
                for tuned in (True, False) if time.monotonic() < stop else ():
                    found = run(bed, MIXES[name], datasets, tuned)
                    raw.setdefault(name, []).append(found)
                    print(f"  {name} {'tuned' if tuned else 'equal'}: " +
                          ", ".join(f"{n} {r:.0f}" for n, r in found["rates"].items()) + " samples/s", flush=True)
    figures = {}
    for name, runs in raw.items():
        if {r["tuned"] for r in runs} == {True, False}:
            figures |= {f"{name}_{key}": value for key, value in judged(runs).items()}
    support.result_write(NAME, raw, **figures)


if __name__ == "__main__":
    main()
