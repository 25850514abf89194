# SPDX-License-Identifier: Apache-2.0
"""The memory that the control groups of this process leave it. Beyond that the kernel kills it, however much the machine has."""
from __future__ import annotations

import contextlib
import math
import os

ROOT = "/sys/fs/cgroup"
# (folder of the hierarchy, limit, usage, statistics that are given back under pressure)
_V2 = ("", "memory.max", "memory.current", ("inactive_file", "active_file"))
_V1 = ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))


def free_bytes(root: str = ROOT, own: str = "/proc/self/cgroup") -> float:
    """Returns what the tightest group on the way to the root leaves, or infinity without limits."""
    free = math.inf
    with contextlib.suppress(OSError), open(own, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            number, controllers, path = line.rstrip("\n").split(":", 2)
            if number == "0" or "memory" in controllers.split(","):
                hierarchy, *names = _V2 if number == "0" else _V1
                top = os.path.join(root, hierarchy)
                parts = [part for part in path.split("/") if part not in ("", "..")]
                for n in range(len(parts), -1, -1):   # a container may see its own group as the root
                    free = min(free, _left(os.path.join(top, *parts[:n]), *names))
    return free


def _left(group, limit, usage, given_back):
    try:
        most = int(_read(group, limit))
        held = int(_read(group, usage))
        files = sum(int(line.split()[1]) for line in _read(group, "memory.stat").splitlines() if line.split()[0] in given_back)
    except (OSError, ValueError):   # no such group here, or "max"
        return math.inf
    return max(0, most - held + min(files, held))


def _read(group, name):
    with open(os.path.join(group, name), encoding="ascii") as file:
        return file.read()
