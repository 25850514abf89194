# SPDX-License-Identifier: Apache-2.0
"""Runs the loader's tests in users' environment: today's PyTorch and frameworks from PyPI, and diesel_loader from its wheel.

The environment is made once, in build/frameworks, and has the packages of frameworks.txt. The wheel is installed again each time."""
import os
import pathlib
import re
import unittest

import dieseld_support
from dieseld_support import BIN
from wheel_support import FRAMEWORKS, TORCHTITAN, VERSION, build, folder_with, kept_environment, pip, run

HERE = pathlib.Path(__file__).resolve().parent
FORK = "-I", "-S", HERE.parent / "forked.py", "run", "torch"
LOOK = "import diesel_loader, torch; print(diesel_loader.__file__, diesel_loader.__version__, torch.__version__)"
# torch's CPU build has no torchvision on PyPI; integration.torch_loader has it from the distribution.
MAY_BE_MISSING = {"needs torchvision"}
TORCHVISION = "torchvision==0.28.0"  # for torch 2.13


class Frameworks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.python = kept_environment(*FRAMEWORKS)
        _, wheel = build()
        done = pip(cls.python, "install", "--quiet", "--no-index", "--no-deps", "--force-reinstall", wheel)
        assert done.returncode == 0, done.stdout + done.stderr

    def passes(self, script, *path):
        done = run(self.python, *FORK, HERE.parent / "loader" / script, "-v", DIESEL_BIN=os.path.abspath(BIN), HF_HUB_OFFLINE="1",
                   TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="", PYTHONPATH=os.pathsep.join(map(str, (HERE.parent, *path))))
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said)
        self.assertRegex(done.stderr, r"\nRan [1-9]\d* tests")
        self.assertLessEqual(set(re.findall(r"\.\.\. skipped ['\"](.*)['\"]", done.stderr)), MAY_BE_MISSING, said)

    def test_the_wheel_is_what_is_tested(self):
        site, = self.python.parent.parent.glob("lib/python3*/site-packages")
        done = run(self.python, "-c", LOOK)
        self.assertEqual(done.returncode, 0, done.stderr)
        file, version, torch = done.stdout.split()
        self.assertEqual((file, version), (str(site / "diesel_loader" / "__init__.py"), VERSION))
        self.assertRegex(torch, r"^2\.13\.")

    def test_training_loops(self):
        self.passes("test_torch_frameworks.py")

    def test_drop_in(self):
        self.passes("test_torch_drop_in.py")

    def test_loader(self):
        self.passes("test_torch_loader.py")

    def test_checkpoints(self):
        for subject in ("checkpoint", "checkpoint_faults", "checkpoint_ranks"):
            self.passes(f"../checkpoint/test_{subject}.py")
        self.passes("../checkpoint/test_checkpoint_frameworks.py", folder_with(self.python, *TORCHTITAN))

    def test_transforms_in_dieseld_and_of_fields(self):
        folder = folder_with(self.python, "torchvision", TORCHVISION)   # apart, for the reason in torchvision_support.py
        self.passes("test_native.py", folder)
        self.passes("../fields/test_fields_loader.py", folder)


if __name__ == "__main__":
    for program in (dieseld_support.CTL, os.path.join(BIN, "dieseld")):
        dieseld_support.require(program)
    unittest.main(verbosity=2)
