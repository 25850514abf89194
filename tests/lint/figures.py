# SPDX-License-Identifier: Apache-2.0
"""Prints the size of the C code and the width of its interfaces: the figures of the table in CONTRIBUTING.md.

    figures.py [--list FIGURE]    from the root of the tree; --list: the counted items, one per line

The program requires text as clang-format leaves it: a function and its closing brace begin in the first column.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

# static, inline or a macro's: no function of another file calls it
HEAD = re.compile(r"^(?!(?:_Noreturn |VECTORISED )?static\b|typedef\b|struct \w+ \{|enum\b|union\b|extern\b|#|/|\*|\})[a-zA-Z_][\w \t*]*?[\s*](\w+)\(([^;{]*?)\)\n\{", re.M | re.S)
STATIC = re.compile(r"^static [\w \t*]*?[\s*](\w+)\(([^;{]*?)\)\n\{", re.M | re.S)
STRUCT = re.compile(r"^(\t*)struct (\w+) \{\n(.*?)^\1\}", re.M | re.S)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.S)


def tracked(*patterns):
    names = subprocess.run(["git", "ls-files", *(patterns or ("*.c", "*.h"))], capture_output=True, text=True, check=True).stdout.split()
    return [name for name in names if pathlib.Path(name).exists()]


def is_ours(name):
    return not name.startswith(("tests/", "bench/"))


def folder_of(name):
    parent = pathlib.PurePath(name).parent
    return str(parent.parent.parent if parent.parent.name == "include" else parent.parent if parent.name == "include" else parent)


def parameters(text):
    depth, n = 0, 0
    for c in text:
        depth += (c in "([") - (c in ")]")
        n += c == "," and depth == 0
    return 0 if text.strip() in ("", "void") else n + 1


def members(body):
    """Declarators of a struct, those of structs within it too, as one that uses it has to know them."""
    return sum(line.count(",") + 1 for line in re.sub(r"\([^()]*\)", "", body).splitlines() if line.rstrip().endswith(";") and "}" not in line)


def figures():
    text = {name: pathlib.Path(name).read_text(encoding="utf-8") for name in tracked()}
    bare = {name: COMMENT.sub(lambda m: "\n" * m.group().count("\n"), content) for name, content in text.items()}
    found = {"lines of C outside tests and bench": sum(t.count("\n") for name, t in text.items() if is_ours(name)),
             "lines of tests, all languages": sum(pathlib.Path(p).read_text(encoding="utf-8", errors="replace").count("\n") for p in subprocess.run(
                 ["git", "ls-files", "tests/*.c", "tests/*.h", "tests/*.py", "tests/*.sh", "tests/*.cmake", "tests/*.txt"], capture_output=True, text=True,
                 check=True).stdout.split() if pathlib.Path(p).exists())}
    structs, exported, most = collections.defaultdict(list), {}, []
    words = {name: collections.Counter(re.findall(r"\b[a-zA-Z_]\w*\b", content)) for name, content in bare.items()}
    for name, content in bare.items():
        if not is_ours(name):
            continue
        for match in STRUCT.finditer(content):
            structs[match.group(2)].append((name, members(match.group(3))))
        for match in HEAD.finditer(content) if name.endswith(".c") else ():
            exported[match.group(1)] = name
        for pattern in (HEAD, STATIC):
            most += [(parameters(match.group(2)), match.group(1), name) for match in pattern.finditer(content)]
    callers = {function: [(name, words[name][function] - (name == home)) for name in words if name.endswith(".c") and words[name][function] > (name == home)]
               for function, home in exported.items()}
    public = set().union(*(words[name] for name in words if name.startswith("client/include/")))
    python = set(re.findall(r"\bdiesel_\w+", "".join(pathlib.Path(name).read_text(encoding="utf-8") for name in tracked("client/python/*.py"))))
    in_ours = {f: [(n, k) for n, k in c if is_ours(n)] for f, c in callers.items()}
    found["structs"] = [f"{name} {file}" for name, places in sorted(structs.items()) for file, _ in places]
    found["struct names for two types"] = [f"{name}: {', '.join(file for file, _ in places)}" for name, places in sorted(structs.items()) if len(places) > 1]
    found["structs above 40 members"] = [f"{name} {n} {file}" for name, places in sorted(structs.items()) for file, n in places if n > 40]
    found["functions above 7 parameters"] = [f"{name} {n} {file}" for n, name, file in sorted(most, reverse=True)
                                           if n > 7 and name != "on_request"]  # libmicrohttpd has its signature
    found["exported functions"] = [f"{f} {home}" for f, home in sorted(exported.items())]
    found["exported functions with one caller in their own folder"] = [
        f"{f} {home} <- {in_ours[f][0][0]}" for f, home in sorted(exported.items())
        if len(in_ours[f]) == 1 and in_ours[f][0][1] == 1 and folder_of(in_ours[f][0][0]) == folder_of(home) and f not in python]  # which calls them, too
    found["exported functions that only their own file uses"] = [
        f"{f} {home}" for f, home in sorted(exported.items()) if callers[f] and {n for n, _ in callers[f]} == {home}]
    found["exported functions that only tests or benchmarks use"] = [f"{f} {home}" for f, home in sorted(exported.items()) if callers[f] and not in_ours[f] and f not in public]
    found["exported functions that nobody uses"] = [f"{f} {home}" for f, home in sorted(exported.items()) if not callers[f] and f not in public]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", metavar="FIGURE")
    wanted = parser.parse_args().list
    for name, value in figures().items():
        if wanted is None:
            print(f"{value if isinstance(value, int) else len(value):8,} {name}")
        elif wanted in name and isinstance(value, list):
            print("\n".join(value))
    return 0


if __name__ == "__main__":
    sys.exit(main())
