# SPDX-License-Identifier: Apache-2.0
"""FUSE mounts of a folder that hang, fail or are slow on command (fuse_mirror)."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from common.processes import end, process_stat
from common.waiting import wait_until
from dieseld_support import BIN, SCRATCH

PROGRAM = os.path.join(BIN, "fuse_mirror")


def reason():
    """Returns why no test can mount here, or None."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK) or not os.access(PROGRAM, os.X_OK):
        return "needs root, /dev/fuse and fuse_mirror"
    return None


def require():
    if reason():
        print("skipped: " + reason())
        sys.exit(77)


class Mirror:
    """A mount of a folder. read_ms: how long each read takes."""

    def __init__(self, source, read_ms=0):
        if reason():
            raise unittest.SkipTest(reason())
        self.source, self.mount, self.control = source, *(tempfile.mkdtemp(prefix=prefix, dir=SCRATCH) for prefix in ("mirror", "control"))
        os.chmod(self.mount, 0o755)
        self.process = subprocess.Popen([PROGRAM, source, self.mount, self.control], stderr=subprocess.DEVNULL,
                                        env={**os.environ, **({"FUSE_MIRROR_READ_MS": str(read_ms)} if read_ms else {})})
        wait_until("the mount", lambda: os.path.ismount(self.mount) or self.process.poll() is not None)
        if not os.path.ismount(self.mount):
            raise unittest.SkipTest("FUSE cannot be mounted here")

    def begin(self, what):
        """Makes requests hang or fail: `what` is a word of fuse_mirror.c."""
        with open(os.path.join(self.control, what), "w"):
            pass

    def end(self, what):
        os.unlink(os.path.join(self.control, what))

    def has_hung(self):
        return os.path.exists(os.path.join(self.control, "hangs"))

    def stop(self):
        """Stops the process: each request hangs until go_on()."""
        self.process.send_signal(signal.SIGSTOP)
        wait_until("the stop", lambda: process_stat(self.process.pid)[1] == "T")

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def close(self):
        """Ends the mount. Requests that hang fail then."""
        end(self.process)
        subprocess.run(["umount", "-l", self.mount], check=False)
        shutil.rmtree(self.control)
