# SPDX-License-Identifier: Apache-2.0
"""Whether functions of the user's are as they were: PyTorch's workers are new for each epoch, ours stay, and dieseld has a recipe."""
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
    """Functions and classes that have no name to be found by are told by what they are made of."""

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
    """Bytes that differ where the things do, in what they refer to as well. None: it cannot be told."""
    to = _Hash()
    try:
        _Pickler(to, pickle.HIGHEST_PROTOCOL).dump(things)
    except Exception:  # whatever the user's __reduce__ raises
        return None
    return to.hash.digest()
