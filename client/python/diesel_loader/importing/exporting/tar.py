# SPDX-License-Identifier: Apache-2.0
"""Tar shards as WebDataset reads them: a member for each field, or for each sample without fields."""
from __future__ import annotations

import json
import os
import tarfile
from typing import TYPE_CHECKING, Any

from ... import native
from ..base import Refused
from . import samples

if TYPE_CHECKING:
    from ...dataset import Dataset
    from .samples import Field, Sample

ENDINGS = {native.FIELD_BYTES: "bin", native.FIELD_TEXT: "txt", native.FIELD_JSON: "json", native.FIELD_ARRAY: "npy", native.FIELD_INT: "cls"}
MAGICS = ((b"\xff\xd8\xff", 0, "jpg"), (b"\x89PNG", 0, "png"), (b"WEBP", 8, "webp"), (b"GIF8", 0, "gif"), (b"BM", 0, "bmp"), (b"II*\0", 0, "tif"),
          (b"MM\0*", 0, "tif"))


class Tar:
    ending = ".tar"

    def __init__(self, dataset: Dataset) -> None:
        self._layout, self._dataset = dataset.layout, dataset
        self._file: Any = None

    def open(self, path: str) -> None:
        self._file = open(path, "wb")  # noqa: SIM115

    def add(self, sample: Sample) -> None:
        if self._layout == "tar":  # members as they lie in the dataset
            self._file.write(sample.data)
            self._file.write(bytes(-len(sample.data) % tarfile.BLOCKSIZE))
        elif not sample.fields:
            self._member(sample, sample.path, sample.data)
        for field in sample.fields if self._layout != "tar" else ():
            folder, name = os.path.split(sample.path)
            self._member(sample, os.path.join(folder, f"{name.replace('.', '%2E')}.{_ending(sample, field)}"), _content(field))

    def _member(self, sample: Sample, name: str, data: Any) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = len(data), 0o644, self._dataset.stat(sample.path).mtime_ns // 1_000_000_000
        self._file.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        self._file.write(data)
        self._file.write(bytes(-len(data) % tarfile.BLOCKSIZE))

    def close(self) -> None:
        self._file.write(bytes(2 * tarfile.BLOCKSIZE))
        self._file.flush()
        self._file.close()


def _ending(sample: Sample, field: Field) -> str:
    """Returns the field's name with an ending of its kind, which it may have already."""
    if "/" in field.name:
        raise Refused(f"{sample.path}: field '{field.name}' has a slash, which a tar member's ending cannot have; use --to parquet")
    ending = ENDINGS.get(field.kind, "json")
    if field.kind == native.FIELD_IMAGE:
        ending = next((name for magic, at, name in MAGICS if field.data[at:at + len(magic)] == magic), "bin")
    return field.name if field.name == ending or field.name.endswith(f".{ending}") else f"{field.name}.{ending}"


def _content(field: Field) -> bytes:
    if field.kind in (native.FIELD_INT, native.FIELD_FLOAT, native.FIELD_BOOL, native.FIELD_NONE):
        return json.dumps(samples.value(field)).encode()
    return field.data
