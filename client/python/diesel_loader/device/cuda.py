# SPDX-License-Identifier: Apache-2.0
"""All that is called of CUDA, by way of torch. The tests put a stand-in in place of these functions."""
from __future__ import annotations

import contextlib

import torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REGISTER_PORTABLE = 1   # cudaHostRegisterPortable: pinned for all devices of the process
REGISTER_READ_ONLY = 8  # cudaHostRegisterReadOnly: memory that this process itself maps for reading only


def n_devices() -> int:
    """GPUs that this process sees; 0 also for a torch without CUDA."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def current_device() -> int:
    return torch.cuda.current_device()


def register(device: torch.device, address: int, size: int, read_only: bool) -> str | None:
    """Locks pages of this process so that devices read them by themselves. None: done, else why not."""
    cudart: Any = torch.cuda.cudart()
    with torch.cuda.device(device):
        error = cudart.cudaHostRegister(address, size, REGISTER_PORTABLE | (REGISTER_READ_ONLY if read_only else 0))
        if not int(error):
            return None
        _forget_error()
    return str(cudart.cudaGetErrorString(error))


def unregister(address: int) -> None:
    """Unregisters memory, which need not be registered."""
    cudart: Any = torch.cuda.cudart()
    if int(cudart.cudaHostUnregister(address)):
        _forget_error()


def _forget_error() -> None:
    """CUDA keeps the error of a call as its last one, and torch would raise it at its next kernel, whosever that is."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device="cuda")


def side_stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device)


def pinned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in memory of torch's own allocator, which uses it again only when the copies from it are done. RuntimeError:
    no memory to lock."""
    return tensor.pin_memory()


def copy(tensor: torch.Tensor, device: torch.device, stream: Any) -> torch.Tensor:
    """Begins a copy on that stream. The memory of the tensor must stay until the copy is done, unless it is not pinned:
    then CUDA has read it when this returns."""
    with torch.cuda.stream(stream):
        return tensor.to(device, non_blocking=True)


def copy_now(thing: Any, device: torch.device) -> Any:
    """thing.to(device), on the caller's stream, done when this returns."""
    return thing.to(device)


def record(stream: Any) -> Any:
    """An event that comes when all that was begun on the stream is done."""
    return stream.record_event()


def is_done(event: Any) -> bool:
    return bool(event.query())


def wait(event: Any) -> None:
    event.synchronize()


def hand_over(tensors: list[torch.Tensor], event: Any, device: torch.device) -> None:
    """The caller's stream goes on only behind the event, and the tensors' memory is used again only behind that stream."""
    stream: Any = torch.cuda.current_stream(device)
    stream.wait_event(event)
    for tensor in tensors:
        tensor.record_stream(stream)
