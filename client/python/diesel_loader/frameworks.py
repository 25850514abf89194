# SPDX-License-Identifier: Apache-2.0
"""What frameworks expect of a loader beyond what PyTorch's DataLoader does. Nothing here imports one."""
import sys


class Accelerate:
    """A loader that was given to accelerator.prepare(): its batches go to the accelerator's device, and Accelerate's
    GradientState knows when the last one of an epoch is handed out, as with a loader that Accelerate made.

    It is not shared out among the processes: it gives each rank its own share already."""

    def __init__(self, loader):
        self._loader = loader
        loader.end_of_dataloader, loader.remainder = False, -1

    @staticmethod
    def _module(name):
        return sys.modules.get(f"accelerate.{name}")  # prepare() has loaded it

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
