# SPDX-License-Identifier: Apache-2.0
"""The eight scenarios of the tuner's benchmarks, and the grid of static settings that each is swept over.

All read the bed's dataset (127.5 MiB, 96 KiB a sample, batches of 16) from a disk throttled to `mbps`. A phase has
the number of transform passes per sample (about 20 us each, in Python), the device's time for a step, and its own duration.
"""
from dataclasses import dataclass

from tuning.bed import DATASET_BYTES, MIB, Knobs

# Enough for the segments of a session's windows and its ready batches; nothing beyond them stays cached.
LEAST_CACHE = 48 * MIB
CACHE_STEPS = 3  # steps of the grid between the least and the full cache
FULL_CACHE = DATASET_BYTES + 96 * MIB  # enough for all of the dataset, and for batch slots


@dataclass(frozen=True)
class Phase:
    seconds: float
    passes: int
    device_ms: float
    mbps: float | None  # MB/s that the disk is limited to; None: not throttled


@dataclass(frozen=True)
class Neighbour:
    """A process that computes for `busy` of every `period` seconds."""
    busy: float
    period: float


@dataclass(frozen=True)
class Scenario:
    name: str
    phases: tuple
    transform: bool                  # Python work per sample; without any, client workers are never started
    limit_bytes: int = FULL_CACHE    # the operator's limit on the cache
    neighbour: Neighbour | None = None

    def caches(self):
        """Returns the cache sizes of the grid, largest first."""
        top, least = self.limit_bytes, min(LEAST_CACHE, self.limit_bytes)
        return [round(least + (top - least) * part / CACHE_STEPS) // MIB * MIB for part in range(CACHE_STEPS, -1, -1)]

    def default(self):
        """Returns the knobs of a user who sets nothing, without a tuner: the daemon's defaults within the limit, and the loader's (no
        client workers)."""
        return Knobs(self.limit_bytes, prefetch=8, daemon_workers=2, client_workers=0)


FIRST, STEADY = 22.0, 26.0

SCENARIOS = {s.name: s for s in (
    Scenario("fetch", (Phase(STEADY, 0, 20, 32),), transform=False),
    Scenario("prep", (Phase(STEADY, 60, 4, None),), transform=True),
    Scenario("both", (Phase(STEADY, 40, 8, 40),), transform=True),
    Scenario("device", (Phase(STEADY, 4, 60, 40),), transform=True),
    Scenario("small-memory", (Phase(STEADY, 0, 20, 32),), transform=False, limit_bytes=96 * MIB),
    Scenario("slow-then-fast", (Phase(FIRST, 0, 80, 32), Phase(STEADY, 0, 20, 32)), transform=False),
    Scenario("phase-change", (Phase(FIRST, 1, 16, 64), Phase(STEADY, 60, 16, 64)), transform=True),
    Scenario("neighbour", (Phase(STEADY, 30, 24, 64),), transform=True, neighbour=Neighbour(0.8, 2)),
)}

PREFETCH = (2, 8)
DAEMON_WORKERS = (1, 2)
CLIENT_WORKERS = (0, 1, 2, 3)
