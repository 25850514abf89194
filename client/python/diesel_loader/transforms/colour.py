# SPDX-License-Identifier: Apache-2.0
"""Colour transforms, with the same values as Pillow. They come after the transform that sets the size, and before ToTensor and
ToDtype."""
from __future__ import annotations

from .declared import Transform, interval, number_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST = 1e6


def _factor(name, value):
    """Returns the range of a parameter as a pair; None: the parameter changes nothing."""
    if isinstance(value, (list, tuple)):
        return interval(name, value, 0, MOST)
    spread = number_within(name, value, 0, MOST)
    return (max(0.0, 1 - spread), 1 + spread) if spread else None


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue at random, in random order.

    brightness, contrast, saturation: the factor is drawn from max(0, 1 - value) to 1 + value, or between the two given numbers. hue:
    maximum shift in either direction as a fraction of the colour circle, 0 to 0.5; or two numbers from -0.5 to 0.5. The draws are a
    function of (seed, epoch, sample)."""

    def __init__(self, brightness: float | Sequence[float] = 0, contrast: float | Sequence[float] = 0,
                 saturation: float | Sequence[float] = 0, hue: float | Sequence[float] = 0) -> None:
        self.brightness = _factor("brightness", brightness)
        self.contrast = _factor("contrast", contrast)
        self.saturation = _factor("saturation", saturation)
        self.hue: tuple[float, float] | None
        if isinstance(hue, (list, tuple)):
            self.hue = interval("hue", hue, -0.5, 0.5)
        else:
            spread = number_within("hue", hue, 0, 0.5)
            self.hue = (-spread, spread) if spread else None


class RandomApply(Transform):
    """Applies a ColorJitter with probability p. transforms must contain only that ColorJitter."""

    def __init__(self, transforms: Iterable[ColorJitter], p: float = 0.5) -> None:
        self.transforms, self.p = list(transforms), number_within("p", p, 0, 1)


class Grayscale(Transform):
    """Converts to grey: one channel, or three equal ones."""

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels not in (1, 3):
            raise ValueError(f"num_output_channels must be 1 or 3, not {num_output_channels!r}")
        self.num_output_channels = int(num_output_channels)


class RandomGrayscale(Transform):
    """Converts to grey, in three equal channels, with probability p. The draw depends only on (seed, epoch, sample)."""

    def __init__(self, p: float = 0.1) -> None:
        self.p = number_within("p", p, 0, 1)
