# SPDX-License-Identifier: Apache-2.0
"""The parts of a state that torch.distributed.checkpoint (DCP) forgets as it flattens it: types of keys, and empty dicts. An optimizer's
state has numbers as keys, and would begin again from nothing with texts."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

# {path of a dict: its keys that are no texts}. A path has DCP's parts: texts for keys, numbers for places in lists.
Structure = dict[tuple[Any, ...], list[Any]]

_KEYS = (int, float, complex, bool, type(None), bytes, torch.dtype, torch.device)


def structure_of(state: Mapping[Any, Any]) -> Structure:
    """Raises TypeError for a key that torch.load(weights_only=True) would refuse, too."""
    found: Structure = {}
    _look(state, (), found)
    return found


def _look(value, path, found):
    if isinstance(value, Mapping):
        keys = [key for key in value if type(key) is not str]
        for key in keys:
            if not _is_plain(key):
                raise TypeError(f"key {key!r} of {'.'.join(map(str, path)) or 'the state'} is a {type(key).__name__}: use texts or numbers as keys")
        if keys or not value:
            found[path] = keys
        for key, entry in value.items():
            _look(entry, (*path, str(key)), found)
    elif isinstance(value, list):
        for i, entry in enumerate(value):
            _look(entry, (*path, i), found)


def _is_plain(key):
    return all(map(_is_plain, key)) if type(key) is tuple else type(key) is str or type(key) in _KEYS


def merged(structures: list[Structure]) -> Structure:
    """Returns that of all ranks' states together."""
    found: Structure = {}
    for one in structures:
        for path, keys in one.items():
            known = found.setdefault(path, [])
            known += [key for key in keys if key not in known]
    return found


def rebuild(state: dict[str, Any], structure: Structure) -> None:
    """Gives a state that DCP has unflattened its keys and empty dicts back."""
    for path, keys in structure.items():
        if not keys:
            _make(state, path)
    for path in sorted(structure, key=len, reverse=True):   # the keys within, before those on the way there
        place = _at(state, path)
        texts = {str(key): key for key in structure[path]}
        if texts and isinstance(place, dict):
            entries = list(place.items())
            place.clear()
            place.update((texts.get(key, key), entry) for key, entry in entries)


def _at(state, path):
    for part in path:
        if not (part in state if isinstance(state, dict) else isinstance(state, list) and part < len(state)):
            return None
        state = state[part]
    return state


def _make(state, path):
    for i, part in enumerate(path):
        if isinstance(state, list):
            state += [None] * (part + 1 - len(state))
        missing = part not in state if isinstance(state, dict) else state[part] is None
        if missing:
            state[part] = [] if i + 1 < len(path) and isinstance(path[i + 1], int) else {}
        state = state[part]
