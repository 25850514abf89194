# SPDX-License-Identifier: Apache-2.0
"""How many steps to leave between two checkpoints: CheckFreq's rule (FAST 2021), from what this run has measured.

Pure: no clock, no files. Times are seconds.
"""
from __future__ import annotations

import collections
import math

WARM_UP = 3    # first steps, which are slower: compilers, caches, allocators
PROFILED = 5   # steps that are timed before the first checkpoint
WINDOW = 32    # steps by which the step time is judged
REMEMBERED = 8  # checkpoints by which their cost is judged
MINUTE_S = 60
IN_A_MINUTE = 8 / 7   # part of the bound that any minute may cost: 4 % at a bound of 3.5 %
FREE = 1.25    # part of the interval in which nothing is being written, so that undisturbed steps can be timed


class Costs:
    """step_s: an undisturbed step. visible_s: what one checkpoint adds to the run: its snapshot, and the slowdown of the
    steps while it is being written. written_s: from its snapshot until it is on disk. overspent_s: what past checkpoints
    cost beyond the bound. wait_s: from the last one until a minute has space for the next."""

    def __init__(self, step_s: float, visible_s: float, written_s: float, overspent_s: float = 0.0, wait_s: float = 0.0) -> None:
        self.step_s, self.visible_s, self.written_s, self.overspent_s, self.wait_s = step_s, visible_s, written_s, overspent_s, wait_s


def steps_between(costs: Costs, overhead: float) -> int:
    """Returns the smallest interval that keeps the visible cost within its share of the run and of any minute, and that leaves each
    checkpoint time to be written before the next."""
    step_s = max(costs.step_s, 1e-6)
    affordable = math.ceil((costs.visible_s + max(costs.overspent_s, 0.0)) / (overhead * step_s))
    written = math.ceil(FREE * costs.written_s / step_s)
    return max(affordable, written, math.ceil(costs.wait_s / step_s), 1)


def _median(values):
    values = sorted(values)
    return values[len(values) // 2]


def _trimmed_mean(values):
    """Returns the mean without the slowest tenth, such as steps that waited for data."""
    values = sorted(values)
    values = values[:max(1, len(values) - len(values) // 10)]
    return sum(values) / len(values)


class Measured:
    """The figures of a run so far. One call of step() after each step, snapshot() and written() at a checkpoint."""

    def __init__(self, overhead: float) -> None:
        self.overhead = overhead
        self.n_steps = self.n_checkpoints = 0
        self.elapsed_s = self.spent_s = 0.0
        self._free: collections.deque[float] = collections.deque(maxlen=WINDOW)
        self._during: list[float] = []
        self._costs: collections.deque[float] = collections.deque(maxlen=REMEMBERED)   # visible seconds of a checkpoint
        self._written: collections.deque[float] = collections.deque(maxlen=REMEMBERED)
        self._snapshots: collections.deque[float] = collections.deque(maxlen=REMEMBERED)
        self._differences: collections.deque[float] = collections.deque(maxlen=REMEMBERED)
        self._slowdowns: collections.deque[float] = collections.deque(maxlen=REMEMBERED)
        self._balance_s = 0.0  # spent beyond the bound. Never below 0: a run without checkpoints saves up nothing
        self._owed_s = 0.0     # its value when the last checkpoint began
        self._snapshot_s = self._began_s = 0.0
        self._minute: dict[int, float] = {}   # by seconds of the run: what was spent in the last one

    def step(self, seconds: float, writing: bool) -> None:
        self.n_steps += 1
        if self.n_steps <= WARM_UP:
            return
        self.elapsed_s += seconds
        self._balance_s = max(0.0, self._balance_s - self.overhead * seconds)
        (self._during if writing else self._free).append(seconds)

    def snapshot(self, seconds: float) -> None:
        """A checkpoint has stopped the run for so long."""
        self.n_checkpoints += 1
        self.elapsed_s += seconds   # no step includes them
        self._owed_s, self._snapshot_s, self._began_s = self._balance_s, seconds, self.elapsed_s
        self._spend(seconds)

    def written(self, seconds: float) -> None:
        """The checkpoint is on disk, or failed, that many seconds after its snapshot."""
        slowdown = 0.0
        if self._during and len(self._free) >= PROFILED:
            slowdown = max(0.0, _trimmed_mean(self._during) - _trimmed_mean(self._free)) * len(self._during)
        self._during = []
        # A step that waited for data looks as if this checkpoint had slowed it, but does not come with most of them.
        self._differences.append(slowdown)
        slowdown = _median(self._differences)
        self._spend(slowdown)
        self._costs.append(self._snapshot_s + slowdown)
        self._snapshots.append(self._snapshot_s)
        self._slowdowns.append(slowdown)
        self._written.append(seconds)

    def _spend(self, seconds):
        self.spent_s += seconds
        self._balance_s += seconds
        second = math.ceil(self.elapsed_s)
        self._minute[second] = self._minute.get(second, 0.0) + seconds
        for old in [other for other in self._minute if other < self._began_s - MINUTE_S]:
            del self._minute[old]

    def _wait_s(self, visible_s):
        """Returns how long after the last checkpoint a minute with another one costs no more than it may. 0 if that one costs more by itself."""
        over_s = sum(self._minute.values()) + visible_s - IN_A_MINUTE * self.overhead * MINUTE_S
        if visible_s > IN_A_MINUTE * self.overhead * MINUTE_S:
            return 0.0
        wait_s = 0.0
        for second, seconds in self._minute.items():
            if over_s <= 0:
                break
            over_s -= seconds
            wait_s = second + MINUTE_S - self._began_s
        return max(wait_s, 0.0)

    def is_profiled(self) -> bool:
        return len(self._free) >= PROFILED

    def costs(self) -> Costs | None:
        """Returns None before the first checkpoint was written."""
        if not self._costs or not self._free:
            return None
        # A disk that slows down counts at once, and one expensive checkpoint is forgotten after the next ones.
        visible = max(_median(self._costs), self._costs[-1]) if len(self._costs) > 2 else self._costs[-1]
        return Costs(_trimmed_mean(self._free), visible, max(_median(self._written), self._written[-1]), self._owed_s, self._wait_s(visible))

    def interval(self) -> int | None:
        costs = self.costs()
        return None if costs is None else steps_between(costs, self.overhead)

    def figures(self) -> dict[str, float | int | None]:
        last = {name: values[-1] if values else None
                for name, values in (("snapshot_s", self._snapshots), ("slowdown_s", self._slowdowns), ("written_s", self._written))}
        return {"steps": self.n_steps, "checkpoints": self.n_checkpoints, "interval_steps": self.interval(),
                "step_s": _trimmed_mean(self._free) if self._free else None, **last,
                "overhead": self.spent_s / self.elapsed_s if self.elapsed_s else 0.0}
