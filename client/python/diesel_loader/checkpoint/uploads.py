# SPDX-License-Identifier: Apache-2.0
"""Writes checkpoints to a bucket, for the process that writes (persist.py)."""
from __future__ import annotations

import contextlib
import os
import re
import time
import zlib
from typing import TYPE_CHECKING, Any

from . import folder
from .bucket import METADATA, Bucket, Turn
from .processes import began, identity, is_alive

if TYPE_CHECKING:
    from .persist import Process


PAUSE_S = 0.5   # between two looks for the others' marks, each of which is a request
_OF_RANK = re.compile(r"(__\d+_0|\.rank-\d+)-[0-9a-f]{32}\.(distcp|json)")   # names of a rank's objects


class Uploads:
    def __init__(self, order: dict[str, Any], process: Process) -> None:
        self.url = order["folder"]
        self._process = process
        self._bucket = Bucket(self.url, order["program"], process.beat)
        self._turn: Turn | None = None   # the first rank's, for all; DCP's users name each checkpoint themselves
        self._old: list[str] = []   # names of checkpoints to remove
        self._upload_s = 0.0        # time of the last upload

    def take_turn(self, order: dict[str, Any]) -> str | None:
        """Waits until the job before has written its last checkpoint, as far as this machine can see it. Returns an error."""
        me = os.getpid()
        mine = {**identity(order["trainer"]), "saver": me, "saver_since": began(me), "token": os.urandom(16).hex()}
        turn = Turn(self._bucket, mine)
        url, end, told = self.url, time.monotonic() + order["wait_s"], False
        try:
            while True:
                holder = turn.holder()
                writes = is_alive(holder, "saver", "saver_since")
                if holder is None or not writes and all(holder.get(key) == mine[key] for key in ("host", "trainer", "since")):
                    break   # or an earlier process of this job, which was killed
                if is_alive(holder):
                    return f"{url} has another job's checkpoints (pid {holder['trainer']}): give this one a prefix of its own"
                if not writes:
                    if holder.get("host") != mine["host"]:
                        self._process.tell(do="taken", host=str(holder.get("host")))
                    break
                if time.monotonic() > end:
                    return f"{url} is still written by the job before after {order['wait_s']} s: end it, or use another prefix"
                if not told:
                    self._process.tell(do="waiting")
                    told = True
                time.sleep(0.1)
            turn.take()
        except OSError as error:
            return _text(error)
        self._turn = turn
        return None

    def _has_lost(self):
        """Returns an error if another job has taken the turn."""
        if self._turn is None or self._turn.is_mine():
            return None
        return f"another job has begun to write to {self.url}: give each job a prefix of its own"

    def write(self, order: dict[str, Any], memory_fd: int, sums: list[list[int]]) -> str | None:
        """Returns an error."""
        name = order["name"]
        if order.get("alone"):
            return _failure_of(lambda: self._bucket.put(name, memory_fd, order["bytes"], replace=True))
        if order["later"]:
            return self._write_part(order, memory_fd, sums)
        try:
            self._bucket.put(f"{name}/{order['file']}", memory_fd, order["bytes"])
            lost = self._has_lost()
            if lost:
                self._bucket.remove(name, [order["file"]])
                return lost
        except OSError as error:
            return _text(error)
        return self._finish(order, {order["file"]: sums})

    def delete(self, name: str) -> str | None:
        """Returns an error."""
        return _failure_of(lambda: self._bucket.delete(name))

    def _finish(self, order, files):
        """Writes the manifest, and removes what makes way."""
        name = order["name"]
        about = {**order["about"], "format": folder.FORMAT, "files": files}
        try:
            self._bucket.put_bytes(f"{name}/{folder.MANIFEST}", folder.manifest(about))
        except OSError as error:
            return _text(error)
        self._old += order["remove"]
        with contextlib.suppress(OSError):   # the next checkpoint tries again
            lost = self._has_lost()
            if lost:
                return lost   # this checkpoint may be damaged, so that the old ones are needed
            if order["later"]:   # marks, and what earlier attempts have left, but nothing of the user's
                for key in self._bucket.keys(name + "/"):
                    file = key.removeprefix(name + "/")
                    if _OF_RANK.fullmatch(file) and file not in files:
                        self._bucket.delete(key)
            while self._old:
                self._bucket.remove(self._old[0])
                self._old.pop(0)
        return None

    # A checkpoint of several ranks. The names of its objects have the attempt in them, because nothing keeps a rank of an earlier one
    # from going on.

    def _write_part(self, order, memory_fd, sums):
        begin, error, mark = time.monotonic(), None, {"name": order["file"], "sums": sums}
        try:
            self._bucket.put(f"{order['name']}/{order['file']}", memory_fd, order["bytes"])
        except OSError as failure:
            error = _text(failure)
            mark = {"error": error}
        self._upload_s = time.monotonic() - begin
        try:
            self._bucket.put_bytes(_mark(order, order["rank"]), folder.manifest(mark))
        except OSError as failure:
            error = error or _text(failure)
        return error

    def commit(self, order: dict[str, Any], metadata: bytes) -> str | None:
        """Ends the checkpoint when the files of all ranks are there. Returns an error."""
        name, there = order["name"], set()

        def progress():
            nonlocal there
            there = set(self._bucket.keys(name + "/"))
            return there

        def read_mark(rank):
            key = _mark(order, rank)
            return folder.unsealed(self._bucket.read_bytes(key, folder.MAX_MANIFEST) or b"") if key in there else None

        try:
            # Uploads are seen when they have ended, so the others get as long again as this rank's took.
            files, error = self._process.others(order, progress, read_mark, PAUSE_S, 2 * self._upload_s)
            if not error and f"{name}/{folder.MANIFEST}" in self._bucket.keys(f"{name}/{folder.MANIFEST}"):
                error = f"{self.url}/{name} exists, and a checkpoint in a bucket is not replaced: use another name, or remove it first"
            error = error or self._has_lost()
            if not error:
                self._bucket.put_bytes(f"{name}/{METADATA}", metadata, replace=True)
        except OSError as failure:
            error = _text(failure)
        if error:
            self._remove_attempt(order)
            return error
        return self._finish(order, {**files, METADATA: [[len(metadata), zlib.crc32(metadata)]]})

    def _remove_attempt(self, order):
        with contextlib.suppress(OSError):
            for key in self._bucket.keys(order["name"] + "/"):
                if order["attempt"] in key:
                    self._bucket.delete(key)

    def end(self) -> None:
        if self._turn is not None:
            with contextlib.suppress(OSError):
                self._turn.end()
        self._bucket.close()


def _mark(order, rank):
    return f"{order['name']}/.rank-{rank}-{order['attempt']}.json"


def _failure_of(request):
    try:
        request()
    except OSError as error:
        return _text(error)
    return None


def _text(error):
    return error.strerror or str(error)
