# SPDX-License-Identifier: Apache-2.0
"""Each program that the recorder would load on a kernel finds all fields and types that it needs there.

The kernels' type information is cut down to that: `./dev kernels --cut tests/kernels/types` writes it again, which is necessary where a
program reads a field that none read before. This sees no refusals by the verifier, for which kernels.py boots kernels.
"""
import glob
import os
import re
import subprocess
import unittest

import core
import kernels

TYPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "types")


class Types(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.objects = {name: core.Object(os.path.join(kernels.BIN, f"../bpf/kernel/{name}.o"))
                       for name in ("recorder", "recorder_without_cast", "index_watch")}
        cls.kernels = {}
        for path in glob.glob(TYPES + "/*.btf"):
            with open(path, "rb") as file:
                cls.kernels[path] = core.Btf(file.read())

    def selected(self, name, path):
        words = [os.path.join(kernels.BIN, "kernels_guest"), "select", os.path.join(kernels.BIN, f"../bpf/kernel/{name}.o"), path]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout.split("\n")[:-1]

    def recorder(self, path):
        """(the object for this kernel, the programs to load)"""
        cast, *programs = self.selected("recorder_without_cast", path)
        return ("recorder" if cast == "can cast" else "recorder_without_cast"), programs

    def test_kernels_of_all_readme_names(self):
        found = {re.match(r"\d+\.\d+", os.path.basename(path))[0] for path in self.kernels}
        self.assertLessEqual({"5.15", "6.1", "6.8", "6.12", "6.17"}, found)

    def test_all_fields_and_types_are_there(self):
        for path, kernel in self.kernels.items():
            name, programs = self.recorder(path)
            self.assertEqual(name == "recorder", kernels.version(os.path.basename(path)) >= (6, 2), path)
            for program in programs:
                self.assertEqual(self.objects[name].lacks(program, kernel), [], f"{path}: {program}")
            for program in ("index_enter", "index_exit", "index_fork", "use_close"):
                owner = self.objects["index_watch" if program.startswith("index") else name]
                self.assertEqual(owner.lacks(program, kernel), [], f"{path}: {program}")

    def test_hooks(self):
        hooks = {name.split("/")[1] for name, *_ in self.objects["recorder"].sections if "tp_btf/" in name}
        for path in self.kernels:
            programs = self.recorder(path)[1]
            for hook in hooks:
                chosen = {hook, hook + "_old"} & set(programs)
                came = kernels.CAME.get(hook, (0, 0)) <= kernels.version(os.path.basename(path))
                self.assertEqual(len(chosen), int(came), f"{path}: {hook}")

    def test_a_field_that_is_gone_is_found_out(self):
        """As on Linux 7.1, where a union lost its name."""
        path = next(path for path in self.kernels if "/6.1." in path)
        with open(path, "rb") as file:
            kernel = core.Btf(file.read().replace(b"\0d_u\0", b"\0d_x\0").replace(b"\0d_alias\0", b"\0d_aliaz\0"))
        self.assertIn("dentry___7_1.d_alias", self.objects["recorder_without_cast"].lacks("mm_filemap_add_to_page_cache", kernel))
        self.assertEqual(self.objects["recorder_without_cast"].lacks("sched_switch", kernel), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
