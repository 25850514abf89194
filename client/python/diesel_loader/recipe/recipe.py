# SPDX-License-Identifier: Apache-2.0
"""What the daemon is to make of each sample: struct recipe of image/recipe.h."""
from __future__ import annotations

import ctypes
from ctypes import c_char, c_double, c_float, c_uint32

IMAGE, CODEC, NUMPY, BYTES = 1, 2, 3, 4  # enum recipe_kind
WHOLE, RANDOM_BOX, MIDDLE, RANDOM_CROP = 0, 1, 2, 3  # enum recipe_shape
FILTERS = {"bilinear": 2, "bicubic": 3}  # enum recipe_filter
TYPES = {"uint8": 0, "float32": 1, "float16": 2, "bfloat16": 3}  # enum recipe_type
STORED = {**TYPES, "int8": 4, "int16": 5, "int32": 6, "int64": 7, "float64": 8, "bool": 9, "uint16": 10, "uint32": 11, "uint64": 12}
LAYOUTS = {None: 0, "HWC": 1, "CHW": 2, "HW": 3}  # enum recipe_layout
ROWS, UNIT, NORMALISE, GREY, TENSOR_COLOURS = 1, 2, 4, 8, 16  # enum recipe_flag
DAMAGE = {"error": 0, "skip": 1, "zero": 2}  # enum recipe_damage
MAX_SIDE = 16384
MAX_DIMENSIONS, MAX_CHANNELS, MAX_BYTES = 8, 16, 1 << 30  # RECIPE_TENSOR_*


class NotUnderstood(Exception):
    """Why a step cannot be part of a recipe."""


class Tensor(ctypes.Structure):
    """struct recipe_tensor."""

    _fields_ = [("stored", c_uint32), ("layout", c_uint32), ("n_dimensions", c_uint32), ("dimensions", c_uint32 * MAX_DIMENSIONS),
                ("n_means", c_uint32), ("mean", c_float * MAX_CHANNELS), ("std", c_float * MAX_CHANNELS)]

    @property
    def letters(self) -> str:
        """The layout: "HWC", "CHW", "HW", or nothing."""
        return next(name or "" for name, number in LAYOUTS.items() if number == self.layout)


NAME_BYTES, OPTIONS_BYTES = 32, 448     # with the byte that ends them


class RecipeCodec(ctypes.Structure):
    """struct recipe_codec."""

    _fields_ = [("name", c_char * NAME_BYTES), ("options", c_char * OPTIONS_BYTES), ("n_dimensions", c_uint32),
                ("dimensions", c_uint32 * 7)]


class Recipe(ctypes.Structure):
    """It can be copied and pickled."""

    _fields_ = [("kind", c_uint32), ("shape", c_uint32), ("width", c_uint32), ("height", c_uint32), ("shorter", c_uint32),
                ("filter", c_uint32), ("type", c_uint32), ("flags", c_uint32), ("damage", c_uint32), ("reserved", c_uint32),
                ("scale", c_double * 2), ("ratio", c_double * 2), ("flip_sideways", c_double), ("flip_upright", c_double),
                ("mean", c_float * 3), ("std", c_float * 3), ("brightness", c_double * 2), ("contrast", c_double * 2),
                ("saturation", c_double * 2), ("hue", c_double * 2), ("jitter", c_double), ("grey", c_double),
                ("tensor", Tensor), ("codec", RecipeCodec)]

    @property
    def dtype(self) -> str:
        """Of what comes out, by its name."""
        return next(name for name, number in STORED.items() if number == self.type)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Of what comes out of one sample."""
        if self.kind == CODEC:
            return tuple(self.codec.dimensions[:self.codec.n_dimensions])
        if self.kind != IMAGE:
            return self._array_dimensions()
        return (self.height, self.width, self.channels) if self.flags & ROWS else (self.channels, self.height, self.width)

    @property
    def has_channels(self) -> bool:
        """True if one dimension is known to be the channels."""
        return self.kind == IMAGE or "C" in self.tensor.letters

    def _array_dimensions(self) -> tuple[int, ...]:
        letters, sides = self.tensor.letters, list(self.tensor.dimensions[:self.tensor.n_dimensions])
        if self.shape != WHOLE:
            sides[letters.index("H")], sides[letters.index("W")] = self.height, self.width
        if "C" not in letters:
            return tuple(sides)
        return tuple(sides[letters.index(letter)] for letter in ("HWC" if self.flags & ROWS else "CHW"))

    @property
    def channels(self) -> int:
        """Of what comes out of an image."""
        return 1 if self.flags & GREY else 3
