# SPDX-License-Identifier: Apache-2.0
"""What the daemon is to make of each image: struct recipe of image/recipe.h."""
from __future__ import annotations

import ctypes
from ctypes import c_double, c_float, c_uint32

IMAGE = 1                               # enum recipe_kind
WHOLE, RANDOM_BOX, MIDDLE = 0, 1, 2     # enum recipe_shape
FILTERS = {"bilinear": 2, "bicubic": 3}  # enum recipe_filter
TYPES = {"uint8": 0, "float32": 1, "float16": 2, "bfloat16": 3}  # enum recipe_type
ROWS, UNIT, NORMALISE, GREY = 1, 2, 4, 8  # enum recipe_flag
DAMAGE = {"error": 0, "skip": 1, "zero": 2}  # enum recipe_damage
MAX_SIDE = 16384


class Recipe(ctypes.Structure):
    """It can be copied and pickled."""

    _fields_ = [("kind", c_uint32), ("shape", c_uint32), ("width", c_uint32), ("height", c_uint32), ("shorter", c_uint32),
                ("filter", c_uint32), ("type", c_uint32), ("flags", c_uint32), ("damage", c_uint32), ("reserved", c_uint32),
                ("scale", c_double * 2), ("ratio", c_double * 2), ("flip_sideways", c_double), ("flip_upright", c_double),
                ("mean", c_float * 3), ("std", c_float * 3), ("brightness", c_double * 2), ("contrast", c_double * 2),
                ("saturation", c_double * 2), ("hue", c_double * 2), ("jitter", c_double), ("grey", c_double)]

    @property
    def dtype(self) -> str:
        """Of what comes out, by its name."""
        return next(name for name, number in TYPES.items() if number == self.type)

    @property
    def dimensions(self) -> tuple[int, int, int]:
        """Of what comes out of one image."""
        return (self.height, self.width, self.channels) if self.flags & ROWS else (self.channels, self.height, self.width)

    @property
    def channels(self) -> int:
        """Of what comes out."""
        return 1 if self.flags & GREY else 3
