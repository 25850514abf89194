# SPDX-License-Identifier: Apache-2.0
"""Decides which of the user's transforms dieseld runs.

The longest supported beginning becomes a Recipe; the rest stays in Python. Supported are the classes of torchvision or of
diesel_loader.transforms themselves (no subclass), with parameters that dieseld implements exactly. This module does not
import torchvision: a program that made such an object has imported it.
"""
from __future__ import annotations

import importlib
from types import SimpleNamespace

from .. import native
from ..transforms.declared import Transform
from .array_plan import ArrayBuilder, is_of_arrays
from .recipe import FILTERS, TYPES, Recipe
from .recipe import NotUnderstood as _NotUnderstood

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

JITTERED = {"brightness": (1, 1), "contrast": (1, 1), "saturation": (1, 1), "hue": (0, 0)}  # values that change nothing
FACTOR_MAX = 1_000_000
DAEMON, WORKER = "dieseld", "Python"
OURS = Transform.__module__.rpartition(".")[0] + "."  # modules of diesel_loader.transforms
BEHIND, NO_SIZE = "follows a transform that runs in Python", "images have no fixed size here, which dieseld needs"
NOT_KNOWN = "dieseld does not support it"


class Step:
    """A transform, the place where it runs, and the reason."""

    def __init__(self, transform: Any, where: str, why: str) -> None:
        self.transform, self.where, self.why = transform, where, why

    def __str__(self) -> str:
        text = " ".join(str(self.transform).split())
        return f"{self.where:8} {text}" + (f"  ({self.why})" if self.why else "")


class Plan:
    """A transform split into the part that dieseld runs and the rest.

    steps: all steps. recipe: the part that dieseld runs, or None. rest: the other steps, a list of callables. kind: their
    input, "pil", "tensor", "image" (torchvision's tv_tensors.Image), or "array": the loader's own array or tensor. field: the
    field that dieseld decodes; None: samples have no fields."""

    def __init__(self, steps: list[Step], recipe: Recipe | None = None, rest: list[Any] | None = None, kind: str = "pil",
                 field: str | None = None) -> None:
        self.steps, self.recipe, self.rest, self.kind, self.field = steps, recipe, rest or [], kind, field

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    @property
    def is_ours(self) -> bool:
        """True if the transform begins with one of diesel_loader.transforms."""
        return bool(self.steps) and isinstance(self.steps[0].transform, Transform)

    def check_ours(self) -> None:
        """Raises ValueError if one of diesel_loader.transforms would have to run in Python, which has no code for
        it."""
        left = [step for step in self.steps if isinstance(step.transform, Transform) and step.where != DAEMON]
        if left:
            step = next((step for step in left if step.why not in (BEHIND, NO_SIZE)), left[0])
            raise ValueError(f"only dieseld can run {step.transform}, and here it cannot: {step.why}")


def _module(transform):
    """Returns "v1" or "v2" for torchvision's own classes, "ours" for diesel_loader.transforms; None: another class."""
    name = type(transform).__module__
    if name.startswith(OURS):
        return "ours"
    if name in ("torchvision.transforms.transforms", "torchvision.transforms._presets"):
        return "v1"
    return "v2" if name.startswith("torchvision.transforms.v2.") else None


def flatten(transform: Any) -> list[Any]:
    """Returns the steps of a transform, as a list."""
    name, version = type(transform).__name__, _module(transform)
    if version and name == "Compose":
        return [step for one in transform.transforms for step in flatten(one)]
    if type(transform).__module__ == "torch.nn.modules.container" and name == "Sequential":
        return [step for one in transform for step in flatten(one)]
    return [transform]


def _side(value):
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= native.RECIPE_MAX_SIDE:
        raise _NotUnderstood(f"its size must be 1 to {native.RECIPE_MAX_SIDE} pixels")
    return value


def _height_and_width(size):
    sides = [size] if isinstance(size, int) else list(size or ())
    if len(sides) == 1:
        sides *= 2
    if len(sides) != 2:
        raise _NotUnderstood("its size must be a height and a width")
    return _side(sides[0]), _side(sides[1])


def _pair(value):
    low, high = (float(v) for v in value)
    return low, high


class _Builder:
    """Adds one step after another to the recipe, until one is not supported."""

    def __init__(self):
        self.recipe = Recipe(kind=native.RECIPE_IMAGE, filter=FILTERS["bilinear"], flags=native.RECIPE_ROWS)
        self.kind = None  # begins as "pil" with torchvision's transforms, as "array" with ours
        self.has_size = False
        self.note = ""
        self.shorter = None  # size of a Resize whose crop has not come yet

    def take(self, step):
        if type(step).__name__ == "Identity" and type(step).__module__ in ("torch.nn.modules.linear", "torchvision.transforms.v2._misc"):
            return
        version = _module(step)
        method = getattr(self, "_" + type(step).__name__, None) if version else None
        if method is None:
            raise _NotUnderstood(NOT_KNOWN)
        if not self.kind:
            self.kind, self.is_ours = ("array", True) if version == "ours" else ("pil", False)
        if (version == "ours") != self.is_ours:
            raise _NotUnderstood("dieseld supports transforms of torchvision or of diesel_loader, but not of both")
        if self._changes_nothing(step, version):
            return
        if self.shorter and type(step).__name__ not in ("CenterCrop", "RandomCrop"):
            raise _NotUnderstood("after Resize with one number, only a crop gives all images the same size")
        method(step)

    def _changes_nothing(self, step, version):
        """Returns True if the step never changes an image. Steps of v2 do not change inputs of kinds that they are not
        for."""
        name = type(step).__name__
        if name in ("RandomHorizontalFlip", "RandomVerticalFlip", "RandomGrayscale", "RandomApply"):
            return step.p == 0
        if name == "ColorJitter":
            return all(not getattr(step, part) or tuple(getattr(step, part)) == nothing for part, nothing in JITTERED.items())
        if name in ("CenterCrop", "RandomCrop", "Resize") and self.has_size:
            return self._keeps_size(step, name)
        if version != "v2":
            return False
        if name == "ToDtype" and self.kind == "pil":
            return not isinstance(step.dtype, dict)  # only for tensors
        return name == "ToPureTensor" and self.kind != "image" or name == "PILToTensor" and self.kind != "pil"

    def _keeps_size(self, step, name):
        if name == "RandomCrop" and getattr(step, "padding", None):
            return False
        if name == "Resize":
            sides = [step.size] if isinstance(step.size, int) else list(step.size or ())
            if getattr(step, "max_size", None) is not None or len(sides) == 1 and self.recipe.height != self.recipe.width:
                return False
        return _height_and_width(step.size) == (self.recipe.height, self.recipe.width)

    def _scale(self, step):
        """Checks a step that sets the image's size."""
        if self.has_size:
            raise _NotUnderstood("dieseld resizes once")
        if TYPES["uint8"] != self.recipe.type:
            raise _NotUnderstood("dieseld can resize only before the conversion to floating point")
        interpolation = getattr(step.interpolation, "value", step.interpolation)
        if interpolation not in FILTERS:
            raise _NotUnderstood(f"its interpolation must be bilinear or bicubic, not {interpolation}")
        if self.kind != "pil" and step.antialias is not True:
            raise _NotUnderstood("dieseld can resize only with antialiasing")
        self.recipe.filter = FILTERS[interpolation]

    def _RandomResizedCrop(self, step):
        self._scale(step)
        height, width = _height_and_width(step.size)
        scale, ratio = _pair(step.scale), _pair(step.ratio)
        if not 0 <= scale[0] <= scale[1] or not 0 < ratio[0] <= ratio[1] or scale[1] <= 0:
            raise _NotUnderstood("its scale and ratio must be ranges")
        self.recipe.shape, self.recipe.height, self.recipe.width = native.RECIPE_RANDOM_BOX, height, width
        self.recipe.scale[:], self.recipe.ratio[:] = scale, ratio
        self.has_size = True

    def _Resize(self, step):
        self._scale(step)
        if getattr(step, "max_size", None) is not None:
            raise _NotUnderstood("dieseld does not support max_size")
        sides = [step.size] if isinstance(step.size, int) else list(step.size or ())
        if len(sides) == 1:
            self.shorter = _side(sides[0])
            return
        self.recipe.shape = native.RECIPE_WHOLE
        self.recipe.height, self.recipe.width = _height_and_width(sides)
        self.has_size = True

    def _crop(self, step, shape):
        if not self.shorter:
            raise _NotUnderstood("dieseld crops only after Resize with one number")
        height, width = _height_and_width(step.size)
        if self.shorter < max(height, width):
            raise _NotUnderstood("it is larger than the output of Resize, and dieseld does not pad")
        self.recipe.shape, self.recipe.height, self.recipe.width = shape, height, width
        self.recipe.shorter, self.shorter = self.shorter, None
        self.has_size = True

    def _CenterCrop(self, step):
        self._crop(step, native.RECIPE_MIDDLE)

    def _RandomCrop(self, step):
        if getattr(step, "padding", None):
            raise _NotUnderstood("dieseld does not pad")
        self._crop(step, native.RECIPE_RANDOM_CROP)

    def _ImageClassification(self, step):
        """The preset of a classifier's weights: resize, centre crop, conversion to float32, normalisation."""
        self._Resize(SimpleNamespace(size=step.resize_size, interpolation=step.interpolation, antialias=getattr(step, "antialias", None)))
        self._crop(SimpleNamespace(size=step.crop_size), native.RECIPE_MIDDLE)
        if self.kind == "pil":
            self._from_pil("tensor")
        self.kind = "tensor"
        self._to_dtype("float32", True)
        self._Normalize(step)

    def _flip(self, step, name):
        if not self.has_size:
            raise _NotUnderstood("dieseld can flip only after resizing")
        if getattr(self.recipe, name) or not 0 <= step.p <= 1:
            raise _NotUnderstood("dieseld flips once")
        setattr(self.recipe, name, float(step.p))

    def _RandomHorizontalFlip(self, step):
        self._flip(step, "flip_sideways")

    def _RandomVerticalFlip(self, step):
        self._flip(step, "flip_upright")

    def _colours(self):
        """Checks a step that changes colours. Returns its flags, since colour steps work differently on PIL images and on tensors."""
        if self.is_ours and not self.recipe.flags & native.RECIPE_ROWS:
            raise _NotUnderstood("dieseld can change colours only before ToTensor")
        if self.recipe.dtype != "uint8":
            raise _NotUnderstood("dieseld can change colours only of uint8 images")
        if not self.has_size:
            raise _NotUnderstood("dieseld can change colours only after resizing")
        if self.recipe.grey:
            raise _NotUnderstood("a grayscale transform must be the last colour transform, and come only once")
        of_tensors = native.RECIPE_TENSOR_COLOURS if self.kind in ("tensor", "image") else 0
        if self.recipe.jitter and self.recipe.flags & native.RECIPE_TENSOR_COLOURS != of_tensors:
            raise _NotUnderstood("dieseld can change colours of PIL images or of tensors, but not of both")
        return of_tensors

    def _jitter(self, step, p):
        of_tensors = self._colours()
        if self.recipe.jitter:
            raise _NotUnderstood("dieseld can change colours only once")
        if not 0 <= p <= 1:
            raise _NotUnderstood("its p must be a probability, 0 to 1")
        ranges = {name: _pair(getattr(step, name) or nothing) for name, nothing in JITTERED.items()}
        if not all(0 <= low <= high <= FACTOR_MAX for name, (low, high) in ranges.items() if name != "hue"):
            raise _NotUnderstood(f"its factors must be from 0 to {FACTOR_MAX:,}")
        if p:
            self.recipe.jitter = float(p)
            self.recipe.flags |= of_tensors
            for name, pair in ranges.items():
                getattr(self.recipe, name)[:] = pair

    def _ColorJitter(self, step):
        self._jitter(step, 1)

    def _RandomApply(self, step):
        inner = [one for transform in step.transforms for one in flatten(transform)]
        if len(inner) != 1 or not _module(inner[0]) or type(inner[0]).__name__ != "ColorJitter":
            raise _NotUnderstood("dieseld can apply only ColorJitter at random")
        self._jitter(inner[0], step.p)

    def _grey(self, p, channels):
        of_tensors = self._colours()
        if not 0 <= p <= 1 or channels not in (1, 3):
            raise _NotUnderstood(NOT_KNOWN)
        self.recipe.grey = float(p)
        if p:
            self.recipe.flags |= of_tensors
        if channels == 1:
            self.recipe.flags |= native.RECIPE_GREY

    def _Grayscale(self, step):
        self._grey(1, step.num_output_channels)

    def _RandomGrayscale(self, step):
        self._grey(step.p, 3)

    def _from_pil(self, kind):
        if self.kind != "pil":
            raise _NotUnderstood("the sample is not a PIL image any more")
        self.kind = kind
        self.recipe.flags &= ~native.RECIPE_ROWS

    def _ToTensor(self, step):
        if self.is_ours:
            self._to_array(step)
            return
        self._from_pil("image" if _module(step) == "v2" else "tensor")
        if _module(step) == "v2":
            raise _NotUnderstood("torchvision deprecates it: use v2.ToImage(), v2.ToDtype(torch.float32, scale=True)")
        self._float32(True)

    def _to_array(self, step):
        if not self.has_size:
            raise _NotUnderstood("dieseld can resize only before the conversion to numbers")
        if self.recipe.dtype != "uint8" or not self.recipe.flags & native.RECIPE_ROWS:
            raise _NotUnderstood("dieseld can convert only once, from uint8 [height, width, channels]")
        self._to_dtype(step.dtype, step.scale)
        if step.layout == "CHW":
            self.recipe.flags &= ~native.RECIPE_ROWS

    def _PILToTensor(self, step):
        self._from_pil("tensor")

    def _ToImage(self, step):
        if self.kind == "pil":
            self._from_pil("image")
        self.kind = "image"

    def _RGB(self, step):
        if self.recipe.channels != 3:
            raise _NotUnderstood("a grayscale transform must be the last colour transform")

    def _ToPureTensor(self, step):
        if self.kind == "image":
            self.kind = "tensor"

    def _float32(self, unit):
        if not self.has_size:
            raise _NotUnderstood("dieseld can resize only before the conversion to floating point")
        self.recipe.type = TYPES["float32"]
        if unit:
            self.recipe.flags |= native.RECIPE_UNIT

    def _to_dtype(self, dtype, scale):
        name = str(dtype).replace("torch.", "")
        if self.kind == "pil":
            raise _NotUnderstood("it needs a tensor")
        now = self.recipe.dtype
        if name == now:
            return
        if not self.has_size:
            raise _NotUnderstood("dieseld needs the final image size before this conversion")
        if name not in TYPES or name == "uint8" or now not in ("uint8", "float32"):
            raise _NotUnderstood(f"dieseld cannot convert {now} to {name}")
        if now == "uint8":
            self._float32(bool(scale))
        self.recipe.type = TYPES[name]

    def _ToDtype(self, step):
        dtype = step.dtype
        if isinstance(dtype, dict):
            raise _NotUnderstood("dieseld supports only one dtype, not one per kind of input")
        self._to_dtype(dtype, step.scale)

    def _ConvertImageDtype(self, step):
        self._to_dtype(step.dtype, True)

    def _Normalize(self, step):
        mean, std = [float(v) for v in step.mean], [float(v) for v in step.std]
        if self.recipe.dtype != "float32" or self.recipe.flags & native.RECIPE_NORMALISE:
            raise _NotUnderstood("dieseld can normalise only float32 values, and only once")
        n = self.recipe.channels
        if len(mean) not in (1, n) or len(std) not in (1, n) or not all(v > 0 for v in std):
            raise _NotUnderstood(f"its mean and std must have {n} channel{'s'[:n != 1]}")
        self.recipe.mean[:], self.recipe.std[:] = (v if len(v) == 3 else v * 3 for v in (mean, std))
        self.recipe.flags |= native.RECIPE_NORMALISE


def make_plan(transform: Any, first: Callable[[], tuple[str, bytes]] | None = None) -> Plan:
    """Returns the plan of a transform. first: a function that returns path and bytes of a sample, to find dtype and
    shape."""
    given: list[Any] = flatten(transform)
    steps: list[Step] = []
    builder: Any = ArrayBuilder(first) if given and is_of_arrays(given[0]) else _Builder()
    kept = 0                      # number of steps that dieseld runs
    state = None                  # (recipe, kind) after these steps
    for k, step in enumerate(given):
        try:
            builder.take(step)
        except (_NotUnderstood, AttributeError, TypeError, ValueError) as error:
            why = str(error) if isinstance(error, _NotUnderstood) else NOT_KNOWN
            steps.append(Step(step, WORKER, why))
            break
        steps.append(Step(step, DAEMON, builder.note))
        if builder.has_size:
            kept, state = k + 1, (Recipe.from_buffer_copy(builder.recipe), builder.kind)
    for k in range(len(steps), len(given)):
        steps.append(Step(given[k], WORKER, BEHIND))
    for step in steps[kept:]:
        if step.where == DAEMON:
            step.where, step.why = WORKER, NO_SIZE
    if state is None:
        return Plan(steps)
    recipe, kind = state
    return Plan(steps, recipe, given[kept:], kind)


def whole_in_python(transform: Any, why: str) -> Plan:
    """Returns the plan of a transform of which dieseld runs nothing."""
    return Plan([Step(step, WORKER, why) for step in flatten(transform)])


def in_fields(transform: dict[str, Any], plan_of: Callable[[str, str | None], Plan]) -> Plan:
    """Returns the plan of transforms by field. dieseld runs those of one field: the first that Python cannot run, else the first that
    dieseld can. plan_of(field, why_not): the plan of a field's transform; why_not: why dieseld cannot run any of it, or None."""
    plans: dict[str, Plan] = {}
    chosen = why_not = None
    for name in sorted(transform, key=lambda name: not any(isinstance(step, Transform) for step in flatten(transform[name])[:1])):
        plans[name] = plan_of(name, why_not)
        if plans[name].recipe and chosen is None:
            chosen, why_not = name, f"dieseld decodes one field of a sample, here {name!r}"
    steps = [Step(step.transform, step.where, f"field {name!r}" + (f": {step.why}" if step.why else ""))
             for name in transform for step in plans[name].steps]
    if chosen is None:
        return Plan(steps)
    return Plan(steps, plans[chosen].recipe, plans[chosen].rest, plans[chosen].kind, chosen)


class Decoded:
    """Further work on samples that dieseld has decoded: a Plan's recipe and rest, without the parts that workers do not
    need."""

    def __init__(self, plan: Plan) -> None:
        assert plan.recipe is not None
        self.recipe, self.rest, self.kind, self.field = plan.recipe, plan.rest, plan.kind, plan.field
        self.channels_last = False  # batches are [B, C, H, W] that lie in memory as the recipe's [B, H, W, C]

    def make_channels_last(self) -> None:
        """Makes the daemon write batches in channels_last order. ValueError: they are not [B, C, H, W]."""
        if self.recipe.flags & native.RECIPE_ROWS or not self.recipe.has_channels:
            made = "[B, H, W, C]" if self.recipe.has_channels else "arrays without channels"
            raise ValueError(f"memory_format=torch.channels_last needs batches [B, C, H, W], but the transform makes {made}")
        self.recipe.flags |= native.RECIPE_ROWS
        self.channels_last = True

    def finish(self, data: Any) -> Any:
        """Returns the sample after the steps that stay in Python. data: the tensor or array that dieseld made."""
        if self.kind == "pil":
            from PIL import Image
            data = data if hasattr(data, "__array_interface__") else data.numpy()
            data = Image.fromarray(data[:, :, 0] if self.recipe.channels == 1 else data)
        elif self.kind == "image":
            data = importlib.import_module("torchvision.tv_tensors").Image(data)
        for step in self.rest:
            data = step(data)
        return data
