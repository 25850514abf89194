# SPDX-License-Identifier: Apache-2.0
"""Tests client/python/make_abi.py: its output for ctypes from headers, the headers that it refuses, and the mistakes that a compiler then
refuses."""
import ctypes
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLAIN = """
#pragma once
#include <stdint.h>
#define DIESEL_WIDE (UINT64_C(1) << 40) /* a number */
enum diesel_kind { DIESEL_A = 3, DIESEL_B /* the next one */ };
struct diesel_thing {
	uint32_t a, b;
	const char *name; size_t name_length;
	const char *text;
	double ends[2];
};
int diesel_thing_make(const struct diesel_thing *of, enum diesel_kind kind, const char *path,
		      struct diesel_other **ret, uint64_t *ret_n);
const char *diesel_said(void);
"""


class Made(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def make(self, *texts):
        headers = [self.folder / f"include/{n}.h" for n in range(len(texts))]
        for header, text in zip(headers, texts):
            header.parent.mkdir(exist_ok=True)
            header.write_text("#include <stddef.h>\n" + text)
        return subprocess.run([sys.executable, ROOT / "client/python/make_abi.py", *headers, self.folder / "abi.py", self.folder / "check.c"],
                              capture_output=True, text=True, check=False)

    def compiled(self):
        return subprocess.run(["cc", "-Werror", "-fsyntax-only", "-I", self.folder / "include", self.folder / "check.c"], capture_output=True,
                              text=True, check=False).stderr

    def module(self):
        made = {}
        exec((self.folder / "abi.py").read_text(), made)  # noqa: S102
        return made

    def test_constants_structs_and_functions(self):
        self.assertEqual(self.make("struct diesel_other;" + PLAIN).stderr, "")
        self.assertEqual(self.compiled(), "")
        made = self.module()
        self.assertEqual((made["WIDE"], made["A"], made["B"]), (1 << 40, 3, 4))
        thing = dict(made["Thing"]._fields_)
        self.assertEqual((thing["a"], thing["name"], thing["text"]), (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_char_p))
        self.assertEqual(made["FUNCTIONS"]["diesel_thing_make"], (ctypes.c_int, [
            ctypes.POINTER(made["Thing"]), ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint64)]))
        self.assertEqual(made["FUNCTIONS"]["diesel_said"], (ctypes.c_char_p, []))

    def test_what_it_does_not_understand_is_refused(self):
        for text in ("struct s { uint32_t a : 3; };", "struct s { union { int a; } u; };", "typedef int number;", "struct s { long a; };",
                     "int f(int (*call)(void));", "#define F(x) (x)", "#ifdef A\n#endif", "int f(int a, ...);", "struct s { enum e k[n]; };",
                     "static inline int f(void) { return 1; }", "int f(struct unknown by_value);", "enum e { A = sizeof(int) };"):
            with self.subTest(text):
                done = self.make(text)
                self.assertEqual(done.returncode, 1, (self.folder / "abi.py").read_text() if done.returncode == 0 else done.stderr)
                self.assertRegex(done.stderr, r"\Amake_abi.py does not understand: .+\n\Z")

    def test_a_compiler_refuses_what_was_understood_wrongly(self):
        """The headers change behind its back, each in a way that it could misread."""
        plain = "struct diesel_other;" + PLAIN
        for right, wrong in (("uint32_t a, b;", "uint32_t b, a;"), ("double ends[2]", "double ends[3]"), ("DIESEL_A = 3", "DIESEL_A = 2"),
                             ("<< 40", "<< 41"), ("const char *path", "const void *path"), ("uint32_t a, b", "uint64_t a, b"),
                             ("const char *diesel_said(void)", "int diesel_said(void)")):
            with self.subTest(wrong):
                self.make(plain)
                (self.folder / "include/0.h").write_text("#include <stddef.h>\n" + plain.replace(right, wrong))
                self.assertNotEqual(self.compiled(), "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
