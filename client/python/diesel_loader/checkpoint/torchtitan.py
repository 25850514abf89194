# SPDX-License-Identifier: Apache-2.0
"""torchtitan's door: checkpoint=CheckpointManager.Config(...) in the Trainer's configuration."""
from __future__ import annotations

import functools
import logging
import os
import re
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torchtitan.components import checkpoint

from ..on_demand import dieselctl
from . import folder as folders
from . import ranks
from .bucket import Bucket, is_bucket
from .distributed import Reader, Unreadable, Writer

_NAME = re.compile(r"step-(\d+)")

log = logging.getLogger("diesel_loader")


class CheckpointManager(checkpoint.CheckpointManager):
    """torchtitan's own, except that saves return when the state is in shared memory, and another process writes it."""

    folder: str

    @dataclass(kw_only=True, slots=True)
    class Config(checkpoint.CheckpointManager.Config):
        """async_mode: leave it out. Everything else is as in torchtitan's."""

        def __post_init__(self) -> None:
            checkpoint.CheckpointManager.Config.__post_init__(self)
            if self.async_mode != "disabled":
                raise ValueError(f"async_mode={self.async_mode!r} has no use here, because no save waits for the disk: leave it out")

    def __init__(self, config: Any, **options: Any) -> None:
        self._writer = Writer()
        self._passed_over: set[str] = set()   # checkpoints in a bucket, which make way for new ones of the same step
        super().__init__(config, **options)

    @torch.no_grad()
    def dcp_save(self, state_dict: dict[str, Any], checkpoint_id: str, async_mode: Any, enable_garbage_collection: bool = False,
                 to_hf: bool = False) -> Any:
        if to_hf:
            return super().dcp_save(state_dict, checkpoint_id, async_mode, enable_garbage_collection, to_hf)
        if checkpoint_id in self._passed_over and ranks.rank() == 0:
            self._unname(checkpoint_id)
        dcp.save(state_dict, checkpoint_id=checkpoint_id, storage_writer=self._writer)
        return None

    def _close(self) -> None:
        self._writer.close()
        super()._close()

    # torchtitan takes hidden folders, which are being written or were left by a killed process, for checkpoints.

    def _whole(self, folder):
        if is_bucket(folder):
            with Bucket(folder, dieselctl()) as bucket:
                names = [key.removesuffix("/" + folders.MANIFEST) for key in bucket.keys("step-")]
        else:
            names = os.listdir(folder) if os.path.isdir(folder) else []
        return sorted((int(match[1]), f"{folder.rstrip('/')}/{match[0]}") for match in map(_NAME.fullmatch, names) if match)

    def _find_load_step(self, folder: str = "") -> int:
        files = (".metadata", "model.safetensors.index.json")
        whole = ranks.of_first(lambda: self._whole(folder or self.folder))
        return max((step for step, path in whole
                    if is_bucket(path) or any(os.path.isfile(os.path.join(path, name)) for name in files)), default=-1)

    def _load(self, step: int = -1) -> bool:
        if not is_bucket(self.folder):
            return super()._load(step)
        steps = [step] if step != -1 else [found for found, _ in reversed(ranks.of_first(lambda: self._whole(self.folder)))]
        for found in steps:
            path = self._create_checkpoint_id(found)
            why = ranks.of_first(functools.partial(_wrong_metadata, path)) if step == -1 else None
            try:
                if why is None:
                    self.dcp_load(self._states_to_load(found == 0), path, from_hf=False, from_quantized=False)
                    return True
            except CheckpointException as error:   # on all ranks
                failures = [failure for failure, _ in error.failures.values()]
                if step != -1 or not all(isinstance(failure, Unreadable) for failure in failures):
                    raise
                why = str(failures[0])
            if ranks.rank() == 0:
                log.warning("%s: passed over", why)
            self._passed_over.add(path)
        if self._passed_over:
            raise OSError(f"{self.folder} has no checkpoint that can be read: to train from scratch, use another folder")
        bucket, self.folder = self.folder, ""   # torchtitan would look into it by fsspec
        try:
            return super()._load()
        finally:
            self.folder = bucket

    @torch.no_grad()
    def dcp_load(self, state_dict: dict[str, Any], checkpoint_id: str, from_hf: bool, from_quantized: bool) -> None:
        if from_hf or not is_bucket(checkpoint_id):
            super().dcp_load(state_dict, checkpoint_id, from_hf, from_quantized)
            return
        dcp.load(state_dict, storage_reader=Reader(checkpoint_id))
        if checkpoint.MODEL in self.states:
            self.states[checkpoint.MODEL].load_state_dict(state_dict)

    def _purge_stale_checkpoints(self) -> None:
        if is_bucket(self.folder):
            if self.keep_latest_k > 0 and ranks.rank() == 0:
                self._purge_bucket()
        elif self._should_purge():
            for _, path in self._whole(self.folder)[:-self.keep_latest_k]:
                self.purge_queue.put(path)

    def _unname(self, path):
        """Removes the manifest, without which the objects count as left by an earlier attempt."""
        try:
            with Bucket(path, dieselctl()) as bucket:
                bucket.delete(folders.MANIFEST)
            self._passed_over.discard(path)
        except OSError as error:
            log.warning("%s is damaged and cannot be removed: %s", path, error.strerror or error)

    def _purge_bucket(self):
        try:
            with Bucket(self.folder, dieselctl()) as bucket:
                for _, path in self._whole(self.folder)[:-self.keep_latest_k]:
                    bucket.remove(os.path.basename(path))
        except OSError as error:
            log.warning("old checkpoints in %s are not removed: %s. The next save tries again", self.folder, error.strerror or error)


def _wrong_metadata(path):
    """torch.distributed.checkpoint makes an AssertionError of what its reader says of it."""
    try:
        Reader(path).verify_metadata()
    except Unreadable as wrong:
        return str(wrong)
    return None
