# SPDX-License-Identifier: Apache-2.0
"""Chunks of LitData, read by its own StreamingDataset. Media stay encoded."""
from __future__ import annotations

import functools
import json
import os
from typing import TYPE_CHECKING, Any

from .. import base
from ..base import LeftOut, Options, Refused, Shard

if TYPE_CHECKING:
    from collections.abc import Iterator

ENCODED = {"bytes", "jpeg", "image", "video", "audio", "file", "tifffile", "pdf", "nifti", "mesh"}  # stored as they are
DECODED = {"str", "text", "bool", "boolean", "int", "integer", "float", "pil", "numpy", "no_header_numpy", "tensor", "no_header_tensor", "jpeg_array"}
WHY = {"pickle": "a pickle runs code when it is read", "graph": "a graph may be a pickle, which runs code when it is read"}


class Leaf:
    """A value that is no part of the sample's own dicts and lists."""

    def __init__(self, value: Any) -> None:
        self.value = value


class LeftOutValue:
    """A value that is not imported, of a kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


class LitData:
    """A folder with index.json, as litdata.optimize() makes it."""

    def __init__(self, folder: str, options: Options) -> None:
        base.package("litdata", "litdata", "LitData")
        self._folder, self._options = folder, options
        self._config, chunks = _index(folder)
        loader = str(self._config.get("item_loader") or "PyTreeLoader")
        if loader != "PyTreeLoader":
            raise Refused(f"{folder}: expected chunks of samples, got chunks for {loader}, such as tokens, which have none")
        if self._config.get("encryption"):
            raise Refused(f"{folder}: is encrypted; write it again without encryption")
        self.label, self.classes, self.shards = options.label, list[str](), list[Shard]()
        self._ranges: dict[str, range] = {}
        first = 0
        for chunk in chunks:
            self.shards.append(self._shard(chunk))
            self._ranges[chunk["filename"]] = range(first, first + chunk["chunk_size"])
            first += chunk["chunk_size"]
        sample = self._leaves(next(iter(self._ranges)), 0)
        wanted = base.pick(sample, options, folder)
        self.left_out = [LeftOut(name, sample[name].kind, WHY.get(sample[name].kind, "not supported")) for name in wanted
                         if isinstance(sample[name], LeftOutValue)]
        out = {column.column for column in self.left_out}
        self._wanted = [name for name in wanted if name not in out]
        if not self._wanted:
            raise Refused(f"{folder}: no column can be imported")

    def _shard(self, chunk: dict[str, Any]) -> Shard:
        file = os.path.join(self._folder, chunk["filename"])
        try:
            stat = os.stat(file)
        except OSError as error:
            raise Refused(f"{file}: {error.strerror}; restore the file") from None
        if not self._config.get("compression") and stat.st_size < (chunk.get("chunk_bytes") or 0):  # LitData would wait for the rest
            raise Refused(f"{file}: is truncated: has {stat.st_size} bytes, but index.json lists {chunk['chunk_bytes']}; restore the file")
        return Shard(chunk["filename"].partition(".")[0], file, 0, stat.st_size, base.mtime_of(stat))

    def rows(self, shard: Shard) -> Iterator[dict[str, Any]]:
        name = os.path.basename(shard.file)
        for i in range(len(self._ranges[name])):
            leaves, row = self._leaves(name, i), dict[str, Any]()
            for column in self._wanted:
                value: Any = leaves.get(column)
                if isinstance(value, Leaf):
                    row[column] = value.value
                elif column in self._options.text:
                    row[column] = base.text_of(value, column, shard.file)
                else:
                    row.update(base.spread(column, value) if isinstance(value, list) else {column: value})
            yield row

    def _leaves(self, name: str, i: int) -> dict[str, Any]:
        """Returns the values of a sample by their keys and positions, joined by dots."""
        with base.reading(os.path.join(self._folder, name), Exception):
            sample = _open(self._folder)[self._ranges[name][i]]
        found: dict[str, Any] = {}

        def walk(part: Any, path: tuple[str, ...]) -> None:
            if isinstance(part, dict):
                for key, value in part.items():
                    walk(value, (*path, str(key)))
            elif isinstance(part, tuple) or isinstance(part, list) and not (part and all(hasattr(each, "is_cuda") for each in part)):
                # A list of tensors is a jpeg_array.
                for k, value in enumerate(part):
                    walk(value, (*path, str(k)))
            else:
                found[".".join(path) or "data"] = part
        walk(sample, ())
        return found


@functools.cache
def _open(folder: str) -> Any:
    """Returns LitData's dataset, with serializers of our own for media, pickles and JSON."""
    import litdata
    from litdata.streaming.serializers import _SERIALIZERS

    class Own(type(_SERIALIZERS["bytes"])):  # type: ignore[misc]
        """Hands over the bytes."""

        def __init__(self, kind: str) -> None:
            self.kind, self.usual = kind, _SERIALIZERS[kind]

        def setup(self, metadata: Any) -> None:
            pass

        def deserialize(self, data: Any) -> Any:
            if self.kind == "json":
                return Leaf(self.usual.deserialize(data))
            return bytes(data) if self.kind in ENCODED else LeftOutValue(self.kind)
    return litdata.StreamingDataset(folder, shuffle=False, serializers={kind: Own(kind) for kind in _SERIALIZERS if kind not in DECODED})


def _index(folder: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    path = os.path.join(folder, "index.json")
    try:
        with open(path, encoding="utf-8") as file:
            index = json.load(file)
            index["config"]["data_format"], index["chunks"][0]["filename"]
            return index["config"], index["chunks"]
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; LitData is a folder with index.json and chunks") from None
    except (ValueError, LookupError, TypeError):
        raise Refused(f"{path}: is not an index of LitData's chunks; restore the file") from None


def open_source(paths: list[str], options: Options) -> LitData:
    if len(paths) != 1:
        raise Refused("expected one folder of LitData's chunks; import others with --append")
    return LitData(os.path.join(paths[0], options.split) if options.split else paths[0], options)
