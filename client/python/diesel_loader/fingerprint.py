# SPDX-License-Identifier: Apache-2.0
"""Detects changes of the user's functions: PyTorch starts new workers for each epoch, but ours stay, and dieseld has a recipe."""
import hashlib
import pickle
import types

PLAIN = (int, float, complex, str, bytes, bool, tuple, type(None))


class _Hash:
    def __init__(self):
        self.hash = hashlib.blake2b()

    def write(self, data):
        self.hash.update(data)


class _Pickler(pickle.Pickler):
    """Identifies functions and classes that cannot be found by name by their contents."""

    def reducer_override(self, thing):
        if isinstance(thing, types.FunctionType):
            code, known = thing.__code__, thing.__globals__
            used = {name: known[name] for name in code.co_names if isinstance(known.get(name), PLAIN) and name in known}
            return str, (id(code), thing.__closure__, thing.__defaults__, thing.__kwdefaults__, thing.__dict__, used)
        if isinstance(thing, types.CellType):
            try:
                return str, (thing.cell_contents,)
            except ValueError:
                return str, ()
        if isinstance(thing, (type, types.ModuleType)) and thing is not str:
            return str, (id(thing),)
        return NotImplemented


def of(*things):
    """Returns bytes that differ if the things, or objects to which they refer, differ. None: unknown."""
    to = _Hash()
    try:
        _Pickler(to, pickle.HIGHEST_PROTOCOL).dump(things)
    except Exception:  # any exception of the user's __reduce__
        return None
    return to.hash.digest()
