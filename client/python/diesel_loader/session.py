# SPDX-License-Identifier: Apache-2.0
"""Batches of one session as leases on shared memory."""
from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import time
import weakref
from collections.abc import Callable

from . import errors, native
from .native import byref, lib

MAX_REVIVED = 5   # maximum number of consecutive daemons that end before they have a batch ready
REVIVE_MS = 1000
NO_EPOCH = 2 ** 64 - 1
log = logging.getLogger("diesel_loader")
_open: weakref.WeakSet[Session] = weakref.WeakSet()
_watched: dict[int, tuple[ctypes.c_uint64, Callable[[], None] | None]] = {}
os.register_at_fork(after_in_child=_watched.clear)  # a child's glance would take the answers that the parent waits for


def forget_inherited():
    """Called in a forked child: closes its copies of the parent's sessions."""
    for session in list(_open):
        session.forget()


def report_checkpoints(figures):
    """Reports a Checkpointer's figures to the daemons of all of this process's sessions, with each session's next batch. For any thread.
    figures: fields of native.Checkpoints."""
    checkpoints = native.Checkpoints(**figures)
    for session in list(_open):
        session.report_checkpoints(checkpoints)


def watch(watcher, word, glance=None):
    """word: a c_uint64 that becomes 1 while a thread waits for a batch. None: it is watched no more. glance(): is called before each
    batch, by whatever thread wants it."""
    if word is None:
        _watched.pop(watcher, None)
    else:
        _watched[watcher] = word, glance


@contextlib.contextmanager
def _waiting():
    words = [word for word, _ in list(_watched.values())]
    for word in words:
        word.value = 1
    try:
        yield
    finally:
        for word in words:
            word.value = 0


class Lease:
    """The right to read one batch in shared memory, released when nothing refers to it any more."""

    __slots__ = ("batch", "_address", "__weakref__")

    def __init__(self, batch):
        self.batch, self._address = batch, batch.lease
        native.when_gone(self, lib.diesel_batch_release, batch.lease)

    places = None  # None: all samples lie in one batch buffer

    @property
    def batch_buffer(self):
        """Number of the batch buffer that holds the batch."""
        return lib.diesel_batch_buffer(self._address)

    @property
    def life(self):
        """Number of the daemon's life that the batch is from."""
        return lib.diesel_batch_life(self._address)

    def segments(self):
        """Numbers of the chunk segments that the samples lie in."""
        if self.batch.packed and not (self.batch.n_items and self.batch.items[0].data):  # without views
            return []
        numbers = (native.c_uint32 * self.batch.n_items)()
        return numbers[:lib.diesel_batch_segments(byref(self.batch), numbers)]


class Session:
    """libdiesel's session; iterate with next_batch(). Not for use across a fork."""

    def __init__(self, dataset, **options):
        self.dataset = dataset
        self._handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(native.ERROR_BYTES)
        self._pid = os.getpid()
        options["subset"] = None if dataset.subset is None else dataset.subset.handle
        self._lost = False    # True: as far as is known, the daemon is gone
        self._n_revived = 0   # daemons started again since the last batch
        self._checkpoints = self._told = None  # the newest figures, and those that the daemon has been told
        self._patience_s = options.get("reconnect_ms", 0) / 1000
        for _ in range(MAX_REVIVED):
            handle = dataset.handle
            if dataset.has_own_daemon:  # the loop starts this daemon between short waits
                options["reconnect_ms"] = min(options.get("reconnect_ms", 0), REVIVE_MS)
            result = -errno.EINTR
            while result == -errno.EINTR:  # interrupted by a signal; its Python handler has run
                result = lib.diesel_session_open(handle, byref(native.SessionOptions(**options)), byref(self._handle), text,
                                                 len(text))
            if result not in (-errno.ECONNREFUSED, -errno.ECONNRESET) or not dataset.has_own_daemon:
                break
            dataset.reopen()
        if result < 0:
            self._pid = None
            raise errors.from_result(result, os.fsdecode(text.value), dataset.path)
        self.window_chunks = lib.diesel_session_window_chunks(self._handle)
        self.max_held = lib.diesel_session_max_held(self._handle)
        _open.add(self)

    def seek(self, epoch, batch):
        result = lib.diesel_session_seek(self._handle, epoch, batch)
        self._heed_notice()
        if result < 0:
            raise errors.from_result(result, self._error(), self.dataset.path)

    def next_batch(self):
        """Returns the next batch as a Lease, or None at the end of the epoch. If an error has is_of_batch, the next call goes on with the
        batch after the one that failed."""
        if not _watched:
            self._tell_checkpoints()
            return self._next_batch()
        for _, glance in list(_watched.values()):
            if glance:
                glance()
        self._tell_checkpoints()
        if self.n_ready:
            return self._next_batch()
        with _waiting():
            return self._next_batch()

    def _next_batch(self):
        batch, end = native.Batch(epoch=NO_EPOCH), None  # time at which to give up on the user's own daemon
        while True:
            if self._lost:
                self._revive()
            result = lib.diesel_session_next(self._handle, byref(batch))
            self._heed_notice()
            if result == -errno.ETIMEDOUT and self.dataset.has_own_daemon and batch.epoch == NO_EPOCH:
                end = end or time.monotonic() + self._patience_s
                self._lost = True
                if time.monotonic() > end:
                    break
            elif result != -errno.EINTR:  # after a signal, whose Python handler runs now, or a notice, the wait continues
                break
        if result < 0:
            self._lost = True
            raise self._failed(result, batch)
        self._n_revived = 0
        return Lease(batch) if result == 0 else None

    def _failed(self, result, batch):
        """Returns the exception for a batch. In a variable of the frame that raises it, it would form a cycle with that frame, which keeps the
        dataset open until garbage collection."""
        error = errors.from_result(result, self._error(), self.dataset.path)
        error.is_of_batch = batch.epoch != NO_EPOCH
        return error

    def _heed_notice(self):
        """Logs a notice that the daemon went away, or is back."""
        notice = lib.diesel_session_notice(self._handle)
        if notice:
            self._lost = True
            log.warning("%s", os.fsdecode(notice))

    def _revive(self):
        """Starts the daemon again if it is the user's own, because nobody else does. libdiesel waits for any other daemon."""
        if self._n_revived == MAX_REVIVED:
            self._n_revived = 0
            raise OSError(errno.ECONNREFUSED, f"dieseld at {self.dataset.socket} ended {MAX_REVIVED} times before the next batch was "
                                  "ready: see its log, dieseld.log next to the socket")
        self._n_revived += self.dataset.revive()
        self._lost = False

    @property
    def handle(self):
        """Handle for other calls of libdiesel."""
        return self._handle

    @property
    def n_held(self):
        """Number of batches that the caller holds."""
        return lib.diesel_session_n_held(self._handle)

    @property
    def crowded(self):
        """True if the caller holds so many batches that the daemon cannot work ahead."""
        return self.n_held >= self.max_held - 1

    must_copy = crowded  # the caller must copy a batch instead of keeping it

    @property
    def n_ready(self):
        """Number of batches that next_batch() would return without a wait."""
        return lib.diesel_session_ready(self._handle)

    @property
    def n_batches(self):
        """Number of batches of an epoch."""
        return lib.diesel_session_n_batches(self._handle)

    @property
    def wanted_workers(self):
        """Number of worker processes that the daemon requests; None: it requests no number."""
        wanted = lib.diesel_session_wanted_workers(self._handle)
        return None if wanted == native.NO_WISH else wanted

    def report(self, work):
        """Reports the cost of Python work to the daemon. work: a native.Work of totals."""
        lib.diesel_session_report(self._handle, byref(work))

    def report_checkpoints(self, checkpoints):
        self._checkpoints = checkpoints  # libdiesel's session is for one thread at a time, which may close it now

    def _tell_checkpoints(self):
        checkpoints = self._checkpoints
        if checkpoints is not self._told:
            lib.diesel_session_report_checkpoints(self._handle, byref(checkpoints))
            self._told = checkpoints

    def memory(self):
        """Returns (native.Memory, descriptor) of the batches' memory. Raises ConnectionError while the daemon is lost."""
        memory, fd = native.Memory(), ctypes.c_int()
        result = lib.diesel_session_memory(self._handle, byref(memory), byref(fd))
        if result < 0:
            raise ConnectionError(-result, os.strerror(-result))
        return memory, fd.value

    def segment(self, segment):
        """Returns (a new descriptor of a chunk segment, its size in bytes)."""
        fd, size = ctypes.c_int(), native.c_uint64()
        result = lib.diesel_session_segment(self._handle, segment, byref(fd), byref(size))
        if result < 0:
            raise errors.from_result(result, self._error(), self.dataset.path)
        return fd.value, size.value

    def forget(self):
        if self._pid is not None and self._pid != os.getpid():
            lib.diesel_session_forget(self._handle)

    def _error(self):
        return os.fsdecode(lib.diesel_session_error(self._handle) or b"unknown failure")

    def close(self):
        ours, self._pid = self._pid == os.getpid(), None  # first, so that Ctrl-C cannot cause a second close
        if ours:
            lib.diesel_session_close(self._handle)

    __del__ = close
