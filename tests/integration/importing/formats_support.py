# SPDX-License-Identifier: Apache-2.0
"""Rows, the files that other libraries make of them, and what an import must give. Run by the Python of the test's environment."""
import io
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BIN = pathlib.Path(os.environ.get("DIESEL_BIN", ROOT / "build/release/bin")).resolve()
CTL = str(BIN / "dieselctl")
N = 120
CLASSES = ["cat", "dog", "a/b"]
FORKS = pathlib.Path(os.environ["DIESEL_SCRATCH"]) / "python3"  # a Python that has imported what the formats need
FORKS.write_text(f"""#!/bin/sh
exec {sys.executable} -I -S {HERE.parent}/forked.py run numpy,pyarrow.parquet,litdata,streaming "$@"
""")
FORKS.chmod(0o755)


def run(*command, **environment):
    """Runs dieselctl. Returns the finished process."""
    return subprocess.run([CTL, *map(str, command)], capture_output=True, text=True, timeout=120, check=False,
                          env=os.environ | {"DIESEL_PYTHON": str(FORKS), "DIESEL_DIESELCTL": CTL} | environment)


def jpeg(i):
    from PIL import Image
    data = io.BytesIO()
    Image.fromarray(numpy.random.default_rng(i).integers(0, 255, (16, 16, 3), dtype="uint8")).save(data, "JPEG")
    return data.getvalue()


def rows(n):
    """Rows whose values say which row they are of: "id" is unique."""
    return [{"id": i, "image": jpeg(i), "caption": f"caption {i} é" if i % 7 else None, "label": i % 3, "score": i / 3, "good": i % 2 == 0,
             "embedding": numpy.arange(16, dtype="float32") + i, "tags": ["a", "b"][:i % 3], "raw": bytes([i % 256]) * (i % 5),
             "nested": {"x": i, "y": {"z": [i, None]}}} for i in range(n)]


def plain(row):
    """Returns values that can be compared: arrays by their dtype, shape and bytes."""
    return {name: (str(value.dtype), value.shape, value.tobytes()) if hasattr(value, "dtype") else value for name, value in row.items()}


def of_dataset(path):
    """Returns {id: fields} of a dataset with fields."""
    import diesel_loader
    dataset = diesel_loader.Dataset(path)
    return {row["id"]: plain(row) for row in dataset.__getitems__(range(len(dataset)))}


def wanted(made):
    return {row["id"]: plain(row) for row in made}


def table(made):
    """Returns a dataset of Hugging Face's library."""
    import datasets
    features = datasets.Features({
        "id": datasets.Value("int64"), "image": datasets.Image(decode=False), "caption": datasets.Value("string"),
        "label": datasets.ClassLabel(names=CLASSES), "score": datasets.Value("float64"), "good": datasets.Value("bool"),
        "embedding": datasets.List(datasets.Value("float32")), "tags": datasets.List(datasets.Value("string")), "raw": datasets.Value("binary"),
        "nested": {"x": datasets.Value("int64"), "y": {"z": datasets.List(datasets.Value("int64"))}}})
    columns = {name: [row[name] for row in made] for name in made[0]}
    columns["image"] = [{"bytes": data, "path": None} for data in columns["image"]]
    return datasets.Dataset.from_dict(columns, features=features)


def frame_records(path, records):
    """Frames records as TensorFlow does."""
    from crc32c import crc32c

    def masked(data):
        crc = crc32c(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff)
    with open(path, "wb") as file:
        for data in records:
            head = struct.pack("<Q", len(data))
            file.write(head + masked(head) + data + masked(data))


def write_tfrecord(path, made):
    from diesel_loader.importing.formats.records import example

    def records():
        for row in made:
            record = example()()
            features = record.features.feature
            features["id"].int64_list.value.append(row["id"])
            features["image"].bytes_list.value.append(row["image"])
            features["embedding"].float_list.value.extend(row["embedding"])
            features["caption"].bytes_list.value.append((row["caption"] or "").encode())
            yield record.SerializeToString()
    frame_records(path, records())


def packed_numbers(folder, n=500):
    """Returns (a Dataset with the texts of the numbers below n, each in class number % 3; its values in the order of storage)."""
    import diesel_loader
    with diesel_loader.create(folder / "numbers.diesel") as writer:
        for i in range(n):
            writer.put(f"{i % 3}/{i:04d}", str(i).encode())
    dataset = diesel_loader.Dataset(folder / "numbers.diesel")
    return dataset, [int(data) for data, _ in dataset.__getitems__(range(n))]


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = rows(N)

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(dir=os.environ["DIESEL_SCRATCH"])))
        self.dataset = self.folder / "made.diesel"

    def packs(self, *arguments, **environment):
        done = run("pack", "--json", *arguments, self.dataset, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refuses(self, pattern, *arguments, dataset=True, **environment):
        """The command fails with one line."""
        done = run(*arguments, *([self.dataset] if dataset else []), **environment)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, f"^dieselctl {arguments[0]}: .*{pattern}")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def has_all(self, rows=None):
        self.assertEqual(of_dataset(self.dataset), wanted(self.rows if rows is None else rows))
