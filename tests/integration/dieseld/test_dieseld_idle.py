#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that a dieseld whose clients have left takes neither memory nor wake-ups, and ends when told to."""
import os
import pathlib
import signal
import socket
import time

from dieseld_support import MIB, SCRATCH, Case, dataset, finish_probe, main, start_probe


class Idle(Case):
    def status_of(self, daemon, *names):
        """Returns the sum of these lines of /proc/PID/status."""
        lines = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.split(":")[0] in names)

    def test_an_idle_daemon_takes_nothing(self):
        daemon = self.daemon("--window", "2", "--batches", "4", cache="200M")
        finish_probe(start_probe(daemon, dataset("views")[0]))
        # Threads and timers end some time after the last client: one of ten such intervals is quiet.
        counts = []
        while not counts or counts[-1] > 6:
            self.assertLess(len(counts), 10, f"wake-ups in 3 s each: {counts}")
            before = self.status_of(daemon, "voluntary_ctxt_switches")
            time.sleep(3)
            counts.append(self.status_of(daemon, "voluntary_ctxt_switches") - before)
        self.assertLess(self.status_of(daemon, "RssAnon", "RssFile"), 20 * MIB >> 10)

    def test_an_idle_daemon_ends_where_it_is_told_to(self):
        file = pathlib.Path(SCRATCH, "idle.conf")
        file.write_text("[dieseld]\nexit-when-idle = 0\n")
        daemon = self.daemon("--config", str(file))
        p = start_probe(daemon, dataset("views")[0], "--hold", 1, "--max-batches", 1, "--wait")
        self.assertEqual(p.stdout.readline(), "holding\n")
        file.write_text("[dieseld]\nexit-when-idle = 1\n")
        daemon.process.send_signal(signal.SIGHUP)
        time.sleep(1.5)
        self.assertIsNone(daemon.process.poll(), "a client is there")
        p.communicate()
        self.assertEqual(daemon.process.wait(30), 0)
        self.assertIn("no client for 1 s: dieseld exits", daemon.output())
        self.assertFalse(os.path.exists(daemon.socket))

    def test_its_end_leaves_anothers_socket(self):
        """Simulates a socket folder that was removed and made again."""
        daemon = self.daemon()
        os.unlink(daemon.socket)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            other.bind(daemon.socket)
            self.assertEqual(daemon.stop(), 0)
            self.assertTrue(os.path.exists(daemon.socket))


if __name__ == "__main__":
    main()
