# SPDX-License-Identifier: Apache-2.0
"""A file system of fsspec for s3://, by which Lightning looks into a bucket where s3fs is not installed."""
from __future__ import annotations

import importlib.util
import logging
import sys
from typing import Any

import fsspec

from ..on_demand import dieselctl
from .bucket import SCHEME, Bucket, split

log = logging.getLogger("diesel_loader")


class Listing(fsspec.AbstractFileSystem):
    """Lists and reads objects by `dieselctl objects`. Raises OSError if the bucket does not answer."""

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


def register() -> None:
    """Has fsspec use Listing for s3://, unless s3fs is installed or another file system is in use."""
    if importlib.util.find_spec("s3fs") is None and "s3" not in fsspec.registry:
        fsspec.register_implementation("s3", Listing)


def _entry(path, n_bytes):
    return {"name": path, "type": "directory" if n_bytes is None else "file", "size": n_bytes or 0}
