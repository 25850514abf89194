# SPDX-License-Identifier: Apache-2.0
"""Two, three and four jobs run at a time on the images of bench_decode.py, with its transform (jobs/share.py). They have one seed, for which
dieseld decodes each batch once, or a seed each, so that they have nothing to share. The peer is TensorSocket, one producer with as many
consumers. Rates are samples per second of all jobs together, from when all run until each has run for 10 s, and samples per CPU second of
the machine. The ways alternate, in processes of their own. dieseld caches no decoded copies, which would save separate jobs work, too.

apart: jobs start SECONDS apart, each on a device that takes --step seconds per batch for --steps batches. Figures are decodes per sample,
and the seconds of the slowest job compared with a job that runs alone.

TensorSocket is installed from PyPI; where it does not install or run, the output says so. Without a GPU it passes tensors by value.

    bench_share.py [--only shared|separate|tensorsocket|apart ...] [--jobs N ...] [--apart SECONDS] [--steps N] [--step SECONDS]
"""
import argparse
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

import support
from jobs import photographs
from jobs.usage import busy_s
from peers.environments import python_of, versions
from serving import Daemon, pack

N = int(os.environ.get("DIESEL_BENCH_FILES", 1600))
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
SECONDS = float(os.environ.get("DIESEL_BENCH_SECONDS", 10))
QUALITY = 99  # as bench_decode.py
WAYS = ("shared", "separate", "tensorsocket", "apart")
WANTED = {2: 1.8, 3: 2.6, 4: 3.4}
PORT = 17555
PATIENCE_S = 300
SHARE = support.ROOT / "bench/jobs/share.py"


class Failed(Exception):
    """The last line that a job wrote to standard error."""


class Job:
    """A process of jobs/share.py. Processes that it leaves behind end with it."""

    def __init__(self, python, *arguments):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([python, SHARE, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, start_new_session=True,
                                        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def line(self):
        with contextlib.suppress(queue.Empty):
            if line := self.lines.get(timeout=PATIENCE_S):
                return line.strip()
        self.errors.seek(0)
        raise Failed((self.errors.read().strip().splitlines() or [f"nothing in {PATIENCE_S} s"])[-1])

    def begin(self):
        self.process.stdin.write(f"{SECONDS}\n")
        self.process.stdin.flush()

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def run(way, n, python, dataset, images):
    """Returns samples per second and per CPU second of n jobs."""
    with contextlib.ExitStack() as stack:
        def start(*arguments):
            job = Job(*arguments)
            stack.callback(job.end)
            return job
        if way == "tensorsocket":
            start(python, "producer", images, PORT).line()
            jobs = [start(python, way, PORT) for _ in range(n)]
        else:
            jobs = [start(sys.executable, "diesel", dataset, 1 if way == "shared" else 1 + k) for k in range(n)]
        for job in jobs:
            job.line()
        busy = busy_s()
        for job in jobs:
            job.begin()
        told = [json.loads(job.line()) for job in jobs]
        busy = busy_s() - busy
    return {"way": way, "jobs": n, "samples": sum(t["samples"] for t in told), "cpu_s": busy,
            "per_s": sum(t["samples"] / t["seconds"] for t in told)}


def decoded():
    """Returns the samples of all jobs so far."""
    status = json.loads(subprocess.run([support.program("dieselctl"), "status", "--json"], capture_output=True, check=True).stdout)
    return sum(job["decoding"]["samples"] for job in status["jobs"] if job["decoding"]), status["cache"]["kept_batch_bytes"]


def run_apart(n, dataset, options):
    """Runs n jobs that start some seconds apart."""
    with contextlib.ExitStack() as stack:
        jobs, kept = [Job(sys.executable, "paced", dataset, options.steps, options.step) for _ in range(n)], 0
        for job in jobs:
            stack.callback(job.end)
            job.line()
        before, _ = decoded()
        for k, job in enumerate(jobs):
            time.sleep(options.apart if k else 0)
            job.begin()
            kept = max(kept, decoded()[1])
        told = []
        for job in jobs:
            told.append(json.loads(job.line()))
            kept = max(kept, decoded()[1])
        return {"way": "apart", "jobs": n, "slowest_s": max(t["seconds"] for t in told), "kept_bytes": kept,
                "decodes_a_sample": (decoded()[0] - before) / told[0]["samples"]}


def compare_apart(options, dataset, raw, figures):
    raw.append(alone := run_apart(1, dataset, options))
    for n in options.jobs:
        raw.append(run := run_apart(n, dataset, options))
        figures[f"apart_{n}_decodes_a_sample"], figures[f"apart_{n}_slowest_s"] = run["decodes_a_sample"], run["slowest_s"]
        print(f"{n} jobs {options.apart:g} s apart, {options.steps} batches of {options.step:g} s: {run['decodes_a_sample']:.2f} decodes "
              f"per sample, the slowest job {run['slowest_s']:.1f} s (alone {alone['slowest_s']:.1f} s), {run['kept_bytes'] >> 20} MiB kept",
              flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--jobs", nargs="+", type=int, default=list(WANTED))
    parser.add_argument("--apart", type=float, default=10)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step", type=float, default=1)
    options, raw, figures, python = parser.parse_args(), [], {}, None
    ways = list(options.only)
    if "tensorsocket" in ways:
        packages = ["tensorsocket", "torch", "torchvision", "pillow"]
        python, why = python_of("tensorsocket", packages, "tensorsocket, torchvision")
        print(f"tensorsocket: {why or versions(python, *packages)}", flush=True)
        if why:
            ways.remove("tensorsocket")
    with support.Scratch() as folder, support.Steal() as steal:
        figures["image_bytes"] = photographs.write(folder / "images", N, 500, 375, QUALITY)
        dataset = pack(folder / "images", folder / "images.diesel")
        with Daemon(folder, "--cache", "6G", "--decoded-cache", "0"):
            if "apart" in ways:
                ways.remove("apart")
                compare_apart(options, dataset, raw, figures)
            for k in range(ROUNDS):
                for n in options.jobs:
                    for way in list(ways):
                        try:
                            raw.append({"round": k, **run(way, n, python, dataset, folder / "images")})
                        except Failed as failure:
                            print(f"{way}, {n} jobs: {failure}", flush=True)
                            if way != "tensorsocket":
                                sys.exit(1)
                            ways.remove(way)
    for n in options.jobs:
        for way in ways:
            mine = [r for r in raw if (r["way"], r["jobs"]) == (way, n)]
            if mine:
                figures[f"{way}_{n}_per_s"] = support.median(r["per_s"] for r in mine)
                figures[f"{way}_{n}_per_cpu_s"] = support.median(r["samples"] / r["cpu_s"] for r in mine)
        if f"shared_{n}_per_s" not in figures:
            continue
        for way in ("separate", "tensorsocket"):
            if f"{way}_{n}_per_s" in figures:
                ratio = figures[f"shared_{n}_per_s"] / figures[f"{way}_{n}_per_s"]
                figures[f"shared_{n}_to_{way}"] = ratio
                wanted = f" (wanted: {WANTED.get(n, 1)})" if way == "separate" else ""
                print(f"{n} jobs: {figures[f'shared_{n}_per_s']:.0f} samples/s shared, {figures[f'{way}_{n}_per_s']:.0f} {way}: "
                      f"{ratio:.2f}{wanted}; per CPU second {figures[f'shared_{n}_per_cpu_s']:.0f} and "
                      f"{figures[f'{way}_{n}_per_cpu_s']:.0f}", flush=True)
    support.result_write("share", raw, **figures)
    print(f"steal {steal.ratio:.3f}")


if __name__ == "__main__":
    main()
