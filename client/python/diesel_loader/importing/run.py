# SPDX-License-Identifier: Apache-2.0
"""An import: reads shards in a random order, mixes rows in a buffer, writes samples, and commits after some shards, so that an interrupted
import continues with the shards that are missing."""
from __future__ import annotations

import collections
import json
import os
import random
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import on_demand
from ..dataset import BUCKET
from ..writing.writer import Writer
from . import console
from .base import LeftOut, Refused, Shard, Source
from .readers import Readers, bytes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PROCESSES = 8
PROCESS_BYTES = 256 << 20  # of shards for each process: less is read before another process has started
NO_DATASET = ("there is no dataset", "is not a dataset")  # in an error of `dieselctl ls`
KEY = "__key__"  # path of the sample in the dataset that was exported, whose folder it keeps
IMAGES = ((b"\xff\xd8\xff", 0), (b"\x89PNG\r\n\x1a\n", 0), (b"WEBP", 8), (b"GIF8", 0), (b"BM", 0), (b"II*\0", 0), (b"MM\0*", 0))


class Plan(NamedTuple):
    """Where and how an import writes."""
    dataset: str
    append: bool
    seed: int
    in_order: bool       # no mixing
    threads: int         # processes that read; 0: chosen by the source's size
    buffer_bytes: int    # rows that are mixed
    commit_bytes: int    # of shards, between two commits
    chunk_bytes: int
    zstd: int | None
    digest: str | None
    meta: str | None
    prefix: str = ""     # of the shards' names in the dataset


def prefix_of(name: str) -> str:
    """Returns the prefix that --name asks for."""
    if "/" in name or "\0" in name or name.startswith("."):
        raise Refused(f"invalid --name '{name}': must be a name without a slash, and without a dot in front")
    return f"{name}-" if name else ""


class Report:
    """Counts of an import, for its last line and --json."""

    def __init__(self) -> None:
        self.samples = self.bytes = self.shards = self.shards_before = 0
        self.version: int | None = None
        self.fields: dict[str, collections.Counter[str]] = {}
        self.left_out: list[LeftOut] = []
        self.classes: set[str] = set()

    def add(self, row: Any) -> None:
        self.samples += 1
        for name, value in row.items() if isinstance(row, dict) else ():
            self.fields.setdefault(name, collections.Counter())[kind_of(value)] += 1


def kind_of(value: Any) -> str:
    """Returns the kind that the writer stores a value as."""
    if isinstance(value, bytes):
        return "image" if any(value[at:at + len(magic)] == magic for magic, at in IMAGES) else "bytes"
    for kind, name in ((type(None), "none"), (bool, "bool"), (int, "int"), (float, "float"), (str, "text"), (list, "json"), (tuple, "json"), (dict, "json")):
        if isinstance(value, kind):
            return name
    return "array"


def present(dataset: str) -> Iterator[tuple[str, int]]:
    """Yields (path, modification time in seconds) of a dataset's samples; none if there is no dataset."""
    if not dataset.startswith(BUCKET) and not os.path.exists(dataset):
        return
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen([on_demand.dieselctl(), "ls", "--recursive", "--json", dataset], stdout=subprocess.PIPE, stderr=errors) as listing:
            assert listing.stdout is not None
            for line in listing.stdout:
                if line.startswith(b"{"):
                    row = json.loads(line.rstrip().rstrip(b","))
                    yield row["path"], row["mtime_ns"] // 1_000_000_000
        errors.seek(0)
        why = errors.read().decode(errors="replace").strip().removeprefix("dieselctl ls: ")
        if listing.returncode != 0 and not any(text in why for text in NO_DATASET):
            raise Refused(f"cannot list {dataset}: {why.splitlines()[0] if why else 'dieselctl ls failed'}")


def missing(source: Source, plan: Plan) -> list[Shard]:
    """Returns the shards that the dataset lacks. Raises Refused for a dataset with other samples, or with a shard that has changed."""
    by_name, done = {f"{plan.prefix}{shard.name}": shard for shard in source.shards}, set[str]()
    for path, mtime in present(plan.dataset):
        shard = by_name.get(os.path.basename(path).rpartition("-")[0])
        if shard is not None and mtime == shard.mtime:
            done.add(shard.name)
        elif shard is not None:  # with --append, too: its rows would replace those
            raise Refused(f"{plan.dataset} has samples of another {shard.name}, such as {path}, or {shard.file} has changed since: choose another dataset, or add these under another name with --append --name NAME")
        elif not plan.append:
            raise Refused(f"{plan.dataset} has samples of another source, such as {path}; add to them with --append, or choose another dataset")
    return [shard for shard in source.shards if shard.name not in done]


def groups(shards: list[Shard], plan: Plan) -> list[list[Shard]]:
    """Returns the shards in the order of reading, in the groups that one commit makes visible."""
    order = list(shards)
    if not plan.in_order:
        random.Random(plan.seed).shuffle(order)
    made: list[list[Shard]] = []
    size = 0
    for shard in order:
        if not made or size + shard.n_bytes > plan.commit_bytes:
            made.append([])
            size = 0
        made[-1].append(shard)
        size += shard.n_bytes
    return made


def mixed(rows: Iterator[tuple[Any, ...]], n_bytes: int, rng: random.Random) -> Iterator[tuple[Any, ...]]:
    """Yields rows in a random order, from a buffer of n_bytes. The last member of a row is its size."""
    held: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        held.append(row)
        size += row[-1]
        while size > n_bytes:
            at = rng.randrange(len(held))
            held[at], held[-1] = held[-1], held[at]
            size -= held[-1][-1]
            yield held.pop()
    rng.shuffle(held)
    yield from held


def _own_key(row: Any, source: Source) -> str | None:
    """Takes the path that `dieselctl export` wrote out of the row. None: there is none, or it cannot be one."""
    key = row.get(KEY) if isinstance(row, dict) and not source.label else None
    if not isinstance(key, str) or any(part in ("", ".", "..") for part in key.split("/")) or "\0" in key:
        return None
    del row[KEY]
    return key


def folder_of(source: Source, row: Any) -> str:
    """Returns the class folder of a sample, with a slash; empty: no class."""
    value = row.get(source.label) if source.label else None
    if value is None or (source.classes and not (isinstance(value, int) and 0 <= value < len(source.classes))):
        return ""
    text = source.classes[value] if source.classes else str(value)
    text = text.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
    return f"{'%2E' + text[1:] if text.startswith('.') else text or '%'}/"


def run(source: Source, plan: Plan) -> Report:
    report = Report()
    report.left_out = source.left_out
    shards = missing(source, plan)
    report.shards_before = len(source.shards) - len(shards)
    n_bytes, done = sum(shard.n_bytes for shard in shards), 0
    bar = console.Progress("importing")
    readers = Readers(source, 1 if plan.in_order else min(plan.threads or min(os.cpu_count() or 1, MAX_PROCESSES, n_bytes // PROCESS_BYTES), len(shards)))
    try:
        for group in groups(shards, plan):
            size = sum(shard.n_bytes for shard in group)
            _import(source, plan, readers, group, report, lambda part: bar.show((done + part * size) / max(1, n_bytes), report.bytes))  # noqa: B023
            done += size
    finally:
        bar.end()
        readers.close()
    return report


def _import(source: Source, plan: Plan, readers: Readers, group: list[Shard], report: Report, show: Any) -> None:
    """Writes the rows of some shards as one version."""
    more = plan.append or report.shards > 0 or report.shards_before > 0
    n_first, size = report.bytes, sum(shard.n_bytes for shard in group)

    def rows() -> Iterator[tuple[Any, ...]]:
        for shard, first, batch in readers.read(group):
            for i, row in enumerate(batch):
                yield shard, first + i, row, bytes_of(row)

    with Writer(plan.dataset, more, plan.chunk_bytes, plan.digest, plan.meta, plan.zstd) as writer:
        # A seed for each group, because a continued import must not depend on the groups before.
        rng = random.Random(f"{plan.seed} {group[0].name}")
        for shard, number, row, row_bytes in rows() if plan.in_order else mixed(rows(), plan.buffer_bytes, rng):
            key = _own_key(row, source)
            folder = folder_of(source, row) if key is None else os.path.join(os.path.dirname(key), "")
            path = f"{folder}{plan.prefix}{shard.name}-{number:08d}"
            try:
                writer.put(path, row, mtime=shard.mtime)
            except (TypeError, ValueError) as error:
                raise Refused(f"{shard.file}: row {number}: {error}; leave the column out with --columns") from None
            report.add(row)
            if folder:
                report.classes.add(folder.partition("/")[0])
            report.bytes += row_bytes
            show((report.bytes - n_first) / max(1, size))
    report.version = writer.version
    report.shards += len(group)
