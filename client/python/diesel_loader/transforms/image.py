# SPDX-License-Identifier: Apache-2.0
"""Transforms of images. The first transform with a size determines which part of the image is decoded, and at which size.

Between the steps a sample is RGB, uint8 [height, width, 3] until ToTensor makes it [3, height, width].
"""
from __future__ import annotations

import math

from .. import native
from ..recipe.recipe import FILTERS, TYPES
from .declared import Transform, dtype_name, interval, number_within, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MOST = 1e6


def height_and_width(size: Any) -> tuple[int, int]:
    """Returns (height, width). size: both, or one number for a square."""
    sides = list(size) if isinstance(size, (list, tuple)) else [size]
    if len(sides) not in (1, 2):
        raise ValueError(f"size must be a number of pixels or (height, width), not {size!r}")
    sides = [whole("size", side, 1, native.RECIPE_MAX_SIDE) for side in sides]
    return sides[0], sides[-1]


class _Scaling(Transform):
    """Transforms that resize, always with antialiasing."""

    antialias = True

    def __init__(self, size: Any, interpolation: str) -> None:
        self.size = size
        if interpolation not in FILTERS:
            raise ValueError(f"interpolation must be {' or '.join(FILTERS)}, not {interpolation!r}")
        self.interpolation = interpolation


class RandomResizedCrop(_Scaling):
    """Crops a random box of the image, and resizes it to size, in pixels: one number for a square, or (height, width).

    scale: of how much of the image's area. ratio: of width to height; its logarithm is drawn uniformly. If ten draws give no box within
    the image, the box is the largest centred one with an allowed ratio, as in torchvision. The draw depends only on (seed, epoch,
    sample). interpolation: "bilinear" or "bicubic"."""

    def __init__(self, size: int | Sequence[int], scale: Sequence[float] = (0.08, 1.0),
                 ratio: Sequence[float] = (3 / 4, 4 / 3), interpolation: str = "bilinear") -> None:
        super().__init__(height_and_width(size), interpolation)
        self.scale, self.ratio = interval("scale", scale, 0, MOST), interval("ratio", ratio, 1 / MOST, MOST)
        if not self.scale[1]:
            raise ValueError(f"the upper bound of scale must be above 0, not {scale!r}")


class Resize(_Scaling):
    """Resizes the whole image. size: (height, width) in pixels, or the length of the shorter side; then a crop must
    follow, since samples of a batch have one shape. interpolation: "bilinear" or "bicubic"."""

    def __init__(self, size: int | Sequence[int], interpolation: str = "bilinear") -> None:
        sides = height_and_width(size)
        super().__init__(sides if isinstance(size, (list, tuple)) and len(size) == 2 else sides[0], interpolation)


class CenterCrop(Transform):
    """Crops the middle of an array, or of an image after Resize with one number. size, in pixels: one number for a square, or (height,
    width); not larger than the input."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = height_and_width(size)


class _Flip(Transform):
    def __init__(self, p: float = 0.5) -> None:
        self.p = number_within("p", p, 0, 1)


class RandomHorizontalFlip(_Flip):
    """Mirrors left to right, with probability p. The draw depends only on (seed, epoch, sample)."""


class RandomVerticalFlip(_Flip):
    """Mirrors top to bottom, with probability p. The draw depends only on (seed, epoch, sample)."""


class ToTensor(Transform):
    """Converts to the numbers for training: float32 from 0 to 1 [channels, height, width], like torchvision's ToTensor.

    dtype: "uint8", "float32", "float16" or "bfloat16", or such a type of NumPy's, JAX's or torch's; bfloat16 of
    diesel_loader.numpy needs the package ml_dtypes, which JAX has. scale: maps 255 to 1, and for arrays of other integer types their
    largest value to 1. It has no effect on a uint8 result. layout: "CHW", or "HWC": [height, width, channels]."""

    def __init__(self, dtype: Any = "float32", scale: bool = True, layout: str = "CHW") -> None:
        self.dtype = dtype_name(dtype, list(TYPES))
        self.scale = bool(scale) and self.dtype != "uint8"
        if layout not in ("CHW", "HWC"):
            raise ValueError(f'layout must be "CHW" or "HWC", not {layout!r}')
        self.layout = layout


class ToDtype(Transform):
    """Converts to another dtype, in the same layout. dtype: "float32", "float16" or "bfloat16", as for ToTensor; for integer arrays also
    "uint8", modulo 256. scale: maps the largest value of the integer type to 1, such as 255 of uint8."""

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        self.dtype, self.scale = dtype_name(dtype, list(TYPES)), bool(scale)


class Normalize(Transform):
    """(value - mean) / std, in float32. mean, std: a number for each channel (red, green, blue); std above 0. ToTensor
    or ToDtype with float32 must come before; ToDtype("float16") may follow. For arrays, one number for all, or one for
    each of up to 16 channels."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean, self.std = [float(v) for v in mean], [float(v) for v in std]
        n = len(self.mean)
        if n != len(self.std) or not 1 <= n <= native.RECIPE_TENSOR_CHANNELS or not all(map(math.isfinite, self.mean + self.std)) or min(self.std) <= 0:
            raise ValueError(f"mean and std must be 1 to {native.RECIPE_TENSOR_CHANNELS} numbers each, std above 0, not {mean!r} and {std!r}")
