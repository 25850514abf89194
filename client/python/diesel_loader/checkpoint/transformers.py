# SPDX-License-Identifier: Apache-2.0
"""A callback for the Trainer of Hugging Face: Trainer(callbacks=[checkpoints])."""
from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from typing import Any

import torch
import transformers
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.utils import WEIGHTS_NAME

from . import ranks
from .bucket import is_bucket
from .checkpointer import Checkpointer
from .randomness import numpy_state, python_state, random_states

RESUMED = "resumed"   # the folder with what train() is resumed from


class CheckpointCallback(transformers.TrainerCallback):
    """Takes the Trainer's checkpoints by a Checkpointer.

        args = TrainingArguments("out", save_strategy="no")
        checkpoints = CheckpointCallback("out/checkpoints")   # after args, which make the process group
        trainer = Trainer(model, args, ..., callbacks=[checkpoints])
        trainer.train(resume_from_checkpoint=checkpoints.newest())

    folder and options: as of Checkpointer. Set save_strategy="no" in TrainingArguments, or the Trainer saves as well.
    """

    def __init__(self, folder: str | os.PathLike[str], **options: Any) -> None:
        self._checkpointer = Checkpointer(folder, state=self._state, **options)
        self._folder = None if is_bucket(os.fspath(folder)) else os.path.abspath(folder)
        self._own: tempfile.TemporaryDirectory[str] | None = None   # with a bucket: of each rank, as the nodes need share no folder
        self._now: dict[str, Any] = {}

    def newest(self) -> str | None:
        """Returns the newest whole checkpoint as a folder that train() resumes from, or None if there is none yet. Call it
        before train(), on all ranks. With a bucket, the folder is a temporary one ($TMPDIR), which goes with this object."""
        restored = self._checkpointer.restore()
        if restored is None:
            return None
        path: str = ranks.together(lambda: self._laid_out(restored.state), "lay out the checkpoint")
        return path

    def _laid_out(self, state):
        if self._folder is None:
            self._own = tempfile.TemporaryDirectory(prefix="diesel-checkpoint-")
        path = os.path.join(self._own.name if self._own else str(self._folder), RESUMED)
        if ranks.rank() == 0 or self._own:
            _lay_out(state, path)
        return path

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.fsdp or args.deepspeed:
            raise ValueError("CheckpointCallback does not support FSDP and DeepSpeed: remove it from callbacks=, and use save_steps=")

    def on_step_end(self, args: Any, state: Any, control: Any, **now: Any) -> None:
        self._now = {**now, "state": state}
        self._checkpointer.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._now = {}
        self._checkpointer.close()

    def _state(self):
        now = self._now
        return {"model": now["model"].state_dict(), "optimizer": now["optimizer"].state_dict(), "scheduler": now["lr_scheduler"].state_dict(),
                "trainer": json.dumps(dataclasses.asdict(now["state"])), "random": {str(ranks.rank()): random_states()}}


def _lay_out(state, path):
    """Writes a checkpoint as the Trainer does."""
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    files = {WEIGHTS_NAME: state["model"], OPTIMIZER_NAME: state["optimizer"], SCHEDULER_NAME: state["scheduler"]}
    for rank, states in state["random"].items():
        saved = {"python": python_state(states["python"]), "numpy": numpy_state(states["numpy"]), "cpu": states["torch"]}
        if "cuda" in states:
            saved["cuda"] = states["cuda"]
        files["rng_state.pth" if len(state["random"]) == 1 else f"rng_state_{rank}.pth"] = saved
    for name, content in files.items():
        torch.save(content, os.path.join(path, name))
    with open(os.path.join(path, TRAINER_STATE_NAME), "w", encoding="utf-8") as file:
        file.write(state["trainer"])
