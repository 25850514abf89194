# SPDX-License-Identifier: Apache-2.0
"""Datasets served by dieseld, the node's data daemon.

    import diesel_loader.torch
    loader = diesel_loader.torch.DataLoader("/data/photos.diesel", batch_size=64, shuffle=True, seed=1)

diesel_loader.numpy has the same loader without torch. This module needs neither PyTorch nor anything else outside
the standard library.
"""
from .dataset import Dataset, SampleStat, open, status  # noqa: A004
from .errors import DamagedData
from .native import VERSION as __version__

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, but importing typing is slow
if TYPE_CHECKING:
    from .recipe.codec import codec
    from .writing.writer import Writer, create

__all__ = ["DamagedData", "Dataset", "SampleStat", "Writer", "__version__", "codec", "create", "open", "status"]


def __getattr__(name: str) -> object:
    """Imports rarely used names at their first use."""
    if name == "codec":
        from .recipe.codec import codec as used
        return used
    if name in ("Writer", "create"):
        from .writing import writer
        return getattr(writer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
