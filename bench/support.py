# SPDX-License-Identifier: Apache-2.0
"""Shared by the benchmarks: a throttled disk, cold caches, stolen CPU time, results.

    with Throttle(data, iops=200, bps=200_000_000) as slow:   # Throttle.why_not(data) returns why it cannot
        drop_caches(); warm("torch")
        subprocess.run(slow.command(["python3", "job.py"]))

Nothing here imports more than the standard library. All times are seconds, all sizes bytes.
"""
import contextlib
import json
import os
import pathlib
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = pathlib.Path(os.environ.get("DIESEL_BENCH_RESULTS", ROOT / "bench" / "results"))
RAW = ROOT / "build" / "bench"
PYTHON = "/usr/bin/python3"  # the distribution's Python, which has torch
EXIT_SKIPPED = 77

# Command prefix for measured jobs: the kernel prefers them to other processes of the machine, which then disturb them less. Where the kernel
# groups processes by session, the group's priority is raised, too. Needs root.
PREFERRED = ["/bin/sh", "-c", 'echo -20 2>/dev/null >/proc/self/autogroup; exec nice -n -20 "$@"', "sh"]


def prefer(pid=0):
    """Makes the kernel prefer the process (0: this one) and those that it starts from here on, as with PREFERRED, if they stay in its
    session."""
    os.setpriority(os.PRIO_PROCESS, pid, -20)
    with contextlib.suppress(OSError):  # the kernel does not group processes by session
        pathlib.Path(f"/proc/{pid or 'self'}/autogroup").write_text("-20")


def wait_for(condition, what):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise SystemExit(f"timed out after a minute: {what}")


def program(name):
    """Returns the path of a built program: from DIESEL_BIN, as ./dev sets it, or from the release build."""
    path = pathlib.Path(os.environ.get("DIESEL_BIN", ROOT / "build" / "release" / "bin")) / name
    if not path.exists():
        skip(f"{name} is not built ({path}); run ./dev build")
    return str(path)


def build(folder, source, *options):
    """Compiles a C source into `folder`, and returns the program's path."""
    path = folder / source.stem
    done = subprocess.run(["cc", "-O2", "-o", path, source, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        skip(f"{source.name} cannot be built: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return path


def skip(why):
    print(f"SKIP {pathlib.Path(sys.argv[0]).stem}: {why}", flush=True)
    sys.exit(EXIT_SKIPPED)


class Throttle:
    """Read limits of the disk that holds `path`, for the processes started through command().

    Takes cgroup v1 blkio where it is mounted, else cgroup v2 io.max. The kernel counts requests, not files, for iops: a read of 110 KB is
    one or two. A limit accumulates unused tokens while no process reads.
    """

    V1 = pathlib.Path("/sys/fs/cgroup/blkio")
    V2 = pathlib.Path("/sys/fs/cgroup")

    def __init__(self, path, iops=None, bps=None):
        self.device = disk_of(path)
        self.iops, self.bps = iops, bps
        self.group = None

    @classmethod
    def why_not(cls, path):
        """Returns None if the disk of `path` can be throttled here, else the reason in words."""
        if os.geteuid() != 0:
            return "throttling a disk needs root"
        try:
            device = disk_of(path)
        except OSError as error:
            return f"{path} is not on a block device ({error})"
        if not (cls._v1() or cls._v2()):
            return "neither cgroup v1 blkio nor the cgroup v2 io controller is mounted"
        return None if device else f"{path} is not on a block device"

    @classmethod
    def _v1(cls):
        return (cls.V1 / "blkio.throttle.read_bps_device").exists()

    @classmethod
    def _v2(cls):
        controllers = cls.V2 / "cgroup.controllers"
        return controllers.exists() and "io" in controllers.read_text().split()

    def __enter__(self):
        parent = self.V1 if self._v1() else self.V2
        if parent == self.V2:
            (parent / "cgroup.subtree_control").write_text("+io")
        self.group = parent / f"diesel-bench-{os.getpid()}-{time.monotonic_ns()}"
        self.group.mkdir()
        try:
            self._limit()
        except OSError:
            self.group.rmdir()
            raise
        return self

    def _limit(self):
        if self.group.parent == self.V1:
            for name, limit in (("bps", self.bps), ("iops", self.iops)):
                if limit:
                    (self.group / f"blkio.throttle.read_{name}_device").write_text(f"{self.device} {limit}")
        else:
            limits = [f"r{name}={limit}" for name, limit in (("bps", self.bps), ("iops", self.iops)) if limit]
            (self.group / "io.max").write_text(f"{self.device} {' '.join(limits)}")

    def change(self, iops=None, bps=None):
        """Sets other limits for the running group. None: no limit."""
        self.iops, self.bps = iops, bps
        if self.group.parent == self.V1:
            for name in ("bps", "iops"):  # 0 lifts a limit
                (self.group / f"blkio.throttle.read_{name}_device").write_text(f"{self.device} 0")
        else:
            (self.group / "io.max").write_text(f"{self.device} rbps=max riops=max")
        if iops or bps:
            self._limit()

    def command(self, argv):
        """Returns argv as a command that runs in the group, with its children."""
        return ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self.group / "cgroup.procs"), *map(str, argv)]

    def add(self, pid):
        """Moves a running process into the group (threads and later children with it)."""
        (self.group / "cgroup.procs").write_text(str(pid))

    def read_bytes(self):
        """Returns the bytes read from the disk by the processes of the group so far, or None where the kernel does not count them."""
        counters = self.group / "blkio.throttle.io_service_bytes"
        if not counters.exists():
            return None
        for line in counters.read_text().splitlines():
            fields = line.split()
            if fields[:2] == [self.device, "Read"]:
                return int(fields[2])
        return 0

    def __exit__(self, *_):
        for pid in (self.group / "cgroup.procs").read_text().split():
            try:
                (self.group.parent / "cgroup.procs").write_text(pid)
            except OSError:
                pass  # the process ended meanwhile
        for _ in range(50):
            try:
                self.group.rmdir()
                return
            except OSError:
                time.sleep(0.1)  # zombies leave the group a moment after they are waited for
        print(f"cannot remove {self.group}: it still has processes", file=sys.stderr)


def disk_of(path):
    """Returns MAJOR:MINOR of the whole disk under `path`, as the kernel refuses limits for a partition."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    entry = pathlib.Path(f"/sys/dev/block/{number}")
    if not entry.exists():
        raise OSError(f"device {number}")
    if (entry / "partition").exists():
        number = (entry.resolve().parent / "dev").read_text().strip()
    return number


def drop_caches():
    """Empties the page cache and the caches of names and inodes of the whole machine (root)."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def evict(paths):
    """Drops only these files from the page cache; their inodes stay cached. Needs no root."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)  # the kernel does not drop dirty pages
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def sequential_read(path, n_bytes):
    """Returns bytes per second that fio reads from this file, past the page cache and in order. If the file is missing, fills it with n_bytes
    random bytes. Drops the caches (root)."""
    if not path.exists():
        with open(path, "wb") as file:
            for _ in range(0, n_bytes, 1 << 20):
                file.write(os.urandom(1 << 20))
    drop_caches()
    return direct_read(path)


def direct_read(*paths):
    """Returns bytes per second that fio reads from these files, one after the other, past the page cache."""
    done = subprocess.run(["fio", "--name=sequential", f"--filename={':'.join(map(str, paths))}", "--file_service_type=sequential", "--rw=read",
                           "--bs=1M", "--direct=1", "--iodepth=16", "--ioengine=io_uring", "--readonly", "--output-format=json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"]


def warm(*modules):
    """Reads Python modules and their libraries into the page cache: a throttled import takes minutes."""
    subprocess.run([PYTHON, "-c", "import " + ", ".join(("sys", *modules))], check=True)


class Steal:
    """Measures the CPU time that the job under test could not get while the block ran, as shares of all CPUs. `ratio` was taken by the host,
    and `neighbours` by processes that are not this one's (waited-for) children."""

    LIMIT = 0.03  # above this ratio, a run measures the host and must be repeated
    NEIGHBOURS_LIMIT = 0.05

    def __enter__(self):
        self.ratio = self.neighbours = None
        self._before = self._read()
        return self

    def __exit__(self, *_):
        steal, total, busy, own = (after - before for after, before in zip(self._read(), self._before))
        self.ratio = steal / max(1, total)
        self.neighbours = max(0, busy - own) / max(1, total)

    @property
    def burst(self):
        return self.ratio > self.LIMIT

    @property
    def disturbed(self):
        return self.burst or self.neighbours > self.NEIGHBOURS_LIMIT

    @staticmethod
    def _read():
        with open("/proc/stat", encoding="ascii") as stat:
            user, nice, system, idle, iowait, irq, softirq, steal = (int(x) for x in stat.readline().split()[1:9])
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own = sum(use.ru_utime + use.ru_stime for use in usage) * os.sysconf("SC_CLK_TCK")
        busy = user + nice + system + irq + softirq
        return steal, busy + idle + iowait + steal, busy, own


class Scratch:
    """A temporary folder on a real disk (not tmpfs), which is removed at the end: `with Scratch() as path`."""

    def __init__(self, parent=None):
        self.parent = parent or os.environ.get("DIESEL_BENCH_DIR", "/var/tmp")

    def __enter__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="diesel-bench-", dir=self.parent))
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def random_files(folder, count, size, per_class=100):
    """Writes `count` files of `size` random bytes in class folders, and returns their paths. Never constants: these would compress, and
    constant tensors make some CPU kernels several times faster."""
    paths = []
    for i in range(count):
        group = pathlib.Path(folder) / f"class{i // per_class:04d}"
        group.mkdir(parents=True, exist_ok=True)
        path = group / f"{i:06d}.bin"
        path.write_bytes(os.urandom(size))
        paths.append(path)
    return paths


def shim(mode, out):
    """Returns the environment that puts the clock of analyzer/truth in front of a job. The clock writes its line to the file `out`."""
    pathlib.Path(out).unlink(missing_ok=True)
    return {"DIESEL_TRUTH_MODE": mode, "DIESEL_TRUTH_OUT": str(out),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT / "analyzer" / "truth"), os.environ.get("PYTHONPATH"))))}


def shim_seconds(out):
    """Returns the seconds from the job's first request for a batch to the end of its last step."""
    fields = pathlib.Path(out).read_text(encoding="ascii").split()
    return float(fields[fields.index("seconds") + 1])


def median(values):
    return statistics.median(values)


def result_write(name, raw, quiet=False, **figures):
    """Keeps the figures as bench/results/NAME.json, and all measurements with them as build/bench/NAME.json. Prints the RESULT line (quiet:
    more results follow)."""
    document = {
        "name": name,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit(),
        "machine": {"kernel": platform.release(), "cpus": os.cpu_count(), "python": platform.python_version()},
        "figures": figures,
    }
    for folder, content in ((RESULTS, document), (RAW, document | {"raw": raw})):
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, indent=1).replace(f"{ROOT}/", "")  # results must not contain this machine's paths
        (folder / f"{name}.json").write_text(text + "\n")
    if not quiet:
        print("RESULT", " ".join(f"{key}={_short(value)}" for key, value in figures.items()), flush=True)


def raw_read(name):
    """Returns the measurements that result_write() kept on this machine, {} if there are none."""
    path = RAW / f"{name}.json"
    return json.loads(path.read_text())["raw"] if path.exists() else {}


def _short(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def commit():
    answer = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"
