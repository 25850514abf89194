# SPDX-License-Identifier: Apache-2.0
"""Finds the samples of files and objects that are read where they are: zip archives, LMDB, Megatron's token files, MDS and LitData.

`dieselctl index` calls main() with its name and its arguments, which writes a row for each sample to `dieselctl index --rows -`."""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import zipfile

from . import lmdb_pages
from .objects import SCHEME, Object, Wrong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import IO, Any, NoReturn, Union

    Place = Union[pathlib.Path, Object]  # a file or folder, or an object or prefix
    Columns = tuple[tuple[str, str, Union[int, None]], ...]  # name, encoding, length of values or None
    Row = tuple[int, int, bytes]  # offset and length in bytes, path of the sample

LOCAL_HEADER, LOCAL_HEADER_BYTES = b"PK\3\4", 30
MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
MEGATRON_ITEM_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}  # by the code of the type of tokens
LMDB_FILE = "data.mdb"
INDEX = "index.json"  # of MDS and LitData
FILES = (".zip", ".bin", ".idx", ".mdb")


def _opened(path: Place) -> IO[bytes]:
    return path.open() if isinstance(path, Object) else open(path, "rb")


def _read_many(path: Place, ranges: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yields the bytes of ascending ranges (offset, length), fewer at the end of the file."""
    if isinstance(path, Object):
        yield from path.read_many(ranges)
        return
    with open(path, "rb") as file:
        for offset, size in ranges:
            file.seek(offset)
            yield file.read(size)


def _state_of(source: Place) -> tuple[int, ...]:
    """Returns (length, stamp, ...) of the source."""
    if isinstance(source, Object):
        return source.state()
    found = source.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def zip_rows(path: Place) -> Iterator[Row]:
    """Yields the members of an archive. Their folders are classes."""
    size = _state_of(path)[0]
    with _opened(path) as file:
        try:
            archive = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise Wrong(f"{path} is no zip archive, or damaged: {error}") from None
        members = sorted((info for info in archive.infolist() if not info.is_dir()), key=lambda info: info.header_offset)
        for info in members:
            if info.flag_bits & 1:
                raise Wrong(f"{path}: {info.filename!r} is encrypted: unzip the archive, and pack the folder")
            if info.compress_type != zipfile.ZIP_STORED:
                raise Wrong(f"{path}: {info.filename!r} is compressed, so it cannot be read in place: unzip the archive and pack the folder, "
                            "or make it with `zip -0`")
            if info.header_offset < 0:
                raise Wrong(f"{path} is damaged: {info.filename!r} has no header at byte {info.header_offset}")
        headers = _read_many(path, ((info.header_offset, LOCAL_HEADER_BYTES) for info in members))
        for info, header in zip(members, headers):
            if len(header) < LOCAL_HEADER_BYTES or header[:4] != LOCAL_HEADER:
                raise Wrong(f"{path} is damaged: {info.filename!r} has no header at byte {info.header_offset}")
            offset = info.header_offset + LOCAL_HEADER_BYTES + sum(struct.unpack_from("<HH", header, 26))
            if offset + info.file_size > size:
                raise Wrong(f"{path} is cut off: {info.filename!r} ends behind its end")
            yield offset, info.file_size, os.fsencode(info.filename)


def _name_of(key: bytes) -> bytes:
    """Returns the key if it can be a sample's path, else its hexadecimal digits."""
    parts = key.split(b"/")
    good = key and b"\0" not in key and not any(part in (b"", b".", b"..") for part in parts)
    return key if good else b"0x" + key.hex().encode()


def _map_of(file: pathlib.Path) -> range:
    """Returns the addresses at which this process has mapped the file."""
    inode = file.stat().st_ino
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if int(words[4]) == inode and words[5:] and pathlib.Path(words[-1]).name == file.name and int(words[2], 16) == 0:
            begin, end = (int(number, 16) for number in words[0].split("-"))
            return range(begin, end)
    raise Wrong(f"{file}: lmdb has not mapped the file, so its samples cannot be located")


def lmdb_rows(path: Place, name: str | None = None) -> Iterator[Row]:
    """Yields the values of a database, in the order in which they lie in the file. Their keys are their paths; a key of several
    values gets numbers."""
    try:
        import lmdb
        import numpy
    except ImportError as error:
        raise Wrong(f"{path}: this Python lacks {error.name}: run `{sys.executable} -m pip install lmdb numpy`") from None
    file = source_of(path)
    size = _state_of(file)[0]
    if not size:
        raise Wrong(f"{file} is empty")
    with lmdb_pages.copied(file, name) if isinstance(file, Object) else contextlib.nullcontext(str(file)) as local:
        try:
            with lmdb.open(local, subdir=False, readonly=True, lock=False, max_dbs=1) as env:
                wanted = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
                if wanted > size:
                    raise Wrong(f"{file} is cut off: it has {size} bytes of {wanted}")
                if env.info()["map_size"] < size:
                    env.set_mapsize(size)
                database = env.open_db(name.encode(), create=False) if name else env.open_db()
                with env.begin(db=database, buffers=True) as transaction:
                    rows = list(_values_of(transaction, numpy, pathlib.Path(local), file, size))
                if not name and rows and len(rows) <= 64 and _are_databases(env, rows, lmdb):
                    names = ", ".join(row[2].decode(errors="replace") for row in rows)
                    raise Wrong(f"{path} holds databases, of which --db chooses one: {names}")
        except lmdb.Error as error:
            text = str(error).replace(local, str(file))
            raise Wrong(text if text.startswith(str(path)) else f"{path}: {text}") from None
    yield from sorted(rows)


def _values_of(transaction, numpy, local: pathlib.Path, file: Place, size: int) -> Iterator[Row]:
    """Yields the places of values, without reading them: the mapped file of an object has only the pages of the keys."""
    begin = None
    seen: bytes | None = None
    n_same = 0
    for key, value in transaction.cursor():
        key = bytes(key)
        if not len(value):
            raise Wrong(f"{file}: the value of {key!r} is empty")
        address = numpy.frombuffer(value, numpy.uint8).__array_interface__["data"][0]
        begin = begin or _map_of(local)
        if address not in begin:
            raise Wrong(f"{file}: the value of {key!r} does not lie in {file}")
        if address - begin.start + len(value) > size:
            raise Wrong(f"{file} is cut off: the value of {key!r} ends behind its end. Restore the file")
        n_same = n_same + 1 if key == seen else 0
        seen = key
        yield address - begin.start, len(value), _name_of(key) + (b".%d" % n_same if n_same else b"")


def _are_databases(env, rows: list[Row], lmdb) -> bool:
    """Whether all values of the unnamed database are those by which LMDB finds databases of a name."""
    def is_database(key: bytes) -> bool:
        try:
            with env.begin() as transaction:
                transaction.stat(env.open_db(key, txn=transaction, create=False))
        except lmdb.Error:
            return False
        return True
    return all(row[1] == 48 for row in rows) and is_database(rows[0][2])


def megatron_rows(path: Place, tokens: int | None) -> Iterator[Row]:
    """Yields the documents of a token file or, with `tokens`, windows of N tokens and the next one, as they are trained on. The last
    tokens that fill no window are left out."""
    index = path.with_suffix(".idx").read_bytes()
    if index[:len(MEGATRON_MAGIC)] != MEGATRON_MAGIC or len(index) < 34:
        raise Wrong(f"{path.with_suffix('.idx')} is no index of Megatron")
    version, kind, n = struct.unpack_from("<QBQ", index, len(MEGATRON_MAGIC))
    item = MEGATRON_ITEM_BYTES.get(kind)
    if version != 1 or item is None or len(index) < 34 + 12 * n:
        raise Wrong(f"{path.with_suffix('.idx')} is damaged, or of a newer version")
    size = _state_of(path)[0]
    if tokens:
        if size // item <= tokens:
            raise Wrong(f"{path} has {size // item} tokens, and a sample of --tokens {tokens} is {tokens + 1}: choose a smaller number")
        for i in range((size // item - 1) // tokens):
            yield i * tokens * item, (tokens + 1) * item, b"%s/%09d" % (os.fsencode(path.stem), i)
        return
    lengths, offsets = struct.unpack_from(f"<{n}i", index, 34), struct.unpack_from(f"<{n}q", index, 34 + 4 * n)
    for i, (offset, length) in enumerate(zip(offsets, lengths)):
        if offset < 0 or length < 0 or offset + length * item > size:
            raise Wrong(f"{path} is shorter than its index states, at sequence {i}")
        yield offset, length * item, b"%s/%09d" % (os.fsencode(path.stem), i)


def _import(kind: str, folder: Place) -> str:
    """Returns the advice to import shards, which no import reads in a bucket."""
    copy = "copy them to FOLDER, and " if isinstance(folder, Object) else ""
    return f"{copy}run `dieselctl pack {kind}:{'FOLDER' if copy else folder} DATASET`"


def _mds_columns(index: dict[str, Any]) -> Columns:
    found = None
    for shard in index["shards"]:
        if shard["format"] != "mds":
            raise ValueError(f"its shards are of format {shard['format']}, not mds")
        parts = shard["column_names"], shard["column_encodings"], shard["column_sizes"]
        if len(set(map(len, parts))) > 1:
            raise ValueError("its columns have no encoding or size for each name")
        columns = tuple(zip(*parts))
        if found not in (None, columns):
            raise ValueError("its shards have different columns")
        found = columns
    if found is None:
        raise ValueError("it lists no shards")
    return found


def _litdata_columns(index: dict[str, Any]) -> Columns:
    config = index["config"]
    if (config.get("item_loader") or "PyTreeLoader") != "PyTreeLoader":
        raise ValueError(f"its chunks are for {config['item_loader']}, such as tokens, and have no samples")
    names: list[str] = []

    def walk(spec: dict[str, Any], path: tuple[str, ...]) -> None:
        kind, parts = spec["type"], spec["children_spec"]
        if kind is None:
            names.append(".".join(path) or "data")
            return
        if kind not in ("builtins.dict", "builtins.list", "builtins.tuple", "collections.OrderedDict"):
            raise ValueError(f"its samples have a {kind}")
        keys = json.loads(spec["context"]) if kind.endswith("ict") else range(len(parts))
        for key, part in zip(keys, parts):
            walk(part, (*path, str(key)))
    walk(json.loads(config["data_spec"])[1], ())
    if len(names) != len(config["data_format"]):
        raise ValueError(f"its samples have {len(names)} values, but {len(config['data_format'])} encodings")
    return tuple((name, encoding, None) for name, encoding in zip(names, config["data_format"]))


def _checked(columns: Columns) -> Columns:
    """Raises ValueError for columns that no writer makes. `dieselctl index --rows` checks names and lengths."""
    for name, encoding, size in columns:
        if not (isinstance(name, str) and isinstance(encoding, str) and (size is None or isinstance(size, int) and 0 <= size < 1 << 31)):
            raise ValueError("its columns have names, encodings or sizes that they cannot have")
    return columns


def shards_of(folder: Place) -> tuple[str, Columns, list[tuple[Place, int]]]:
    """Returns (layout, columns, (file, number of samples) of each) for the shards of MDS, or the chunks of LitData."""
    index: dict[str, Any] = {}
    try:
        index = json.loads((folder / INDEX).read_bytes())
        if "shards" in index:
            kind, found = "mds", [(shard["raw_data"]["basename"], shard["samples"], shard.get("compression")) for shard in index["shards"]]
        else:
            kind, form = "litdata", index["config"]
            found = [(chunk["filename"], chunk["chunk_size"], form.get("compression") or form.get("encryption")) for chunk in index["chunks"]]
        columns = _checked((_mds_columns if kind == "mds" else _litdata_columns)(index))
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Wrong(f"{folder / INDEX} is no index of MDS shards or LitData chunks ({type(error).__name__}: {error})") from None
    except ValueError as error:
        raise Wrong(f"{folder / INDEX}: {error}: {_import(kind, folder)}" if "shards" in index or "chunks" in index
                    else f"{folder / INDEX} is no index of MDS shards or LitData chunks") from None
    shards = []
    for name, n, compression in found:
        path = folder / name
        if ".." in pathlib.PurePath(name).parts or os.path.isabs(name):
            raise Wrong(f"{folder / INDEX} names {name}, which is outside of {folder}")
        if compression and (kind == "litdata" or not path.exists()):  # MDS keeps both where a job has decompressed the shards
            raise Wrong(f"{folder}: its shards are compressed or encrypted ({compression}), so samples cannot be read in place: {_import(kind, folder)}")
        shards.append((path, n))
    return kind, columns, shards


def shard_rows(path: Place, n: int) -> Iterator[Row]:
    """Yields the samples between the offsets at the beginning of a shard of MDS, or a chunk of LitData."""
    size = _state_of(path)[0]
    head = next(_read_many(path, [(0, 8 + 4 * n)]))
    if len(head) < 8 + 4 * n or struct.unpack_from("<I", head)[0] != n:
        raise Wrong(f"{path} does not have the {n} samples that {INDEX} lists: restore the file")
    ends = struct.unpack_from(f"<{n + 1}I", head, 4)
    if ends[0] < len(head) or ends[-1] != size or any(a > b for a, b in zip(ends, ends[1:])):
        raise Wrong(f"{path} is damaged or cut off: its samples do not end with it. Restore the file")
    stem = os.fsencode(path.stem)
    for i, (begin, end) in enumerate(zip(ends, ends[1:])):
        yield begin, end - begin, b"%s/%08d" % (stem, i)


def rows_of(path: Place, arguments: argparse.Namespace) -> Iterator[Row]:
    if path.suffix == ".zip":
        return zip_rows(path)
    if path.suffix in (".bin", ".idx") and path.with_suffix(".idx").exists():
        return megatron_rows(path.with_suffix(".bin"), arguments.tokens)
    if (path / LMDB_FILE).exists() or path.suffix in (".mdb", ".lmdb"):
        return lmdb_rows(path, arguments.db)
    raise Wrong(f"{path} is none of a zip archive, an LMDB database (with {LMDB_FILE}), Megatron's .bin next to an .idx, and a folder of MDS or "
                f"LitData (with {INDEX})")


def source_of(path: Place) -> Place:
    """Returns the file that has the samples."""
    if not (isinstance(path, Object) and path.suffix in FILES) and (path / LMDB_FILE).exists():
        path /= LMDB_FILE
    if path.suffix == ".idx":
        path = path.with_suffix(".bin")
    return path if isinstance(path, Object) else path.resolve()


def escaped(name: bytes) -> bytes:
    return name.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n")


def _has_index(path: Place) -> bool:
    return not (isinstance(path, Object) and path.suffix in FILES) and (path / INDEX).exists()


def _sources(path: Place, indexed: list[tuple[Place, int]] | None, arguments: argparse.Namespace) -> Iterator[tuple[Place, Iterator[Row]]]:
    if indexed is None:
        yield source_of(path), rows_of(path, arguments)
    for shard, n in indexed or ():
        yield (shard if isinstance(shard, Object) else shard.resolve()), shard_rows(shard, n)


def _write_columns(to, found: list[tuple[str, Columns, list[tuple[Place, int]]] | None], files: list[Place]) -> None:
    """Writes the columns, which must be the same for all samples of a dataset."""
    first = found[0]
    for path, one in zip(files, found):
        if (one and one[:2]) != (first and first[:2]):
            raise Wrong(f"{path} has other columns or encodings than {files[0]}: index each into a dataset of its own")
    if first is None:
        return
    for name, encoding, size in first[1]:
        words = (escaped(word.encode("utf-8", "surrogatepass")) for word in (first[0], name, encoding))
        to.write(b"%s\t%s\n" % (b"\t".join(words), b"" if size is None else b"%d" % size))


def write_rows(to, arguments: argparse.Namespace) -> None:
    found = [shards_of(path) if _has_index(path) else None for path in arguments.files]
    _write_columns(to, found, arguments.files)
    sources = (source for path, one in zip(arguments.files, found) for source in _sources(path, one and one[2], arguments))
    for source, rows in sources:
        before = _state_of(source)
        stamp = before[1] % (1 << 64)  # unsigned in C; negative before 1970
        offset = None
        for offset, length, name in rows:
            to.write(b"%s\t%d\t%d\t%s\t%d\n" % (escaped(os.fsencode(str(source))), offset, length, escaped(name), stamp))
        if offset is None:
            raise Wrong(f"{source} has no samples")
        if _state_of(source) != before:  # of an object, each read looks
            raise Wrong(f"{source} changed while it was being indexed: run the command again")


def _status_of(arguments: argparse.Namespace, rows) -> int:
    """Writes the rows in a process of its own, because reading a mapped file that is cut off kills it. Returns its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            write_rows(rows, arguments)
            rows.flush()
            status = 0
        except (Wrong, OSError) as error:
            print(f"dieselctl index: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            status = 130
        except BaseException:  # noqa: BLE001
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except KeyboardInterrupt:  # which the child had, too
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
        raise
    if status < 0:
        names = ", ".join(map(str, arguments.files))
        print(f"dieselctl index: {names}: damaged, as reading it ended with {signal.Signals(-status).name}", file=sys.stderr)
    return status if status >= 0 else 1


def _wait(command: list[str], rows) -> int:
    """Runs a command that says itself that it was interrupted."""
    with subprocess.Popen(command, stdin=rows) as running:
        while True:
            try:
                return running.wait()
            except KeyboardInterrupt:
                continue


def place_of(name: str) -> Place:
    return Object(name) if name.startswith(SCHEME) else pathlib.Path(name)


def main(words: list[str] | None = None) -> NoReturn:
    parser = argparse.ArgumentParser(prog="dieselctl index", allow_abbrev=False)
    parser.add_argument("files", nargs="+", type=place_of)
    parser.add_argument("--output", "-o", required=True)
    parser.add_argument("--tokens", type=int, help="token files: length of the windows that are samples, in tokens")
    parser.add_argument("--db", help="LMDB: the name of the database in the file")
    passed_on = {"--chunk-size": "-c", "--jobs": "-j", "--wait": None}
    for name, letter in passed_on.items():
        parser.add_argument(*filter(None, (name, letter)))
    arguments, others = parser.parse_known_args((words or sys.argv)[1:])
    for name in passed_on:
        value = getattr(arguments, name.strip("-").replace("-", "_"))
        others += [] if value is None else [name, value]
    program = os.environ.get("DIESEL_DIESELCTL", "dieselctl")
    command = [program, "index", "--rows", "-", "--output", arguments.output, *others]
    with tempfile.TemporaryFile() as rows:  # no pipe, whose end would look like the end of the rows if this process died
        if status := _status_of(arguments, rows):
            if status == 130:
                raise KeyboardInterrupt
            sys.exit(status)
        rows.seek(0)
        sys.exit(_wait(command, rows))

