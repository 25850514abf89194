# SPDX-License-Identifier: Apache-2.0
"""Batches of one session as leases on shared memory."""
from __future__ import annotations

import ctypes
import errno
import logging
import os
import time
import weakref

from . import errors, native
from .native import byref, lib

MAX_REVIVED = 5   # daemons that end before they have a batch ready
REVIVE_MS = 1000
log = logging.getLogger("diesel_loader")
_open: weakref.WeakSet[Session] = weakref.WeakSet()


def forget_inherited():
    """In a child that was forked: lets go of the sessions that are the parent's."""
    for session in list(_open):
        session.forget()


class Lease:
    """The right to read one batch in shared memory; given back when nobody refers to it any more."""

    __slots__ = ("batch", "_address", "__weakref__")

    def __init__(self, batch):
        self.batch, self._address = batch, batch.lease
        native.when_gone(self, lib.diesel_batch_release, batch.lease)

    places = None  # the batch is one batch buffer

    @property
    def batch_buffer(self):
        """The number of the place in the session's memory where the batch lies."""
        return lib.diesel_batch_buffer(self._address)

    @property
    def life(self):
        """The life of the daemon that the batch is from."""
        return lib.diesel_batch_life(self._address)

    def segments(self):
        """Numbers of the chunk segments that the samples lie in."""
        if self.batch.item_bytes:
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
        self._lost = False    # the daemon, as far as we know
        self._n_revived = 0   # since the last batch
        self._patience_s = options.get("reconnect_ms", 0) / 1000
        for _ in range(MAX_REVIVED):
            handle = dataset.handle
            if dataset.has_own_daemon:  # libdiesel waits a little at a time: in between we start it
                options["reconnect_ms"] = min(options.get("reconnect_ms", 0), REVIVE_MS)
            result = -errno.EINTR
            while result == -errno.EINTR:  # a signal, whose Python handler has run by then
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
        """The next batch as a Lease, or None at the end of the epoch."""
        batch, end = native.Batch(), None  # when our patience with the user's own daemon is
        while True:
            if self._lost:
                self._revive()
            result = lib.diesel_session_next(self._handle, byref(batch))
            self._heed_notice()
            if result == -errno.ETIMEDOUT and self.dataset.has_own_daemon:
                end = end or time.monotonic() + self._patience_s
                self._lost = True
                if time.monotonic() > end:
                    break
            elif result != -errno.EINTR:  # a signal, whose Python handler runs now, or a notice: wait on
                break
        if result < 0:
            self._lost = True
            raise errors.from_result(result, self._error(), self.dataset.path)
        self._n_revived = 0
        return Lease(batch) if result == 0 else None

    def _heed_notice(self):
        """Logs a notice of a daemon that went away, or is back."""
        notice = lib.diesel_session_notice(self._handle)
        if notice:
            self._lost = True
            log.warning("%s", os.fsdecode(notice))

    def _revive(self):
        """If the daemon was the user's own, nobody else starts it again. libdiesel waits for any other."""
        if self._n_revived == MAX_REVIVED:
            self._n_revived = 0
            raise OSError(errno.ECONNREFUSED, f"dieseld at {self.dataset.socket} ended {MAX_REVIVED} times before it had "
                                  "the next batch ready: see its log, dieseld.log next to the socket")
        self._n_revived += self.dataset.revive()
        self._lost = False

    @property
    def handle(self):
        """For other calls of libdiesel."""
        return self._handle

    @property
    def n_held(self):
        """Batches that the caller holds."""
        return lib.diesel_session_n_held(self._handle)

    @property
    def crowded(self):
        """True if the caller holds so many batches that the daemon could not work ahead."""
        return self.n_held >= self.max_held - 1

    must_copy = crowded  # a batch that is handed out must not be kept

    @property
    def n_ready(self):
        """Batches that next_batch() gives without a wait."""
        return lib.diesel_session_ready(self._handle)

    @property
    def n_batches(self):
        """Number of batches of an epoch."""
        return lib.diesel_session_n_batches(self._handle)

    @property
    def wanted_workers(self):
        """Worker processes that the daemon wants; None while it has no wish."""
        wanted = lib.diesel_session_wanted_workers(self._handle)
        return None if wanted == native.NO_WISH else wanted

    def report(self, work):
        """Tells the daemon what Python work costs: a native.Work of totals."""
        lib.diesel_session_report(self._handle, byref(work))

    def memory(self):
        """(native.Memory, descriptor) of the batches; raises ConnectionError while the daemon is lost."""
        memory, fd = native.Memory(), ctypes.c_int()
        result = lib.diesel_session_memory(self._handle, byref(memory), byref(fd))
        if result < 0:
            raise ConnectionError(-result, os.strerror(-result))
        return memory, fd.value

    def segment(self, segment):
        """(a new descriptor of a chunk segment, its bytes)."""
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
        ours, self._pid = self._pid == os.getpid(), None  # first: Ctrl-C must not have it closed twice
        if ours:
            lib.diesel_session_close(self._handle)

    __del__ = close
