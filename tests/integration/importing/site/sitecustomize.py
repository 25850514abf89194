# SPDX-License-Identifier: Apache-2.0
"""Leaves out the parts of mosaicml-streaming that MDS shards do not need, its own loader and its data sets of pictures and texts. These
import transformers and torchvision, which takes seconds in each process and fails with torch's CPU build (torchvision_support.py)."""
import sys
import types

for name in ("multimodal", "text", "vision", "base.dataloader"):
    sys.modules[f"streaming.{name}"] = types.ModuleType(f"streaming.{name}")
sys.modules["streaming.base.dataloader"].StreamingDataLoader = None
