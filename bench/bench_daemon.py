# SPDX-License-Identifier: Apache-2.0
"""The tuned daemon as a neighbour: memory pressure, what it costs when idle, what its sensing costs a job.

pressure: daemon, job and a memory hog are in one real cgroup with a memory limit. Figures are the time from the first memory stall (PSI of
the group) until the cache has half its size, and the time until it is back after the hog ends. Kernel kills in the group are counted.
idle: CPU and memory of the daemon with all its processes, while it serves no job.
sensing: samples per second of a job that never waits for data and uses a whole core, alternately with BPF sensing and
without (a daemon that has no capabilities).

    bench_daemon.py [--scenario pressure|idle|sensing ...] [--rounds N]
"""
import argparse
import contextlib
import os
import pathlib
import subprocess
import time

from tuning import bed as testbed
import support
from tuning.bed import MIB, Knobs
from jobs import usage

V1, V2 = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup/unified")
ROUNDS, IDLE_S, SENSE_S, PASSES = 3, 30.0, 12.0, 60
LIMIT_BYTES, CACHE_BYTES = 640 * MIB, 256 * MIB
HOG_PACE = 100 * MIB
FILE_BYTES = 256 * MIB


class Group:
    """A memory limit (cgroup v1) for processes that are also in a cgroup v2 group, whose PSI is read."""

    @staticmethod
    def why_not():
        if not (V1 / "memory.limit_in_bytes").exists():
            return "no cgroup v1 memory controller"
        return None if (V2 / "cgroup.procs").exists() else "no unified cgroup hierarchy (cgroup v2)"

    def __init__(self, limit_bytes):
        name = f"diesel-bench-{os.getpid()}-{time.monotonic_ns()}"
        self.memory, self.unified, self.limit_bytes = V1 / name, V2 / name, limit_bytes

    def __enter__(self):
        for path in (self.memory, self.unified):
            path.mkdir()
        (self.memory / "memory.limit_in_bytes").write_text(str(self.limit_bytes))
        return self

    @property
    def paths(self):
        return [self.memory, self.unified]

    def command(self, argv):
        script = 'echo $$ >"$0"; echo $$ >"$1"; shift; exec "$@"'
        return ["/bin/sh", "-c", script, *(str(path / "cgroup.procs") for path in self.paths), *map(str, argv)]

    def usage(self):
        return int((self.memory / "memory.usage_in_bytes").read_text())

    def stalled_us(self):
        text = (self.unified / "memory.pressure").read_text()
        return int(text.splitlines()[0].rpartition("total=")[2])

    def kills(self):
        for line in (self.memory / "memory.oom_control").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def __exit__(self, *_):
        for path in self.paths:
            for _ in range(50):
                with contextlib.suppress(OSError):
                    path.rmdir()
                    break
                time.sleep(0.1)


def cached(daemon):
    """Returns the bytes of the chunks in the daemon's memory."""
    return daemon.status()["cache"]["segment_bytes"]


def watch(daemon, group, rows, seconds, until=lambda row: False):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        row = {"at": time.monotonic(), "cache": cached(daemon), "stalled_us": group.stalled_us(), "usage": group.usage(),
               "kills": group.kills()}
        rows.append(row)
        if until(row):
            return row
        time.sleep(0.1)
    return None


def pressure(bed):
    if why := Group.why_not():
        support.skip(why)
    big = bed.folder / "hog.bin"
    big.write_bytes(os.urandom(MIB) * (FILE_BYTES // MIB))
    rows = []
    bed.slow.change()
    with Group(LIMIT_BYTES) as group, contextlib.ExitStack() as stack:
        serving = bed.serving(Knobs(CACHE_BYTES), tune="on", prefix=group.command)
        daemon = stack.enter_context(serving)
        bed.slow.add(daemon.process.pid)
        bed.slow.change(bps=32_000_000)
        job = stack.enter_context(bed.job("diesel", workers=0, device_ms=12, socket=daemon.socket, groups=group.paths))
        watch(daemon, group, rows, 25)
        before = rows[-1]["cache"]
        wanted = (group.limit_bytes - group.usage() + before * 6 // 10) // MIB * MIB
        begin = time.monotonic()
        hog = subprocess.Popen(group.command([support.PYTHON, str(support.ROOT / "bench/jobs/hog.py"), wanted, HOG_PACE, big]),
                               stdout=subprocess.DEVNULL)
        stack.callback(lambda: (hog.kill(), hog.wait()))
        halved = watch(daemon, group, rows, 20, lambda row: row["cache"] <= before / 2)
        watch(daemon, group, rows, 5)
        survived = hog.poll() is None and job.alive and daemon.process.poll() is None
        hog.kill()
        hog.wait()
        freed = time.monotonic()
        back = watch(daemon, group, rows, 100, lambda row: row["cache"] >= 0.9 * before)
        stalled = next((row["at"] for row in rows if row["at"] >= begin and row["stalled_us"] > rows[0]["stalled_us"] + 1000), None)
        return {"before": before, "wanted": wanted, "rows": [{**row, "at": round(row["at"] - begin, 2)} for row in rows],
                "halved_after_s": halved and max(0.0, halved["at"] - (stalled or halved["at"])),
                "halved_after_hog_s": halved and halved["at"] - begin, "stalled": stalled and stalled - begin,
                "survived": survived, "kills": rows[-1]["kills"], "back_s": back and back["at"] - freed,
                "why": daemon.ctl("why", "--json").stdout}


def idle(bed):
    with bed.serving(Knobs(CACHE_BYTES), tune="on") as daemon:
        time.sleep(4)
        begin, cpu = time.monotonic(), usage.cpu_of([daemon.process.pid])
        time.sleep(IDLE_S)
        cpu = usage.cpu_of([daemon.process.pid]) - cpu
        pids = (daemon.process.pid, *usage.tree(daemon.process.pid))
        return {"percent": 100 * cpu / (time.monotonic() - begin), "processes": len(pids),
                "mib": sum(usage.smaps(pid, "Pss") for pid in pids) / MIB}


def sensing(bed, bpf):
    """Measures a job without a device wait whose trainer does the Python work itself, so that the figures include all core time that sensing
    takes."""
    bed.slow.change()
    plain = None if bpf else lambda argv: bed.slow.command(["setpriv", "--bounding-set=-all", "--inh-caps=-all", *argv])
    with bed.serving(Knobs(CACHE_BYTES), tune="dry-run", prefix=plain) as daemon, \
            bed.job("diesel", workers=0, transform=True, passes=PASSES, device_ms=0, socket=daemon.socket) as job:
        job.wait_steps(bed.steps_per_epoch // 2)
        time.sleep(3)
        begin = time.monotonic()
        with support.Steal() as steal:
            time.sleep(SENSE_S)
        return {"bpf": bpf, "rate": testbed.rate_of(job.steps(begin)), "steal": steal.ratio,
                "own_cpu": usage.cpu_of(usage.tree(daemon.process.pid)),
                "source": daemon.ctl("jobs", "--json").stdout}


def figures(raw):
    found = {}
    if runs := raw.get("pressure"):
        halved = [run["halved_after_s"] for run in runs]
        back = [run["back_s"] for run in runs]
        found |= {"halved_worst_s": "never" if None in halved else max(halved), "kills": sum(run["kills"] for run in runs),
                  "survived": int(all(run["survived"] for run in runs)),
                  "back_worst_s": "never" if None in back else max(back)}
    if runs := raw.get("idle"):
        found |= {"idle_percent": support.median([run["percent"] for run in runs]),
                  "idle_mib": support.median([run["mib"] for run in runs])}
    if runs := raw.get("sensing"):
        with_bpf, without = ([run["rate"] for run in runs if run["bpf"] == bpf] for bpf in (True, False))
        found["sensing_ratio"] = support.median([a / b for a, b in zip(with_bpf, without)])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("pressure", "idle", "sensing")
    parser.add_argument("--scenario", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    if os.geteuid() != 0:
        support.skip("control groups need root")
    raw = {}
    with testbed.Bed() as bed:
        for number in range(options.rounds):
            for part in options.scenario:
                if part == "sensing":
                    for bpf in ((True, False), (False, True))[number % 2]:
                        raw.setdefault(part, []).append(sensing(bed, bpf))
                else:
                    raw.setdefault(part, []).append({"pressure": pressure, "idle": idle}[part](bed))
                last = raw[part][-1]
                print(f"  {part}: " + ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in last.items()
                                               if k not in ("rows", "why", "source")), flush=True)
    support.result_write("daemon", raw, **figures(raw))


if __name__ == "__main__":
    main()
