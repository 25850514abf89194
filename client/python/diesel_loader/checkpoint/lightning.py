# SPDX-License-Identifier: Apache-2.0
"""Lightning's door: Trainer(plugins=CheckpointIO())."""
from __future__ import annotations

import importlib
import os
import sys
import zipfile
from typing import Any

from ..on_demand import dieselctl
from . import listing
from .bucket import SCHEME, Bucket, is_bucket, split
from .files import Files


def _bases():
    """Returns Lightning's class, of each of its two packages that is in use: `lightning`, and `pytorch_lightning`."""
    names = ("lightning", "lightning_fabric")
    used = [name for name in names if name in sys.modules] or [name for name in names if importlib.util.find_spec(name)][:1]
    if not used:
        raise ImportError("diesel_loader.checkpoint.lightning needs Lightning: pip install lightning", name="lightning")
    modules = {"lightning": "lightning.fabric.plugins.io.torch_io", "lightning_fabric": "lightning_fabric.plugins.io.torch_io"}
    return tuple(importlib.import_module(modules[name]).TorchCheckpointIO for name in used)


listing.register()   # before the first ModelCheckpoint("s3://...")


def existing(path: str) -> str | None:
    """Returns the path if there is such a checkpoint, or else None, for ckpt_path=. Raises OSError if the bucket does not answer."""
    if not is_bucket(path):
        return path if os.path.exists(path) else None
    place, name = split(path)
    with Bucket(place, dieselctl()) as bucket:
        return path if name in bucket.keys(name) else None


class CheckpointIO(*_bases()):   # type: ignore[misc]
    """Writes Lightning's checkpoints by another process: trainer.save_checkpoint() and ModelCheckpoint return when the state is
    in shared memory.

    The files are those that Lightning writes, and get their names when they are on disk. A checkpoint that makes way for a
    newer one is removed when the newer one is on disk. A failure is one line in the log. Paths may be s3://BUCKET/NAME.
    """

    def __init__(self) -> None:
        super().__init__()
        self._files = Files()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        text = os.fspath(path)
        if storage_options is not None or ("://" in text or text.startswith("s3:/")) and not is_bucket(text):
            raise ValueError(f"{text}: diesel_loader's CheckpointIO writes to folders and {SCHEME}BUCKET/PREFIX only, which is a text and no Path, "
                             f"without storage_options: leave plugins= out for other places")
        self._files.save(checkpoint, path)

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        """Raises OSError if the checkpoint cannot be read from its bucket, or is damaged there."""
        self._files.wait()
        text = os.fspath(path)
        if not is_bucket(text):
            return super().load_checkpoint(path, *args, **kwargs)
        place, name = split(text)
        with Bucket(place, dieselctl()) as bucket, open(bucket.read(name, sys.maxsize), "rb") as file:
            _verify(file, text)
            return super().load_checkpoint(f"/proc/self/fd/{file.fileno()}", *args, **kwargs)

    def remove_checkpoint(self, path: Any) -> None:
        if is_bucket(os.fspath(path)):
            self._files.delete_after_save(os.fspath(path))
            return
        remove = super().remove_checkpoint
        self._files.after_save(lambda: remove(path))

    def teardown(self) -> None:
        self._files.close()
        super().teardown()


def _verify(file, path):
    """Compares the records of torch.save() with their checksums, which torch.load() does not."""
    file.seek(0)
    if file.read(2) != b"PK":
        return   # of before PyTorch 1.6, or nothing that torch.load() takes
    try:
        with zipfile.ZipFile(file) as archive:
            wrong = archive.testzip()
    except zipfile.BadZipFile as error:
        wrong = str(error)
    if wrong:
        raise OSError(f"checkpoint {path} is damaged ({wrong}): resume from an older one")
