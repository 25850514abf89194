# SPDX-License-Identifier: Apache-2.0
"""Command line of `dieselctl pack FORMAT:PATH` and `dieselctl export`."""
from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
import time
from typing import Any, NoReturn

from . import base, console, run
from .base import Options, Refused, Source

# Format: module and function that open it.
FORMATS = {"hf": ("arrow", "open_hf"), "parquet": ("arrow", "open_parquet"), "mds": ("mds", "open_source"), "litdata": ("litdata", "open_source"),
           "tfrecord": ("records", "open_tfrecord"), "arrayrecord": ("records", "open_arrayrecord"), "csv": ("listed", "open_csv"),
           "jsonl": ("listed", "open_jsonl")}
PACK_HELP = """FORMAT is one of: hf (a folder of Hugging Face's datasets), parquet, mds, litdata, tfrecord, arrayrecord, csv, jsonl (tables
that name files).
Images stay encoded. The same command continues an interrupted import."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. Try '{self.prog} --help' for more information.\n")


def names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def pack_parser() -> Parser:
    parser = Parser(prog="dieselctl pack", usage="dieselctl pack [OPTION ...] FORMAT:PATH ... DATASET", description=PACK_HELP,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="FORMAT:PATH", help="a folder, a file, or a pattern of files")
    parser.add_argument("dataset", metavar="DATASET", help="a folder, or s3://BUCKET/PREFIX")
    add = parser.add_argument
    add("--columns", type=names, default=(), metavar="A,B", help="only these columns become fields")
    add("--name", default="", metavar="NAME", help="begin the samples' paths with NAME-: for --append of files with the same names")
    add("--label", default="", metavar="COLUMN", help="column that gives the samples' classes (default: the only ClassLabel column)")
    add("--split", default="", metavar="NAME", help="of several splits")
    add("--text", type=names, default=(), metavar="A,B", help="columns of bytes that are UTF-8 text")
    add("--arrays", type=names, default=(), metavar="A,B", help="TFRecord features that are arrays even with one value")
    add("--files", type=names, default=(), metavar="A,B", help="csv and jsonl: columns that name files (default: file_name, and those that end in _file_name)")
    add("--root", default="", metavar="FOLDER", help="csv and jsonl: folder of these files (default: the table's)")
    add("--records", choices=("example", "bytes"), default="", help="what a record is: tf.train.Example (default for tfrecord), "
        "or one value of bytes (default for arrayrecord)")
    add("--threads", "--jobs", "-j", type=int, default=0, metavar="N", help="processes that read (default: one per 256 MiB, at most one per CPU, and 8)")
    add("--order", "-o", choices=("random", "source"), default="random", help="random (default) mixes shards and rows, source keeps their order")
    add("--seed", "-s", type=int, default=0, metavar="N", help="of the random order")
    add("--buffer", default="256M", metavar="SIZE", help="memory in which rows are mixed (default 256M)")
    add("--commit", default="8G", metavar="SIZE", help="size of the shards after which an interrupted import can continue (default 8G)")
    add("--append", action="store_true", help="add to a dataset that has other samples")
    add("--chunk-size", "-c", default="8M", metavar="SIZE", help="4M to 64M (default 8M)")
    add("--zstd", type=int, metavar="LEVEL", help="compression level, 1 to 19")
    add("--digest", choices=("sha256",), help="keep a SHA-256 of each chunk")
    add("--meta", metavar="URL", help="keep the metadata on a Redis server")
    add("--json", action="store_true", help="print the result as a JSON object")
    return parser


def open_source(sources: list[str], options: Options) -> Source:
    """Opens sources of one format; a format's name before the first path holds for all."""
    format_name = sources[0].partition(":")[0]
    if format_name not in FORMATS:
        raise Refused(f"invalid source '{sources[0]}': must begin with {', '.join(f'{name}:' for name in FORMATS)}")
    paths = [source[len(format_name) + 1:] if source.startswith(f"{format_name}:") else source for source in sources]
    if not all(paths):
        raise Refused(f"invalid source '{format_name}:': must be {format_name}:PATH with a folder, a file or a pattern of files")
    module, function = FORMATS[format_name]
    with base.reading(paths[0], LookupError, TypeError, AttributeError):  # an index with other contents than its library writes
        opened: Source = getattr(importlib.import_module(f"{__package__}.formats.{module}"), function)(paths, options)
    if not opened.shards:
        raise Refused(f"{paths[0]}: has no rows")
    return opened


def pack(argv: list[str]) -> int:
    parser = pack_parser()
    a = parser.parse_intermixed_args(argv)
    if not 0 <= a.threads <= 64:
        parser.error("--threads must be a number from 1 to 64")
    begin = time.monotonic()
    plan = run.Plan(a.dataset, a.append, a.seed, a.order == "source", a.threads, console.parse_size(a.buffer, "--buffer"),
                    console.parse_size(a.commit, "--commit"), console.parse_size(a.chunk_size, "--chunk-size"), a.zstd, a.digest, a.meta, run.prefix_of(a.name))
    source = open_source(a.sources, Options(a.columns, a.text, a.arrays, a.records, a.label, a.split, a.files, a.root))
    report = run.run(source, plan)
    seconds = time.monotonic() - begin
    print(json.dumps(as_json(report, seconds)) if a.json else summary(report, seconds))
    return 0


def as_json(report: run.Report, seconds: float) -> dict[str, Any]:
    return {"schema": "diesel.import/1", "version": report.version, "samples": report.samples, "bytes": report.bytes, "shards": report.shards,
            "shards_before": report.shards_before, "seconds": round(seconds, 3), "fields": report.fields, "classes": sorted(report.classes),
            "left_out": [column._asdict() for column in report.left_out]}


def summary(report: run.Report, seconds: float) -> str:
    before = f"; {console.count(report.shards_before, 'shard')} imported before" if report.shards_before else ""
    version = f"; dataset version {report.version}" if report.version else "; nothing to do"
    lines = [f"imported {console.count(report.samples, 'sample')}, {console.size(report.bytes)}, of {console.count(report.shards, 'shard')} in {seconds:.1f} s: "
             f"{report.bytes / 1e6 / seconds:.1f} MB/s, {report.samples / seconds:.0f} samples/s{before}{version}"]
    lines += [f"field {name}: {', '.join(f'{n} {kind}' for kind, n in kinds.most_common())}" for name, kinds in report.fields.items()]
    if report.classes:
        shown = ", ".join(f"{i} {name}" for i, name in enumerate(sorted(report.classes)[:3]))
        lines.append(f"classes: {len(report.classes)}, numbered in the order of their names: {shown}{', ...' if len(report.classes) > 3 else ''}")
    lines += [f"left out {column.column} ({column.kind}): {column.why}" for column in report.left_out]
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Runs `pack` or `export`. Returns the exit status."""
    verb = argv[0] if argv else "pack"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if verb == "export":
            from .exporting import main as exporting
            return exporting.export(argv[1:])
        return pack(argv[1:])
    except (Refused, OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror and not error.filename else error
        print(f"dieselctl {verb}: {text}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"dieselctl {verb}: interrupted; the same command continues", file=sys.stderr)
        return 130
