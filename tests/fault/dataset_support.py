# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests that damage datasets."""
import json
import os
import pathlib
import random
import subprocess
import sys

from common.commands import DIESELCTL, dieselctl, one_line  # noqa: F401: the tests have them from here

SHIM = pathlib.Path(os.environ["DIESEL_LIB"]) / "libfailk.so"
SKIP = 77


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIP)


def make_source(folder, n_files, n_bytes, seed):
    generator = random.Random(seed)
    for i in range(n_files):
        path = folder / f"class{i % 3}" / f"{i}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(generator.randbytes(n_bytes + i))


def files_of(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def content(dataset, *version):
    """Returns {path: bytes} of a dataset, read without a daemon. version: the N of --version N."""
    version = [str(word) for word in version]
    listing = json.loads(dieselctl("ls", "-R", "-l", "--json", *version, dataset, check=0).stdout)
    paths = [entry["path"] for entry in listing]
    data = subprocess.run([DIESELCTL, "cat", *version, dataset, *paths], check=True, capture_output=True).stdout if paths else b""
    assert len(data) == sum(entry["bytes"] for entry in listing)
    result, at = {}, 0
    for entry in listing:
        result[entry["path"]] = data[at:at + entry["bytes"]]
        at += entry["bytes"]
    return result


def stray_files(dataset):
    return [p for p in dataset.rglob("*") if p.suffix == ".tmp" or p.name.endswith("-journal")]


def fail_at(k, error, stay, kind):
    """Returns the environment for the shim, and a pipe that shows whether call k was reached."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    environment = dict(os.environ, LD_PRELOAD=str(SHIM), FAILK=str(k), FAILK_ERRNO=str(error), FAILK_LOG=str(writing),
                       FAILK_KIND=kind)
    if stay:
        environment["FAILK_FROM"] = "1"
    return environment, reading, writing


def failing(run, k, error, stay=False, kind="change"):
    """Returns (the result of run(), whether call k was made) of a command whose k-th call fails. With error 0,
    the k-th call is the command's last."""
    environment, reading, writing = fail_at(k, error, stay, kind)
    done = run(env=environment, pass_fds=[writing])
    os.close(writing)
    try:
        reached = os.read(reading, 1) == b"k"
    except BlockingIOError:
        reached = False
    os.close(reading)
    return done, reached


def patched(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)
