# SPDX-License-Identifier: Apache-2.0
"""Finds the prose of a file: comments and messages of C, BPF, Python and shell, and the blocks of a Markdown page."""
import bisect
import re
import typing

C_FILES, PYTHON_FILES, SHELL_FILES, PAGES = (".c", ".h"), (".py",), (".sh", "dev", ".ci/run"), (".md",)

C_STRING = r'"(?:\\.|[^"\\\n])*"'
C_TOKEN = re.compile(rf"(?P<comment>/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*)|(?P<string>{C_STRING}(?:\s*(?:PRI\w+\s*)?{C_STRING})*)"
                     r"|'(?:\\.|[^'\\\n])+'", re.S)
PYTHON_STRING = r'[rbfRBF]{0,2}(?:"""(?:\\.|[^\\])*?"""|' + r"'''(?:\\.|[^\\])*?'''|" + r'"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*')"
PYTHON_TOKEN = re.compile(rf"(?P<comment>#[^\n]*(?:\n[ \t]*#[^\n]*)*)|(?P<string>{PYTHON_STRING}(?:\s*{PYTHON_STRING})*)", re.S)
SHELL_TOKEN = re.compile(r"(?P<skip><<-?\s*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote).*?\n\s*(?P=end)\n|\\.|\$\#|\$\{\#)"
                         r"|(?P<comment>(?<![^\s])#[^\n]*(?:\n[ \t]*#[^\n]*)*)|(?P<string>\"(?:\\.|[^\"\\])*\"|'[^']*')", re.S)
DIRECTIVE = re.compile(r"%[-+#0]*[*\d]*(?:\.[*\d]+)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]")
NO_PROSE = re.compile(r"SPDX-License|NOLINT|clang-format o|noqa|shellcheck disable|pylint:|type: ignore|^!/")


class Piece(typing.NamedTuple):
    kind: str  # comment, trailing (a comment after code), message, heading, paragraph, item, cell
    offset: int  # where it begins in the file
    text: str  # of a comment or a page: with the line breaks of the file
    end: int  # where it ends in the file, 0 on a page


class Lines:
    """Tells the line of an offset."""

    def __init__(self, text):
        self.starts = [0] + [found.end() for found in re.finditer("\n", text)]

    def line(self, offset):
        return bisect.bisect_right(self.starts, offset)


def comment_text(raw):
    """Returns the text of a C comment without its stars; each line stays a line."""
    if raw.startswith("/*"):
        return re.sub(r"(?m)^[ \t]*\*(?!\*)[ ]?", "", raw[2:-2].strip("*"))
    return re.sub(r"(?m)^[ \t]*(?://|#)[ ]?", "", raw)


def is_message(text):
    """Returns true if a string is prose and no code, pattern or table."""
    if len(re.findall(r"(?<![\w/.<-])[A-Za-z][a-z']+(?![\w/=(])", text)) < 4 or text.count("\n") > 60:
        return False
    if re.search(r"[{}]\s*\n|;\s*\n|</?\w+[ >]|\b(?:SELECT|INSERT|CREATE|UPDATE|DELETE|PRAGMA)\b|^\s*(?:import|from) |\bdef \w+\(|\(\?|\\[bsw]"
                 r"|\$\d|=> |\blocal \w+ = |\bredis\.call|\bprint\(|=\{|\w=\S+ \w+=|\w;\w", text):
        return False
    return True


def c_message(raw):
    text = re.sub(r'"\s*(?:(PRI\w+)\s*)?"', lambda found: "d" if found[1] else "", raw)[1:-1]
    return DIRECTIVE.sub("X", re.sub(r"\\[nt]", lambda found: "\n" if found[0] == "\\n" else " ", text).replace('\\"', '"'))


def python_message(raw):
    def literal(found):
        prefix, body = found[1].lower(), found[2]
        body = body[3:-3] if body[:3] in ('"""', "'''") else body[1:-1]
        if "r" not in prefix:
            body = body.replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"').replace("\\'", "'")
        return re.sub(r"\{[^{}]*\}", "X", body) if "f" in prefix or "{}" in body else body
    text = re.sub(r"\s*([rbfRBF]{0,2})(\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')", literal, raw, flags=re.S)
    return DIRECTIVE.sub("X", text)


def after_code(text, offset):
    return bool(text[text.rfind("\n", 0, offset) + 1:offset].strip())


def of_code(path, text, token, message):
    """Yields the comments and messages of a file of code. Strings of tests are no messages: they hold what a program prints."""
    has_messages = not path.startswith("tests/")
    for found in token.finditer(text):
        kind, raw = found.lastgroup, found[0]
        if kind in ("quote", "end"):
            continue
        if kind == "comment":
            if not NO_PROSE.search(raw[1:]):
                yield Piece("trailing" if after_code(text, found.start()) else "comment", found.start(), comment_text(raw), found.end())
        elif kind == "string" and raw.lstrip("rRfF").startswith('"""') and not after_code(text, found.start()):
            yield Piece("comment", found.start(), raw.lstrip("rRfF")[3:-3], found.end())
        elif kind == "string" and has_messages and len(raw) > 16:
            content = message(raw)
            if is_message(content):
                yield Piece("message", found.start(), content, found.end())


def shell_message(raw):
    return re.sub(r"\$\{[^{}]*\}|\$\w+|\$\([^()]*\)", "X", raw[1:-1].replace('\\"', '"'))


FENCE = re.compile(r"\s*(```+|~~~+)")
ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")


def of_page(text):
    """Yields the blocks of a page. A fence, an HTML block and an indented block are none; each cell of a table is one."""
    block, kind, begin, offset, fence = [], None, 0, 0, None

    def end():
        if block and kind:
            yield Piece(kind, begin, "\n".join(block), 0)
        block.clear()

    depth = 0
    for line in text.split("\n"):
        at, offset = offset, offset + len(line) + 1
        if fence:
            fence = None if line.strip().startswith(fence) and not line.strip().strip(fence[0]) else fence
            continue
        marker = FENCE.match(line)
        if marker or not line.strip() or line.lstrip().startswith(("<", "|", "#")) or ITEM.match(line):
            yield from end()
            kind = None
        if marker:
            fence = marker[1]
        elif not line.strip():
            continue
        elif re.match(r"#+ ", line):
            yield Piece("heading", at, line.lstrip("# "), 0)
        elif line.lstrip().startswith("|"):
            depth = 0
            if not re.fullmatch(r"[\s|:-]+", line):
                place = at
                for cell in re.split(r"(?<!\\)\|", line):
                    if cell.strip():
                        yield Piece("cell", place, cell.strip(), 0)
                    place += len(cell) + 1
        elif line.lstrip().startswith("<") and not re.match(r"\s*<https?:", line):
            continue
        elif ITEM.match(line):
            marker = ITEM.match(line)
            depth = marker.end()
            kind, begin, block[:] = "item", at, [line[depth:]]
        elif kind:
            block.append(line.strip())
        else:
            indent = len(line) - len(line.lstrip())
            depth = depth if indent else 0
            if indent - depth < 4:
                kind, begin, block[:] = "item" if depth else "paragraph", at, [line.strip()]
    yield from end()


def pieces(path, text):
    """Returns the pieces of prose of a file, none of a kind of file that is not known."""
    if path.endswith(C_FILES):
        return list(of_code(path, text, C_TOKEN, c_message))
    if path.endswith(PYTHON_FILES):
        return list(of_code(path, text, PYTHON_TOKEN, python_message))
    if path in SHELL_FILES or path.endswith(".sh"):
        return list(of_code(path, text, SHELL_TOKEN, shell_message))
    return list(of_page(text)) if path.endswith(PAGES) else []


ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|vs|cf|etc|approx|No|resp)|\b[A-WYZ])\.$")  # X stands for a value, or for code
END = re.compile(r"[.?!][\"')\]*_]*(?=\s)")


def plain(text):
    """Returns Markdown's text as a reader sees it: a link is its text, and code in it is one word."""
    text = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), text, flags=re.S)
    text = re.sub(r"(`+)(.+?)\1", lambda found: "X" + "\n" * found[0].count("\n"), text, flags=re.S)
    text = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)\s]*(?:\s+\"[^\"]*\")?\)", r"\1", text)
    return re.sub(r"https?://[^\s)>]+", "X", text).replace("**", "")


def sentences(text):
    """Yields (offset, sentence) of one block."""
    begin = 0
    for found in END.finditer(text):
        if not ABBREVIATION.search(text[begin:found.start() + 1]):
            yield begin, text[begin:found.end()]
            begin = found.end()
    if text[begin:].strip():
        yield begin, text[begin:]


def blocks(text):
    """Yields (offset, block) of a comment or message: paragraphs and items. Lines of tables and of code in it are none."""
    begin, offset, lines = 0, 0, []
    margin = min((len(line) - len(line.lstrip()) for line in text.expandtabs(8).split("\n")[1:] if line.strip()), default=0)
    for line in text.expandtabs(8).split("\n"):
        indent = len(line) - len(line.lstrip()) - (margin if offset else 0)
        is_table = re.search(r"[^\s.?!:] {2,}\S|\S {3,}\S|\t\S|[─│┌]|^\s*[|+]", line.strip()) or (indent >= 2 and not ITEM.match(line) and not lines)
        if not line.strip() or is_table or ITEM.match(line):
            if lines:
                yield begin, "\n".join(lines)
            lines = []
        if line.strip() and not is_table:
            if not lines:
                begin = offset
            lines.append(line)
        offset += len(line) + 1
    if lines:
        yield begin, "\n".join(lines)


WORD = re.compile(r"[^\s]*[A-Za-z0-9][^\s]*")


def n_words(text):
    return len(WORD.findall(text))
