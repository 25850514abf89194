#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A dieseld whose clients have left takes neither memory nor wake-ups."""
import pathlib
import time

from dieseld_support import MIB, Case, dataset, finish_probe, main, start_probe


class Idle(Case):
    def status_of(self, daemon, *names):
        """Sum of these lines of /proc/PID/status."""
        lines = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.split(":")[0] in names)

    def test_it_takes_nothing(self):
        daemon = self.daemon("--window", "2", "--batches", "4", cache="200M")
        finish_probe(start_probe(daemon, dataset("views")[0]))
        # Threads and timers end a while after the last client: within ten such stretches there is a quiet one.
        counts = []
        while not counts or counts[-1] > 6:
            self.assertLess(len(counts), 10, f"wake-ups in 3 s each: {counts}")
            before = self.status_of(daemon, "voluntary_ctxt_switches")
            time.sleep(3)
            counts.append(self.status_of(daemon, "voluntary_ctxt_switches") - before)
        self.assertLess(self.status_of(daemon, "RssAnon", "RssFile"), 20 * MIB >> 10)


if __name__ == "__main__":
    main()
