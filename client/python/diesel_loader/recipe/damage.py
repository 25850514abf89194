# SPDX-License-Identifier: Apache-2.0
"""Damaged samples: dieseld could not decode them, and batches leave them out or have zeros instead."""
from __future__ import annotations

import logging

log = logging.getLogger("diesel_loader")


MAX_NAMED = 20  # maximum number of samples named in the log; further ones are only counted


class Damage:
    """Counts damaged samples, and logs the paths of the first ones. dataset: provides the paths."""

    def __init__(self, dataset, skips):
        self._dataset, self._skips = dataset, skips
        self.n = 0

    def note(self, batch):
        """Counts the damaged samples of a native.Batch that has some."""
        before, self.n = self.n, self.n + batch.n_damaged
        if before >= MAX_NAMED:
            return
        for item in batch.items[:batch.n_items + (batch.n_damaged if self._skips else 0)]:
            if item.bytes == 0:
                log.warning("%s: %s is damaged: it is %s (dieseld's log has the reason)", self._dataset.path,
                            self._dataset.path_of(item.sample), "left out" if self._skips else "all zeros")
        if self.n >= MAX_NAMED:
            log.warning("%s: many damaged samples; the loader counts further ones in n_damaged, without a message", self._dataset.path)
