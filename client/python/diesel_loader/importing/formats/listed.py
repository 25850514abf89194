# SPDX-License-Identifier: Apache-2.0
"""Tables, CSV or JSON lines, whose rows name files: each row is a sample, with the bytes of its files and its other columns."""
from __future__ import annotations

import csv
import json
import mimetypes
import os
import re
from typing import TYPE_CHECKING, Any

from .. import base
from ..base import LeftOut, Options, Refused, Shard

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE, SUFFIX = "file_name", "_file_name"  # columns that name files, as Hugging Face's folders have them
ROWS = 1024  # of a shard
SAMPLED = 64  # files whose sizes stand for those of all
INT, FLOAT = re.compile(r"-?(0|[1-9]\d{0,17})"), re.compile(r"-?(0|[1-9]\d{0,14})(\.\d+)?([eE][-+]?\d+)?|nan|-?inf")  # no text such as 007


class Lines:
    """Lines of a file, whose position is known."""

    def __init__(self, file: Any, path: str, at: int = 0, number: int = 0) -> None:
        self._file, self._path, self.at, self.number = file, path, at, number
        file.seek(at)

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        line = self._file.readline()
        if not line:
            raise StopIteration
        first, self.at, self.number = self.at == 0, self.at + len(line), self.number + 1
        try:
            return str(line, "utf-8-sig" if first else "utf-8")
        except UnicodeDecodeError:
            raise Refused(f"{self._path}, line {self.number}: is not UTF-8 text; write the table again as UTF-8") from None


class Table:
    """One file. kinds: of columns of CSV whose cells are all whole numbers, or numbers."""

    def __init__(self, path: str, is_csv: bool) -> None:
        self.path, self._is_csv = path, is_csv
        self.columns, self.kinds, self.parts, self.n_rows = list[str](), dict[str, Any](), list[tuple[int, int]](), 0
        self._begin, self._separator = (0, 0), ","
        with base.reading(path), open(path, "rb") as file:
            if is_csv:
                lines = Lines(file, path)
                head = next(lines, "")
                self._separator = next((c for c in head if c in ",;\t"), ",")
                self.columns = next(csv.reader([head.rstrip("\r\n")], delimiter=self._separator), [])
                self._begin = (lines.at, lines.number)
            for begin, row in self._read(file, self._begin):
                if self.n_rows % ROWS == 0:
                    self.parts.append(begin)
                self.n_rows += 1
                for name, value in row.items():
                    self._note(name, value)
        if not self.n_rows:
            raise Refused(f"{path}: has no rows")
        if self.n_rows == 1 and not is_csv and path.endswith(".json"):
            raise self._one_object()

    def _one_object(self) -> Refused:
        return Refused(f"{self.path}: is one JSON object, such as annotations of COCO, but JSON lines have an object per sample: write the samples "
                       "with diesel_loader.create()")

    def _note(self, name: str, value: Any) -> None:
        """Narrows the kind of a column down by one more cell."""
        if not self._is_csv:
            if name not in self.kinds:
                self.columns.append(name)
            self.kinds.setdefault(name, None)
        elif value:
            kind = self.kinds.get(name, int)
            if kind is int and not INT.fullmatch(value):
                kind = float
            self.kinds[name] = None if kind is float and not FLOAT.fullmatch(value) else kind

    def rows(self, part: int) -> Iterator[tuple[int, dict[str, Any]]]:
        with base.reading(self.path), open(self.path, "rb") as file:
            for _, ((_, number), row) in zip(range(ROWS), self._read(file, self.parts[part])):
                yield number + 1, {name: self._value(name, row.get(name)) for name in self.columns}

    def _value(self, name: str, value: Any) -> Any:
        if not self._is_csv:
            return value
        kind = self.kinds.get(name)
        return (kind(value) if value else None) if kind else value

    def _read(self, file: Any, begin: tuple[int, int]) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
        """Yields (position and line before the row, row)."""
        lines = Lines(file, self.path, *begin)
        records: Iterator[Any] = csv.reader(lines, delimiter=self._separator, strict=True) if self._is_csv else iter(lines)
        while True:
            start = (lines.at, lines.number)
            try:
                record = next(records, None)
            except csv.Error as error:
                raise Refused(f"{self.path}, line {start[1] + 1}: {error}") from None
            if record is None:
                return
            if not (record if self._is_csv else record.strip()):
                continue
            yield start, self._of_cells(record, start[1] + 1) if self._is_csv else self._of_json(record, start[1] + 1)

    def _of_cells(self, record: list[str], number: int) -> dict[str, Any]:
        if len(record) != len(self.columns):
            raise Refused(f"{self.path}, line {number}: has {len(record)} cells, but the first line has {len(self.columns)}")
        return dict(zip(self.columns, record))

    def _of_json(self, record: str, number: int) -> dict[str, Any]:
        try:
            row = json.loads(record)
        except ValueError:
            row = None
        if not isinstance(row, dict) and number == 1 and self.path.endswith(".json"):
            raise self._one_object()
        if not isinstance(row, dict):
            raise Refused(f"{self.path}, line {number}: is no JSON object")
        return row


class Listed:
    """Tables of the same columns."""
    classes: list[str] = []

    def __init__(self, files: list[str], options: Options, is_csv: bool) -> None:
        self.label, names = options.label, base.shard_names(files)
        self._tables = {file: Table(file, is_csv) for file in files}
        first = self._tables[files[0]]
        self._root = os.path.realpath(options.root or os.path.dirname(files[0]) or ".")
        self._wanted = [name for name in base.pick(first.columns, options, files[0]) if name]
        self.left_out = [LeftOut("", "column", "it has no name")] if "" in first.columns else []
        self._files = {name: name for name in options.files} or {name: name for name in self._wanted if name == FILE or name.endswith(SUFFIX)}
        for name in options.files:
            if name not in first.columns:
                raise Refused(f"{files[0]}: no column '{name}'; it has {', '.join(first.columns)}")
        row = next(first.rows(0))[1]
        self.left_out += [LeftOut(name, "files", f"its cells are taken as text, but name files: to import these, add --files {name}")
                          for name in self._wanted if name not in self._files and isinstance(row.get(name), str)
                          and os.path.isfile(os.path.join(self._root, row[name]))]
        kind = mimetypes.guess_type(str(row.get(FILE)))[0] or "file"
        self._files = {name: kind.partition("/")[0] if name == FILE else name.removesuffix(SUFFIX) for name in self._files}
        if clash := next((to for name, to in self._files.items() if to != name and to in self._wanted), None):
            raise Refused(f"{files[0]}: the file of a row becomes the field '{clash}', but there is such a column; leave it out with --columns")
        self.shards: list[Shard] = []
        for file, table in self._tables.items():
            if set(table.columns) != set(first.columns) and is_csv:
                raise Refused(f"{file}: its columns differ from those of {files[0]}; import files of one form at a time")
            size = self._size(table)
            for part in range(len(table.parts)):
                name = f"{names[file]}-{part:05d}" if len(table.parts) > 1 else names[file]
                self.shards.append(Shard(name, file, part, size * min(ROWS, table.n_rows - part * ROWS), base.mtime_of(os.stat(file))))

    def _size(self, table: Table) -> int:
        """Returns the bytes of a row, about."""
        sizes = [os.path.getsize(table.path) // table.n_rows]
        for _, (number, row) in zip(range(SAMPLED), table.rows(0)):
            sizes.append(sum(os.path.getsize(self._place(table.path, number, row[name])) for name in self._files if row.get(name)))
        return sum(sizes) // len(sizes)

    def rows(self, shard: Shard) -> Iterator[dict[str, Any]]:
        for number, row in self._tables[shard.file].rows(shard.part):
            made: dict[str, Any] = {}
            for name in self._wanted:
                if name in self._files:
                    made[self._files[name]] = self._bytes(shard.file, number, row[name]) if row[name] else None
                else:
                    made[name] = row[name]
            yield made

    def _place(self, table: str, number: int, name: Any) -> str:
        """Returns the path of a file; only below the folder, because the table may be foreign."""
        whole = os.path.realpath(os.path.join(self._root, str(name)))
        if os.path.commonpath([whole, self._root]) != self._root:
            raise Refused(f"{table}, line {number}: names the file {name} outside of {self._root}; name the folder of the files with --root FOLDER")
        if not os.path.isfile(whole):
            raise Refused(f"{table}, line {number}: no file {name} in {self._root}; restore it, or name the folder of the files with --root FOLDER")
        return whole

    def _bytes(self, table: str, number: int, name: Any) -> bytes:
        with open(self._place(table, number, name), "rb") as file:
            return file.read()


def _open(paths: list[str], options: Options, endings: tuple[str, ...]) -> Listed:
    files = base.files_of(paths, endings)
    top = paths[0] if os.path.isdir(paths[0]) else os.path.dirname(files[0]) or "."
    files = base.choose_split(files, options.split, top) if len(files) > 1 else files
    return Listed(files, options._replace(root=options.root or top), ".jsonl" not in endings)


def open_csv(paths: list[str], options: Options) -> Listed:
    return _open(paths, options, (".csv", ".tsv"))


def open_jsonl(paths: list[str], options: Options) -> Listed:
    return _open(paths, options, (".jsonl", ".ndjson"))
