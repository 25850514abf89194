# SPDX-License-Identifier: Apache-2.0
"""Ranks, as frameworks report them, and behaviour that frameworks expect of a loader beyond PyTorch's DataLoader.
Nothing here imports a framework."""
import datetime
import functools
import os
import sys

from .ranks import membership


def group():
    """Returns (rank, world size) of torch.distributed's default group or of jax.distributed; None while neither exists."""
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    jax = sys.modules.get("jax")
    if jax and getattr(jax.distributed, "is_initialized", bool)():  # older versions of JAX lack this function
        return jax.process_index(), jax.process_count()
    return None


def store(ranks):
    """Returns a store that all ranks share: that of torch.distributed's default group or, while there is no group,
    torchrun's. None: there is none that can compare values."""
    distributed = sys.modules.get("torch.distributed")
    if not (distributed and distributed.is_available()):
        return None
    try:
        found = distributed.distributed_c10d._get_default_store() if distributed.is_initialized() else _torchruns(distributed)
        found.compare_set("diesel_loader", "", "here")
    except Exception:  # the backend has no store, or one that cannot compare
        return None
    return found if ranks == (group() or membership.find(os.environ, None)) else None


@functools.cache
def _torchruns(distributed):
    """Connects to the store that torchrun's agent holds for its ranks."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    found = distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=datetime.timedelta(seconds=60))
    return distributed.PrefixStore(f"diesel_loader/{os.environ.get('TORCHELASTIC_RESTART_COUNT')}", found)


class Accelerate:
    """A loader that was given to accelerator.prepare(): its batches go to the accelerator's device, and Accelerate's
    GradientState knows when the last one of an epoch is handed out, as with a loader that Accelerate made.

    Accelerate does not shard it: the loader already gives each rank its own share."""

    def __init__(self, loader):
        self._loader = loader
        loader.end_of_dataloader, loader.remainder = False, -1

    @staticmethod
    def _module(name):
        return sys.modules.get(f"accelerate.{name}")  # prepare() has loaded the module

    def begin(self):
        self._loader.end_of_dataloader = False
        if self._module("state"):
            self._module("state").GradientState()._add_dataloader(self._loader)

    def hand_out(self, batch, is_last):
        self._loader.end_of_dataloader = is_last
        state = self._module("state")
        if not state or not self._module("utils") or not state.AcceleratorState._shared_state:
            return batch
        return self._module("utils").send_to_device(batch, state.AcceleratorState().device, non_blocking=False)

    def end(self):
        if self._module("state"):
            self._module("state").GradientState()._remove_dataloader(self._loader)
