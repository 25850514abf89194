# SPDX-License-Identifier: Apache-2.0
"""Facts about processes from /proc. A process may end while a function reads."""
import contextlib
import os
import pathlib
import re
import signal


def stat_fields(pid):
    """Returns [name, state, parent, ...] as in proc(5), or None after the end of the process."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    return [name, *rest.split()]


def process_stat(pid):
    """Returns (name, state, parent) of a process, or None after its end."""
    fields = stat_fields(pid)
    return fields and (fields[0], fields[1], int(fields[2]))


def cpu_seconds(pid):
    return sum(map(int, stat_fields(pid)[12:14])) / os.sysconf("SC_CLK_TCK")


def read_of(pid, name):
    """Returns the bytes of a file such as "environ", or none after the end of the process."""
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # the latter is the error of a process that ends between open and read
        return b""


def children(pid):
    """Returns the child processes of all threads."""
    found = []
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
            found += map(int, (task / "children").read_text().split())
    return found


def every_process():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def commands(verb, holds):
    """Returns the processes `dieselctl VERB` with a word, as bytes, for which holds() is true: other tests have some, too."""
    found = []
    for pid in every_process():
        with contextlib.suppress(OSError):
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")  # of a zombie: none
            if words[1:2] == [verb.encode()] and any(map(holds, words)):
                found.append(pid)
    return found


def parent(pid):
    return (process_stat(pid) or (None, None, None))[2]


def family(pid):
    """Returns a process and all its descendants."""
    parents, found = {child: parent(child) for child in every_process()}, [pid]
    for member in found:
        found += [child for child in parents if parents[child] == member]
    return found


def ancestors(pid):
    """Yields the parent, its parent, and so on."""
    while pid and pid > 1:
        pid = parent(pid)
        yield pid


def named(name, pids):
    """Returns those processes that have this name."""
    return [pid for pid in pids if (process_stat(pid) or ("",))[0] == name]


def is_alive(pid):
    state = process_stat(pid)
    return state is not None and state[1] not in "ZX"


def is_killed(pid):
    """Returns whether SIGKILL is pending for a process that has not ended yet."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    pending = re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$", text, re.M)
    return any(int(mask, 16) & 1 << signal.SIGKILL - 1 for mask in pending)


def files_of(pid):
    """Returns the open files of a process, without waiting for their file system."""
    links = []
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return links


def send(pid, number=signal.SIGKILL):
    """Sends a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def end(process):
    """Kills a child process and waits for it."""
    process.kill()
    process.wait()
