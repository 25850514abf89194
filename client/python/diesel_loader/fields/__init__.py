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


def check_rows(arrays: Sequence[Any]) -> None:
    """Raises ValueError for arrays that differ in more than their lengths: they would be repeated to fit."""
    for array in arrays:
        if array.shape[1:] != arrays[0].shape[1:]:
            raise ValueError(f"samples to pad may differ only in their first dimension, but have shapes {tuple(arrays[0].shape)} and {tuple(array.shape)}")


def check_same(samples: Sequence[Any]) -> None:
    """Raises KeyError for samples of one batch that are not dicts of the same fields."""
    first = samples[0]
    for sample in samples:
        if not isinstance(sample, dict) or sample.keys() != first.keys():
            theirs = sorted(sample) if isinstance(sample, dict) else f"a {type(sample).__name__}"
            raise KeyError(f"samples of one batch have different fields: {sorted(first)} and {theirs}: choose those that all have, with "
                           "Dataset(PATH, fields=...), or pass collate_fn=")


def pad_fields(arrays: Any, samples: list[dict[str, Any]], padded: Callable[[list[Any]], tuple[Any, Any]]) -> dict[str, Any]:
    """Combines samples into a batch. padded(values): returns 1-D arrays in one, and their lengths."""
    check_same(samples)
    made = {}
    for name in samples[0]:
        values = [sample[name] for sample in samples]
        if all(getattr(value, "ndim", 0) == 1 and getattr(value.dtype, "kind", "f") in "biuf" for value in values):
            made[name], made[f"{name}_lengths"] = padded(values)
        else:
            made[name] = arrays.column(values, None)
    return made
