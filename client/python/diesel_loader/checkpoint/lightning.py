# SPDX-License-Identifier: Apache-2.0
"""Lightning's door: Trainer(plugins=CheckpointIO())."""
from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import zipfile
from typing import Any

from ..on_demand import dieselctl
from .bucket import SCHEME, Bucket, is_bucket, split
from .files import Files

log = logging.getLogger("diesel_loader")


def _bases():
    """Returns Lightning's class, of each of its two packages that is in use: `lightning`, and `pytorch_lightning`."""
    names = ("lightning", "lightning_fabric")
    used = [name for name in names if name in sys.modules] or [name for name in names if importlib.util.find_spec(name)][:1]
    if not used:
        raise ImportError("diesel_loader.checkpoint.lightning needs Lightning: pip install lightning", name="lightning")
    modules = {"lightning": "lightning.fabric.plugins.io.torch_io", "lightning_fabric": "lightning_fabric.plugins.io.torch_io"}
    return tuple(importlib.import_module(modules[name]).TorchCheckpointIO for name in used)


_BASES = _bases()

import fsspec  # noqa: E402  of Lightning, whose absence has its own error


class _Listing(fsspec.AbstractFileSystem):
    """A file system by which Lightning looks into a bucket, as far as it needs one, by `dieselctl objects`. Raises OSError if the bucket does not answer."""

    protocol = "s3"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if options:
            raise ValueError(f"diesel_loader's file system for {SCHEME} has no options {', '.join(sorted(options))}: pip install s3fs")

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if "/" not in path:
            return _entry(path, None)
        place, name = split(SCHEME + path)
        with Bucket(place, dieselctl()) as bucket:
            sizes = bucket.sizes(name)
        if name not in sizes and not any(key.startswith(name + "/") for key in sizes):
            raise FileNotFoundError(f"{SCHEME}{path} does not exist")
        return _entry(path, sizes.get(name))

    def exists(self, path: str, **_: Any) -> bool:
        """Returns False, with a line in the log, if the bucket does not answer: Lightning asks in the middle of the training."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            log.warning("%s cannot be looked for: %s", path, error.strerror or error)
            return False
        return True

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        with Bucket(SCHEME + path, dieselctl()) as bucket:
            sizes = bucket.sizes()
        found = [_entry(f"{path}/{name}", sizes.get(name)) for name in sorted({key.partition("/")[0] for key in sizes})] or [self.info(path)]
        return found if detail else [entry["name"] for entry in found]

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        pass   # a bucket has no folders

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        """Returns the object in memory."""
        if mode != "rb":
            raise OSError(f"{SCHEME}{path}: diesel_loader's file system for {SCHEME} does not write: pip install s3fs")
        place, name = split(SCHEME + path)
        with Bucket(place, dieselctl()) as bucket:
            file = open(bucket.read(name, sys.maxsize), "rb")   # noqa: SIM115
        file.seek(0)
        return file


if importlib.util.find_spec("s3fs") is None and "s3" not in fsspec.registry:
    fsspec.register_implementation("s3", _Listing)   # before the first ModelCheckpoint("s3://...")


def existing(path: str) -> str | None:
    """Returns the path if there is such a checkpoint, or else None, for ckpt_path=. Raises OSError if the bucket does not answer."""
    if not is_bucket(path):
        return path if os.path.exists(path) else None
    place, name = split(path)
    with Bucket(place, dieselctl()) as bucket:
        return path if name in bucket.keys(name) else None


class CheckpointIO(*_BASES):   # type: ignore[misc]
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


def _entry(path, n_bytes):
    return {"name": path, "type": "directory" if n_bytes is None else "file", "size": n_bytes or 0}
