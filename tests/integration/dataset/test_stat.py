#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests dieselctl stat: lengths of samples, and the dead space of chunks, as JSON and as text."""
import json
import pathlib
import shutil
import tempfile

from common.commands import dieselctl

SIZES = [0, 1, 2, 3, 4095, 4096, 4097, 70_000]
LONG = 3_000_000  # two in a chunk of 8 MiB


def run(*words):
    return dieselctl(*words, check=0).stdout


def stat(dataset, *options):
    return json.loads(run("stat", "--json", *options, dataset))


def in_blocks(n):
    return -(-n // 4096) * 4096


def check_sizes(dataset):
    sizes = stat(dataset)["sizes"]
    expected = {}
    for n in SIZES:
        below = 1 << n.bit_length()
        samples, total = expected.get(below, (0, 0))
        expected[below] = (samples + 1, total + n)
    assert {entry["below"]: (entry["samples"], entry["bytes"]) for entry in sizes} == expected, sizes
    assert all(entry["from"] == (entry["below"] // 2 if entry["below"] > 1 else 0) for entry in sizes), sizes
    text = run("stat", dataset)
    assert "  empty   " in text and "64 KiB to 128 KiB" in text and "  2.0 KiB to 4.0 KiB" in text, text


def check_holes(source, dataset):
    two_long = in_blocks(-(-LONG // 16) * 16 + LONG)
    one_less = two_long - in_blocks(LONG)
    assert stat(dataset)["holes"] == {"chunks": 0, "bytes": 0} and "holes     none" in run("stat", dataset)
    run("rm", dataset, "long/0")
    now = stat(dataset)
    assert now["holes"] == {"chunks": 1, "bytes": one_less}, now
    assert now["unused"] == {"chunks": 1, "bytes": 4096} and now["oldest_version"] == 1, now
    text = run("stat", dataset)
    assert "1 to 2 can be read" in text and "lists them\nsizes\n" in text, text
    # Replaced: its chunk then has no needed bytes.
    (source / "long" / "1").write_bytes(b"short")
    run("pack", "--append", "--order", "source", source, dataset)  # and 0 returns
    now = stat(dataset)
    assert now["holes"]["bytes"] == 0 and now["unused"]["chunks"] == 2, now
    assert now["unused"]["bytes"] == 4096 + 4096 + two_long, now
    assert stat(dataset, "--version", "1")["unused"] is None
    (dataset / "meta.db").unlink()
    now = stat(dataset)
    assert now["unused"] is None and now["oldest_version"] is None and "meta_version" not in now, now


def main():
    with tempfile.TemporaryDirectory(prefix="diesel-stat-") as root:
        source, dataset = pathlib.Path(root) / "src", pathlib.Path(root) / "ds"
        source.mkdir()
        for i, n in enumerate(SIZES):
            (source / str(i)).write_bytes(bytes(n))
        run("pack", source, dataset)
        check_sizes(dataset)
        shutil.rmtree(source)
        shutil.rmtree(dataset)
        (source / "long").mkdir(parents=True)
        for i in range(2):
            (source / "long" / str(i)).write_bytes(bytes([i]) * LONG)
        run("pack", "--order", "source", source, dataset)
        check_holes(source, dataset)


main()
