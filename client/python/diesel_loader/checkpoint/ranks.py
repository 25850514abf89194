# SPDX-License-Identifier: Apache-2.0
"""Agreement between ranks. With one rank nothing is sent, and torch.distributed may be missing."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from . import folder


def _is_used() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def rank() -> int:
    return torch.distributed.get_rank() if _is_used() else 0


def size() -> int:
    return torch.distributed.get_world_size() if _is_used() else 1


def largest(*values: float) -> list[float]:
    """Returns the largest of all ranks' values. All ranks call it."""
    if size() == 1:
        return list(values)
    device = torch.device("cuda", torch.cuda.current_device()) if torch.distributed.get_backend() == "nccl" else torch.device("cpu")
    together = torch.tensor(values, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(together, op=torch.distributed.ReduceOp.MAX)
    return together.tolist()


def agreed_whole(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the checkpoints that are whole for all ranks, the newest first. Each rank reads its share of the files."""
    if size() == 1:
        yield from folder.whole(path)
        return
    found: list[Any] = [[name for _, name in reversed(folder.numbered(path))] if rank() == 0 else None]
    torch.distributed.broadcast_object_list(found, src=0)
    for name in found[0]:
        about, damage = folder.checked(f"{path}/{name}", rank(), size())
        said: list[Any] = [None] * size()
        torch.distributed.all_gather_object(said, (damage, about and about["number"], about and about["written"]))
        damages = [f"rank {number}: {why}" for number, (why, *_) in enumerate(said) if why]
        if not damages and len(set(said)) > 1:
            damages = ["the ranks see different ones of that name"]
        if about is not None and not damages:
            yield f"{path}/{name}", about
        elif rank() == 0:
            folder.pass_over(f"{path}/{name}", "; ".join(damages))
