# SPDX-License-Identifier: Apache-2.0
"""Tests storage of one dataset that never answers: no other dataset, no STATUS and no end of the daemon waits for it."""
import os
import shutil
import subprocess
import sys
import time

from dieseld_support import BIN, SCRATCH, Case, Daemon, chunk_files, dataset, main, make_source, pack, probe, probe_command
from hostile import MALLORY, wait_until

MIRROR = os.path.join(BIN, "fuse_mirror")


def user_probe():
    """Returns a copy of the probe that another user can run."""
    program = os.path.join(SCRATCH, "probe")
    if not os.path.exists(program):
        shutil.copy(os.path.join(BIN, "daemon_probe"), program)
        os.chmod(program, 0o755)
    return program


class Mount:
    """A dataset that can be made to hang."""

    def __init__(self, path):
        self.path, self.control = os.path.join(SCRATCH, "mount"), os.path.join(SCRATCH, "control")
        for folder in (self.path, self.control):
            os.makedirs(folder)
        self.process = subprocess.Popen([MIRROR, path, self.path, self.control])
        wait_until("the mount", lambda: os.path.ismount(self.path) or self.process.poll() is not None)

    def hang(self, what):
        with open(os.path.join(self.control, what), "w"):
            pass

    def wait_until_it_hangs(self):
        wait_until("a request that hangs", lambda: os.path.exists(os.path.join(self.control, "hangs")))

    def close(self):
        """Makes all hanging requests fail."""
        self.process.kill()
        self.process.wait()
        subprocess.run(["umount", "-l", self.path], check=False)
        shutil.rmtree(self.control)
        os.rmdir(self.path)


class Hangs(Case):
    @classmethod
    def setUpClass(cls):
        cls.slow = pack(make_source("slow", 300, lambda rng: 100000), "slow")

    def check(self, request, *options):
        fast, source = dataset("views")
        mount = Mount(self.slow)
        self.addCleanup(mount.close)
        if not os.path.ismount(mount.path):
            self.skipTest("FUSE cannot be mounted here")
        daemon = self.daemon(*options)
        mount.hang(request)
        hostile = [subprocess.Popen(probe_command(daemon, mount.path, "--window", 4, "--batch", 4, "--seed", seed,
                                                  program=user_probe()),
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=MALLORY, group=MALLORY,
                                    extra_groups=[]) for seed in range(3)]
        for process in hostile:
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
        mount.wait_until_it_hangs()
        # More requests hang than any engine has space for: if they blocked others, this would hang, too.
        self.assertEqual(probe(daemon, fast, "--source", source, "--epochs", 2)["samples"], 4000)
        self.assertEqual(len(daemon.status()["datasets"]), 2)
        begin = time.monotonic()
        self.assertEqual(daemon.stop(), 0, daemon.output())
        # This is less than the daemon's wait for reads: it does not wait for hanging ones.
        self.assertLess(time.monotonic() - begin, 5)
        # Another daemon can start at the same socket.
        again = Daemon(*options, socket=daemon.socket)
        self.addCleanup(again.log.close)
        self.assertEqual(probe(again, fast, "--source", source)["samples"], 2000)
        self.assertEqual(again.stop(), 0)

    def test_open(self):
        self.check("open")

    def test_read(self):
        self.check("read")

    def test_read_by_threads(self):
        self.check("read", "--no-io-uring")

    def test_open_by_threads(self):
        self.check("open", "--no-io-uring")

    def test_it_goes_on_when_storage_answers(self):
        mount = Mount(self.slow)
        self.addCleanup(mount.close)
        if not os.path.ismount(mount.path):
            self.skipTest("FUSE cannot be mounted here")
        daemon = self.daemon()
        mount.hang("read")
        process = subprocess.Popen(probe_command(daemon, mount.path), stdout=subprocess.PIPE, text=True)
        mount.wait_until_it_hangs()
        self.assertEqual(daemon.status()["cache"]["loading"], min(4, len(chunk_files(self.slow))))
        os.unlink(os.path.join(mount.control, "read"))
        self.assertIn('"samples": 300', process.communicate(timeout=60)[0])

    def test_it_goes_on_when_storage_fails_for_seconds(self):
        """Simulates a soft NFS mount while its server restarts."""
        mount = Mount(self.slow)
        self.addCleanup(mount.close)
        if not os.path.ismount(mount.path):
            self.skipTest("FUSE cannot be mounted here")
        daemon = self.daemon()
        mount.hang("fail")
        process = subprocess.Popen(probe_command(daemon, mount.path), stdout=subprocess.PIPE, text=True)
        wait_until("a read that is repeated", lambda: "Input/output error; reading it again in 2 s" in daemon.output())
        os.unlink(os.path.join(mount.control, "fail"))
        self.assertIn('"samples": 300', process.communicate(timeout=60)[0])
        self.assertEqual(daemon.status()["cache"]["quarantined"], 0)
        # A daemon that is stopped meanwhile does not wait for it.
        again = self.daemon()
        mount.hang("fail")
        process = subprocess.Popen(probe_command(again, mount.path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_until("a read that is repeated", lambda: "reading it again in 1 s" in again.output())
        self.assertEqual(again.stop(), 0)
        self.assertNotIn("not served", again.output())


if __name__ == "__main__":
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse") or not os.access(MIRROR, os.X_OK):
        print("skipped: needs root, /dev/fuse and fuse_mirror")
        sys.exit(77)
    main()
