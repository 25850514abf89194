# SPDX-License-Identifier: Apache-2.0
"""Checkpointer: what a training loop calls."""
from __future__ import annotations

import atexit
import functools
import json
import logging
import numbers
import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from . import folder as folders
from . import persister, place, ranks
from .accelerated import Accelerated, stateful
from .interval import PROFILED, WARM_UP, Measured
from .persister import Ended
from .restoring import Undo, give
from .snapshot import SPREAD, Saver

MOST_REMOVED = 100  # checkpoints at a time, because their names go in one message
MOST_NAMED = 8 << 10    # bytes of names of objects, for the same reason
PREPARED_STEP = 2  # the optimizer has its state then
STEP = "step"

log = logging.getLogger("diesel_loader")


class Restored(NamedTuple):
    """A checkpoint that was restored. path: its folder. step: steps that the run had done. state: all that was saved,
    the objects' states too."""
    path: str
    step: int
    state: dict[str, Any]


class _Unreadable(Exception):
    """The text is for the user."""


class Checkpointer:
    """Writes checkpoints of a training job as often as a bound on their cost allows.

    folder: where the checkpoints go: a folder, made if it is missing, or s3://BUCKET/PREFIX, which is written with the
    credentials of this process. One job uses it at a time.
    every: "auto", or a number of steps.
    overhead: with "auto", the part of the run's time that checkpoints may cost.
    keep: how many checkpoints of this run stay; 0: all.
    state: instead of objects, a function that returns a dict with what to save.
    objects: what is saved under their names, with state_dict() and load_state_dict(): model, optimizer, loader, scheduler.
        accelerator=accelerator is everything that Accelerate's save_state() saves.

    Raises ValueError and TypeError for arguments that cannot work, and OSError if another job uses the folder. After that,
    a checkpoint that cannot be written is one line in the log; training goes on, and the next one is tried at its time.
    """

    def __init__(self, folder: str | os.PathLike[str], *, every: int | str = "auto", overhead: float = 0.035, keep: int = 3,
                 state: Callable[[], dict[str, Any]] | None = None, **objects: Any) -> None:
        if every != "auto" and not _is_number(every, 1):
            raise ValueError(f'every={every!r} is neither "auto" nor a number of steps from 1 on')
        if not _is_part(overhead):
            raise ValueError(f"overhead={overhead!r} is no part of the run's time between 0 and 1, such as 0.035")
        if not _is_number(keep, 0):
            raise ValueError(f"keep={keep!r} is no number of checkpoints: pass one from 1 on, or 0 for all")
        if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder):
            raise ValueError(f'folder={folder!r} is no path such as "checkpoints"')
        if state is not None and not callable(state):
            raise TypeError(f"state={type(state).__name__} is no function that returns what to save, such as state=lambda: {{...}}")
        if (state is None) == (not objects):
            raise TypeError("pass either what to save, such as model=model, optimizer=optimizer, or state=, a function that returns it")
        objects = {name: stateful(obj) for name, obj in objects.items()}
        for name, obj in objects.items():
            if not (hasattr(obj, "state_dict") and hasattr(obj, "load_state_dict")):
                raise TypeError(f"{name}={type(obj).__name__} has no state_dict() and load_state_dict(): pass it to step(), or use state=")
        if STEP in objects:
            raise TypeError(f"{STEP}= is the number of steps, which is always saved: use another name")
        ranks.check_group()
        self._place = place.place(folder)
        self._folder = self._place.path
        self._every, self._overhead, self._keep = every, overhead, keep
        self._function, self._objects = state, objects
        self._measured = Measured(overhead)
        self._n = self._last_save = 0       # steps of the run
        self._next = None                   # with several ranks: the step at which they agree again
        self._kept: list[str] = []          # make way, the first one first: this run's checkpoints, and those it found
        self._unknown: dict[str, set[str]] = {}   # the latter, with the names of the states in them
        self._halves: list[str] = []        # failed ones in a bucket, which may have parts of them
        self._has_said_more = False
        self._newest: str | None = None
        self._writing: dict[str, Any] | None = None
        self._n_failed, self._refused = 0, False
        self._newest_s: float | None = None   # when the snapshot of the newest one was taken
        self._snapshot_s = 0.0
        self._last_end: float | None = None
        self._checked: set[Any] = set()     # kinds of values that torch.load() is known to read
        self._has_checked = False
        self._prepared = False
        self._pid = os.getpid()
        self._first_is_due = WARM_UP + PROFILED
        self._saver = Saver(self._folder if ranks.rank() == 0 else None, self._place.program)
        self._saver.start()
        try:
            with self._place:
                self._number = self._place.clean() if ranks.rank() == 0 else 0
        except BaseException:
            self._saver.close()
            raise
        self._at_exit = weakref.finalize(self, _finish, self._saver, self._pid)

    # Restoring

    def restore(self) -> Restored | None:
        """Loads the newest whole checkpoint into the objects, and returns it, or None if the folder has none. Damaged ones
        are named in the log and passed over. With several ranks all of them call it. Call it before the first step.

        Raises KeyError if the checkpoint lacks an object, and whatever an object raises that refuses its state. All objects are then
        as they were, on all ranks."""
        damaged: list[str] = []
        with self._place:
            names = ranks.of_first(self._place.names)
            for path, about in ranks.agreed_whole(self._place, names, damaged):
                undo = Undo()
                try:
                    state = self._load(path, about, undo)
                    number = folders.number_of(os.path.basename(path))
                    kept = damaged[::-1] + [name for name in names if folders.number_of(name) <= number and name not in damaged]
                    unknown = ranks.of_first(functools.partial(self._place.states, kept))
                    for name in ranks.together(lambda: give(path, self._objects, state, undo), f"restore {path}"):
                        self._objects[name].load_state_dict(state[name])
                except BaseException:
                    undo.run()
                    raise
                self._n = self._last_save = int(state.get(STEP, about["step"]))
                self._kept, self._unknown = kept, unknown   # damaged ones make way before whole ones; of the first rank, which removes
                self._newest = path
                return Restored(path, self._n, state)
        return None

    def _load(self, path, about, undo):
        if about["kind"] == "dcp":
            from . import distributed
            return distributed.load(path, self._objects, self._place.path_of, undo)
        if about["kind"] == "numpy":
            from .arrays import load
        else:
            from .tensors import load
        return ranks.together(lambda: load(self._place.path_of(next(iter(about["files"])), path)), f"read {path}")

    # Saving

    def step(self, **values: Any) -> None:
        """Call it in each step, after optimizer.step() and anything else that changes the weights, such as clipping. On a GPU
        a later change could reach the copy. Takes a checkpoint if one is due. values: saved too, such as epoch=epoch."""
        self._check_process()
        now = time.monotonic()
        try:
            self._saver.updated()
        except OSError as error:
            self._lose(error, self._writing)
        self._poll()
        if self._last_end is not None:
            self._measured.step(now - self._last_end, self._saver.is_writing)
        self._n += 1
        if self._measured.n_steps + 1 >= PREPARED_STEP and not self._prepared:
            self._prepare(values)
        if self._is_due():
            self._save(values)
        self._last_end = time.monotonic()

    def save(self, **values: Any) -> None:
        """Takes a checkpoint now, whatever the interval. Waits for the one before to be written, but not for this one; wait()
        does. With several ranks all of them call it."""
        self._check_process()
        self.wait()
        if ranks.largest(self._saver.is_writing)[0]:
            self._fail("the one before is still not written", {"about": {STEP: self._n}})
        else:
            self._save(values)
        self._last_end = None   # the pause is no step

    def wait(self) -> None:
        """Returns when the last checkpoint is on disk, or has failed, or the process that writes has got no further for a minute."""
        self._check_process()
        self._saver.wait(self._poll)

    def close(self) -> None:
        """Returns when everything is on disk. It is also called when the process ends normally."""
        if os.getpid() == self._pid:
            self.wait()
        self._at_exit()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def figures(self) -> dict[str, Any]:
        """Returns what the run has measured. Times are seconds; None: not known yet.

        steps, checkpoints (that were begun), failed; interval_steps: the present interval; step_s: an undisturbed step;
        snapshot_s, slowdown_s and written_s: of the last checkpoint, how long it stopped the run, how much longer the steps
        were while it was written, and the time until it was on disk; overhead: snapshots and slowdown, as part of the time;
        newest: path of the last one on disk."""
        figures: dict[str, Any] = self._measured.figures()
        if self._every != "auto":
            figures["interval_steps"] = self._every
        return {**figures, "failed": self._n_failed, "newest": self._newest}

    def _check_process(self):
        if os.getpid() != self._pid:
            raise RuntimeError("this process was forked from the one with the Checkpointer: only that one can save")

    def _is_due(self):
        if self._every != "auto":
            due = self._n - self._last_save >= self._every
            if ranks.size() == 1:
                return due and not self._saver.is_writing
            return due and not ranks.largest(self._saver.is_writing)[0]
        if ranks.size() == 1:
            if self._saver.is_writing or self._saver.is_preparing:
                return False
            interval = self._interval()
            return interval is not None and self._n - self._last_save >= interval
        # With several ranks, all ask each other at the same steps only.
        done = self._measured.n_steps + 1
        if self._next is None:
            self._next = self._n + max(0, self._first_is_due - done)
        if self._n < self._next:
            return False
        writing, interval = ranks.largest(self._saver.is_writing, self._interval() or 0)
        since = self._n - self._last_save
        if writing or since < interval:
            self._next = self._n + max(1, int(interval) - since, int(interval) // 8)
            return False
        self._next = self._n + 1
        return True

    def _interval(self):
        """Returns steps, or None while the first ones are being timed."""
        interval = self._measured.interval()
        if interval is None and self._measured.is_profiled():
            # Nothing is known after a failure either: then the bound must not be lost by trying at every step.
            return 1 if self._n_failed == 0 else max(1, round(1 / self._overhead))
        return interval

    def _state(self, values):
        state = self._function() if self._function else {name: obj.state_dict() for name, obj in self._objects.items()}
        if not isinstance(state, dict):
            raise TypeError(f"the function state= has returned a {type(state).__name__}: return a dict with names and what to save under them")
        for name in (STEP, *values):
            if name in state:
                raise TypeError(f"the state has {name!r} twice: use another name")
        return {**state, STEP: self._n, **values}

    def _agreed_state(self, values):
        state = ranks.together(lambda: self._state(values), f"make its state for the checkpoint of step {self._n}")
        self._number = int(ranks.largest(self._number)[0])
        return state

    def _prepare(self, values):
        """Gets the memory, in another thread, while the first steps are timed."""
        self._prepared = True
        if ranks.size() > 1:
            return
        try:
            pickled = self._pickled(self._state(values))
            self._saver.prepare(pickled.bound())
        except (MemoryError, OSError) as error:
            self._fail(str(error), None)
        except _Unreadable:
            pass   # the save will say so, if the value is still there

    def _pickled(self, state):
        """Raises TypeError at the first checkpoint, and _Unreadable at a later one that torch.load() would refuse."""
        try:
            pickled = _form_of(state)(state)
            if not pickled.kinds <= self._checked:
                pickled.check()
        except MemoryError:
            raise
        except Exception as error:
            if self._has_checked:
                raise _Unreadable(str(error) or type(error).__name__) from None
            raise
        self._checked |= pickled.kinds
        self._has_checked = True
        return pickled

    def _save(self, values):
        begin = time.monotonic()
        state = self._agreed_state(values)
        self._number += 1
        order = {"folder": self._folder, "program": self._place.program, "name": None, "number": self._number, "rank": ranks.rank(), "later": ranks.size() > 1,
                 "spread_s": self._spread(), "remove": [],
                 "about": {"number": self._number, STEP: self._n, "ranks": ranks.size(), "written": time.time(), "kind": "torch", "states": _states_in(state)}}
        self._last_save, self._writing = self._n, order
        try:
            if ranks.size() > 1:
                self._save_ranks(state, order)
            else:
                order["name"], order["remove"] = folders.name_of(self._number, self._n), self._to_remove(state)
                pickled = self._pickled(state)
                order["file"], order["about"]["kind"] = pickled.FILE, pickled.KIND
                self._saver.send(order, self._saver.take(pickled.bound(), pickled.fill, _optimized(self._objects)))
        except (Ended, OSError, MemoryError, _Unreadable) as error:
            self._fail(persister.reason(error), order)
        self._measured.snapshot(time.monotonic() - begin)
        self._snapshot_s = begin
        self._report()

    def _save_ranks(self, state, order):
        from . import distributed
        order["name"] = folders.name_of(self._number, self._n)
        order["remove"] = self._to_remove(state) if ranks.rank() == 0 else []
        order["about"]["kind"] = "dcp"
        distributed.save(state, self._saver, order)

    def _to_remove(self, state):
        """Returns the checkpoints that make way for the one to be written: none that holds the state of more objects. And those that failed."""
        found = self._kept[:min(MOST_REMOVED, max(0, len(self._kept) + 1 - self._keep))] if self._keep else []
        for name in [name for name in found if name in self._unknown]:
            more = sorted(self._unknown.pop(name) - state.keys())
            if more:
                found.remove(name)
                self._kept.remove(name)
                if not self._has_said_more:
                    log.warning("checkpoint %s stays: it has the state of %s, which this run does not save. Other checkpoints from before that have it "
                                "stay, too. Pass it to Checkpointer, or remove them", os.path.join(self._folder, name), " and ".join(more))
                self._has_said_more = True
        return found + self._halves[:MOST_REMOVED - len(found)]

    def _spread(self):
        interval = self._every if self._every != "auto" else self._measured.interval()
        step_s = self._measured.figures()["step_s"]
        return SPREAD * interval * step_s if interval and step_s else 0.0

    def _poll(self, timeout_s: float | None = 0.0) -> None:
        if not self._saver.is_writing:
            return
        order: Any = self._writing
        try:
            replies = self._saver.replies(timeout_s)
        except (Ended, OSError) as error:
            self._lose(error, order)
            return
        for reply in replies:
            if reply["error"]:
                self._fail(reply["error"], order)
            elif reply["do"] == "commit" or not order["later"]:
                gone = set(order["remove"])
                self._kept = [name for name in self._kept if name not in gone] + [order["name"]]
                self._halves = [name for name in self._halves if name not in gone]
                self._newest = os.path.join(self._folder, order["name"])
                self._newest_s = self._snapshot_s
        if self._saver.is_silent and not order.get("silent"):
            order["silent"] = True
            log.warning("the checkpoint of step %d is not written yet, because %s. Training goes on, without checkpoints until it does. %s",
                        order["about"][STEP], self._saver.silence(), self._saver.cure)
        if replies and self._saver.is_idle:
            self._measured.written(self._saver.written_s)
        if replies:
            self._report()

    def _lose(self, error, order):
        self._measured.written(0.0)
        self._fail(persister.reason(error), order)
        self._report()

    def _report(self):
        figures = self.figures()
        seconds = {"step_ns": figures["step_s"], "snapshot_ns": figures["snapshot_s"], "slowdown_ns": figures["slowdown_s"],
                   "written_ns": figures["written_s"], "spent_ns": self._measured.spent_s, "elapsed_ns": self._measured.elapsed_s,
                   "newest_ns": self._newest_s}
        self._saver.tell(n_begun=figures["checkpoints"], n_failed=figures["failed"], interval_steps=figures["interval_steps"] or 0,
                         **{name: int(1e9 * value) if value else 0 for name, value in seconds.items()})

    def _fail(self, why, order):
        if order is not None and order.get("has_failed"):
            return   # the first rank's part, and then the whole
        self._n_failed += 1
        if order is None:
            log.warning("no memory for checkpoints: %s. Training goes on", why)
            return
        order["has_failed"] = True
        if self._place.program and order.get("name"):
            self._halves.append(order["name"])
        log.warning("the checkpoint of step %d is not written: %s. Training goes on, and the next one is tried at its time", order["about"][STEP], why)


def _states_in(state):
    """Returns the names of the objects, as many as a message can hold."""
    names = [name for name, value in state.items() if isinstance(name, str) and isinstance(value, dict)]
    return names if len(json.dumps(names)) < MOST_NAMED else []


def _is_part(value):
    return isinstance(value, numbers.Real) and 0 < value < 1


def _is_number(value, least):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and value >= least


def _form_of(state):
    """Returns the class that lays the state out: torch's file, or NumPy's for arrays, and in a job without torch."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        if numpy is not None and _holds(state, (numpy.ndarray, numpy.generic)) and not _holds(state, torch.Tensor):
            from .arrays import Arrays
            return Arrays
        from .tensors import Pickled
        return Pickled
    from .arrays import Arrays
    return Arrays


def _holds(state, kind):
    left, met = [state], set()   # a state may contain itself
    while left:
        value = left.pop()
        if isinstance(value, kind):
            return True
        if isinstance(value, (dict, list, tuple)) and id(value) not in met:
            met.add(id(value))
            left += value.values() if isinstance(value, dict) else value
    return False


def _optimized(objects):
    """Returns the addresses of storages that change only in optimizer.step(): parameters and the optimizer's state."""
    found = set()
    torch = sys.modules.get("torch")
    for obj in objects.values():
        for optimizer in obj.optimizers if isinstance(obj, Accelerated) else [obj]:
            if torch is not None and isinstance(optimizer, torch.optim.Optimizer):
                for group in optimizer.param_groups:
                    found.update(param.data_ptr() for param in group["params"])
                found.update(value.data_ptr() for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor))
    return found


def _finish(saver, pid):
    if os.getpid() == pid:
        saver.hurry()
        saver.close()
    else:
        saver.forget()
