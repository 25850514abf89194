# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of samples with fields: a real dieseld, and a dataset with a field of every kind."""
import io
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
import support  # noqa: E402
from serving import Daemon  # noqa: E402

try:
    import numpy
    from PIL import Image

    import diesel_loader
except ImportError as error:
    support.skip(f"needs {error.name}")

LAYOUTS = {"plain": 0, "fields": 1, "tar": 2}
N, CLASSES = 60, 3


def image(value, size=(24, 16)):
    file = io.BytesIO()
    Image.new("RGB", size, (value, 0, 0)).save(file, "PNG")
    return file.getvalue()


def path_of(k):
    return f"class{k % CLASSES}/{k:03d}"


def sample(k):
    """Returns the fields of the sample with this path: a value of each kind."""
    return {"image": image(k), "caption": f"café {k}\0", "n": k - 5, "far": (1 << 63) - 1 - k, "x": k / 3, "ok": k % 2 == 0, "none": None,
            "meta": {"a": [1, k, None], "ü": "y"}, "list": [k, "a"], "raw": b"\0\1" * k, "tokens": numpy.arange(8, dtype="int32") + k,
            "boxes": numpy.ones((k % 3, 4), "float32"), "scalar": numpy.float64(k)}


def same(a, b):
    """Returns True if two values are bit-equal and of one type."""
    if isinstance(a, numpy.ndarray):
        return isinstance(b, numpy.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


def stored(value):
    """Returns the value as it is read: NumPy scalars become arrays without dimensions, and tuples lists."""
    return numpy.asarray(value) if isinstance(value, numpy.generic) else value


def write(path, n=N, make=sample, **options):
    with diesel_loader.create(path, **options) as w:
        for k in range(n):
            w.put(path_of(k), make(k))
    return path


def ctl(*arguments):
    return subprocess.run([support.program("dieselctl"), *map(str, arguments)], capture_output=True, text=True, check=False)


def stat(*arguments):
    return json.loads(ctl("stat", "--json", *arguments).stdout)


def set_layout(path, layout):
    """Changes the layout of a dataset's chunks, whatever is in them, as a hostile writer would."""
    try:
        import xxhash
    except ImportError as error:
        raise unittest.SkipTest(f"needs {error.name}") from None
    for chunk in (path / "chunks").glob("*.chunk"):
        data = bytearray(chunk.read_bytes())
        flags, payload = struct.unpack_from("<I", data, 12)[0], struct.unpack_from("<I", data, 40)[0]
        struct.pack_into("<I", data, 12, flags & ~0xf00 | LAYOUTS[layout] << 8)
        struct.pack_into("<Q", data, 72, xxhash.xxh3_64_intdigest(bytes(data[:72]) + bytes(8) + bytes(data[80:payload])))
        chunk.write_bytes(data)
    done = ctl("rebuild", path)
    assert done.returncode == 0, done.stderr
    return path


class FieldsCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.path = write(cls.folder / "all.diesel")
        cls.daemon = cls.enterClassContext(Daemon(cls.folder, "--metrics", "off"))

    def dataset(self, *fields, path=None):
        return diesel_loader.Dataset(path or self.path, fields=fields or None)
