# SPDX-License-Identifier: Apache-2.0
"""A job takes much memory at once while the cache of a dieseld is full.

All are in one memory control group, so that they do not take the whole machine. The newcomer allocates nine tenths of the free memory there
and half of the cache, as fast as the kernel allows (MAP_POPULATE), from as many processes as --processes says.
With `borrowed`, no job reads the dataset any more. With `claimed`, a job reads it meanwhile, and has claimed all of it.
Figures are the processes that the kernel killed in the group, the speed of the allocation, and the remaining size of the cache.

    bench_give_way.py [--limit 8G] [--processes 1 2] [--rounds N] [--scenario borrowed|claimed ...]
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import support  # noqa: E402: it lies above
from serving import Daemon, pack  # noqa: E402

MIB = 1 << 20
V1, V2 = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")
TAKE = """
import mmap, sys, time
begin = time.monotonic()
held = mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000)
print(time.monotonic() - begin, flush=True)
sys.stdin.read()
"""


class Group:
    """A memory control group, version 1 or 2."""

    def __init__(self, limit_bytes):
        self.v1 = (V1 / "memory.limit_in_bytes").exists() or (V1 / "memory.usage_in_bytes").exists()
        self.folder, self.limit_bytes = (V1 if self.v1 else V2) / f"diesel-bench-{os.getpid()}", limit_bytes

    def __enter__(self):
        try:
            self.folder.mkdir()
            (self.folder / ("memory.limit_in_bytes" if self.v1 else "memory.max")).write_text(str(self.limit_bytes))
        except OSError as error:
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            support.skip(f"cannot use a memory control group: {error}")
        return self

    def command(self, argv):
        return ["/bin/sh", "-c", f'echo $$ >{self.folder}/cgroup.procs && exec "$@"', "sh", *map(str, argv)]

    def left(self):
        return self.limit_bytes - int((self.folder / ("memory.usage_in_bytes" if self.v1 else "memory.current")).read_text())

    def kills(self):
        text = (self.folder / ("memory.oom_control" if self.v1 else "memory.events")).read_text()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith("oom_kill ")))

    def __exit__(self, *_):
        for _ in range(600):
            with contextlib.suppress(OSError):
                return self.folder.rmdir()
            time.sleep(0.1)


def make_dataset(folder, bytes_):
    (folder / "files").mkdir()
    block = random.Random(1).randbytes(MIB)
    for i in range(bytes_ // len(block)):
        (folder / "files" / f"{i:05d}.bin").write_bytes(i.to_bytes(8, "little") + block[8:])
    dataset = pack(folder / "files", folder / "dataset", "--chunk-size", "64M")
    subprocess.run(["rm", "-r", folder / "files"], check=True)
    return dataset


def status(daemon):
    argv = [support.program("dieselctl"), "status", "--json", "--socket", str(daemon.socket)]
    return json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, timeout=60).stdout)


def reader(daemon, dataset, *options):
    return subprocess.Popen([support.program("daemon_probe"), "--dataset", dataset, "--socket", str(daemon.socket), "--batch", "1",
                             *map(str, options)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def trial(folder, dataset, options, scenario, processes):
    cache = options.limit * 3 // 4
    with Group(options.limit) as group, contextlib.ExitStack() as stack:
        daemon = stack.enter_context(Daemon(folder, "--cache", cache, "--metrics", "off", prefix=group.command, log=folder / "log"))
        if reader(daemon, dataset, "--epochs", 2).wait(timeout=600):
            raise SystemExit("the dataset cannot be read")
        job = None
        if scenario == "claimed":
            subprocess.run([support.program("dieselctl"), "set", f"cache={cache}", "--socket", str(daemon.socket)], check=True,
                           stdout=subprocess.DEVNULL)
            job = reader(daemon, dataset, "--epochs", 100000, "--pause-us", 1000)
            stack.callback(lambda: (job.kill(), job.communicate()))
            support.wait_for(lambda: status(daemon)["cache"]["claimed_bytes"] > options.limit // 3, "a claim")
        before, left = status(daemon)["cache"], group.left()
        part = (left * 9 // 10 + before["segment_bytes"] // 2) // processes
        argv = group.command([sys.executable, "-c", TAKE, part])
        takers = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
        lines = [taker.stdout.readline() for taker in takers]
        try:
            after = status(daemon)["cache"]
        except subprocess.CalledProcessError:  # the kernel has killed the process
            after = {"segment_bytes": 0}
        row = {"scenario": scenario, "processes": processes, "cache": before["segment_bytes"], "left": left,
               "taken": part * processes, "kills": group.kills(), "cache_after": after["segment_bytes"],
               "gib_per_s": part * processes / 2**30 / max(map(float, lines)) if all(lines) else None,
               "survived": all(lines) and daemon.process.poll() is None and (job is None or job.poll() is None)}
        for taker in takers:
            taker.kill()
            taker.communicate()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", default="8G", type=lambda text: int(text.removesuffix("G")) << 30)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scenario", nargs="+", choices=("borrowed", "claimed"), default=["borrowed", "claimed"])
    options, raw = parser.parse_args(), []
    if os.geteuid() != 0:
        support.skip("control groups need root")
    with support.Scratch() as folder:
        dataset = make_dataset(folder, options.limit * 5 // 8)
        for _ in range(options.rounds):
            for scenario in options.scenario:
                for processes in options.processes:
                    raw.append(trial(folder, dataset, options, scenario, processes))
                    print("  " + ", ".join(f"{k} {v / 2**30:.2f} GiB" if k in ("cache", "left", "taken", "cache_after") else f"{k} {v}"
                                           for k, v in raw[-1].items()), flush=True)
    support.result_write("give_way", raw, trials=len(raw), kills=sum(row["kills"] for row in raw),
                         survived=sum(row["survived"] for row in raw))


if __name__ == "__main__":
    main()
