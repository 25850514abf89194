# SPDX-License-Identifier: Apache-2.0
"""Finds lines that documentation quotes in the sources of the programs that print them."""
import ast
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))
from generate import FENCE  # noqa: E402

PROGRAMS = ("analyzer", "bpf", "client", "ctl", "daemon", "dataset", "image", "lib", "reports", "s3", "sqlite", "ui")
C_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|((?:"(?:\\.|[^"\\\n])*"\s*(?:PRI\w+\s*)?)+)', re.S)
DIRECTIVE = re.compile(r"%[-+ 0#]*[*\d]*(?:\.[*\d]+)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]")
ERRNO = "|".join(re.escape(os.strerror(number)) for number in range(1, 134))
# variable parts of a quoted line: `...`, a URL, a system error, a path, a NAME in capitals, a quoted word, a number, and marks between
# clauses
VARIABLE = re.compile(rf"\.\.\.|\w+://[^\s;,()]+|{ERRNO}|(?<!\w)/[^\s;,:()]+|\b[A-Z]{{2,}}\w*\b|(?<!\w)(['\"]).*?\1|\b\d[\w.]*(?: [KMGT]i?B)?|[;:,()]")


def texts(path):
    """Yields the texts in a source, each with "..." for values that a program puts in, and "chunk%s" both as "chunk" and as "chunks"."""
    if path.suffix == ".py":
        tree = ast.parse(path.read_text())
        found = ["".join(part.value if isinstance(part, ast.Constant) else "..." for part in node.values) if isinstance(node, ast.JoinedStr) else node.value
                 for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))]
    else:
        found = [re.sub(r'(?<!\\)"(?:[^"\\]*?)"', "", match[1].strip()[1:-1]).replace('\\"', '"') for match in C_TEXT.finditer(path.read_text()) if match[1]]
    for text in found:
        for plural in ("", "s"):
            yield DIRECTIVE.sub("...", re.sub(r"(?<=[a-z])%s", plural, text))


def quoted(text):
    """Yields the lines that a page quotes as a program's output: in blocks of code without a language, and first in a row of a table."""
    yield from (line for line in re.findall(r"^\| `([^`]+)`", text, re.M) if " " in line)
    for fence in FENCE.finditer(text):
        if fence[0].startswith("```\n"):
            yield from (line for line in fence[0].splitlines()[1:-1] if not line.startswith(("systemd: ", "kernel: ")))


class Printed:
    """All texts of the programs' sources."""

    def __init__(self):
        found = {text for folder in PROGRAMS for path in (ROOT / folder).rglob("*") if path.suffix in (".c", ".h", ".py") for text in texts(path)}
        self.texts = "\n".join(found)
        clauses = {clause.strip() for text in found if "..." in text for clause in re.split(r"""[;:,()]|["']\.\.\.["']""", text)}
        self.clauses = [clause for clause in clauses if "..." in clause and len(clause.replace("...", "")) >= 8]

    def has(self, piece):
        """Returns true if a text has the piece, or a clause that becomes the piece with inserted values, which are not most of it."""
        return piece in self.texts or any(5 * len(clause.replace("...", "")) >= 2 * len(piece) and
                                          re.fullmatch(re.escape(clause).replace(r"\.\.\.", ".+"), piece) for clause in self.clauses)

    def refused(self, line):
        """Returns the pieces of a line, between its variable parts, that no program prints."""
        pieces, at = [], 0
        for found in VARIABLE.finditer(line + ";"):
            pieces.append(line[at:found.start()].strip())
            at = found.end()
        pieces = [piece for piece in pieces if len(piece) > 3]
        return [piece for piece in pieces if not self.has(piece)] if sum(map(len, pieces)) >= 10 else [line]
