# SPDX-License-Identifier: Apache-2.0
"""diesel_loader as pip installs it: built from its source distribution, in a virtual environment, with no path set."""
import collections
import glob
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import unittest
import zipfile

import dieseld_support
from dieseld_support import BIN, SCRATCH

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "client" / "python" / "diesel_loader"
VERSION = re.search(r"project\(diesel VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]

READ = """
import collections, hashlib, json, sys
import diesel_loader.torch
loader = diesel_loader.torch.DataLoader(diesel_loader.Dataset(*sys.argv[1:]), batch_size=7, shuffle=True, seed=3)
seen = [(label, hashlib.sha256(sample.numpy()).hexdigest())
        for samples, labels in loader for sample, label in zip(samples, labels.tolist())]
json.dump({"seen": seen, "file": diesel_loader.__file__, "version": diesel_loader.__version__}, sys.stdout)
"""
# A library of another version, and one that is none.
OTHER = {"older": 'const char *diesel_version(void) { return "0.0.9"; }', "foreign": "int answer(void) { return 42; }"}


def run(*command, cwd=SCRATCH, **more):
    """As a user does who has set nothing."""
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("PYTHONPATH", "DIESEL_LIB", "DIESEL_BIN", "CC", "CFLAGS", "LDFLAGS", "CMAKE_ARGS")}
    environment.update(more, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_RETRIES="1")
    return subprocess.run([str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True,
                          check=False)


def must(done, python):
    """Skips if a command failed that needs PyPI, and PyPI is not reached."""
    if done.returncode:
        here = run(python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", SCRATCH + "/reached",
                   "scikit-build-core")
        if here.returncode:
            print(f"skipped: PyPI, which has the build backend, is not reached: {here.stderr.strip().splitlines()[-1]}")
            sys.exit(77)
        raise AssertionError(done.stdout + done.stderr)


def build(python):
    """(the source distribution, the wheel that is built from it)."""
    tools, folder = SCRATCH + "/tools", SCRATCH + "/dist"
    must(run(python, "-m", "pip", "install", "--quiet", "--target", tools, "scikit-build-core"), python)
    done = run(python, "-c", f"from scikit_build_core.build import build_sdist; print(build_sdist({folder!r}))",
               cwd=ROOT, PYTHONPATH=tools)
    assert done.returncode == 0, done.stdout + done.stderr
    sources = os.path.join(folder, done.stdout.split()[-1])
    must(run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, sources), python)
    wheel, = glob.glob(folder + "/*.whl")
    return sources, wheel


class Wheel(dieseld_support.Case):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(SCRATCH) / "venv"
        cls.python = folder / "bin" / "python"
        done = run("/usr/bin/python3", "-m", "venv", "--system-site-packages", folder)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.site, = folder.glob("lib/python3*/site-packages")
        cls.sources, cls.wheel = build(cls.python)
        cls.before = cls.installed()
        cls.pip("install", "--no-index", cls.wheel)

    @classmethod
    def installed(cls):
        return sorted(str(path) for path in cls.site.rglob("*"))

    @classmethod
    def pip(cls, *arguments):
        done = run(cls.python, "-m", "pip", "--quiet", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    def refused(self, **environment):
        """The line that an import ends with."""
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
        self.assertEqual(names, {f"diesel_loader/{name}" for name in [
            "libdiesel.so", "py.typed", "version", *(path.name for path in PACKAGE.glob("*.py"))]})
        for line in ("Name: diesel-loader", f"Version: {VERSION}", "License-Expression: Apache-2.0",
                     "Provides-Extra: torch"):
            self.assertIn(line + "\n", metadata)
        self.assertEqual(re.findall(r"^Requires-Dist: (?!.*extra == )", metadata, re.M), [])
        with tarfile.open(self.sources) as archive:
            tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
        self.assertEqual(tops, {"CHANGELOG.md", "CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "client", "cmake",
                                "dataset", "lib", "pyproject.toml"})

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
        self.assertIn(f"{folder}/libdiesel.so is libdiesel {VERSION}, but {folder} is diesel_loader 9.9.9: install",
                      self.refused())
        (folder / "libdiesel.so").write_bytes(b"\x7fELF")
        self.assertRegex(self.refused(), rf"cannot load {folder}/libdiesel.so \(.*\): install diesel-loader again")
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
