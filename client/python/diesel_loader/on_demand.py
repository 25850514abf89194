# SPDX-License-Identifier: Apache-2.0
"""Starts a dieseld of the user's own if no other can be reached. It is started when it is first needed, serves all of the
user's processes on this machine, and ends when nobody has used it for a while.

Its socket, locks and log lie in a folder that only the user can change, so that nobody else can answer in its place:
$XDG_RUNTIME_DIR/diesel, else diesel-UID in $TMPDIR or /tmp. Its socket has the version in its name: an upgraded package
gets a daemon of its own version.
"""
from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import select
import shlex
import shutil
import site
import socket as sockets
import stat
import struct
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator

from . import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Opened = TypeVar("Opened")

NODE_SOCKET = "/run/diesel/dieseld.sock"  # DIESEL_DEFAULT_SOCKET
IDLE_S = 300         # long enough that an evaluation between two runs, or the next run, still finds the cache
START_S = 60
ANSWER_S = 10
ATTEMPTS = 5         # number of daemons that are started in turn, because one may exit just when it is contacted
PAUSE_S = 0.02
MAX_SOCKET_BYTES = 107
MAX_LOG_BYTES = 1 << 20

# Variables of a service manager for this process, which are not for the daemon.
NOT_INHERITED = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "FDSTORE",
                 "STATE_DIRECTORY", "JOURNAL_STREAM", "INVOCATION_ID", "DIESEL_SOCKET")
# Prefix of the job's credentials, not passed on either: a process of the job reads buckets.
SECRETS = "AWS_"

# The shell exits at once, so that the daemon is not a child of this process. The score makes the kernel kill the
# daemon before the job if memory runs out, as in the packaged unit.
START = """\
{ read -r score </proc/self/oom_score_adj && [ "$score" -lt 100 ] && echo 100 >/proc/self/oom_score_adj; } 2>/dev/null
"$@" &
"""

log = logging.getLogger("diesel_loader")


class _Unusable(Exception):
    """The folder is unsuitable; the text has the reason."""


def connect(open_at: Callable[[str | None], Opened], refusal: OSError) -> tuple[Opened, str]:
    """Returns (open_at(socket), socket) of the user's own daemon, which is started if necessary. refusal: the error
    of open_at() for the node's daemon; raised again if the node's daemon accepts us."""
    if isinstance(refusal, PermissionError):
        try:
            _peer(NODE_SOCKET)
        except PermissionError:
            pass  # the socket is closed to this user
        else:
            try:
                raise refusal
            finally:
                del refusal  # see Session._failed()
    for left in reversed(range(ATTEMPTS)):
        socket, _ = ensure()
        try:
            return open_at(socket), socket
        except (ConnectionRefusedError, ConnectionResetError):
            if not left:
                raise
    raise AssertionError


def ensure(at: str | None = None) -> tuple[str, bool]:
    """Returns (socket of the user's own daemon, which answers; True if it had to be started). at: the only acceptable
    socket. Raises ConnectionError with one line."""
    problems = []
    for folder in [os.path.dirname(at)] if at else _folders():
        try:
            with _named(folder):
                if os.path.lexists(folder) and _answers(_socket_in(_check_private(folder))):
                    return _socket_in(_check_private(folder)), False
                program = _program()  # before the folder is made, so that a missing program leaves nothing behind
                folder = _make_private(folder)
                _serve(folder, _socket_in(folder), program)
                return _socket_in(folder), True
        except _Unusable as problem:
            problems.append(str(problem))
    place = f"cannot replace the daemon at {at}" if at else f"no dieseld at {NODE_SOCKET}, and no folder for a daemon of your own"
    raise _refused(f"{place}: {'; '.join(problems)}")


def _refused(text: str) -> OSError:
    return OSError(errno.ECONNREFUSED, text)


@contextlib.contextmanager
def _named(folder: str) -> Iterator[None]:
    """Turns system errors in a folder into _Unusable, because they concern the folder. Errors of the daemon stay as
    they are."""
    try:
        yield
    except ConnectionError:
        raise
    except OSError as error:
        raise _Unusable(f"{error.filename or folder}: {error.strerror or error}") from None


# The folder

def _folders() -> Iterator[str]:
    runtime, temporary = os.environ.get("XDG_RUNTIME_DIR", ""), os.environ.get("TMPDIR", "")
    if os.path.isabs(runtime):
        yield os.path.join(runtime, "diesel")
    name = f"diesel-{os.geteuid()}"
    if os.path.isabs(temporary) and os.path.normpath(temporary) != "/tmp":
        yield os.path.join(temporary, name)
    yield os.path.join("/tmp", name)


def _make_private(folder: str) -> str:
    parent = os.path.dirname(folder)
    _check_ancestors(os.path.realpath(parent))
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    return _check_private(folder)


def _check_private(folder: str) -> str:
    """Returns the folder with links resolved if nobody else can put anything into it or replace it, else raises _Unusable."""
    parent = os.path.realpath(os.path.dirname(folder))
    _check_ancestors(parent)
    folder = os.path.join(parent, os.path.basename(folder))
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise _Unusable(f"{folder} is no folder")
    if status.st_uid != os.geteuid():
        raise _Unusable(f"{folder} belongs to another user (uid {status.st_uid})")
    if status.st_mode & 0o077:
        raise _Unusable(f"{folder} is accessible to other users; run: chmod 700 {shlex.quote(folder)}")
    return folder


def _check_ancestors(folder: str) -> None:
    """Requires that the folders above belong to root or the user, and that others can at most add files (as in /tmp)."""
    trusted = (0, os.geteuid(), os.stat("/").st_uid)  # in a user namespace, root may have a number without a name
    while True:
        status = os.lstat(folder)
        if status.st_uid not in trusted or status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            raise _Unusable(f"others can change {folder}")
        if folder == "/":
            return
        folder = os.path.dirname(folder)


def _socket_in(folder: str) -> str:
    path = os.path.join(folder, f"dieseld-{native.VERSION}.sock")
    if len(os.fsencode(path)) > MAX_SOCKET_BYTES:
        raise _Unusable(f"{folder} is too long: the path of a socket in it would exceed the system's limit")
    return path


# The daemon

def _peer(path: str) -> int | None:
    """Returns the uid of the process that listens there, or None."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET) as end:
        end.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDTIMEO, struct.pack("ll", ANSWER_S, 0))  # also limits connect()
        try:
            end.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return None
        credentials = end.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, struct.calcsize("iII"))
    pid, uid, _ = struct.unpack("iII", credentials)
    return uid if pid or uid != 0xffffffff else None  # a signal came in between


def _answers(path: str) -> bool:
    """Returns True if a daemon accepts us. Raises ConnectionError if another user runs it."""
    uid = _peer(path)
    if uid not in (None, 0, os.geteuid()):
        raise _refused(f"{path} is served by another user (uid {uid}), who is not trusted: remove the socket")
    return uid is not None


def _serve(folder: str, path: str, program: str) -> None:
    """Returns when a daemon answers there. Starts one if necessary: one process does, and others wait for it."""
    end, n_started = time.monotonic() + START_S, 0
    with _locked(os.path.join(folder, "start.lock"), end):
        while not _answers(path):
            if time.monotonic() > end:
                raise _refused(f"dieseld at {path} does not answer ({_holder(path)}): its log is {_log_in(folder)}")
            if _is_held(path):  # by a daemon that is starting (its starter has died) or exiting
                time.sleep(PAUSE_S)
                continue
            said = _start(folder, path, program, end)
            n_started += 1
            if not _is_held(path) and (said or n_started == ATTEMPTS):
                raise _refused(f"dieseld does not start ({said or 'it exited right after it became ready'}): its log is {_log_in(folder)}")


@contextlib.contextmanager
def _locked(path: str, end: float) -> Iterator[None]:
    """Holds a lock on the file, which the kernel releases if this process dies."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise _refused(f"another process holds the lock {path}, but does not start dieseld") from None
                time.sleep(PAUSE_S)
        yield
    finally:
        os.close(fd)


def _is_held(path: str) -> bool:
    """Returns True if a running daemon owns this socket, even if it does not answer yet or any more."""
    try:
        fd = os.open(path + ".lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _holder(path: str) -> str:
    try:
        with open(path + ".lock", encoding="ascii") as file:
            return f"end it: kill {int(file.read())}"
    except (OSError, ValueError):
        return "the PID of its process is unknown"


def _log_in(folder: str) -> str:
    return os.path.join(folder, "dieseld.log")


def _start(folder: str, path: str, program: str, end: float) -> str | None:
    """Starts a daemon and waits until it is ready. Returns None, or its last message if it exited."""
    command = [program, "--socket", path, "--metrics", "off", "--exit-when-idle", str(IDLE_S), *_more_options()]
    with contextlib.ExitStack() as stack:
        fd = _open_log(_log_in(folder), program)
        stack.callback(os.close, fd)
        begin = os.lseek(fd, 0, os.SEEK_END)
        read, write = os.pipe()
        stack.callback(os.close, read)
        try:
            _run(["/bin/sh", "-c", START, "sh", *command, "--ready-fd", str(write)], fd, write)
        finally:
            os.close(write)
        poll = select.poll()
        poll.register(read, select.POLLIN)
        if not poll.poll(max(0, end - time.monotonic()) * 1000):
            raise _refused(f"dieseld did not become ready within {START_S} s: its log is {_log_in(folder)}")
        if os.read(read, 16):
            log.info("%s started on %s; its log is %s", program, path, _log_in(folder))
            return None
    return _last_words(_log_in(folder), begin)


def _run(command: list[str], log_fd: int, ready_fd: int) -> None:
    environment = {name: value for name, value in os.environ.items()
                   if name not in NOT_INHERITED and not name.startswith(SECRETS)}
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log_fd, stderr=log_fd, pass_fds=[ready_fd], cwd="/",
                       env=environment, start_new_session=True, check=False)
    except OSError as error:
        raise _refused(f"cannot start dieseld: {error.filename or command[0]}: {error.strerror}") from None


def _open_log(path: str, program: str) -> int:
    """Returns a descriptor of the log, at its end. Writing a first line shows whether the disk has space."""
    with contextlib.suppress(FileNotFoundError):
        if os.lstat(path).st_size > MAX_LOG_BYTES:
            os.replace(path, path + ".old")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, f"{time.strftime('%F %T')}: {program}, started by pid {os.getpid()}\n".encode(errors="surrogateescape"))
    except OSError as error:
        os.close(fd)
        raise OSError(error.errno, error.strerror, path) from None
    return fd


def _last_words(path: str, begin: int) -> str:
    with open(path, encoding="utf-8", errors="backslashreplace") as file:
        file.seek(begin)
        lines = [line.strip() for line in file if line.strip()]
    if not lines:
        return "it exited without a message"
    return lines[-1].removeprefix("dieseld: ").removeprefix("error: ")


def _more_options() -> list[str]:
    """Returns the user's options. They override ours, because the last option of a name counts."""
    text = os.environ.get("DIESEL_DAEMON_OPTIONS", "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise _refused(f"DIESEL_DAEMON_OPTIONS is not right ({error}): {text}") from None


# The program

def _program() -> str:
    """Returns the first dieseld of this version: only $DIESEL_DAEMON if it is set, else next to this Python or in
    PATH."""
    given = os.environ.get("DIESEL_DAEMON")
    candidates = [given] if given else list(dict.fromkeys(beside_python()))
    wrong = []
    for path in candidates:
        if not os.path.isfile(path):
            continue
        version = _version_of(path)
        if version == native.VERSION:
            return path
        wrong.append(f"{path} is {version}")
    if wrong:
        raise _refused(f"no dieseld of the right version ({', '.join(wrong)}): diesel_loader is {native.VERSION}. Install the same version of both")
    where = f"DIESEL_DAEMON is {given}, which is not a program" if given else "no dieseld program next to this Python or in PATH"
    raise _refused(f"no dieseld at {NODE_SOCKET}, and {where}: {_fix()}, or start dieseld and set DIESEL_SOCKET to its socket")


def _fix() -> str:
    """Returns the command that gives this Python a dieseld."""
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    if not os.path.isfile(os.path.join(tree, "dev")):
        return f"`{sys.executable} -m pip install diesel_tools-*.whl` with the wheel of `./dev wheel tools`"
    program = os.path.join(tree, "build/release/bin/dieseld")
    build = "" if os.path.isfile(program) else f"{shlex.quote(os.path.join(tree, 'dev'))} build && "
    return f"`{build}export DIESEL_DAEMON={shlex.quote(program)}`"


def _found_dieselctl() -> str | None:
    return next((path for path in beside_python("dieselctl") if os.path.isfile(path)), None)


def dieselctl() -> str:
    """Returns the program: $DIESEL_DIESELCTL, else the one next to this Python or in PATH."""
    path = os.environ.get("DIESEL_DIESELCTL") or _found_dieselctl() or "dieselctl"
    return os.path.abspath(path) if "/" in path else path   # its work folder is /


def find_dieselctl() -> None:
    """Tells libdiesel which program reads buckets: the one next to this Python, else the one in PATH."""
    path = _found_dieselctl()
    if path:
        native.lib.diesel_dieselctl(os.fsencode(path))


def beside_python(name: str = "dieseld") -> Iterator[str]:
    folders = [os.path.join(sys.prefix, "bin"), os.path.dirname(sys.executable or ""), sysconfig.get_path("scripts"),
               os.path.join(site.getuserbase(), "bin")]
    for folder in folders:
        if os.path.isabs(folder):
            yield os.path.join(folder, name)
    found = shutil.which(name)
    if found and os.path.isabs(found):
        yield found


def _version_of(path: str) -> str:
    """Returns the version that the program prints, or the reason that it prints none."""
    try:
        said = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=START_S,
                              check=False)
    except OSError as error:
        return f"cannot be run ({error.strerror})"
    except subprocess.TimeoutExpired:
        return "a program that did not answer --version"
    words = os.fsdecode(said.stdout).split()
    if said.returncode == 0 and len(words) == 2 and words[0] == "dieseld":
        return words[1]
    lines = os.fsdecode(said.stderr).strip().splitlines()
    return f"cannot be run ({lines[-1]})" if lines else "no dieseld"
