# SPDX-License-Identifier: Apache-2.0
"""dieselctl export: writes shards in the order of storage. Each gets its name when it is complete, and an interrupted export continues
behind the last complete one."""
from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from typing import TYPE_CHECKING, Any, Protocol

from ... import on_demand
from ...dataset import Dataset
from .. import console
from ..base import Refused
from . import samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .samples import Sample

STATE = ".diesel-export.json"
PLAIN = "plain"


class Shards(Protocol):
    """Writes one shard after another: a file at a path."""
    ending: str

    def open(self, path: str) -> None: ...
    def add(self, sample: Sample) -> None: ...
    def close(self) -> None: ...


class State:
    """Progress of an export in its folder: the dataset's version, and the number of samples after each complete shard."""

    def __init__(self, folder: str, what: dict[str, Any]) -> None:
        self._path, self.ends, self.what = os.path.join(folder, STATE), list[int](), what
        os.makedirs(folder, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            with open(self._path, encoding="utf-8") as file:
                stored = json.load(file)
            self.ends = stored.pop("ends")
            if {**stored, "version": None} != {**what, "version": None}:
                raise Refused(f"{folder}: an interrupted export is there, with other arguments ({stored}); continue that one, or empty the folder")
            self.what = stored
            return
        if set(os.listdir(folder)) - {f"{STATE}.tmp"}:  # which a full disk may have left
            raise Refused(f"{folder}: is not empty; choose an empty or new folder")
        self.save()

    def save(self) -> None:
        with open(f"{self._path}.tmp", "w", encoding="utf-8") as file:
            json.dump({**self.what, "ends": self.ends}, file)
        os.replace(f"{self._path}.tmp", self._path)

    def end(self) -> None:
        os.remove(self._path)


def export(argv: list[str]) -> int:
    """argv: as dieselctl has checked it: dataset, folder, format, bytes of a shard, and "json" or ""."""
    path, folder, to, shard_bytes, form = argv
    begin = time.monotonic()
    on_demand.find_dieselctl()
    dataset = Dataset(path)
    has_fields = dataset.layout != PLAIN
    if has_fields and to == "tree":
        raise Refused(f"{path}: its samples have fields, which a tree of files cannot hold; use --to tar, mds or parquet")
    if not has_fields and to in ("mds", "parquet"):
        raise Refused(f"{path}: its samples are files without fields; use --to tree or tar")
    what = {"dataset": dataset.path, "version": dataset.version, "to": to, "shard_bytes": int(shard_bytes)}
    try:
        result = _run(dataset, folder, what)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or error.filename:
            raise
        raise Refused(f"{folder}: {os.strerror(error.errno)}; the same command continues when there is space") from None
    seconds = time.monotonic() - begin
    if form == "json":
        print(json.dumps({"schema": "diesel.export/1", **result, "seconds": round(seconds, 3)}))
    else:
        before = f"; {console.count(result['samples_before'], 'sample')} exported before" if result["samples_before"] else ""
        print(f"exported {console.count(result['samples'], 'sample')}, {console.size(result['bytes'])}, to {console.count(result['shards'], 'shard')} in {seconds:.1f} s: "
              f"{result['bytes'] / 1e6 / seconds:.1f} MB/s{before}")
    return 0


def _run(dataset: Dataset, folder: str, what: dict[str, Any]) -> dict[str, Any]:
    from . import tables, tar, tree
    if what["to"] == "mds":
        return tables.write_mds(dataset, folder, what["shard_bytes"], _shown(dataset, 0))
    state = State(folder, what)
    if state.what["version"] != dataset.version:
        dataset = Dataset(dataset.path, version=state.what["version"])
    first = state.ends[-1] if state.ends else 0
    if what["to"] == "tree":
        n_bytes = tree.write(dataset, folder, os.path.join(folder, STATE), _shown(dataset, 0))
        state.end()
        return {"samples": len(dataset), "samples_before": 0, "bytes": n_bytes, "shards": 0}
    shards: Shards = tar.Tar(dataset) if what["to"] == "tar" else tables.Parquet(dataset)
    n_bytes = _write(dataset, folder, state, shards, first)
    state.end()
    return {"samples": len(dataset) - first, "samples_before": first, "bytes": n_bytes, "shards": len(state.ends)}


def _write(dataset: Dataset, folder: str, state: State, shards: Shards, first: int) -> int:
    """Writes the samples from number `first` on. Returns their bytes."""
    n_bytes = size = 0
    path = ""

    def finish(end: int) -> None:
        shards.close()
        with open(f"{path}.tmp", "rb") as file:
            os.fsync(file.fileno())
        os.replace(f"{path}.tmp", path)
        state.ends.append(end)
        state.save()
    for sample in _shown(dataset, first):
        if not path:
            path = os.path.join(folder, f"{len(state.ends):06d}{shards.ending}")
            shards.open(f"{path}.tmp")
        shards.add(sample)
        n_bytes, size = n_bytes + len(sample.data), size + len(sample.data)
        if size >= state.what["shard_bytes"]:
            finish(sample.number + 1)
            path, size = "", 0
    if path:
        finish(len(dataset))
    return n_bytes


def _shown(dataset: Dataset, first: int) -> Iterator[Sample]:
    """Yields the samples from number `first` on, with a bar."""
    bar, n_bytes = console.Progress("exporting"), 0
    try:
        for sample in samples.read(dataset, range(first, len(dataset))):
            yield sample
            n_bytes += len(sample.data)
            bar.show((sample.number + 1 - first) / max(1, len(dataset) - first), n_bytes)
    finally:
        bar.end()
