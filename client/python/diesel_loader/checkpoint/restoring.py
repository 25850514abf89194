# SPDX-License-Identifier: Apache-2.0
"""Gives objects their states from a checkpoint: all of them, or none."""
from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Collection
from typing import Any

from .accelerated import Accelerated


def check_names(path: str, objects: dict[str, Any], saved: Collection[Any]) -> None:
    """Raises KeyError if the checkpoint lacks an object."""
    for name in objects:
        if name not in saved:
            raise KeyError(f"{path} has no state of {name!r}: it has {', '.join(sorted(map(repr, saved)))}. Pass the objects that it was made of")


class Undo:
    """Puts objects back into the states that they had before a restore that fails."""

    def __init__(self) -> None:
        self._actions: dict[str, Callable[[], object]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._actions

    def add(self, name: str, action: Callable[[], object]) -> None:
        self._actions[name] = action

    def remember(self, name: str, obj: Any) -> None:
        with contextlib.suppress(Exception):   # one without a state yet, or without memory for a copy
            before = copy.deepcopy(obj.state_dict())
            self.add(name, lambda: obj.load_state_dict(before))

    def run(self) -> None:
        for action in self._actions.values():
            with contextlib.suppress(Exception):   # one whose state is no state to load
                action()


def give(path: str, objects: dict[str, Any], state: dict[str, Any], undo: Undo) -> list[str]:
    """Gives their states to the objects that may refuse them. Raises what the first one that does raises, with the path. undo: gets what
    puts them back. Returns the names of the others, which certainly take theirs: they come when no rank has failed."""
    check_names(path, objects, state)
    torch = sys.modules.get("torch")
    models = (torch.nn.Module, torch.optim.Optimizer, Accelerated) if torch is not None else ()
    names = sorted(objects, key=lambda name: isinstance(objects[name], models))   # whatever else refuses does so before they change
    certain = all(_fits(torch, objects[name], state[name]) for name in names if isinstance(objects[name], models))
    sure = [name for name in names if certain and isinstance(objects[name], models)]
    names = [name for name in names if name not in sure]
    for name in names:
        if name not in undo:
            undo.remember(name, objects[name])
    for i, name in enumerate(names):
        try:
            objects[name].load_state_dict(state[name])
        except Exception as error:
            changed = [other for other in names[:i] if other not in undo]
            kept = f", after {', '.join(changed)} had been restored" if changed else ""
            error.args = (f"{path} does not fit {name}={type(objects[name]).__name__}{kept}: {error}",)
            raise
    return sure


def _fits(torch, obj, saved):
    """Returns True if load_state_dict() certainly takes it."""
    with contextlib.suppress(AttributeError, KeyError, TypeError):
        if isinstance(obj, torch.nn.Module):
            return not any(map(_may_refuse, obj.modules())) and _shapes(obj.state_dict()) == _shapes(saved)
        return type(obj).load_state_dict.__module__.startswith("torch.") and _sizes(obj.param_groups) == _sizes(saved["param_groups"])
    return False


def _may_refuse(module):
    """Returns True if it has code of its own for loading a state."""
    own = (type(module).load_state_dict, type(module)._load_from_state_dict, type(module).set_extra_state)
    return bool(module._load_state_dict_pre_hooks or module._load_state_dict_post_hooks) or not all(call.__module__.startswith("torch.nn") for call in own)


def _shapes(state):
    return {name: getattr(value, "shape", None) for name, value in state.items()}


def _sizes(groups):
    return [len(group["params"]) for group in groups]
