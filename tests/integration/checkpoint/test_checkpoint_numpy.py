# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints of NumPy's arrays, in a job that must not import torch."""
import os
import pathlib
import random
import sys
import tempfile
import unittest
import zipfile

import numpy


from diesel_loader.checkpoint import Checkpointer, newest


class Numpy(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def saved(self, state, **values):
        with Checkpointer(self.folder, state=lambda: state) as checkpointer:
            checkpointer.save(**values)
        return newest(self.folder)

    def restored(self):
        with Checkpointer(self.folder, state=dict) as checkpointer:
            return checkpointer.restore().state

    def assert_equal(self, a, b, where=""):
        self.assertIs(type(a), type(b), where)
        if isinstance(a, dict):
            self.assertEqual(list(a), list(b), where)
            for key in a:
                self.assert_equal(a[key], b[key], f"{where} {key}")
        elif isinstance(a, (list, tuple)):
            self.assertEqual(len(a), len(b), where)
            for one, other in zip(a, b):
                self.assert_equal(one, other, where)
        elif isinstance(a, (numpy.ndarray, numpy.generic)):
            self.assertEqual((a.dtype, a.shape, a.tobytes("A")), (b.dtype, b.shape, b.tobytes("A")), where)
        else:
            self.assertEqual(repr(a), repr(b), where)

    def test_everything_comes_back_bit_by_bit_and_numpy_reads_the_file(self):
        rng = numpy.random.default_rng(7)
        weights = rng.standard_normal((300, 200)).astype("f4")
        state = {
            "model": {"weight": weights, "bias": numpy.zeros(0), "columns": numpy.asfortranarray(weights[:20]), "every other": weights[::2, 1],
                      "large": rng.integers(0, 255, 9 << 20, dtype="u1"), "nothing": numpy.zeros((0, 3)), "one": numpy.array(2.5)},
            "kinds": [numpy.array([b"ab", b"c"]), numpy.array(["\u00fc", "x"]), numpy.array(["2026-11-30"], "M8[D]"), numpy.arange(3, dtype=">i8"),
                      numpy.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]), numpy.array([1 + 2j]), numpy.array([True])],
            "scalars": (numpy.float32(0.1), numpy.int64(-1), numpy.float64("nan"), 0.1, float("inf"), -0.0, 1 << 130, True, None, "text", b"\0bytes"),
            "random": rng.bit_generator.state, "a/b": numpy.ones(1), "a": {"b": numpy.zeros(1), "..": numpy.ones(2)}, 7: {}, "empty": [], "tree.json": numpy.ones(1)}
        path = os.path.join(self.saved(state, epoch=3), "state.npz")
        found = self.restored()
        self.assertEqual((found.pop("step"), found.pop("epoch")), (0, 3))
        self.assert_equal(found, state)
        with numpy.load(path) as arrays:
            self.assertEqual(arrays["model/weight"].tobytes(), weights.tobytes())
        with zipfile.ZipFile(path) as archive:
            self.assertIsNone(archive.testzip())
        self.assertNotIn("torch", sys.modules)

    def test_ml_dtypes_of_jax_keep_their_type(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("needs ml_dtypes")
        state = {"half": numpy.arange(300).astype(ml_dtypes.bfloat16).reshape(3, 100).T, "one": ml_dtypes.bfloat16(0.1)}
        self.saved(state)
        found = self.restored()
        self.assert_equal(found["half"], numpy.ascontiguousarray(state["half"]))
        self.assert_equal(found["one"], state["one"])

    def test_what_cannot_come_back_is_refused_by_name(self):
        class Own(numpy.ndarray):
            pass
        for value, why in ((numpy.ma.array([1], mask=[True]), r"the state\['x'\] is of the type numpy\.ma.*MaskedArray"), (numpy.ones(1).view(Own), "Own"),
                           (numpy.array([{}]), "array of object, which a file of NumPy cannot hold"), ({(1, 2): 3}, r"has the key \(1, 2\)"),
                           (random.Random(1), "random.Random"), ([pathlib.Path("/")], r"the state\['x'\]\[0\] is of the type pathlib")):
            with self.assertRaisesRegex(TypeError, why):
                self.saved({"x": value})

    def test_a_job_goes_on_from_its_last_step(self):
        weights = numpy.zeros(1 << 20)

        class Model:
            def state_dict(self):
                return {"weights": weights}

            def load_state_dict(self, state):
                weights[:] = state["weights"]
        for first in (0, 20):
            with Checkpointer(self.folder, every=5, keep=2, model=Model()) as checkpointer:
                weights[:] = -1 if first else 0
                restored = checkpointer.restore()
                self.assertEqual(restored.step if restored else 0, first)
                for step in range(first, first + 20):
                    self.assertEqual(set(weights[::1000]), {step})
                    weights += 1
                    checkpointer.step()
                    checkpointer.wait()
        self.assertEqual(len([name for name in os.listdir(self.folder) if "step" in name]), 2)
        self.assertNotIn("torch", sys.modules)


if __name__ == "__main__":
    unittest.main(verbosity=2)
