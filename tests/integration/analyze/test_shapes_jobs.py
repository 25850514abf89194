# SPDX-License-Identifier: Apache-2.0
"""Tests diesel-analyze on every shape of job: several ranks, several jobs, containers, programs that exec, libraries in unusual places,
short-lived processes."""
import glob
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time

import recording_file as s
import exact
import shapes_support as shapes
from forked import Script
from free_ports import free_port

LAUNCHER = [shapes.PYTHON, "-m", "torch.distributed.run", "--standalone",
            # torch 1.13 under Python 3.11 fails with the defaults of these two
            "--redirects", "1", "--tee", "1"]

RANKS = os.path.join(shapes.JOBS, "ranks.py")


def launcher_works():
    done = shapes.run(*LAUNCHER, "--nproc_per_node=1", "--no_python", "true")
    return done.returncode == 0


class Attached(shapes.Shapes):
    """Tests jobs that run before they are recorded."""

    def start(self, *command, **kwargs):
        job = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               **kwargs)

        def end():
            job.kill()
            job.wait()
            job.stdin.close()
            job.stdout.close()

        self.addCleanup(end)
        self.assertEqual(job.stdout.readline(), "ready\n")
        return job

    def attach(self, *options):
        return shapes.attached(self, self.recording, *options)

    def hold(self, *words):
        """Returns a job that begins at its go()."""
        return shapes.forked(self, *self.job("train.py", *words)[1:])

    def go(self, job):
        job.stdin.write("\n")
        job.stdin.flush()

    def end(self, recorder):
        _, text = recorder.communicate(timeout=60)
        self.assertEqual(recorder.returncode, 0, text)

    def result(self, job):
        """Returns the clock of a held job, which has begun."""
        out, err = job.communicate()
        self.assertEqual(job.returncode, 0, err)
        return json.loads(out)

    def clock_of(self, job):
        line = job.stdout.readline()
        self.assertEqual(job.wait(timeout=60), 0)
        return json.loads(line)


class Ranks(Attached):
    def clocks_of(self, folder, n):
        clocks = {}
        for rank in range(n):
            with open(os.path.join(folder, "%d.json" % rank), encoding="ascii") as file:
                clock = json.load(file)
                clocks[clock["pid"]] = (rank, clock)
        return clocks

    def check_ranks(self, report, clocks, slow_rank):
        self.assertEqual({r["tgid"] for r in report["ranks"]}, set(clocks))
        for rank in report["ranks"]:
            number, clock = clocks[rank["tgid"]]
            wait = rank["shares"]["fetch_stall"] + rank["shares"]["prep_stall"]
            self.assertAlmostEqual(wait, clock["wait"], delta=shapes.WAIT_POINTS, msg=(rank, clock))
            self.assertEqual(rank["steps"], clock["steps"])
            self.assertEqual(rank["straggler"], number == slow_rank, report["ranks"])
            # The report also explains waits for the other ranks.
            self.assertLess(rank["shares"]["other"], 0.1, rank)
        slow = next(pid for pid, (number, _) in clocks.items() if number == slow_rank)
        # The rank that sets the pace comes first.
        self.assertEqual(report["job"]["trainer_tgid"], slow)
        self.assertIn("straggler", report["note"])

    @shapes.repeated
    def test_two_ranks(self):
        out = tempfile.mkdtemp(dir=self.folder)
        try:
            self.record([*LAUNCHER, "--nproc_per_node=2", RANKS, out, "1", "10", "--data", self.data, "--workers", "1", "--steps", "30",
                         "--step-ms", "5"], env=dict(os.environ, OMP_NUM_THREADS="1"))
        except self.failureException:
            if launcher_works():
                raise
            self.skipTest("torch.distributed.run does not work with " + shapes.PYTHON)
        report, clocks = self.report(), self.clocks_of(out, 2)
        self.check_ranks(report, clocks, 1)
        text = shapes.run(shapes.ANALYZE, "report", self.recording).stdout
        self.assertEqual(text.count("  straggler"), 1, text)
        for rank in report["ranks"]:
            self.assertIn(str(rank["tgid"]), text)

    @shapes.repeated
    def test_four_ranks(self):
        """Four ranks of one job, which no launcher started."""
        out = tempfile.mkdtemp(dir=self.folder)
        port = str(free_port())
        jobs = [shapes.forked(self, RANKS, out, 2, 10, "--data", self.data, "--steps", 20, "--step-ms", 2, "--prep-ms", 1,
                              environment={**os.environ, "RANK": str(rank), "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1",
                                           "MASTER_PORT": port}) for rank in range(4)]
        recorder = self.attach("-p", ",".join(str(job.pid) for job in jobs))
        for job in jobs:
            job.go()
        for job in jobs:
            _, err = job.communicate()
            self.assertEqual(job.returncode, 0, err)
        self.end(recorder)
        self.check_ranks(self.report(), self.clocks_of(out, 4), 2)

    @shapes.repeated
    def test_ranks_that_were_started_apart(self):
        """-p A,B: one recording, one report. The jobs do not wait for each other, so there is no straggler."""
        jobs = [self.hold("--workers", workers) for workers in (0, 1)]
        recorder = self.attach("-p", ",".join(str(job.pid) for job in jobs))
        for job in jobs:
            job.go()
        clocks = {job.pid: self.result(job) for job in jobs}
        self.end(recorder)
        report = self.report()
        self.assertEqual({r["tgid"] for r in report["ranks"]}, set(clocks))
        for rank in report["ranks"]:
            self.assertFalse(rank["straggler"])
            wait = rank["shares"]["fetch_stall"] + rank["shares"]["prep_stall"]
            self.assertAlmostEqual(wait, clocks[rank["tgid"]]["wait"], delta=shapes.WAIT_POINTS)


class Several(Attached):
    @shapes.repeated
    def test_two_jobs_at_once(self):
        """Each recording covers only its own job, whatever the other one does."""
        other = self.hold("--workers", 2, "--steps", 400)
        other.go()
        report, clock = self.measure("train.py", "--workers", 1, "--prep-ms", 4)
        self.check(report, clock, "workers")
        self.assertTrue(os.path.exists(f"/proc/{other.pid}"), "the other one ran all the time")
        recording = s.Recording(self.recording)
        tgids = {e.tgid for e in recording.events}
        self.assertNotIn(other.pid, tgids)
        self.assertEqual(len(report["ranks"]), 0)
        for tgid in tgids:
            self.assertNotEqual(self.parent_of(recording, tgid), other.pid)

    def parent_of(self, recording, tgid):
        return next((e.parent_tgid for e in recording.events if e.type == s.NAME and e.tid == tgid), None)

    def test_no_children(self):
        job = self.hold("--workers", 2, "--steps", 20)
        recorder = self.attach("--no-children", "-p", job.pid)
        job.go()
        self.result(job)
        self.end(recorder)
        recording = s.Recording(self.recording)
        self.assertEqual({e.tgid for e in recording.events if e.tid}, {job.pid})
        self.assertGreater(len({e.tid for e in recording.events}), 1, "threads are in")
        self.assertEqual(len(recording.of(s.STEP)), 20)

    def test_gone_process_among_several(self):
        job = self.hold()
        gone = subprocess.Popen(["true"])
        gone.wait()
        for pids in ("%d,%d" % (job.pid, gone.pid), "%d,%d" % (gone.pid, job.pid)):
            done = shapes.run(shapes.ANALYZE, "record", "-o", self.recording + ".gone", "-p", pids)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn("no process %d" % gone.pid, done.stderr)
            self.assertFalse(os.path.exists(self.recording + ".gone"))

    def test_trainer_override(self):
        report, clock = self.measure("threads.py", "--workers", 1, first=["python"])
        self.assertEqual(report["job"]["trainer_tid"], clock["tid"])
        other = next(e.tid for e in s.Recording(self.recording).of(s.NAME) if e.tid != clock["tid"])
        self.assertEqual(self.report("--trainer", str(other))["job"]["trainer_tid"], other)
        done = shapes.run(shapes.ANALYZE, "report", self.recording, "--trainer", "4194303")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("4194303", done.stderr)


class Groups(Attached):
    """Tests --cgroup, on the versions that exist here."""

    def group(self, root):
        folder = os.path.join(root, "diesel-shapes-%d" % os.getpid())
        os.mkdir(folder)

        def remove():
            with open(os.path.join(folder, "cgroup.procs"), encoding="ascii") as file:
                for pid in file.read().split():
                    os.kill(int(pid), signal.SIGKILL)
            for _ in range(3000):
                try:
                    return os.rmdir(folder)
                except OSError:
                    time.sleep(0.02)

        self.addCleanup(remove)
        return folder

    def join(self, folder, pid):
        with open(os.path.join(folder, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write(str(pid))

    def record_group(self, root):
        """One process is in the group from the start, and one joins, both with their children."""
        try:
            folder = self.group(root)
        except OSError as error:
            self.skipTest("%s: %s" % (root, error))
        jobs = [self.hold("--workers", 1, "--steps", 20) for _ in range(2)]
        self.join(folder, jobs[0].pid)
        recorder = self.attach("--cgroup", os.path.basename(folder))
        self.join(folder, jobs[1].pid)
        time.sleep(0.5)  # the recorder reads the group 20 times per second
        for job in jobs:
            job.go()
            self.result(job)
        self.end(recorder)  # the recorder ends by itself, as the group is empty
        recording = s.Recording(self.recording)
        self.assertEqual({e.tgid for e in recording.of(s.STEP)}, {job.pid for job in jobs})
        for job in jobs:
            self.assertEqual(len([e for e in recording.of(s.STEP) if e.tgid == job.pid]), 20)
            self.assertTrue([e for e in recording.of(s.FORK) if e.tgid == job.pid and e.child_tgid != job.pid])
        self.assertEqual(len(self.report()["ranks"]), 2)

    def test_version_1(self):
        self.record_group("/sys/fs/cgroup/freezer")

    def test_version_2(self):
        roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
        root = next((r for r in roots if os.path.exists(r + "/cgroup.controllers")), None)
        if not root:
            self.skipTest("no control groups of version 2 here")
        self.record_group(root)

    def test_no_such_group(self):
        done = shapes.run(shapes.ANALYZE, "record", "-o", self.recording + ".none", "--cgroup", "/no/such/group")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("/no/such/group", done.stderr)


class Namespaces(Attached):
    def unshare(self, *options):
        done = shapes.run("unshare", *options, "true")
        if done.returncode:
            self.skipTest("unshare %s: %s" % (" ".join(options), done.stderr.strip()))
        return ["unshare", *options]

    @shapes.repeated
    def test_process_ids(self):
        """The report has the host's numbers, and those that users see in the container."""
        command = self.unshare("--pid", "--fork", "--mount-proc")
        done = self.record(command + self.job("train.py", "--workers", 1))
        clock = json.loads(done.stdout.splitlines()[-1])
        report = self.report()
        job = report["job"]
        self.assertEqual((job["trainer_ns_tgid"], job["trainer_ns_tid"]), (clock["pid"], clock["tid"]))
        self.assertNotEqual(job["trainer_tgid"], clock["pid"])
        clock["pid"], clock["tid"] = job["trainer_tgid"], job["trainer_tid"]
        self.check(report, clock, "workers")
        self.assertIn("in its container", shapes.run(shapes.ANALYZE, "report", self.recording).stdout)

    @shapes.repeated
    def test_time(self):
        """The job's clocks are days ahead of the kernel's own, and only the latter counts."""
        command = self.unshare("--time", "--fork", "--monotonic", "864000", "--boottime", "864000")
        done = self.record(command + self.job("train.py", "--workers", 1))
        self.check(self.report(), json.loads(done.stdout.splitlines()[-1]), "workers")


class Clock(shapes.Shapes):
    def test_steps_of_the_wall_clock_change_nothing(self):
        """A recording uses the wall clock for its date, not to measure."""
        self.measure("train.py", "--workers", 1)
        before = self.report()
        with sqlite3.connect(self.recording) as db:
            for key, hours in (("start_clocks", 5), ("stop_clocks", -20)):
                (text,) = db.execute("SELECT value FROM info WHERE key = ?", (key,)).fetchone()
                words = text.split()
                words[2] = str(int(words[2]) + hours * 3600 * 10**9)
                db.execute("UPDATE info SET value = ? WHERE key = ?", (" ".join(words), key))
        db.close()
        after = self.report()
        for key in before:
            if key != "session":  # the date of recording differs
                self.assertEqual(after[key], before[key], key)


class Programs(shapes.Shapes):
    @shapes.repeated
    def test_shell_that_execs_python(self):
        words = " ".join(self.job("train.py", "--workers", 1))
        done = self.record(["bash", "-c", "cd / && exec " + words])
        self.check(self.report(), json.loads(done.stdout.splitlines()[-1]), "workers")

    @shapes.repeated
    def test_shell_that_waits_for_python(self):
        words = " ".join(self.job("train.py", "--workers", 1))
        done = self.record(["bash", "-c", words + "; exit 3"], status=3)
        self.check(self.report(), json.loads(done.stdout.splitlines()[-1]), "workers")

    @shapes.repeated
    def test_python_that_execs_itself(self):
        code = "import os, sys, torch; os.execv(sys.argv[1], sys.argv[1:])"
        done = self.record([shapes.PYTHON, "-c", code, *self.job("train.py", "--workers", 1)])
        self.check(self.report(), json.loads(done.stdout.splitlines()[-1]), "workers")


class Crowd(shapes.Shapes):
    def test_short_lived_processes(self):
        """10,000 processes, many of which write to the trainer over pipes, and none is a worker."""
        report, clock = self.measure("crowd.py", "--workers", 1, "--steps", 50, "--step-ms", 2, first=["10000"],
                                     options=["--detail", "all"])
        self.assertEqual(report["loader"], "workers")
        self.assertEqual(report["workers"]["processes"], 1)
        self.assertEqual(report["steps"], 50)
        self.assertEqual(report["lost_events"], 0)
        recording = s.Recording(self.recording)
        self.assertGreaterEqual(len({e.child_tgid for e in recording.of(s.FORK)}), 10000)
        for command in ([shapes.ANALYZE, "report", self.recording],):
            peak = shapes.run("/usr/bin/python3", "-c", "import resource, subprocess, sys; "
                              "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True); "
                              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)", *command)
            self.assertLess(int(peak.stdout), 400_000, "KiB")


class Libraries(Attached):
    """PyTorch's library under another name, from another place, or removed from its place."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        code = ("import re\nprint(next(l.split()[-1] for l in open('/proc/self/maps') "
                "if re.search(r'libtorch_cpu[^/]*$', l)))")
        cls.library = Script(code, imported="torch").communicate()[0].strip()
        cls.lib = os.path.join(cls.folder, "lib")
        os.mkdir(cls.lib)
        cls.copy = os.path.join(cls.lib, "engine.bin")
        subprocess.run(["cp", "--reflink=auto", cls.library, cls.copy], check=True)
        soname = os.path.basename(os.path.realpath(cls.library)) if "site-packages" in cls.library else None
        for name in glob.glob(cls.library.split(".so")[0] + ".so*") if not soname else [cls.library]:
            os.symlink(cls.copy, os.path.join(cls.lib, os.path.basename(name)))

    def mapped(self, pid):
        with open("/proc/%d/maps" % pid, encoding="ascii") as file:
            return {line.split(None, 5)[5].strip() for line in file if len(line.split(None, 5)) == 6}

    def environment(self):
        return dict(os.environ, LD_LIBRARY_PATH=self.lib)

    def check_steps(self, recorder, job):
        self.go(job)
        clock = self.clock_of(job)
        self.end(recorder)
        self.check(self.report(), clock, "inline")

    @shapes.repeated
    def test_renamed_copy(self):
        job = self.start(*self.job("train.py", "--wait", "--steps", 30), env=self.environment())
        if self.copy not in self.mapped(job.pid):
            self.skipTest("this torch does not take its library from LD_LIBRARY_PATH")
        self.assertNotIn(self.library, self.mapped(job.pid))
        self.check_steps(self.attach("-p", job.pid), job)

    @shapes.repeated
    def test_launched_with_a_copy(self):
        done = self.record(self.job("train.py", "--steps", 30), env=self.environment())
        self.check(self.report(), json.loads(done.stdout.splitlines()[-1]), "inline")

    @shapes.repeated
    def test_stripped(self):
        """The distribution's library has only its exported symbols, like any stripped library."""
        sections = shapes.run("readelf", "-SW", self.library).stdout
        if ".symtab" in sections:
            self.skipTest(self.library + " has all its symbols")
        self.assertIn(".dynsym", sections)
        report, clock = self.measure("train.py", "--steps", 30)
        self.check(report, clock, "inline")

    @shapes.repeated
    def test_in_a_mount_namespace(self):
        """The file of the job at this path differs from the file of the recorder."""
        command = ("mount --bind %s %s && exec \"$@\"" % (self.copy, os.path.realpath(self.library)))
        words = ["unshare", "--mount", "sh", "-c", command, "sh"]
        if shapes.run(*words, "true").returncode:
            self.skipTest("no mount namespaces here")
        job = self.start(*words, *self.job("train.py", "--wait", "--steps", 30))
        self.check_steps(self.attach("-p", job.pid), job)

    @shapes.repeated
    def test_deleted(self):
        other = tempfile.mkdtemp(dir=self.folder)
        copy = os.path.join(other, "engine.bin")
        shutil.copy(self.copy, copy)
        for name in os.listdir(self.lib):
            if os.path.islink(os.path.join(self.lib, name)):
                os.symlink(copy, os.path.join(other, name))
        job = self.start(*self.job("train.py", "--wait", "--steps", 30), env=dict(os.environ, LD_LIBRARY_PATH=other))
        shutil.rmtree(other)
        if copy + " (deleted)" not in self.mapped(job.pid):
            self.skipTest("this torch does not take its library from LD_LIBRARY_PATH")
        self.check_steps(self.attach("-p", job.pid), job)


if __name__ == "__main__":
    exact.main(needs_torch=True)
