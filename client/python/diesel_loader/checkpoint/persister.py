# SPDX-License-Identifier: Apache-2.0
"""The trainer's hold on the process that writes checkpoints (persist.py)."""
from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from .persist import MESSAGE

# The folder of this package is the last place to look, so that its modules hide none of the standard library's.
START = "import sys; sys.path.append(sys.argv[1]); from checkpoint import persist; persist.main(int(sys.argv[2]), int(sys.argv[3]))"
LOCK_S = 60
SILENT_S = 60      # after so long without progress nobody waits for the process
PATIENCE_S = 0.5   # between two looks

log = logging.getLogger("diesel_loader")


class Ended(Exception):
    """The process has ended; the text says how."""


def reason(error: BaseException) -> str:
    """Returns why a checkpoint is not written, for a line in the log."""
    return f"the process that writes {error}" if isinstance(error, Ended) else str(error)


class Persister:
    def __init__(self) -> None:
        self._end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        with other:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", START, package, str(other.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", pass_fds=[other.fileno()],
                    start_new_session=True)
            except OSError:
                self._end.close()
                raise
        self._sent_fd: int | None = None
        self._ended: Ended | None = None
        self.pid = self._process.pid

    def lock(self, folder: str, program: str | None = None) -> None:
        """Takes the folder's lock, or a turn in a bucket. program: dieselctl. Waits while the process of a job that was killed
        still writes there. Raises OSError."""
        self.send({"do": "lock", "folder": folder, "program": program, "trainer": os.getpid(), "wait_s": LOCK_S})
        while True:
            for reply in self.replies(None):
                if reply["do"] == "waiting":
                    log.warning("waiting until the job before has written its last checkpoint to %s", folder)
                elif reply["do"] == "taken":
                    log.warning("%s was last used by a job on %s that has not ended it: if that job still runs, it cannot write there any more",
                                folder, reply["host"])
                elif reply["do"] == "unlocked":
                    log.warning("%s: its file system has no locks (%s), so nothing keeps another job out: give each job a folder of its own",
                                folder, reply["why"])
                elif reply["error"]:
                    raise OSError(reply["error"])
                else:
                    return

    def send(self, order: dict[str, Any], fds: tuple[int, ...] = (), flags: int = 0) -> None:
        """Raises Ended."""
        if self._ended:
            raise self._ended
        try:
            socket.send_fds(self._end, [json.dumps(order).encode()], list(fds), flags)
        except (BrokenPipeError, ConnectionResetError):
            raise self._end_it() from None

    def send_write(self, order: dict[str, Any], memory_fd: int, is_new: bool) -> None:
        """is_new: the process does not have this memory yet."""
        self.send(order, (memory_fd,) if is_new or self._sent_fd != memory_fd else ())
        self._sent_fd = memory_fd

    def replies(self, timeout_s: float | None = 0.0) -> list[dict[str, Any]]:
        """Returns what the process has said, after at most so long. Raises Ended."""
        if self._ended:
            raise self._ended
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        found: list[dict[str, Any]] = []
        while poll.poll(None if timeout_s is None and not found else 0 if found else (timeout_s or 0) * 1000):
            try:
                message = self._end.recv(MESSAGE)
            except ConnectionResetError:
                message = b""
            if not message:
                if found:
                    break
                raise self._end_it()
            found.append(json.loads(message))
        return found

    def _end_it(self):
        self._end.close()
        status = self._process.wait()
        self._ended = Ended(f"was killed by signal {-status}" if status < 0 else f"exited with status {status}")
        return self._ended

    def hurry(self) -> None:
        """Somebody waits: the process is to write as fast as it can."""
        with contextlib.suppress(Ended, BlockingIOError):   # replies() says so, or it has been told often enough
            self.send({"do": "hurry"}, flags=socket.MSG_DONTWAIT)

    def close(self, beat: Callable[[], int] = lambda: 0, is_silent: bool = False) -> None:
        """Returns when the process has written everything and ended, or gets on no more. beat(): changes as it gets on.
        is_silent: it has not got on for long already."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)   # a forked worker may have it too
        self._end.close()
        before, since = beat(), time.monotonic()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
                return
            now = beat()
            if now != before:
                before, since, is_silent = now, time.monotonic(), False
            if is_silent or time.monotonic() - since > SILENT_S:
                self._process.returncode = 0   # or subprocess would warn that it still runs
                log.warning("the process that writes checkpoints (pid %d) has got no further for %d s and is left alone: it is stopped, or its "
                            "storage does not answer. Its checkpoint is on disk only if it goes on", self.pid, SILENT_S)
                return

    def forget(self) -> None:
        """In a forked process: it is not our child."""
        self._end.close()
        self._process.returncode = 0   # or subprocess would warn that it still runs
