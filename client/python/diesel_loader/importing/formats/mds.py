# SPDX-License-Identifier: Apache-2.0
"""MDS shards of MosaicML Streaming, whose package decodes the values, except images, which stay encoded."""
from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Any

from .. import base
from ..base import LeftOut, Options, Refused, Shard

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "mosaicml-streaming"
ENCODED = {"bytes", "jpeg", "png"}  # stored as they are
LISTS = {"jpeg_array": 4, "jpegarray": 4, "list[jpeg]": 8, "list[png]": 8}  # of encoded images: bytes before the table of their sizes
PICKLE = "pkl"


class Mds:
    """A folder with index.json."""

    def __init__(self, folder: str, options: Options) -> None:
        base.package("streaming.base.format.mds.encodings", PACKAGE, "MDS")
        self._folder, self._options = folder, options
        self._infos: dict[str, dict[str, Any]] = {}
        self.shards: list[Shard] = []
        for info in _index(folder)["shards"]:
            if info.get("format") != "mds":
                raise Refused(f"{folder}: expected shards of format mds, got {info.get('format')}")
            self._add(info)
        first = next(iter(self._infos.values()))
        wanted = base.pick(first["column_names"], options, folder)
        kinds = dict(zip(first["column_names"], first["column_encodings"]))
        self.left_out = [LeftOut(name, PICKLE, "a pickle runs code when it is read") for name in wanted if kinds[name] == PICKLE]
        self._wanted = [name for name in wanted if kinds[name] != PICKLE]
        if not self._wanted:
            raise Refused(f"{folder}: no column can be imported: each is a pickle")
        self.label, self.classes = options.label, list[str]()

    def _add(self, info: dict[str, Any]) -> None:
        raw, packed = info["raw_data"], info.get("zip_data")
        file = os.path.join(self._folder, raw["basename"])
        if not os.path.exists(file) and packed:
            file, raw = os.path.join(self._folder, packed["basename"]), packed
        try:
            stat = os.stat(file)
        except OSError as error:
            raise Refused(f"{file}: {error.strerror}; restore the file") from None
        if stat.st_size != raw["bytes"]:
            raise Refused(f"{file}: has {stat.st_size} bytes, but index.json lists {raw['bytes']}; restore the file")
        name = info["raw_data"]["basename"].removesuffix(".mds").replace("/", "-").replace(".", "-")
        self._infos[name] = info
        self.shards.append(Shard(name, file, 0, stat.st_size, base.mtime_of(stat)))

    def rows(self, shard: Shard) -> Iterator[dict[str, Any]]:
        info = self._infos[shard.name]
        with base.reading(shard.file, struct.error, IndexError), open(shard.file, "rb") as file:
            head = file.read(4)
            data = None
            if shard.file != os.path.join(self._folder, info["raw_data"]["basename"]):
                from streaming.base.compression import decompress
                data = decompress(info["compression"], head + file.read())
                head = data[:4]
            n, = struct.unpack("<I", head)
            if n != info["samples"]:
                raise Refused(f"{shard.file}: has {n} samples, but index.json lists {info['samples']}; restore the file")
            table = data[4:8 + 4 * n] if data is not None else file.read(4 + 4 * n)
            ends = struct.unpack(f"<{n + 1}I", table)
            for begin, end in zip(ends, ends[1:]):
                if data is None:
                    file.seek(begin)
                yield self._row(info, data[begin:end] if data is not None else file.read(end - begin))

    def _row(self, info: dict[str, Any], data: bytes) -> dict[str, Any]:
        at, sizes, row = 0, [], dict[str, Any]()
        for size in info["column_sizes"]:
            if not size:
                size, = struct.unpack_from("<I", data, at)
                at += 4
            sizes.append(size)
        for name, encoding, size in zip(info["column_names"], info["column_encodings"], sizes):
            if at + size > len(data):
                raise ValueError(f"a value of '{name}' ends behind its sample")
            if name in self._wanted:
                row.update(self._fields(name, encoding, data[at:at + size]))
            at += size
        return row

    def _fields(self, name: str, encoding: str, data: bytes) -> dict[str, Any]:
        from streaming.base.format.mds.encodings import mds_decode
        if encoding in ENCODED:
            return {name: base.text_of(data, name, self._folder) if name in self._options.text else data}
        if encoding in LISTS:
            return base.spread(name, _parts(data, LISTS[encoding]))
        value = mds_decode(encoding, data)
        if encoding == "list[pil]":
            return base.spread(name, value)
        if encoding == "str_decimal":
            value = str(value)
        return {name: value.item() if getattr(value, "shape", None) == () else value}


def _parts(data: bytes, begin: int) -> list[bytes]:
    n, = struct.unpack_from("<I", data, begin - 4)
    sizes, at, parts = struct.unpack_from(f"<{n}I", data, begin), begin + 4 * n, []
    for size in sizes:
        parts.append(data[at:at + size])
        at += size
    return parts


def _index(folder: str) -> dict[str, Any]:
    path = os.path.join(folder, "index.json")
    try:
        with open(path, encoding="utf-8") as file:
            index: dict[str, Any] = json.load(file)
            index["shards"][0]["raw_data"]
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; MDS is a folder with index.json and shards") from None
    except (ValueError, LookupError, TypeError):
        raise Refused(f"{path}: is not an index of MDS shards; restore the file") from None
    return index


def open_source(paths: list[str], options: Options) -> Mds:
    if len(paths) != 1:
        raise Refused("expected one folder of MDS shards; import others with --append")
    folder = paths[0]
    splits = [name for name in sorted(os.listdir(folder)) if os.path.exists(os.path.join(folder, name, "index.json"))] if os.path.isdir(folder) else []
    if options.split or (splits and not os.path.exists(os.path.join(folder, "index.json"))):
        if options.split not in splits:
            raise Refused(f"{folder}: expected one split, got {', '.join(splits) or 'none'}; choose one with --split")
        folder = os.path.join(folder, options.split)
    return Mds(folder, options)
