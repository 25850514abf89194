# SPDX-License-Identifier: Apache-2.0
"""All calls of CUDA, made through torch. The tests replace these functions with stand-ins."""
from __future__ import annotations

import contextlib

import torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REGISTER_PORTABLE = 1   # cudaHostRegisterPortable: page-locked for all devices of the process
REGISTER_READ_ONLY = 8  # cudaHostRegisterReadOnly: memory that this process itself maps for reading only


def n_devices() -> int:
    """Returns the number of GPUs that this process sees; 0 also if torch lacks CUDA."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def current_device() -> int:
    return torch.cuda.current_device()


def register(device: torch.device, address: int, size: int, read_only: bool) -> str | None:
    """Locks pages of this process so that devices can read them directly. Returns None, or the reason of a failure."""
    cudart: Any = torch.cuda.cudart()
    with torch.cuda.device(device):
        error = cudart.cudaHostRegister(address, size, REGISTER_PORTABLE | (REGISTER_READ_ONLY if read_only else 0))
        if not int(error):
            return None
        _forget_error()
    return str(cudart.cudaGetErrorString(error))


def unregister(address: int) -> None:
    """Unregisters memory. Memory that is not registered is no error."""
    cudart: Any = torch.cuda.cudart()
    if int(cudart.cudaHostUnregister(address)):
        _forget_error()


def _forget_error() -> None:
    """CUDA remembers the error of a call, and torch would raise it at its next kernel, an unrelated one."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device="cuda")


def side_stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device)


def pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy in page-locked memory of torch's allocator, which reuses the memory only after the copies from
    it are done. RuntimeError: no memory can be locked."""
    return tensor.pin_memory()


def copy(tensor: torch.Tensor, device: torch.device, stream: Any) -> torch.Tensor:
    """Begins a copy on that stream. The memory of the tensor must stay until the copy is done, unless it is not
    page-locked: then CUDA has read it when this returns."""
    with torch.cuda.stream(stream):
        return tensor.to(device, non_blocking=True)


def copy_now(thing: Any, device: torch.device) -> Any:
    """Returns thing.to(device), copied on the caller's stream and complete on return."""
    return thing.to(device)


def record(stream: Any) -> Any:
    """Returns an event that completes when all work begun on the stream is done."""
    return stream.record_event()


def is_done(event: Any) -> bool:
    return bool(event.query())


def wait(event: Any) -> None:
    event.synchronize()


def hand_over(tensors: list[torch.Tensor], event: Any, device: torch.device) -> None:
    """Makes the caller's stream wait for the event, and keeps the tensors' memory until that stream has used it."""
    stream: Any = torch.cuda.current_stream(device)
    stream.wait_event(event)
    for tensor in tensors:
        tensor.record_stream(stream)
