# SPDX-License-Identifier: Apache-2.0
"""Gives objects their states from a checkpoint: all of them, or none."""
from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Collection
from typing import Any

from .accelerated import Accelerated


def check_names(path: str, objects: dict[str, Any], saved: Collection[Any]) -> None:
    """Raises KeyError if the checkpoint lacks an object."""
    for name in objects:
        if name not in saved:
            raise KeyError(f"{path} has no state of {name!r}: it has {', '.join(sorted(map(repr, saved)))}. Pass the objects that it was made of")


def give(path: str, objects: dict[str, Any], state: dict[str, Any]) -> None:
    """Raises what the first object that refuses its state raises, with the path. Models and optimizers are then as before."""
    check_names(path, objects, state)
    torch = sys.modules.get("torch")
    models = (torch.nn.Module, torch.optim.Optimizer, Accelerated) if torch is not None else ()
    names = sorted(objects, key=lambda name: isinstance(objects[name], models))   # whatever else refuses does so before they change
    before = {}
    if not all(_fits(torch, objects[name], state[name]) for name in names if isinstance(objects[name], models)):
        before = {name: copy.deepcopy(objects[name].state_dict()) for name in names}   # some models take other states, too
    for i, name in enumerate(names):
        try:
            objects[name].load_state_dict(state[name])
        except Exception as error:
            for changed in names[:i + 1]:
                if changed in before:
                    with contextlib.suppress(Exception):   # one whose state is no state to load
                        objects[changed].load_state_dict(before[changed])
            kept = "" if before or not i else f", after {', '.join(names[:i])} had been restored"
            error.args = (f"{path} does not fit {name}={type(objects[name]).__name__}{kept}: {error}",)
            raise


def _fits(torch, obj, saved):
    """Returns True if load_state_dict() certainly takes it."""
    with contextlib.suppress(AttributeError, KeyError, TypeError):
        if isinstance(obj, torch.nn.Module):
            return _shapes(obj.state_dict()) == _shapes(saved)
        return _sizes(obj.param_groups) == _sizes(saved["param_groups"])
    return False


def _shapes(state):
    return {name: getattr(value, "shape", None) for name, value in state.items()}


def _sizes(groups):
    return [len(group["params"]) for group in groups]
