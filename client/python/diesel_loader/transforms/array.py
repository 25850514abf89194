# SPDX-License-Identifier: Apache-2.0
"""Transforms for samples that are arrays of numbers."""
from __future__ import annotations

import math

from .. import native
from ..recipe.recipe import LAYOUTS, STORED
from .declared import Transform, dtype_name, whole
from .image import height_and_width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class _From(Transform):
    """layout: the meaning of the dimensions, "HWC" (height, width, channels), "CHW" or "HW"; None: crops and flips are not supported."""

    def __init__(self, dtype: Any, shape: Sequence[int] | None, layout: str | None) -> None:
        if layout not in LAYOUTS:
            raise ValueError(f'layout must be "HWC", "CHW", "HW" or None, not {layout!r}')
        self.dtype = None if dtype is None else dtype_name(dtype, list(STORED))
        self.shape = None if shape is None else self._shape(shape)
        self.layout = layout
        if layout and self.shape is not None and len(layout) != len(self.shape):
            raise ValueError(f"layout {layout!r} has {len(layout)} dimensions, but shape has {len(self.shape)}: {shape!r}")

    @staticmethod
    def _shape(shape):
        try:
            sides = tuple(whole("shape", side, 1, native.RECIPE_TENSOR_BYTES) for side in shape)
        except TypeError:
            sides = (0,)
        if len(sides) > native.RECIPE_TENSOR_DIMENSIONS or not 1 <= math.prod(sides) <= native.RECIPE_TENSOR_BYTES:
            raise ValueError(f"shape must be at most {native.RECIPE_TENSOR_DIMENSIONS} integers of at least 1, and of at most 1 GiB, not "
                             f"{shape!r}")
        return sides


class FromNumpy(_From):
    """Each sample is a .npy file, as numpy.save() writes them: versions 1 to 3, integers, bool, float16, float32 or float64, in any
    order of bytes and dimensions. Comes first.

    Samples have one dtype and one shape: the given ones, or those of the dataset's first sample. shape is a
    tuple of sides. If RandomCrop or CenterCrop follows, height and width may differ, unless shape is given. layout: as for FromBytes. A
    sample that has another dtype or shape, or Python objects, counts as damaged (damaged= of the loader), and its path is logged. The
    result is [*shape] of that dtype, in native byte order."""

    def __init__(self, layout: str | None = None, dtype: Any = None, shape: Sequence[int] | None = None) -> None:
        if (dtype is None) != (shape is None):
            raise ValueError("give FromNumpy both dtype and shape, or neither")
        super().__init__(dtype, shape, layout)


class FromBytes(_From):
    """Each sample consists of the bytes of an array, without a header. Must come first.

    dtype: "uint8", "int16", "float32", ..., or such a type of NumPy's, JAX's or torch's; little-endian. shape: its sides, the last
    one fastest (C order); () is a single number. layout: the meaning of the dimensions, for crops, flips and channels: "HWC" (height,
    width, channels), "CHW" or "HW"; None: no such meaning. A sample of another length counts as damaged, and its path is logged."""

    def __init__(self, dtype: Any, shape: Sequence[int], layout: str | None = None) -> None:
        if getattr(dtype, "byteorder", "=") == ">":
            raise ValueError("FromBytes takes little-endian numbers: save big-endian numbers as .npy, for FromNumpy")
        if dtype is None or shape is None:
            raise ValueError("FromBytes needs a dtype and a shape")
        super().__init__(dtype, shape, layout)


class RandomCrop(Transform):
    """Crops an array to size, at a position drawn uniformly, which depends only on (seed, epoch, sample). size: one number for a square
    or (height, width), no more than the array has. The array's layout must be known."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = height_and_width(size)
