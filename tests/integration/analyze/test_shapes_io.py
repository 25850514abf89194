# SPDX-License-Identifier: Apache-2.0
"""Tests every way in which loaders read their data, each with the real interface, and compares the report with the job's own clock
(shape_job.py). Tolerances are wide: they distinguish counted from not counted, not good from better."""
import contextlib
import http.server
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "bench"))
import support  # noqa: E402

import exact
import shapes_support
from forked import Script

BIN = pathlib.Path(os.environ.get("DIESEL_BIN", "build/release/bin"))
LIB = pathlib.Path(os.environ.get("DIESEL_LIB", "build/release/lib"))
ANALYZE = str(BIN / "diesel-analyze")
COUNT, SAMPLE = 160, 32768  # must match shape_job.py
TOLERANCE = 0.12
STARVED_MAX = 0.15


def missing(module):
    return importlib.util.find_spec(module) is None


def setUpModule():
    """Brings the job's libraries into the page cache. Missing pages would be read in the first steps, by page faults that no clock of the
    job sees."""
    maps, _ = Script("import numpy, torch\nprint(open('/proc/self/maps').read())", imported="torch").communicate()
    for path in {line.split()[-1] for line in maps.splitlines() if ".so" in line}:
        with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


class Shape(unittest.TestCase):
    def setUp(self):
        scratch = support.Scratch()
        self.folder = scratch.__enter__()
        self.addCleanup(scratch.__exit__)

    def file(self, count=COUNT):
        path = self.folder / "data.bin"
        path.write_bytes(os.urandom(count * SAMPLE))
        return path

    def record(self, shape, source, *arguments, iops=None, evict=()):
        """Returns the job's own clock and the report. iops: disk reads per second that the job may make. If other work of the machine held
        the cores for long, both are distorted, so the job runs once more."""
        for _ in range(3):
            clock, report = self.record_once(shape, source, arguments, iops, evict)
            if report["shares"]["cpu_starved"] < STARVED_MAX:
                break
        return clock, report

    def record_once(self, shape, source, arguments, iops, evict):
        recording = self.folder / "session.db"
        environment = dict(os.environ, RING_READER=str(LIB / "ring_reader.so"))
        support.evict(evict)
        with contextlib.ExitStack() as stack:
            if iops:
                slow = stack.enter_context(support.Throttle(self.folder, iops=iops))
                environment["READING_GROUP"] = str(slow.group / "cgroup.procs")
            job = shapes_support.forked(self, HERE / "shape_job.py", shape, source, *arguments, environment=environment)
            support.prefer(job.pid)
            recorder = shapes_support.attached(self, str(recording), "-p", job.pid, prefix=support.PREFERRED)
            job.go()
            out, err = job.communicate()
            _, text = recorder.communicate(timeout=60)
        if job.returncode == 77:
            self.skipTest("this machine does not allow it: " + err.strip())
        self.assertEqual((job.returncode, recorder.returncode), (0, 0), err + text)
        report = subprocess.run([ANALYZE, "report", "--format", "json", str(recording)], stdout=subprocess.PIPE,
                                check=True)
        return json.loads(out.splitlines()[-1]), json.loads(report.stdout)

    def compare(self, clock, report, fetch=True):
        shares = report["shares"]
        said = f"clock {clock}, report {shares}, loader {report.get('loader')}"
        # A clock around a read counts a wait for a core in it as reading, which is much on a busy machine.
        below = TOLERANCE + shares["cpu_starved"]
        wait = shares["fetch_stall"] + shares["prep_stall"]
        self.assertTrue(clock["wait"] - below < wait < clock["wait"] + TOLERANCE, said)
        if fetch:
            self.assertTrue(clock["fetch"] - below < shares["fetch_stall"] < clock["fetch"] + TOLERANCE, said)
            self.assertGreater(shares["fetch_stall"], 0.25 * clock["fetch"], said)

    def evidence(self, report):
        return " ".join(item["what"] for item in report["evidence"] if item["kind"] == "fetch")


def need_throttle(test):
    return unittest.skipIf(support.Throttle.why_not("/var/tmp"), str(support.Throttle.why_not("/var/tmp")))(test)


class LocalFiles(Shape):
    @need_throttle
    def test_small_files(self):
        paths = support.random_files(self.folder / "files", COUNT, SAMPLE, per_class=COUNT)
        clock, report = self.record("files", paths[0].parent, iops=200, evict=paths)
        self.compare(clock, report)
        cache = report["page_cache"]
        self.assertLess(cache["hit_ratio"], 0.5)
        self.assertGreater(cache["cold_bytes"], COUNT * SAMPLE * 0.4)
        self.assertIn(str(paths[0].parent) + "/", [place["path"] for place in cache["folders"]])
        self.assertTrue([place for place in cache["files"] if place["path"].startswith(str(paths[0].parent))])

    def test_small_files_in_the_page_cache(self):
        paths = support.random_files(self.folder / "files", COUNT, SAMPLE, per_class=COUNT)
        os.sync()
        for path in paths:
            path.read_bytes()
        clock, report = self.record("files", paths[0].parent)
        self.compare(clock, report)
        self.assertGreater(report["page_cache"]["hit_ratio"], 0.7)

    @need_throttle
    def test_direct(self):
        path = self.file()
        clock, report = self.record("direct", path, iops=200, evict=[path])
        self.compare(clock, report)
        self.assertGreater(report["page_cache"]["direct_bytes"], COUNT * SAMPLE * 0.4)


class Stores(Shape):
    @need_throttle
    def test_lmdb_by_page_faults(self):
        if missing("lmdb"):
            self.skipTest("python3-lmdb is not installed")
        folder = self.folder / "lmdb"
        subprocess.run([support.PYTHON, "-c", f"""
import lmdb, os
with lmdb.open({str(folder)!r}, map_size=1 << 28) as environment:
    with environment.begin(write=True) as transaction:
        for i in range({COUNT}):
            transaction.put(b"%08d" % i, os.urandom({SAMPLE}))
"""], check=True)
        clock, report = self.record("lmdb", folder, iops=1000, evict=[folder / "data.mdb"])
        self.compare(clock, report)
        self.assertIn("reading mapped files", self.evidence(report))
        mapped = report["page_cache"]["mapped"]
        # Each sample is at least 8 pages, read one by one, in random order of the samples.
        self.assertGreater(mapped["major_faults"], 6 * COUNT)
        # A thread that was preempted meanwhile finds the page there, and does not sleep for it: the job counts its sleeps.
        self.assertGreater(clock["sleeps"], 0)
        self.assertGreater(mapped["context_switches"], 0.7 * clock["sleeps"])
        self.assertGreater(mapped["fault_s"], 0.5 * clock["fetch"] * clock["wall_s"])
        self.assertGreater(mapped["random_ratio"], 0.05)
        self.assertLess(mapped["read_ahead_pages"] / mapped["major_faults"], 1)
        self.assertIn(str(folder / "data.mdb"), [place["path"] for place in report["page_cache"]["files"]])

    @need_throttle
    def test_hdf5(self):
        if missing("h5py"):
            self.skipTest("python3-h5py is not installed")
        path = self.folder / "data.h5"
        subprocess.run([support.PYTHON, "-c", f"""
import h5py, numpy
with h5py.File({str(path)!r}, "w") as file:
    data = numpy.random.default_rng(1).integers(0, 256, ({COUNT}, {SAMPLE}), dtype="u1")
    file.create_dataset("data", data=data, chunks=(1, {SAMPLE}))
"""], check=True)
        clock, report = self.record("hdf5", path, iops=200, evict=[path])
        self.compare(clock, report)


class Rings(Shape):
    def ring(self, mode):
        if not (LIB / "ring_reader.so").exists():
            self.skipTest("liburing was not there when this was built")
        path = self.file()
        clock, report = self.record(mode, path, iops=200, evict=[path])
        self.compare(clock, report)
        # The kernel's sums are read once per second. A second that began before the first step counts in part.
        self.assertGreater(report["page_cache"]["used_bytes"], COUNT * SAMPLE * 0.4)
        return report

    @need_throttle
    def test_plain(self):
        self.ring("uring")

    @need_throttle
    def test_sqpoll(self):
        self.ring("sqpoll")

    @need_throttle
    def test_async(self):
        self.ring("async")

    @need_throttle
    def test_direct(self):
        report = self.ring("uring-direct")
        self.assertGreater(report["page_cache"]["direct_bytes"], COUNT * SAMPLE * 0.4)


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers every GET after some ms, like an object store."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its header
    body = os.urandom(SAMPLE)

    def do_GET(self):  # noqa: N802, the name is given
        time.sleep(0.012)
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_):
        pass


class Network(Shape):
    def serve(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return "http://127.0.0.1:%d,%d" % (server.server_address[1], COUNT)

    def check(self, clock, report):
        self.compare(clock, report)
        self.assertGreater(report["page_cache"]["network_bytes"], COUNT * SAMPLE * 0.8)
        self.assertIn("network", self.evidence(report))

    def test_http(self):
        self.check(*self.record("http", self.serve()))

    def test_http_with_one_connection(self):
        if missing("requests"):
            self.skipTest("python3-requests is not installed")
        self.check(*self.record("session", self.serve()))

    def test_http_in_workers(self):
        clock, report = self.record("http", self.serve(), 2)
        self.compare(clock, report, fetch=False)
        workers = report["workers"]
        self.assertGreater(workers["fetch_s"], workers["cpu_s"], workers)
        shares = report["shares"]
        self.assertGreater(shares["fetch_stall"], 0.25 * (shares["fetch_stall"] + shares["prep_stall"]), shares)

    @need_throttle
    def test_fuse(self):
        mirror = BIN / "fuse_mirror"
        if not mirror.exists() or not os.path.exists("/dev/fuse"):
            self.skipTest("no libfuse3 when this was built, or no /dev/fuse")
        paths = support.random_files(self.folder / "files", COUNT, SAMPLE, per_class=COUNT)
        mount = self.folder / "mount"
        mount.mkdir()
        support.evict(paths)
        with support.Throttle(self.folder, iops=200) as slow:
            daemon = subprocess.Popen(slow.command([mirror, paths[0].parent, mount]))
            try:
                for _ in range(1200):
                    if os.path.ismount(mount):
                        break
                    time.sleep(0.05)
                clock, report = self.record("files", mount)
            finally:
                subprocess.run(["umount", "-l", str(mount)], check=False)
                daemon.wait(timeout=60)
        self.compare(clock, report)
        self.assertIn("FUSE", self.evidence(report))


if __name__ == "__main__":
    exact.main(needs_torch=True)
