# SPDX-License-Identifier: Apache-2.0
"""The rules of CONTRIBUTING.md that the text of a file shows. Rules about statements are ast-grep's, in rules/.

    text_rules.py FILE ...         from the root of the tree; one line for each that a rule refuses, and status 1
    text_rules.py --style FILE ... all findings of style.py, also those that counts.txt allows
    text_rules.py --counts         writes counts.txt, whose sum may not rise
"""
import pathlib
import re
import sys

import style

# Patterns that comments, documents and messages must not match, and the better words. A text that matches has one of
# the strings before the pattern in it, in lower case: a search for strings is much faster.
WORDS = [
    (("todo", "fixme", "xxx"), r"\b(TODO|FIXME|XXX)\b", "do it, or say in plain words what is missing"),
    (("hack", "kludge"), r"(?i)\b(hack|hacks|hacky|kludge)\b", "say what it does and why"),
    (("begin",), r"(?i)\bthe[\s*]+begin\b", "the start"),
    (("file", "database"), r"(?i)\b(session|trace|record)[\s*]+(file|database)s?\b", "recording (docs/reference/glossary.md)"),
    (("#",), r"(?<![\w&/#])#\d+\b(?!\s*[;}\"'])", "what the issue said, instead of its number"),
    (("recogniz", "initializ", "behavior", "neighbor", "canceled", "canceling", "labeled", "labeling", "modeled", "modeling", "summariz",
      "organiz", "prioritiz", "artifact", "fulfill"),
     r"(?i)\b(recogniz(e|es|ed|ing)|initializes|initialized|behaviors?|neighbors?|cancel(ed|ing)|label(ed|ing)|model(ed|ing)|summariz\w+|"
     r"organiz\w+|prioritiz\w+|artifacts?|fulfills?)\b(?![(_])", "British spelling"),
    (("/root/",), r"(?<![\w.~}])/root/", "a path of one machine"),
]
NO_WORDS = (".svg", ".css", ".json", "LICENSE", "LICENSES/", "packaging/debian/copyright", "tests/fuzz/corpus/", "tests/lint/")

# Third-party headers, and the folders that may include them. tests/ and bench/ may include any of these.
OWNERS = {
    "archive.h": ("ctl/archive",),
    "archive_entry.h": ("ctl/archive",),
    "bpf/": ("bpf",),
    "cmocka.h": (),
    "curl/": ("s3",),
    "curses.h": ("ui",),
    "diesel/": ("daemon/sandboxed", "examples"),
    "elf.h": ("bpf/symbols",),
    "expat.h": ("s3",),
    "fuse.h": (),
    "fuse3/": ("ctl/mount",),
    "hiredis/": ("dataset/redis",),
    "ini.h": ("daemon/run",),
    "jansson.h": ("analyzer/program", "ctl", "daemon/control", "daemon/server", "lib/include", "reports/json", "ui"),
    "jerror.h": ("image",),
    "jpeglib.h": ("image",),
    "liburing.h": ("daemon/storage",),
    "lmdb.h": (),
    "microhttpd.h": ("daemon/run",),
    "openssl/": ("daemon/cluster", "dataset/chunk", "dataset/redis", "s3"),
    "png.h": ("image",),
    "sqlite3.h": ("sqlite",),
    "sys/sdt.h": (),
    "term.h": ("ui",),
    "uthash.h": ("bpf/collect",),
    "utlist.h": ("lib",),
    "uv.h": ("daemon",),
    "webp/": ("image",),
    "wordexp.h": ("ctl",),
    "xxhash.h": ("dataset/checksum",),
    "zlib.h": ("image/decode", "reports/trace"),
    "zstd.h": ("analyzer/trace", "ctl/packing", "dataset/compress", "ui/replay"),
    "zstd_errors.h": ("dataset/compress",),
}
ANY_OWNER = ("tests", "bench")
# libc and the kernel. A header that is neither here nor above has to be given an owner.
SYSTEM = re.compile(r"(sys|linux|net|netinet|arpa)/\w+\.h|"
                    r"(assert|ctype|dirent|dlfcn|endian|errno|fcntl|fnmatch|fts|ftw|getopt|grp|inttypes|langinfo|limits|link|locale|malloc|math|"
                    r"netdb|poll|pthread|pwd|sched|semaphore|setjmp|signal|spawn|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|"
                    r"stdio|stdlib|string|strings|syslog|termios|time|unistd|wchar|wctype)\.h")

CODE = (".c", ".h", ".py", ".sh", ".cmake", ".js", ".css", ".map", "CMakeLists.txt")


def words(path, text):
    if any(path.startswith(part) or path.endswith(part) for part in NO_WORDS):
        return
    low = text.lower()
    for hints, pattern, instead in WORDS:
        for found in re.finditer(pattern, text) if any(hint in low for hint in hints) else ():
            yield text.count("\n", 0, found.start()) + 1, f"'{found[0].strip()}': {instead}"


def owner_of(header):
    return next((modules for prefix, modules in OWNERS.items() if header == prefix or prefix[-1] == "/" and header.startswith(prefix)),
                None)


def owners(path, text):
    if not path.endswith((".c", ".h")):
        return
    for found in re.finditer(r"^#include <([^>]+)>", text, re.MULTILINE):
        modules = owner_of(found[1])
        line = text.count("\n", 0, found.start()) + 1
        if modules is None and not SYSTEM.fullmatch(found[1]):
            yield line, f"<{found[1]}> has no owner in tests/lint/text_rules.py"
        elif modules is not None and not any(path.startswith(module + "/") for module in modules + ANY_OWNER):
            yield line, f"<{found[1]}> belongs to {', '.join(modules) or 'tests'} alone"


def first_lines(path, text):
    if not path.endswith(CODE):
        return
    lines = text.split("\n")
    first = 1 if lines[0].startswith("#!") else 0
    if "SPDX-License-Identifier:" not in (lines + [""])[first]:
        yield first + 1, "the first line is the SPDX line"
    if path.endswith(".h") and not re.match(r"[^\n]*\n(/\*.*?\*/\n)?\s*#pragma once\n", text, re.DOTALL):
        yield 2, "a header starts with #pragma once"


def contracts(path, text):
    """A function of a public header that can fail has a comment in its paragraph, above it or on its line."""
    if not re.search(r"/include/\w+/\w+\.h$", "/" + path):
        return
    covered = in_comment = False
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() and not in_comment:
            covered = False
        if "/*" in line and "SPDX" not in line:
            covered = True
        in_comment = line.rfind("/*") > line.rfind("*/") or in_comment and "*/" not in line
        name = re.match(r"int (\w+)\(", line)
        if name and not covered:
            yield number, f"{name[1]}() returns int and has no comment that says which"


RULES = (words, owners, first_lines, contracts)


def check(path, text):
    return [f"{path}:{line}: {rule.__name__}: {message}" for rule in RULES for line, message in rule(path, text)]


def line_of(path, found):
    return f"{path}:{found[0]}: {found[1]}: {found[2]}"


def read(path):
    """Returns None for a picture or a fuzzer's corpus, and for a file that is deleted but still in the index."""
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except (UnicodeDecodeError, FileNotFoundError):
        return None


def main():
    if sys.argv[1:] == ["--counts"]:
        before, now = style.counts_write()
        print(f"tests/lint/counts.txt: {before} findings before, {now} now{': not written, as the sum rose' * (0 < before < now)}")
        return 1 if 0 < before < now else 0
    everything = sys.argv[1:2] == ["--style"]
    counts = {} if everything else style.counts_read()
    refused = [f"tests/lint/counts.txt: no file {path}: run tests/lint/text_rules.py --counts" for path in counts if not pathlib.Path(path).exists()]
    for path in sys.argv[1 + everything:]:
        text = read(path)
        if text is not None:
            refused += [] if everything else check(path, text)
            refused += [line_of(path, found) for found in style.compare(path, list(style.find(path, text)), counts)]
    print("\n".join(refused), end="\n" if refused else "")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
