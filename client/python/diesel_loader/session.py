# SPDX-License-Identifier: Apache-2.0
"""Batches of one session as leases on shared memory."""
import ctypes
import errno
import logging
import os

from . import errors, native
from .native import byref, lib

log = logging.getLogger("diesel_loader")


class Lease:
    """The right to read one batch in shared memory; given back when nobody refers to it any more."""

    __slots__ = ("batch", "_address", "_session")

    def __init__(self, batch, session):
        self.batch, self._address, self._session = batch, batch.lease, session
        session.n_held += 1

    def __del__(self):
        self._session.n_held -= 1
        lib.diesel_batch_release(self._address)


class Session:
    """libdiesel's session; iterate with next_batch(). Not for use across a fork."""

    def __init__(self, dataset, **options):
        self.dataset = dataset
        self.n_held = 0
        self._handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(native.ERROR_BYTES)
        self._pid = os.getpid()
        result = lib.diesel_session_open(dataset.handle, byref(native.SessionOptions(**options)),
                                         byref(self._handle), text, len(text))
        if result < 0:
            self._pid = None
            raise errors.from_result(result, os.fsdecode(text.value))
        self.window_chunks = lib.diesel_session_window_chunks(self._handle)
        self.max_held = lib.diesel_session_max_held(self._handle)

    def seek(self, epoch, batch):
        result = lib.diesel_session_seek(self._handle, epoch, batch)
        if result < 0:
            raise errors.from_result(result, self._error())

    def next_batch(self):
        """The next batch as a Lease, or None at the end of the epoch."""
        batch = native.Batch()
        while True:
            result = lib.diesel_session_next(self._handle, byref(batch))
            notice = lib.diesel_session_notice(self._handle)
            if notice:
                log.warning("%s", os.fsdecode(notice))
            if result != -errno.EINTR:  # a signal, whose Python handler runs now, or a notice: wait on
                break
        if result < 0:
            raise errors.from_result(result, self._error())
        return Lease(batch, self) if result == 0 else None

    @property
    def crowded(self):
        """Whether the caller holds so many batches that the daemon could not work ahead."""
        return self.n_held >= self.max_held - 1

    def _error(self):
        return os.fsdecode(lib.diesel_session_error(self._handle) or b"unknown failure")

    def close(self):
        if self._pid == os.getpid():
            lib.diesel_session_close(self._handle)
        self._pid = None

    __del__ = close
