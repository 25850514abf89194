# SPDX-License-Identifier: Apache-2.0
"""The trainer's side of worker processes: their number, their tasks and their results."""
import collections
import contextlib
import itertools
import logging
import multiprocessing.process
import os
import pickle
import select
import signal
import time
import weakref

from . import messages, native, fork_server, results
from .messages import Flag, Kind

log = logging.getLogger("diesel_loader")

MAX_BAD_STARTS = 3
STATUS_WAIT_S = 1.0  # maximum wait for the fork server to report how a worker died


# Cost of the Python work on a batch, for the batch log. by: "worker" or "trainer". sample_ns: a time per sample.
Cost = collections.namedtuple("Cost", "by pid cpu_ns wall_ns sample_ns")


class Entry:
    """A batch on its way to the user: a lease until it is transformed, then a result or an error. For the batch log:
    samples (numbers), and cost (a Cost; None: no Python work was done)."""

    __slots__ = ("epoch", "index", "n_items", "lease", "ended", "sequence", "worker", "done", "result", "error", "attempts",
                 "abandoned", "samples", "cost")

    def __init__(self, epoch, index, lease=None, error=None, ended=False):
        self.epoch, self.index, self.lease, self.error = epoch, index, lease, error
        self.n_items = lease.batch.n_items if lease else 0
        self.ended = ended  # True: no batch, but the end of the epoch
        self.sequence = self.worker = self.result = None
        self.done = lease is None
        self.attempts, self.abandoned = 0, False
        self.samples = self.cost = None

    @property
    def position(self):
        return self.epoch, self.index


class _Worker:
    def __init__(self, number, end):
        self.number, self.end, self.pid = number, end, None
        self.ready = self.retiring = False
        self.life, self.segments = None, set()  # the daemon's life, and the segments that the worker has mapped
        self.outstanding = {}                   # Entry by sequence number, in the order in which they were sent
        self.kept = {}                          # by sequence number: lease of a batch that the worker's user code still holds
        self.reader = results.Reader()
        self.bytes = 0


class _WorkerGone(Exception):
    """Raised if a message cannot be sent because the worker is gone."""


def _tell(worker, kind, *numbers, **more):
    try:
        messages.send(worker.end, kind, *numbers, **more)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise _WorkerGone from error


class Pool:
    """Worker processes of one stream. Not thread-safe.

    setup: worker.Setup. context: a multiprocessing context. depth: number of batches that a worker has at one time.
    work: native.Work, whose worker counters the pool increments."""

    def __init__(self, setup, context, depth, work):
        self._depth, self._work = depth, work
        self._workers, self._bad_starts = {}, 0
        self._sequences = itertools.count(1)
        self._generation = 0
        self._starting = collections.deque()  # workers whose pid the fork server has not sent yet: it answers in order
        self._statuses = {}  # wait status by pid
        self.orphans = []    # entries whose worker died
        self.torn = False    # Ctrl-C interrupted a message: the pool cannot be used any more
        self._poll = select.poll()
        self._start_fork_server(setup, context)

    def _start_fork_server(self, setup, context):
        fork_server.check(context, setup)
        self._control, theirs = messages.pair()
        with theirs:
            self._process = context.Process(target=fork_server.main, args=(theirs, os.getpid(), setup, native.VERSION), daemon=True,
                                            name="diesel-fork-server")
            self._process.start()
        # Only this process ends the fork server. Without this, multiprocessing in a forked child would send SIGTERM to it at exit.
        getattr(multiprocessing.process, "_children", set()).discard(self._process)
        self._poll.register(self._control, select.POLLIN)
        self._finalizer = weakref.finalize(self, _end, os.getpid(), self._process, self._control, self._workers)

    def close(self):
        """Ends all processes; results stay readable."""
        self._finalizer()

    @property
    def closed(self):
        return not self._finalizer.alive

    # How many

    @property
    def n_ready(self):
        """Number of workers that accept batches."""
        return sum(w.ready and not w.retiring for w in self._workers.values())

    @property
    def n_staying(self):
        """Number of workers that run or start, except those that only finish their batches."""
        return sum(not w.retiring for w in self._workers.values())

    def resize(self, n):
        """Sets the number of workers to n. New ones start in the background; surplus ones finish their batches, then
        exit."""
        self.torn = True
        staying = [w for w in self._workers.values() if not w.retiring]
        staying.sort(key=lambda w: (w.ready, -w.number))
        for worker in staying[:max(0, len(staying) - n)]:
            self._retire(worker)
        for _ in range(n - len(staying)):
            self._spawn()
        self.torn = False

    def _spawn(self):
        number = next(i for i in itertools.count() if i not in self._workers)
        ours, theirs = messages.pair()
        with theirs:
            try:
                messages.send(self._control, Kind.SPAWN, number, fds=[theirs.fileno()])
            except OSError:
                ours.close()
                self._fork_server_is_gone()
        self._workers[number] = _Worker(number, ours)
        self._starting.append(self._workers[number])
        self._poll.register(ours, select.POLLIN)

    def _retire(self, worker):
        worker.retiring = True
        if not worker.outstanding:
            self._forget(worker)

    def _forget(self, worker):
        self._poll.unregister(worker.end)
        messages.hang_up(worker.end)
        del self._workers[worker.number]
        worker.kept.clear()

    # Work

    @property
    def n_outstanding(self):
        return sum(len(w.outstanding) for w in self._workers.values())

    def has_space(self):
        """True if a worker would take another batch."""
        return any(w.ready and not w.retiring and len(w.outstanding) < self._depth for w in self._workers.values())

    def has_idle(self):
        return any(w.ready and not w.retiring and not w.outstanding for w in self._workers.values())

    def submit(self, entry, session):
        """Hands a batch to the least busy worker. Returns False if none can take it now."""
        self.torn = True
        done = self._submit(entry, session)
        self.torn = False
        return done

    def _submit(self, entry, session):
        workers = [w for w in self._workers.values() if w.ready and not w.retiring]
        if not workers:
            return False
        worker = min(workers, key=lambda w: len(w.outstanding))
        try:
            self._show(worker, entry.lease, session)
        except _WorkerGone:
            self.orphans.append(entry)  # collect() will notice the death, and give the batch to another worker
            return True
        except OSError:
            return False  # the daemon that owns the segments is lost, or this process has too many open descriptors
        entry.sequence, entry.worker = next(self._sequences), worker
        worker.outstanding[entry.sequence] = entry
        places = entry.lease.places
        with contextlib.suppress(_WorkerGone):  # as above
            for k in range(0, len(places or ()), messages.MAX_PLACES):
                part = places[k:k + messages.MAX_PLACES]
                _tell(worker, Kind.PLACES, small=len(part), table=b"".join(messages.PLACE.pack(*place) for place in part))
            _tell(worker, Kind.TASK, entry.sequence, self._generation, messages.GATHERED if places else entry.lease.batch_buffer,
                  entry.n_items, entry.epoch, entry.index)
        return True

    def _show(self, worker, lease, session):
        """Sends the worker the shared memory that holds the batch, to map it."""
        if worker.life != lease.life:
            memory, fd = session.memory()
            if memory.life != lease.life:
                raise ConnectionError("the batch is from a daemon that has ended")
            _tell(worker, Kind.MEMORY, memory.life, memory.n_buffers, memory.batch, memory.item_bytes, memory.has_views, fds=[fd])
            worker.life, worker.segments = lease.life, set()
        missing = [s for s in lease.segments() if s not in worker.segments]
        for k in range(0, len(missing), messages.MAX_FDS):
            self._show_segments(worker, missing[k:k + messages.MAX_FDS], session)

    @staticmethod
    def _show_segments(worker, segments, session):
        fds, table = [], b""
        try:
            for segment in segments:
                fd, size = session.segment(segment)
                fds.append(fd)
                table += messages.SEGMENT.pack(segment, size)
            _tell(worker, Kind.SEGMENTS, small=len(fds), fds=fds, table=table)
        finally:
            messages.close_all(fds)
        worker.segments.update(segments)

    def begin_session(self):
        """Forgets which segments workers have mapped, because they belong to the previous session."""
        for worker in self._workers.values():
            worker.life, worker.segments = None, set()

    def abandon(self):
        """Drops all batches in progress. Workers skip those that they have not begun."""
        self.torn = True
        self._generation += 1
        self.orphans.clear()
        for worker in list(self._workers.values()):
            for entry in worker.outstanding.values():
                entry.abandoned = True
            if worker.outstanding:
                with contextlib.suppress(_WorkerGone):
                    _tell(worker, Kind.CANCEL, self._generation)
        self.torn = False

    def mapping_at(self, address):
        """Returns the mapping of a worker's buffer that contains the address; None: no worker has such a buffer any
        more."""
        found = (worker.reader.mapping_at(address) for worker in self._workers.values())
        return next((mapping for mapping in found if mapping is not None), None)

    def collect(self, timeout_ms):
        """Handles messages from workers and the fork server; waits up to timeout_ms for one. Returns True if there was
        one."""
        ready = self._poll.poll(timeout_ms)
        self.torn = True
        ends = {w.end.fileno(): w for w in self._workers.values()}
        for fd, _ in ready:
            if fd == self._control.fileno():
                self._hear_fork_server()
            elif fd in ends:
                self._hear(ends[fd])
        self.torn = False
        return bool(ready)

    def _hear(self, worker):
        try:
            while (message := messages.receive(worker.end, block=False)) is not None:
                kind, small, numbers, _, fds = message
                try:
                    self._handle(worker, kind, small, numbers, fds)
                finally:
                    messages.close_all(fds)
        except EOFError:
            self._died(worker)
            return
        if worker.retiring and not worker.outstanding:
            self._forget(worker)

    def _handle(self, worker, kind, small, numbers, fds):
        if kind == Kind.READY:
            worker.ready, worker.pid = True, numbers[0]
        elif kind == Kind.RESULT:
            self._finish(worker, small, numbers, fds)
        elif kind == Kind.RELEASED:
            worker.kept.pop(numbers[0], None)
        elif kind == Kind.DROPPED:
            worker.reader.drop(numbers[0])

    def _finish(self, worker, flags, numbers, fds):
        sequence, buffer, size, table, cpu, wall, handoff, private = numbers
        entry = worker.outstanding.pop(sequence)
        lease, entry.lease = entry.lease, None
        if flags & Flag.KEPT:
            worker.kept[sequence] = lease
        if flags & Flag.SKIPPED:
            return
        self._bad_starts = 0
        n_items = lease.batch.n_items
        if flags & Flag.NEW:
            worker.reader.add(buffer, fds[0], size)
        if entry.abandoned:
            worker.reader.release(buffer)
            return
        entry.done = True
        begin = time.perf_counter_ns()
        try:
            entry.result = worker.reader.read(buffer, table)
        except Exception as error:  # the result of the user's code cannot be unpickled in the trainer
            entry.error = error
        self._work.handoff_ns += time.perf_counter_ns() - begin
        if flags & Flag.FAILED and entry.error is None:
            entry.error, entry.result = _as_exception(entry.result), None
        if isinstance(entry.result, results.Measured):
            entry.result, sample_ns = entry.result
            entry.cost = Cost("worker", worker.pid, cpu, wall, sample_ns)
        self._count(worker, n_items, cpu, wall, handoff, private, table)

    def _count(self, worker, n_items, cpu, wall, handoff, private, n_bytes):
        work, worker.bytes = self._work, private or worker.bytes
        work.cpu_ns += cpu
        work.busy_ns += wall
        work.n_worked += n_items
        work.worker_handoff_ns += handoff
        work.n_handoffs += 1
        work.result_bytes += n_bytes
        known = [w.bytes for w in self._workers.values() if w.bytes]
        work.worker_bytes = sum(known) // len(known) if known else 0

    # Death

    def _hear_fork_server(self):
        try:
            while (message := messages.receive(self._control, block=False)) is not None:
                kind, _, numbers, _, _ = message
                if kind == Kind.SPAWNED:
                    self._starting.popleft().pid = numbers[1]
                    self._statuses.pop(numbers[1], None)  # left over from an earlier process with this pid
                elif kind == Kind.EXITED:
                    self._statuses[numbers[1]] = numbers[2]
        except EOFError:
            self._fork_server_is_gone()

    def _fork_server_is_gone(self):
        self._process.join(STATUS_WAIT_S)
        code = self._process.exitcode
        raise RuntimeError("the process that starts worker processes "
                           + (_how(code) if code is not None else "does not answer")
                           + "; if it printed an error, see standard error above")

    def _died(self, worker):
        entries = [e for e in worker.outstanding.values() if not e.abandoned]
        retiring = worker.retiring
        how = self._how_it_died(worker)  # the fork server may report the pid only now
        self._forget(worker)
        worker.outstanding.clear()
        if not worker.ready:
            self._bad_starts += 1
            if self._bad_starts >= MAX_BAD_STARTS:
                raise RuntimeError(f"worker processes do not start; the last one {how}")
        if entries:
            self._blame(worker, entries[0], how)
        elif not retiring:
            log.warning("idle worker process %s %s; another one replaces it", worker.pid, how)
        for entry in entries:
            entry.worker = None
        self.orphans += [e for e in entries if not e.done]
        self._work.n_deaths += 1

    @staticmethod
    def _blame(worker, entry, how):
        """Retries the batch that a dead worker worked on (its first one) once, on another worker."""
        entry.attempts += 1
        where = f"batch {entry.index} of epoch {entry.epoch}"
        if entry.attempts > 1:
            entry.done, entry.lease = True, None
            entry.error = RuntimeError(f"worker process {worker.pid} {how} while it transformed {where}, as another "
                                       "worker did before: check what transform and collate_fn do with this batch")
        else:
            log.warning("worker process %s %s while it transformed %s; another worker repeats the batch", worker.pid, how,
                        where)

    def _how_it_died(self, worker):
        end = time.monotonic() + STATUS_WAIT_S
        while worker.pid != 0 and worker.pid not in self._statuses and time.monotonic() < end:
            if messages.is_there(self._control, 50):
                self._hear_fork_server()
        if worker.pid == 0:
            return "could not be forked"
        status = self._statuses.pop(worker.pid, None)
        return "ended" if status is None else _how(os.waitstatus_to_exitcode(status))


def _how(code):
    """Returns a description of how a process ended."""
    if code >= 0:
        return f"ended with status {code}"
    name = signal.Signals(-code).name
    return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


def _as_exception(failure):
    """Returns a worker's exception with the traceback as its text, of the original class if that accepts a single
    text."""
    try:
        cls = pickle.loads(failure.exception) if failure.exception else None
        if cls is KeyError:
            return KeyError(_Verbatim(failure.text))
        if cls and issubclass(cls, Exception) and not issubclass(cls, (StopIteration, StopAsyncIteration)):
            return cls(failure.text)
    except Exception:
        pass  # the class needs other arguments, or cannot be imported here
    return RuntimeError(failure.text)


class _Verbatim(str):
    """A str that KeyError prints unquoted."""

    __repr__ = str.__str__


def _end(owner, process, control, workers):
    """Ends the processes. Also called at exit, and when the pool is garbage-collected."""
    if os.getpid() != owner:
        return
    for worker in workers.values():
        messages.hang_up(worker.end)
    workers.clear()
    messages.hang_up(control)
    process.join(fork_server.GRACE_S + 2)
    if process.is_alive():
        process.kill()
        process.join()
