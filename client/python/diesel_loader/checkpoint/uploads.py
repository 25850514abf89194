# SPDX-License-Identifier: Apache-2.0
"""Writes checkpoints to a bucket, for the process that writes (persist.py)."""
from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from . import folder
from .bucket import Bucket, Turn
from .processes import began, identity, is_alive

if TYPE_CHECKING:
    from .persist import Process


class Uploads:
    def __init__(self, order: dict[str, Any], process: Process) -> None:
        self._process, self._order = process, order
        self._bucket = Bucket(order["folder"], order["program"], process.beat)
        me = os.getpid()
        self._mine = {**identity(order["trainer"]), "saver": me, "saver_since": began(me), "token": os.urandom(16).hex()}
        self._turn = Turn(self._bucket, self._mine)
        self._old: list[str] = []   # names of checkpoints to remove: failed ones, and those that make way

    def take_turn(self) -> str | None:
        """Waits until the job before has written its last checkpoint, as far as this machine can see it. Returns an error."""
        url, end, told = self._bucket.url, time.monotonic() + self._order["wait_s"], False
        try:
            while True:
                holder = self._turn.holder()
                writes = is_alive(holder, "saver", "saver_since")
                if holder is None or not writes and all(holder.get(key) == self._mine[key] for key in ("host", "trainer", "since")):
                    break   # or an earlier process of this job, which was killed
                if is_alive(holder):
                    return f"{url} has another job's checkpoints (pid {holder['trainer']}): give this one a prefix of its own"
                if not writes:
                    if holder.get("host") != self._mine["host"]:
                        self._process.tell(do="taken", host=str(holder.get("host")))
                    break
                if time.monotonic() > end:
                    return f"{url} is still written by the job before after {self._order['wait_s']} s: end it, or use another prefix"
                if not told:
                    self._process.tell(do="waiting")
                    told = True
                time.sleep(0.1)
            self._turn.take()
        except OSError as error:
            return _text(error)
        return None

    def write(self, order: dict[str, Any], memory_fd: int, sums: list[list[int]]) -> str | None:
        """Returns an error."""
        name = order["name"]
        lost = f"another job has begun to write to {self._bucket.url}: give each job a prefix of its own"
        try:
            self._bucket.put(f"{name}/{order['file']}", memory_fd, order["bytes"])
            if not self._turn.is_mine():
                self._bucket.remove(name, [order["file"]])
                return lost
            about = {**order["about"], "format": folder.FORMAT, "files": {order["file"]: sums}}
            self._bucket.put_bytes(f"{name}/{folder.MANIFEST}", folder.manifest(about))
        except OSError as error:
            self._old.append(name)
            return _text(error)
        self._old += order["remove"]
        with contextlib.suppress(OSError):   # the next checkpoint tries again
            if not self._turn.is_mine():
                return lost   # this checkpoint may be damaged, so that the old ones are needed
            while self._old:
                self._bucket.remove(self._old[0])
                self._old.pop(0)
        return None

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._turn.end()
        self._bucket.close()


def _text(error):
    return error.strerror or str(error)
