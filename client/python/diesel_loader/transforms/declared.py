# SPDX-License-Identifier: Apache-2.0
"""Base of the package's transforms: a name and parameters, for dieseld to run."""
from __future__ import annotations

import math
import operator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, NoReturn


class Transform:
    """A declared transform. Its attributes are its parameters."""

    def __call__(self, sample: Any) -> NoReturn:
        """Raises TypeError, because no Python code implements the transform."""
        raise TypeError(f"only dieseld can run {self!r}, for a DataLoader: it cannot be called from Python, nor applied by dataset[i]")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class Compose(Transform):
    """Applies transforms one after another. transforms: transforms of this package, then any callables."""

    def __init__(self, transforms: Iterable[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)
        for step in self.transforms:
            if not callable(step):
                raise ValueError(f"Compose takes transforms, and {step!r} is not one")


def whole(name: str, value: Any, least: int, most: int) -> int:
    """Checks an integer parameter against these bounds, and returns it."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not least <= number <= most:
        raise ValueError(f"{name} must be an integer from {least} to {most}, not {value!r}")
    return number


def number_within(name: str, value: Any, least: float, most: float) -> float:
    """Checks a number against these bounds, and returns it as a float."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not least <= number <= most:
        raise ValueError(f"{name} must be a number from {least:g} to {most:g}, not {value!r}")
    return number


def interval(name: str, value: Any, least: float, most: float) -> tuple[float, float]:
    """Checks a parameter that is a range, and returns it as two floats."""
    try:
        low, high = (number_within(name, v, least, most) for v in value)
        if low <= high:
            return low, high
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} must be two numbers from {least:g} to {most:g}, the smaller one first, not {value!r}")


def dtype_name(dtype: Any, known: Sequence[str]) -> str:
    """Returns the name of a dtype, given as a name or as an object of NumPy, JAX or torch."""
    text = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = str(text).replace("torch.", "")
    if name not in known:
        raise ValueError(f"dtype must be one of {', '.join(known)}, not {dtype!r}")
    return name
