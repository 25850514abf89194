# SPDX-License-Identifier: Apache-2.0
"""Runs scripts in processes of their own, forked from a Python that has imported torch, which saves each 1.6 s of CPU time.

A fork runs its script as __main__ and ends as Python does. A test of the start of Python, or of `python -c`, needs a new Python instead.

The Python that forks serves all tests of a build. The first script starts it, and it ends when none has come for a while.
`forked.py run MODULE,... SCRIPT ARGUMENT...` does what `python3 SCRIPT ARGUMENT...` does: so ctest starts tests that import torch."""
import contextlib
import fcntl
import gc
import importlib
import json
import os
import pathlib
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
import zlib

BUILD = os.path.join(os.environ.get("DIESEL_BIN", "build/release/bin"), "..")
READ_ON_LOAD = ("DIESEL_ASAN_", "LD_", "OMP_")  # beginnings of variables that libraries read as they are loaded
IDLE = 30  # seconds


@contextlib.contextmanager
def _alone(path):
    with open(f"{path}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _connected(imported):
    """Returns a connection to the Python that has imported these modules."""
    loaded = [(name, value) for name, value in sorted(os.environ.items()) if name.startswith(READ_ON_LOAD)]
    folder, name = os.path.realpath(f"{BUILD}/forks"), zlib.crc32(json.dumps([sys.executable, imported, loaded]).encode())
    os.makedirs(folder, 0o700, exist_ok=True)  # who connects runs code as this user
    path, channel = f"{folder}/{name:08x}", socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _alone(path), _address(path) as address:
        try:
            channel.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            _start(path, address, imported)
            channel.connect(address)
    return channel


@contextlib.contextmanager
def _address(path):
    """Yields a name of a socket that is short enough."""
    folder, name = os.path.split(path)
    opened = os.open(folder, os.O_PATH)
    try:
        yield f"/proc/self/fd/{opened}/{name}"
    finally:
        os.close(opened)


def _start(path, address, imported):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, open(f"{path}.log", "w", encoding="utf-8") as log:
        listener.bind(address)
        listener.listen(128)
        subprocess.run(["setsid", "--fork", sys.executable, __file__, "serve", str(listener.fileno()), path, imported], cwd="/", check=True,
                       stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[listener.fileno()])


def _asked(script, arguments, descriptors, *, is_file, imported, environment=None, path):
    """Has a script forked, which waits for a word. descriptors: its first three. Returns (connection, process id)."""
    umask = os.umask(0)
    os.umask(umask)
    request = {"script": os.fspath(script), "is_file": is_file, "arguments": list(map(str, arguments)), "environment": dict(environment or os.environ),
               "folder": os.getcwd(), "umask": umask, "path": path}
    channel = _connected(imported)
    socket.send_fds(channel, [json.dumps(request).encode()], descriptors)
    return channel, int(_heard(channel))


def _heard(channel):
    message = channel.recv(32)
    if not message:
        raise RuntimeError(f"no Python forks: see {BUILD}/forks/*.log")
    return message


class Script:
    """A running script: the path of a file, or lines of code. environment: all of its variables. pid: of its process, in a group of its own.

    imported: the modules that its Python has imported. held: the script does not begin before go()."""

    def __init__(self, script, *arguments, environment=None, imported="torch", held=False):
        pipes = [os.pipe() for _ in range(2)]
        self._ends = [read for read, _ in pipes]
        theirs = [os.open(os.devnull, os.O_RDONLY), *(write for _, write in pipes)]
        try:
            self._channel, self.pid = _asked(script, arguments, theirs, is_file="\n" not in os.fspath(script), imported=imported,
                                             environment=environment, path=sys.path)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self.returncode = None
        if not held:
            self.go()

    def go(self):
        """Lets the script begin."""
        self._channel.send(b"\n")

    def communicate(self, timeout=120):
        """Returns (standard output, standard error), like subprocess.Popen."""
        out, err = self._ends
        said, deadline = {out: b"", err: b""}, time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for end in (out, err, self._channel):
                selector.register(end, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0, deadline - time.monotonic()))
                if not ready:
                    os.killpg(self.pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(f"script {self.pid}", timeout, said[out], said[err])
                for key, _ in ready:
                    if key.fileobj is self._channel:
                        self.returncode = os.waitstatus_to_exitcode(int(_heard(self._channel)))
                        selector.unregister(self._channel)
                        continue
                    data = os.read(key.fd, 1 << 16)
                    said[key.fd] += data
                    if not data:
                        selector.unregister(key.fd)
        for end in self._ends:
            os.close(end)
        self._channel.close()
        return said[out].decode(), said[err].decode()

    def end(self):
        """Kills the script's group unless communicate() has seen its end, and waits until its processes are gone."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.communicate()


def run(imported, script, *arguments):
    """Runs a script, or -c and code, in the place of this process."""
    is_file = script != "-c"
    if not is_file:
        script, *arguments = arguments
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    channel, _ = _asked(script, arguments, (0, 1, 2), is_file=is_file, imported=imported, path=path)
    channel.send(b"\n")
    status = os.waitstatus_to_exitcode(int(_heard(channel)))
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def serve(listener, path):
    """Returns in each fork, with the code of its script. Ends when no script has come for a while."""
    middles = []
    while True:
        if not select.select([listener], [], [], IDLE)[0]:
            with _alone(path):
                if select.select([listener], [], [], 0)[0]:
                    continue
                os.unlink(path)
                sys.exit()
        channel = listener.accept()[0]
        middle = os.fork()
        if middle == 0:
            listener.close()
            message, descriptors, _, _ = socket.recv_fds(channel, 1 << 20, 3)
            if not message:
                os._exit(1)
            script = os.fork()
            if script == 0:
                return become(json.loads(message), descriptors, channel)
            for descriptor in descriptors:
                os.close(descriptor)
            watch(script, channel)
        channel.close()
        middles.append(middle)
        middles[:] = [pid for pid in middles if os.waitpid(pid, os.WNOHANG)[0] == 0]


def watch(script, channel):
    """Tells how a script ends. Ends it when nobody waits for that any more."""
    poll, end = select.poll(), os.pidfd_open(script)
    poll.register(end, select.POLLIN)
    poll.register(channel, 0)  # its other end has gone
    if end not in dict(poll.poll()):
        from common.processes import family, send
        for pid in family(script):
            send(pid)
    status = os.waitpid(script, 0)[1]
    with contextlib.suppress(BrokenPipeError):
        channel.send(b"%d" % status)
    os._exit(0)


def become(request, descriptors, channel):
    """Makes this the process of a script, and returns its code when it may begin."""
    os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    script, is_file, main = request["script"], request["is_file"], vars(sys.modules["__main__"])
    sys.argv = [script if is_file else "-c", *request["arguments"]]
    first = [*([os.path.dirname(script)] if is_file else []), *request["path"]]
    sys.path[:] = [*first, *(entry for entry in sys.path[1:] if entry not in first)]
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    code = compile(pathlib.Path(script).read_text() if is_file else script, sys.argv[0], "exec")
    channel.send(b"%d" % os.getpid())
    if not channel.recv(1):  # nobody waits for it
        os._exit(1)
    channel.close()
    for name in [name for name in main if name == "__file__" or not name.startswith("__")]:
        del main[name]
    main["__doc__"] = None
    if is_file:
        main["__file__"] = script
    return code


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:])
    _, _, descriptor, address, imported = sys.argv
    for module in imported.split(","):
        with contextlib.suppress(Exception):  # the scripts say what they miss
            importlib.import_module(module)
    sys.path[1:] = [entry for entry in sys.path[1:] if entry not in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    gc.freeze()  # a fork's first collection would otherwise copy each page with an object
    exec(serve(socket.socket(fileno=int(descriptor)), address))  # noqa: S102
