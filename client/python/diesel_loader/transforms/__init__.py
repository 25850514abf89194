# SPDX-License-Identifier: Apache-2.0
"""Transforms that dieseld runs, declared without torchvision. They need neither torchvision, nor Pillow, nor torch.

    from diesel_loader import transforms
    from diesel_loader.numpy import DataLoader        # or diesel_loader.torch's
    transform = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(),
                                    transforms.ToTensor(), transforms.Normalize(mean, std)])
    loader = DataLoader("/data/photos.diesel", 64, shuffle=True, transform=transform)

For samples that are arrays, begin with FromNumpy or FromBytes:

    transforms.Compose([transforms.FromNumpy(layout="HWC"), transforms.RandomCrop(32), transforms.ToTensor()])
    transforms.Compose([transforms.FromBytes("int16", (16000,)), transforms.ToDtype("float32", scale=True)])

Names and parameters are torchvision's. These are declarations: dieseld does the work, in C, from the stored JPEG, PNG, WebP or
array to the array or tensor in shared memory, with the same results as for torchvision's transforms (docs/how-to/transforms.md). They
cannot run in Python: if dieseld cannot run one, making the loader raises a ValueError with the transform and the reason. Your own
callables may follow them. Worker processes call these with the result so far, an array (diesel_loader.numpy) or a tensor
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
