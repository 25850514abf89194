# SPDX-License-Identifier: Apache-2.0
"""Determines the rank of this process and the number of ranks. Pure: all facts are arguments.

environment: a mapping as os.environ. group: (rank, world size) of torch.distributed's default group or of
jax.distributed, or None while neither is initialised. The first source that has a rank decides. The order is the group,
then RANK and WORLD_SIZE (torchrun), then LOCAL_RANK and NODE_RANK or GROUP_RANK with WORLD_SIZE (Lightning's ddp, which
sets no RANK). The last source is SLURM_PROCID with a WORLD_SIZE that is srun's number of tasks. Otherwise the process
is alone. Sources that contradict each other, or that show several ranks without the rank of this process, raise
ValueError: a wrong guess would silently repeat or omit samples.
"""

REMEDY = "call torch.distributed.init_process_group() before iterating, or pass rank and world_size"


def find(environment, group):
    """Returns (rank, world size)."""
    known = _Numbers(environment)
    if group:
        _agree("RANK", known.RANK, "rank", group[0])
        _agree("WORLD_SIZE", known.WORLD_SIZE, "world size", group[1])
        return group
    if known.WORLD_SIZE is None:
        return _alone(known)
    if not known.WORLD_SIZE >= 1:
        raise ValueError(f"WORLD_SIZE is {known.WORLD_SIZE}, not a number of ranks: {REMEDY}")
    rank = known.RANK if known.RANK is not None else _rank(known)
    if not 0 <= rank < known.WORLD_SIZE:
        raise ValueError(f"rank {rank} is not within world size {known.WORLD_SIZE}: {REMEDY}")
    if known.LOCAL_WORLD_SIZE == known.WORLD_SIZE and known.LOCAL_RANK not in (None, rank):
        raise ValueError(f"LOCAL_RANK is {known.LOCAL_RANK}, but RANK is {rank}, and all ranks are on one node: {REMEDY}")
    return rank, known.WORLD_SIZE


def world_size(environment, group):
    """Returns only the world size, which may be known before the rank."""
    return group[1] if group else _Numbers(environment).WORLD_SIZE or 1


class _Numbers:
    """The launchers' variables as attributes: integers, or None where they are not set."""

    def __init__(self, environment):
        self._environment = environment

    def __getattr__(self, name):
        text = self._environment.get(name)
        try:
            return int(text) if text else None
        except ValueError:
            raise ValueError(f"{name} must be a number, not {text!r}: {REMEDY}") from None


def _agree(variable, value, name, truth):
    if value not in (None, truth):
        raise ValueError(f"{variable} is {value}, but the process group's {name} is {truth}: correct the variable, or "
                         "pass rank and world_size")


def _alone(known):
    """Returns (0, 1), since without WORLD_SIZE the process is alone. ValueError: other variables show that there are
    more ranks."""
    for name in ("RANK", "LOCAL_RANK"):
        if getattr(known, name):
            raise ValueError(f"{name} is {getattr(known, name)}, but WORLD_SIZE is not set: {REMEDY}")
    tasks = known.SLURM_STEP_NUM_TASKS
    if known.RANK is None and (tasks or 1) > 1:
        raise ValueError(f"srun started {tasks} tasks, which may or may not be ranks of one job: {REMEDY} (0 and 1 if "
                         "each task is a job of its own)")
    return 0, 1


def _rank(known):
    """Returns the rank if WORLD_SIZE is set and RANK is not."""
    world = known.WORLD_SIZE
    if world == 1:
        return 0
    if known.LOCAL_RANK is not None:
        return _rank_on_node(known)
    if known.SLURM_PROCID is not None and known.SLURM_STEP_NUM_TASKS == world:
        return known.SLURM_PROCID
    raise ValueError(f"WORLD_SIZE is {world}, but no variable such as RANK or LOCAL_RANK gives the rank of this process: {REMEDY}")


def _rank_on_node(known):
    node = known.NODE_RANK if known.NODE_RANK is not None else known.GROUP_RANK
    per_node = known.LOCAL_WORLD_SIZE
    if node is None and per_node != known.WORLD_SIZE:
        raise ValueError(f"WORLD_SIZE is {known.WORLD_SIZE} and LOCAL_RANK {known.LOCAL_RANK}, but neither RANK nor NODE_RANK "
                         f"is set: {REMEDY}")
    if node and per_node is None:
        raise ValueError(f"NODE_RANK is {node}, but neither RANK nor LOCAL_WORLD_SIZE is set: {REMEDY}")
    return (node or 0) * (per_node or 0) + known.LOCAL_RANK
