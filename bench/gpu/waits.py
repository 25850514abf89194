# SPDX-License-Identifier: Apache-2.0
"""Compares diesel-analyze's report of a job (job.py) with the ground truth that the job measured."""
POINTS, BOUND_POINTS = 0.03, 0.01
FEW = 0.05  # tolerated share of launches and copies, because those of the first and last step may be cut
KEPT = ("verdict", "steps", "wall_s", "observed_s", "shares", "share_intervals", "approximate", "gpu", "lost_events", "self_cost", "note", "insufficient")
ROWS = ("data wait", "GPU wait", "spinning", "GPU starved", "CPU-starved", "checkpoints", "copies a step", "launches a step")


def kept(report):
    return {name: report.get(name) for name in KEPT}


def compare(kind, truth, report, exact_launches):
    """Returns {row: [truth, report, off]}: shares of the job's time, or numbers per step. None: unknown; off None: not judged. GPU starved
    is a lower bound, so it is off only above the truth. Shares that were sampled may be off by their intervals and the points.
    exact_launches: the truth counts all launches, not only the job's own."""
    gpu, shares, intervals, rows = report.get("gpu") or {}, report["shares"], report.get("share_intervals") or {}, {}

    def of_truth(name):
        return truth[name] / truth["wall_s"] if truth.get(name) is not None else None

    def of_gpu(name):
        return gpu[name] / report["wall_s"] if gpu.get(name) is not None and report["wall_s"] else None

    def row(name, here, there, off=None):
        known = here is not None and there is not None
        rows[name] = [here, there, (off if off is not None else abs(here - there) > POINTS) if known else None]

    def share(name, here, *names):
        low, high = (sum(intervals[n][k] if intervals.get(n) else shares[n] for n in names) for k in (0, 1))
        row(name, here, sum(shares[n] for n in names), here is not None and not low - POINTS <= here <= high + POINTS)

    share("data wait", of_truth("next_s"), "fetch_stall", "prep_stall")
    row("GPU wait", of_truth("wait_s"), shares.get("gpu_wait"))
    row("spinning", of_truth("wait_cpu_s"), of_gpu("spin_s"))
    here, there = of_truth("idle_in_next_s"), of_gpu("starved_s")
    row("GPU starved", here, there, here is not None and there is not None and there > here + BOUND_POINTS)
    share("CPU-starved", of_truth("starved_s"), "cpu_starved")
    share("checkpoints", of_truth("checkpoint_s"), "checkpoint_stall")
    steps = report["steps"] or None
    copies = None if kind.ours and not truth.get("to_device") else truth["to_device"] + truth["to_host"]
    for name, n, seen, judged in (("copies a step", copies, gpu.get("copies"), not kind.checkpoint_every),
                                  ("launches a step", truth["launches"], gpu.get("launches") if gpu.get("launches_known") else None, exact_launches)):
        here, there = n and n / truth["steps"], seen and steps and seen / steps
        row(name, here, there)
        if rows[name][2] is not None:
            rows[name][2] = abs(there / here - 1) > FEW if judged and here else None
    return rows
