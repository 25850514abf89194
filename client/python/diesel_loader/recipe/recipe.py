# SPDX-License-Identifier: Apache-2.0
"""Recipe by which the daemon converts each sample: struct recipe of image/diesel_recipe.h."""
from __future__ import annotations

from .. import native
FILTERS = {"bilinear": native.RECIPE_BILINEAR, "bicubic": native.RECIPE_BICUBIC}
TYPES = {name: getattr(native, f"RECIPE_{name.upper()}") for name in ("uint8", "float32", "float16", "bfloat16")}
STORED = {**TYPES, **{name: getattr(native, f"RECIPE_{name.upper()}") for name in (
    "int8", "int16", "int32", "int64", "float64", "bool", "uint16", "uint32", "uint64")}}
LAYOUTS = {None: native.RECIPE_PLAIN, "HWC": native.RECIPE_HWC, "CHW": native.RECIPE_CHW, "HW": native.RECIPE_HW}
DAMAGE = {"error": native.RECIPE_DAMAGE_ERROR, "skip": native.RECIPE_DAMAGE_SKIP, "zero": native.RECIPE_DAMAGE_ZERO}


class NotUnderstood(Exception):
    """Raised with the reason if a step cannot be part of a recipe."""


class Recipe(native.Recipe):
    """A recipe that can be copied and pickled."""

    @property
    def letters(self) -> str:
        """Layout of an array: "HWC", "CHW", "HW", or "" for none."""
        return next(name or "" for name, number in LAYOUTS.items() if number == self.tensor.layout)

    @property
    def dtype(self) -> str:
        """Name of the data type of the result."""
        return next(name for name, number in STORED.items() if number == self.type)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Shape of the result of one sample."""
        if self.kind == native.RECIPE_CODEC:
            return tuple(self.codec.dimensions[:self.codec.n_dimensions])
        if self.kind != native.RECIPE_IMAGE:
            return self._array_dimensions()
        return (self.height, self.width, self.channels) if self.flags & native.RECIPE_ROWS else (self.channels, self.height, self.width)

    @property
    def has_channels(self) -> bool:
        """True if one dimension is known to be the channels."""
        return self.kind == native.RECIPE_IMAGE or "C" in self.letters

    def _array_dimensions(self) -> tuple[int, ...]:
        letters, sides = self.letters, list(self.tensor.dimensions[:self.tensor.n_dimensions])
        if self.shape != native.RECIPE_WHOLE:
            sides[letters.index("H")], sides[letters.index("W")] = self.height, self.width
        if "C" not in letters:
            return tuple(sides)
        return tuple(sides[letters.index(letter)] for letter in ("HWC" if self.flags & native.RECIPE_ROWS else "CHW"))

    @property
    def channels(self) -> int:
        """Number of channels of the result of an image."""
        return 1 if self.flags & native.RECIPE_GREY else 3
