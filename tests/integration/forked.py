# SPDX-License-Identifier: Apache-2.0
"""Runs scripts in processes of their own, forked from a Python that has imported torch and the loader, which saves each the import.

A fork runs its script as __main__ and ends as Python does. A test of the start of Python, or of `python -c`, needs a new Python instead."""
import atexit
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
    """The Python that forks. It starts with the first script, and ends with the test."""

    def __init__(self):
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                                            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        atexit.register(self.end)

    def end(self):
        self.process.terminate()  # a worker of the test may still hold this end of the channel
        self.process.wait()
        self.channel.close()


_servers = []


class Script:
    """A running script: the path of a file, or code. environment: all of its variables. pid: of its process, in a session of its own."""

    def __init__(self, script, *arguments, environment=None):
        if not _servers:
            _servers.append(Server())
        request = {"script": os.fspath(script), "arguments": list(map(str, arguments)), "environment": dict(environment or os.environ)}
        pipes = [os.pipe() for _ in range(3)]
        self._ends = [read for read, _ in pipes]
        socket.send_fds(_servers[0].channel, [json.dumps(request).encode()], [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        self.returncode, self._told = None, os.fdopen(self._ends[2], "rb", 0)
        self.pid = int(self._told.readline())

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


def serve(channel):
    """Returns in each fork, with its request. Ends with the test."""
    middles = []
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 1 << 20, 3)
        if not message:
            sys.exit()
        middle = os.fork()
        if middle == 0:
            channel.close()
            script = os.fork()
            if script == 0:
                return become(json.loads(message), *descriptors)
            os.close(descriptors[0])
            os.close(descriptors[1])
            os.write(descriptors[2], b"%d\n" % script)
            os.write(descriptors[2], b"%d" % os.waitpid(script, 0)[1])
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
        middles.append(middle)
        middles[:] = [pid for pid in middles if os.waitpid(pid, os.WNOHANG)[0] == 0]


def become(request, out, err, told):
    """Makes this the process of a script, and returns its code."""
    os.setsid()
    os.dup2(out, 1)
    os.dup2(err, 2)
    for descriptor in (out, err, told):
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    script, is_file, main = request["script"], "\n" not in request["script"], vars(sys.modules["__main__"])
    sys.argv = [script if is_file else "-c", *request["arguments"]]
    code = compile(pathlib.Path(script).read_text() if is_file else script, sys.argv[0], "exec")
    for name in [name for name in main if name == "__file__" or not name.startswith("__")]:
        del main[name]
    if is_file:
        main["__file__"] = script
    return code


if __name__ == "__main__":
    import torch_support  # noqa: F401: what the forks have then

    exec(serve(socket.socket(fileno=int(sys.argv[1]))))  # noqa: S102
