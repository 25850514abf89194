# SPDX-License-Identifier: Apache-2.0
"""Parquet files, and folders of Hugging Face's `datasets`: Arrow files of save_to_disk(), or Parquet files. Only pyarrow reads them."""
from __future__ import annotations

import io
import json
import os
import re
import urllib.parse
from typing import TYPE_CHECKING, Any, Callable

from .. import base
from ..base import LeftOut, Options, Refused, Shard

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH_BYTES, MAX_BATCH = 8 << 20, 1024
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
KIND = b"diesel.kind"  # metadata of columns that `dieselctl export` writes
NPY, JSON = b"npy", b"json"
LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}  # folders of the logs of tables
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
INT = re.compile(r"0|-?[1-9]\d{0,17}")
ENCODED = {"Image", "Audio", "Video"}  # features of `datasets` that store {bytes, path}

Convert = Callable[[Any], "list[Any]"]  # a column of a batch -> values


class Columns:
    """Turns Arrow's columns into values of fields."""

    def __init__(self, schema: Any, options: Options, what: str, folder: str) -> None:
        self.folder, self.what = os.path.realpath(folder), what
        features = _features(schema)
        self.left_out: list[LeftOut] = []
        self.converts: dict[str, Convert] = {}
        self.classes: dict[str, list[str]] = {name: list(feature.get("names") or ()) for name, feature in features.items()
                                              if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"}
        for name in base.pick(schema.names, options, what):
            field = schema.field(name)
            try:
                self.converts[name] = self._convert(name, field, features.get(name), name in options.text)
            except _Unsupported as reason:
                self.left_out.append(LeftOut(name, str(field.type), str(reason)))
        if not self.converts:
            raise Refused(f"{what}: no column can be imported")

    def rows(self, batch: Any) -> Iterator[dict[str, Any]]:
        columns = [(name, convert(batch.column(name))) for name, convert in self.converts.items()]
        for values in zip(*(values for _, values in columns)):
            row: dict[str, Any] = {}
            for (name, _), value in zip(columns, values):
                if isinstance(value, _Spread):
                    row.update(value.fields)
                else:
                    row[name] = value
            yield row

    def _convert(self, name: str, field: Any, feature: Any, is_text: bool) -> Convert:
        import pyarrow as pa
        kind, how = field.type, (field.metadata or {}).get(KIND)
        if isinstance(kind, pa.FixedShapeTensorType):
            return lambda column: _optional(column, list(column.to_numpy_ndarray()))
        if isinstance(kind, pa.BaseExtensionType):
            inner = self._convert(name, pa.field(name, kind.storage_type), feature, is_text)
            return lambda column: inner(column.storage)
        if pa.types.is_dictionary(kind):
            inner = self._convert(name, pa.field(name, kind.value_type), feature, is_text)
            return lambda column: inner(column.dictionary_decode())
        if pa.types.is_run_end_encoded(kind):
            inner = self._convert(name, pa.field(name, kind.value_type), feature, is_text)
            return lambda column: inner(column.cast(kind.value_type))
        if how in (NPY, JSON):
            return _stored_arrays if how == NPY else lambda column: [None if value is None else json.loads(value) for value in column.to_pylist()]
        if isinstance(feature, dict) and str(feature.get("_type", "")).startswith("Array") and feature.get("shape"):
            return _shaped(feature)
        if _is_encoded(kind, feature):
            return lambda column: self._encoded(name, column)
        if _is_list(kind):
            return self._list(name, kind, feature)
        if _is_bytes(kind) and is_text:
            return lambda column: [None if value is None else base.text_of(value, name, self.what) for value in column.to_pylist()]
        if pa.types.is_struct(kind) and _has_bytes(kind):
            return self._struct(name, kind, feature)
        if pa.types.is_nested(kind):
            return self._json(kind)
        return _scalars(kind)

    def _encoded(self, name: str, column: Any) -> list[Any]:
        import pyarrow.compute as pc
        data = pc.struct_field(column, "bytes").to_pylist()
        if any(value is None for value in data):
            paths = pc.struct_field(column, "path").to_pylist()
            data = [self._outside(name, path) if value is None and path is not None else value for value, path in zip(data, paths)]
        return data

    def _outside(self, name: str, path: str) -> bytes:
        """Reads a file that a row names instead of holding its bytes: only below the source's folder, because the rows are foreign."""
        whole = os.path.realpath(os.path.join(self.folder, path))
        if os.path.commonpath([whole, self.folder]) != self.folder:
            raise Refused(f"{self.what}: '{name}' names the file {path} outside of {self.folder}; save the dataset again with embedded files: "
                          "dataset.with_format('arrow').map(datasets.table.embed_table_storage, batched=True)")
        try:
            with open(whole, "rb") as file:
                return file.read()
        except OSError as error:
            raise Refused(f"{self.what}: '{name}' names the file {path}: {error.strerror}; restore the file") from None

    def _list(self, name: str, kind: Any, feature: Any) -> Convert:
        import pyarrow as pa
        value = kind.value_type
        if _is_number(value):
            return _numbers
        if pa.types.is_fixed_size_list(value) and _is_number(value.value_type):
            return lambda column: [None if not item.is_valid else _tensor(item.values) for item in column]
        inside = feature.get("feature") if isinstance(feature, dict) else feature[0] if isinstance(feature, list) and feature else None
        if _is_bytes(value) or _is_encoded(value, inside):
            inner = self._convert(name, pa.field(name, value), inside, False)
            return lambda column: [None if not item.is_valid else _Spread(base.spread(name, inner(item.values))) for item in column]
        return self._json(kind)

    def _struct(self, name: str, kind: Any, feature: Any) -> Convert:
        import pyarrow.compute as pc
        parts = {part.name: self._convert(f"{name}.{part.name}", part, feature.get(part.name) if isinstance(feature, dict) else None, False)
                 for part in (kind.field(i) for i in range(kind.num_fields))}

        def convert(column: Any) -> list[Any]:
            values = {part: inner(pc.struct_field(column, part)) for part, inner in parts.items()}
            return [_Spread({f"{name}.{part}": each[i] for part, each in values.items()}) for i in range(len(column))]
        return convert

    def _json(self, kind: Any) -> Convert:
        if _has_bytes(kind):
            raise _Unsupported("bytes within nested lists")
        if _has_time(kind):
            return lambda column: [None if value is None else json.loads(json.dumps(value, default=str)) for value in column.to_pylist()]
        return lambda column: column.to_pylist()


class _Unsupported(Exception):
    """The reason that a column is left out."""


class _Spread:
    """Several fields of one column."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields


def _features(schema: Any) -> dict[str, Any]:
    """Returns the features that `datasets` writes into a schema."""
    try:
        found = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_number(kind: Any) -> bool:
    import pyarrow as pa
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_bytes(kind: Any) -> bool:
    import pyarrow as pa
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind))


def _is_list(kind: Any) -> bool:
    import pyarrow as pa
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_encoded(kind: Any, feature: Any) -> bool:
    """Returns True for {bytes, path}, as `datasets` stores images, audio and video."""
    import pyarrow as pa
    if not pa.types.is_struct(kind) or {kind.field(i).name for i in range(kind.num_fields)} != {"bytes", "path"}:
        return False
    return (isinstance(feature, dict) and feature.get("_type") in ENCODED) or _is_bytes(kind.field("bytes").type)


def _inside(kind: Any) -> list[Any]:
    return [kind.field(i).type for i in range(kind.num_fields)]


def _has_bytes(kind: Any) -> bool:
    return _is_bytes(kind) or any(_has_bytes(part) for part in _inside(kind))


def _has_time(kind: Any) -> bool:
    import pyarrow as pa
    return bool(pa.types.is_temporal(kind) or pa.types.is_decimal(kind)) or any(_has_time(part) for part in _inside(kind))


def _scalars(kind: Any) -> Convert:
    import pyarrow as pa
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return lambda column: column.cast(pa.string()).to_pylist()
    if pa.types.is_union(kind):
        raise _Unsupported("a union")
    return lambda column: column.to_pylist()


def _optional(column: Any, values: list[Any]) -> list[Any]:
    return [value if valid else None for value, valid in zip(values, column.is_valid().to_pylist())] if column.null_count else values


def _stored_arrays(column: Any) -> list[Any]:
    import numpy
    return [None if value is None else numpy.load(io.BytesIO(value), allow_pickle=False) for value in column.to_pylist()]


def _numbers(column: Any) -> list[Any]:
    """Returns arrays; a list with nulls inside stays a list, for JSON."""
    return [None if not item.is_valid else item.as_py() if item.values.null_count else item.values.to_numpy(zero_copy_only=False)
            for item in column]


def _tensor(values: Any) -> Any:
    """Returns the array of a list of lists that all have one length."""
    flat = values.flatten()
    return flat.to_numpy(zero_copy_only=False).reshape(len(values), values.type.list_size) if not (values.null_count or flat.null_count) else values.to_pylist()


def _shaped(feature: dict[str, Any]) -> Convert:
    """For Array2D to Array5D of `datasets`, stored as nested lists; their first dimension may differ from row to row."""
    shape = [-1 if size is None else size for size in feature["shape"]]

    def one(values: Any) -> Any:
        while _is_list(values.type):
            values = values.flatten()
        return values.to_numpy(zero_copy_only=False).reshape(shape)
    return lambda column: [None if not item.is_valid else one(item.values) for item in column]


def _check_no_log(paths: list[str]) -> None:
    """Refuses tables of which a log says which files count: others may be there, too."""
    for path in filter(os.path.isdir, paths):
        for name, what in LOGS.items():
            if os.path.isdir(os.path.join(path, name)):
                raise Refused(f"{path}: is a {what} table, whose log says which of its files count; write the rows as Parquet files first, with a library "
                              f"that reads {what}" + (f": python3 -c \"import deltalake; import pyarrow.dataset as d; d.write_dataset(deltalake.DeltaTable('{path}')"
                                                       ".to_pyarrow_dataset(), 'rows', format='parquet')\"" if what == "Delta" else ""))


def _of_path(file: str, folder: str) -> dict[str, Any]:
    """Returns the columns of Hive's partitions, which are folders such as year=2024."""
    found: dict[str, Any] = {}
    for part in os.path.relpath(os.path.dirname(os.path.abspath(file)), os.path.abspath(folder)).split("/"):
        name, is_column, value = part.partition("=")
        if is_column and name:
            found[urllib.parse.unquote(name)] = None if value == HIVE_NULL else urllib.parse.unquote(value)
    return found


class Tables:
    """Parquet and Arrow files of one schema. Columns of Hive's partitions are numbers if all of their values are."""

    def __init__(self, files: list[str], options: Options, folder: str) -> None:
        parts = {file: _of_path(file, folder) for file in files}
        whole = {name for name in parts[files[0]] if all(INT.fullmatch(str(part.get(name) or 0)) for part in parts.values())}
        self._parts = {file: {name: int(value) if name in whole and value is not None else value for name, value in part.items()} for file, part in parts.items()}
        for file, part in parts.items():
            if part.keys() != parts[files[0]].keys():
                raise Refused(f"{file}: its folders give the columns {', '.join(part) or 'none'}, those of {files[0]} give {', '.join(parts[files[0]]) or 'none'}; "
                              "import files of one schema at a time")
        chosen, label = options, options.label
        self._of_path = [name for name in parts[files[0]] if not options.columns or name in options.columns]
        options = options._replace(columns=tuple(name for name in options.columns if name not in self._of_path), label="" if label in self._of_path else label)
        if chosen.columns and not options.columns:
            raise Refused(f"{folder}: --columns names only columns of folders; name one of the files', too")
        self._options, self._folder = options, folder
        names, self.shards, schema = base.shard_names(files), list[Shard](), None
        for file in files:
            own = self._add(file, names[file])
            if schema is None:
                schema = own
            elif not own.equals(schema):
                raise Refused(f"{file}: its columns differ from those of {files[0]}; import files of one schema at a time")
        assert schema is not None
        if twice := next((name for name in self._of_path if name in schema.names), None):
            raise Refused(f"{files[0]}: its folder and the file both have the column '{twice}'; remove one of them")
        columns = Columns(schema, options, files[0], folder)
        self.left_out = columns.left_out
        labelled = [name for name in columns.classes if name in columns.converts]
        self.label = label or (labelled[0] if len(labelled) == 1 else "")
        self.classes = columns.classes.get(self.label, [])

    def _add(self, file: str, name: str) -> Any:
        stat = os.stat(file)
        if not _is_parquet(file):
            with base.reading(file):
                _check_end(file)
                schema = _open_arrow(file).schema
            self.shards.append(Shard(name, file, 0, stat.st_size, base.mtime_of(stat)))
            return schema
        with _open_parquet(file) as opened:
            for part in range(opened.num_row_groups):  # metadata of columns is not read here: pyarrow aborts where it is encrypted
                size = stat.st_size * opened.metadata.row_group(part).num_rows // max(1, opened.metadata.num_rows)
                self.shards.append(Shard(f"{name}-{part:05d}" if opened.num_row_groups > 1 else name, file, part, size, base.mtime_of(stat)))
            return opened.schema_arrow

    def rows(self, shard: Shard) -> Iterator[dict[str, Any]]:
        import pyarrow as pa
        batches = self._parquet if _is_parquet(shard.file) else self._arrow
        columns: Columns | None = None
        with base.reading(shard.file, pa.ArrowException):
            for batch in batches(shard):
                columns = columns or Columns(batch.schema, self._options, shard.file, self._folder)
                for row in columns.rows(batch):
                    row.update({name: self._parts[shard.file][name] for name in self._of_path})
                    yield row

    def _parquet(self, shard: Shard) -> Iterator[Any]:
        with _open_parquet(shard.file) as opened:
            group = opened.metadata.row_group(shard.part)
            n = max(1, min(MAX_BATCH, BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)))
            wanted = base.pick(opened.schema_arrow.names, self._options, shard.file)
            for batch in opened.iter_batches(batch_size=n, row_groups=[shard.part], columns=wanted, use_threads=False):
                yield batch.replace_schema_metadata(opened.schema_arrow.metadata)

    @staticmethod
    def _arrow(shard: Shard) -> Iterator[Any]:
        opened = _open_arrow(shard.file)
        batches = opened if hasattr(opened, "read_next_batch") else (opened.get_batch(i) for i in range(opened.num_record_batches))
        for batch in batches:
            n = max(1, min(MAX_BATCH, BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)))
            for begin in range(0, batch.num_rows, n):
                yield batch.slice(begin, n)


def _is_parquet(file: str) -> bool:
    return file.endswith((".parquet", ".pq"))


def _open_parquet(file: str) -> Any:
    """Opens a file so that it is read in small pieces, on this thread only."""
    import pyarrow as pa
    from pyarrow import parquet
    with open(file, "rb") as start:
        magic = start.read(4)
    if magic == b"PARE":
        raise Refused(f"{file}: is encrypted; write it again without encryption")
    with base.reading(file, pa.ArrowException):
        opened = parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
        return opened


def _open_arrow(file: str) -> Any:
    import pyarrow as pa
    memory = pa.memory_map(file)
    return pa.ipc.open_file(memory) if memory.read_at(6, 0) == b"ARROW1" else pa.ipc.open_stream(memory)


def _check_end(file: str) -> None:
    """A stream that was cut between two batches looks complete, except for the mark at its end."""
    with open(file, "rb") as opened:
        opened.seek(max(0, os.fstat(opened.fileno()).st_size - len(END_OF_STREAM)))
        end = opened.read()
    if end != END_OF_STREAM and not end.endswith(b"ARROW1"):
        raise Refused(f"{file}: is truncated: the mark at its end is missing; restore the file")


def open_parquet(paths: list[str], options: Options) -> Tables:
    base.package("pyarrow", "pyarrow", "Parquet")
    _check_no_log(paths)
    files = base.files_of(paths, (".parquet", ".pq"))
    folder = paths[0] if os.path.isdir(paths[0]) else os.path.dirname(files[0]) or "."
    return Tables(base.choose_split(files, options.split, folder) if len(files) > 1 else files, options, folder)


def open_hf(paths: list[str], options: Options) -> Tables:
    """Opens what save_to_disk() wrote, a folder of a DatasetDict, or a folder of Parquet or Arrow files."""
    base.package("pyarrow", "pyarrow", "a folder of Hugging Face's datasets")
    if len(paths) != 1 or not os.path.isdir(paths[0]):
        raise Refused(f"{paths[0]}: expected a folder that save_to_disk() or a download made; `huggingface-cli download "
                      "--repo-type dataset NAME --local-dir FOLDER` downloads a dataset of the Hub")
    folder = paths[0]
    _check_no_log(paths)
    if os.path.exists(os.path.join(folder, "dataset_dict.json")):
        with open(os.path.join(folder, "dataset_dict.json"), encoding="utf-8") as file:
            splits = json.load(file).get("splits")
        if not isinstance(splits, list) or not splits or not all(isinstance(split, str) for split in splits):
            raise Refused(f"{folder}/dataset_dict.json: names no splits; save the dataset again, or import the folder of one split")
        if len(splits) > 1 and not options.split:
            raise Refused(f"{folder}: expected one split, got {', '.join(splits)}; choose one with --split")
        chosen = options.split or splits[0]
        if chosen not in splits:
            raise Refused(f"{folder}: no split '{chosen}'; it has {', '.join(splits)}")
        folder = os.path.join(folder, chosen)
    state = os.path.join(folder, "state.json")
    if os.path.exists(state):
        with open(state, encoding="utf-8") as file:
            return Tables([os.path.join(folder, os.path.basename(part["filename"])) for part in json.load(file)["_data_files"]], options, folder)
    files = base.files_of([folder], (".parquet", ".arrow"))
    return Tables(base.choose_split(files, options.split, folder), options, folder)
