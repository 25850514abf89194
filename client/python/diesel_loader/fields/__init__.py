# SPDX-License-Identifier: Apache-2.0
"""Samples of several fields: decoding, encoding, and the batches that loaders make of them."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


def dtype_of(values: Sequence[Any]) -> str | None:
    """Returns the name of the dtype for a list of Python numbers. None: they are none, or too large."""
    kinds = set(map(type, values))
    if kinds == {bool}:
        return "bool"
    if kinds == {int}:
        return "int64" if all(-1 << 63 <= value < 1 << 63 for value in values) else None
    return "float64" if kinds and kinds <= {int, float} else None


def pad_fields(arrays: Any, samples: list[dict[str, Any]], padded: Callable[[list[Any]], tuple[Any, Any]]) -> dict[str, Any]:
    """Combines samples into a batch. padded(values): returns 1-D arrays in one, and their lengths."""
    made = {}
    for name in samples[0]:
        values = [sample[name] for sample in samples]
        if all(getattr(value, "ndim", 0) == 1 and getattr(value.dtype, "kind", "f") in "biuf" for value in values):
            made[name], made[f"{name}_lengths"] = padded(values)
        else:
            made[name] = arrays.column(values, None)
    return made
