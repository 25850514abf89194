# SPDX-License-Identifier: Apache-2.0
"""Colours of images that have their size, with Pillow's values. They come before ToTensor and ToDtype."""
from __future__ import annotations

from .declared import Transform, interval, number_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST = 1e6


def _factor(name, value):
    """From where to where; None: nothing is changed."""
    if isinstance(value, (list, tuple)):
        return interval(name, value, 0, MOST)
    spread = number_within(name, value, 0, MOST)
    return (max(0.0, 1 - spread), 1 + spread) if spread else None


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue, changed at random and in random order.

    brightness, contrast, saturation: the factor is from max(0, 1 - value) to 1 + value, or between the two that are given. hue: 0 to
    0.5, of the circle, either way; or two numbers from -0.5 to 0.5. The draws are a function of (seed, epoch, sample)."""

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
    """Applies a ColorJitter, which is all that transforms has, with probability p."""

    def __init__(self, transforms: Iterable[ColorJitter], p: float = 0.5) -> None:
        self.transforms, self.p = list(transforms), number_within("p", p, 0, 1)


class Grayscale(Transform):
    """Grey: one channel, or three equal ones."""

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels not in (1, 3):
            raise ValueError(f"num_output_channels must be 1 or 3, not {num_output_channels!r}")
        self.num_output_channels = int(num_output_channels)


class RandomGrayscale(Transform):
    """Grey, in three equal channels, with probability p: a function of (seed, epoch, sample)."""

    def __init__(self, p: float = 0.1) -> None:
        self.p = number_within("p", p, 0, 1)
