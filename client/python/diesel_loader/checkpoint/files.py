# SPDX-License-Identifier: Apache-2.0
"""Single files of torch.save()'s format, written by another process, for frameworks that name their checkpoints themselves."""
from __future__ import annotations

import logging
import os
from collections.abc import Callable

from ..on_demand import dieselctl
from . import bucket, persister
from .persister import Ended
from .snapshot import Saver
from .tensors import Pickled

log = logging.getLogger("diesel_loader")


class Files:
    """save() returns when the state is in shared memory, and the file gets its name when it is on disk, or the object its key when
    the bucket has it whole. A save waits for the one before. A failure is one line in the log. Paths may be s3://BUCKET/NAME."""

    def __init__(self) -> None:
        self._saver = Saver(poll=self._poll)
        self._pid = os.getpid()
        self._path: str | None = None      # being written
        self._has_failed = False
        self._is_skipped = False           # the last save
        self._later: list[Callable[[], None]] = []
        self._deleting: list[str] = []     # objects, in the order of the answers
        self._number = 0

    def save(self, state: object, path: str | os.PathLike[str]) -> None:
        """Raises OSError if the folder cannot be made, ValueError if a URL names no object, and what pickle raises."""
        self._leave_parents()
        with self._saver.lock:
            self._save(state, path)

    def _save(self, state, path):
        self._saver.wait(self._poll)
        self._is_skipped = self._saver.is_writing
        if self._is_skipped:
            log.warning("the checkpoint %s is not written: the one before is still not written, because %s. Training goes on. %s", os.fspath(path),
                        self._saver.silence(), self._saver.cure)
            return
        path, order = os.fspath(path), {}
        if bucket.is_bucket(path):
            folder, name = bucket.split(path)
            order["program"] = dieselctl()
        else:
            path = os.path.abspath(path)
            folder, name = os.path.split(path)
            os.makedirs(folder, exist_ok=True)
        self._number += 1
        order |= {"folder": folder, "name": name, "number": self._number, "rank": 0, "later": False, "alone": True, "remove": [],
                  "spread_s": self._saver.spread_s()}
        pickled = Pickled(state)
        self._path = path
        try:
            self._saver.send(order, self._saver.take(pickled.bound(), pickled.fill))
        except (Ended, MemoryError, OSError) as error:
            self._end(persister.reason(error))
        self._saver.tell()

    def after_save(self, action: Callable[[], None]) -> None:
        """Calls it when the last save is on disk: at once, if it is. Never, if it has failed: so nothing makes way for it."""
        self._leave_parents()
        if self._is_skipped:
            return
        with self._saver.lock:
            self._poll(0.0)
            if self._path is not None:
                self._later.append(action)
            elif not self._has_failed:
                action()

    def delete_after_save(self, url: str) -> None:
        """Has the process that writes delete an object, when after_save() would."""
        self.after_save(lambda: self._delete(url))

    def _delete(self, url):
        folder, name = bucket.split(url)
        self._deleting.append(url)
        try:
            self._saver.send_delete({"folder": folder, "name": name, "program": dieselctl()})
        except (Ended, OSError) as error:
            self._end_delete(persister.reason(error))

    def _end_delete(self, error):
        url = self._deleting.pop(0)
        if error:
            log.warning("the old checkpoint %s is not removed: %s", url, error)

    def wait(self) -> None:
        """Returns when the last save is on disk, or has failed, or the process that writes has got no further for a minute."""
        self._leave_parents()
        with self._saver.lock:
            self._saver.wait(self._poll)

    def close(self) -> None:
        self.wait()
        self._saver.close()

    def _leave_parents(self):
        """In a forked process: what the parent has under way is not ours."""
        if os.getpid() != self._pid:
            self._saver.forget()
            Files.__init__(self)

    def _poll(self, timeout_s):
        try:
            for reply in self._saver.replies(timeout_s):
                (self._end_delete if reply["do"] == "delete" else self._end)(reply["error"])
        except (Ended, OSError) as error:
            while self._deleting:
                self._end_delete(persister.reason(error))
            if self._path is not None:
                self._end(persister.reason(error))

    def _end(self, error):
        path, self._path = self._path, None
        later, self._later = self._later, []
        self._has_failed = bool(error)
        self._saver.n_failed += bool(error)
        self._saver.tell(newest=not error)
        if error:
            log.warning("the checkpoint %s is not written: %s. Training goes on", path, error)
            return
        for action in later:
            try:
                action()
            except OSError as failure:   # not an error of the loader, which may have called this
                log.warning("a checkpoint that makes way for %s is not removed: %s", path, failure)
