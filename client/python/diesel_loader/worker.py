# SPDX-License-Identifier: Apache-2.0
"""A worker process, which transforms batches of the trainer's session one after another."""
import collections
import ctypes
import os
import pickle
import signal
import sys
import time
import traceback
import weakref

from . import bucketing, errors, messages, native, results, seeding
from .messages import Flag, Kind
from .native import byref, lib

MAX_KEPT = 2            # maximum number of batches that the user's code may keep; beyond that it gets copies
MEMORY_EVERY_S = 10     # interval at which a worker reads its memory usage
PR_SET_PDEATHSIG = 1

Task = collections.namedtuple("Task", "sequence generation batch_buffer n_items epoch index places", defaults=(None,))


class Setup:
    """The Assembly of a worker, and the user's init function for the worker process. n_workers: None if it can change."""

    def __init__(self, assembly, init_fn, base_seed, n_workers):
        self.assembly, self.init_fn, self.base_seed, self.n_workers = assembly, init_fn, base_seed, n_workers


class Lease:
    """A batch in this process's mapping of the session. The user's tensors keep it alive."""

    __slots__ = ("batch", "_batch_buffer", "_mirror", "_ended", "__weakref__")

    def __init__(self, mirror, task, ended):
        self.batch, self._batch_buffer, self._mirror, self._ended = native.Batch(), task.batch_buffer, mirror, ended
        mirror.fill(task, self.batch)

    def __del__(self):
        self._mirror.release(self._batch_buffer)
        self._ended()


class GatheredLease:
    """A batch whose samples lie in several batch buffers, valid only until the result is sent."""

    __slots__ = ("batch", "_ended", "_keep", "__weakref__")

    def __init__(self, mirror, task, ended):
        self.batch, self._ended = native.Batch(), ended
        self._keep = bucketing.gathered(self.batch, task.epoch, task.index, mirror.items(task.places))

    def __del__(self):
        self._ended()


class Mirror:
    """This process's mapping of the session, for one life of the daemon."""

    def __init__(self, memory, fd):
        self._handle = ctypes.c_void_p()
        self.life = memory.life
        _check(lib.diesel_mirror_open(byref(memory), fd, byref(self._handle)), "map the memory of the session's batches")

    def add(self, segment, fd, size):
        _check(lib.diesel_mirror_segment(self._handle, segment, fd, size), f"map chunk segment {segment}")

    def fill(self, task, batch):
        self._fill(task.batch_buffer, task.n_items, batch)

    def _fill(self, batch_buffer, n_items, batch):
        _check(lib.diesel_mirror_batch(self._handle, batch_buffer, n_items, byref(batch)), "find the batch")

    def items(self, places):
        """Returns samples of several batches, as a list of native.Item."""
        wanted, items, batch = collections.defaultdict(list), [None] * len(places), native.Batch()
        for k, (batch_buffer, place) in enumerate(places):
            wanted[batch_buffer].append((k, place))
        for batch_buffer, ours in wanted.items():
            self._fill(batch_buffer, 1 + max(place for _, place in ours), batch)
            for k, place in ours:  # a copy, because items of the next batch buffer overwrite these
                items[k] = native.Item.from_buffer_copy(batch.items[place])
        return items

    def release(self, batch_buffer):
        lib.diesel_mirror_release(self._handle, batch_buffer)

    def __del__(self):
        lib.diesel_mirror_close(self._handle)


def _check(result, what):
    if result < 0:
        raise errors.from_result(result, f"worker process {os.getpid()} cannot {what}: {os.strerror(-result)}")


class Worker:
    """The worker's loop. It ends with EOFError when the trainer closes its end of the socket, or dies."""

    def __init__(self, number, end, setup):
        self._end, self._setup = end, setup
        self._tasks, self._places = collections.deque(), []
        self._generation = 0
        self._mirror = None
        self._writer = results.Writer(setup.assembly.arrays)
        self._n_kept = 0
        self._bytes, self._bytes_at = 0, None
        self._failure = self._start(number)  # failure of the user's worker_init_fn, returned for every batch

    def run(self):
        messages.send(self._end, Kind.READY, os.getpid())
        while True:
            while self._receive(block=not self._tasks):
                pass
            if self._tasks:
                self._do(self._tasks.popleft())

    def _start(self, number):
        seed = (self._setup.base_seed + number) & 0xffffffffffffffff
        seeding.seed_all(seed)
        assembly = self._setup.assembly
        assembly.arrays.begin_worker(number, self._setup.n_workers, seed, assembly.dataset)
        try:
            if self._setup.init_fn:
                self._setup.init_fn(number)
        except BaseException as error:  # any exception is raised in the trainer
            return _failure(error, "worker_init_fn")
        return None

    def _receive(self, block):
        message = messages.receive(self._end, block)
        if message is None:
            return False
        kind, small, numbers, table, fds = message
        try:
            self._handle(kind, small, numbers, table, fds)
        finally:
            messages.close_all(fds)
        return not block or not self._tasks

    def _handle(self, kind, small, numbers, table, fds):
        if kind == Kind.PLACES:
            self._places += messages.PLACE.iter_unpack(table)
        elif kind == Kind.TASK:
            places, self._places = self._places, []
            self._tasks.append(Task(*numbers[:6], places or None))
        elif kind == Kind.MEMORY:
            self._mirror = Mirror(native.Memory(*numbers[:5]), fds[0])
        elif kind == Kind.SEGMENTS:
            for (segment, size), fd in zip(messages.SEGMENT.iter_unpack(table), fds):
                self._mirror.add(segment, fd, size)
        elif kind == Kind.CANCEL:
            self._generation = numbers[0]

    def _do(self, task):
        if task.generation < self._generation:
            messages.send(self._end, Kind.RESULT, task.sequence, small=Flag.SKIPPED)
            return
        cpu, wall, flags = time.process_time_ns(), time.perf_counter_ns(), 0
        result, lease = self._work(task)
        cpu_done, wall_done = time.process_time_ns(), time.perf_counter_ns()
        if isinstance(result, results.Failure):
            flags |= Flag.FAILED
        try:
            buffer, table = self._writer.write(result)
        except Exception as error:  # the result cannot be pickled
            flags |= Flag.FAILED
            self._writer.forget()
            buffer, table = self._writer.write(_failure(error, "while sending the batch"))
        del result
        kept = lease()  # keeps the lease until the result is sent
        if kept is not None:
            flags |= Flag.KEPT
            self._n_kept += 1
            kept._ended = lambda: self._released(task.sequence)
        self._tell(task, flags, buffer, table, cpu_done - cpu, wall_done - wall, time.process_time_ns() - cpu_done)

    def _tell(self, task, flags, buffer, table, cpu, wall, handoff):
        fds = [buffer.fd] if buffer.fd >= 0 else []
        messages.send(self._end, Kind.RESULT, task.sequence, buffer.number, buffer.size, table, cpu, wall, handoff,
                      self._private_bytes(), small=flags | (Flag.NEW if fds else 0), fds=fds)
        buffer.close_fd()
        for number in self._writer.trim():
            messages.send(self._end, Kind.DROPPED, number)

    def _work(self, task):
        """Returns (result or Failure, weak reference to the lease)."""
        if self._failure:
            return self._failure, lambda: None
        ref = lambda: None  # noqa: E731
        try:
            lease = (GatheredLease if task.places else Lease)(self._mirror, task, _nothing)
            ref = weakref.ref(lease)
            result = self._setup.assembly.batch(lease, task.epoch, task.index, copies=bool(task.places) or self._n_kept >= MAX_KEPT,
                                                allocate=self._writer.allocate)
            if self._setup.assembly.measures:
                result = results.Measured(result, self._setup.assembly.sample_ns)
        except BaseException as error:
            self._writer.forget()
            result = _failure(error, f"batch {task.index} of epoch {task.epoch}")
        return result, ref

    def _released(self, sequence):
        self._n_kept -= 1
        try:
            messages.send(self._end, Kind.RELEASED, sequence)
        except OSError:
            pass  # the trainer is gone, so nothing is left to release

    def _private_bytes(self):
        """Returns the private memory of this process, in bytes; 0: unknown. Reads it only every MEMORY_EVERY_S, because the kernel needs
        a while for it."""
        now = time.monotonic()
        if self._bytes_at is None or now - self._bytes_at > MEMORY_EVERY_S:
            self._bytes_at = now
            try:
                with open("/proc/self/smaps_rollup") as f:
                    self._bytes = sum(int(line.split()[1]) * 1024 for line in f if line.startswith("Private_"))
            except OSError:
                self._bytes = 0
        return self._bytes


def _nothing():
    pass


def _failure(error, where):
    """Returns a Failure, which can always be sent: the exception's class if that can be pickled, and its text."""
    text = (f"Caught {type(error).__name__} in worker process {os.getpid()}, {where}.\nOriginal "
            + "".join(traceback.format_exception(type(error), error, error.__traceback__)))
    try:
        cls = pickle.dumps(type(error))
    except Exception:
        cls = None  # such as a class defined in a function
    return results.Failure(cls, text)


def main(number, end, setup, parent):
    """Runs in a fresh fork of the fork server; never returns."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        native.retain_freed(native.RETAINED_MAX)
        Worker(number, end, setup).run()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
