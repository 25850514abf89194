# SPDX-License-Identifier: Apache-2.0
"""Transforms that dieseld runs, said without torchvision: neither it, nor Pillow, nor torch is needed.

    from diesel_loader import transforms
    from diesel_loader.numpy import DataLoader        # or diesel_loader.torch's
    transform = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(),
                                    transforms.ToTensor(), transforms.Normalize(mean, std)])
    loader = DataLoader("/data/photos.diesel", 64, shuffle=True, transform=transform)

Samples that are arrays begin with what says so:

    transforms.Compose([transforms.FromNumpy(layout="HWC"), transforms.RandomCrop(32), transforms.ToTensor()])
    transforms.Compose([transforms.FromBytes("int16", (16000,)), transforms.ToDtype("float32", scale=True)])

Names and parameters are torchvision's. These are declarations: dieseld does the work, in C, from the stored JPEG, PNG, WebP or
array to the array or tensor in shared memory, and what it does is what it does for torchvision's (docs/how-to/transforms.md). They have no Python to
fall back on: where dieseld cannot run one, making the loader is a ValueError that says which and why. Callables of one's own may
stand behind them; these are called in worker processes with what came before, an array (diesel_loader.numpy) or a tensor
(diesel_loader.torch).

A wrong parameter is a ValueError.
"""
from .array import FromBytes, FromNumpy, RandomCrop
from .colour import ColorJitter, Grayscale, RandomApply, RandomGrayscale
from .declared import Compose, Transform
from .image import CenterCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop, RandomVerticalFlip, Resize, ToDtype, ToTensor

__all__ = ["CenterCrop", "ColorJitter", "Compose", "FromBytes", "FromNumpy", "Grayscale", "Normalize", "RandomApply",
           "RandomCrop", "RandomGrayscale", "RandomHorizontalFlip", "RandomResizedCrop", "RandomVerticalFlip", "Resize", "ToDtype", "ToTensor",
           "Transform"]
