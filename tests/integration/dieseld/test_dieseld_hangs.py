# SPDX-License-Identifier: Apache-2.0
"""Tests storage of one dataset that never answers: no other dataset, no STATUS and no end of the daemon waits for it."""
import subprocess
import time

from dieseld_support import Case, Daemon, chunk_files, dataset, main, make_source, pack, probe, probe_command
from common import mirror
from common.mirror import Mirror
from common.processes import end
from common.users import MALLORY, as_user, user_probe
from common.waiting import wait_until


class Hangs(Case):
    @classmethod
    def setUpClass(cls):
        cls.slow = pack(make_source("slow", 300, lambda rng: 100000), "slow")

    def mirror(self):
        mount = Mirror(self.slow)
        self.addCleanup(mount.close)
        return mount

    def check(self, request, *options):
        fast, source = dataset("views")
        mount = self.mirror()
        daemon = self.daemon(*options)
        mount.begin(request)
        hostile = [subprocess.Popen(probe_command(daemon, mount.mount, "--window", 4, "--batch", 4, "--seed", seed,
                                                  program=user_probe()),
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_user(MALLORY)) for seed in range(3)]
        for process in hostile:
            self.addCleanup(end, process)
        wait_until("a request that hangs", mount.has_hung)
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

    def test_opens_that_hang_hold_up_nobody(self):
        self.check("open")

    def test_reads_that_hang_hold_up_nobody(self):
        self.check("read")

    def test_reads_that_hang_hold_up_nobody_without_io_uring(self):
        self.check("read", "--no-io-uring")

    def test_opens_that_hang_hold_up_nobody_without_io_uring(self):
        self.check("open", "--no-io-uring")

    def test_it_goes_on_when_storage_answers(self):
        mount = self.mirror()
        daemon = self.daemon()
        mount.begin("read")
        process = subprocess.Popen(probe_command(daemon, mount.mount), stdout=subprocess.PIPE, text=True)
        wait_until("a request that hangs", mount.has_hung)
        self.assertEqual(daemon.status()["cache"]["loading"], min(4, len(chunk_files(self.slow))))
        mount.end("read")
        self.assertIn('"samples": 300', process.communicate(timeout=60)[0])

    def test_it_goes_on_when_storage_fails_for_seconds(self):
        """Simulates a soft NFS mount while its server restarts."""
        mount = self.mirror()
        daemon = self.daemon()
        mount.begin("fail")
        process = subprocess.Popen(probe_command(daemon, mount.mount), stdout=subprocess.PIPE, text=True)
        wait_until("a read that is repeated", lambda: "Input/output error; reading the chunk again in 2 s" in daemon.output())
        mount.end("fail")
        self.assertIn('"samples": 300', process.communicate(timeout=60)[0])
        self.assertEqual(daemon.status()["cache"]["quarantined"], 0)
        # A daemon that is stopped meanwhile does not wait for it.
        again = self.daemon()
        mount.begin("fail")
        process = subprocess.Popen(probe_command(again, mount.mount), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(end, process)
        wait_until("a read that is repeated", lambda: "reading the chunk again in 1 s" in again.output())
        self.assertEqual(again.stop(), 0)
        self.assertNotIn("not served", again.output())


if __name__ == "__main__":
    mirror.require()
    main()
