# SPDX-License-Identifier: Apache-2.0
"""A folder of checkpoints: names, manifests, and which one is the newest whole one.

    checkpoints/000017-step-1200/state.pt        or state.npz, or the files of torch.distributed.checkpoint
                                 manifest.json   written last: sizes and checksums of the files, and its own
    checkpoints/.000018-step-1300.part           being written, or left by a process that was killed
"""
from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import seal

if TYPE_CHECKING:
    from .place import Folder, InBucket

MANIFEST = "manifest.json"
STATE = "state.pt"
LOCK = ".lock"
FORMAT = 1
_NAME = re.compile(r"(\d{6,})-step-(\d+)")
_PART = re.compile(r"\.\d{6,}-step-\d+(\.\w+)?\.(part|gone)")
MAX_MANIFEST = 64 << 20
DAMAGED = "is damaged"

log = logging.getLogger("diesel_loader")


def name_of(number: int, step: int) -> str:
    """number: counts the checkpoints of a folder, so that a run which went back to an earlier step is newer all the same."""
    return f"{number:06d}-step-{step}"


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def number_of(name: str) -> int:
    return int(name.partition("-")[0])


def part_of(name: str, attempt: str = "") -> str:
    """attempt: tells the saves of several ranks apart, so that none takes what an earlier one has left for its own."""
    return f".{name}.{attempt}.part" if attempt else f".{name}.part"


def numbered(folder: str) -> list[tuple[int, str]]:
    """Returns (number, name) of the checkpoints in the folder, the oldest first."""
    return sorted((int(match[1]), match[0]) for match in map(_NAME.fullmatch, os.listdir(folder)) if match)


def parts(folder: str) -> list[str]:
    """Returns what killed processes have left: half-written checkpoints, and half-removed ones (.gone)."""
    return sorted(name for name in os.listdir(folder) if _PART.fullmatch(name))


def earlier_attempts(folder_fd: int, name: str, attempt: str) -> list[str]:
    """Returns what is left of other saves of that checkpoint."""
    return [part for part in os.listdir(folder_fd) if re.fullmatch(rf"\.{re.escape(name)}(\.[0-9a-f]{{32}})?\.part", part)
            and part != part_of(name, attempt)]


def remove(folder: str, name: str) -> None:
    """Removes a folder of files in it, if it is there."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remove_in(fd, name)
    finally:
        os.close(fd)


def remove_in(folder_fd: int, name: str) -> None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder_fd)
    except FileNotFoundError:
        return
    try:
        for file in os.listdir(fd):
            os.unlink(file, dir_fd=fd)
        os.rmdir(name, dir_fd=folder_fd)
    finally:
        os.close(fd)


def manifest(about: dict[str, Any]) -> bytes:
    """Returns JSON, whose last member is a checksum of all before it."""
    text = json.dumps(about, separators=(",", ":")).encode()[:-1]
    return text + f',"crc32":"{zlib.crc32(text):08x}"}}\n'.encode()


def unsealed(text: bytes) -> dict[str, Any] | None:
    """Returns what manifest() was given, or None for anything else."""
    match = re.fullmatch(rb'(.*),"crc32":"([0-9a-f]{8})"}\n', text)
    if not match or int(match[2], 16) != zlib.crc32(match[1]):
        return None
    about: dict[str, Any] = json.loads(match[1] + b"}")
    return about


class Damaged(Exception):
    """The text has the file and the reason."""


class Foreign(Exception):
    """As Damaged, for a checkpoint that may be whole: of another user, or a later version of diesel_loader."""


def _read_manifest(fd):
    try:
        with open(MANIFEST, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, dir_fd=fd)) as file:
            text = file.read(MAX_MANIFEST)
    except FileNotFoundError:
        raise Damaged(f"it has no {MANIFEST}") from None
    return parsed(text)


def parsed(text: bytes) -> dict[str, Any]:
    """Returns what a manifest says. Raises Damaged or Foreign."""
    about = unsealed(text)
    if about is None:
        raise Damaged(f"{MANIFEST} does not match its checksum")
    if about["format"] != FORMAT:
        raise Foreign(f"{MANIFEST} has format {about['format']}, and this diesel_loader reads {FORMAT}")
    return about


def verify(path: str, one: int = 0, of: int = 1) -> dict[str, Any]:
    """Returns the manifest of a whole checkpoint. Raises Damaged, Foreign or OSError. one, of: with several readers, compares the bytes of this
    one's share of the files only."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        owner = os.fstat(fd).st_uid
        if owner not in (os.geteuid(), os.stat(os.path.dirname(path)).st_uid):
            raise Foreign(f"it belongs to another user than its folder: uid {owner}")
        about = _read_manifest(fd)
        mine = list(about["files"].items())[one::of]
        with concurrent.futures.ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as threads:
            for (name, _), wrong in zip(mine, threads.map(lambda item: _compare(fd, *item), mine)):
                if wrong:
                    raise Damaged(f"{name}: {wrong}")
        return about
    finally:
        os.close(fd)


def states_of(path: str) -> set[str]:
    """Returns the names of the objects that a checkpoint has the state of, or none if it is damaged."""
    with contextlib.suppress(Damaged, Foreign, OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return set(_read_manifest(fd).get("states", ()))
        finally:
            os.close(fd)
    return set()


def _compare(folder_fd, name, sums):
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder_fd)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        return error.strerror
    try:
        return seal.compare(fd, sums)
    finally:
        os.close(fd)


def judged(verified: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any] | None, str | None]:
    """Returns the manifest that the function returns, or what is wrong if it raises Damaged or Foreign."""
    try:
        return verified(), None
    except Damaged as damage:
        return None, f"{DAMAGED} ({damage})"
    except Foreign as reason:
        return None, f"cannot be taken ({reason})"


def checked(path: str, one: int = 0, of: int = 1) -> tuple[dict[str, Any] | None, str | None]:
    """Returns the manifest of a whole checkpoint, or what is wrong with this one."""
    try:
        return judged(lambda: verify(path, one, of))
    except OSError as error:
        return None, f"cannot be read ({error.strerror})"


def pass_over(path: str, wrong: str, damaged: list[str] | None = None) -> None:
    """damaged: gets the name if the checkpoint certainly is."""
    log.warning("checkpoint %s %s: passed over", path, wrong)
    if damaged is not None and DAMAGED in wrong:
        damaged.append(os.path.basename(path))


def whole(place: Folder | InBucket, names: list[str], damaged: list[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (path, manifest) of the whole ones of these checkpoints, the last first. Names the others in the log. damaged: gets the
    names of those that are. Asks no other rank."""
    for name in reversed(names):
        about, wrong = place.check(name)
        if about is not None:
            yield f"{place.path}/{name}", about
        else:
            pass_over(f"{place.path}/{name}", str(wrong), damaged)


def newest(folder: str | os.PathLike[str]) -> str | None:
    """Returns the path or URL of the newest whole checkpoint in a folder or bucket, or None. Damaged ones are named in the log.
    torch.load() reads its file state.pt, numpy.load() a state.npz; with several ranks, torch.distributed.checkpoint.load() reads the folder."""
    from . import place
    with place.place(str(folder), is_made=False) as found:   # a Path of a bucket is refused
        names = found.names() if found.program or os.path.lexists(found.path) else []
        return next((path for path, _ in whole(found, names)), None)
