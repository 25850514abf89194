# SPDX-License-Identifier: Apache-2.0
"""Decides which of diesel_loader.transforms dieseld runs on arrays, as plan.py does for images."""
from __future__ import annotations

import ast

from .. import native
from ..transforms import array, image
from .recipe import LAYOUTS, STORED, TYPES
from .recipe import NotUnderstood, Recipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FLOATING = ("float16", "bfloat16", "float32", "float64")
MAX_HEADER = 10000  # NumPy's
KINDS = {"b": "bool", "u": "uint", "i": "int", "f": "float"}  # type names by the kind character of a .npy file's dtype


def is_of_arrays(step: Any) -> bool:
    """Returns True if the step declares that samples are arrays."""
    return type(step) in (array.FromNumpy, array.FromBytes)


def npy_header(data: bytes) -> tuple[str, tuple[int, ...]]:
    """Returns (dtype, shape) of a .npy file. Raises NotUnderstood."""
    wide = data[6:7] != b"\x01"
    begin = 12 if wide else 10
    length = int.from_bytes(data[8:begin], "little")
    if data[:6] != b"\x93NUMPY" or len(data) < begin + length or length > MAX_HEADER:
        raise NotUnderstood("is not a .npy file, is truncated, or has a header that is too long")
    try:
        header = ast.literal_eval(data[begin:begin + length].decode().strip())
        kind, shape = header["descr"], tuple(header["shape"])
        if isinstance(kind, str) and "O" in kind:
            raise NotUnderstood("is an array of Python objects (dtype object): save it as an array of numbers")
        name = kind if not isinstance(kind, str) or kind[1:2] not in KINDS else KINDS[kind[1]] + (
            "" if kind[1] == "b" else str(8 * int(kind[2:])))
        is_shape = len(shape) <= native.RECIPE_TENSOR_DIMENSIONS and all(type(side) is int and side >= 0 for side in shape)
    except (KeyError, SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        raise NotUnderstood("is a .npy file with a damaged header") from None
    if not isinstance(name, str) or name not in STORED or not is_shape:
        raise NotUnderstood(f"is an array of type {kind!r} and shape {shape!r}: dieseld supports integers, bool, float16, "
                            f"float32 and float64, in at most {native.RECIPE_TENSOR_DIMENSIONS} dimensions")
    if 0 in shape:
        raise NotUnderstood(f"is an empty array, with shape {shape!r}")
    return name, shape


class ArrayBuilder:
    """Adds one step after another to the recipe. first: a function that returns path and bytes of a sample."""

    kind = "array"

    def __init__(self, first: Callable[[], tuple[str, bytes]] | None) -> None:
        self.recipe = Recipe()
        self.has_size = False
        self.note = ""            # remark on the last step
        self._first = first
        self._letters = ""        # the layout
        self._any_side = False    # height and width are those of the first sample; others may differ

    def take(self, step: Any) -> None:
        """Raises NotUnderstood."""
        self.note = ""
        method = self.STEPS.get(type(step))
        if method is None:
            raise NotUnderstood("dieseld does not support it for arrays")
        method(self, step)

    def _from(self, step):
        if self.has_size:
            raise NotUnderstood("it must be the first transform, and appear only once")
        dtype, shape = step.dtype, step.shape
        if shape is None:
            path, data = self._first()
            try:
                dtype, shape = npy_header(data)
            except NotUnderstood as error:
                raise NotUnderstood(f"the first sample, {path}, {error}") from None
            self._any_side = True
            self.note = f"{dtype} {list(shape)}, as {path}"
        if step.layout and len(step.layout) != len(shape):
            raise NotUnderstood(f"layout {step.layout!r} has {len(step.layout)} dimensions, but the arrays have shape {shape}")
        self._letters = step.layout or ""
        recipe, tensor = self.recipe, self.recipe.tensor
        recipe.kind, recipe.shape = native.RECIPE_NUMPY if type(step) is array.FromNumpy else native.RECIPE_BYTES, native.RECIPE_WHOLE
        recipe.type = tensor.stored = STORED[dtype]
        recipe.flags = native.RECIPE_ROWS if step.layout == "HWC" else 0
        tensor.layout, tensor.n_dimensions = LAYOUTS[step.layout], len(shape)
        tensor.dimensions[:len(shape)] = shape
        self.has_size = True

    def _needs(self, letter, what):
        """Returns the dimension with this letter in the layout."""
        if letter not in self._letters:
            raise NotUnderstood(f"the layout does not name the dimension of the {what}: give "
                                f"{'FromNumpy' if self.recipe.kind == native.RECIPE_NUMPY else 'FromBytes'} "
                                "a layout that does")
        return self._letters.index(letter)

    def _crop(self, step):
        recipe, sides = self.recipe, self.recipe.tensor.dimensions
        row, column = self._needs("H", "height"), self._needs("W", "width")
        if recipe.shape != native.RECIPE_WHOLE:
            raise NotUnderstood("dieseld crops once")
        height, width = step.size
        if self._any_side:
            sides[row] = sides[column] = 0
        elif height > sides[row] or width > sides[column]:
            raise NotUnderstood(f"the arrays are too small: {sides[row]} x {sides[column]}")
        recipe.shape = native.RECIPE_RANDOM_CROP if type(step) is array.RandomCrop else native.RECIPE_MIDDLE
        recipe.height, recipe.width = height, width

    def _flip(self, step):
        self._needs("H", "height")
        name = "flip_sideways" if type(step) is image.RandomHorizontalFlip else "flip_upright"
        if getattr(self.recipe, name):
            raise NotUnderstood("dieseld flips once")
        setattr(self.recipe, name, step.p)

    def _to(self, name, scale):
        recipe, now = self.recipe, self.recipe.dtype
        stored = next(known for known, number in STORED.items() if number == recipe.tensor.stored)
        is_stored = recipe.type == recipe.tensor.stored and not recipe.flags & native.RECIPE_NORMALISE
        can = name in FLOATING if is_stored else now == "float32" and name in FLOATING
        if is_stored and name == "uint8":
            can = stored not in FLOATING and not scale
        if name == now and not (is_stored and scale):
            return
        if not can and name != now:
            raise NotUnderstood(f"dieseld cannot convert {now} to {name}" + (", scaled" if scale and name == "uint8" else ""))
        recipe.type = TYPES[name]
        if is_stored and scale and name in FLOATING and stored not in (*FLOATING, "bool"):
            recipe.flags |= native.RECIPE_UNIT

    def _to_tensor(self, step):
        self._needs("C", "channels")
        self._to(step.dtype, step.scale)
        self.recipe.flags = (self.recipe.flags & ~native.RECIPE_ROWS) | (native.RECIPE_ROWS if step.layout == "HWC" else 0)

    def _to_dtype(self, step):
        self._to(step.dtype, step.scale)

    def _normalize(self, step):
        recipe, n = self.recipe, len(step.mean)
        if recipe.dtype != "float32" or recipe.flags & native.RECIPE_NORMALISE:
            raise NotUnderstood("dieseld can normalise only float32 values, and only once")
        if n > 1:
            channels = recipe.tensor.dimensions[self._needs("C", "channels")]
            if n != channels:
                raise NotUnderstood(f"its mean and std have {n} channels, but the arrays have {channels}")
        recipe.flags |= native.RECIPE_NORMALISE
        recipe.tensor.n_means = n
        recipe.tensor.mean[:n], recipe.tensor.std[:n] = step.mean, step.std

    STEPS = {array.FromNumpy: _from, array.FromBytes: _from, array.RandomCrop: _crop, image.CenterCrop: _crop,
             image.RandomHorizontalFlip: _flip, image.RandomVerticalFlip: _flip, image.ToTensor: _to_tensor,
             image.ToDtype: _to_dtype, image.Normalize: _normalize}
