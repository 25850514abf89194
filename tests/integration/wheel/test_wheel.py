# SPDX-License-Identifier: Apache-2.0
"""Tests diesel_loader as pip installs it: built from its source distribution, in a virtual environment, with no path set."""
import collections
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tarfile
import unittest
import zipfile

import dieseld_support
import hardening
from dieseld_support import BIN, SCRATCH
from wheel_support import ROOT, VERSION, build, new_environment, pip, run

PACKAGE = ROOT / "client" / "python" / "diesel_loader"

READ = """
import collections, hashlib, json, sys
import diesel_loader.torch
loader = diesel_loader.torch.DataLoader(diesel_loader.Dataset(*sys.argv[1:]), batch_size=7, shuffle=True, seed=3)
seen = [(label, hashlib.sha256(sample.numpy()).hexdigest())
        for samples, labels in loader for sample, label in zip(samples, labels.tolist())]
json.dump({"seen": seen, "file": diesel_loader.__file__, "version": diesel_loader.__version__}, sys.stdout)
"""
IMPORT = "import sys; before = set(sys.modules); import diesel_loader; print(*sorted(set(sys.modules) - before))"
# Tools that start often also import diesel_loader: the import takes about 15 ms, half of it for Python's ctypes.
MAX_MODULES = 50
SLOW_MODULES = {"asyncio", "dataclasses", "importlib.metadata", "inspect", "logging", "multiprocessing", "numpy", "pathlib",
                "socket", "subprocess", "tempfile", "torch", "typing", "urllib"}
# A library of another version, and a foreign one.
OTHER = {"older": 'const char *diesel_version(void) { return "0.0.9"; }', "foreign": "int answer(void) { return 42; }"}


class Wheel(dieseld_support.Case):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(SCRATCH) / "venv"
        cls.python = new_environment(folder)
        cls.site, = folder.glob("lib/python3*/site-packages")
        cls.sources, cls.wheel = build()
        cls.before = cls.installed()
        cls.pip("install", "--no-index", cls.wheel)

    @classmethod
    def installed(cls):
        return sorted(str(path) for path in cls.site.rglob("*"))

    @classmethod
    def pip(cls, *arguments):
        done = pip(cls.python, "--quiet", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    def refused(self, **environment):
        """Returns the last line of an import's error."""
        done = run(self.python, "-c", "import sys; sys.tracebacklimit = 0; import diesel_loader", **environment)
        self.assertEqual(done.returncode, 1, done.stderr)
        line, = done.stderr.strip().splitlines()
        self.assertRegex(line, r"^ImportError: ")
        return line

    def test_what_is_in_it(self):
        self.assertRegex(self.wheel, rf"/diesel_loader-{VERSION}-py3-none-linux_\w+\.whl$")
        with zipfile.ZipFile(self.wheel) as archive:
            names = {name for name in archive.namelist() if not name.startswith(f"diesel_loader-{VERSION}.dist-info/")}
            metadata = archive.read(f"diesel_loader-{VERSION}.dist-info/METADATA").decode()
            xxhash = archive.read(f"diesel_loader-{VERSION}.dist-info/licenses/LICENSES/BSD-2-Clause.txt").decode()
        self.assertIn("Copyright (C) 2012-2020 Yann Collet", xxhash)  # libdiesel contains it, so binaries have to include the licence
        self.assertEqual(names, {f"diesel_loader/{name}" for name in [
            "_abi.py", "libdiesel.so", "py.typed", "version", *(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))]})
        for line in ("Name: diesel-loader", f"Version: {VERSION}", "License-Expression: Apache-2.0 AND BSD-2-Clause",
                     "Provides-Extra: torch"):
            self.assertIn(line + "\n", metadata)
        self.assertEqual(re.findall(r"^Requires-Dist: (?!.*extra == )", metadata, re.M), [])
        with tarfile.open(self.sources) as archive:
            tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
        self.assertEqual(tops, {"CHANGELOG.md", "CMakeLists.txt", "LICENSE", "LICENSES", "PKG-INFO", "README.md", "client",
                                "cmake", "dataset", "image", "lib", "pyproject.toml"})

    def test_the_library_is_hardened(self):
        with zipfile.ZipFile(self.wheel) as archive:
            self.assertEqual(hardening.problems(archive.read("diesel_loader/libdiesel.so")), [])

    def test_the_library_needs_libc_alone_and_has_its_probes(self):
        path = self.site / "diesel_loader" / "libdiesel.so"
        said = subprocess.run(["readelf", "--wide", "--dynamic", "--notes", path], capture_output=True, text=True,
                              check=True).stdout
        self.assertEqual(re.findall(r"\(NEEDED\).*\[(.*)\]", said), ["libc.so.6"])
        self.assertEqual(set(re.findall(r"Name: (\w+)", said)), {"next_begin", "next_end", "wait_begin", "wait_end"})

    def test_batches_are_the_sources_bytes(self):
        source = dieseld_support.make_source("wheel", 100, lambda rng: rng.randint(1, 40000))
        dataset = dieseld_support.pack(source, "wheel")
        done = run(self.python, "-c", READ, dataset, self.daemon().socket)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        packed = collections.Counter((int(path.parent.name.removeprefix("class")),
                                      hashlib.sha256(path.read_bytes()).hexdigest())
                                     for path in pathlib.Path(source).rglob("*.bin"))
        self.assertEqual(packed.total(), 100)
        self.assertEqual(collections.Counter(map(tuple, said["seen"])), packed)
        self.assertEqual((said["file"], said["version"]), (str(self.site / "diesel_loader" / "__init__.py"), VERSION))

    def test_an_import_without_torch_takes_few_modules(self):
        done = run(self.python, "-c", IMPORT)
        self.assertEqual(done.returncode, 0, done.stderr)
        loaded = set(done.stdout.split())
        self.assertIn("diesel_loader.dataset", loaded)
        self.assertEqual(loaded & SLOW_MODULES, set())
        self.assertLessEqual(len(loaded), MAX_MODULES, sorted(loaded))

    def test_another_library_is_refused_in_a_line(self):
        for name, code in OTHER.items():
            folder = pathlib.Path(SCRATCH) / name
            folder.mkdir()
            subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", folder / "libdiesel.so", "-"], input=code,
                           text=True, check=True)
        self.assertIn(f"{SCRATCH}/older/libdiesel.so is libdiesel 0.0.9, but {self.site}/diesel_loader is "
                      f"diesel_loader {VERSION}: unset DIESEL_LIB", self.refused(DIESEL_LIB=SCRATCH + "/older"))
        self.assertIn("libdiesel.so is not libdiesel: unset DIESEL_LIB", self.refused(DIESEL_LIB=SCRATCH + "/foreign"))
        self.assertIn("DIESEL_LIB is /nowhere, which has no libdiesel.so", self.refused(DIESEL_LIB="/nowhere"))

    def test_a_damaged_installation_says_so(self):
        """Half an upgrade, a file for another system, no file."""
        folder = self.site / "diesel_loader"
        self.addCleanup(self.pip, "install", "--no-index", "--force-reinstall", self.wheel)
        (folder / "version").write_text("9.9.9\n")
        self.assertIn(f"{folder}/libdiesel.so is libdiesel {VERSION}, but {folder} is diesel_loader 9.9.9: reinstall",
                      self.refused())
        (folder / "libdiesel.so").write_bytes(b"\x7fELF")
        self.assertRegex(self.refused(), rf"cannot load {folder}/libdiesel.so \(.*\): reinstall diesel-loader")
        (folder / "libdiesel.so").unlink()
        self.assertIn("libdiesel.so not found", self.refused())

    def test_the_source_tree_takes_its_version_from_the_library(self):
        done = run(self.python, "-c", "import diesel_loader; print(diesel_loader.__file__, diesel_loader.__version__)",
                   PYTHONPATH=str(PACKAGE.parent), DIESEL_LIB=os.environ["DIESEL_LIB"])
        self.assertEqual(done.stdout, f"{PACKAGE}/__init__.py {VERSION}\n", done.stderr)

    def test_uninstalled_it_leaves_nothing(self):
        self.assertNotEqual(self.installed(), self.before)
        self.pip("uninstall", "--yes", "diesel-loader")
        self.addCleanup(self.pip, "install", "--no-index", self.wheel)
        self.assertEqual(self.installed(), self.before)


if __name__ == "__main__":
    for program in (dieseld_support.CTL, os.path.join(BIN, "dieseld")):
        dieseld_support.require(program)
    unittest.main(verbosity=2)
