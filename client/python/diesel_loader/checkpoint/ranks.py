# SPDX-License-Identifier: Apache-2.0
"""Agreement between ranks. With one rank nothing is sent, and torch.distributed may be missing."""
from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from . import folder


def _group() -> Any:
    """Returns torch.distributed if it has a process group. A job without torch has none."""
    group = sys.modules.get("torch.distributed")
    return group if group is not None and group.is_available() and group.is_initialized() else None


def check_group() -> None:
    """Raises ValueError in a job of several processes of torch that has no process group yet."""
    group, n = sys.modules.get("torch.distributed"), os.environ.get("WORLD_SIZE", "")
    if n.isdigit() and int(n) > 1 and group is not None and group.is_available() and not group.is_initialized():
        raise ValueError(f"the job has {n} ranks (WORLD_SIZE) and no process group yet: call torch.distributed.init_process_group() before "
                         f"Checkpointer(). For a process that is no rank: unset WORLD_SIZE")


def rank() -> int:
    group = _group()
    return 0 if group is None else int(group.get_rank())


def size() -> int:
    group = _group()
    return 1 if group is None else int(group.get_world_size())


def largest(*values: float) -> list[float]:
    """Returns the largest of all ranks' values. All ranks call it."""
    if size() == 1:
        return list(values)
    import torch
    device = torch.device("cuda", torch.cuda.current_device()) if torch.distributed.get_backend() == "nccl" else torch.device("cpu")
    together = torch.tensor(values, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(together, op=torch.distributed.ReduceOp.MAX)
    found: list[float] = together.tolist()
    return found


def agreed_whole(path: str, damaged: list[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the checkpoints that are whole for all ranks, the newest first. Each rank reads its share of the files. damaged: gets
    on rank 0 the names of those that are."""
    if size() == 1:
        yield from folder.whole(path, damaged)
        return
    import torch
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
            folder.pass_over(f"{path}/{name}", "; ".join(damages), damaged)
