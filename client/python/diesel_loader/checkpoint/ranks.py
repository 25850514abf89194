# SPDX-License-Identifier: Apache-2.0
"""Agreement between ranks. With one rank nothing is sent, and torch.distributed may be missing."""
from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import folder

if TYPE_CHECKING:
    from .place import Folder, InBucket


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


def together(work: Callable[[], Any], what: str) -> Any:
    """Returns the result of work(). An exception on one rank is one on all: the others would wait for that rank for ever. what: names
    the work for them. All ranks call this."""
    result, own = None, None
    try:
        result = work()
    except Exception as error:   # noqa: BLE001
        own = error
    failed = int(largest(-1 if own is None else rank())[0])
    try:
        if own is not None:
            raise own
    finally:
        del own
    if failed >= 0:
        raise RuntimeError(f"rank {failed} could not {what}: see its own error")
    return result


def of_first(function: Callable[[], Any]) -> Any:
    """Calls the function on the first rank only, and returns its result on all. An OSError of it is raised on all. All ranks call
    this."""
    if size() == 1:
        return function()
    import torch
    said: list[Any] = [None, None]
    if rank() == 0:
        try:
            said[0] = function()
        except OSError as error:
            said[1] = OSError(error.errno, error.strerror, error.filename) if error.errno else OSError(str(error))
    torch.distributed.broadcast_object_list(said, src=0)
    if said[1] is not None:
        raise said.pop()
    return said[0]


def agreed_whole(place: Folder | InBucket, names: list[str], damaged: list[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields those of the checkpoints that are whole for all ranks, the last first. Each rank reads its share of the files. damaged:
    gets on rank 0 the names of those that are. names: the same on all ranks. Raises OSError on all if a bucket does not answer one."""
    if size() == 1:
        yield from folder.whole(place, names, damaged)
        return
    import torch
    for name in reversed(names):
        about, damage, failure = None, None, None
        try:
            about, damage = place.check(name, rank(), size())
        except Exception as error:   # noqa: BLE001  such as one of memory
            failure = error
        said: list[Any] = [None] * size()
        torch.distributed.all_gather_object(said, (damage, about and about["number"], about and about["written"], failure and (getattr(failure, "strerror", None) or str(failure) or type(failure).__name__)))
        try:
            if failure is not None:
                raise failure
        finally:
            del failure
        for number, (*_, why) in enumerate(said):
            if why:
                raise OSError(f"rank {number}: {why}")
        damages = [f"rank {number}: {why}" for number, (why, *_) in enumerate(said) if why]
        if not damages and len(set(said)) > 1:
            damages = ["the ranks see different ones of that name"]
        if about is not None and not damages:
            yield f"{place.path}/{name}", about
        elif rank() == 0:
            folder.pass_over(f"{place.path}/{name}", "; ".join(damages), damaged)
