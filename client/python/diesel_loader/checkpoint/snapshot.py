# SPDX-License-Identifier: Apache-2.0
"""Snapshots of one process: takes them into shared memory, and has them written, one after the other."""
from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from . import memory, persister
from .persist import RECORD
from .persister import Ended, Persister

RESERVE = 16   # memory in reserve, for a state that grows a little
SPREAD = 0.5   # of the time since the save before, over which a checkpoint is written


def is_here(storage: Any) -> bool:
    return bool(storage.device.type == "cpu")


class Image:
    """A file laid out in memory. records: as of image.Archive. parts: (offset, storage of torch) still to be copied."""

    def __init__(self, size: int, records: list, parts: list) -> None:
        self.size, self.records, self.parts = size, records, parts


class Saver:
    """One snapshot at a time: the next one waits for the process to have written the one before, so that one buffer is
    enough.

    n_begun, n_failed, snapshot_s, written_s, newest_s: of the job's checkpoints. newest_s: when the snapshot of the newest one on
    disk was taken."""

    def __init__(self, lock_folder: str | None = None, program: str | None = None, poll: Callable[[float], None] | None = None) -> None:
        """poll: takes replies() and heeds them, for an owner that is not called at each step. The loader calls it, if this lock is free."""
        self.lock = threading.RLock()
        self._lock_folder, self._program, self._owners_poll = lock_folder, program, poll
        self._memory: memory.Memory | None = None
        self._is_new = True
        self._process: Persister | None = None
        self._open = 0        # orders without an answer
        self._device: Any = None
        self._pending: dict[str, Any] | None = None   # an order whose copy from a GPU goes on
        self._populating: threading.Thread | None = None
        self._heard = (0, 0.0)   # the last beat of the process, and when it was first seen
        self.n_begun = self.n_failed = 0
        self.snapshot_s = self.written_s = self.newest_s = 0.0
        self._began_s = 0.0      # when the last snapshot was
        self._storage = 0        # where it goes

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_writing(self) -> bool:
        return self._open > 0 or self._pending is not None

    @property
    def is_idle(self) -> bool:
        return not self.is_writing

    @property
    def is_preparing(self) -> bool:
        return self._populating is not None and self._populating.is_alive()

    def start(self) -> None:
        """Starts the process if there is none. Raises OSError if it cannot be, or if the folder has another job's lock."""
        if self._process is None:
            process = Persister()
            try:
                if self._lock_folder:
                    process.lock(self._lock_folder, self._program)
            except Ended as error:
                raise OSError(f"the process that writes checkpoints {error} as it began") from None
            except BaseException:
                process.close()
                raise
            self._process = process

    def prepare(self, size: int) -> None:
        """Gets memory for a snapshot of that size, before one is needed."""
        thread = threading.Thread(target=self._have_memory(size).populate, daemon=True)
        with contextlib.suppress(RuntimeError):   # no thread can be started: the first copy takes the pages
            thread.start()
            self._populating = thread

    def _have_memory(self, size):
        if self._memory is not None and self._memory.size >= size:
            return self._memory
        old, self._memory = self._memory, None
        if old is not None:
            self._forget(old)
            self._have_forgotten()
        self._memory, self._is_new = memory.Memory(size + size // RESERVE), True
        return self._memory

    def _forget(self, old):
        if self._populating is not None:
            self._populating.join()
        if self._device is not None:
            self._device.release()
            self._device = None
        old.close()

    def _have_forgotten(self):
        """Returns when the process has no more of the old memory, so that both never exist at once."""
        if self._process is not None:
            with contextlib.suppress(Ended):   # send() says so
                self._process.send({"do": "forget"})
                self._process.replies(persister.SILENT_S)

    def take(self, bound: int, fill, optimized: set[int] | frozenset[int] = frozenset()) -> Image:
        """Copies a state to memory. bound: the largest size of the file and its records. fill(view): returns the Image.
        optimized: addresses of storages that only the optimizer changes. Returns when everything is copied but for those of
        a GPU, which the next step of the optimizer waits for."""
        begin, self.written_s = time.monotonic(), 0.0
        self.n_begun += 1
        shared = self._have_memory(bound)
        if self._populating is not None:
            self._populating.join()
            self._populating = None
        image = fill(shared.view)
        table = -(-image.size // 8) * 8
        for i, record in enumerate(image.records):
            RECORD.pack_into(shared.view, table + i * RECORD.size, *record)
        here: list[Any] = []
        there: list[Any] = []
        for offset, storage in image.parts:
            n = storage.nbytes()
            if n:
                (here if is_here(storage) else there).append((offset, storage, n))
        if there:
            from . import cuda   # only here, because most jobs on CPUs never need it
            if self._device is None:
                self._device = cuda.Device(shared)
            self._device.copy(there, optimized)
        memory.copy(shared, [(offset, storage.data_ptr(), n) for offset, storage, n in here])
        self.snapshot_s, self._began_s = time.monotonic() - begin, begin
        return image

    def spread_s(self) -> float:
        """Returns how long writing may take where a framework decides when it saves."""
        return SPREAD * (time.monotonic() - self._began_s) if self._began_s else 0.0

    def send(self, order: dict[str, Any], image: Image) -> None:
        """Has the snapshot written, when it is complete. For an owner that is not called at each step, waits for that. Raises Ended or
        OSError."""
        self.start()
        self._storage = 0
        with contextlib.suppress(OSError):   # a bucket
            self._storage = os.stat(order["folder"]).st_dev
        self._pending = {**order, "do": "write", "bytes": image.size, "records": len(image.records)}
        self._send_pending(wait=self._owners_poll is not None)   # nobody might come again before the next save

    def _send_pending(self, wait):
        if self._device is not None and not self._device.is_done(wait):
            return   # replies() tries again
        order, self._pending = self._pending, None
        assert self._process is not None and self._memory is not None
        try:
            self._process.send_write(order, self._memory.fd, self._is_new)
        except Ended:
            self._lose()
            raise
        self._is_new = False
        self._open += 1
        self._heard = (self._memory.beat(), time.monotonic())

    def silence_s(self) -> float:
        """Returns for how long the process has got no further with what it was given."""
        if not self._open or self._memory is None:
            return 0.0
        beat = self._memory.beat()
        if beat != self._heard[0]:
            self._heard = (beat, time.monotonic())
        return time.monotonic() - self._heard[1]

    @property
    def is_silent(self) -> bool:
        return self.silence_s() > persister.SILENT_S

    def updated(self) -> None:
        """The optimizer has made its next step. Raises OSError if that spoilt the snapshot."""
        if self._pending is not None and self._device.is_torn():
            self._pending = None
            raise OSError("the optimizer did not wait for the copy from the GPU, as in a CUDA graph, so that the snapshot is dropped. From "
                          "now on the GPU waits for copies")

    def send_commit(self, order: dict[str, Any], metadata: bytes) -> None:
        if self._pending is not None:
            self._send_pending(wait=True)
        small = memory.Memory(max(len(metadata), 1))
        small.view[:len(metadata)] = metadata
        try:
            self._send({**order, "do": "commit", "bytes": len(metadata)}, (small.fd,))
        finally:
            small.close()

    def send_delete(self, order: dict[str, Any]) -> None:
        """Has an object deleted. Raises Ended or OSError."""
        self.start()
        self._send({**order, "do": "delete"})

    def _send(self, order, fds=()):
        assert self._process is not None
        try:
            self._process.send(order, fds)
        except Ended:
            self._lose()
            raise
        self._open += 1
        self._heard = (self._heard[0], time.monotonic())

    def replies(self, timeout_s: float | None = 0.0) -> list[dict[str, Any]]:
        """Returns the answers that have come, after at most so long. None: when one has come, or the process is silent. Raises
        Ended if the process has ended: then another one is started for the next snapshot."""
        if self._pending is not None:
            self._send_pending(wait=timeout_s != 0)
        if timeout_s is None:
            self.hurry()
        if self._process is None or not self._open:
            return []
        try:
            found = self._process.replies(timeout_s or 0.0)
            while not found and timeout_s is None and not self.is_silent:
                found = self._process.replies(persister.PATIENCE_S)
        except Ended:
            self._lose()
            raise
        found = [reply for reply in found if reply["do"] != "forget"]   # of a process that was stopped meanwhile
        self._open -= len(found)
        for reply in found:
            self.written_s += reply["seconds"]
        return found

    def wait(self, poll: Callable[[float | None], None]) -> None:
        """Has everything written as fast as possible. poll: takes replies() and heeds them. Returns when everything is written, or
        the process is silent."""
        self.hurry()
        poll(0.0)
        while self.is_writing and not self.is_silent:
            poll(None)

    def silence(self) -> str:
        return f"the process that writes (pid {self.pid}) has got no further for {persister.SILENT_S} s: it is stopped or its storage does not answer"

    @property
    def cure(self) -> str:
        return f"To start another one: kill -KILL {self.pid}"

    def tell(self, newest: bool = False, **figures: int) -> None:
        """Tells dieseld how checkpoints are, if it serves this process: for those who look at the job from outside, and so that it
        pauses its prefetch. newest: the last one is on disk. figures: fields of native.Checkpoints that only a Checkpointer
        knows."""
        if newest:
            self.newest_s = self._began_s
        session = self._watch(self.is_writing)
        if session is None:
            return
        seconds = {"snapshot_ns": self.snapshot_s, "written_ns": 0.0 if self.is_writing else self.written_s, "newest_ns": self.newest_s}
        session.report_checkpoints({"n_begun": self.n_begun, "n_failed": self.n_failed, "writing": self.is_writing, "storage": self._storage,
                                    **{name: int(1e9 * value) for name, value in seconds.items()}, **figures})

    def hurry(self) -> None:
        """Somebody waits: the process is to write as fast as it can."""
        if self._process is not None and self._open:
            self._process.hurry()

    def _watch(self, is_writing):
        """Returns the loader's module, if it is in use."""
        session = sys.modules.get(f"{__package__.rpartition('.')[0]}.session")
        if session is not None:
            session.watch(id(self), self._memory.waits() if is_writing and self._memory is not None else None, self._owners_poll and self._glance)
        return session

    def _glance(self):
        if self.lock.acquire(blocking=False):
            try:
                self._owners_poll(0.0)
            finally:
                self.lock.release()

    def _lose(self):
        self._process, self._open, self._is_new, self._pending = None, 0, True, None

    def close(self) -> None:
        """Returns when everything is written."""
        if self._pending is not None:
            with contextlib.suppress(Ended):
                self._send_pending(wait=True)
        process, self._process = self._process, None
        if process is not None:
            process.close(lambda: 0 if self._memory is None else self._memory.beat(), self.is_silent)
        self._open = 0   # of a process that was left alone
        self._watch(False)
        if self._memory is not None:
            self._forget(self._memory)
            self._memory = None

    def forget(self) -> None:
        """In a forked process: the trainer's snapshots are not ours."""
        self._watch(False)
        if self._process is not None:
            self._process.forget()
        self._process = self._memory = self._device = self._populating = None
        self._open = 0


