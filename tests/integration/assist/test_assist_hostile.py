# SPDX-License-Identifier: Apache-2.0
"""Tests dieseld --assist next to hostile jobs, with storage that hangs, and with processes of its own that die."""
import contextlib
import os
import pathlib
import signal
import sys

import assist_support
from assist_support import FILES, SOMEBODY, wait_for
from common.waiting import wait_until

OTHER = SOMEBODY + 10_000

# Looks like a trainer and one worker, of files FOLDER/0 and so on, until its standard input ends. If TRICK exists, TRICK/i takes each
# file's place while the file is not being opened. JAIL is its root folder, if not "".
ACTOR = """
import os, pickle, sys, threading, time
folder, trick, jail, n, uid = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
if jail:
    os.chroot(jail)
    os.chdir("/")
if uid:
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
names = [f"{folder}/{i}" for i in range(n)]

def send(fd, batch):
    data = pickle.dumps(batch, protocol=4)
    os.write(fd, len(data).to_bytes(4, "big") + data)

def work(indices, done):
    while True:
        head = os.read(indices, 4)
        if not head:
            os._exit(0)
        _, batch = pickle.loads(os.read(indices, int.from_bytes(head, "big")))
        for i in batch:
            time.sleep(0.003)
            if trick:
                os.replace(f"{trick}/plain{i}", names[i])
            fd = os.open(names[i], os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
            if trick:
                os.rename(names[i], f"{trick}/plain{i}")
                os.link(f"{trick}/{i}", names[i], follow_symlinks=False)
        os.write(done, b"1")

for_worker, to_worker = os.pipe()
for_trainer, to_trainer = os.pipe()
if os.fork() == 0:
    os.close(to_worker)
    work(for_worker, to_trainer)
ended = threading.Event()
threading.Thread(target=lambda: (os.read(0, 1), ended.set()), daemon=True).start()
while not ended.is_set():
    batches = [list(range(i, min(i + 8, n))) for i in range(0, n, 8)]
    for number, batch in enumerate(batches):
        if number >= 2:
            os.read(for_trainer, 1)
        send(to_worker, (number, batch))
    for _ in range(min(2, len(batches))):
        os.read(for_trainer, 1)
os._exit(0)
"""

# Writes apparent indices to many pipes, as fast as it can: batches that fit, long ones, and impossible ones.
FLOOD = """
import fcntl, os, pickle, sys
os.nice(19)
pipes = [os.pipe() for _ in range(int(sys.argv[1]))]
for r, w in pipes:
    os.set_blocking(w, False)
    os.set_blocking(r, False)
batches = [list(range(32)), list(range(70_000, 76_000)), [-1], [2 ** 31 - 1] * 9, [1 << 24]]
data = [pickle.dumps((n, batch), protocol=4) for n, batch in enumerate(batches)]
child = os.fork() == 0
while os.getppid() != 1:
    for k, (r, w) in enumerate(pipes):
        try:
            if child:
                os.read(r, 65536)
                os.close(os.open(sys.argv[2], os.O_RDONLY))
            else:
                os.write(w, data[k % len(data)])
        except BlockingIOError:
            pass
"""


class Hostile(assist_support.Case):
    def actor(self, folder, trick="", jail="", n=256, uid=SOMEBODY, prefix=()):
        return self.start([*prefix, sys.executable, "-c", ACTOR, str(folder), str(trick), str(jail), str(n), str(uid)])

    def files(self, n=256, size=9000):
        folder = self.folder / "plain"
        folder.mkdir()
        for i in range(n):
            (folder / str(i)).write_bytes(os.urandom(size))
        os.sync()
        return folder

    def tried(self, daemon, process):
        """Returns dieseld's report of the job once it has prefetched some of its files."""
        def look():
            job = self.of(daemon, process)
            return job if job and (job["bytes_read_ahead"] or job["failed"] or job["state"] == "stopped") else None
        return wait_for("reading ahead", look, daemon)

    def child_of(self, daemon, name):
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (path / "comm").read_text() == name + "\n" and self.grandparent(path) == daemon.process.pid:
                    return path
        return None

    def test_names_lead_to_what_the_job_may_read_and_nothing_else(self):
        folder, trick = self.folder / "names", self.folder / "trick"
        secret, n = self.folder / "secret", 256
        for made in (folder, trick):
            made.mkdir()
        secret.write_bytes(os.urandom(9000))
        secret.chmod(0o600)
        for i in range(n):
            (trick / f"plain{i}").touch()
            name = trick / str(i)
            if i % 4 == 0:
                os.mkfifo(name)
            elif i % 4 == 1:
                os.mknod(name, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero
            elif i % 4 == 2:
                name.symlink_to(secret)
            else:
                name.symlink_to(f"/proc/self/root{self.folder}/00000")
            os.chown(name, SOMEBODY, SOMEBODY, follow_symlinks=False)
        for path in (folder, trick, *trick.glob("plain*")):
            os.chown(path, SOMEBODY, SOMEBODY)
        daemon = self.daemon("--assist", "--history", "off")
        process = self.actor(folder, trick)
        def look():
            job = self.of(daemon, process)
            return job if job and job["failed"] >= 64 else None
        told = wait_for("files that cannot be read ahead", look, daemon)
        self.assertEqual(told["bytes_read_ahead"], 0, told)

    def test_files_are_those_of_the_job_s_mounts_and_root(self):
        folder = self.files()
        daemon = self.daemon("--assist", "--history", "off")
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        prefix = ("unshare", "-m", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', folder, elsewhere)
        for who, process in (("mounts", self.actor(elsewhere, prefix=prefix)), ("root", self.actor("/plain", jail=self.folder, uid=OTHER))):
            with self.subTest(who):
                told = self.tried(daemon, process)
                self.assertEqual((told["failed"], told["bytes_read_ahead"] > 0), (0, True), told)
        self.assertEqual(list(elsewhere.iterdir()), [])

    def test_a_job_s_control_group_is_charged(self):
        group = pathlib.Path(f"/sys/fs/cgroup/memory/{self.folder.name}")
        try:
            group.mkdir()
        except OSError as error:
            self.skipTest(f"no control groups of version 1: {error}")
        self.addCleanup(wait_until, "an empty group", lambda: self.gone(group), 180)
        daemon = self.daemon("--assist", "--history", "off")
        prefix = ("sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', group)
        process = self.actor(self.files(), prefix=prefix)
        told = self.tried(daemon, process)
        self.assertTrue(told["charged_to_job"], told)
        (reader,) = self.readers(daemon, SOMEBODY)
        self.assertIn(reader.name, (group / "cgroup.procs").read_text().split())

    @staticmethod
    def gone(group):
        with contextlib.suppress(OSError):
            group.rmdir()
        return not group.exists()

    def test_storage_that_hangs_holds_up_nobody_else(self):
        control = self.folder.with_name(self.folder.name + "-control")
        control.mkdir()
        inner = self.folder / "inner"
        inner.mkdir()
        for i in range(FILES):
            (self.folder / f"{i:05}").rename(inner / f"{i:05}")
        hangs, works = self.mirror(), self.mirror()
        daemon = self.daemon("--assist", "--history", "off")
        process = self.job(pathlib.Path(hangs.mount, "inner"))
        self.state(daemon, process, "tries", "helps")
        hangs.begin("read")
        wait_for("a read that hangs", hangs.has_hung, daemon)
        other = self.job(pathlib.Path(works.mount, "inner"), uid=OTHER)
        self.assertEqual(self.state(daemon, other, "helps", "rests", "stopped")["state"], "helps")
        self.kill(process.pid)
        wait_for("the end of its job", lambda: self.of(daemon, process) is None, daemon)
        self.assertEqual(self.of(daemon, other)["state"], "helps")

    def test_a_flood_of_indices_takes_nothing_from_others(self):
        daemon = self.daemon("--assist", "--history", "off")
        quietly = ["sh", "-c", 'echo 19 >/proc/self/autogroup; exec "$@"', "sh"]  # so that parallel tests can continue
        floods = [self.start([*quietly, "setpriv", "--reuid", str(OTHER), "--regid", str(OTHER), "--clear-groups", sys.executable, "-c", FLOOD, "50",
                              str(self.folder / "00000")]) for _ in range(20)]
        wait_for("the flood", lambda: sum(job["uid"] == OTHER for job in self.assist(daemon)["jobs"]) >= 8, daemon)
        process = self.job(self.mirror().mount)
        told = self.state(daemon, process, "helps", "rests", "stopped")
        self.assertEqual(told["state"], "helps", told)
        jobs = self.assist(daemon)["jobs"]
        self.assertLessEqual(sum(job["uid"] == OTHER for job in jobs), 16)
        for name, uid in (("dieseld-assist", 65534), ("dieseld-ahead", OTHER)):
            for path in pathlib.Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    status = (path / "status").read_text()
                    if status.startswith(f"Name:\t{name}\n") and f"Uid:\t{uid}\t" in status and self.grandparent(path) == daemon.process.pid:
                        resident = int(status.partition("RssAnon:")[2].split()[0])
                        self.assertLess(resident, 192 << 10, f"KiB of {name}")
        for flood in floods:
            self.kill(flood.pid)

    def test_a_watcher_that_dies_is_started_again(self):
        daemon = self.daemon("--assist", "--history", "off")
        process = self.job(self.mirror().mount)
        self.state(daemon, process, "helps")
        before = self.child_of(daemon, "dieseld-assist")
        os.kill(int(before.name), signal.SIGKILL)
        wait_for("its end", lambda: "dieseld will restart it" in daemon.output(), daemon)
        wait_for("a new watcher", lambda: self.child_of(daemon, "dieseld-assist") not in (None, before), daemon)
        self.state(daemon, process, "helps")
        self.assertIsNone(self.assist(daemon)["problem"])

    def test_a_reader_that_dies_ends_its_job_s_help_and_one_whose_job_ends_does_not(self):
        daemon = self.daemon("--assist", "--history", "off")
        slow = self.mirror().mount
        process = self.job(slow)
        self.state(daemon, process, "learns", "tries", "helps")
        self.kill(process.pid)
        wait_for("the end of its job", lambda: self.of(daemon, process) is None, daemon)
        self.assertNotIn("has ended", daemon.output())
        process = self.job(slow)
        self.state(daemon, process, "learns", "tries", "helps")
        (reader,) = self.readers(daemon, SOMEBODY)
        os.kill(int(reader.name), signal.SIGKILL)
        told = self.state(daemon, process, "stopped")
        self.assertIn("the process that prefetched its files has ended", told["why"])


if __name__ == "__main__":
    assist_support.main()
