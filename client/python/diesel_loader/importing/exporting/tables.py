# SPDX-License-Identifier: Apache-2.0
"""Parquet files and MDS shards: every field is a column of one type."""
from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

from ... import native
from .. import base, run
from ..base import Refused
from ..formats.arrow import JSON, KIND, NPY
from . import samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...dataset import Dataset
    from .samples import Sample

GROUP_BYTES = 32 << 20  # of a row group
NAMES = {native.FIELD_BYTES: "bytes", native.FIELD_TEXT: "text", native.FIELD_JSON: "json", native.FIELD_IMAGE: "image", native.FIELD_ARRAY: "array",
         native.FIELD_INT: "int", native.FIELD_FLOAT: "float", native.FIELD_BOOL: "bool", native.FIELD_NONE: "none"}
ENCODINGS = {native.FIELD_BYTES: "bytes", native.FIELD_IMAGE: "bytes", native.FIELD_TEXT: "str", native.FIELD_JSON: "json", native.FIELD_ARRAY: "ndarray",
             native.FIELD_INT: "int", native.FIELD_FLOAT: "float64", native.FIELD_BOOL: "json"}
AS_JSON = {native.FIELD_TEXT, native.FIELD_JSON, native.FIELD_INT, native.FIELD_FLOAT, native.FIELD_BOOL}  # may be null in MDS


def columns(dataset: Dataset) -> dict[str, int]:
    """Returns the kind of each field. Raises Refused for a field of several kinds."""
    found: dict[str, int] = {}
    for name, kinds in samples.kinds(dataset).items():
        own = kinds - {native.FIELD_NONE}
        if own == {native.FIELD_BYTES, native.FIELD_IMAGE}:
            own = {native.FIELD_BYTES}
        if len(own) > 1:
            raise Refused(f"{dataset.path}: field '{name}' has values of several kinds ({', '.join(sorted(NAMES[k] for k in own))}), and a column has one; "
                          "use --to tar")
        found[name] = own.pop() if own else native.FIELD_NONE
    return found


def load(data: bytes) -> Any:
    import numpy
    return numpy.load(io.BytesIO(data), allow_pickle=False)


class Parquet:
    """Images are columns as Hugging Face's datasets stores them."""
    ending = ".parquet"

    def __init__(self, dataset: Dataset) -> None:
        base.package("pyarrow.parquet", "pyarrow", "Parquet")
        self._kinds = columns(dataset)
        self._dtypes = self._lists(dataset)
        self._schema = self._make_schema()
        self._rows: dict[str, list[Any]] = {}
        self._size = 0
        self._writer: Any = None

    def _lists(self, dataset: Dataset) -> dict[str, str]:
        """Returns the dtype of each field whose arrays all have one dimension and one dtype: it becomes a list."""
        found: dict[str, set[Any]] = {}
        arrays = [name for name, kind in self._kinds.items() if kind == native.FIELD_ARRAY]
        for sample in samples.read(dataset, range(0, len(dataset), max(1, len(dataset) // samples.SCANNED))) if arrays else ():
            for field in sample.fields:
                if field.kind == native.FIELD_ARRAY:
                    array = load(field.data)
                    found.setdefault(field.name, set()).add(array.dtype if array.ndim == 1 and array.dtype.isnative and array.dtype.kind in "biuf" else None)
        return {name: dtype.name for name, (dtype, *others) in found.items() if not others and dtype is not None}

    def _make_schema(self) -> Any:
        import pyarrow as pa
        types = {native.FIELD_BYTES: pa.binary(), native.FIELD_TEXT: pa.string(), native.FIELD_JSON: pa.string(), native.FIELD_INT: pa.int64(),
                 native.FIELD_IMAGE: pa.struct([("bytes", pa.binary()), ("path", pa.string())]), native.FIELD_FLOAT: pa.float64(),
                 native.FIELD_BOOL: pa.bool_(), native.FIELD_NONE: pa.null(), native.FIELD_ARRAY: pa.binary()}
        fields = [pa.field(run.KEY, pa.string())]
        for name, kind in self._kinds.items():
            mark = JSON if kind == native.FIELD_JSON else NPY if kind == native.FIELD_ARRAY and name not in self._dtypes else None
            of_type = pa.list_(pa.from_numpy_dtype(self._dtypes[name])) if name in self._dtypes else types[kind]
            fields.append(pa.field(name, of_type, metadata={KIND: mark} if mark else None))
        images = {name: {"_type": "Image"} for name, kind in self._kinds.items() if kind == native.FIELD_IMAGE}
        known = {name: {"_type": "Value", "dtype": "string" if kind in (native.FIELD_TEXT, native.FIELD_JSON) else str(fields[i + 1].type)}
                 for i, (name, kind) in enumerate(self._kinds.items()) if kind not in (native.FIELD_IMAGE, native.FIELD_ARRAY, native.FIELD_NONE)}
        if len(images) + len(known) < len(self._kinds):  # `datasets` infers the features of the others only if it infers all
            return pa.schema(fields)
        features = {run.KEY: {"_type": "Value", "dtype": "string"}, **{name: images.get(name) or known[name] for name in self._kinds}}
        return pa.schema(fields, metadata={b"huggingface": json.dumps({"info": {"features": features}}).encode()})

    def open(self, path: str) -> None:
        from pyarrow import parquet
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd", use_dictionary=False, store_schema=True)

    def add(self, sample: Sample) -> None:
        unknown = next((field.name for field in sample.fields if field.name not in self._kinds), None)
        if unknown is not None:
            raise Refused(f"{sample.path}: field '{unknown}' is in few samples, and a table has the columns of all; use --to tar")
        have = {field.name: field for field in sample.fields}
        self._rows.setdefault(run.KEY, []).append(sample.path)
        for name, kind in self._kinds.items():
            field = have.get(name)
            self._rows.setdefault(name, []).append(None if field is None or field.kind == native.FIELD_NONE else self._value(sample, field, kind))
        self._size += len(sample.data)
        if self._size >= GROUP_BYTES:
            self._flush()

    def _value(self, sample: Sample, field: samples.Field, kind: int) -> Any:
        if field.kind != kind and {field.kind, kind} != {native.FIELD_IMAGE, native.FIELD_BYTES}:
            raise Refused(f"{sample.path}: field '{field.name}' is of kind {NAMES[field.kind]}, and {NAMES[kind]} in other samples; use --to tar")
        if kind == native.FIELD_IMAGE:
            return {"bytes": field.data, "path": None}
        if kind == native.FIELD_JSON:
            return field.data.decode()
        if field.name in self._dtypes:
            array = load(field.data)
            if array.ndim != 1 or array.dtype.name != self._dtypes[field.name]:
                raise Refused(f"{sample.path}: field '{field.name}' is an array of {array.ndim} dimensions of {array.dtype}, other samples have lists of "
                              f"{self._dtypes[field.name]}; use --to tar")
            return array
        return field.data if kind in (native.FIELD_BYTES, native.FIELD_ARRAY) else samples.value(field)

    def _flush(self) -> None:
        import pyarrow as pa
        if self._rows:
            self._writer.write_table(pa.table({field.name: pa.array(self._rows[field.name], field.type) for field in self._schema}, self._schema))
        self._rows, self._size = {}, 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


def write_mds(dataset: Dataset, folder: str, shard_bytes: int, rows: Iterator[Sample]) -> dict[str, Any]:
    """Writes all of an MDS dataset, whose index comes last, to a temporary folder, which then gets its name."""
    streaming = base.package("streaming", "mosaicml-streaming", "MDS")
    if os.path.isdir(folder) and os.listdir(folder):
        raise Refused(f"{folder}: is not empty; choose an empty or new folder")
    encodings = _encodings(dataset)
    whole = os.path.abspath(folder)
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    made = tempfile.mkdtemp(prefix=f".{os.path.basename(whole)}-", dir=os.path.dirname(whole))
    try:
        n, n_bytes = _write_mds(streaming, made, encodings, shard_bytes, rows)
        os.chmod(made, 0o777 & ~_umask())
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        os.rename(made, folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return {"samples": n, "samples_before": 0, "bytes": n_bytes, "shards": sum(name.startswith("shard") for name in os.listdir(folder))}


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write_mds(streaming: Any, made: str, encodings: dict[str, str], shard_bytes: int, rows: Iterator[Sample]) -> tuple[int, int]:
    """Returns the number of samples, and their bytes."""
    n_bytes = n = 0
    with streaming.MDSWriter(out=made, columns={run.KEY: "str", **encodings}, size_limit=min(shard_bytes, 1 << 31)) as writer:
        for sample in rows:
            try:
                writer.write({run.KEY: sample.path, **_mds_row(sample, encodings)})
            except (ValueError, AttributeError) as error:
                raise Refused(f"{sample.path}: MDS cannot hold the sample ({base.one_line(error)}); use --to parquet or tar") from None
            n, n_bytes = n + 1, n_bytes + len(sample.data)
    return n, n_bytes


def _encodings(dataset: Dataset) -> dict[str, str]:
    found, kinds = {}, samples.kinds(dataset)
    for name, kind in columns(dataset).items():
        optional = native.FIELD_NONE in kinds[name]
        if optional and kind not in AS_JSON and kind != native.FIELD_NONE:
            raise Refused(f"{dataset.path}: field '{name}' is missing in some samples, and MDS has no empty {NAMES[kind]}; use --to parquet or tar")
        found[name] = "json" if optional else ENCODINGS[kind]
    return found


def _mds_row(sample: Sample, encodings: dict[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(encodings)
    for field in sample.fields:
        if field.name not in encodings:
            raise Refused(f"{sample.path}: field '{field.name}' is in few samples, and MDS has the columns of all; use --to tar")
        row[field.name] = load(field.data) if field.kind == native.FIELD_ARRAY else samples.value(field)
    if (wrong := next((name for name, value in row.items() if value is None and encodings[name] != "json"), None)) is not None:
        raise Refused(f"{sample.path}: field '{wrong}' is missing, and MDS has no empty {encodings[wrong]}; use --to parquet or tar")
    return row
