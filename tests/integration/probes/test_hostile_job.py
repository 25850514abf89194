# SPDX-License-Identifier: Apache-2.0
"""Tests jobs of another user that root records: files that the job maps must neither affect other users' processes nor be opened where
opening has an effect."""
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import exact

BIN = os.environ.get("DIESEL_BIN", "build/release/bin")
STANDIN = os.environ.get("DIESEL_STANDIN", "build/release/standin")
ANALYZE = os.path.join(BIN, "diesel-analyze")
MIRROR = os.path.join(BIN, "fuse_mirror")
MALLORY, ALICE = 65534, 12345

# Uses a library all the time. For each line of input it prints its listeners, and a digest of the library's code as this process has it in
# memory.
USER = r"""
import ctypes, hashlib, re, sys, threading, time
path = sys.argv[1]
library = ctypes.CDLL(path)

def use():
    while True:
        library.usdt_forward(0)
        library.usdt_forward(1)
        time.sleep(0.001)

def code():
    digest = hashlib.sha256()
    for line in open("/proc/self/maps"):
        begin, end, access = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
        if line.rstrip().endswith(path.rsplit("/", 1)[1]) and "x" in access:
            digest.update(ctypes.string_at(int(begin, 16), int(end, 16) - int(begin, 16)))
    return digest.hexdigest()

threading.Thread(target=use, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    print(library.usdt_listeners(), code(), flush=True)
"""


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="diesel-hostile-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        os.chmod(self.folder, 0o755)
        self.path = os.path.join(self.folder, "s.db")

    def library(self, folder):
        copy = os.path.join(folder, "libusdt.so")
        shutil.copy(os.path.join(STANDIN, "ranges", "libusdt-counted.so"), copy)
        return copy

    def user(self, library, uid, *prefix):
        process = subprocess.Popen([*prefix, sys.executable, "-c", USER, library], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, user=uid, group=uid, extra_groups=[])
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def ask(self, process):
        process.stdin.write("\n")
        process.stdin.flush()
        listeners, code = process.stdout.readline().split()
        return int(listeners), code

    def record(self, process, *prefix):
        """Records until the recorder is interrupted."""
        recorder = subprocess.Popen([*prefix, ANALYZE, "record", "-o", self.path, "-p", str(process.pid)],
                                    stderr=subprocess.PIPE, text=True)
        self.addCleanup(recorder.communicate)
        self.addCleanup(recorder.kill)
        while not os.path.exists(self.path):
            self.assertIsNone(recorder.poll())
            time.sleep(0.01)
        return recorder

    def end(self, recorder):
        recorder.send_signal(2)
        _, text = recorder.communicate(timeout=60)
        self.assertEqual(recorder.returncode, 0, text)


class Neighbours(Case):
    def test_a_process_that_is_not_of_the_job_is_left_alone(self):
        """Another user's process maps the very file that is probed in the job."""
        library = self.library(self.folder)
        job, neighbour = self.user(library, MALLORY), self.user(library, ALICE)
        before = self.ask(neighbour)
        recorder = self.record(job)
        deadline = time.monotonic() + 60
        while self.ask(job)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertGreater(self.ask(job)[0], 0)
        self.assertEqual(self.ask(neighbour), before)
        self.end(recorder)
        self.assertEqual(self.ask(neighbour), before)
        self.assertEqual(self.ask(job)[0], 0)


class Files(Case):
    def test_a_pipe_in_a_librarys_place_is_not_opened(self):
        """A process that waits for a reader of the pipe would notice. Only the name leads to the file: the recorder may not read through
        the mapping."""
        library, pipe = self.library(self.folder), os.path.join(self.folder, "pipe")
        os.mkfifo(pipe)
        job = self.user(library, 0, "unshare", "--mount", "--propagation", "private")
        subprocess.run(["nsenter", "--mount", "--target", str(job.pid), "mount", "--bind", pipe, library], check=True)
        opened = []

        def wait():
            opened.append(os.open(pipe, os.O_WRONLY))

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        recorder = self.record(job, "setpriv", "--bounding-set=-sys_admin,-checkpoint_restore")
        time.sleep(1)
        self.end(recorder)
        self.assertEqual(opened, [])
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))  # ends the wait
        thread.join()

    @unittest.skipUnless(os.path.exists("/dev/fuse") and os.access(MIRROR, os.X_OK), "needs /dev/fuse and fuse_mirror")
    def test_a_file_system_that_does_not_answer_holds_up_nothing(self):
        source, mount, control = (os.path.join(self.folder, name) for name in ("source", "mount", "control"))
        for folder in (source, mount, control, os.path.join(source, "inner")):
            os.mkdir(folder)
        os.chmod(control, 0o777)
        self.library(os.path.join(source, "inner"))
        mirror = subprocess.Popen([MIRROR, source, mount, control])
        self.addCleanup(mirror.wait)
        self.addCleanup(subprocess.run, ["umount", "-l", mount], check=False)
        self.addCleanup(mirror.kill)
        while not os.path.ismount(mount):
            time.sleep(0.01)
        job = self.user(os.path.join(mount, "inner", "libusdt.so"), MALLORY)
        hang = os.path.join(control, "open")
        open(hang, "w").close()
        try:
            for prefix in ((), ("setpriv", "--bounding-set=-sys_admin,-checkpoint_restore")):
                recorder = self.record(job, *prefix)
                time.sleep(1)
                self.end(recorder)
                os.unlink(self.path)
            self.assertFalse(os.path.exists(os.path.join(control, "hangs")))
        finally:
            os.unlink(hang)  # otherwise a recorder that hangs could not be ended


if __name__ == "__main__":
    exact.main()
