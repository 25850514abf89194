# SPDX-License-Identifier: Apache-2.0
"""A hill climber on the daemon's knobs, a peer of the tuner, like many home-grown autotuners. It sees only throughput, changes one knob at
a time by `dieselctl set`, waits, keeps changes that gained and reverts those that did not.
"""
import os
import threading
import time

from tuning.bed import MIB, rate_of

DWELL_S = 2.0     # seconds from a change to its judgement
GAIN = 1.02       # minimum gain for keeping a change
MOVES = (("client_workers", 1), ("cache", 1), ("prefetch", 1), ("daemon_workers", 1),
         ("client_workers", -1), ("cache", -1), ("prefetch", -1), ("daemon_workers", -1))
NAMES = {"cache": "cache", "prefetch": "prefetch", "daemon_workers": "workers", "client_workers": "client-workers"}


class Climber:
    """Runs in parallel to the job for the time of the block."""

    def __init__(self, daemon, job, start, scenario):
        self.daemon, self.job, self.scenario = daemon, job, scenario
        self.now = {"cache": scenario.limit_bytes // 2, "prefetch": start.prefetch, "daemon_workers": 1, "client_workers": 0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._set(self.now)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _set(self, knobs):
        for name, value in knobs.items():
            if name != "client_workers" or self.scenario.transform:
                self.daemon.ctl("set", "all", f"{NAMES[name]}={value}")
        self.now = {**self.now, **knobs}

    def _rate(self):
        """Returns the rate over the next DWELL_S seconds, or None when the benchmark ends."""
        begin = time.monotonic()
        if self._stop.wait(DWELL_S):
            return None
        return rate_of(self.job.steps(begin))

    def moved(self, name, direction):
        """Returns the knob's next value, or None at a limit."""
        value = self.now[name]
        if name == "cache":
            step = self.scenario.limit_bytes // 5 // MIB * MIB
            value = min(self.scenario.limit_bytes, max(48 * MIB, value + direction * step))
        elif name == "prefetch":
            value = min(64, max(1, value * 2 if direction > 0 else value // 2))
        else:
            value = min(2 * os.cpu_count(), max(0 if name == "client_workers" else 1, value + direction))
        skip = name == "client_workers" and not self.scenario.transform
        return None if skip or value == self.now[name] else value

    def _run(self):
        before = self._rate()
        while before is not None:
            for name, direction in MOVES:
                value, old = self.moved(name, direction), self.now[name]
                if value is None or before is None:
                    continue
                self._set({name: value})
                if self._stop.wait(0.5):
                    return
                after = self._rate()
                if after is None:
                    return
                # A step down is kept if it costs nothing, a step up only if it gains.
                if after >= before * (GAIN if direction > 0 else 2 - GAIN):
                    before = after
                else:
                    self._set({name: old})
                    before = self._rate()
