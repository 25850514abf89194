# SPDX-License-Identifier: Apache-2.0
"""Folders in memory, for files of which no test needs a disk: many small ones, and those that are synced often."""
import contextlib
import os


def memory():
    """Returns the place for such folders, or None (the default of tempfile) where memory is short."""
    with contextlib.suppress(OSError):
        shm = os.statvfs("/dev/shm")
        if shm.f_bavail * shm.f_frsize > 2 << 30 and os.access("/dev/shm", os.W_OK):
            return "/dev/shm"
    return None
