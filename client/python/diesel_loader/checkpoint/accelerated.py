# SPDX-License-Identifier: Apache-2.0
"""Accelerate's door: Checkpointer(folder, accelerator=accelerator) saves all that accelerator.save_state() does."""
from __future__ import annotations

import sys
from typing import Any

from . import ranks

_PLAIN = ("NO", "MULTI_GPU", "MULTI_CPU")   # kinds of Accelerate's processes whose models have a plain state_dict()


def stateful(obj: Any) -> Any:
    """Returns the object, or for an Accelerator the one that has its state. Raises TypeError."""
    accelerate = sys.modules.get("accelerate")
    if accelerate is not None and isinstance(obj, accelerate.Accelerator):
        return Accelerated(obj)
    return obj


class Accelerated:
    """Everything that accelerator.prepare() and register_for_checkpointing() were given, the scaler of float16, and the states of
    the random number generators."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        kind = accelerator.distributed_type.name
        if kind not in _PLAIN:
            raise TypeError(f"accelerator= with {kind} is not supported: go on with accelerator.save_state()")

    @property
    def optimizers(self) -> list[Any]:
        return list(self._accelerator._optimizers)

    def state_dict(self) -> dict[str, Any]:
        accelerator = self._accelerator
        if accelerator._save_model_state_pre_hook:
            raise TypeError("accelerator= would leave out the hooks of register_save_state_pre_hook(): pass model=, optimizer= and the rest "
                            "one by one, or go on with accelerator.save_state()")
        from .randomness import random_states   # only here, because it imports torch
        parts = self._parts()
        if not parts["models"]:
            raise TypeError("the accelerator has no model yet: call accelerator.prepare() before restore() and the first step")
        return {**{name: {str(i): part.state_dict() for i, part in enumerate(them)} for name, them in parts.items()},
                "step": accelerator.step, "random": {str(ranks.rank()): random_states()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, them in self._parts().items():
            n_saved = len(state.get(name, {}))
            if n_saved != len(them):
                raise ValueError(f"the checkpoint has {n_saved} {name} of Accelerate, and this accelerator {len(them)}: prepare the same "
                                 f"objects as when it was saved, before restore()")
        for name, them in self._parts().items():
            for i, part in enumerate(them):
                part.load_state_dict(state[name][str(i)])
        self._accelerator.step = state["step"]
        mine = state["random"].get(str(ranks.rank()))
        if mine is not None:
            from .randomness import set_random_states
            set_random_states(mine)

    def _parts(self):
        accelerator = self._accelerator
        return {"models": accelerator._models, "optimizers": accelerator._optimizers, "schedulers": accelerator._schedulers,
                "loaders": [loader for loader in accelerator._dataloaders if getattr(loader, "use_stateful_dataloader", False)],
                "custom": accelerator._custom_objects, "scalers": [accelerator.scaler] if accelerator.scaler is not None else []}
