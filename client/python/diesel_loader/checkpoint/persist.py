# SPDX-License-Identifier: Apache-2.0
"""The process that writes checkpoints from shared memory. It is light (no torch), has a session of its own, and goes on
when the trainer is killed until everything that it was given is on disk.

It obeys messages of JSON on a socket. Large things come in memory by descriptor.
"""
from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import mmap
import os
import platform
import re
import select
import signal
import socket
import struct
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

from . import bucket, folder, seal, uploads
from .processes import identity, is_alive
from .seal import BLOCK

MESSAGE = 64 << 10
RECORD = struct.Struct("<4Q")
SIGNS = struct.Struct("=2Q")   # at the end of the memory: a number that changes as this process gets on, and 1 while the job waits for data
ALIGNED = 4096
NICE = 10
WAITED = 4          # the longest rest while the job waits for its reads, in times that the block took to write
GLANCE_S = 0.02     # between two looks at whether it does
LATER_S = 600       # the longest wait for other ranks' files without progress
LATER_DEAD_S = 20   # the same after the trainer has died: a rank that has not begun by then never will
DEAD_S = 60         # age from which a half-written file without a lock counts as left by a killed process
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "riscv64": 30}
_FILE_PART = ".diesel-part"
_OURS = re.compile(r"__\d+_\d+\.distcp|\.metadata|manifest\.json")   # files of a checkpoint of several ranks
_LOWEST = 2 << 13 | 7   # of the best-effort class: idle could wait forever


def main(fd: int, trainer: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)   # launchers send them to all processes of a job
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write("diesel-save")
    with contextlib.suppress(OSError):
        os.nice(NICE)
    call = _IOPRIO_SET.get(platform.machine())
    if call is not None:
        ctypes.CDLL(None).syscall(call, 1, 0, _LOWEST)
    with socket.socket(fileno=fd) as end:
        Process(end, trainer).run()


class Process:
    def __init__(self, end: socket.socket, trainer: int) -> None:
        self._end = end
        self._memory: memoryview | None = None
        self._lock_fd: int | None = None
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)
        self._trainer_fd = _watch(trainer)
        self._is_dead = self._trainer_fd is None
        if self._trainer_fd is not None:
            self._poll.register(self._trainer_fd, select.POLLIN)
        self._hurry = False
        self._n_beats = 0
        self._memory_fd = -1
        self._uploads: uploads.Uploads | None = None

    def run(self) -> None:
        """Runs until the trainer has closed its end or died, and everything is written."""
        try:
            self._run()
        finally:
            if self._uploads is not None:
                self._uploads.end()

    def _run(self):
        while True:
            ready = dict(self._poll.poll())
            if self._end.fileno() in ready:
                try:
                    message, fds, _, _ = socket.recv_fds(self._end, MESSAGE, 2)
                except ConnectionResetError:
                    continue   # the trainer has died with an answer unread: its last orders come all the same
                if not message:
                    return
                self._obey(json.loads(message), fds)
            elif self._trainer_fd in ready:
                return   # a forked worker may still hold the trainer's end

    def _obey(self, order, fds):
        self._hurry = False
        try:
            if order["do"] == "lock":
                self.tell(do="lock", error=self._take_turn(order) if bucket.is_bucket(order["folder"]) else self._lock(order))
            elif order["do"] == "write":
                if fds:
                    self._map(fds.pop())
                write = self._upload if bucket.is_bucket(order["folder"]) else self._write
                self.tell(do="write", number=order["number"], **_timed(order, lambda: write(order)))
            elif order["do"] == "commit":
                with mmap.mmap(fds[0], 0) as memory:
                    metadata = memory[:order["bytes"]]
                commit = self._commit_upload if bucket.is_bucket(order["folder"]) else self._commit
                self.tell(do="commit", number=order["number"], **_timed(order, lambda: commit(order, metadata)))
            elif order["do"] == "delete":
                self.tell(do="delete", **_timed(order, lambda: self._uploads_to(order).delete(order["name"])))
            elif order["do"] == "forget":
                self._forget()   # before the trainer takes more
                self.tell(do="forget")
        finally:
            for fd in fds:
                os.close(fd)

    def beat(self) -> None:
        self._n_beats += 1
        if self._memory is not None:
            self._memory[-SIGNS.size:-SIGNS.size // 2] = self._n_beats.to_bytes(8, sys.byteorder)

    def job_waits(self) -> bool:
        """Returns True while the trainer waits for a batch of its loader."""
        return self._memory is not None and SIGNS.unpack_from(self._memory, len(self._memory) - SIGNS.size)[1] != 0

    def tell(self, **reply: Any) -> None:
        with contextlib.suppress(OSError):   # nobody is left to hear it
            self._end.send(json.dumps(reply).encode())

    def _map(self, fd):
        self._forget()
        self._memory_fd = fd
        self._memory = memoryview(mmap.mmap(fd, 0))

    def _forget(self):
        self._memory = None
        if self._memory_fd >= 0:
            os.close(self._memory_fd)
            self._memory_fd = -1

    # In a bucket

    def _uploads_to(self, order):
        if self._uploads is None or self._uploads.url != order["folder"]:
            if self._uploads is not None:
                self._uploads.end()
            self._uploads = uploads.Uploads(order, self)
        return self._uploads

    def _take_turn(self, order):
        return self._uploads_to(order).take_turn(order)

    def _upload(self, order):
        sums = []
        for _ in seal.seal(self._memory, order["bytes"], self._records(order), sums):
            self.beat()
        return self._uploads_to(order).write(order, self._memory_fd, sums)

    def _commit_upload(self, order, metadata):
        return self._uploads_to(order).commit(order, metadata)

    # The folder's lock: one job at a time, and the next one waits until everything of the job before is on disk

    def _lock(self, order):
        import fcntl
        try:
            fd = os.open(os.path.join(order["folder"], folder.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            return f"{order['folder']}/{folder.LOCK}: {error.strerror}"
        wrong = _wrong_lock(fd, order["folder"])
        if wrong:
            os.close(fd)
            return wrong
        mine = json.dumps(identity(order["trainer"])).encode()
        end = time.monotonic() + order["wait_s"]
        told = False
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass
            except OSError as error:
                self.tell(do="unlocked", why=error.strerror)   # a file system without locks
                break
            holder = _holder(fd)
            if holder and is_alive(holder):
                os.close(fd)
                return f"{order['folder']} has another job's checkpoints (pid {holder['trainer']}): give this one a folder of its own"
            if time.monotonic() > end:
                os.close(fd)
                where = f" on {holder['host']}" if holder else ""
                return f"{order['folder']} is still locked by the job before{where} after {order['wait_s']} s: end it, or use another folder"
            if not told:
                self.tell(do="waiting")
                told = True
            time.sleep(0.02)
        os.ftruncate(fd, 0)
        os.pwrite(fd, mine, 0)
        self._lock_fd = fd   # the lock lasts as long as this process
        return None

    # A checkpoint

    def _write(self, order):
        if order.get("alone"):
            self._write_alone(order)
            return
        with self._part(order) as part_fd:
            sums = self._write_file(order, part_fd)
            if order["later"]:
                _put(part_fd, _mark(order["rank"]), folder.manifest({"name": order["file"], "sums": sums}))
                os.fsync(part_fd)
                return
            about = {**order["about"], "format": folder.FORMAT, "files": {order["file"]: sums}}
            self._finish(order, part_fd, about)

    def _write_alone(self, order):
        """Writes a file without a folder of its own."""
        with _named(order["folder"]), _opened(order["folder"], os.O_RDONLY | os.O_DIRECTORY) as fd:
            _remove_dead_files(fd)
            part = f".{os.urandom(16).hex()}{_FILE_PART}"
            try:
                self._write_file({**order, "file": part}, fd)
                os.rename(part, order["name"], src_dir_fd=fd, dst_dir_fd=fd)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(part, dir_fd=fd)
                raise
            os.fsync(fd)

    @contextlib.contextmanager
    def _part(self, order):
        """Yields the folder that is being written. Removes it after an error, unless it is shared with other ranks."""
        name = _part_of(order)
        with _named(order["folder"]), _opened(order["folder"], os.O_RDONLY | os.O_DIRECTORY) as fd:
            if order["later"] and order["rank"] == 0:
                self._remove_earlier(order, fd)
            try:
                os.mkdir(name, dir_fd=fd)
            except FileExistsError:
                if not order["later"]:
                    folder.remove_in(fd, name)
                    os.mkdir(name, dir_fd=fd)
            with _opened(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, fd) as part_fd:
                try:
                    yield part_fd
                except BaseException as error:
                    with contextlib.suppress(OSError):
                        if order["later"]:
                            os.unlink(order["file"], dir_fd=part_fd)
                            _put(part_fd, _mark(order["rank"]), folder.manifest({"error": f"{type(error).__name__}: {error}"}))
                        else:
                            folder.remove_in(fd, name)
                    raise

    def _remove_earlier(self, order, fd):
        """Removes what saves that failed or were killed have left. Their ranks are no longer at it, or do no harm."""
        found = folder.earlier_attempts(fd, order["name"], order["attempt"])
        if self._lock_fd is not None:
            found = [part for part in folder.parts(order["folder"]) if part != _part_of(order)]
        for part in found:
            with contextlib.suppress(OSError):
                folder.remove_in(fd, part)

    def _records(self, order):
        table = -(-order["bytes"] // 8) * 8
        return list(RECORD.iter_unpack(self._memory[table:table + order["records"] * RECORD.size]))

    def _write_file(self, order, part_fd):
        memory, size, sums = self._memory, order["bytes"], []
        records = self._records(order)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        pace = _Pace(self, size, order["spread_s"])
        with contextlib.suppress(FileNotFoundError):
            os.unlink(order["file"], dir_fd=part_fd)   # a rank's earlier attempt
        path = f"{order['folder']}/{order['name']}" if order.get("alone") else f"{order['folder']}/{order['name']}/{order['file']}"
        with _named(path), _opened(order["file"], flags, part_fd) as fd:
            if order.get("alone"):
                _hold(fd)
            out = _Out(fd, memory, size)
            for final in seal.seal(memory, size, records, sums):
                while final - out.at >= BLOCK:
                    out.write(out.at + BLOCK)
                    self.beat()
                    pace.rest(out.at)
            out.end()
        return sums

    def _finish(self, order, part_fd, about):
        """Writes the manifest, and gives the checkpoint its name."""
        _put(part_fd, folder.MANIFEST, folder.manifest(about))
        os.fsync(part_fd)
        with _opened(order["folder"], os.O_RDONLY | os.O_DIRECTORY) as fd:
            _take_name(fd, _part_of(order), order["name"])
            for name in order["remove"]:
                with contextlib.suppress(OSError):
                    os.rename(name, f".{name}.gone", src_dir_fd=fd, dst_dir_fd=fd)
                    folder.remove_in(fd, f".{name}.gone")

    # A checkpoint of several ranks: the first rank's process ends it when all files are there

    def _commit(self, order, metadata):
        with _named(f"{order['folder']}/{order['name']}"), self._shared(order) as part_fd:
            files, error = self.others(order, lambda: _bytes_in(part_fd), lambda rank: _read_mark(part_fd, rank), 0.02)
            if error:
                raise _Failed(error)
            _put(part_fd, bucket.METADATA, metadata)
            files[bucket.METADATA] = [[len(metadata), zlib.crc32(metadata)]]
            for rank in range(order["ranks"]):
                os.unlink(_mark(rank), dir_fd=part_fd)
            self._finish(order, part_fd, {**order["about"], "format": folder.FORMAT, "files": files})

    @contextlib.contextmanager
    def _shared(self, order):
        """Yields the folder that the ranks write. Removes it after an error, because nobody else will."""
        name = _part_of(order)
        with _opened(order["folder"], os.O_RDONLY | os.O_DIRECTORY) as fd, \
                _opened(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, fd) as part_fd:
            try:
                yield part_fd
            except BaseException:
                with contextlib.suppress(OSError):
                    folder.remove_in(fd, name)
                raise

    def others(self, order: dict[str, Any], progress: Callable[[], Any], read_mark: Callable[[int], Any], pause_s: float,
               more_s: float = 0.0) -> tuple[dict[str, Any], str | None]:
        """Returns {file: checksums} of all ranks when their processes have written them, and an error. read_mark(rank): what that
        rank says of its file, or None. progress(): changes as the others get on. more_s: without progress that is no sign of harm."""
        place = f"{order['folder']}/{order['name']}"
        marks: dict[int, Any] = {}
        before, since = None, time.monotonic()
        while True:
            now = progress()
            for rank in set(range(order["ranks"])) - marks.keys():
                mark = read_mark(rank)
                if mark is not None:
                    marks[rank] = mark
                    if "error" in mark:
                        return {}, f"{place}: rank {rank} has not written its part: {mark['error']}"
            missing = sorted(set(range(order["ranks"])) - marks.keys())
            if not missing:
                return {mark["name"]: mark["sums"] for _, mark in sorted(marks.items())}, None
            if now != before:
                before, since = now, time.monotonic()
            if time.monotonic() - since > (LATER_DEAD_S if self._trainer_has_died() else LATER_S) + more_s:
                return {}, f"{place}: ranks {missing} have not written their part"
            self.beat()
            time.sleep(pause_s)

    # Pacing

    def is_hurried(self, seconds: float) -> bool:
        """Waits, and returns True if the trainer waits for this, has more to write, or has died."""
        if not self._hurry:
            self._hurry = bool(self._poll.poll(seconds * 1000))
        return self._hurry

    def _trainer_has_died(self):
        if not self._is_dead:
            poll = select.poll()
            poll.register(self._trainer_fd, select.POLLIN)
            self._is_dead = bool(poll.poll(0))
        return self._is_dead


class _Pace:
    """Rests as long as each block took to write, so that the loader's reads have the storage half of the time. Rests longer
    while the job waits for a batch. All rests end within the time to spread the file over."""

    def __init__(self, process: Process, size: int, spread_s: float) -> None:
        self._process, self._size = process, size
        self._begin = self._last = time.monotonic()
        self._end, self._busy_s = self._begin + spread_s, 0.0

    def rest(self, done):
        now = time.monotonic()
        took_s = now - self._last
        self._busy_s += took_s
        left_s = self._busy_s / done * (self._size - done)
        until = min(now + took_s, self._end - left_s)
        latest = min(now + WAITED * took_s, self._end - left_s)
        while now < until and not self._process.is_hurried(min(until - now, GLANCE_S)):
            self._process.beat()
            now = time.monotonic()
            if now >= until and self._process.job_waits():
                until = min(latest, now + GLANCE_S)
        self._last = time.monotonic()


class _Out:
    """Writes a file past the page cache, or, where the file system cannot, through it without leaving pages there."""

    FLUSHED = 32 << 20

    def __init__(self, fd, memory, size):
        self._fd, self._memory, self._size, self.at, self._flushed = fd, memory, size, 0, 0
        try:
            import fcntl
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
            self._direct = True
        except OSError:
            self._direct = False

    def write(self, until):
        while self.at < until:
            try:
                self.at += os.pwrite(self._fd, self._memory[self.at:until], self.at)
            except OSError as error:
                if not self._direct or error.errno != errno.EINVAL:
                    raise
                self._stop_direct()
            if self._direct and self.at % ALIGNED and self.at < until:
                self._stop_direct()   # less than asked was written, and no whole blocks
        if not self._direct and self.at - self._flushed >= self.FLUSHED:
            self._flush()

    def end(self):
        self.write(self.at + (self._size - self.at) // ALIGNED * ALIGNED)
        if self.at < self._size:
            if self._direct:
                self._stop_direct()
            self.write(self._size)
        self._flush()
        os.fsync(self._fd)

    def _flush(self):
        if not self._direct:
            os.fdatasync(self._fd)
            os.posix_fadvise(self._fd, self._flushed, self.at - self._flushed, os.POSIX_FADV_DONTNEED)
        self._flushed = self.at

    def _stop_direct(self):
        import fcntl
        fcntl.fcntl(self._fd, fcntl.F_SETFL, fcntl.fcntl(self._fd, fcntl.F_GETFL) & ~os.O_DIRECT)
        self._direct = False


class _Failed(Exception):
    """The text is for the user."""


def _timed(order, work):
    """Returns the answer to an order: how long the work took, and its error, which it returns or raises."""
    begin = time.monotonic()
    try:
        error = work()
    except _Failed as failure:
        error = str(failure)
    except Exception as failure:   # noqa: BLE001  nothing may end this process while a job needs it
        error = f"{order['folder']}: {type(failure).__name__}: {failure}"
    return {"seconds": time.monotonic() - begin, "error": error}


@contextlib.contextmanager
def _named(path):
    """Turns system errors into one line with the path."""
    try:
        yield
    except OSError as error:
        raise _Failed(f"{path}: {error.strerror or error}") from None


@contextlib.contextmanager
def _opened(path, flags, dir_fd=None):
    fd = os.open(path, flags | os.O_CLOEXEC, 0o666, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def _put(folder_fd, name, data):
    with _opened(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, folder_fd) as fd:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view):]
        os.fsync(fd)


def _part_of(order):
    return folder.part_of(order["name"], order.get("attempt", ""))


def _exchange(fd: int, one: str, other: str) -> bool:
    """Exchanges the names of two folders, so that both exist at any moment. False: the file system or the C library cannot."""
    import ctypes
    rename_exchange = 2
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    return call is not None and call(fd, os.fsencode(one), fd, os.fsencode(other), rename_exchange) == 0


def _take_name(fd, part, name):
    """Renames the written folder to its name, and puts both names on disk. One that has the name already, as with
    torch.distributed.checkpoint's overwriting, makes way, except for the user's files in it."""
    try:
        os.rename(part, name, src_dir_fd=fd, dst_dir_fd=fd)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if _exchange(fd, part, name):
            os.fsync(fd)
            old = part
        else:
            old = f".{name}.gone"
            folder.remove_in(fd, old)
            os.rename(name, old, src_dir_fd=fd, dst_dir_fd=fd)
            os.rename(part, name, src_dir_fd=fd, dst_dir_fd=fd)
        _move_theirs(fd, old, name)
        folder.remove_in(fd, old)
    os.fsync(fd)


def _move_theirs(fd, old, name):
    """Moves what no checkpoint has, such as a configuration, from one folder to the other."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    with _opened(old, flags, fd) as old_fd, _opened(name, flags, fd) as new_fd:
        for file in os.listdir(old_fd):
            if not _OURS.fullmatch(file):
                os.rename(file, file, src_dir_fd=old_fd, dst_dir_fd=new_fd)
        os.fsync(new_fd)


def _hold(fd):
    """Locks a file that is being written, so that others see that it is."""
    import fcntl
    with contextlib.suppress(OSError):   # a file system without locks
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_dead_files(folder_fd):
    """Removes single files that this user's killed processes have left half-written."""
    import fcntl
    for name in os.listdir(folder_fd):
        if not (name.startswith(".") and name.endswith(_FILE_PART)):
            continue
        with contextlib.suppress(OSError), _opened(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, folder_fd) as fd:
            status = os.fstat(fd)
            if status.st_uid == os.geteuid() and time.time() - status.st_mtime > DEAD_S:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)   # its process is gone
                os.unlink(name, dir_fd=folder_fd)


def _mark(rank):
    return f".rank-{rank}.json"


def _read_mark(part_fd, rank):
    """Returns what the process of that rank says of its file, or None while it is not complete."""
    try:
        with open(_mark(rank), "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, dir_fd=part_fd)) as file:
            return folder.unsealed(file.read())
    except FileNotFoundError:
        return None


def _bytes_in(part_fd):
    total = 0
    for name in os.listdir(part_fd):
        with contextlib.suppress(FileNotFoundError):
            total += os.stat(name, dir_fd=part_fd, follow_symlinks=False).st_size + 1
    return total


def _watch(pid):
    """Returns a descriptor that is readable when the parent has died, or None if it already has."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    if os.getppid() != pid:
        os.close(fd)
        return None
    return fd


def _wrong_lock(fd, path):
    """Whoever can open the file can hold its lock for ever."""
    status = os.fstat(fd)
    if status.st_mode & 0o077 == 0 and status.st_uid in (os.geteuid(), os.stat(path).st_uid):
        return None
    return f"{path}/{folder.LOCK} can be opened by another user (uid {status.st_uid}, mode {status.st_mode & 0o777:o}): remove it if no job of " \
           "that user runs here"


def _holder(fd):
    try:
        return json.loads(os.pread(fd, 1000, 0))
    except ValueError:
        return None


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
