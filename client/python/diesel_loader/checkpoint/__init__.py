# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that cost little: the state is copied to shared memory between two steps, and another process writes it.

    from diesel_loader.checkpoint import Checkpointer
    checkpointer = Checkpointer("checkpoints", model=model, optimizer=optimizer, loader=loader)
    restored = checkpointer.restore()
    for images, labels in loader:
        ...
        optimizer.step()
        checkpointer.step()
    checkpointer.close()

The interval is chosen so that all checkpoints together cost at most a bound, 3.5 % by default. The design is CheckFreq's
(FAST 2021).
"""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .checkpointer import Checkpointer, Restored
    from .distributed import Reader, Writer
    from .folder import newest

__all__ = ["Checkpointer", "Reader", "Restored", "Writer", "newest"]

_PLACES = {"Checkpointer": "checkpointer", "Restored": "checkpointer", "Reader": "distributed", "Writer": "distributed", "newest": "folder"}


def __getattr__(name: str) -> object:
    """Imports names at their first use: the process that writes needs none of them, and no torch."""
    if name in _PLACES:
        import importlib
        return getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
