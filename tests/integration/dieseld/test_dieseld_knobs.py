#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests changes of dieseld's knobs while real clients read: nothing is lost, memory and threads come back, and the daemon drains."""
import os
import pathlib
import random
import signal
import time

from dieseld_support import MIB, SCRATCH, Case, dataset, finish_probe, main, start_probe


class Knobs(Case):
    def tuned(self, *options, **settings):
        """Starts a daemon with these settings in its file; reload(daemon, ...) changes them."""
        self.file = os.path.join(SCRATCH, self.id() + ".conf")
        self.write(settings)
        daemon = self.daemon("--window", "2", "--batches", "4", "--config", self.file, *options, cache=None)
        return daemon

    def write(self, settings):
        with open(self.file, "w") as f:
            f.write("[dieseld]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))

    def reload(self, daemon, **settings):
        before = daemon.output().count("configuration read again")
        self.write(settings)
        daemon.process.send_signal(signal.SIGHUP)
        for _ in range(6000):
            if daemon.output().count("configuration read again") > before:
                return
            time.sleep(0.01)
        self.fail("no reload: " + daemon.output())

    @staticmethod
    def chunk_bytes(daemon):
        """Returns the chunks' real use of the machine's memory, whoever maps them."""
        folder, total = f"/proc/{daemon.process.pid}/fd", 0
        for name in os.listdir(folder):
            try:
                if os.readlink(os.path.join(folder, name)).startswith("/memfd:diesel-chunk"):
                    total += os.stat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                pass
        return total

    def settle(self, what, value, bound):
        for _ in range(6000):
            if value() <= bound:
                return
            time.sleep(0.01)
        self.fail(f"{what}: {value()} > {bound}")


class Resizing(Knobs):
    def test_knobs_are_turned_under_load_and_no_sample_is_lost(self):
        daemon, rng = self.tuned(cache="200M", workers=2), random.Random(3)
        probes = [start_probe(daemon, *checked(kind), "--epochs", 4, "--pause-us", 1500, *more)
                  for kind, more in (("packed", ("--batch", 128)), ("views", ("--hold", 2, "--batch", 32)),
                                     ("views", ("--stride", 2, "--offset", 1, "--batch", 32)))]
        # The limit also holds for new sessions, so all are open before it is lowered.
        daemon.wait_for("three sessions", lambda s: len(s["sessions"]) == 3)
        turns = 0
        while any(p.poll() is None for p in probes) and turns < 400:
            self.reload(daemon, cache=f"{rng.choice((16, 24, 40, 90, 200))}M", workers=rng.randint(1, 4),
                        prefetch=rng.randint(0, 8))
            turns += 1
            time.sleep(0.02)
        for p in probes:
            finish_probe(p)  # the probe compares every byte, and the order with the plan
        self.assertGreater(turns, 10)
        self.assertIn("less than the", daemon.output())  # 16M: not enough for three sessions

    def test_memory_comes_back_although_a_client_maps_it(self):
        daemon = self.tuned(cache="200M")
        path, source = dataset("views")
        p = start_probe(daemon, path, "--source", source, "--hold", 2, "--wait")
        self.assertEqual(p.stdout.readline(), "holding\n")
        full = self.chunk_bytes(daemon)
        self.assertGreater(full, 36 * MIB)
        self.reload(daemon, cache="20M")
        # Workers return memory one segment after the other, so a decrease is not yet the end.
        status = daemon.wait_for("the memory's return", is_within(20 * MIB))["cache"]
        self.assertLessEqual(self.chunk_bytes(daemon), full // 2)
        self.assertGreater(status["pinned_chunks"], 0)
        # The cache grows again.
        self.reload(daemon, cache="200M")
        p.communicate()
        finish_probe(start_probe(daemon, path, "--source", source))
        self.assertGreater(self.chunk_bytes(daemon), 36 * MIB)

    def test_less_than_sessions_need_is_raised_until_they_close(self):
        daemon = self.tuned(cache="200M")
        p = start_probe(daemon, dataset("views")[0], "--hold", 2, "--wait")
        self.assertEqual(p.stdout.readline(), "holding\n")
        self.reload(daemon, cache="16M", prefetch=0)
        lines = [line for line in daemon.output().splitlines() if "less than the" in line]
        self.assertGreater(daemon.status()["cache"]["budget_bytes"], 16 * MIB)
        self.assertEqual(len(lines), 1, daemon.output())
        p.communicate()
        daemon.wait_for("the budget", lambda s: s["cache"]["budget_bytes"] == 16 * MIB)

    def test_idle_worker_threads_end(self):
        daemon = self.tuned(cache="200M", workers=8)

        def threads():
            folder = f"/proc/{daemon.process.pid}/task"
            return sum(name_of(pathlib.Path(folder, t)) == "dieseld-cpu\n" for t in os.listdir(folder))

        finish_probe(start_probe(daemon, dataset("packed")[0], "--epochs", 2))
        self.settle("threads", threads, 1)


class Ending(Knobs):
    def progress(self, daemon):
        daemon.wait_for("progress", lambda s: s["sessions"] and s["sessions"][0]["delivered"] > 12)

    def test_a_daemon_killed_with_knobs_turned_comes_back(self):
        daemon = self.tuned(cache="200M")
        path, source = dataset("packed")
        p = start_probe(daemon, path, "--source", source, "--pause-us", 10000, "--reconnect-ms", 60000, "--epochs", 2)
        self.progress(daemon)
        self.reload(daemon, cache="24M", workers=1, prefetch=1)
        self.progress(daemon)
        daemon.kill()
        daemon.start()
        self.progress(daemon)
        self.reload(daemon, cache="100M", workers=2)
        result, said = finish_probe(p)
        self.assertEqual(result["samples"], 2 * 12288)
        self.assertIn("is back", said)


def is_within(limit):
    """Returns a condition: memory is within the limit, and no memory is being returned to the system any more."""
    def predicate(status):
        cache = status["cache"]
        held = cache["segment_bytes"] + cache["slot_bytes"] + cache["snapshot_bytes"]
        return held <= limit and cache["releasing_bytes"] == 0
    return predicate


def name_of(task):
    try:
        return (task / "comm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None  # the process has just ended


def checked(kind):
    path, source = dataset(kind)
    return path, "--source", source


if __name__ == "__main__":
    main()
