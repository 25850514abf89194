# SPDX-License-Identifier: Apache-2.0
"""torchvision's transforms. PyPI has no torchvision for torch's CPU build, but the one for GPUs, whose transforms are Python. Its import
needs two operators of detection models from its compiled part. Stand-ins here declare them, which nothing calls."""
import importlib
import sys

import support
import torch

_library = None


def _declare():
    global _library
    _library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


try:
    importlib.import_module("torchvision")
except ImportError as error:
    support.skip(f"needs {error.name}")
except RuntimeError:
    for module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[module]
    _declare()

from torchvision import transforms as v1  # noqa: E402

try:
    from torchvision.transforms import v2
except ImportError:
    v2 = None

__all__ = ["v1", "v2"]
