# SPDX-License-Identifier: Apache-2.0
"""TFRecord and ArrayRecord files. A record is a tf.train.Example, a tf.train.SequenceExample or plain bytes."""
from __future__ import annotations

import functools
import gzip
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any

from .. import base
from ..base import LeftOut, Options, Refused, Shard

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE, BYTES = "example", "bytes"
MAX_RECORD = 1 << 30
AT_A_TIME = 64
MASK = 0xa282ead8
PROTO = """name: "diesel/example.proto" package: "diesel.example" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 type: TYPE_BYTES label: LABEL_REPEATED } }
message_type { name: "FloatList" field { name: "value" number: 1 type: TYPE_FLOAT label: LABEL_REPEATED } }
message_type { name: "Int64List" field { name: "value" number: 1 type: TYPE_INT64 label: LABEL_REPEATED } }
message_type { name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: ".diesel.example.BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 type: TYPE_MESSAGE type_name: ".diesel.example.FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: ".diesel.example.Int64List" oneof_index: 0 } }
message_type { name: "Features"
  field { name: "feature" number: 1 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".diesel.example.Features.FeatureEntry" }
  nested_type { name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".diesel.example.Feature" } } }
message_type { name: "FeatureList"
  field { name: "feature" number: 1 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".diesel.example.Feature" } }
message_type { name: "FeatureLists"
  field { name: "feature_list" number: 1 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".diesel.example.FeatureLists.FeatureListEntry" }
  nested_type { name: "FeatureListEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".diesel.example.FeatureList" } } }
message_type { name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".diesel.example.Features" }
  field { name: "feature_lists" number: 2 type: TYPE_MESSAGE type_name: ".diesel.example.FeatureLists" } }
"""


@functools.cache
def example() -> Any:
    """Returns a class that parses tf.train.Example and SequenceExample, whose context has the number of the former's features. It is
    made here, because generated code works with some versions of protobuf only."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(PROTO, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("diesel.example.Example"))


class Records:
    """Files of records; Features of a tf.train.Example become fields."""
    classes: list[str] = []
    left_out: list[LeftOut] = []

    def __init__(self, files: list[str], options: Options, usual: str) -> None:
        self._options = options
        self._is_example = (options.records or usual) == EXAMPLE
        if self._is_example:
            base.package("google.protobuf", "protobuf", "tf.train.Example")
        elif options.columns or options.text or options.arrays or options.label:
            raise Refused(f"{files[0]}: records of bytes have no columns; use --records example if they are of tf.train.Example")
        names = base.shard_names(files)
        self.label = options.label
        self.shards = [Shard(names[file], file, 0, os.stat(file).st_size, base.mtime_of(os.stat(file))) for file in files]

    def records(self, file: str) -> Iterator[bytes]:
        raise NotImplementedError

    def rows(self, shard: Shard) -> Iterator[Any]:
        for record in self.records(shard.file):
            yield self._fields(record, shard.file) if self._is_example else record

    def _fields(self, record: bytes, file: str) -> dict[str, Any]:
        from google.protobuf.message import DecodeError
        try:
            message = example().FromString(record)
            features, lists = message.features.feature, message.feature_lists.feature_list
        except DecodeError as error:
            raise Refused(f"{file}: a record is not a tf.train.Example ({base.one_line(error)}); try --records bytes") from None
        if twice := sorted(features.keys() & lists.keys()):
            raise Refused(f"{file}: '{twice[0]}' is in the context and in the feature lists of a record, but a sample has one field of a name; try --records bytes")
        if not features and not lists:
            raise Refused(f"{file}: a record is not a tf.train.Example, or has no features; try --records bytes")
        row: dict[str, Any] = {}
        for name in self._options.columns or sorted({*features, *lists}):
            row.update(self._field(name, features[name], file) if name in features else
                       self._steps(name, lists[name], file) if name in lists else {name: None})
        return row

    def _steps(self, name: str, steps: Any, file: str) -> dict[str, Any]:
        """Returns the fields of a feature list of a tf.train.SequenceExample: an array whose first axis is the steps, if all steps have
        the same number of values."""
        import numpy
        kinds = {step.WhichOneof("kind") for step in steps.feature} - {None}
        if len(kinds) > 1:
            raise Refused(f"{file}: the steps of '{name}' have values of several kinds; leave it out with --columns, or try --records bytes")
        kind = kinds.pop() if kinds else None
        values = [list(getattr(step, kind).value) if kind else [] for step in steps.feature]
        lengths = {len(one) for one in values}
        is_single = lengths == {1}
        if kind == "bytes_list" and name in self._options.text:
            texts = [[base.text_of(value, name, file) for value in one] for one in values]
            return {name: [one[0] for one in texts] if is_single else texts}
        if kind == "bytes_list":
            return base.spread(name, [one[0] for one in values]) if is_single else {
                f"{name}.{i}.{k}": value for i, one in enumerate(values) for k, value in enumerate(one)}
        if len(lengths) > 1:
            return {name: values}
        array = numpy.array(values, "float32" if kind == "float_list" else "int64") if kind else None
        return {name: array.reshape(-1) if array is not None and is_single and name not in self._options.arrays else array}

    def _field(self, name: str, feature: Any, file: str) -> dict[str, Any]:
        import numpy
        kind = feature.WhichOneof("kind")
        values = list(getattr(feature, kind).value) if kind else []
        if kind == "bytes_list":
            values = [base.text_of(value, name, file) for value in values] if name in self._options.text else values
            return {name: values[0] if values else None} if len(values) <= 1 else {name: values} if isinstance(values[0], str) else base.spread(name, values)
        if len(values) == 1 and name not in self._options.arrays:
            return {name: values[0]}
        return {name: numpy.array(values, "float32" if kind == "float_list" else "int64") if values or name in self._options.arrays else None}


class TfRecords(Records):
    def records(self, file: str) -> Iterator[bytes]:
        from crc32c import crc32c

        def check(data: bytes, stored: bytes, at: int) -> None:
            crc = crc32c(data)
            if struct.unpack("<I", stored)[0] != ((crc >> 15 | crc << 17) + MASK) & 0xffffffff:
                raise Refused(f"{file}: is damaged at byte {at} (a checksum differs); restore the file, or leave it out")
        at = 0
        with base.reading(file, EOFError, zlib.error), open(file, "rb") as plain:
            is_gzip = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            opened: Any = gzip.open(plain) if is_gzip else plain
            while head := opened.read(12):
                if len(head) == 12:
                    check(head[:8], head[8:], at)
                length = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else 0
                if length > MAX_RECORD:
                    raise Refused(f"{file}: a record of {length} bytes at byte {at}, but a sample can have at most 1 GiB")
                data = opened.read(length + 4)
                if len(head) < 12 or len(data) < length + 4:
                    raise Refused(f"{file}: is truncated within the record at byte {at}; restore the file, or leave it out")
                check(data[:-4], data[-4:], at)
                yield data[:-4]
                at += 16 + length


class ArrayRecords(Records):
    def records(self, file: str) -> Iterator[bytes]:
        from array_record.python.array_record_module import ArrayRecordReader
        with base.reading(file, RuntimeError):
            reader = ArrayRecordReader(file)
            try:
                for begin in range(0, reader.num_records(), AT_A_TIME):
                    yield from reader.read(list(range(begin, min(begin + AT_A_TIME, reader.num_records()))))
            finally:
                reader.close()


def _of_split(files: list[str], paths: list[str], options: Options) -> list[str]:
    top = paths[0] if os.path.isdir(paths[0]) else os.path.dirname(files[0]) or "."
    return base.choose_split(files, options.split, top)


def open_tfrecord(paths: list[str], options: Options) -> Records:
    base.package("crc32c", "crc32c", "TFRecord")
    files = base.files_of(paths, (".tfrecord", ".tfrecords", ".tfrec", ".record", ".gz"))
    return TfRecords(_of_split(files, paths, options), options, EXAMPLE)


def open_arrayrecord(paths: list[str], options: Options) -> Records:
    base.package("array_record.python.array_record_module", "array_record", "ArrayRecord")
    files = base.files_of(paths, (".array_record", ".arrayrecord", ".arecord"))
    return ArrayRecords(_of_split(files, paths, options), options, BYTES)
