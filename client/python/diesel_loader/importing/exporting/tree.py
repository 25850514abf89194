# SPDX-License-Identifier: Apache-2.0
"""Files in folders, with the times of the packed ones."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...dataset import Dataset
    from .samples import Sample


def write(dataset: Dataset, folder: str, samples: Iterator[Sample]) -> int:
    """Writes each sample that is not there with its length. Returns the bytes of all."""
    n_bytes = 0
    for sample in samples:
        path = os.path.join(folder, sample.path)
        n_bytes += len(sample.data)
        try:
            if os.stat(path).st_size == len(sample.data):
                continue
        except OSError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.tmp", "wb") as file:
            file.write(sample.data)
        stat = dataset.stat(sample.path)
        os.utime(f"{path}.tmp", ns=(stat.mtime_ns, stat.mtime_ns))
        os.replace(f"{path}.tmp", path)
    return n_bytes
