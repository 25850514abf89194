# SPDX-License-Identifier: Apache-2.0
"""Tests diesel-analyze on the real kernel: jobs with known behaviour, and the recordings of them."""
import ctypes
import json
import os
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import exact
import recording_file as s
import shapes_support

BIN = os.environ.get("DIESEL_BIN", "build/release/bin")
LIB = os.environ.get("DIESEL_LIB", "build/release/lib")
ANALYZE = os.path.join(BIN, "diesel-analyze")
JOB = os.path.join(BIN, "recorded_job")

TORCH_JOB = """
import sys, torch
x = torch.ones(4, 4, requires_grad=True)
print("ready", flush=True)
if len(sys.argv) > 2:
    sys.stdin.readline()
for _ in range(int(sys.argv[1])):
    (x * x).sum().backward()
"""

MARK_JOB = """
import ctypes, os, sys
lib = ctypes.CDLL(sys.argv[1])
import time; time.sleep(0.3)
lib.diesel_mark.argtypes = [ctypes.c_uint32, ctypes.c_uint64]
for i in range(20):
    lib.diesel_mark(1 + i % 2, 1 << 40 | i)
"""

# Marks at once when it is told to, and maps files of other names after libdiesel, so that they come first in /proc/PID/maps.
CROWDED_JOB = """
import ctypes, os, sys
lib, libc = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(None)
lib.diesel_mark.argtypes = [ctypes.c_uint32, ctypes.c_uint64]
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for i in range(int(sys.argv[3])):
    file = os.open(os.path.join(sys.argv[2], str(i)), os.O_RDWR | os.O_CREAT)
    os.write(file, b"x")
    libc.mmap(None, 1, 5, 2, file, 0)  # PROT_READ | PROT_EXEC, MAP_PRIVATE
    os.close(file)
print("ready", flush=True)
sys.stdin.readline()
for i in range(20):
    lib.diesel_mark(1 + i % 2, i)
"""

# 200 steps of libdiesel with 40 short sleeps each: about 100 KB of records, however long that takes. With the recording's path, quiet steps
# follow until the recorder has written to it three times (SQLite counts that at byte 24 of the file). By then it has measured the cost of
# the first ones.
BUSY_JOB = """
import ctypes, os, sys, time
lib = ctypes.CDLL(sys.argv[1])
lib.diesel_mark.argtypes = [ctypes.c_uint32, ctypes.c_uint64]
def step(sleeps, seconds):
    for kind in 1, 3, 4, 2:
        lib.diesel_mark(kind, 1)
        for _ in range(sleeps):
            time.sleep(seconds)
def writes():
    return int.from_bytes(os.pread(recording, 4, 24), "big")
for _ in range(200):
    step(10, 0.00005)
if len(sys.argv) > 2:
    recording = os.open(sys.argv[2], os.O_RDONLY)
    end = writes() + 3
    while writes() < end:
        step(1, 0.005)
"""


def run(*args, **kwargs):
    return subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, **kwargs)


class Recording(unittest.TestCase):
    compares_clocks = False

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="diesel-record-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.path = os.path.join(self.folder, "s.db")

    def record(self, *command, options=(), status=0, **kwargs):
        done = run(ANALYZE, "record", "-o", self.path, *options, "--", *command, **kwargs)
        self.assertEqual(done.returncode, status, done.stderr)
        self.done = done
        recording = s.Recording(self.path)
        self.assertEqual(recording.info["complete"], "1")
        return recording

    def root_sleeps(self, recording, nr):
        root = recording.number("root_tgid")
        return [e for e in recording.of(s.SWITCH, root) if e.state & 1 and e.syscall_nr == nr]


class KnownJobs(Recording):
    compares_clocks = True

    def test_sleeps_are_woken_by_the_timer(self):
        recording = self.record(JOB, "sleep", 50)
        calls = [e for e in recording.of(s.SYSCALL) if e.nr == 230]
        self.assertEqual(len(calls), 50)
        sleeps = self.root_sleeps(recording, 230)
        # A preempted thread can find that its time is over before it sleeps.
        self.assertGreaterEqual(len(sleeps), 40)
        # Kernels of some virtual machines run no hooks in an interrupt of their own agent.
        seen = [e for e in sleeps if e.waker_context != s.WAKER_NONE]
        self.assertGreaterEqual(len(seen), 0.9 * len(sleeps))
        for e in seen:
            self.assertNotEqual(e.waker_context, s.WAKER_TASK, e)
            self.assertTrue(e.start_ns <= e.waking_ns <= e.end_ns, e)

    def test_pingpong_is_woken_by_the_other_thread(self):
        recording = self.record(JOB, "pingpong", 2000)
        threads = [int(line.split()[1]) for line in self.done.stdout.splitlines()]
        self.assertEqual(len(threads), 2)
        n = 0
        for me, other in (threads, threads[::-1]):
            for e in recording.of(s.SWITCH, me):
                if e.state & 1 and e.syscall_nr == 202:
                    self.assertEqual(e.waker_context, s.WAKER_TASK, e)
                    self.assertEqual(e.waker_tid, other, e)
                    n += 1
        self.assertGreater(n, 500)

    def test_who_had_the_core(self):
        """Two processes spin on one CPU. Each waits for the other, which is a neighbour if it does not belong to the job."""
        spin = "import os, time; os.sched_setaffinity(0, {%d}); end = time.process_time() + 0.5\n" \
               "while time.process_time() < end: pass" % min(os.sched_getaffinity(0))
        both = f"import os, time; os.fork()\n{spin}"
        own = self.queued(self.record(sys.executable, "-c", both))
        neighbour = subprocess.Popen([sys.executable, "-c", spin.replace("0.5", "60")])
        self.addCleanup(neighbour.wait)
        self.addCleanup(neighbour.kill)
        shared = self.queued(self.record(sys.executable, "-c", spin))
        self.assertGreater(own[False], 10**8)
        self.assertGreater(shared[True], 10 * shared[False])

    @staticmethod
    def queued(recording):
        """Returns the ns in which threads were preempted, by whether a neighbour had the core."""
        sums = {False: 0, True: 0}
        for e in recording.of(s.SWITCH):
            if e.flags & s.PREEMPTED:
                sums[bool(e.flags & s.NEIGHBOUR)] += e.end_ns - e.start_ns
        return sums

    def cold_file(self, n, name="data"):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as f:
            f.write(os.urandom(n * 65536))
            f.flush()
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return path

    def test_direct_reads_block_and_are_woken_by_interrupts(self):
        path = self.cold_file(64)
        done = run(JOB, "direct", 1, path)
        if done.returncode == 77:
            self.skipTest("no O_DIRECT on " + self.folder)
        recording = self.record(JOB, "direct", 64, path)
        inode = os.stat(path).st_ino
        reads = [e for e in recording.of(s.SYSCALL) if e.nr == 17 and e.inode == inode]
        self.assertEqual(len(reads), 64)
        for e in reads:
            self.assertEqual((e.file_type, e.result, e.argument), (8, 65536, 65536))
        blocked = [e for e in recording.of(s.SWITCH) if e.state & 2 and e.syscall_nr == 17]
        self.assertGreater(len(blocked), 32)
        by_task = [e for e in blocked if e.waker_context == s.WAKER_TASK]
        self.assertLess(len(by_task), len(blocked) / 10)
        # An open has a record of its own, or is the last call of a group that began with the loading of libraries.
        opened = [e for e in recording.of(s.SYSCALL) if e.nr == 257] + [e for e in recording.of(s.CALLS) if e.n_opens]
        self.assertEqual(len([e for e in opened if e.inode == inode]), 1)

    def test_major_faults_are_seen_outside_of_calls(self):
        recording = self.record(JOB, "faults", 64, self.cold_file(64))
        faults = [e for e in recording.of(s.SWITCH) if e.flags & s.MAJOR_FAULT]
        self.assertGreater(len(faults), 32)
        for e in faults:
            self.assertTrue(e.state & 2, e)
            self.assertEqual(e.syscall_nr, 0xFFFF)

    def test_page_faults_of_a_library_are_no_reading(self):
        recording = self.record(JOB, "faults", 64, self.cold_file(64, "libdata.so.1"))
        slept = [e for e in recording.of(s.SWITCH) if e.state & 2 and e.syscall_nr == 0xFFFF]
        self.assertGreater(len([e for e in slept if e.flags & s.CODE]), 32)
        inode = os.stat(os.path.join(self.folder, "libdata.so.1")).st_ino
        self.assertFalse([e for e in recording.of(s.FAULT) if e.inode == inode])

    @unittest.skipIf(os.geteuid(), "a higher priority needs root")
    def test_a_preferred_job_does_not_hold_the_recorder_up(self):
        follows = ("import os, time\n"
                   "end = time.monotonic() + 60\n"
                   "while os.getpriority(os.PRIO_PROCESS, os.getppid()) > -7 and time.monotonic() < end: time.sleep(0.01)\n"
                   "raise SystemExit(os.getpriority(os.PRIO_PROCESS, os.getppid()) != -7)")
        self.record("nice", "-n", -7, sys.executable, "-c", follows)

    def test_descendants_belong_to_the_job(self):
        recording = self.record(JOB, "family", 4, status=5)
        root = recording.number("root_tgid")
        forks = [e for e in recording.of(s.FORK, root) if e.child_tgid != root]
        self.assertEqual(len(forks), 4)
        for fork in forks:
            self.assertEqual(len(recording.of(s.EXEC, fork.child_tid)), 2)
            self.assertEqual(len(recording.of(s.EXIT, fork.child_tid)), 1)
            names = [e.comm.rstrip(b"\0") for e in recording.of(s.NAME, fork.child_tid)]
            self.assertEqual(names[1:], [b"sh", b"true"])
        self.assertEqual(recording.info["exit_status"], str(5 << 8))
        self.assertEqual(len(recording.of(s.EXIT, root)), 1)

    def test_totals_of_a_thread_that_ended(self):
        recording = self.record(JOB, "thread")
        said_ns = int(self.done.stdout.split()[1])
        root = recording.number("root_tgid")
        (fork,) = [e for e in recording.of(s.FORK, root) if e.child_tgid == root]
        (end,) = recording.of(s.EXIT, fork.child_tid)
        self.assertGreaterEqual(end.exec_ns, said_ns)
        life_ns = end.end_ns - fork.end_ns
        total_ns = end.exec_ns + end.queue_ns + end.sleep_ns + end.block_ns
        self.assertGreaterEqual(end.sleep_ns, 5000000)
        # The records must add up to the totals.
        stretches = recording.of(s.SWITCH, fork.child_tid)
        # The kernel counts running from before the hook of a switch to after the next one, so each switch is in both.
        self.assertLessEqual(total_ns, life_ns + 1000000 + 50000 * len(stretches))
        # An unseen wake-up (0) counts as the end.
        slept_ns = sum((e.waking_ns or e.end_ns) - e.start_ns for e in stretches if e.state & 1)
        queued_ns = sum(e.end_ns - ((e.waking_ns or e.end_ns) if e.state else e.start_ns) for e in stretches)
        self.assertEqual(slept_ns, end.sleep_ns)
        self.assertEqual(queued_ns, end.queue_ns)

    def test_threads_records_come_in_order(self):
        recording = self.record(JOB, "pingpong", 500)
        for tid in {e.tid for e in recording.events}:
            stretches = recording.of(s.SWITCH, tid)
            for a, b in zip(stretches, stretches[1:]):
                self.assertLessEqual(a.end_ns, b.start_ns)
                self.assertLessEqual(a.exec_ns, b.exec_ns)

    def test_quick_calls_become_groups(self):
        n = 50000
        recording = self.record(JOB, "calls", n)
        root = recording.number("root_tgid")
        inode = os.stat(JOB).st_ino
        groups = [e for e in recording.of(s.CALLS, root) if e.inode == inode]
        single = [e for e in recording.of(s.SYSCALL, root) if e.nr == 17 and e.inode == inode]
        self.assertLess(len(groups) + len(single), n / 50)
        # A group can also hold calls on other files, but only those of the dynamic linker.
        n_reads = sum(e.n_reads for e in groups) + len(single)
        self.assertTrue(n <= n_reads <= n + 20, n_reads)
        self.assertGreaterEqual(sum(e.bytes for e in groups) + sum(e.result for e in single), 64 * n)
        stretches = recording.of(s.SWITCH, root)
        for e in groups:
            self.assertLessEqual(e.busy_ns, e.end_ns - e.start_ns)
            self.assertGreaterEqual(e.n_calls, 2)
            self.assertEqual((e.file_type, e.source), (8, 1))
            for stretch in stretches:
                self.assertTrue(stretch.end_ns <= e.start_ns or stretch.start_ns >= e.end_ns, "no switch within")
        calls = sorted(groups + recording.of(s.SYSCALL, root), key=lambda e: e.start_ns)
        for a, b in zip(calls, calls[1:]):
            self.assertLessEqual(a.end_ns, b.start_ns)

    def test_full_ring_loses_records_but_no_totals(self):
        n = 200000
        recording = self.record(JOB, "writes", n, options=["--ring", "4k"])
        root = recording.number("root_tgid")
        writes = [e for e in recording.of(s.SYSCALL) if e.nr == 1]
        lost = recording.number("lost_type_%d" % s.SYSCALL)
        self.assertGreater(lost, 0)
        self.assertLess(len(writes), n)
        self.assertGreaterEqual(len(writes) + lost, n)
        self.assertLess(len(writes) + lost, n + 1000)
        self.assertEqual(recording.number("lost_events"),
                         sum(int(v) for k, v in recording.info.items() if k.startswith("lost_type_")))
        (end,) = recording.of(s.EXIT, root)
        self.assertGreaterEqual(end.exec_ns, int(self.done.stdout.split()[1]))
        self.assertIn("lost", self.done.stderr)


class Reads(Recording):
    """Compares the kernel's sums of the job's reads with the known reads."""

    compares_clocks = True

    def cold_file(self, n):
        return KnownJobs.cold_file(self, n)

    def place(self, recording, path):
        inode = os.stat(path).st_ino
        places = [e for e in recording.of(s.PLACE) if e.inode == inode and not e.flags & s.FOLDER]
        self.assertTrue(places, path)
        return {name: sum(getattr(e, name) for e in places)
                for name in ("accessed", "missed", "n_reads", "used_kib", "direct_kib")}

    def paths(self):
        with sqlite3.connect(self.path) as db:
            notes = [value for (value,) in db.execute("SELECT value FROM notes WHERE kind='path'")]
        db.close()
        return {note[16:].decode(): struct.unpack("<QII", note[:16]) for note in notes}

    def total(self, recording, kind, name):
        return sum(getattr(e, name) for e in recording.of(kind))

    def test_sums_are_exact_when_the_ring_is_full(self):
        n = 100000
        recording = self.record(JOB, "mixed", n, options=["--ring", "4k"])
        self.assertGreater(recording.number("lost_events"), 0)
        n_reads = self.total(recording, s.READS, "n_reads")
        self.assertTrue(n <= n_reads <= n + 20, n_reads)  # the dynamic linker reads a little
        in_sizes = sum(getattr(e, "n%d" % k) for e in recording.of(s.READ_SIZES) for k in range(7))
        self.assertEqual(in_sizes, n_reads)
        small = [e.n6 for e in recording.of(s.READ_SIZES) if e.first == 0]  # 64 to 127 bytes
        self.assertTrue(n <= sum(small) <= n + 20)
        self.assertGreaterEqual(self.total(recording, s.READS, "used_bytes"), 64 * n)

    def test_direct_reads(self):
        path = self.cold_file(64)
        if run(JOB, "direct", 1, path).returncode == 77:
            self.skipTest("no O_DIRECT on " + self.folder)
        recording = self.record(JOB, "direct", 64, path)
        self.assertEqual(self.total(recording, s.READS, "direct_bytes"), 64 * 65536)
        self.assertEqual(self.place(recording, path), {"accessed": 0, "missed": 0, "n_reads": 64, "used_kib": 4096,
                                                     "direct_kib": 4096})

    def hold_in_memory(self, path):
        """The kernel may evict pages of a file at any time, unless a process has locked them."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        size, fd = os.path.getsize(path), os.open(path, os.O_RDONLY)
        address = libc.mmap(None, size, 1, 1 | 0x2000, fd, 0)  # PROT_READ, MAP_SHARED | MAP_LOCKED
        os.close(fd)
        self.assertNotEqual(address, ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno()))
        self.addCleanup(libc.munmap, address, size)

    def test_a_cold_and_a_warm_file(self):
        path = self.cold_file(64)
        for missed in (1024, 0):
            if not missed:
                self.hold_in_memory(path)
            recording = self.record("dd", "if=" + path, "of=/dev/null", "bs=100k")
            place = self.place(recording, path)
            self.assertEqual((place["accessed"], place["missed"], place["used_kib"]), (1024, missed, 4096))
            os.unlink(self.path)

    def test_sendfile_reads_its_source(self):
        path, target = self.cold_file(64), os.path.join(self.folder, "target")
        copy = ("import os, sys\nsource = os.open(sys.argv[1], os.O_RDONLY); target = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)\n"
                "while os.sendfile(target, source, None, 1 << 20): pass")
        recording = self.record(sys.executable, "-c", copy, path, target)
        place = self.place(recording, path)
        self.assertEqual((place["missed"], place["used_kib"]), (1024, 4096))
        self.assertNotIn(os.stat(target).st_ino, [e.inode for e in recording.of(s.PLACE)])
        calls = [e for e in recording.of(s.SYSCALL) if e.nr == 40]
        self.assertEqual({e.inode for e in calls}, {os.stat(path).st_ino})
        self.assertEqual(sum(e.result for e in calls), 64 * 65536)

    def test_what_is_written_is_not_missed(self):
        path = os.path.join(self.folder, "out")
        recording = self.record("dd", "if=/dev/zero", "of=" + path, "bs=1M", "count=8", "conv=fsync")
        inode = os.stat(path).st_ino
        self.assertFalse([e for e in recording.of(s.PLACE) if e.inode == inode])
        syncs = [e for e in recording.of(s.SWITCH) if e.syscall_nr == 74 and e.state]
        self.assertTrue(syncs)
        for e in syncs:
            self.assertTrue(e.flags & s.WRITEBACK, e)

    def test_page_faults_one_by_one(self):
        path = self.cold_file(64)
        recording = self.record(JOB, "faults", 64, path)
        inode = os.stat(path).st_ino
        faults = [e for e in recording.of(s.FAULT) if e.inode == inode]
        self.assertEqual([e.page for e in faults], [16 * i for i in range(64)])
        sleeps = [e for e in recording.of(s.SWITCH, faults[0].tid) if e.flags & s.MAJOR_FAULT]
        for e in faults:
            self.assertEqual(e.added_pages, 1, "MADV_RANDOM")
            within = [w for w in sleeps if e.start_ns <= w.start_ns and w.end_ns <= e.end_ns]
            self.assertEqual(len(within), e.n_sleeps)
            self.assertEqual(sum(w.end_ns - w.start_ns for w in within), e.sleep_ns)
            self.assertLessEqual(e.sleep_ns, e.end_ns - e.start_ns)
        self.assertGreaterEqual(self.total(recording, s.PAGES, "n_major"), 64)

    def test_paths_of_files_that_are_gone(self):
        path = self.cold_file(1)
        self.record("sh", "-c", "cd $0; mkdir -p 'deep er/x'; cp data 'deep er/x/f\\1'; cat 'deep er/x/f\\1' >/dev/null; "
                    "rm -r 'deep er'", self.folder)
        paths = self.paths()
        self.assertIn(path, paths)
        self.assertIn(os.path.join(self.folder, "deep er/x/f\\1"), paths)
        self.assertEqual(paths[self.folder][2], 1, "a folder")


class Budget(Recording):
    """--detail: limits the size of a recording. The tests set a small limit instead of recording for long."""

    def report(self, detail, *more):
        path = os.path.join(LIB, "libdiesel.so")
        if not os.path.exists(path):
            self.skipTest("no libdiesel.so was built")
        self.record(sys.executable, "-c", BUSY_JOB, path, *more, options=["--detail", detail])
        return [run(ANALYZE, "report", self.path, "--format", form) for form in ("json", "text", "html")]

    def test_the_first_minute_is_recorded_whole(self):
        figures, text, _ = self.report("32K")
        report = json.loads(figures.stdout)
        self.assertAlmostEqual(report["observed_s"], report["wall_s"], delta=1e-6)
        self.assertEqual(report["unrecorded_s"], 0)
        self.assertNotIn("--detail", text.stdout + self.done.stderr)

    def test_what_is_missing_is_said_with_the_reason_and_the_option(self):
        figures, text, page = self.report("1K", self.path)
        report = json.loads(figures.stdout)
        self.assertGreater(report["unrecorded_s"], 0)
        self.assertLess(report["observed_s"], report["wall_s"])
        for words in self.done.stderr, " ".join(text.stdout.split()), page.stdout:
            self.assertRegex(words, r"no detail, because --detail allows only 1.0 KiB per minute; --detail all records everything")


class Attach(Recording):
    def start(self, *command):
        job = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def end():
            job.kill()
            job.wait()
            job.stdin.close()
            job.stdout.close()

        self.addCleanup(end)
        self.assertTrue(job.stdout.readline().startswith("ready"))
        return job

    def test_running_process_with_threads_and_child(self):
        job = self.start(JOB, "idle", 5)
        time.sleep(0.2)
        threads = {int(t) for t in os.listdir("/proc/%d/task" % job.pid)}
        done = run(ANALYZE, "record", "-o", self.path, "-d", "300ms", "-p", job.pid)
        self.assertEqual(done.returncode, 0, done.stderr)
        recording = s.Recording(self.path)
        self.assertEqual(recording.info["attached"], "1")
        self.assertIn("idle 5", recording.info["command"])
        alive = {e.tid for e in recording.of(s.ALIVE)}
        self.assertTrue(threads <= alive)
        self.assertEqual(len(alive), 6)  # five threads and the child
        self.assertEqual({e.tid for e in recording.of(s.TOTALS)}, alive)
        for tid in alive:
            (stretch,) = recording.of(s.SWITCH, tid)
            self.assertTrue(stretch.flags & s.CLIPPED)
            self.assertTrue(stretch.flags & s.IN_SYSCALL)
            self.assertEqual(stretch.syscall_nr, 0)
            (total,) = recording.of(s.TOTALS, tid)
            self.assertEqual(total.sleep_ns, stretch.end_ns - stretch.start_ns)
        self.assertIsNone(job.poll(), "the job goes on")

    def test_until_the_job_ends(self):
        job = self.start(JOB, "idle", 2)
        recorder = subprocess.Popen([ANALYZE, "record", "-o", self.path, "-p", str(job.pid)],
                                    stderr=subprocess.PIPE, text=True)
        while not os.path.exists(self.path):
            time.sleep(0.01)
        time.sleep(0.3)
        job.stdin.close()
        _, text = recorder.communicate(timeout=60)
        self.assertEqual(recorder.returncode, 0, text)
        recording = s.Recording(self.path)
        self.assertEqual(len(recording.of(s.EXIT, job.pid)), 1)
        # Includes the read that it was in when it was tagged.
        calls = [e for e in recording.of(s.SYSCALL, job.pid) if e.nr == 0]
        self.assertTrue(calls and calls[0].flags & s.CLIPPED)
        self.assertEqual((calls[0].file_type, calls[0].result), (1, 0))

    def test_no_such_process(self):
        done = run(ANALYZE, "record", "-o", self.path, "-p", 4194303)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no process 4194303", done.stderr)
        self.assertFalse(os.path.exists(self.path))

    def test_torch_in_mid_run(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("no torch")
        job = self.start(sys.executable, "-c", TORCH_JOB, 25, "wait")
        recorder = subprocess.Popen([ANALYZE, "-v", "record", "-o", self.path, "-p", str(job.pid)],
                                    stderr=subprocess.PIPE, text=True)
        for line in recorder.stderr:
            if "probes for engine_execute" in line:
                break
        job.stdin.write("go\n")
        job.stdin.flush()
        recorder.communicate(timeout=60)
        self.assertEqual(len(s.Recording(self.path).of(s.STEP)), 25)

    def test_a_library_is_probed_before_files_of_other_names(self):
        """The recorder takes longer to look at all of the files than it may keep a job waiting."""
        path = os.path.join(LIB, "libdiesel.so")
        if not os.path.exists(path):
            self.skipTest("no libdiesel.so was built")
        job = self.start(sys.executable, "-c", CROWDED_JOB, path, self.folder, 8000)
        recorder = shapes_support.attached(self, self.path, "-p", job.pid)
        job.stdin.write("go\n")
        job.stdin.flush()
        recorder.communicate(timeout=60)
        self.assertEqual([e.value for e in s.Recording(self.path).of(s.MARK)], list(range(20)))


class Probes(Recording):
    def test_every_backward_pass_is_one_step(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("no torch")
        recording = self.record(sys.executable, "-c", TORCH_JOB, 40)
        self.assertEqual(len(recording.of(s.STEP)), 40)
        self.assertEqual({e.tgid for e in recording.of(s.STEP)}, {recording.number("root_tgid")})

    def test_marks(self):
        path = os.path.join(LIB, "libdiesel.so")
        if not os.path.exists(path):
            self.skipTest("no libdiesel.so was built")
        ctypes.CDLL(path).diesel_mark
        recording = self.record(sys.executable, "-c", MARK_JOB, path)
        marks = recording.of(s.MARK)
        self.assertEqual([(e.kind, e.value) for e in marks], [(1 + i % 2, 1 << 40 | i) for i in range(20)])


class Ends(Recording):
    def test_status_is_the_commands(self):
        self.record("sh", "-c", "exit 7", status=7)
        self.record("sh", "-c", "kill -TERM $$", status=143)

    def test_command_that_fails_before_it_trains(self):
        """The tool prints one line, not an empty report; with --json it prints JSON."""
        for script, end in (("exit 7", "ended with status 7"), ("kill -KILL $$", "was killed by signal 9 (Killed)")):
            with self.subTest(script=script):
                done = run(ANALYZE, "--", "sh", "-c", script)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertRegex(done.stderr, re.escape(end) + r", with no training step "
                                 r"seen in the [\d.]+ m?s that were")
                self.record("sh", "-c", script, status=done.returncode)
                self.assertEqual([end in line for line in self.done.stderr.splitlines()], [False, True])
        done = run(ANALYZE, "--format", "json", "--", "sh", "-c", "exit 7")
        self.assertEqual(done.returncode, 7)
        self.assertEqual(json.loads(done.stderr.partition("\n")[2])["verdict"], "insufficient data")

    def test_command_that_cannot_run(self):
        for command, status in (("/nonexistent", 127), ("/etc/passwd", 126)):
            done = run(ANALYZE, "record", "-o", self.path, "--", command)
            self.assertEqual(done.returncode, status)
            self.assertIn("cannot run " + command, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertEqual(os.listdir(self.folder), [])

    def test_command_that_is_not_in_path_but_next_to_the_program(self):
        """The layout of a Python environment that is not activated."""
        folder = os.path.join(self.folder, "bin")
        os.mkdir(folder)
        shutil.copy(ANALYZE, folder)
        python = os.path.join(folder, "python-of-this-environment")
        for there in (False, True):
            if there:
                os.symlink(sys.executable, python)
            done = run(os.path.join(folder, "diesel-analyze"), "--", os.path.basename(python), "-c", "1")
            self.assertEqual(done.returncode, 127)
            line = done.stderr.splitlines()[-1]
            self.assertIn("cannot run python-of-this-environment: ", line)
            self.assertEqual(f"it is not in PATH, but {python} exists. Give this path" in line, there, line)

    def test_duration_ends_the_recording_not_the_command(self):
        marker = os.path.join(self.folder, "done")
        recording = self.record("sh", "-c", "sleep 0.6; touch %s; exit 4" % marker, options=["-d", "200ms"], status=4)
        self.assertTrue(os.path.exists(marker))
        self.assertNotIn("exit_status", recording.info)
        self.assertEqual(recording.of(s.EXIT, recording.number("root_tgid")), [])

    def test_signals_reach_the_command_and_the_recording_is_closed(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            recorder = subprocess.Popen([ANALYZE, "record", "-o", self.path, "--", "sleep", "30"],
                                        stderr=subprocess.PIPE, text=True)
            self.addCleanup(recorder.stderr.close)
            self.wait_for_exec()
            recorder.send_signal(number)
            _, text = recorder.communicate(timeout=60)
            self.assertEqual(recorder.returncode, 128 + number, text)
            recording = s.Recording(self.path)
            self.assertEqual(recording.info["complete"], "1")
            os.unlink(self.path)

    def wait_for_exec(self):
        """Waits until the recorder has flushed data: by then the command runs."""
        for _ in range(3000):
            time.sleep(0.02)
            try:
                if s.Recording(self.path).events:
                    return
            except sqlite3.Error:  # being created or written
                pass
        self.fail("nothing was recorded")

    def test_job_survives_a_killed_recorder(self):
        marker = os.path.join(self.folder, "done")
        recorder = subprocess.Popen([ANALYZE, "record", "-o", self.path, "--", "sh", "-c",
                                     "sleep 2.5; touch " + marker], stderr=subprocess.DEVNULL)
        self.wait_for_exec()
        recorder.kill()
        recorder.wait()
        self.assertFalse(os.path.exists(marker))
        done = run(ANALYZE, "report", self.path)
        self.assertEqual(done.returncode, 3, done.stderr)  # the recording has no steps
        self.assertIn("cut off", done.stderr)
        for _ in range(600):
            if os.path.exists(marker):
                break
            time.sleep(0.1)
        self.assertTrue(os.path.exists(marker), "the job went on")

    def test_other_files_are_not_overwritten(self):
        with open(self.path, "w") as f:
            f.write("my thesis")
        done = run(ANALYZE, "record", "-o", self.path, "--", "true")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not a recording", done.stderr)
        with open(self.path) as f:
            self.assertEqual(f.read(), "my thesis")

    def test_plain_run_keeps_standard_output_for_the_command(self):
        done = run(ANALYZE, "--", "sh", "-c", "echo hello; exit 6")
        self.assertEqual(done.returncode, 6)
        self.assertEqual(done.stdout, "hello\n")
        self.assertNotIn("\033", done.stderr)


class BadSurroundings(Recording):
    def unprivileged(self, *args):
        program = os.path.join(self.folder, "diesel-analyze")
        shutil.copy(ANALYZE, program)
        os.chmod(self.folder, 0o755)
        os.chmod(program, 0o755)
        return run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, *args, cwd="/")

    def test_without_privilege(self):
        with tempfile.TemporaryDirectory(prefix="diesel-unprivileged-") as folder:
            os.chmod(folder, 0o777)
            path = os.path.join(folder, "s.db")
            done = self.unprivileged("record", "-o", path, "--", "sh", "-c", "sleep 0.3; exit 7")
            self.assertEqual(done.returncode, 7, done.stderr)
            self.assertIn("no privilege", done.stderr.splitlines()[0])
            self.assertIn("sudo", done.stderr.splitlines()[0])
            self.assertIn("approximate", done.stderr.splitlines()[0])
            self.assertEqual(s.Recording(path).info["sampled"], "1")
        done = self.unprivileged("check", "--json")
        self.assertEqual(done.returncode, 0)
        report = json.loads(done.stdout)
        self.assertEqual((report["can_record"], report["mode"]), (True, "sampled"))
        found = {f["name"]: f for f in report["findings"]}
        self.assertEqual(found["privilege"]["state"], "failed")
        self.assertIn("setcap", found["privilege"]["advice"])
        self.assertEqual(found["btf"]["state"], "ok")
        self.assertEqual(found["sampler: cpu-clock"]["state"], "ok")

    def test_without_btf(self):
        done = run(ANALYZE, "record", "--btf", "/nonexistent/vmlinux", "-o", self.path, "--", "true")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("CONFIG_DEBUG_INFO_BTF", done.stderr)
        done = run(ANALYZE, "check", "--btf", "/nonexistent/vmlinux")
        self.assertEqual(done.returncode, 0)
        self.assertIn("sampled", done.stdout)
        self.assertIn("FAILED   btf", done.stdout)

    def test_check_here(self):
        done = run(ANALYZE, "check", "--json")
        report = json.loads(done.stdout)
        self.assertEqual(report["schema"], "diesel.check/1")
        self.assertEqual(done.returncode, 0 if report["can_record"] else 1)
        self.assertTrue(report["can_record"], done.stdout)
        self.assertIn("sched_switch", [h["name"] for h in report["hooks"] if h["present"]])

    def test_usage_errors(self):
        for args in ((), ("record",), ("record", "true"), ("record", "-p", "x"), ("report",), ("--nonsense",),
                     ("record", "-d", "soon", "--", "true"), ("record", "-p", "1", "--", "true"),
                     ("report", "a", "b"), ("check", "now"), ("record", "-o")):
            done = run(ANALYZE, *args)
            self.assertEqual(done.returncode, 2, args)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertEqual(run(ANALYZE, "--help").returncode, 0)
        self.assertEqual(run(ANALYZE, "--version").returncode, 0)

    def test_report_of_no_recording(self):
        for path in ("/nonexistent.db", "/etc/passwd", self.folder):
            done = run(ANALYZE, "report", path)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertIn(path, done.stderr)


if __name__ == "__main__":
    exact.main()
