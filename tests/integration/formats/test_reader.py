#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that docs/reference/formats.md suffices to read a dataset: a reader of 80 lines, written from it, gets every sample from only the
chunks, and from the snapshot, and detects random bit flips."""
import ast
import ctypes
import ctypes.util
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

try:
    import xxhash
except ImportError as missing:
    print(f"skipped: {missing} (python3-xxhash)")
    sys.exit(77)

import reader

DIESELCTL = os.path.join(os.environ["DIESEL_BIN"], "dieselctl")
ALLOWED = {"pathlib", "struct", "xxhash"}


def run(*words):
    subprocess.run([DIESELCTL, *words], check=True, stdout=subprocess.DEVNULL)


def files_of(folder):
    return {os.fsencode(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


ZSTD = ctypes.CDLL(ctypes.util.find_library("zstd"))
ZSTD.ZSTD_decompress.restype = ctypes.c_size_t
ZSTD.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]


def decompress(frames, n_bytes):
    to = ctypes.create_string_buffer(n_bytes)
    if ZSTD.ZSTD_decompress(to, n_bytes, frames, len(frames)) != n_bytes:  # errors are large numbers
        raise ValueError("a block is damaged")
    return to.raw


def make(root, *options):
    """Makes two versions of a dataset: names of any bytes, empty samples, a long one, replaced and removed ones."""
    source, dataset, generator = root / "src", root / "ds", random.Random(8)
    for name in (b"a/1", b"a/b/2", b"a/\xff\xfe", "ünï/ 3".encode(), b"root", b"z" * 255 + b"/" + b"y" * 255):
        path = pathlib.Path(os.fsdecode(os.fsencode(source) + b"/" + name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(generator.randbytes(generator.randrange(100_000)))
    (source / "empty").touch()
    (source / "long").write_bytes(generator.randbytes(5 << 20))
    for i in range(300):
        (source / "a" / f"{i}.bin").write_bytes(generator.randbytes(i))
    (source / "text").write_bytes(b"".join(b"%d lines of text, and all of them different\n" % i for i in range(60_000)))
    run("pack", "--chunk-size", "4M", *options, source, dataset)
    (source / "root").write_bytes(b"another length")
    run("pack", "--append", source, dataset)
    for gone in ("a/7.bin", "empty"):
        (source / gone).unlink()
    run("rm", dataset, "a/7.bin", "empty")
    return source, dataset


def finds_flips(dataset, n, expected):
    """Flips one bit of a chunk's head or of a sample, which no reader must hand out. A few bits of a frame have no meaning."""
    chunk = max((dataset / "chunks").iterdir(), key=lambda path: path.stat().st_size)
    data, generator = chunk.read_bytes(), random.Random(9)
    compressed = data[12] & 2
    for _ in range(n):
        at = generator.randrange(len(data) - 4096)  # its end may be padding
        chunk.write_bytes(data[:at] + bytes([data[at] ^ 1 << generator.randrange(8)]) + data[at + 1:])
        try:
            assert reader.from_chunks(dataset) == expected and compressed, f"byte {at} of {chunk} may be wrong"
        except ValueError:
            pass
    chunk.write_bytes(data)


def main():
    text = pathlib.Path(reader.__file__).read_text(encoding="utf-8")
    imported = {alias.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import) for alias in node.names}
    assert len(text.splitlines()) <= 80 and imported == ALLOWED and "importlib" not in text, imported
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(ast.parse(text)))
    reader.decompress = decompress
    for options in ((), ("--zstd", "3"), ("--zstd", "19", "--digest", "sha256")):
        with tempfile.TemporaryDirectory(prefix="diesel-reader-") as root:
            source, dataset = make(pathlib.Path(root), *options)
            expected = files_of(source)
            flags = {path.read_bytes()[12] for path in (dataset / "chunks").iterdir()}
            assert flags == ({0, 1, 2} if options else {0, 1}), flags  # tombstones, and appended samples as they are
            assert reader.from_snapshot(dataset) == expected, "from the snapshot"
            (dataset / "snapshot").rename(dataset / "hidden")
            (dataset / "meta.db").unlink()
            assert reader.from_chunks(dataset) == expected, "from the chunks"
            finds_flips(dataset, 20, expected)
            shutil.rmtree(dataset)
    print(f"{len(expected)} samples from chunks and from the snapshot; xxhash {xxhash.VERSION}")


main()
