# SPDX-License-Identifier: Apache-2.0
"""Lets mosaicml-streaming import torchvision with torch's CPU build, for the reason in ../../loader/torchvision_support.py."""
import sys


class Declare:
    """Declares two operators before torchvision is imported."""

    library = None

    def find_spec(self, name, path, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch
            if torch.version.cuda is None:
                Declare.library = torch.library.Library("torchvision", "DEF")
                for operator in ("nms", "qnms"):
                    Declare.library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


sys.meta_path.insert(0, Declare())
