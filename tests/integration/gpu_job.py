# SPDX-License-Identifier: Apache-2.0
"""A training loop on the stand-in libcuda, that keeps its own clock: JSON on standard output.

gpu_job.py LIBCUDA LIBDIESEL STEPS WAIT_MS LAUNCHES [sync NAME] [copy_in_next] [other_thread] [no_sync]

A step: next() (marked as libdiesel's loaders do) sleeps WAIT_MS; LAUNCHES kernels are launched; a
synchronisation waits for them. stall: what next() took; sync: what the synchronisations outside of it took.
"""
import ctypes
import json
import os
import sys
import threading
import time


def main():
    cuda = ctypes.CDLL(sys.argv[1])
    diesel = ctypes.CDLL(sys.argv[2])
    diesel.diesel_mark.argtypes = [ctypes.c_uint32, ctypes.c_uint64]
    steps, wait_s, launches = int(sys.argv[3]), float(sys.argv[4]) / 1000, int(sys.argv[5])
    words = sys.argv[6:]
    sync = getattr(cuda, words[words.index("sync") + 1] if "sync" in words else "cuStreamSynchronize")
    time.sleep(0.3)  # probes are set within 50 ms; a real driver takes longer to initialize
    clock = {"stall": 0.0, "sync": 0.0, "pid": os.getpid()}
    stop = threading.Event()
    if "other_thread" in words:
        def watchdog():
            while not stop.is_set():
                cuda.cuEventSynchronize(0)
                time.sleep(0.002)

        thread = threading.Thread(target=watchdog)
        thread.start()
    begin = time.monotonic()
    for _ in range(steps):
        t0 = time.monotonic()
        diesel.diesel_mark(1, 0)
        if wait_s:
            time.sleep(wait_s)
        if "copy_in_next" in words:
            cuda.cuMemcpyHtoD_v2(0, 0, 4096)
        diesel.diesel_mark(2, 0)
        t1 = time.monotonic()
        for _ in range(launches):
            cuda.cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
        t2 = time.monotonic()
        if "no_sync" not in words:
            sync(0)
        clock["stall"] += t1 - t0
        clock["sync"] += time.monotonic() - t2
    clock["wall"] = time.monotonic() - begin
    stop.set()
    if "other_thread" in words:
        thread.join()
    log = os.environ.get("DIESEL_STANDIN_LOG")
    if log:
        cuda.standin_log(log.encode())
    print(json.dumps(clock), flush=True)


main()
