# SPDX-License-Identifier: Apache-2.0
"""Objects and checkpoints in a bucket, by `dieselctl objects`, which has the credentials (ctl/objects/).

    s3://bucket/prefix/000017-step-1200/state.pt
                                        manifest.json   written last, as in folder.py
                       .job                             whose turn it is: the job that began last

A bucket has no locks. So a job looks into .job before it writes a manifest: two jobs never take turns.
"""
from __future__ import annotations

import contextlib
import errno
import json
import logging
import mmap
import os
import select
import socket
import struct
import subprocess
from collections.abc import Callable
from typing import Any

from . import folder, seal

SCHEME = "s3://"
JOB = ".job"
METADATA = ".metadata"   # of torch.distributed.checkpoint
_PUT, _REPLACE, _READ, _SIZE, _LIST, _DELETE, _STAT, _RANGE = range(8)
_KEY_BYTES = 1024
_REQUEST = struct.Struct(f"<2I2Q{_KEY_BYTES}s")
_REPLY = struct.Struct("<iI2Q512s")
_BEAT_S = 1

log = logging.getLogger("diesel_loader")


def is_bucket(place: str) -> bool:
    return place.startswith(SCHEME)


def split(url: str) -> tuple[str, str]:
    """Returns (URL of what is around an object, name). Raises ValueError if the URL has no name for an object."""
    place, _, name = url.rpartition("/")
    if not name or len(place) <= len(SCHEME):
        raise ValueError(f"{url!r} names no object: pass {SCHEME}BUCKET/NAME")
    return place, name


def memory(data: bytes = b"") -> int:
    """Returns the descriptor of memory without a name, which the caller closes."""
    fd = os.memfd_create("diesel-checkpoint", os.MFD_CLOEXEC)
    try:
        os.fchmod(fd, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view):]
    except BaseException:
        os.close(fd)
        raise
    return fd


class Bucket:
    """The objects below a URL. All methods raise OSError, whose text names the object and says what to do. beat() is called
    about once a second while the process works."""

    def __init__(self, url: str, program: str, beat: Callable[[], None] = lambda: None) -> None:
        self.url = url.rstrip("/")
        self._program, self._beat = program, beat
        self._process: subprocess.Popen[bytes] | None = None
        self._end: socket.socket | None = None

    def _start(self):
        self._end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            try:
                self._process = subprocess.Popen([self._program, "objects", self.url], stdin=other, stdout=subprocess.DEVNULL,
                                                 stderr=subprocess.DEVNULL, cwd="/", start_new_session=True)
            except OSError as error:
                self._end.close()
                self._end = None
                raise OSError(f"{self.url}: program {self._program} cannot be started, {error.strerror}: apt install diesel, or set "
                              f"DIESEL_DIESELCTL to its path. The one from pip has no S3") from None
        try:
            self._answer("")
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._end is not None:
            with contextlib.suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)   # a forked worker may have it too
            self._end.close()
        if self._process is not None:
            self._process.wait()
        self._end = self._process = None

    def __enter__(self) -> Bucket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, verb, key, n_bytes=0, fd=None, offset=0):
        """Returns (bytes, stamp)."""
        if self._end is None:
            self._start()
        name = os.fsencode(key)
        if len(name) >= _KEY_BYTES:
            raise OSError(f"{self.url}/{key}: the name is too long")
        try:
            socket.send_fds(self._end, [_REQUEST.pack(verb, 0, n_bytes, offset, name)], [] if fd is None else [fd])
        except OSError:
            pass   # the answer's absence tells
        return self._answer(key)

    def _answer(self, key):
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        while not poll.poll(_BEAT_S * 1000):
            if not self._is_stopped():
                self._beat()
        try:
            message = self._end.recv(_REPLY.size)
        except OSError:
            message = b""
        if len(message) != _REPLY.size:
            self.close()
            raise OSError(f"{self.url}/{key}".rstrip("/") + f": {self._program} ended without an answer. Is it of the same version as diesel_loader?")
        result, _, n_bytes, stamp, text = _REPLY.unpack(message)
        if result < 0:
            raise OSError(-result, text.split(b"\0")[0].decode(errors="replace"))
        return n_bytes, stamp

    def _is_stopped(self):
        with contextlib.suppress(OSError), open(f"/proc/{self._process.pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in b"Tt"
        return False

    def put(self, key: str, fd: int, n_bytes: int, replace: bool = False) -> None:
        """Writes an object from a file or memory. Refuses to replace one where the server can."""
        self._call(_REPLACE if replace else _PUT, key, n_bytes, fd)

    def put_bytes(self, key: str, data: bytes, replace: bool = False) -> None:
        fd = memory(data)
        try:
            self.put(key, fd, len(data), replace)
        finally:
            os.close(fd)

    def read(self, key: str, most: int) -> int:
        """Returns the descriptor of memory with an object of `most` bytes or fewer."""
        n_bytes, _ = self._call(_SIZE, key)
        if n_bytes > most:
            raise OSError(errno.EFBIG, f"it has {n_bytes} bytes instead of at most {most}")
        fd = memory()
        try:
            os.ftruncate(fd, n_bytes)
            self._call(_READ, key, n_bytes, fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def read_bytes(self, key: str, most: int) -> bytes | None:
        """Returns a small object, or None if there is none."""
        try:
            with open(self.read(key, most), "rb") as file:
                file.seek(0)
                return file.read()
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None
            raise

    def state(self, key: str) -> tuple[int, int]:
        """Returns (length, stamp) of an object. The stamp changes with it."""
        n_bytes, stamp = self._call(_STAT, key)
        return n_bytes, stamp

    def read_range(self, key: str, offset: int, size: int, fd: int) -> int:
        """Reads a part of an object to memory, and returns the object's stamp."""
        _, stamp = self._call(_RANGE, key, size, fd, offset)
        return stamp

    def keys(self, prefix: str = "") -> list[str]:
        return list(self.sizes(prefix))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Returns {key: bytes}."""
        fd = memory()
        try:
            n_bytes, _ = self._call(_LIST, prefix, 0, fd)
            with mmap.mmap(fd, n_bytes) if n_bytes else contextlib.nullcontext(b"") as text:
                lines = (line.partition(b" ") for line in text[:n_bytes].split(b"\0")[:-1])
                return {os.fsdecode(key): int(length) for length, _, key in lines}
        finally:
            os.close(fd)

    def delete(self, key: str) -> None:
        self._call(_DELETE, key)

    # Checkpoints

    def checkpoints(self) -> dict[str, list[str]]:
        """Returns {name: files}, the oldest first, half-written ones too."""
        found: dict[str, list[str]] = {}
        for key in self.keys():
            name, _, file = key.partition("/")
            if folder.is_name(name) and file:
                found.setdefault(name, []).append(file)
        return dict(sorted(found.items(), key=lambda item: (folder.number_of(item[0]), item[0])))

    def remove(self, name: str, files: list[str] | None = None) -> None:
        """Removes a checkpoint, the manifest first, so that half of one is never taken for a whole."""
        keys = self.keys(name + "/") if files is None else [f"{name}/{file}" for file in files]
        for key in sorted(keys, key=lambda key: not key.endswith("/" + folder.MANIFEST)):
            self.delete(key)

    def manifest(self, name: str) -> dict[str, Any]:
        """Raises folder.Damaged or Foreign, and OSError if the bucket does not answer."""
        text = self.read_bytes(f"{name}/{folder.MANIFEST}", folder.MAX_MANIFEST)
        if text is None:
            raise folder.Damaged(f"it has no {folder.MANIFEST}")
        return folder.parsed(text)

    def states_of(self, name: str) -> set[str]:
        """As folder.states_of(). Raises OSError if the bucket does not answer."""
        try:
            return set(self.manifest(name).get("states", ()))
        except (folder.Damaged, folder.Foreign):
            return set()

    def clean(self) -> int:
        """Removes what killed jobs left half-written, and names it in the log. Returns the newest number in use."""
        newest = 0
        for name, files in self.checkpoints().items():
            newest = max(newest, folder.number_of(name))
            if folder.MANIFEST not in files:
                log.warning("checkpoint %s/%s is half-written: removed", self.url, name)
                self.remove(name, files)
        return newest


class Downloaded:
    """The files of a checkpoint, each read to memory and verified when it is first needed."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        self._bucket, self._name = bucket, name
        self._sums: dict[str, list[list[int]]] = {}
        self._fds: dict[str, int] = {}

    def verify(self, one: int = 0, of: int = 1) -> dict[str, Any]:
        """As folder.verify(). Each reader gets what all of them need, so that none finds the bucket away when the others go on."""
        about = self._manifest()
        for file in [*list(self._sums)[one::of], METADATA] if METADATA in self._sums else self._sums:
            self._get(file)
        return about

    def _manifest(self):
        about = self._bucket.manifest(self._name)
        self._sums = about["files"]
        return about

    def _get(self, file):
        if file not in self._fds:
            if not self._sums:
                self._manifest()
            if file not in self._sums:
                raise folder.Damaged(f"its {folder.MANIFEST} has no {file}")
            sums = self._sums[file]
            try:
                self._fds[file] = self._bucket.read(f"{self._name}/{file}", sums[-1][0])
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EFBIG):
                    raise
                raise folder.Damaged(f"it has no {file}" if error.errno == errno.ENOENT else f"{file}: {error.strerror}") from None
            wrong = seal.compare(self._fds[file], sums)
            if wrong:
                raise folder.Damaged(f"{file}: {wrong}")
        return self._fds[file]

    def path(self, file: str) -> str:
        """Raises as verify()."""
        return f"/proc/self/fd/{self._get(file)}"

    def close(self) -> None:
        self._sums = {}
        while self._fds:
            os.close(self._fds.popitem()[1])


class Turn:
    """A job's right to write to a bucket, which the next job takes."""

    def __init__(self, bucket: Bucket, mine: dict[str, Any]) -> None:
        self._bucket, self._mine = bucket, json.dumps(mine).encode()

    def holder(self) -> Any:
        text = self._bucket.read_bytes(JOB, 4096)
        try:
            found = json.loads(text or b"null")
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def take(self) -> None:
        self._bucket.put_bytes(JOB, self._mine, replace=True)

    def is_mine(self) -> bool:
        return self._bucket.read_bytes(JOB, 4096) == self._mine

    def end(self) -> None:
        if self.is_mine():
            self._bucket.delete(JOB)
