# SPDX-License-Identifier: Apache-2.0
"""Tests libdiesel as C programmers use it: installed in a folder, found by pkg-config, and the example built from the installation, without
a warning, and run."""
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import zlib

from dieseld_support import BIN, CTL, SCRATCH, Case, Daemon, chunk_files, main, make_source, pack

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAGE = pathlib.Path(SCRATCH, "stage")
PROGRAM, WRITER = os.path.join(SCRATCH, "epoch"), os.path.join(SCRATCH, "write")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def run(*command, **more):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, check=False, **more)


def must(*command, **more):
    done = run(*command, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pkg_config(*options):
    described, = STAGE.rglob("diesel.pc")
    return must("pkg-config", *options, "diesel", env=os.environ | {"PKG_CONFIG_PATH": str(described.parent)}).split()


def png(side, colour):
    def part(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = (b"\0" + bytes(colour) * side) * side
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
            part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))


def images():
    root = pathlib.Path(SCRATCH, "images.src")
    for name, colour in (("dark", (10, 20, 30)), ("light", (200, 210, 220))):
        (root / name).mkdir(parents=True)
        for i in range(70):
            (root / name / f"{i}.png").write_bytes(png(40 + i, colour))
    return pack(str(root), "images")


class CClient(Case):
    @classmethod
    def setUpClass(cls):
        must("cmake", "--install", os.path.dirname(BIN), "--prefix", "/usr", env=os.environ | {"DESTDIR": str(STAGE)})
        for program, source in ((PROGRAM, "epoch.c"), (WRITER, "write.c")):
            example, = STAGE.rglob(source)
            must("cc", "-std=c11", *WARNINGS, "-O2", "-o", program, example, *pkg_config("--cflags", "--libs"))
        cls.library = pkg_config("--variable=libdir")[0]
        cls.source = make_source("plain", 150, lambda rng: rng.randint(0, 5000))
        cls.dataset = pack(cls.source, "plain")
        cls.node = Daemon()

    @classmethod
    def tearDownClass(cls):
        cls.node.stop()
        cls.node.log.close()

    def epoch(self, *arguments, socket=None):
        return run(PROGRAM, *arguments, env=os.environ | {"LD_LIBRARY_PATH": self.library, "DIESEL_SOCKET": socket or self.node.socket})

    def fails(self, says, *arguments, code=1, **more):
        done = self.epoch(*arguments, **more)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(says, done.stderr)

    def test_what_is_installed(self):
        self.assertIn(pkg_config("--modversion")[0], (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
        headers = STAGE / "usr/include/diesel"
        self.assertEqual(sorted(p.name for p in headers.iterdir()), ["diesel.h", "diesel_codec.h", "diesel_recipe.h"])
        for header in headers.iterdir():
            must("g++", "-std=c++17", *WARNINGS, "-x", "c++", "-fsyntax-only", "-include", header, "/dev/null")

    def test_an_epoch(self):
        done = self.epoch(self.dataset)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        expected = []
        for folder in sorted(pathlib.Path(self.source).iterdir()):
            files = [path.read_bytes() for path in folder.iterdir()]
            data = b"".join(files)
            expected.append(f"{folder.name}: {len(files)} samples, {len(data)} bytes, {sum(data) / len(data):.1f} on average")
        self.assertEqual(done.stdout.splitlines(), expected)

    def test_images(self):
        done = self.epoch(images(), 32)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines(), [f"dark: 70 samples, {70 * 32 * 32 * 3} bytes, 20.0 on average",
                                                    f"light: 70 samples, {70 * 32 * 32 * 3} bytes, 210.0 on average"])

    def test_written(self):
        """One example reads the dataset that the other one has written."""
        dataset = os.path.join(SCRATCH, "written")
        environment = os.environ | {"LD_LIBRARY_PATH": self.library, "DIESEL_DIESELCTL": os.path.abspath(CTL)}
        self.assertEqual(must(WRITER, dataset, env=environment), f"{dataset}: 1000 samples, version 1\n")
        done = self.epoch(dataset)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual([line.split(",")[:2] for line in done.stdout.splitlines()],
                         [[f"class{i}: 100 samples", f" {100 * 256 * 4} bytes"] for i in range(10)])
        done = run(WRITER, dataset, env=environment)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, "^write: .*has 1000 samples already.*\n$")

    def test_wrong_input(self):
        self.fails("usage: epoch DATASET [SIDE]", code=2)
        self.fails("invalid SIDE: must be a number of pixels", self.dataset, "wide")
        self.fails("width and height must be 1 to 16384", self.dataset, 0)
        self.fails("width and height must be 1 to 16384", self.dataset, 16385)
        self.fails("dieselctl pack", self.source)
        self.fails("no dieseld at", self.dataset, socket=os.path.join(SCRATCH, "none"))
        done = self.epoch(self.dataset, 32)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", "epoch: 150 samples are damaged\n"))

    def test_a_damaged_chunk(self):
        damaged = pack(self.source, "damaged")
        with open(chunk_files(damaged)[0], "r+b") as f:
            f.seek(os.path.getsize(f.name) // 2)
            f.write(b"\0" * 1000)
        self.fails("chunk", damaged)


if __name__ == "__main__":
    for program in ("cmake", "pkg-config", "cc", "g++"):
        if not shutil.which(program):
            print(f"skipped: there is no {program}")
            sys.exit(77)
    main()
