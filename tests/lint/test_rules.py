# SPDX-License-Identifier: Apache-2.0
"""Each rule refuses what it is there for, and lets pass what looks like it. The tests of rules/ are in tests/."""
import pathlib
import subprocess
import tempfile
import textwrap
import unittest
import unittest.mock

import draw
import includes
import prose
import style
import subjects
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
                    "/* the session file */", "/* trace\nfile */", "/* see #123 */", "/* (#7) */", "in /root/x",
                    "/* recognized by name */", "/* the neighbors */", "/* its Behavior */")
        self.allow(text_rules.words, "lib/x.c", "mkstemp(XXXXXX)", "/* hacksaw */", "/* the beginning */", "/* session */",
                   "&#8593;", "'#333'", "#define X 1", "organize_all()", "/* recognised by name */", '"$HOME/root/x"', "docs/a.md#12")
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


class Style(unittest.TestCase):
    """The rules for English: what each refuses, and what looks like it."""

    def rules(self, path, text):
        return [rule for _, rule, _ in style.find(path, text)]

    def refuse(self, rule, path, *texts):
        for text in texts:
            with self.subTest(text):
                self.assertEqual(self.rules(path, text), [rule])

    def allow(self, path, *texts):
        for text in texts:
            with self.subTest(text):
                self.assertEqual(self.rules(path, text), [])

    def test_prose_of_code(self):
        found = [(piece.kind, piece.text.strip()) for piece in prose.pieces("lib/x.c", SPDX + """
/* A comment
 * of two lines. */
int x = f('"', "short"); /* its value */
// one
// two
log_error("cannot open %s" " of %" PRIu64 " bytes: %s", "%s %d");
""")]
        self.assertEqual(found, [("comment", "A comment\nof two lines."), ("trailing", "its value"), ("comment", "one\ntwo"),
                                 ("message", "cannot open X of X bytes: X")])
        self.assertEqual([(piece.kind, piece.text) for piece in prose.pieces("x.py", '"""A module."""\nx = f"opens {a} and reads it"  # why\n')],
                         [("comment", "A module."), ("message", "opens X and reads it"), ("trailing", "why")])
        self.assertEqual([(piece.kind, piece.text) for piece in prose.pieces("x.sh", 'n=$# # count\nsay now\nsay "opens the $n and reads ${n}"\ncat <<END\n# no\nEND\n')],
                         [("trailing", "count"), ("message", "opens the X and reads X")])
        self.assertEqual([piece.kind for piece in prose.pieces("tests/x.c", '"a string of a test" /* it */')], ["trailing"])

    def test_prose_of_pages(self):
        found = [(piece.kind, piece.text) for piece in prose.pieces("x.md", """# Head

One line
goes on.

- item
  goes on

  a paragraph
- other

```
- no item
```

| a | b |
|---|---|
| c | d |
""")]
        self.assertEqual(found, [("heading", "Head"), ("paragraph", "One line\ngoes on."), ("item", "item\ngoes on"), ("item", "a paragraph"),
                                 ("item", "other"), ("cell", "a"), ("cell", "b"), ("cell", "c"), ("cell", "d")])

    def test_banned(self):
        self.refuse("banned", "lib/x.c", "/* Opens the file anew. */", "/* The file beside it. */", "/* Takes such a one. */", "/* Reads as ever. */",
                    "/* Reads all in one go. */", "/* Takes some 20 us. */", "/* Reads some\n * 20 files. */", "/* Samples per thread, a CPU second. */", "/* 20 MiB a second. */",
                    "/* Has no room for it. */", "/* A dear call. */", "/* Reads so many bytes. */", "/* Reads that which is left. */",
                    "/* For the owner alone. */", 'f("has no room for the chunk");')
        self.refuse("banned", "docs/x.md", "The file beside it.", "| x | anew |", "- for the owner\n  alone")
        self.allow("lib/x.c", "/* Needs headroom and classrooms. */", "/* Leaves it alone. */", "/* Runs alone. */", "/* Some files. */",
                   "/* So many files that it fails. */", "/* So many of them that it fails. */", "/* So many that it fails. */", "/* As good as ever. */", "/* Never alone. */", "/* See `room`. */", "/* Reads. beside: a file. */", "/* room_new() */", "/* some of 20 */", "/* a second reader */",
                   'f("room");', "int room;")
        self.allow("docs/x.md", "Set `room`.", "```\nanew\n```", "See [it](room.md).")

    def test_start(self):
        self.refuse("start", "lib/x.c", "/* Of a sample. */", "/* What is read. */", "/* Whose it is. */", "/* Those of a job. */", "/* It reads. */",
                    "/* They read. */", "/* These are read. */", "/* The same, twice. */", "/* The same of a file. */", "int x; /* what is read */", "int x; /* the same */",
                    "/* A file. Of these, one. */", "/* A file. What is read, is. */", 'f("Of these, those that were read.");', "/* whose\n * it is */")
        self.refuse("start", "docs/x.md", "# What it reads", "The file. Of these, one is.", "- Those that are read.")
        self.allow("lib/x.c", "/* What is it? */", "/* The file that it reads. */", "int x; /* of a sample */", "/* A file. It is read. */",
                   'f("it reads the whole file");', 'f(" It reads the whole file.");', "/* of_type() reads. */", "/* Often read. */", "/* The same file is read. */", '/* "Of a file." */', "int x; /* what-if */")
        self.allow("docs/x.md", "# What is it?", "*What else differs* names the rest.", "| What it is |\n|---|", "It is read.", "The same, twice.")

    def test_long(self):
        long = "word " * 36
        self.refuse("long", "lib/x.c", f"/* {long}. */", f"/*\n * - {long}\n */", f'f("{long}");')
        self.refuse("long", "docs/x.md", textwrap.fill(f"A word. B. {long}. C. D."), f"| {long} |")
        self.allow("lib/x.c", f"/* {long[5:]}. */", f"/* {long[90:]}. {long[90:]}. */", f"/* {long[90:]} e.g. three. */",
                   f"/* Returns {long[90:]}; -EIO: {long[90:]}. */", f"/*\n * x   {long}\n * y   {long}\n */")
        self.allow("tests/x.c", f'f("{long}");')
        self.allow("docs/x.md", textwrap.fill(f"{long[90:]}. `{long}` {long[100:]}."), textwrap.fill(f"{long[60:]} `x`. {long[60:]}. One. Two."), f"| {long[60:]}; {long[60:]} |")

    def test_marks(self):
        self.refuse("marks", "lib/x.c", "/* Reads a file: it is there; it is not. */", "/* Reads a file; it is whole; it is not. */",
                    'f("cannot read the file: it is cut: try again");')
        self.refuse("marks", "docs/x.md", "It reads a file: it is there; it is not.")
        self.allow("lib/x.c", "/* Reads a file: it is there. It is not: see below. */", "/* -EIO: it is damaged; -ENOENT: it is not there; -ENOMEM. */",
                   "/* Returns 0 with the file; 1 if it is cut; -EIO where it is damaged. */", "/* [0]: empty; [i]: the file i. */", "/* size: of a file; 0 (default): all. */",
                   "int x; /* of the file; 0: not known; 1: none */", 'f("%s: cannot read %s: %s", a, b, c);', '/* Reads "a: b; c" as 12:30:10. */',
                   "/* path: NULL for the first one; borrowed. */", 'f("%d: %d of %d files; %d left: %d", 1);')
        self.allow("docs/x.md", "| a: b; c; d and so on |\n|---|", "- it reads: a file, whole;", "It reads `a: b; c`: it is there.")

    def test_sizes_of_a_page(self):
        short = "A word or two. "
        self.refuse("paragraph", "docs/x.md", textwrap.fill(short * 21))
        self.refuse("item", "docs/x.md", textwrap.fill("- " + short * 11))
        self.refuse("columns", "docs/x.md", "\n".join(["x" * 40 + " " + "y" * 60]), f"[text](a.md) {'x' * 90} word")
        self.refuse("mean", "docs/x.md", "word " * 19 + ".")
        self.allow("docs/x.md", textwrap.fill(short * 20), textwrap.fill("- " + short * 10) + "\n- x", "word " * 18 + ".", "x" * 60 + " " + "y" * 39,
                   f"| {'x' * 100} |", f"# {'x' * 100}", f"```\n{'x ' * 60}\n```", f"See [it](https://{'x' * 100}).", f"See {'x' * 80} [it](a/{'x' * 30}.md).")

    def test_places(self):
        self.assertEqual([line for line, _, _ in style.find("lib/x.c", SPDX + "/* One.\n *\n * Opens it anew, in\n * one go. */\n")], [4, 4])
        self.assertEqual([line for line, _, _ in style.find("docs/x.md", "# x\n\nOne line.\nIs made\nanew.\n")], [5])

    def test_counts(self):
        found = [(1, "banned", "x"), (2, "start", "y")]
        self.assertEqual(style.compare("x", found, {"x": 2}), [])
        self.assertEqual(style.compare("x", found, {}), found)
        self.assertEqual(style.compare("x", found, {"x": 1})[:2], found)
        self.assertIn("only 2 findings of 3", style.compare("x", found, {"x": 3})[0][2])

    def test_counts_shrink(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(style, "COUNTS", pathlib.Path(folder) / "counts.txt"), \
                unittest.mock.patch.object(style, "find", lambda path, text: [(1, "banned", "x")] * (path == "dev")), \
                unittest.mock.patch.object(style, "tracked", lambda: ["CMakeLists.txt", "dev"]):
            self.assertEqual(style.counts_write(), (0, 1))
            self.assertEqual(style.COUNTS.read_text(), "1 dev\n")
            for before, now in (("<<<<<<<\n3 dev\n", "1 dev\n"), ("1 gone.c\n", "1 dev\n"), ):
                style.COUNTS.write_text(before)
                style.counts_write()
                self.assertEqual(style.COUNTS.read_text(), now)

    def test_draws_show_the_code(self):
        text = 'int f(void); /* one */\n\n/* two */\n\nvoid g(void)\n{\n\tlog("cannot open it",\n\t    x);\n'
        self.assertEqual(draw.code_after(text, text.index("two") + 3), "void g(void)")
        begin = text.index('"')
        self.assertEqual(draw.code_around(text, begin, text.rindex('"') + 1), "log( MESSAGE, x);")

    def test_subjects(self):
        for subject in ("lib: read a file", "daemon/cache, ui: embed a table", "README: pass what a user needs", "lib: clang-format"):
            self.assertEqual(subjects.faults(subject), [], subject)
        for subject in ("read a file", "lib: reads a file", "lib: added a file", "lib: reading files", "lib: read a file.", "lib: read; write", "Lib:read",
                        "lib: " + "x" * 70):
            self.assertTrue(subjects.faults(subject), subject)


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
