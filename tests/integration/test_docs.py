# SPDX-License-Identifier: Apache-2.0
"""Tests that the sources of the site are made from the built programs, that each link and anchor in them and in README leads somewhere, and
that the list of pages is complete. Outputs of docs/tutorials/two-nodes.md are tested in cluster_walk, and of dataset-in-s3.md in
s3.tutorial."""
import importlib.util
import os
import pathlib
import posixpath
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["DIESEL_BIN"])
SITE = ROOT / "docs" / "site"
sys.path.insert(0, str(SITE))
import blocks  # noqa: E402
import printed_lines  # noqa: E402
from generate import FENCE  # noqa: E402

LINK = re.compile(r"\]\(([^()\s]+)\)")
FORKED = f"""#!/bin/sh
DIESEL_BIN={BIN} exec {sys.executable} -I -S {ROOT}/tests/integration/forked.py run torch "$@"
"""
READ = re.compile(r'getenv\("((?:DIESEL|AWS)_\w+)"\)|environ(?:\.get\(|\[)"(DIESEL_\w+)"')


def anchors(text):
    """Returns the anchors of headings, by the rules of Python-Markdown and GitHub."""
    found = set()
    for title in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        name = re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", title.replace("\\", "").lower()).strip())
        n = 1
        base = name
        while name in found:
            name = f"{base}_{n}"
            n += 1
        found.add(name)
    return found


class Docs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.pages = pathlib.Path(cls.work.name) / "src"
        subprocess.run([sys.executable, "-B", SITE / "generate.py", BIN, BIN.parent / "made", cls.pages], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.work.cleanup()

    def refused(self, root, path):
        """Returns the links of a page that lead nowhere."""
        text = FENCE.sub("", path.read_text())
        for target in LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
            file, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            to = root / posixpath.normpath(posixpath.join(posixpath.dirname(str(path.relative_to(root))), file)) if file else path
            if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to.read_text())):
                yield f"{path.relative_to(root)}: {target}"

    def test_links(self):
        wrong = [link for page in self.pages.rglob("*.md") for link in self.refused(self.pages, page)]
        wrong += [link for page in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md") for link in self.refused(ROOT, ROOT / page)]
        self.assertEqual(wrong, [])

    def test_a_wrong_link_is_seen(self):
        page = self.pages / "wrong.md"
        page.write_text("# A b\n[a](#a-b) [b](#b) [c](c.md) [d](how-to/operating.md#operate-diesel) `[e](e.md)`\n")
        self.addCleanup(page.unlink)
        self.assertEqual(list(self.refused(self.pages, page)), ["wrong.md: #b", "wrong.md: c.md"])

    def test_every_page_is_listed(self):
        listed = (self.pages.parent / "mkdocs.yml").read_text().partition("nav: ")[2]
        names = re.findall(r'"([^"]+\.md)"', listed)
        there = [str(page.relative_to(self.pages)) for page in self.pages.rglob("*.md")]
        self.assertEqual(sorted(names), sorted(name for name in there if not name.startswith("files/")))

    def test_what_is_generated(self):
        def text(name):
            return (self.pages / "reference" / f"{name}.md").read_text()
        self.assertIn("`-c`, `--chunk-size` *SIZE*\n:   Size of a chunk, 4M to 64M", text("dieselctl-pack"))
        self.assertIn("`--stage` *DIR*", text("dieseld"))
        self.assertIn("`diesel-analyze diff` \\[`--output` *FILE*\\]", text("diesel-analyze-diff"))
        self.assertIn("`diesel_job_batches_total` (counter)\n:   Batches made ready for the job.\n", text("metrics"))
        self.assertIn("## diesel_dataset_stat()\n\nGets time and mode of a packed file. -ERANGE: no such sample.", text("c"))
        self.assertIn("### DataLoader", text("python"))
        self.assertIn("| `verdict` |", text("report-schema"))
        helped = subprocess.run([BIN / "dieselctl", "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
        for verb in re.findall(r"^  ([a-z]+)  +[A-Za-z]", helped, re.M):
            self.assertTrue(text(f"dieselctl-{verb}").startswith(f"# dieselctl {verb}\n"))

    def test_the_environment(self):
        """Each variable of ours that a program reads is in the reference."""
        read = set()
        for folder in ("client", "ctl", "daemon", "dataset", "s3", "ui", "lib"):
            for path in (ROOT / folder).rglob("*.[chp]*"):
                if path.suffix in (".c", ".py"):
                    read.update(first or second for first, second in READ.findall(path.read_text()))
        text = (self.pages / "reference" / "environment.md").read_text()
        self.assertEqual(sorted(name for name in read if f"`{name}`" not in text), [])

    def test_quoted_lines(self):
        """Each line that the troubleshooting pages quote is printed by a program."""
        printed = printed_lines.Printed()
        for page in sorted((ROOT / "docs" / "troubleshooting").glob("*.md")):
            lines = list(printed_lines.quoted(page.read_text()))
            self.assertGreater(len(lines), 10, page)
            self.assertEqual([(line, wrong) for line in lines if (wrong := printed.refused(line))], [], page)
        self.assertEqual(printed.refused("FILE: storage has not answered for 30 s. Jobs that read from it are waiting"), [])
        self.assertEqual(printed.refused("FILE: storage has not answered since 30 s"), ["storage has not answered since"])
        self.assertEqual(printed.refused("CHUNK: Input/output error"), ["CHUNK: Input/output error"])


class Blocks(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("numpy"), "needs numpy")
    def test_a_page_prints_what_it_shows(self):
        python = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "python3")
        python.write_text(FORKED)
        python.chmod(0o755)
        for name in ("get-started/install", "how-to/checkpoints", "how-to/share-a-cluster", "tutorials/a-codec"):
            with self.subTest(page=name), blocks.ran(ROOT / "docs" / f"{name}.md", python) as page:
                self.assertEqual(page.wrong, [])

    def run_page(self, text):
        path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "page.md")
        path.write_text(f"<!-- run: 7000 -->\n{text}")
        with blocks.ran(path) as page:
            return page.wrong, page.text.partition("\n")[2]

    def test_a_wrong_output_is_seen_and_written(self):
        wrong, text = self.run_page("```console\n$ echo one\ntwo\n$ echo three\nthree\n```\n")
        self.assertEqual(len(wrong), 1)
        self.assertIn("$ echo one\nthe page shows:\ntwo\nand the command prints:\none\n", wrong[0])
        self.assertEqual(text, "```console\n$ echo one\none\n$ echo three\nthree\n```\n")

    def test_steps(self):
        page = ("<!-- file: a.txt -->\n```\none\ntwo 7000\n```\n<!-- wait: test -e a.txt -->\n<!-- patch: a.txt -->\n```diff\n-one\n+three\n```\n"
                "<!-- not run: it fails -->\n```sh\nfalse\n```\n```sh\nexport A=b\n```\n```console\n$ cat a.txt\nthree\ntwo 7000\n$ echo $A\nb\n```\n")
        self.assertEqual(self.run_page(page), ([], page))

    def test_a_failing_command_is_seen(self):
        self.assertRaisesRegex(AssertionError, "page.md: failed: set -e\nfalse\ntrue", self.run_page, "```sh\nfalse\ntrue\n```\n")

    def test_alike(self):
        self.assertTrue(blocks.matches("a 7.9 MiB by\nme@here\n...\nend ...\n", "a 12 KiB by you@there\nmore\nend of 3\n"))
        self.assertFalse(blocks.matches("a 7.9 MiB\n", "a 7.9 MiB more\n"))
        self.assertFalse(blocks.matches("fetch 1\n", "prep 1\n"))


if __name__ == "__main__":
    unittest.main()
