# SPDX-License-Identifier: Apache-2.0
"""Turns a state into what torch.save() would write: a pickle, and the memory of each tensor."""
from __future__ import annotations

import io
import pickle
import sys
import types
from typing import Any

import torch
from torch import _weights_only_unpickler as safe

from . import folder, image
from .persist import RECORD
from .snapshot import Image

LONGEST_PLACE = 160   # in a message
_IS_OLD = int(torch.__version__.split(".")[0]) < 2


class _Restricted(pickle.Unpickler):
    """Reads only what weights_only=True allows, for a PyTorch whose own reader does not know floats yet, such as a learning rate."""

    def find_class(self, module, name):
        found = safe._get_allowed_globals().get(f"{module}.{name}")
        if found is None:
            raise pickle.UnpicklingError(f"Unsupported class {module}.{name}")
        return found


class _RestrictedPickle:
    Unpickler = _Restricted

    @staticmethod
    def load(*_, **__):
        raise pickle.UnpicklingError("this is not a file of torch.save()")


def load(path: Any) -> dict:
    if _IS_OLD:
        return torch.load(path, map_location="cpu", pickle_module=_RestrictedPickle)
    return torch.load(path, map_location="cpu", weights_only=True)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, persistent_id: Any) -> None:
        super().__init__(file, protocol=2)
        self.persistent_id = persistent_id  # type: ignore[method-assign]
        self.kinds: set[Any] = set()

    def reducer_override(self, obj: Any) -> Any:
        self.kinds.add(obj if isinstance(obj, (type, types.FunctionType, types.BuiltinFunctionType)) else type(obj))
        if _IS_OLD and isinstance(obj, torch.Tensor) and (obj.is_conj() or obj.is_neg()):  # torch 1 would save the values behind the view
            return obj.resolve_conj().resolve_neg().__reduce_ex__(2)
        return NotImplemented


class Pickled:
    """data: the pickle. storages: those of its tensors, in the order of their keys, still at their place. kinds: the types and
    functions on which it depends whether torch.load() reads it."""

    FILE, KIND = folder.STATE, "torch"

    def __init__(self, state: object, explain: bool = True) -> None:
        """Raises TypeError if the state cannot be pickled. explain=False: whatever its objects raise."""
        self._state = state
        self.storages: list = []
        self._typed: list = []
        self._keys: dict[tuple[int, Any], int] = {}
        file = io.BytesIO()
        pickler = _Pickler(file, self._persistent_id)
        try:
            pickler.dump(state)
        except Exception as error:   # of any kind, from an object of the state
            if not explain or isinstance(error, MemoryError):
                raise
            raise _refusal(state, error, "cannot be pickled", _is_pickled) from None
        self.data, self.kinds = file.getvalue(), pickler.kinds

    def _persistent_id(self, obj):
        typed = isinstance(obj, torch.storage.TypedStorage)
        if not typed and not torch.is_storage(obj):
            return None
        if typed:
            storage = getattr(obj, "_untyped_storage", None)  # torch 2
            if storage is None:
                storage, name, n = obj._storage, obj.pickle_storage_type(), obj.size()
            else:
                name, n = obj._pickle_storage_type(), obj._size()
            kind = getattr(torch, name)
        else:
            storage, kind, n = obj, torch.serialization.normalize_storage_type(type(obj)), obj.nbytes()
        # Without memory, such as the storage of an empty tensor, every one has the address 0. torch.load() gives all tensors
        # of a storage the type of the first: views of another type get a copy of their own.
        key = self._keys.setdefault((storage._cdata, kind), len(self.storages))
        if key == len(self.storages):
            self.storages.append(storage)
            self._typed.append(obj if typed or _IS_OLD else torch.storage.TypedStorage(wrap_storage=obj, dtype=torch.uint8, _internal=True))
        return ("storage", kind, str(key), torch.serialization.location_tag(storage), n)

    def read(self) -> None:
        """Raises what torch.load(weights_only=True) would."""
        reader: Any = _Restricted(io.BytesIO(self.data)) if _IS_OLD else safe.Unpickler(io.BytesIO(self.data), encoding="utf-8")
        reader.persistent_load = lambda saved: self._typed[int(saved[2])]
        reader.load()

    def check(self) -> None:
        """Raises TypeError if torch.load(weights_only=True) would refuse the state. Copies no tensor."""
        try:
            self.read()
        except Exception as error:  # its own kind of error differs between versions
            raise _refusal(self._state, error, "cannot be in a checkpoint, because torch.load(weights_only=True) would refuse it", _is_read) from None

    def bound(self) -> int:
        """Returns the largest size of the file and of what goes with it to the process that writes it."""
        records = self._records()
        return image.bound(records) + RECORD.size * (len(records) + 1)

    def fill(self, memory: memoryview, begin: int = 0) -> Image:
        archive, offsets = self._lay_out(memory, begin)
        return Image(archive.end(), archive.records, list(zip(offsets, self.storages)))

    def _records(self) -> list[tuple[str, int]]:
        return [*((f"data/{key}", storage.nbytes()) for key, storage in enumerate(self.storages)), *((name, len(data)) for name, data in self._small())]

    def _small(self):
        return (("data.pkl", self.data), ("byteorder", sys.byteorder.encode()), ("version", b"3\n"))

    def _lay_out(self, memory, begin):
        """Returns the archive, complete but for the tensors' bytes, and the offsets of these."""
        archive = image.Archive(memory, begin)
        offsets = [archive.add(f"data/{key}", storage.nbytes()) for key, storage in enumerate(self.storages)]
        for name, data in self._small():
            archive.add_bytes(name, data)
        return archive, offsets


def _refusal(state, error, why, is_taken):
    """Returns a TypeError that names the innermost part of the state that is refused by itself."""
    part, place, met = state, "the state", set()
    while id(part) not in met:
        met.add(id(part))
        for inner, its_place in _parts(part, place):
            if not is_taken(inner):
                part, place = inner, its_place
                break
    kind = type(part)
    if len(place) > LONGEST_PLACE:
        place = f"{place[:LONGEST_PLACE // 2]}...{place[-LONGEST_PLACE // 2:]}"
    return TypeError(f"{place}, a {kind.__module__}.{kind.__qualname__}, {why} ({_first_line(error)}): {_instead(part)}")


def _parts(value, place):
    if isinstance(value, dict):
        yield from ((key, f"the key {key!r} of {place}") for key in value)
        yield from ((inner, f"{place}[{key!r}]") for key, inner in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((inner, f"{place}[{i}]") for i, inner in enumerate(value))


def _is_pickled(value):
    try:
        Pickled(value, explain=False)
    except Exception:   # noqa: BLE001
        return False
    return True


def _is_read(value):
    try:
        Pickled(value, explain=False).read()
    except Exception:   # noqa: BLE001
        return False
    return True


def _instead(value):
    if type(value).__module__ != "numpy":
        return "pass tensors, numbers, texts, lists and dicts of them"
    if not hasattr(value, "shape") or value.shape == ():
        return "pass its .item()"
    return "pass torch.as_tensor() of it" if value.dtype.kind in "biufc" else "pass its .tolist()"


def _first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    wanted = next((line for line in lines if "GLOBAL" in line or "Unsupported" in line), text)
    return wanted.rstrip(".")
