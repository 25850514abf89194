# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of checkpoints. It must be imported first: it skips where PyTorch is missing."""
import contextlib
import logging
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "integration")]
import support  # noqa: E402

try:
    import torch

    import diesel_loader.checkpoint  # noqa: F401
    from diesel_loader.checkpoint import tensors
except ImportError as error:
    support.skip(f"needs {error.name}")

IS_OLD = int(torch.__version__.split(".")[0]) < 2


def read(path):
    """Reads a checkpoint as its users do: with torch.load() alone."""
    file = os.path.join(path, "state.pt")
    # PyTorch 1.13 cannot read floats, such as a learning rate, by weights_only.
    return tensors.load(file) if IS_OLD else torch.load(file, weights_only=True)


def saver_of(pid):
    """Returns the pid of a trainer's process that writes."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if name == "diesel-save" and int(rest.split()[1]) == pid and rest.split()[0] != "Z":
                return int(stat.parent.name)
    return None


class Case(unittest.TestCase):
    def setUp(self):
        self.scratch = self.enterContext(tempfile.TemporaryDirectory())
        self.folder = os.path.join(self.scratch, "checkpoints")
        self.lines = []
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())
        log = logging.getLogger("diesel_loader")
        log.addHandler(handler)
        self.addCleanup(log.removeHandler, handler)

    def said(self, pattern):
        """Asserts that one line was logged since the last call, and that it has the pattern."""
        lines, self.lines[:] = self.lines[:], []
        self.assertEqual(len(lines), 1, lines)
        self.assertNotIn("\n", lines[0])
        self.assertRegex(lines[0], pattern)

    def names(self):
        with contextlib.suppress(FileNotFoundError):
            return sorted(name for name in os.listdir(self.folder) if name != ".lock")
        return []
