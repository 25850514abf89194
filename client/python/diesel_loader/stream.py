# SPDX-License-Identifier: Apache-2.0
"""Batches of one rank in their order, epoch after epoch, whether workers or the trainer transform them.

One session provides the batches. With workers, each batch goes to a worker as soon as it arrives, and results are delivered in the
session's order. Without workers, the trainer transforms a batch when it asks for it. So the number of workers can change with every
batch, without any effect on the results.
"""
import atexit
import collections
import contextlib
import errno
import logging
import os
import sys
import threading
import time
import weakref

from . import errors, native, seeding
from .assembly import sample_numbers
from .native import lib
from .pool import Cost, Entry, Pool

log = logging.getLogger("diesel_loader")

POLL_INTERVAL_MS = 2  # interval of checks for new batches while a worker is idle and another one's result is awaited
WAIT_MS = 1000
MAX_WORKERS = 256     # the daemon's requests above this are an error
STAY_S = 0.5          # maximum wait, at exit, for daemon threads to reach the point where they stop, since one was in a call here
INSIDE_S = 5          # maximum of such waits together: on a busy machine, a thread that will reach that point may get no core for long

_threads: "set[int]" = set()  # identifiers of threads that have called enter(), including ended ones
_ending = False       # True: the interpreter is shutting down


def usable_cores():
    """Returns the number of cores that this process may use: the number of workers while the daemon requests none."""
    return len(os.sched_getaffinity(0))


def _clear_frames(traceback):
    """Clears the finished frames of this package in the traceback, so that a caller who keeps the error does not keep the batch's
    memory."""
    here = os.path.dirname(__file__)
    while traceback:
        if os.path.dirname(traceback.tb_frame.f_code.co_filename) == here:
            traceback.tb_frame.clear()
        traceback = traceback.tb_next


def _end():
    """Called at exit, before worker processes end: stops daemon threads in next() for good. Otherwise Python would end them at any point,
    perhaps inside C++ code that cannot be unwound, such as a tensor that releases its batch. They could also find objects closed, and
    raise errors that nobody can handle."""
    global _ending
    _ending = True
    begin = time.monotonic()
    end = begin + STAY_S
    while left := [thread for thread in threading.enumerate() if thread.ident in _threads and thread is not threading.current_thread()]:
        now = time.monotonic()
        if any(map(_is_inside, left)):
            end = min(now + STAY_S, begin + INSIDE_S)
        if now >= end:
            break
        time.sleep(0.001)


def _is_inside(thread):
    """True if the thread runs a call of this package."""
    frame, here = sys._current_frames().get(thread.ident), os.path.dirname(__file__)
    while frame and os.path.dirname(frame.f_code.co_filename) != here:
        frame = frame.f_back
    return frame is not None


weakref.finalize(lambda: None, int).detach()  # registers weakref's exit handler, which ends pools: ours, registered later, runs before it
atexit.register(_end)


class Stream:
    """Batches of one rank, epoch after epoch.

    assembly: the work on each batch. open_session(epoch, first): returns a Session that starts there. n_workers: a number, or None
    for the daemon's choice. setup: worker.Setup; context, depth: of a Pool. persistent: workers stay from epoch to
    epoch. batch_log: a BatchLog, or None. timeout: seconds to wait for a worker's batch; 0: for ever.
    is_alone: no other rank needs as many batches."""

    def __init__(self, assembly, open_session, n_workers, setup, context, depth, persistent, batch_log=None, timeout=0,
                 damage=None, is_alone=True):
        self._assembly, self._open_session = assembly, open_session
        self._n_workers, self._setup = n_workers, setup
        self._context, self._depth, self._persistent = context, depth, persistent
        self._batch_log, self._damage, self._is_alone = batch_log, damage, is_alone
        self.line = None         # newest line of the batch log
        self._timeout_ns = int(timeout * 1e9)
        self.session = self._pool = None
        self._pending = collections.deque()
        self._at = None          # (epoch, batch) that the session delivers next; None: it must seek first
        self.position = (0, 0)  # (epoch, batch) of the next batch to deliver
        self._wanted = 0         # workers
        self._ended = None       # the last epoch that was delivered to its end
        self.broken = False     # Ctrl-C interrupted a call: the next call starts after the last batch handed out
        self._crosses = False    # the user iterates over several epochs, so the next one is begun early
        self.user = None         # weak reference to the iterator in use
        self.inside = {}         # {"by": me} while a call uses the stream; see enter()
        self._thread = None      # thread of that call
        self._n_closed = 0
        self.work = native.Work(policy=self._policy())
        self.pid = os.getpid()

    def _policy(self):
        if not self._assembly.has_work:
            return native.POLICY_NONE
        return native.POLICY_AUTO if self._n_workers is None else native.POLICY_FIXED

    @property
    def n_workers(self):
        """Number of worker processes that are ready."""
        return self._pool.n_ready if self._pool else 0

    @property
    def has_work(self):
        """True if the user's functions transform the samples."""
        return self._assembly.has_work

    def has_next(self):
        """Returns True if next() would return a batch without a wait, and without transforming it in the trainer."""
        if self._pool and (self._pool.n_ready or self._pool.n_outstanding or self._pool.orphans):
            return bool(self._pending) and self._pending[0].done
        return not self._pending and not self.has_work and self.session and not self.session.crowded and self.session.n_ready > 0

    def mapping_at(self, address):
        """Returns the mapping of the worker's buffer that contains the address, or None."""
        return self._pool.mapping_at(address) if self._pool else None

    def is_used(self):
        """True while an iterator is in use and still referenced, and during each call, even the one that ends the iteration."""
        return bool(self.inside) or (self.user is not None and self.user() is not None)

    def guard(self):
        """The object with enter(), `inside` and `user`: the stream itself, even if a wrapper stands before it."""
        return self

    def enter(self, me):
        """Gives the stream to a call that has made the object `me`, unless another call has it. The caller must give it back
        in any case, by `if stream.inside == {"by": me}: stream.inside = {}`: without a function call, so that Ctrl-C cannot
        interrupt it."""
        if self.pid != os.getpid():
            raise RuntimeError(f"this iterator belongs to process {self.pid}, which this one was forked from: call "
                               "iter() on the loader to get an iterator in this process")
        if _ending:
            self._stay()
        if self.inside.setdefault("by", me) is not me:
            raise RuntimeError("this iterator is in use by " + (
                "the same thread: a function of the loader, or a signal handler, called next() inside next()"
                if self.is_of_this_thread() else
                "another thread: give each thread its own iterator, or put a lock around next()"))
        self._thread = threading.get_ident()
        _threads.add(self._thread)

    def is_of_this_thread(self):
        """True if a call of this thread uses the stream now."""
        return bool(self.inside) and self._thread == threading.get_ident() and self.pid == os.getpid()

    def _stay(self):
        """Blocks a daemon thread for good. At exit, every thread except the main one is a daemon thread."""
        if threading.current_thread() is not threading.main_thread():
            _threads.discard(threading.get_ident())
            lock = threading.Lock()
            while lock.acquire():
                pass

    def begin(self, epoch, first):
        """Moves to batch `first` of the epoch."""
        if self.broken:
            self._clear()
        self.broken = True  # until the seek is complete
        if self._pool and not self._persistent:
            self._drop_pool()
        if self._pool is None and self._policy() != native.POLICY_NONE and self._n_workers != 0:
            self._start_pool()
        standing = self._pending[0].position if self._pending else self._at
        if standing != (epoch, first):
            self._scatter()
        self._crosses = first == 0 and self._ended is not None and self._ended + 1 == epoch
        self.position = (epoch, first)
        if self.session is None:
            self.session = self._open_session(epoch, first)
            self._at = self.position
        self.broken = False

    def _clear(self):
        """Cleans up after an interruption: batches may have no owner, and messages may be lost."""
        if self.line is not None and not self.line.given:
            self.line.given = False
        if self._pool and self._pool.torn:
            self.close()
        elif self._pool:
            self._pool.abandon()
            self._pool.begin_session()
        self._end_session()

    def _end_session(self):
        """Returns memory to the daemon, except for batches that somebody still holds."""
        self._pending.clear()
        if self.session:
            self.session.close()
        self.session = self._at = None

    def _mend(self):
        self._clear()
        if self._pool is None and self._policy() != native.POLICY_NONE and self._n_workers != 0:
            self._start_pool()
        self.session = self._open_session(*self.position)
        self._at = self.position

    def _start_pool(self):
        try:
            self._pool = Pool(self._setup, self._context, self._depth, self.work)
        except Exception as error:  # such as: the setup cannot be pickled, or no more processes are allowed
            if self._n_workers is not None:
                raise
            log.warning("transforms run in the trainer, because worker processes cannot be started: %s", error)
            self._n_workers, self.work.policy = 0, native.POLICY_FIXED

    def _drop_pool(self):
        self._scatter()
        self._pool.close()
        self._pool = None

    def close(self):
        """Ends the processes and the session. In the middle of next(), only code that next() itself runs may call this, such as a signal
        handler; the session then stays."""
        if self.pid != os.getpid():
            self._pool = None
            return
        me = object()
        try:
            if not self.is_of_this_thread():
                self.enter(me)
            self._n_closed += 1
            if self._pool:
                self._pool.close()
            self._pool = None
            if self.inside == {"by": me}:
                self.broken = True  # the next call begins where this one was
                self._end_session()
        finally:
            if self.inside == {"by": me}:
                self.inside = {}

    def next(self):
        """Returns (what the user sees, position after it); None at the end of the epoch. The caller
        sets position, broken and the log line's fields when the batch is handed out. Raises the error of the batch, if it failed; the
        next call continues after it, if possible."""
        begin = time.perf_counter_ns()
        if self.broken:
            self._mend()
        if self._batch_log:
            self._batch_log.flush_if_due()
        self.broken, n_closed = True, self._n_closed
        try:
            self._seek()
            self._adjust()
            entry = self._head()
        except Exception as error:
            if _ending:
                self._stay()
            self._scatter()
            self.broken = False
            if _ending and self._pool and self._pool.closed:
                raise RuntimeError("the program is ending, and the loader's worker processes have ended") from None
            if self._n_closed != n_closed:
                raise RuntimeError("one of the loader's functions, or a signal handler, closed the loader in the middle of next()") \
                    from error
            raise
        if _ending:
            self._stay()
        self._pending.popleft()
        if entry.ended:
            self._ended, self.position = entry.epoch, (entry.epoch + 1, 0)
            self.broken = False
            if self._batch_log:
                self._batch_log.flush()
            return None
        result = self._deliver(entry)
        work = self.work
        work.n_batches += 1
        work.n_samples += entry.n_items
        took = time.perf_counter_ns() - begin
        work.next_ns += took
        if self._batch_log:
            own = entry.cost.wall_ns if entry.cost and entry.cost.by == "trainer" else 0
            self.line = self._batch_log.add(entry, max(took - own, 0))
        work.n_workers = self.n_workers
        self.session.report(work)
        return result, (entry.epoch, entry.index + 1)

    def _seek(self):
        if self._at is None:
            self.session.seek(*self.position)
            self._at = self.position

    def _scatter(self):
        """Drops all batches in progress."""
        self._pending.clear()
        self._at = None
        if self._pool:
            self._pool.abandon()

    def _adjust(self):
        """Starts or retires workers, to match the number requested now."""
        if self._pool is None:
            return
        wanted = self._n_workers
        if wanted is None:
            wanted = self.session.wanted_workers
            wanted = usable_cores() if wanted is None else min(wanted, MAX_WORKERS)
        self._pool.collect(0)
        self._resize(wanted)
        while self._n_workers and not self._pool.n_ready:  # with a fixed number, the trainer never transforms
            self._pool.collect(WAIT_MS)
            self._resize(wanted)

    def _resize(self, wanted):
        wanted = max(wanted, 1 if self._pool.orphans else 0)  # one at least: the trainer must not try a batch that killed a worker
        if wanted != self._pool.n_staying:
            self._pool.resize(wanted)
        self._wanted = wanted

    # ---- from the session to the workers

    def _take(self):
        """Waits for the session's next batch. Returns it as an Entry, or an Entry with the error or the end of the epoch."""
        try:
            lease = self._next_lease()
        except OSError as error:
            entry = Entry(*self._at, error=error)
            if getattr(error, "is_of_batch", False):
                self._at = (self._at[0], self._at[1] + 1)
        else:
            if lease is None:
                entry = Entry(*self._at, ended=True)
                self._at = (self._at[0] + 1, 0)
            else:
                entry = Entry(lease.batch.epoch, lease.batch.index, lease)
                if not lease.batch.n_items:
                    entry = Entry(*entry.position, error=errors.DamagedData(
                        errno.EBADMSG, f"no undamaged sample is left in batch {entry.index} of epoch {entry.epoch}, but other ranks have some: give "
                        'damaged="zero", or a larger batch_size'))
                if self._batch_log:
                    entry.samples = sample_numbers(lease.batch)
                self._at = (lease.batch.epoch, lease.batch.index + 1)
        self._pending.append(entry)
        return entry

    def _next_lease(self):
        """Returns the session's next batch that has samples; may be an empty one if several ranks need equally many batches."""
        while True:
            lease = self.session.next_batch()
            if lease is not None and lease.batch.n_damaged:
                self._damage.note(lease.batch)
            if lease is None or lease.batch.n_items or not self._is_alone:
                return lease
            self._at = (lease.batch.epoch, lease.batch.index + 1)

    def _fill(self):
        """Hands batches to workers as long as that needs no wait."""
        begin = time.perf_counter_ns()
        pool, session = self._pool, self.session
        orphans, pool.orphans = pool.orphans, []
        for entry in orphans:
            if not pool.submit(entry, session):
                pool.orphans.append(entry)
        while pool.has_space() and session.n_ready and not session.crowded and self._may_take():
            entry = self._take()
            if not entry.done and not pool.submit(entry, session):
                break  # the trainer transforms it when it is due
        self.work.handoff_ns += time.perf_counter_ns() - begin

    def _may_take(self):
        """Returns True if the session's next batch should be taken already. An epoch that may never be iterated gets only a few."""
        if not self._pending:
            return True
        if self._pending[-1].error is not None:
            return False
        here = self.position[0]
        if self._at[0] == here and not self._pending[-1].ended:
            return True
        return self._crosses and sum(e.epoch != here for e in self._pending) < self._pool.n_ready

    def _head(self):
        """Returns the next entry in order, after it was transformed."""
        pool = self._pool
        if pool is None or not (pool.n_ready or pool.n_outstanding or pool.orphans):
            entry = self._pending[0] if self._pending else self._take()
            if not entry.done:
                self._do(entry)
            return entry
        self._fill()
        if not self._pending:
            self._take()
            self._fill_head()
            self._fill()
        entry = self._pending[0]
        while not entry.done:
            if entry.worker is None and entry not in pool.orphans:
                self._do(entry)
            else:
                self._wait(entry)
        return entry

    def _fill_head(self):
        entry = self._pending[0]
        if not entry.done:
            begin = time.perf_counter_ns()
            self._pool.submit(entry, self.session)
            self.work.handoff_ns += time.perf_counter_ns() - begin

    def _wait(self, entry):
        """Sleeps until a worker reports."""
        pool = self._pool
        if pool.collect(0) and entry.done:
            return
        begin, handoff_ns = time.perf_counter_ns(), self.work.handoff_ns
        lib.diesel_mark(native.MARK_WAIT_BEGIN, 0)
        while not entry.done and not (entry.worker is None and entry not in pool.orphans):
            if self._pool is not pool:
                raise RuntimeError("closed")  # next() adds the reason
            pool.collect(POLL_INTERVAL_MS if pool.has_idle() and not self.session.crowded else self._wait_ms(begin))
            self._resize(self._wanted)
            self._fill()
        lib.diesel_mark(native.MARK_WAIT_END, native.MARK_CAUSE_PREP)
        self.work.n_waits += 1
        self.work.wait_ns += time.perf_counter_ns() - begin - (self.work.handoff_ns - handoff_ns)

    def _wait_ms(self, begin):
        """Returns how long to sleep, for a wait that began at the given time."""
        if not self._timeout_ns:
            return WAIT_MS
        left = begin + self._timeout_ns - time.perf_counter_ns()
        if left <= 0:
            lib.diesel_mark(native.MARK_WAIT_END, native.MARK_CAUSE_PREP)
            raise RuntimeError(f"DataLoader timed out after {self._timeout_ns / 1e9:g} seconds: no worker has finished the next batch")
        return min(WAIT_MS, left // 1_000_000 + 1)

    # ---- from the entry to the user

    def _do(self, entry):
        """Transforms a batch in the trainer."""
        lease, entry.lease, entry.done = entry.lease, None, True
        copies, n_items = self.session.must_copy, lease.batch.n_items
        if not self._assembly.has_work:
            try:
                entry.result = self._assembly.batch(lease, entry.epoch, entry.index, copies)
            except Exception as error:  # of samples with fields
                entry.error, lease = error, None
                _clear_frames(error.__traceback__.tb_next)
            return
        cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
        try:
            with seeding.Kept() if self._assembly.seeding.mode else contextlib.nullcontext():
                entry.result = self._assembly.batch(lease, entry.epoch, entry.index, copies)
        except Exception as error:
            entry.error, lease = error, None
            _clear_frames(error.__traceback__.tb_next)
        wall = time.perf_counter_ns() - wall
        work, cpu = self.work, time.thread_time_ns() - cpu
        if self._batch_log:
            entry.cost = Cost("trainer", os.getpid(), cpu, wall, self._assembly.sample_ns)
        work.cpu_ns += cpu
        work.busy_ns += wall
        work.inline_ns += wall
        work.n_worked += n_items

    def _deliver(self, entry):
        if entry.error is None:
            return entry.result
        error, entry.error = entry.error, None
        if self._at is not None and (self._pending or self._at != entry.position):
            self.position = (entry.epoch, entry.index + 1)  # the batch counts as delivered
        self.broken = False
        try:
            if isinstance(error, StopIteration):
                raise RuntimeError("transform, loader or collate_fn raised StopIteration") from error
            raise error
        finally:
            del error  # without this, the error and this frame form a cycle that holds the batch until garbage collection
