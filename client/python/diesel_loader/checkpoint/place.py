# SPDX-License-Identifier: Apache-2.0
"""Where a job's checkpoints are: a folder, or a prefix in a bucket. Use either by `with`."""
from __future__ import annotations

import logging
import os
from typing import Any

from ..on_demand import dieselctl
from . import folder
from .bucket import SCHEME, Bucket, Downloaded, is_bucket

log = logging.getLogger("diesel_loader")


class Folder:
    program = None

    def __init__(self, path: str, is_made: bool) -> None:
        self.path = os.path.abspath(path)
        if is_made:
            try:
                os.makedirs(self.path, exist_ok=True)
            except FileExistsError:
                raise FileExistsError(f"{self.path} is a file: checkpoints need a folder, so pass another path") from None

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        pass

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

    def check(self, name: str, one: int = 0, of: int = 1) -> tuple[dict[str, Any] | None, str | None]:
        """As folder.checked(). In a bucket raises OSError if it does not answer."""
        return folder.checked(f"{self.path}/{name}", one, of)

    def path_of(self, file: str, path: str) -> str:
        """Returns the path of a file of the checkpoint that was checked last, or of its content in memory."""
        return os.path.join(path, file)

    def states(self, names: list[str]) -> dict[str, set[str]]:
        """Returns the names of the objects that each checkpoint has the state of."""
        return {name: folder.states_of(os.path.join(self.path, name)) for name in names}


class InBucket:
    def __init__(self, url: str) -> None:
        self.path, self.program = url.rstrip("/"), dieselctl()
        self._bucket = Bucket(self.path, self.program)
        self._checked: Downloaded | None = None

    def __enter__(self) -> InBucket:
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()
        self._bucket.close()

    def _forget(self):
        if self._checked is not None:
            self._checked.close()
            self._checked = None

    def clean(self) -> int:
        return self._bucket.clean()

    def names(self) -> list[str]:
        return list(self._bucket.checkpoints())

    def check(self, name: str, one: int = 0, of: int = 1) -> tuple[dict[str, Any] | None, str | None]:
        self._forget()
        files = self._checked = Downloaded(self._bucket, name)
        return folder.judged(lambda: files.verify(one, of))

    def path_of(self, file: str, path: str) -> str:
        assert self._checked is not None
        return self._checked.path(file)

    def states(self, names: list[str]) -> dict[str, set[str]]:
        return {name: self._bucket.states_of(name) for name in names}


def place(name: str | os.PathLike[str], is_made: bool = True) -> Folder | InBucket:
    """is_made: a folder that is missing."""
    text = os.fspath(name)
    if is_bucket(text):
        if not text[len(SCHEME):].partition("/")[0]:
            raise ValueError(f"checkpoints cannot go to {text!r}, which names no bucket: pass {SCHEME}BUCKET/PREFIX")
        return InBucket(text)
    if text.startswith("s3:/"):
        raise ValueError(f"checkpoints cannot go to {text!r}: pass {SCHEME}BUCKET/PREFIX as a text, because a Path makes one slash of two")
    if "://" in text:
        raise ValueError(f"checkpoints cannot go to {text!r}: pass a folder or {SCHEME}BUCKET/PREFIX")
    return Folder(text, is_made)
