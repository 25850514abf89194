# SPDX-License-Identifier: Apache-2.0
"""Checks the includes between folders against the CMake lists. Each build runs this program.

A file includes a header of another folder by its path from the root, or, where it is public, from the include directory that it is in.
The library that the file is part of names that header's library: in USES if one of its own headers includes it, else in PRIVATE_USES.
Besides these it names only the libraries that have the functions of a public header that it includes. So a list says what a folder stands on.
"""
import argparse
import collections
import pathlib
import re
import sys

CALL = re.compile(r"^\s*(diesel_library|diesel_folder|diesel_program|add_library)\((\w[\w-]*)([^)]*)\)", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)
FOLDERS = ("lib", "sqlite", "s3", "image", "dataset", "bpf", "analyzer", "reports", "client", "daemon", "ctl", "ui")


class Library:
    def __init__(self, name, folder, rest, kind):
        self.name = name
        self.is_ours = kind != "add_library"  # its list has USES
        self.folder = folder
        self.declared = {"USES": set(), "PRIVATE_USES": set()}
        self.includes = {"USES": {}, "PRIVATE_USES": {}}  # library: one file that includes of it
        self.public = set()  # the headers of include directories that it includes
        self.made = set()  # public headers whose functions it has: its sources include them first
        self.sources = set()
        into = None
        for word in re.sub(r"#.*", "", rest).split():
            if word in ("SOURCES", "ROOMS", "USES", "PRIVATE_USES"):
                into = word
            elif into == "SOURCES" and word.endswith(".c"):
                self.sources.add(folder / word)
            elif into in self.declared and word.startswith("diesel_") and word != "diesel_bpf_recorder":  # its headers are made
                self.declared[into].add(word)


def libraries_read(root):
    """The libraries of the CMake lists: {folder: [Library]}, and those of include directories {folder: name}."""
    libraries = collections.defaultdict(list)
    public = {}
    for top in FOLDERS:
        for lists in (root / top).rglob("CMakeLists.txt"):
            folder = lists.parent.relative_to(root)
            for kind, name, rest in CALL.findall(lists.read_text(encoding="utf-8")):
                if kind == "diesel_folder":
                    public[folder / "include"] = name + "_public"
                    libraries[folder / "include"].append(Library(name + "_public", folder, rest, kind))
                    continue
                if kind == "add_library" and "INTERFACE" not in rest:
                    continue
                if name not in (each.name for each in libraries[folder]):  # else: a fallback, without what an option leaves out
                    libraries[folder].append(Library(name, folder, rest, kind))
                public.setdefault(folder / "include", name)
    return libraries, public


def owner(path, libraries, public):
    """The name of the library that a header is of."""
    for folder in path.parents:
        if folder in public:
            return public[folder]
        if folder in libraries:
            return libraries[folder][0].name
    return None


def resolve(root, public, path, name):
    """The header that an include means; None: it is made by the build, or not ours."""
    if (root / path.parent / name).is_file():
        return path.parent / name
    if (root / name).is_file():
        return pathlib.Path(name)
    return next((folder / name for folder in public if (root / folder / name).is_file()), None)


def look(root):
    libraries, public = libraries_read(root)
    faults = []
    of_source = {source: each for group in libraries.values() for each in group for source in each.sources}
    for top in FOLDERS:
        for path in sorted(path.relative_to(root) for path in (root / top).rglob("*.[ch]")):
            home = next((folder for folder in path.parents if folder in libraries), None)
            if home is None or path.name.endswith(".bpf.c") or home == pathlib.Path("bpf/kernel"):
                continue
            library = of_source.get(path, libraries[home][0])
            kind = "USES" if path.suffix == ".h" else "PRIVATE_USES"
            for place, name in enumerate(INCLUDE.findall((root / path).read_text(encoding="utf-8"))):
                header = resolve(root, public, path, name)
                if header is None:
                    if "/" in name:
                        faults.append(f"{path}: there is no {name} (headers of other folders have their path from the root)")
                    continue
                other = owner(header, libraries, public)
                if public.get(header.parent.parent) == other:
                    library.public.add(header)
                    if place == 0 and path.suffix == ".c" and header.parts[0] == path.parts[0]:
                        library.made.add(header)
                elif header.parts[0] != path.parts[0]:
                    faults.append(f"{path}: {name} is no public header of {header.parts[0]}/")
                if other and other not in (library.name, "diesel_base"):
                    library.includes[kind].setdefault(other, f"{path} includes {name}")
    every = [each for group in libraries.values() for each in group]
    for each in sorted((each for each in every if each.is_ours), key=lambda each: str(each.folder)):
        faults += compare(each, {other.name for other in every if other.made & each.public})
    return faults


def compare(library, linked):
    """Returns the faults of a library's list: names that it lacks, and names that it must not have. linked: libraries with functions that it may call."""
    lists = library.folder / "CMakeLists.txt"
    program = not library.name.startswith("diesel_")
    wanted = {"USES": dict(library.includes["USES"])}
    wanted["PRIVATE_USES"] = {name: file for name, file in library.includes["PRIVATE_USES"].items() if name not in wanted["USES"]}
    if program:
        wanted = {"USES": {**wanted["PRIVATE_USES"], **wanted["USES"]}, "PRIVATE_USES": {}}
    faults = []
    for kind, names in wanted.items():
        declared = {whole(name): name for name in library.declared[kind]}
        for name, file in sorted(names.items()):
            if whole(name) not in declared:
                faults.append(f"{lists}: {library.name} needs {kind} {name}, since {file}")
        for name, written in sorted(declared.items()):
            if name not in map(whole, names) and name not in linked:
                faults.append(f"{lists}: {library.name} has {kind} {written}, of which no {'header' if kind == 'USES' else 'source'} includes anything")
    return faults


def whole(name):
    return name.removesuffix("_public")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    faults = look(pathlib.Path(__file__).resolve().parents[2])
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
