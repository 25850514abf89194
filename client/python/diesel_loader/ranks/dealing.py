# SPDX-License-Identifier: Apache-2.0
"""Determines the lanes, the drift and the window of an epoch's order (docs/reference/formats.md).

All ranks need the same values, so the defaults depend only on the number of ranks and the dataset. A user gives a number or
None; the pair (lanes, drift) of an epoch has numbers."""
from __future__ import annotations

from ..options import integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MOST = 1 << 16  # WIRE_LANES_MAX, WIRE_DRIFT_MAX
BEFORE_THEY_WERE = {"lanes": 1, "drift": 0}  # values for a state that was saved before these keys existed


def in_force(lanes: int | None, drift: int | None, world_size: int, shuffle: bool) -> tuple[int, int]:
    """Returns (lanes, drift) of an epoch that begins. By default each rank has its own lane; the storage order is one
    lane, since what is written in that order is read in it."""
    return lanes or (world_size if shuffle else 1), drift or 0


def window(window_chunks: int, lanes: int, dataset: Any) -> int:
    """Returns the number of chunks in a window. With lanes, two: all ranks together mix more of them than one lane of
    eight. Where chunks hold what lay together in the source, as samples of one class, more of them have to be mixed."""
    return window_chunks or (2 if lanes > 1 and dataset.is_fair else 8)


def check(lanes: Any, drift: Any, n_samples: int, path: str) -> tuple[int | None, int | None]:
    """Returns the user's values as int or None. Raises ValueError if no order can have these values."""
    lanes = None if lanes is None else integer("lanes", lanes, 1)
    drift = None if drift is None else integer("drift", drift, 0)
    for name, value in (("lanes", lanes), ("drift", drift)):
        if (value or 0) > MOST:
            raise ValueError(f"{name} must be at most {MOST}, not {value}")
    if (lanes or 0) > n_samples:
        raise ValueError(f"{path} has {n_samples} samples, too few for {lanes} lanes: give lanes={n_samples} or fewer")
    return lanes, drift


def resumed(state: Mapping[str, Any], lanes: int | None, drift: int | None, n_samples: int, path: str) -> tuple[int, int]:
    """Returns (lanes, drift) of a state's epoch. Raises ValueError if the user gave others, or no order can have
    them."""
    was = {name: state.get(name, value) for name, value in BEFORE_THEY_WERE.items()}
    for name, told in (("lanes", lanes), ("drift", drift)):
        if told not in (None, was[name]):
            raise ValueError(f"cannot resume: {name} was {was[name]}, now it is {told}: give {name}={was[name]}, or leave {name}= out and the epoch "
                             f"ends as it began; to start another epoch, call set_epoch() without this state, with "
                             f"{name}={told}")
    found = check(was["lanes"], was["drift"], n_samples, path)
    return found[0] or 1, found[1] or 0
