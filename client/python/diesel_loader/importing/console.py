# SPDX-License-Identifier: Apache-2.0
"""Output for a terminal: a progress bar as dieselctl's own, and quantities."""
from __future__ import annotations

import re
import sys
import time

from .base import Refused

CELLS, REDRAW_S = 30, 0.1
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(n_bytes: float) -> str:
    unit = 0
    while n_bytes >= 1024 and unit < len(UNITS) - 1:
        n_bytes, unit = n_bytes / 1024, unit + 1
    return f"{n_bytes:.0f} {UNITS[unit]}" if unit == 0 or n_bytes >= 10 else f"{n_bytes:.1f} {UNITS[unit]}"


def count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def parse_size(text: str, option: str) -> int:
    found = re.fullmatch(r"(\d+)([KMGT]?)(?:i?B)?", text)
    if not found:
        raise Refused(f"invalid {option} '{text}': must be a size such as 64M or 4G")
    return int(found[1]) << (10 * " KMGT".index(found[2] or " "))


class Progress:
    """A bar on standard error; nothing unless that is a terminal."""

    def __init__(self, what: str) -> None:
        self._what, self._start, self._drawn = what, time.monotonic(), 0.0
        self._visible = sys.stderr.isatty()

    def show(self, done: float, n_bytes: int) -> None:
        """done: share of the work, 0 to 1."""
        now = time.monotonic()
        if not self._visible or now - self._drawn < REDRAW_S:
            return
        self._drawn = now
        elapsed, cells = now - self._start, int(min(done, 1) * CELLS)
        left = f"  {elapsed * (1 - done) / done:.0f} s left" if done > 0 else ""
        print(f"\r\033[K{self._what} [{'#' * cells}{'.' * (CELLS - cells)}] {100 * min(done, 1):3.0f} %  {size(n_bytes)}  "
              f"{size(n_bytes / max(elapsed, 1e-9))}/s{left}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._visible and self._drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
