# SPDX-License-Identifier: Apache-2.0
"""Runs scripts in processes of their own, forked from a Python that has imported torch, which saves each 1.5 s of CPU time.

A fork runs its script as __main__ and ends as Python does. A test of the start of Python, or of `python -c`, needs a new Python instead."""
import atexit
import contextlib
import gc
import importlib
import json
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import time


class Server:
    """The Python that forks, with a module imported. It starts with the first script, and ends with the test."""

    def __init__(self, module):
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno()), module], pass_fds=[theirs.fileno()],
                                            start_new_session=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        atexit.register(self.end)

    def end(self):
        self.process.terminate()  # a worker of the test may still hold this end of the channel
        self.process.wait()
        self.channel.close()


_servers = {}


class Script:
    """A running script: the path of a file, or code. environment: all of its variables. pid: of its process, in a group of its own.

    imported: the module that its Python has imported. held: the script does not begin before go()."""

    def __init__(self, script, *arguments, environment=None, imported="torch_support", held=False):
        if imported not in _servers:
            _servers[imported] = Server(imported)
        request = {"script": os.fspath(script), "arguments": list(map(str, arguments)), "environment": dict(environment or os.environ)}
        pipes = [os.pipe() for _ in range(3)]
        self._ends = [read for read, _ in pipes]
        gate, self._go = os.pipe()
        theirs = [*(write for _, write in pipes), gate]
        socket.send_fds(_servers[imported].channel, [json.dumps(request).encode()], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        self.returncode, self._gone, self._told = None, False, os.fdopen(self._ends[2], "rb", 0)
        self.pid = int(self._told.readline())
        if not held:
            self.go()

    def go(self):
        """Lets the script begin."""
        self._gone = True
        with os.fdopen(self._go, "wb", 0) as gate:
            gate.write(b"\n")

    def communicate(self, timeout=120):
        """Returns (standard output, standard error), like subprocess.Popen."""
        said, deadline = {end: b"" for end in self._ends}, time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for end in self._ends:
                selector.register(end, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0, deadline - time.monotonic()))
                if not ready:
                    os.killpg(self.pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(f"script {self.pid}", timeout, said[self._ends[0]], said[self._ends[1]])
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    said[key.fd] += data
                    if not data:
                        selector.unregister(key.fd)
        out, err, told = said.values()
        os.close(self._ends[0])
        os.close(self._ends[1])
        self._told.close()
        self.returncode = os.waitstatus_to_exitcode(int(told))
        return out.decode(), err.decode()

    def end(self):
        """Kills the script's group unless communicate() has seen its end, and waits until its processes are gone."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.communicate()
        if not self._gone:
            os.close(self._go)


def serve(channel):
    """Returns in each fork, with its request. Ends with the test."""
    middles = []
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 1 << 20, 4)
        if not message:
            sys.exit()
        middle = os.fork()
        if middle == 0:
            channel.close()
            script = os.fork()
            if script == 0:
                return become(json.loads(message), *descriptors)
            for descriptor in (*descriptors[:2], descriptors[3]):
                os.close(descriptor)
            status = os.waitpid(script, 0)[1]
            with contextlib.suppress(BrokenPipeError):  # nobody waits for it
                os.write(descriptors[2], b"%d" % status)
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
        middles.append(middle)
        middles[:] = [pid for pid in middles if os.waitpid(pid, os.WNOHANG)[0] == 0]


def become(request, out, err, told, gate):
    """Makes this the process of a script, and returns its code when it may begin."""
    os.setpgrp()
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.write(told, b"%d\n" % os.getpid())
    for descriptor in (out, err, told):
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    script, is_file, main = request["script"], "\n" not in request["script"], vars(sys.modules["__main__"])
    sys.argv = [script if is_file else "-c", *request["arguments"]]
    code = compile(pathlib.Path(script).read_text() if is_file else script, sys.argv[0], "exec")
    if is_file:
        sys.path.insert(0, os.path.dirname(script))
    if not os.read(gate, 1):  # nobody waits for it
        os._exit(1)
    os.close(gate)
    for name in [name for name in main if name == "__file__" or not name.startswith("__")]:
        del main[name]
    if is_file:
        main["__file__"] = script
    return code


if __name__ == "__main__":
    importlib.import_module(sys.argv[2])
    gc.freeze()  # a fork's first collection would otherwise copy each page with an object
    exec(serve(socket.socket(fileno=int(sys.argv[1]))))  # noqa: S102
