# SPDX-License-Identifier: Apache-2.0
"""Codecs that the operator of dieseld has configured: shared objects that decode custom formats
(docs/how-to/codecs.md)."""
from __future__ import annotations

import ctypes
import errno
import os

from .. import errors, native
from ..transforms.declared import Transform
from .plan import DAEMON, WORKER, Plan, Step, flatten
from .recipe import Recipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..dataset import Dataset


class Codec(Transform):
    """See codec()."""

    def __init__(self, name: str, options: str = "") -> None:
        self.name, self.options = name, options
        for what, text, size in (("name", name, native.RECIPE_NAME_BYTES), ("options", options, native.RECIPE_OPTIONS_BYTES)):
            if not isinstance(text, str):
                raise TypeError(f"a codec's {what} must be a text, not {text!r}")
            if len(text.encode()) >= size or "\0" in text:
                raise ValueError(f"a codec's {what} must be a text of less than {size} bytes, without NUL")

    def __repr__(self) -> str:
        return f"codec({self.name!r}" + (f", {self.options!r})" if self.options else ")")


def codec(name: str, options: str = "") -> Codec:
    """For transform=: each sample is decoded in dieseld by the codec of this name, which its operator has loaded
    (`dieselctl status` lists them). options: a text that the codec understands. The result is one array of the type and
    shape that the codec declares. Further transforms may come after it, in diesel_loader.transforms.Compose: they run
    in Python."""
    return Codec(name, options)


def begins_with_codec(transform: Any) -> bool:
    """Returns True if the transform begins with a codec of the daemon."""
    return bool(transform) and isinstance(flatten(transform)[0], Codec)


def codec_plan(transform: Any, dataset: Dataset, why_not: str | None) -> Plan:
    """Returns the plan of a transform that begins with a codec. why_not: why dieseld cannot run any of it, or None.
    Raises ValueError, and the errors of Dataset."""
    first, *rest = flatten(transform)
    if why_not:
        raise ValueError(f"only dieseld can run {first}, and here it cannot: {why_not}")
    check_no_codec(rest)
    recipe = Recipe(kind=native.RECIPE_CODEC)
    recipe.codec.name, recipe.codec.options = first.name.encode(), first.options.encode()
    recipe.type = _output(dataset, recipe)
    steps = [Step(first, DAEMON, f"{recipe.dtype} {list(recipe.dimensions)}")]
    return Plan(steps + [Step(step, WORKER, "behind a codec") for step in rest], recipe, rest, "array")


def check_no_codec(steps: list[Any]) -> None:
    """Raises ValueError if a codec is among the steps: it decodes stored samples only, so it must come first."""
    for step in steps:
        if isinstance(step, Codec):
            raise ValueError(f"{step} decodes stored samples: it must be the first transform")


def _output(dataset, recipe):
    """Fills in the dimensions of the codec's output. Returns the output's type."""
    text, type_of = ctypes.create_string_buffer(native.ERROR_BYTES), native.c_uint32()

    def ask():
        return native.lib.diesel_codec_output(dataset.handle, native.byref(recipe.codec), native.byref(type_of), text, len(text))
    result = ask()
    if result == -errno.ECONNREFUSED and dataset.has_own_daemon:
        dataset.reopen()
        result = ask()
    if result < 0:
        said = os.fsdecode(text.value)
        raise ValueError(said) if result == -errno.ENOENT else errors.from_result(result, said)
    return type_of.value
