# SPDX-License-Identifier: Apache-2.0
"""Batches of several loaders in one stream, in proportions that may change during an epoch."""
from __future__ import annotations

import math

from . import order, seeding
from .options import integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from .loader import Loader

STATE_VERSION = 1
EPOCH_STEPS = 1 << 32  # distance of the steps of consecutive epochs set by set_epoch(); more than the draws of an epoch
STOPS = ("first", "once", "all", "never")


def pick(seed: int, step: int, weights: Sequence[float]) -> int:
    """Returns the index of the loader for a step's batch: a draw by weight, a pure function of the arguments."""
    at = seeding.derive(seed, step) / 2**64 * math.fsum(weights)
    last = 0
    for i, weight in enumerate(weights):
        if weight > 0:
            last = i
            if at < weight:
                break
        at -= weight
    return last


class Mixture:
    """Iterates several loaders as one: each batch is from one of them, drawn by weight.

    loaders: DataLoaders of diesel_loader.torch or of diesel_loader.numpy, without samplers (TypeError otherwise).
        Only the mixture may iterate them. Each has its own session and workers.
    weights: share of the batches for each loader, in any unit: finite, not negative, not all 0. Default: equal shares.
    seed: of the draws. The loader of a step's batch is a pure function of seed, step and the weights in force then, the
        same on every rank. All ranks have to call set_weights() at the same steps.
    stop: when an epoch of the mixture ends. "first": when the first loader ends its epoch. "once": when the last loader
        ends; each gives its epoch once, and the others share the weight of loaders that have ended. "all": likewise,
        but loaders that have ended begin their next epoch, until the last one has ended. "never": no end. Loaders of
        weight 0 do not delay the end.

    Each loader continues its own epochs across epochs of the mixture, so each of its epochs has each of its samples
    once. iter() begins the next epoch of the mixture, and ends an older iterator. After set_epoch() it begins that
    epoch, which depends only on the arguments, the weights and the number of the epoch. `source` is the index of the
    loader that gave the last batch. An exception of a loader's next() is raised here; the next call continues with that
    loader.
    """

    def __init__(self, loaders: Sequence[Loader], weights: Sequence[float] | None = None, seed: int = 0,
                 stop: str = "first") -> None:
        from .loader import Loader
        if not loaders or not all(isinstance(loader, Loader) and loader._served for loader in loaders):
            raise TypeError("loaders must be one or more DataLoaders of diesel_loader, without samplers")
        if len({id(loader) for loader in loaders}) != len(loaders):
            raise ValueError("the mixture has the same loader twice: make a second loader of its dataset")
        if stop not in STOPS:
            raise ValueError(f"stop must be one of {', '.join(STOPS)}, not {stop!r}")
        self.loaders, self.stop, self.seed = list(loaders), stop, integer("seed", seed, 0)
        self.source: int | None = None
        self._weights = self._checked([1] * len(self.loaders) if weights is None else weights)
        self._iterators: list[Any] = [None] * len(self.loaders)
        self._step = 0                  # number of draws so far, over all epochs
        self._epoch, self._given = 0, 0  # _given: batches handed out in the epoch
        self._ended: set[int] = set()   # loaders that gave their last batch in this epoch
        self._resumed = False
        self._turn: _Turn | None = None
        self._told: int | None = None   # epoch from set_epoch() during an iteration
        self._length: tuple[int, int] | None = None  # (epoch, its number of batches)

    def _checked(self, weights: Sequence[float]) -> tuple[float, ...]:
        known = tuple(float(weight) for weight in weights)
        if len(known) != len(self.loaders):
            raise ValueError(f"{len(known)} weights for {len(self.loaders)} loaders")
        if not all(math.isfinite(weight) and weight >= 0 for weight in known) or not any(known):
            raise ValueError(f"weights must be finite, not negative, and not all 0: {list(known)}")
        return known

    @property
    def weights(self) -> list[float]:
        """The weights that are in force now."""
        return list(self._weights)

    def set_weights(self, weights: Sequence[float]) -> None:
        """Sets the weights from the next batch on. Raises ValueError as for the argument."""
        self._weights, self._length = self._checked(weights), None

    def __len__(self) -> int:
        """Number of batches of the current or next epoch, if the weights stay as they are. Raises TypeError for "never"."""
        if self.stop == "never":
            raise TypeError('a mixture with stop="never" has no length')
        if self._turn is None:
            self._obey()
        if self._length is None or self._length[0] != self._epoch:
            self._length = self._epoch, self._given + self._count()
        return self._length[1]

    def _count(self) -> int:
        """Returns the number of draws left in the epoch."""
        left, step, ended = [self._left(i) for i in range(len(self.loaders))], self._step, set(self._ended)
        while not self._is_over(ended):
            i = self._pick(step, ended)
            step += 1
            left[i] -= 1
            if not left[i]:
                ended.add(i)
                left[i] = len(self.loaders[i])
        return step - self._step

    def _left(self, i: int) -> int:
        """Returns the number of batches until the end of a loader's epoch."""
        iterator = self._iterators[i]
        left = len(iterator) if iterator is not None else len(self.loaders[i]) - self.loaders[i]._next_batch
        return left or len(self.loaders[i])

    def _is_over(self, ended: set[int]) -> bool:
        if self.stop == "first":
            return bool(ended)
        return self.stop != "never" and all(i in ended or not weight for i, weight in enumerate(self._weights))

    def _pick(self, step: int, ended: set[int]) -> int:
        if self.stop == "once":
            return pick(self.seed, step, [0 if i in ended else weight for i, weight in enumerate(self._weights)])
        return pick(self.seed, step, self._weights)

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or else of the next one."""
        return self._epoch if self._told is None else self._told

    def set_epoch(self, epoch: int) -> None:
        """Makes this the next epoch, also of an iterator from which nothing was requested yet. Its batches do not
        depend on earlier ones: its draws have their own steps, and each loader begins its epoch of that number. After
        load_state_dict() to the same epoch, the iteration continues there."""

        self._told = integer("epoch", epoch, 0)
        if self._turn is None or not self._turn.begun:
            self._obey()

    def _obey(self) -> None:
        epoch, self._told = self._told, None
        if epoch is None or self._resumed and epoch == self._epoch:
            return
        if self._resumed and not self._given and epoch == self._epoch - 1:
            order.say_repeated(epoch)
        for loader in self.loaders:
            loader._resumed = False  # the loader is in the middle of an epoch, from another epoch of the mixture
            loader.set_epoch(epoch)
        self._iterators = [None] * len(self.loaders)
        self._step, self._epoch, self._given, self._ended = epoch * EPOCH_STEPS, epoch, 0, set()
        self._resumed, self._length = False, None

    def __iter__(self) -> Iterator[Any]:
        self._obey()
        if self._given and not self._resumed:
            self._next_epoch()
        self._resumed = False
        self._turn = _Turn(self)
        return self._turn

    def _next_epoch(self) -> None:
        self._epoch, self._given, self._ended = self._epoch + 1, 0, set()

    def _next(self) -> Any:
        while not self._is_over(self._ended):
            i = self._pick(self._step, self._ended)
            try:
                batch = next(self._iterator(i))
            except StopIteration:  # its last batches failed
                self._end(i)
                continue
            self._step, self._given, self.source = self._step + 1, self._given + 1, i
            if not len(self._iterators[i]):
                self._end(i)
            return batch
        self._next_epoch()
        raise StopIteration

    def _iterator(self, i: int) -> Any:
        """Returns the iterator of the loader's epoch. An epoch that is resumed at its end is followed by the next."""
        if self._iterators[i] is None:
            self._iterators[i] = iter(self.loaders[i])
            if not len(self._iterators[i]):
                next(self._iterators[i], None)
                self._iterators[i] = iter(self.loaders[i])
        return self._iterators[i]

    def _end(self, i: int) -> None:
        next(self._iterators[i], None)  # tells the loader that its epoch is over
        self._iterators[i] = None
        self._ended.add(i)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the iteration, with the state of each loader: JSON-safe, the same on every rank."""
        return {"version": STATE_VERSION, "seed": self.seed, "stop": self.stop, "step": self._step, "epoch": self._epoch,
                "given": self._given, "ended": sorted(self._ended), "weights": self.weights,
                "loaders": [loader.state_dict() for loader in self.loaders]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iter() continue after the last batch that was delivered when `state` was taken, with the
        weights of that time. Raises ValueError for another seed, stop or number of loaders, or if a loader cannot
        resume."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"cannot resume: the state has format version {state.get('version')}, but this mixture supports only {STATE_VERSION}")
        for name, value in (("seed", self.seed), ("stop", self.stop)):
            if state[name] != value:
                raise ValueError(f"cannot resume: {name} was {state[name]}, now it is {value}")
        weights = self._checked(state["weights"])
        if len(state["loaders"]) != len(self.loaders):
            raise ValueError(f"cannot resume: there were {len(state['loaders'])} loaders, now there are {len(self.loaders)}")
        for loader, theirs in zip(self.loaders, state["loaders"]):
            loader.load_state_dict(theirs)
        self._weights, self._iterators = weights, [None] * len(self.loaders)
        self._step, self._epoch, self._given = state["step"], state["epoch"], state["given"]
        self._ended, self._resumed, self._turn, self._length = set(state["ended"]), True, None, None
        self._told = None

    def close(self) -> None:
        """Closes the loaders."""
        self._turn, self._iterators = None, [None] * len(self.loaders)
        for loader in self.loaders:
            loader.close()


class _Turn:
    """An iterator: one epoch of a mixture."""

    def __init__(self, mixture: Mixture) -> None:
        self._mixture = mixture
        self.begun = False

    def __iter__(self) -> _Turn:
        return self

    def __next__(self) -> Any:
        if self._mixture._turn is not self:
            raise StopIteration
        self.begun = True
        try:
            return self._mixture._next()
        except StopIteration:
            self._mixture._turn = None
            raise
