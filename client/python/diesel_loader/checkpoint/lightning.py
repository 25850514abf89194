# SPDX-License-Identifier: Apache-2.0
"""Lightning's door: Trainer(plugins=CheckpointIO())."""
from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from .files import Files


def _bases():
    """Returns Lightning's class, of each of its two packages that is in use: `lightning`, and `pytorch_lightning`."""
    names = ("lightning", "lightning_fabric")
    used = [name for name in names if name in sys.modules] or [name for name in names if importlib.util.find_spec(name)][:1]
    if not used:
        raise ImportError("diesel_loader.checkpoint.lightning needs Lightning: pip install lightning", name="lightning")
    modules = {"lightning": "lightning.fabric.plugins.io.torch_io", "lightning_fabric": "lightning_fabric.plugins.io.torch_io"}
    return tuple(importlib.import_module(modules[name]).TorchCheckpointIO for name in used)


class CheckpointIO(*_bases()):   # type: ignore[misc]
    """Writes Lightning's checkpoints by another process: trainer.save_checkpoint() and ModelCheckpoint return when the state is
    in shared memory.

    The files are those that Lightning writes, and get their names when they are on disk. A checkpoint that makes way for a
    newer one is removed when the newer one is on disk. A failure is one line in the log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._files = Files()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        if storage_options is not None or "://" in os.fspath(path):
            raise ValueError(f"{os.fspath(path)}: diesel_loader's CheckpointIO writes to file systems only, without storage_options: "
                             f"leave plugins= out for other places")
        self._files.save(checkpoint, path)

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        self._files.wait()
        return super().load_checkpoint(path, *args, **kwargs)

    def remove_checkpoint(self, path: Any) -> None:
        remove = super().remove_checkpoint
        self._files.after_save(lambda: remove(path))

    def teardown(self) -> None:
        self._files.close()
        super().teardown()
