# SPDX-License-Identifier: Apache-2.0
"""The rules for English that a program can check, of prose that prose.py finds.

Files that do not keep them yet have a row in counts.txt, "FINDINGS PATH". A file may have neither more findings than its row says
nor fewer: counts_write() lowers the rows, and refuses to raise their sum.
"""
import pathlib
import re
import subprocess

import prose

COUNTS = pathlib.Path(__file__).resolve().with_name("counts.txt")
ROOT = COUNTS.parents[2]

SENTENCE_WORDS, PARAGRAPH_WORDS, ITEM_WORDS, COLUMNS, MEAN_WORDS = 35, 80, 40, 100, 18
TABLE_VALUES = 4  # a message with as many is a row of figures, no sentence
NO_STYLE = ("tests/fuzz/corpus/", "LICENSES/", "LICENSE")

BANNED = [
    (r"anew", "again, or from scratch"),
    (r"beside", "next to, in addition to, or compared with"),
    (r"such an? one", "name the thing"),
    (r"(?<!good\s)as ever", "as before"),
    (r"in one go", "at once"),
    (r"some (?:[\d,.]+|ten|twenty|thirty|a hundred|a thousand)(?! of)", "about"),
    (r"an? (?:CPU|core) second", "per CPU second"),
    (r"(?:bytes|[KMGT]i?B|samples|images|chunks|batches|requests|reads|steps|records|rows|events|connections|commits) an? second(?! \w+ (?:is|has|was))",
     "per second"),
    (r"rooms?", "space or capacity of memory, a module of code"),
    (r"dear(?:er|est|ly)?", "expensive"),
    (r"so many(?! (?:(?:of )?\w+ )?that)", "N, or that many"),
    (r"(?:that|those) which", "name the thing"),
]
WORDS = re.compile("|".join(rf"(?P<w{i}>(?<![\w./-]){pattern}(?![\w/(]|\.\w|-\w))".replace(" ", r"\s+") for i, (pattern, _) in enumerate(BANNED)), re.I)
HINTS = ("anew", "beside", "such a", "as ever", "one go", "some", "second", "room", "dear", "so many", "which")  # one is in each of WORDS' matches
ALONE = re.compile(r"(\w+)\s+alone\b(?!-)")
# before an "alone" that is an adjective or belongs to a verb
NOT_NOUNS = set("""is are was were be been being am not it them him us me stay stays stayed stand stands run runs ran running left leave leaves
    leaving let lets works work live lives and or but passes passed pass go goes alone all quite by when if while used once than remains remain
    runs tested measured tried read reads use using far taken more lies start starts started almost in counts each never as either""".split())

SENTENCE_STARTS = ("of", "what", "whose", "those")
NO_NOUN = r"(?=\s*(?:[,.;:)]|$|(?:of|in|by|as|with|for|without|on|at|is|are|also|but|and|or|from|below|where|when|again|if|to|over|that|once)\b))"
START = re.compile(rf"[\s('`_-]*(of|what|whose|those|it|they|these|the same{NO_NOUN})\b(?!['/(=-]|\.\w|_)", re.I)
# Name of a value before its meaning, such as "0: none" or "-EIO: damaged". A code without a meaning is one, too.
KEY = r"(?:[<>=]+ ?)?-?[\d.]+\w*%?|\"[^\"]*\"|'[^']*'|[*&$-]*[\w.*-]+(?:\[[\w.]*\]|\(\)|->\w+)*|\[\w+\]|[<>=]+ \w+"
VALUE = re.compile(rf"(?:^|;|(?<=[,.:({{]))\s*(?:(?:{KEY})(?:(?:, | or | and )(?:{KEY}))*(?: \(default\))?|(?<![,.:({{])\w+ \w+):(?=\s)"
                   r"|(?:;|(?<=:)\s)\s*(?:(?:[<>=]+ ?)?-?\d+|-E[A-Z]+)(?:, -E[A-Z]+)*(?=[.;,\s)]*(?:$|;))|;(?=\s+(?:or )?else\b)"
                   r"|;\s*(?:-?\d+|-E[A-Z]+|NULL|true|false)(?:, -E[A-Z]+)*(?= (?:if|with|when|where|while|for|once)\b)")
QUOTED = re.compile(r"\"[^\"]*\"")
MARK = re.compile(r"[:;](?=\s|$)")


def starts(piece, blocks):
    """Yields the headless starts: of a comment, message or heading, and for some words of each of its sentences."""
    first = piece.kind in ("comment", "trailing", "message", "heading")
    for at, block in blocks:
        for place, sentence in prose.sentences(block):
            found = START.match(sentence)
            is_part = piece.kind == "cell" or piece.kind == "message" and sentence[0] == " "  # of a longer text
            if found and not is_part and not sentence.rstrip(" \n\"')*_").endswith("?"):
                word, is_upper = found[1].lower(), found[1][0].isupper()
                if is_upper and (first or word in SENTENCE_STARTS) or first and (piece.kind == "comment" or piece.kind == "trailing" and word != "of"):
                    yield at + place + found.start(1), f"starts with '{found[1]}': name the thing first"
            first = False


def banned(text):
    low = " ".join(text.lower().split())
    for found in WORDS.finditer(text) if any(hint in low for hint in HINTS) else ():
        is_name = text[found.end():found.end() + 1] == ":" and text[:found.start()].rstrip()[-1:] in ("", ".", ";")  # of a parameter
        if not is_name:
            yield found.start(), f"'{' '.join(found[0].split())}': {BANNED[int(found.lastgroup[1:])][1]}"
    for found in ALONE.finditer(text) if "alone" in low else ():
        if found[1].lower() not in NOT_NOUNS:
            yield found.start(), f"'{' '.join(found[0].split())}': only"


def marks(sentence):
    """Returns how many colons and semicolons a sentence has. The names of values, as in "-EIO: damaged; 0: none", have one each."""
    return len(MARK.findall(VALUE.sub(" ", QUOTED.sub("X", sentence.rstrip(";")))))


def of_sentences(piece, blocks):
    is_page = piece.kind in ("heading", "paragraph", "item", "cell")
    for at, block in blocks:
        for place, sentence in prose.sentences(block):
            n = max(prose.n_words(part) for part in (sentence.split(";") if piece.kind == "cell" else VALUE.split(sentence)))
            if n > SENTENCE_WORDS:
                yield at + place, "long", f"{n} words in a sentence: at most {SENTENCE_WORDS}"
            if n > 4 and not (is_page and piece.kind in ("heading", "cell")) and marks(sentence) > 1 and (piece.kind != "message" or sentence.count("X") < TABLE_VALUES):
                yield at + place, "marks", "a second colon or semicolon in a sentence: split it"


def of_block(piece, text):
    n = prose.n_words(text)
    most = {"paragraph": PARAGRAPH_WORDS, "item": ITEM_WORDS}.get(piece.kind, n)
    if n > most:
        yield 0, piece.kind, f"{n} words in {'an' if piece.kind == 'item' else 'a'} {piece.kind}: at most {most}"


def of_columns(text):
    """A line may be longer that is a heading, a row of a table or of a fence, or that only a link makes so."""
    fence = None
    for number, line in enumerate(text.split("\n"), 1):
        marker = prose.FENCE.match(line)
        if fence:
            fence = None if marker and line.strip().startswith(fence) else fence
        elif marker:
            fence = marker[1]
        elif len(line) > COLUMNS and not line.lstrip().startswith(("|", "#", "<")):
            if line.rstrip().rfind(" ") >= COLUMNS or not re.search(r"\]\(|://", line.rstrip().rpartition(" ")[2]):
                yield number, "columns", f"{len(line)} columns: at most {COLUMNS}"


def of_page(pieces):
    lengths = [prose.n_words(sentence) for piece in pieces if piece.kind in ("paragraph", "item")
               for _, sentence in prose.sentences(prose.plain(piece.text))]
    mean = sum(lengths) / max(1, len(lengths))
    if mean > MEAN_WORDS:
        yield 1, "mean", f"{mean:.1f} words in a mean sentence of the page: at most {MEAN_WORDS}"


def find(path, text):
    """Yields (line, rule, message) for each place of a file that a rule refuses."""
    if path.startswith(NO_STYLE):
        return
    pieces = prose.pieces(path, text)
    if not pieces:
        return
    lines = prose.Lines(text)
    is_page = path.endswith(prose.PAGES)
    for piece in pieces:
        content = prose.plain(piece.text) if is_page else re.sub(r"`[^`\n]+`", "X", piece.text)
        blocks = [(0, content)] if is_page else list(prose.blocks(content))
        found = [(at, "banned", message) for at, message in banned(content)]
        found += [(at, "start", message) for at, message in starts(piece, blocks)]
        found += of_sentences(piece, blocks)
        found += of_block(piece, content) if is_page else ()
        first = lines.line(piece.offset)
        for at, rule, message in found:
            yield first + (0 if piece.kind == "message" else content.count("\n", 0, at)), rule, message
    if is_page:
        yield from of_columns(text)
        yield from of_page(pieces)


def counts_read():
    """Returns {path: findings} of counts.txt. Other lines, as those of a merge that conflicts, are left out."""
    text = COUNTS.read_text(encoding="utf-8") if COUNTS.exists() else ""
    return {path: int(n) for n, path in re.findall(r"^(\d+) (\S+)$", text, re.M)}


def tracked():
    return subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()


def counts_write():
    """Writes what the tree has now. Returns the sum of the findings before and now; writes nothing if it rose."""
    before, now = counts_read(), {}
    for path in sorted(tracked()):
        try:
            n = len(list(find(path, (ROOT / path).read_text(encoding="utf-8"))))
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        if n:
            now[path] = n
    if not before or sum(now.values()) <= sum(before.values()):
        COUNTS.write_text("".join(f"{n} {path}\n" for path, n in now.items()), encoding="utf-8")
    return sum(before.values()), sum(now.values())


def compare(path, found, counts):
    """Returns the findings to report of a file: all if its row allows fewer, one if its row allows more."""
    allowed = counts.get(path, 0)
    if len(found) > allowed:
        return found + ([(1, "counts", f"{len(found)} findings, and tests/lint/counts.txt allows {allowed}")] if allowed else [])
    if len(found) < allowed:
        return [(1, "counts", f"only {len(found)} findings of {allowed} in tests/lint/counts.txt: run tests/lint/text_rules.py --counts")]
    return []
