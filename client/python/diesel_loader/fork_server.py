# SPDX-License-Identifier: Apache-2.0
"""The fork server: one process that the trainer starts early, and that forks workers whenever more are needed.

So a worker starts within milliseconds in the middle of an epoch, without forking the trainer (threads, locks, a
device, gigabytes of page tables) or importing everything again. It has one thread, holds what the workers need, and
reaps them. However it dies, the kernel kills its workers; when the trainer dies, it ends.
"""
import contextlib
import gc
import multiprocessing.process
import multiprocessing.reduction
import os
import select
import signal
import socket
import sys
import time
import types
import warnings

from . import messages, native, session, worker
from .messages import Kind

GRACE_S = 2.0  # time for workers to finish their task when the trainer no longer needs them


class ForkServer:
    """The fork server, as it runs in its process."""

    def __init__(self, end, trainer, setup):
        self._end, self._trainer, self._setup = end, trainer, setup
        self._workers = {}  # pid: number
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)

    def run(self):
        """Runs until the trainer closes its end or exits."""
        with self._wake_read, self._wake_write:
            try:
                self._run()
            finally:
                signal.set_wakeup_fd(-1)  # workers may still exit after this point, and the signal would write to a closed socket

    def _run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's to handle
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, _nothing)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # about files that threads of the trainer have open
            gc.collect()
        gc.freeze()  # workers share these objects' pages while the garbage collector does not visit them
        poll = select.poll()
        for fd in (self._end.fileno(), self._wake_read.fileno()):
            poll.register(fd, select.POLLIN)
        with _watching(self._trainer, poll) as trainer_fd:
            while True:
                ready = dict(poll.poll(None if trainer_fd is not None else 1000))
                if trainer_fd in ready or trainer_fd is None and not _is_alive(self._trainer):
                    return  # the kernel ends the workers together with this process
                self._reap()
                if self._end.fileno() in ready and not self._obey():
                    break
        self._finish()

    def _obey(self):
        try:
            _, _, numbers, _, fds = messages.receive(self._end)
        except EOFError:
            return False
        self._spawn(numbers[0], fds[0])
        return True

    def _spawn(self, number, fd):
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            print(f"diesel_loader: cannot start a worker process: {error}", file=sys.stderr, flush=True)
            self._tell(Kind.SPAWNED, number, 0)
            os.close(fd)  # so that the trainer notices the failure
            return
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (self._end, self._wake_read, self._wake_write):
                end.close()
            worker.main(number, socket.socket(fileno=fd), self._setup, parent)
        os.close(fd)
        self._workers[pid] = number
        self._tell(Kind.SPAWNED, number, pid)

    def _reap(self):
        with contextlib.suppress(BlockingIOError):
            while self._wake_read.recv(64):
                pass
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            number = self._workers.pop(pid, None)
            self._tell(Kind.EXITED, number or 0, pid, status)

    def _tell(self, *message):
        with contextlib.suppress(OSError):  # the trainer may have closed its end
            messages.send(self._end, *message)

    def _finish(self):
        """Waits for the workers, whose ends the trainer has closed, and kills those that do not exit."""
        end = time.monotonic() + GRACE_S
        while self._workers and time.monotonic() < end:
            self._reap()
            messages.is_there(self._wake_read, 50)
        for pid in self._workers:
            os.kill(pid, signal.SIGKILL)
        for pid in self._workers:
            os.waitpid(pid, 0)


def _is_alive(pid):
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _nothing(*_):
    """Installs a handler, so that SIGCHLD wakes the poll."""


@contextlib.contextmanager
def _watching(pid, poll):
    """Polls for the end of a process. Yields None if the kernel gives us no pidfd."""
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield None
        return
    poll.register(fd, select.POLLIN)
    try:
        yield fd
    finally:
        os.close(fd)


class _OfMain(multiprocessing.reduction.ForkingPickler):
    """Finds the objects of __main__ to which a pickle would refer. Writes no pickle."""

    def __init__(self):
        self.found = []
        super().__init__(types.SimpleNamespace(write=len))

    def reducer_override(self, obj):
        if isinstance(obj, (type, types.FunctionType)) and obj.__module__ == "__main__":
            self.found.append(obj)
        return NotImplemented


def _files(obj):
    """Returns the files with the code of a function or a class."""
    functions = [obj] if isinstance(obj, types.FunctionType) else vars(obj).values()
    return [function.__code__.co_filename for function in functions if isinstance(function, types.FunctionType)]


def check(context, setup):
    """Raises RuntimeError if another Python could not import objects of __main__, as in a notebook or in typed or piped input."""
    method, module = context.get_start_method(), sys.modules["__main__"]
    file = getattr(module, "__file__", None)
    exists = file is not None and os.path.exists(os.path.join(multiprocessing.process.ORIGINAL_DIR, file))
    importable = exists or getattr(module, "__spec__", None) is not None
    if method == "fork" or importable and not hasattr(sys, "ps1"):
        return
    remedy = 'use multiprocessing_context="fork"'
    if file is not None and not importable:  # multiprocessing opens the file of __main__, needed or not
        raise RuntimeError(f"cannot start worker processes with {method!r}: this program is not a file ({file}). Save it to "
                           f"a file, or {remedy}")
    pickler = _OfMain()
    with contextlib.suppress(Exception):  # a real error is raised again when the process starts
        pickler.dump(setup)
    for obj in pickler.found:
        if not importable or not all(map(os.path.exists, _files(obj))):
            raise RuntimeError(f"{obj.__qualname__} cannot be imported by worker processes started with {method!r}, because "
                               f"it was defined in a notebook or on the command line: put it in a module, or {remedy}")


def main(end, trainer, setup, version=None):
    """The target of the process. version: version of the trainer's diesel_loader. An upgrade may have replaced the
    package since, and a process that is not forked imports the new one."""
    if version != native.VERSION:
        sys.exit(f"diesel_loader {native.VERSION} was installed while this job runs with {version}: restart the job")
    session.forget_inherited()
    with end:
        ForkServer(end, trainer, setup).run()
