# SPDX-License-Identifier: Apache-2.0
"""The exhaustive sweep over static settings, and the choice of those with which the tuned daemon is compared.

The grid is the product of caches, prefetch, daemon workers and client workers (scenarios.py). Two parts are left out,
where it is proven that they cannot hold the best:
- without Python work a sample the loader starts no client workers whatever their number: that axis has one value;
- chunks are kept by no-eviction, so a smaller cache never reads less. Once a cache size is more than MARGIN below the best seen with
  the same other settings, so are smaller ones.
If the daemon refuses the job under some settings, because its sessions do not fit in the cache, these are no points of the grid.
Points of one number of client workers share a daemon and a job, which keep running. The sweep goes from the largest cache to the
smallest, so that no cache fills while it is measured.
"""
import contextlib
import time

from tuning import bed as testbed
from tuning.bed import JobEnded, Knobs
from tuning import timeline
from tuning.scenarios import CLIENT_WORKERS, DAEMON_WORKERS, PREFETCH

MARGIN = 0.15    # fraction below the best rate that is more than noise
CLOSE = 0.02     # tolerance of "within 2 % of the best"
POINT_S, SETTLE_S = 1.2, 0.3
FILL_TIMEOUT_S = 30
ATTEMPTS, OTHERS = 3, 0.15  # OTHERS: largest share of a core that other processes may take during a measurement


def axes(scenario):
    return CLIENT_WORKERS if scenario.transform else (0,)


def limit(bed, phase):
    bed.slow.change(bps=phase.mbps * 1_000_000 if phase.mbps else None)


@contextlib.contextmanager
def running(bed, scenario, knobs):
    """Runs a static daemon and its job with a filled cache, so that the job soon reaches its steady state."""
    bed.slow.change()
    with bed.serving(Knobs(max(knobs.cache_bytes, scenario.limit_bytes), 8, knobs.daemon_workers)) as daemon:
        with bed.job("diesel", workers=knobs.client_workers, transform=scenario.transform, socket=daemon.socket) as job:
            if not job.wait_steps(bed.steps_per_epoch + 2, FILL_TIMEOUT_S):
                raise SystemExit("the cache was not filled in time")
            daemon.apply(knobs)
            yield daemon, job


def sweep(bed, scenario, phase, client_workers):
    """Measures all points of the grid with this number of client workers."""
    points = []
    try:
        _sweep(bed, scenario, phase, client_workers, points)
    except JobEnded:
        print("    refused from this point on: the sessions do not fit in the cache", flush=True)
    return points


def _sweep(bed, scenario, phase, client_workers, points):
    seconds = scenario.neighbour.period if scenario.neighbour else POINT_S
    with running(bed, scenario, Knobs(scenario.caches()[0], client_workers=client_workers)) as (daemon, job):
        limit(bed, phase)
        job.dial(phase.passes, phase.device_ms)
        time.sleep(SETTLE_S)
        for cache in scenario.caches():
            daemon.apply(Knobs(cache, PREFETCH[0], DAEMON_WORKERS[0], client_workers))
            time.sleep(2 * SETTLE_S)
            for prefetch in PREFETCH:
                for daemon_workers in DAEMON_WORKERS:
                    knobs = Knobs(cache, prefetch, daemon_workers, client_workers)
                    daemon.apply(knobs)
                    time.sleep(SETTLE_S)
                    figures = testbed.measure(bed, daemon, job, seconds, epochs=0 if scenario.neighbour else 1)
                    points.append({"knobs": vars(knobs), **figures})
                    print(f"    {knobs.text()}: {figures['rate']:.0f} samples/s, {figures['cpu']:.2f} cores, "
                          f"{figures['memory'] / testbed.MIB:.0f} MiB", flush=True)
            rates = [p["rate"] for p in points if p["knobs"]["cache_bytes"] == cache]
            top = max(p["rate"] for p in points)
            if max(rates) < (1 - MARGIN) * top:
                break


def cost(figures):
    """Returns one figure for CPU and memory: shares of the machine's cores and of a GiB per core."""
    import os
    return figures["cpu"] / os.cpu_count() + figures["memory"] / (os.cpu_count() << 30)


def candidates(scenario, points):
    """Returns the points to measure again with the tuned daemon. These are the best points of the sweep, which may be best by chance, the
    cheapest of those that may be within CLOSE of the best, and the default settings."""
    ranked = sorted(points, key=lambda p: -p["rate"])
    near = [p for p in ranked if p["rate"] >= (1 - 2 * CLOSE) * ranked[0]["rate"]]
    chosen = [ranked[0], min(near, key=cost)]
    second = next((p for p in ranked[1:] if p["knobs"]["client_workers"] != ranked[0]["knobs"]["client_workers"]), None)
    if second and second["rate"] > 0.9 * ranked[0]["rate"]:
        chosen.append(second)
    chosen.append({"knobs": vars(scenario.default())})
    unique = []
    for point in chosen:
        if point["knobs"] not in unique:
            unique.append(point["knobs"])
    return [Knobs(**knobs) for knobs in unique]


def again(bed, scenario, phase, knobs, seconds):
    """Makes one longer measurement of a static point."""
    with running(bed, scenario, knobs) as (daemon, job), timeline.watched(daemon, job):
        limit(bed, phase)
        job.dial(phase.passes, phase.device_ms)
        for _ in range(ATTEMPTS):
            time.sleep(1)
            figures = testbed.measure(bed, daemon, job, seconds, epochs=0 if scenario.neighbour else 2)
            if figures["others"] < OTHERS + (scenario.neighbour.busy / scenario.neighbour.period if scenario.neighbour else 0):
                break
        return figures
