# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of diesel_loader.torch. It must be imported first: it skips where PyTorch or its companions are missing, and takes a
real dieseld and `dieselctl pack` from the benchmarks' modules."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
import support  # noqa: E402
from serving import Daemon, grouped, pack  # noqa: E402

__all__ = ["Daemon", "grouped", "pack", "support"]

try:
    import numpy  # noqa: F401
    import PIL  # noqa: F401
    import torch  # noqa: F401

    import diesel_loader.torch  # noqa: F401
except ImportError as error:
    support.skip(f"needs {error.name}")
