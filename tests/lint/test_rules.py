# SPDX-License-Identifier: Apache-2.0
"""Each rule refuses what it is there for, and lets pass what looks like it. The tests of rules/ are in tests/."""
import pathlib
import subprocess
import tempfile
import unittest

import includes
import text_rules

HERE = pathlib.Path(__file__).resolve().parent
AST_GREP = HERE.parent.parent / "build" / "lint" / "bin" / "ast-grep"
SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"


class Includes(unittest.TestCase):
    """Two libraries, low/ below high/, in a folder with a public header."""
    LISTS = {"lib/CMakeLists.txt": "diesel_library(diesel_base SOURCES x.c)", "lib/x.c": "", "lib/include/lib/x.h": "",
             "ui/low/CMakeLists.txt": "diesel_library(diesel_low SOURCES low.c)", "ui/low/low.c": '#include "low.h"', "ui/low/low.h": ""}

    def look(self, uses, **files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            lists = {"ui/high/CMakeLists.txt": f"diesel_library(diesel_high SOURCES high.c {uses})", "ui/high/high.c": "", "ui/high/high.h": ""}
            for name, text in {**self.LISTS, **lists, **{f"ui/high/high.{end}": text for end, text in files.items()}}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text + "\n")
            return includes.look(root)

    def test_lists_say_what_is_included(self):
        low, public = '#include "ui/low/low.h"', '#include "lib/x.h"'
        self.assertEqual(self.look("USES diesel_low", h=low, c=public), [])
        self.assertEqual(self.look("PRIVATE_USES diesel_low", c=low), [])
        for uses, files, fault in (("", {"c": low}, "needs PRIVATE_USES diesel_low"), ("", {"h": low}, "needs USES diesel_low"),
                                   ("USES diesel_low", {"c": low}, "has USES diesel_low"), ("USES diesel_low", {}, "has USES diesel_low"),
                                   ("", {"c": '#include "low/low.h"'}, "there is no low/low.h"),
                                   ("", {"c": '#include "lib/include/lib/../y.h"'}, "there is no")):
            with self.subTest(uses=uses, **files):
                self.assertIn(fault, "\n".join(self.look(uses, **files)))


class TextRules(unittest.TestCase):
    def refuse(self, rule, path, *texts):
        for text in texts:
            with self.subTest(text):
                self.assertTrue(list(rule(path, text)))

    def allow(self, rule, path, *texts):
        for text in texts:
            with self.subTest(text):
                self.assertEqual(list(rule(path, text)), [])

    def test_words(self):
        self.refuse(text_rules.words, "lib/x.c", "/* TODO */", "/* a FIXME */", "/* XXX: */", "/* a Hack */", "/* The begin of it */",
                    "/* the session file */", "/* trace\nfile */", "/* see #123 */", "/* (#7) */", "in /root/x")
        self.allow(text_rules.words, "lib/x.c", "mkstemp(XXXXXX)", "/* hacksaw */", "/* the beginning */", "/* session */",
                   "&#8593;", "'#333'", "#define X 1", '"$HOME/root/x"', "docs/a.md#12")
        self.allow(text_rules.words, "docs/screens/x.svg", "#123 ")

    def test_owners(self):
        self.refuse(text_rules.owners, "analyzer/whole/x.c", "#include <uv.h>\n", "int x;\n#include <bpf/libbpf.h>\n",
                    "#include <sqlite3.h>\n", "#include <cmocka.h>\n", "#include <unheard/of.h>\n")
        self.refuse(text_rules.owners, "uix/x.c", "#include <curses.h>\n")
        self.allow(text_rules.owners, "daemon/talk/x.c", "#include <uv.h>\n", "#include <stdio.h>\n", "#include <sys/mman.h>\n",
                   '#include "sqlite3.h"\n', "/* #include <sqlite3.h> */\n")
        self.allow(text_rules.owners, "tests/unit/x.c", "#include <sqlite3.h>\n")

    def test_first_lines(self):
        self.refuse(text_rules.first_lines, "lib/x.c", "", "int x;\n", "\n" + SPDX)
        self.refuse(text_rules.first_lines, "lib/x.h", SPDX + "int x;\n", SPDX + "#include <stdio.h>\n#pragma once\n",
                    "#pragma once\n" + SPDX)
        self.refuse(text_rules.first_lines, "x.py", "#!/usr/bin/python3\nimport os\n")
        self.allow(text_rules.first_lines, "lib/x.c", SPDX + "int x;\n")
        self.allow(text_rules.first_lines, "lib/x.h", SPDX + "#pragma once\n", SPDX + "/* What\n * for. */\n#pragma once\n")
        self.allow(text_rules.first_lines, "x.py", "#!/usr/bin/python3\n# SPDX-License-Identifier: Apache-2.0\n")
        self.allow(text_rules.first_lines, "docs/x.md", "# X\n")

    def test_contracts(self):
        public = "lib/include/lib/x.h"
        self.refuse(text_rules.contracts, public, SPDX + "int f(void);\n", "/* Of another. */\nint f(void);\n\nint g(void);\n",
                    "/*\n * The module.\n */\n\nint f(void);\n")
        self.allow(text_rules.contracts, public, "/* -EIO. */\nint f(void);\nint g(void);\n", "int f(void); /* -EIO */\n",
                   "/* First.\n\n * -EIO. */\nint f(void);\n", "void f(void);\n", "struct s {\n\tint (*f)(void);\n};\n")
        self.allow(text_rules.contracts, "lib/x.h", "int f(void);\n")

    def test_lines_are_named(self):
        self.assertEqual([line.rsplit(":", 2)[0] for line in text_rules.check("lib/x.c", SPDX + "\n/* TODO */\n")],
                         ["lib/x.c:3: words"])


class Rules(unittest.TestCase):
    def test_each_has_tests(self):
        self.assertEqual({path.stem for path in (HERE / "rules").iterdir()},
                         {path.stem.removesuffix("-test") for path in (HERE / "tests").iterdir()})

    def test_ast_grep(self):
        if not AST_GREP.exists():
            self.skipTest("./dev lint has not installed ast-grep yet")
        done = subprocess.run([AST_GREP, "test", "-c", HERE / "sgconfig.yml", "--skip-snapshot-tests"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
