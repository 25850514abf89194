# SPDX-License-Identifier: Apache-2.0
"""torchtitan's door: checkpoint=CheckpointManager.Config(...) in the Trainer's configuration."""
from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torchtitan.components import checkpoint

from .distributed import Writer

_NAME = re.compile(r"step-(\d+)")


class CheckpointManager(checkpoint.CheckpointManager):
    """torchtitan's own, except that saves return when the state is in shared memory, and another process writes it."""

    @dataclass(kw_only=True, slots=True)
    class Config(checkpoint.CheckpointManager.Config):
        """async_mode: leave it out. Everything else is as in torchtitan's."""

        def __post_init__(self) -> None:
            checkpoint.CheckpointManager.Config.__post_init__(self)
            if self.async_mode != "disabled":
                raise ValueError(f"async_mode={self.async_mode!r} has no use here, because no save waits for the disk: leave it out")

    def __init__(self, config: Any, **options: Any) -> None:
        self._writer = Writer()
        super().__init__(config, **options)

    @torch.no_grad()
    def dcp_save(self, state_dict: dict[str, Any], checkpoint_id: str, async_mode: Any, enable_garbage_collection: bool = False,
                 to_hf: bool = False) -> Any:
        if to_hf:
            return super().dcp_save(state_dict, checkpoint_id, async_mode, enable_garbage_collection, to_hf)
        dcp.save(state_dict, checkpoint_id=checkpoint_id, storage_writer=self._writer)
        return None

    def _close(self) -> None:
        self._writer.close()
        super()._close()

    # torchtitan takes hidden folders, which are being written or were left by a killed process, for checkpoints.

    def _whole(self, folder):
        if not os.path.isdir(folder):
            return []
        return sorted((int(match[1]), os.path.join(folder, match[0])) for match in map(_NAME.fullmatch, os.listdir(folder)) if match)

    def _find_load_step(self, folder: str = "") -> int:
        files = (".metadata", "model.safetensors.index.json")
        return max((step for step, path in self._whole(folder or self.folder)
                    if any(os.path.isfile(os.path.join(path, name)) for name in files)), default=-1)

    def _purge_stale_checkpoints(self) -> None:
        if self._should_purge():
            for _, path in self._whole(self.folder)[:-self.keep_latest_k]:
                self.purge_queue.put(path)
