# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of diesel-top at 1 Hz on a screen of 200 x 50: the CPU seconds of it and its children divided by its run time.
Meanwhile training jobs of 200 tasks (threads and processes) run on the machine. Its figures come from BPF, from /proc only, or from
the daemon.

    bench_top.py [--seconds S] [--rounds N] [--scenario bpf|proc|daemon ...]
"""
import argparse
import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

from tuning import bed as testbed
import support
from jobs import usage

ROUNDS, SECONDS, WARM_S = 3, 20.0, 4.0
TASKS = 200
WAYS = {"bpf": ["--node"], "proc": ["--node", "--unprivileged"], "daemon": ["--daemon"]}


def tasks_of(pids):
    return sum(len(os.listdir(f"/proc/{p}/task")) for pid in pids for p in (pid, *usage.tree(pid)) if os.path.exists(f"/proc/{p}"))


@contextlib.contextmanager
def crowd(folder, seconds):
    """Runs training jobs of at least TASKS tasks: pools of 63 reading threads (jobs/loads.py)."""
    support.random_files(folder / "crowd", 400, 16_384)
    jobs, trace = [], folder / "trace"
    try:
        while tasks_of([job.pid for job in jobs]) < TASKS:
            jobs.append(subprocess.Popen(
                ["nice", "-n", "5", support.PYTHON, str(support.ROOT / "bench/jobs/loads.py"), "threads", "--data",
                 str(folder / "crowd"), "--seconds", str(seconds), "--trace", f"{trace}-{len(jobs)}"]))
            time.sleep(8)  # time for its imports and its pool
        yield tasks_of([job.pid for job in jobs])
    finally:
        for job in jobs:
            job.kill()
            job.wait()


def drain(master, seconds):
    """Reads everything that the program draws, and returns the number of bytes."""
    end, drawn = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        if select.select([master], [], [], left)[0]:
            try:
                drawn += len(os.read(master, 65536))
            except OSError:  # the program ended
                break
    return drawn


def run(argv, seconds):
    """Returns the CPU share of one core, resident bytes and bytes drawn per second, once the program is warm."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(argv[0], argv)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    try:
        drain(master, WARM_S)
        begin, cpu = time.monotonic(), usage.cpu_of([pid])
        drawn = drain(master, seconds)
        took, cpu = time.monotonic() - begin, usage.cpu_of([pid]) - cpu
        rss = sum(usage.smaps(p, "Pss") for p in (pid, *usage.tree(pid)))
        ended = os.waitpid(pid, os.WNOHANG)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        os.close(master)
    if ended[0]:
        raise SystemExit(f"{' '.join(argv)} ended early with exit status {os.waitstatus_to_exitcode(ended[1])}")
    return {"core_ratio": cpu / took, "memory": rss, "drawn_per_s": drawn / took}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--scenario", nargs="+", choices=list(WAYS), default=list(WAYS))
    options = parser.parse_args()
    top, raw = support.program("diesel-top"), []
    total = 60 + options.rounds * len(options.scenario) * (options.seconds + WARM_S + 5)
    with support.Scratch() as folder, crowd(folder, total) as tasks, contextlib.ExitStack() as stack:
        extra = []
        if "daemon" in options.scenario:
            from serving import Daemon
            extra = ["--socket", str(stack.enter_context(Daemon(folder, "--metrics", "off")).socket)]
        for _ in range(options.rounds):
            for way in options.scenario:
                found = run([top, "-d", "1", *WAYS[way], *(extra if way == "daemon" else [])], options.seconds)
                raw.append({"way": way, "tasks": tasks, **found})
                print(f"  {way}: {100 * found['core_ratio']:.2f} % of a core, {found['memory'] / testbed.MIB:.1f} MiB, "
                      f"{found['drawn_per_s']:.0f} bytes/s drawn", flush=True)
    figures = {"tasks": raw[0]["tasks"]}
    for way in options.scenario:
        rows = [row for row in raw if row["way"] == way]
        figures[f"{way}_percent"] = 100 * support.median([row["core_ratio"] for row in rows])
        figures[f"{way}_mib"] = support.median([row["memory"] for row in rows]) / testbed.MIB
    support.result_write("top", raw, **figures)


if __name__ == "__main__":
    main()
