# SPDX-License-Identifier: Apache-2.0
"""Draws comments and messages of the tree at random, for people who rate them: each with its place and the code that follows.

    draw.py [--seed S] [-n N] [--tests] [FOLDER ...]    from the root of the tree; N comments and N messages; --tests: of tests, too
"""
import argparse
import pathlib
import random
import subprocess
import textwrap

import prose

MIN_WORDS = 3  # a shorter comment is rarely a sentence


def code_after(text, offset):
    """Returns the first line with code from an offset on."""
    return next((" ".join(line.split()) for line in text[offset:].split("\n") if line.strip(" \t*/,;)}\"'")), "")


def code_around(text, begin, end):
    """Returns the code of a statement around a message, as "call(MESSAGE, argument);"."""
    before, after = text[:begin].rstrip().rpartition("\n")[2] + " ", text[end:].partition("\n")[0]
    return " ".join(f"{before}MESSAGE{after} {'' if after.rstrip().endswith(';') else code_after(text, end + len(after))}".split())


def all_pieces(folders, tests):
    """Yields (place, kind, text, code) of all comments and messages."""
    for path in subprocess.run(["git", "ls-files", *folders], capture_output=True, text=True, check=True).stdout.splitlines():
        if path.endswith(prose.PAGES) or path.startswith("tests/") and not tests:
            continue
        try:
            text = pathlib.Path(path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        lines = prose.Lines(text)
        for piece in prose.pieces(path, text):
            if prose.n_words(piece.text) >= MIN_WORDS:
                code = code_after(text, piece.end)
                if piece.kind == "trailing":
                    code = text[:piece.offset].rpartition("\n")[2].strip()
                elif piece.kind == "message":
                    code = code_around(text, piece.offset, piece.end)
                yield f"{path}:{lines.line(piece.offset)}", piece.kind, " ".join(piece.text.split()), code


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-n", type=int, default=50)
    parser.add_argument("--tests", action="store_true")
    arguments = parser.parse_args()
    drawn = list(all_pieces(arguments.folders, arguments.tests))
    choose = random.Random(arguments.seed)
    for name, kinds in (("COMMENTS", ("comment", "trailing")), ("MESSAGES", ("message",))):
        of_kind = [piece for piece in drawn if piece[1] in kinds]
        print(f"{name}: {min(arguments.n, len(of_kind))} of {len(of_kind)}, seed {arguments.seed}\n")
        for number, (place, _, text, code) in enumerate(sorted(choose.sample(of_kind, min(arguments.n, len(of_kind)))), 1):
            print(f"{number}. {place}\n{textwrap.fill(text, 100, initial_indent='   ', subsequent_indent='   ')}\n   > {code[:120]}\n")


if __name__ == "__main__":
    main()
