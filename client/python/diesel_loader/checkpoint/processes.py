# SPDX-License-Identifier: Apache-2.0
"""Whether the process that holds a folder or bucket still runs."""
from __future__ import annotations

import platform
from typing import Any


def began(pid: int) -> int | None:
    """Returns when the process began, in the kernel's ticks, or None if it has died. Raises OSError if it is gone."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def identity(trainer: int) -> dict[str, Any]:
    return {"host": platform.node(), "trainer": trainer, "since": began(trainer)}


def is_alive(holder: Any, pid: str = "trainer", since: str = "since") -> bool:
    """Returns True if that process certainly runs: on this machine, and it is no later one of the same number."""
    try:
        return holder["host"] == platform.node() and began(holder[pid]) == holder[since] is not None
    except (OSError, KeyError, IndexError, ValueError, TypeError):
        return False
