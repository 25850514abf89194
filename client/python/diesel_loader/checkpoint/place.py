# SPDX-License-Identifier: Apache-2.0
"""Where a job's checkpoints are: a folder, or a prefix in a bucket."""
from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

from ..on_demand import dieselctl
from . import folder, ranks
from .bucket import SCHEME, Bucket, is_bucket

log = logging.getLogger("diesel_loader")


class Folder:
    program = None

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        os.makedirs(self.path, exist_ok=True)

    def clean(self) -> int:
        """Removes what killed jobs left half-written. Returns the newest number in use."""
        for part in folder.parts(self.path):
            if part.endswith(".part"):
                log.warning("checkpoint %s is half-written: removed", os.path.join(self.path, part[1:].split(".")[0]))
            folder.remove(self.path, part)
        return max((number for number, _ in folder.numbered(self.path)), default=0)

    def names(self) -> list[str]:
        """Returns the names of the checkpoints, the oldest first."""
        return [name for _, name in folder.numbered(self.path)]

    def whole(self, damaged: list[str] | None = None) -> Iterator[tuple[str, dict[str, Any], Any]]:
        """Yields (path, manifest, the state's path or file) of the whole ones, the newest first. damaged: gets the names of those that
        are."""
        for path, about in ranks.agreed_whole(self.path, damaged):
            yield path, about, os.path.join(path, next(iter(about["files"])))

    def states(self, names: list[str]) -> dict[str, set[str]]:
        """Returns the names of the objects that each checkpoint has the state of."""
        return {name: folder.states_of(os.path.join(self.path, name)) for name in names}


class InBucket:
    def __init__(self, url: str) -> None:
        if ranks.size() > 1:
            raise ValueError(f"{url}: checkpoints of several ranks cannot go to a bucket yet: pass a folder that all ranks share")
        self.path, self.program = url.rstrip("/"), dieselctl()

    def _bucket(self):
        return Bucket(self.path, self.program)

    def clean(self) -> int:
        with self._bucket() as bucket:
            return int(bucket.clean())

    def names(self) -> list[str]:
        with self._bucket() as bucket:
            return list(bucket.checkpoints())

    def whole(self, damaged: list[str] | None = None) -> Iterator[tuple[str, dict[str, Any], Any]]:
        with self._bucket() as bucket:
            for name, about, files in bucket.whole(damaged):
                with open(os.dup(next(iter(files.values()))), "rb") as file:
                    file.seek(0)
                    yield f"{self.path}/{name}", about, file

    def states(self, names: list[str]) -> dict[str, set[str]]:
        with self._bucket() as bucket:
            return {name: bucket.states_of(name) for name in names}


def place(name: str | os.PathLike[str]) -> Folder | InBucket:
    text = os.fspath(name)
    if is_bucket(text):
        return InBucket(text)
    if text.startswith("s3:/"):
        raise ValueError(f"checkpoints cannot go to {text!r}: pass {SCHEME}BUCKET/PREFIX as a text, because a Path makes one slash of two")
    if "://" in text:
        raise ValueError(f"checkpoints cannot go to {text!r}: pass a folder or {SCHEME}BUCKET/PREFIX")
    return Folder(text)


def newest_in_bucket(url: str) -> str | None:
    return next((path for path, *_ in place(url).whole()), None)
