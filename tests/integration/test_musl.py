# SPDX-License-Identifier: Apache-2.0
"""Tests libdiesel built with musl from this tree, without a warning, as pip builds it there. It is linked with a program, shared and
static, which a dieseld of this build (with glibc) serves. This Python does not use musl, so only C uses the library."""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from dieseld_support import BIN, SCRATCH, Daemon, make_source, pack

import diesel_loader

ROOT = pathlib.Path(__file__).resolve().parents[2]
READER = ROOT / "tests/integration/dieseld/library_reader.c"
FOLDER = pathlib.Path(SCRATCH, "musl")
COMPILER = shutil.which("musl-gcc")
N = 60


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def headers():
    """Makes a folder with the headers that musl-gcc hides together with glibc's: the kernel's and libxxhash's."""
    folder = FOLDER / "include"
    folder.mkdir(parents=True)
    for name in ("linux", "asm-generic", "asm", "xxhash.h", "xxh3.h"):
        places = [pathlib.Path("/usr/include", name), pathlib.Path("/usr/include/x86_64-linux-gnu", name)]
        found = next((place for place in places if place.exists()), None)
        if found:
            (folder / name).symlink_to(found)
    return folder


class Musl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        include = headers()
        cls.flags = ["-isystem", str(include)]
        environment = dict(os.environ, CC=COMPILER, CFLAGS=" ".join([*cls.flags, "-Werror"]), LDFLAGS="")
        run("cmake", "-S", ROOT, "-B", FOLDER / "build", "-DDIESEL_ONLY_CLIENT=ON", "-DCMAKE_BUILD_TYPE=Release",
            f"-DXXHASH_INCLUDE={include}", env=environment)
        run("cmake", "--build", FOLDER / "build", "--parallel")
        cls.library = FOLDER / "build/lib/libdiesel.so"
        cls.datasets = []
        for name, sizes in (("unequal", lambda rng: rng.randrange(5000)), ("equal", lambda rng: 1000)):
            source = make_source(name, N, sizes)
            cls.datasets.append((source, pack(source, f"{name}.diesel")))
        cls.daemon = Daemon(cache="64M")
        cls.addClassCleanup(cls.daemon.kill)

    def check_program(self, program):
        for source, path in self.datasets:
            with self.subTest(path):
                samples = diesel_loader.Dataset(path, socket=self.daemon.socket).samples
                expected = [f"{i} {label} {pathlib.Path(source, file).read_bytes().hex()}"
                            for i, (file, label) in enumerate(samples)]
                lines = run(program, path, self.daemon.socket).stdout.splitlines()
                self.assertEqual(lines[:N], expected[::-1], "by number")
                self.assertNotEqual(lines[N:], expected, "shuffled")
                self.assertEqual(sorted(lines[N:]), sorted(expected), "served")

    def program(self, *more):
        path = FOLDER / self.id()
        run(COMPILER, *self.flags, "-D_GNU_SOURCE", "-I", ROOT / "client/include", READER, "-o", path, *more)
        return path

    def test_of_glibc(self):
        """Runs the same program from this build."""
        self.check_program(os.path.join(BIN, "library_reader"))

    def test_shared(self):
        needed = run("readelf", "-d", self.library).stdout
        self.assertIn("Shared library: [libc.so]", needed, "musl's")
        self.assertEqual(needed.count("(NEEDED)"), 1, needed)
        self.check_program(self.program(self.library, f"-Wl,-rpath,{self.library.parent}"))

    def test_static(self):
        archives = sorted((FOLDER / "build").rglob("*.a"))
        program = self.program("-static", "-Wl,--start-group", *archives, "-Wl,--end-group")
        self.assertNotIn("INTERP", run("readelf", "-l", program).stdout)
        self.check_program(program)

    def test_what_python_says_of_another_c_librarys(self):
        """An installed package was copied to a machine of the other kind."""
        package = FOLDER / "site" / "diesel_loader"
        shutil.copytree(ROOT / "client/python/diesel_loader", package)
        shutil.copy(self.library, package)
        (package / "version").write_text(diesel_loader.__version__ + "\n")
        environment = {name: value for name, value in os.environ.items() if name not in ("DIESEL_LIB", "PYTHONPATH")}
        done = subprocess.run([sys.executable, "-c", "import diesel_loader"], cwd=package.parent, env=environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        line = done.stderr.splitlines()[-1]
        self.assertIn(f"ImportError: cannot load {package}/libdiesel.so (", line)
        self.assertRegex(line, r"this Python runs on x86_64 with glibc [0-9.]+")
        self.assertIn("--no-binary diesel-loader", line)


if __name__ == "__main__":
    if not COMPILER:
        print("skipped: there is no musl-gcc: apt install musl-tools")
        sys.exit(77)
    unittest.main(verbosity=2)
