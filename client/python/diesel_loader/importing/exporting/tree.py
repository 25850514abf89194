# SPDX-License-Identifier: Apache-2.0
"""Files in folders, with the times of the packed ones."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..base import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...dataset import Dataset
    from .samples import Sample


def write(dataset: Dataset, folder: str, state: str, samples: Iterator[Sample]) -> int:
    """Writes each sample that is not there with its length. Returns the bytes of all. state: path of the export's own file,
    with which no sample's path may begin."""
    n_bytes, made = 0, f"{state}.part"
    for sample in samples:
        path = os.path.join(folder, sample.path)
        if path.startswith(state):
            raise Refused(f"{sample.path}: the export needs this name for a file of its own; use --to tar")
        n_bytes += len(sample.data)
        try:
            if os.stat(path).st_size == len(sample.data):
                continue
        except OSError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(made, "wb") as file:
            file.write(sample.data)
        stat = dataset.stat(sample.path)
        os.utime(made, ns=(stat.mtime_ns, stat.mtime_ns))
        os.replace(made, path)
    return n_bytes
