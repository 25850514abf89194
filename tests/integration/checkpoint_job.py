# SPDX-License-Identifier: Apache-2.0
"""A real training loop that writes checkpoints in one of several ways, and keeps its own clock (JSON on
standard output).

checkpoint_job.py KIND FOLDER STEPS EVERY MEGABYTES
"""
import json
import mmap
import os
import sys
import threading
import time

import torch


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def direct(state, folder, n):
    torch.save(state, os.path.join(folder, "last.pt"))


def renamed(state, folder, n):
    """As careful programs do: a temporary file, fsync, rename, fsync of the folder."""
    path = os.path.join(folder, "careful.pt")
    with open(path + ".tmp", "wb") as f:
        torch.save(state, f)
        f.flush()
        os.fsync(f.fileno())
    os.rename(path + ".tmp", path)
    sync(folder)


def sharded(state, folder, n):
    keys = sorted(state)
    for i in range(4):
        torch.save({k: state[k] for k in keys[i::4]}, os.path.join(folder, "shard-%d.pt" % i))


def mapped(state, folder, n):
    """As safetensors' and numpy's mapped files are written."""
    tensors = [t.numpy() for t in state.values()]
    size = sum(t.nbytes for t in tensors)
    with open(os.path.join(folder, "mapped.bin"), "w+b") as f:
        f.truncate(size)
        with mmap.mmap(f.fileno(), size) as view:
            at = 0
            for t in tensors:
                view[at : at + t.nbytes] = t.tobytes()
                at += t.nbytes
            view.flush()


def threaded(state, folder, n):
    copy = {k: v.clone() for k, v in state.items()}
    thread = threading.Thread(target=renamed, args=(copy, folder, n))
    thread.start()
    return thread


def forked(state, folder, n):
    """A child writes, the trainer waits for it."""
    pid = os.fork()
    if not pid:
        tensors = [t.numpy() for t in state.values()]  # no torch in a forked child: its threads are gone
        with open(os.path.join(folder, "child.bin"), "wb") as f:
            for t in tensors:
                f.write(t.tobytes())
            f.flush()
            os.fsync(f.fileno())
        os._exit(0)
    os.waitpid(pid, 0)


def main():
    kind, folder, steps, every, megabytes = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    state = {"layer%d" % i: torch.randn(megabytes * 1024 * 1024 // 4 // 8) for i in range(8)}
    weight = torch.randn(256, 256, requires_grad=True)
    log = open(os.path.join(folder, "events.log"), "ab", buffering=0)
    clock = {"stall": [], "pid": os.getpid(), "bytes": sum(t.numel() * 4 for t in state.values())}
    running = []
    for step in range(steps):
        (weight @ weight).sum().backward()
        log.write(b"step %06d loss 0.123456\n" % step * 20)  # as event writers do: some 100 bytes a step
        if kind == "synced_log":
            os.fsync(log.fileno())
        if kind in ("none", "synced_log") or (step + 1) % every:
            continue
        for thread in running:
            thread.join()
        begin = time.monotonic()
        thread = globals()[kind](state, folder, step)
        running = [thread] if thread else []
        clock["stall"].append(time.monotonic() - begin)
    for thread in running:
        thread.join()
    print(json.dumps(clock), flush=True)


main()
