# SPDX-License-Identifier: Apache-2.0
"""Tests that the code has the layout that docs/contributing/architecture.md draws."""
import collections
import fnmatch
import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(os.environ.get("DIESEL_BIN", ROOT / "build" / "release" / "bin"))
INCLUDE = re.compile(r'^#include "([a-z0-9_]+)/[a-z_0-9]+\.h"', re.MULTILINE)
ROW = re.compile(r"^\| `([a-z0-9]+)/` \| .* \| ([a-z0-9, ]+) \|$", re.MULTILINE)
# Parts of the daemon with an include directory of their own.
PARTS = {"tuner": "daemon", "history": "daemon", "recorded": "ctl"}
PROGRAMS = ("diesel-analyze", "diesel-top", "dieselctl", "dieseld")
SPACE_MAX = 28  # files of code; a folder with more holds more than one idea


def sources(folder):
    return [path for suffix in ("*.c", "*.h") for path in (ROOT / folder).rglob(suffix)]


class House(unittest.TestCase):
    def setUp(self):
        self.allowed = {row[0]: set(row[1].replace(",", " ").split())
                        for row in ROW.findall((ROOT / "docs" / "contributing" / "architecture.md").read_text())}
        self.assertEqual(len(self.allowed), 12)

    def test_folders_use_what_the_table_allows(self):
        wrong = []
        for folder, allowed in self.allowed.items():
            for path in sources(folder):
                for used in INCLUDE.findall(path.read_text()):
                    used = PARTS.get(used, used)
                    if used in self.allowed and used != folder and used not in allowed:
                        wrong.append(f"{path.relative_to(ROOT)} uses {used}")
        self.assertEqual(wrong, [])

    def test_spaces_are_small(self):
        n = collections.Counter(path.parent for folder in [*self.allowed, "tests", "bench"]
                                for path in [*sources(folder), *(ROOT / folder).rglob("*.py")]
                                if "include" not in path.parts)
        self.assertEqual([f"{path.relative_to(ROOT)}: {files}" for path, files in n.items()
                          if files > SPACE_MAX], [])

    def test_what_skips_with_a_sanitizer_runs_without_one(self):
        """./dev test runs most tests once, so a part of a test that skips with a sanitizer is a test of its own: see tests/asan/tests.cmake."""
        found = {path.name for folder in ("integration", "fault") for path in (ROOT / "tests" / folder).rglob("*.py")
                 if path != pathlib.Path(__file__) and re.search(r"skip[^\n]*(sanitizer|AddressSanitizer)", path.read_text())}
        self.assertEqual(found, {"test_top.py", "test_dieseld_limits.py",   # top_gpus and dieseld_cores
                                 "test_dieseld_serving.py", "test_fields_loader.py", "test_torch_workers_results.py"})  # run without one only

    def test_the_source_distribution_has_what_libdiesel_is_built_from(self):
        """With a folder missing in pyproject.toml, only the builds of wheels would fail."""
        text = re.search(r"^sdist\.include = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)[1]
        patterns = [pattern.lstrip("/") for pattern in re.findall(r'"(.+)"', text)]

        def listed(path):
            return any(fnmatch.fnmatchcase(name, pattern) and name.count("/") == pattern.count("/")
                       for pattern in patterns for name in (str(path), *map(str, path.parents)))
        inputs = self.ninja("inputs", "lib/libdiesel.so")
        deps = self.ninja("deps", *[line for line in inputs.split() if line.endswith(".o")])
        files = {(BIN.parent / line.strip()).resolve() for line in (inputs + deps).splitlines() if not line.endswith(")")}
        inside = [path.relative_to(ROOT) for path in files if path.is_relative_to(ROOT) and not path.is_relative_to(BIN.parent.resolve())]
        self.assertGreater(len(inside), 100)
        lists = [path.relative_to(ROOT) for folder in {path.parts[0] for path in inside} for path in (ROOT / folder).rglob("CMakeLists.txt")
                 if any(path.parent in file.parents for file in files)]
        python = [path.relative_to(ROOT) for path in (ROOT / "client/python/diesel_loader").rglob("*.py")]
        self.assertEqual(sorted({str(path.parent) for path in {*inside, *lists, *python} if not listed(path)}), [])

    def ninja(self, tool, *names):
        done = subprocess.run(["ninja", "-C", BIN.parent, "-t", tool, *names], capture_output=True, text=True, check=False)
        if done.returncode:
            self.skipTest("not built by ninja: " + done.stderr.strip())
        return done.stdout

    def test_a_symbol_has_one_definition_in_a_program(self):
        for program in PROGRAMS:
            inputs = self.ninja("inputs", f"bin/{program}")
            archives = sorted({line for line in inputs.split() if line.endswith(".a")})
            self.assertGreater(len(archives), 2)
            symbols = subprocess.run(["nm", "-g", "--defined-only", "--print-file-name", *archives], cwd=BIN.parent,
                                     capture_output=True, text=True, check=True).stdout
            n = collections.Counter(line.split()[-1] for line in symbols.splitlines() if len(line.split()) >= 3)
            self.assertGreater(len(n), 100)
            self.assertEqual([name for name, times in n.items() if times > 1], [], program)


if __name__ == "__main__":
    unittest.main(verbosity=2)
