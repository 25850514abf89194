# SPDX-License-Identifier: Apache-2.0
"""A training loop on the stand-in libcuda that keeps its own clock: JSON on standard output, one line per process.

gpu_job.py LIBCUDA LIBDIESEL STEPS WAIT_MS LAUNCHES [sync NAME] [copy_in_next] [copy_after NAME] [other_thread]
    [no_sync] [fork N] [wait_for_input] [unmarked] [unrecorded]

In a step, next() (marked as libdiesel's loaders do, except with unmarked) sleeps WAIT_MS. Then LAUNCHES kernels are
launched, and a synchronisation waits for them. stall: time in next(). sync: time in the synchronisations outside of next(). LIBCUDA "none": a job without a GPU, which computes instead. fork: N children do this, not the parent.
"""
import ctypes
import json
import os
import sys
import threading
import time


PROBED = "cuLaunchKernel", "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"


def value(words, name, default=None):
    return words[words.index(name) + 1] if name in words else default


def probed(function):
    """Returns whether the function begins with a breakpoint, perhaps behind an ENDBR64."""
    code = ctypes.string_at(ctypes.cast(function, ctypes.c_void_p).value, 5)
    return 0xcc in (code[0], code[4] if code.startswith(b"\xf3\x0f\x1e\xfa") else 0)


def await_probes(functions):
    """Does not sleep meanwhile: a job that naps time and again waits for data."""
    end = time.monotonic() + 30
    while not all(map(probed, functions)):
        if time.monotonic() > end:
            sys.exit("gpu_job.py: there are no probes after 30 s")
        os.sched_yield()
    time.sleep(0.02)  # the programs follow the breakpoints


def watch(cuda, stop):
    while not stop.is_set():
        cuda.cuEventSynchronize(0)
        time.sleep(0.002)


def train(cuda, diesel, steps, wait_s, launches, words):
    clock = {"stall": 0.0, "sync": 0.0, "copies": 0.0, "pid": os.getpid()}
    sync = cuda and getattr(cuda, value(words, "sync", "cuStreamSynchronize"))
    copy = cuda and "copy_after" in words and getattr(cuda, value(words, "copy_after"))
    mark = (lambda *_: None) if "unmarked" in words else diesel.diesel_mark
    begin = time.monotonic()
    for _ in range(steps):
        t0 = time.monotonic()
        mark(1, 0)
        if wait_s:
            time.sleep(wait_s)
        if "copy_in_next" in words:
            cuda.cuMemcpyHtoD_v2(0, 0, 4096)
        mark(2, 0)
        t1 = time.monotonic()
        if not cuda:
            sum(range(100000))
        for _ in range(launches if cuda else 0):
            cuda.cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
        t2 = time.monotonic()
        if cuda and "no_sync" not in words:
            sync(0)
        t3 = time.monotonic()
        if copy:
            copy(0, 0, 4096, 0)
        clock["stall"] += t1 - t0
        clock["sync"] += t3 - t2
        clock["copies"] += time.monotonic() - t3
    clock["wall"] = time.monotonic() - begin
    log = os.environ.get("DIESEL_STANDIN_LOG")
    if log and cuda:
        cuda.standin_log((log + ("-%d" % os.getpid() if "fork" in words else "")).encode())
    os.write(1, (json.dumps(clock) + "\n").encode())  # in one write: children of a fork share the pipe


def main():
    library, diesel_library, steps, wait_ms, launches, *words = sys.argv[1:]
    cuda = None if library == "none" else ctypes.CDLL(library)
    diesel = ctypes.CDLL(diesel_library)
    diesel.diesel_mark.argtypes = [ctypes.c_uint32, ctypes.c_uint64]
    arguments = (cuda, diesel, int(steps), float(wait_ms) / 1000, int(launches), words)
    if "wait_for_input" in words:
        if cuda:
            cuda.cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
        print("ready", flush=True)
        sys.stdin.readline()
    elif "unrecorded" not in words:
        called = {*PROBED, value(words, "sync"), value(words, "copy_after")} - {None}
        await_probes([*([] if "unmarked" in words else [diesel.diesel_mark]), *(getattr(cuda, name) for name in called if cuda)])
    stop = threading.Event()
    threads = []
    if "other_thread" in words:
        threads.append(threading.Thread(target=watch, args=(cuda, stop)))
        threads[0].start()
    children = []
    for _ in range(int(value(words, "fork", 0))):
        pid = os.fork()
        if not pid:
            time.sleep(1)  # a child has probes of its own, and its parent's breakpoints hide when they come
            train(*arguments)
            os._exit(0)
        children.append(pid)
    if not children:
        train(*arguments)
    for pid in children:
        os.waitpid(pid, 0)
    stop.set()
    for thread in threads:
        thread.join()


main()
