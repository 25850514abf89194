# SPDX-License-Identifier: Apache-2.0
"""Types that all formats share: shards, sources, options, and the error that ends an import with one line."""
from __future__ import annotations

import contextlib
import glob
import importlib
import os
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test", "validation": "validation", "valid": "validation",
          "val": "validation", "dev": "validation"}
SHARDED = re.compile(r"-\d+-of-\d+$")  # train.tfrecord-00000-of-00010


class Refused(Exception):
    """An import or export that cannot go on; the text is one line for the user."""


class Shard(NamedTuple):
    """A part of a source that one process reads from its first row to its last."""
    name: str    # unique in the source: samples' paths begin with it
    file: str
    part: int    # number of the row group in its file; 0: the whole file
    n_bytes: int  # about
    mtime: int   # of the file, in seconds since 1970


class LeftOut(NamedTuple):
    column: str
    kind: str
    why: str


class Options(NamedTuple):
    """Options that readers take."""
    columns: tuple[str, ...] = ()  # empty: all
    text: tuple[str, ...] = ()     # columns of bytes that are UTF-8 text
    arrays: tuple[str, ...] = ()   # TFRecord features that are arrays even with one value
    records: str = ""              # "example" or "bytes"; empty: the format's usual one
    label: str = ""                # column that gives the samples' classes
    split: str = ""
    files: tuple[str, ...] = ()    # columns of a table that name files
    root: str = ""                 # folder of these files; empty: the table's


class Source(Protocol):
    """An opened source; it can be pickled, because other processes read its shards."""
    shards: list[Shard]
    left_out: list[LeftOut]
    label: str             # column of the classes; empty: none
    classes: list[str]     # names of the classes by number; empty: the column's values are the names

    def rows(self, shard: Shard) -> Iterator[Any]:
        """Yields a dict of fields, or bytes, for each row."""


def package(module: str, name: str, what: str) -> Any:
    """Imports a module of a package that only some formats need."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = name if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == module.split(".")[0] else f"{name} ({error})"
        raise Refused(f"{what} needs the Python package {missing}, which {sys.executable} lacks; run: {sys.executable} -m pip install {name}") from None
    except Exception as error:  # packages that do not fit one another
        raise Refused(f"{what} needs the Python package {name}, and {sys.executable} cannot import it ({type(error).__name__}: {one_line(error)}); "
                      f"run: {sys.executable} -m pip install --upgrade {name}, which takes packages that fit it") from None


def mtime_of(stat: os.stat_result) -> int:
    """Returns the modification time in seconds since 1970, as samples can have it."""
    return max(0, int(stat.st_mtime))


def one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


@contextlib.contextmanager
def reading(file: str, *kinds: type[BaseException]) -> Iterator[None]:
    """Names the file in errors of a format's own package."""
    caught: tuple[type[BaseException], ...] = (OSError, ValueError, *kinds)
    try:
        yield
    except Refused:
        raise
    except caught as error:
        if "decrypt" in str(error):
            raise Refused(f"{file}: is encrypted; write it again without encryption") from None
        why = f"{type(error).__name__}: {one_line(error)}" if isinstance(error, (LookupError, TypeError, AttributeError)) else one_line(error)
        raise Refused(f"{file}: cannot be read ({why}); restore the file, or leave it out") from None


def files_of(paths: Iterable[str], endings: tuple[str, ...]) -> list[str]:
    """Returns the files that are named, matched by a pattern, or below a folder with one of the endings, sorted."""
    found: list[str] = []
    for path in paths:
        before = len(found)
        if os.path.isdir(path):
            found += [os.path.join(top, name) for top, folders, names in os.walk(path) for name in names
                      if SHARDED.sub("", name).endswith(endings) and not name.startswith((".", "_"))]
        elif os.path.exists(path):
            found.append(path)
        else:
            found += [name for name in glob.glob(path, recursive=True) if os.path.isfile(name)]
        if len(found) == before:
            raise Refused(f"{path}: no such file, or no file that ends in {', '.join(endings)}")
    return sorted(set(found))


def shard_names(files: list[str]) -> dict[str, str]:
    """Returns a name for each file: its path below the common folder, without its ending where that stays unique."""
    top = os.path.commonpath([os.path.dirname(os.path.abspath(file)) for file in files])
    whole = {file: os.path.relpath(os.path.abspath(file), top).replace("/", "-").replace(".", "-") for file in files}
    short = {file: os.path.relpath(os.path.abspath(file), top).split(".")[0].replace("/", "-") for file in files}
    names = short if len(set(short.values())) == len(files) else whole
    if len(set(names.values())) < len(files):
        raise Refused(f"{top}: two files would have the same name in the dataset; import them one by one with --append")
    return names


def choose_split(files: list[str], split: str, top: str) -> list[str]:
    """Returns the files of one split, by the names of their files and folders."""
    by_split: dict[str, list[str]] = {}
    for file in files:
        words = os.path.relpath(file, top).replace("/", "-").replace(".", "-").replace("_", "-").split("-")
        by_split.setdefault(next((SPLITS[word] for word in words if word in SPLITS), ""), []).append(file)
    if split:
        wanted = SPLITS.get(split, split)
        chosen = by_split.get(wanted) or [file for file in files if split in os.path.relpath(file, top).replace("/", "-").split("-")]
        if not chosen:
            raise Refused(f"{top}: no split '{split}'; it has {', '.join(filter(None, by_split)) or 'no splits'}")
        return chosen
    if len(by_split) > 1:
        raise Refused(f"{top}: expected one split, got {', '.join(sorted(filter(None, by_split)))}; choose one with --split")
    return files


def pick(names: Iterable[str], options: Options, what: str) -> list[str]:
    """Returns the columns to import. Raises Refused for a name that is not there."""
    have = list(names)
    for name in (*options.columns, *options.text, *options.arrays, *filter(None, [options.label])):
        if name not in have:
            raise Refused(f"{what}: no column '{name}'; it has {', '.join(have)}")
    twice = next((name for name in have if have.count(name) > 1), None)
    if twice is not None:
        raise Refused(f"{what}: column '{twice}' occurs twice; rename one of the columns")
    if options.columns and options.label and options.label not in options.columns:
        raise Refused(f"{what}: --columns lacks the label '{options.label}': name it there, too")
    return list(options.columns) or have


def spread(name: str, values: list[Any]) -> dict[str, Any]:
    """Returns fields for several values that no array or JSON can hold, such as images: NAME.0, NAME.1, ..."""
    return {f"{name}.{i}": value for i, value in enumerate(values)}


def text_of(data: bytes, name: str, file: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refused(f"{file}: a value of '{name}' is not UTF-8 text; leave '{name}' out of --text") from None
