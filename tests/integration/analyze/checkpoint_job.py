# SPDX-License-Identifier: Apache-2.0
"""A real training loop that writes checkpoints in one of several ways, and keeps its own clock (JSON on
standard output).

checkpoint_job.py KIND FOLDER STEPS EVERY MEGABYTES
"""
import concurrent.futures
import io
import json
import mmap
import multiprocessing
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
    """Saves as careful programs do: a temporary file, fsync, rename, fsync of the folder."""
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
    """Saves through a mapping, as safetensors and numpy do."""
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


written = []  # when each save of a thread was complete


def threaded(state, folder, n):
    copy = {k: v.clone() for k, v in state.items()}

    def write():
        renamed(copy, folder, n)
        written.append(time.monotonic())

    thread = threading.Thread(target=write)
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


def in_pieces(data, path):
    """Saves slowly: each piece is on the disk before the next one."""
    with open(path, "wb") as f:
        for at in range(0, len(data), 4 << 20):
            f.write(data[at : at + (4 << 20)])
            f.flush()
            os.fsync(f.fileno())


class Async:
    """Saves like PyTorch 2's distributed.checkpoint.async_save: the trainer copies the state and continues. A thread writes the copy, or
    has a process write it that gets it through shared memory. A save waits for the previous one."""

    def __init__(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(1)
        self.before = None
        self.child = None

    def wait(self):
        if self.before:
            self.before.result()

    def save(self, work, *arguments):
        self.before = self.pool.submit(work, *arguments)

    def end(self):
        self.wait()
        self.pool.shutdown()
        if self.child:
            self.pipe.send(None)
            self.child.join()

    def start_child(self, size):
        self.memory = mmap.mmap(-1, size)
        self.pipe, theirs = multiprocessing.Pipe()
        self.child = multiprocessing.get_context("fork").Process(target=self.serve, args=(theirs,))
        self.child.start()

    def serve(self, pipe):
        while (path := pipe.recv()) is not None:
            in_pieces(memoryview(self.memory), path)
            pipe.send("written")

    def ask(self, path):
        self.pipe.send(path)
        self.pipe.recv()


background = Async()


def async_thread(state, folder, n):
    background.wait()
    copy = io.BytesIO()
    torch.save(state, copy)
    background.save(in_pieces, copy.getbuffer(), os.path.join(folder, "async-%d.pt" % (n % 2)))


def async_process(state, folder, n):
    background.wait()
    copy = io.BytesIO()
    torch.save(state, copy)
    data = copy.getbuffer()
    background.memory[: len(data)] = data
    background.save(background.ask, os.path.join(folder, "async-%d.pt" % (n % 2)))


def checkpointer(state, folder, n):
    own.save()


def own_checkpointer(state, folder, steps):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../client/python"))
    os.environ.setdefault("DIESEL_LIB", os.path.join(os.environ.get("DIESEL_BIN", "build/release/bin"), "../lib"))
    from diesel_loader.checkpoint import Checkpointer
    return Checkpointer(os.path.join(folder, "own"), every=steps + 1, state=lambda: state)


def main():
    kind, folder, steps, every, megabytes = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    state = {"layer%d" % i: torch.randn(megabytes * 1024 * 1024 // 4 // 8) for i in range(8)}
    weight = torch.randn(256, 256, requires_grad=True)
    log = open(os.path.join(folder, "events.log"), "ab", buffering=0)
    clock = {"stall": [], "ends": [time.monotonic()], "saves": [], "pid": os.getpid(), "bytes": sum(t.numel() * 4 for t in state.values())}
    if kind == "direct":  # starts from a checkpoint that takes several sampling intervals to load
        torch.save([state["layer0"].repeat(32)], os.path.join(folder, "first.pt"))
        clock["loaded"], clock["load"] = 4 * clock["bytes"], time.monotonic()
        torch.load(os.path.join(folder, "first.pt"))
        clock["load"] = time.monotonic() - clock["load"]
    running = []
    if kind == "async_process":
        background.start_child(clock["bytes"] + (1 << 20))
    if kind == "checkpointer":
        global own
        own = own_checkpointer(state, folder, steps)
    clock["begin"] = time.monotonic()
    for step in range(steps):
        if step:
            clock["ends"].append(time.monotonic())
        (weight @ weight).sum().backward()
        log.write(b"step %06d loss 0.123456\n" % step * 20)  # like event writers: about 100 bytes per step
        if kind == "synced_log":
            os.fsync(log.fileno())
        if kind == "checkpointer":
            own.step()
        if kind in ("none", "synced_log") or (step + 1) % every:
            continue
        for thread in running:
            thread.join()
        clock["saves"].append(step)
        begin = time.monotonic()
        thread = globals()[kind](state, folder, step)
        running = [thread] if thread else []
        clock["stall"].append(time.monotonic() - begin)
    clock["ends"].append(time.monotonic())
    clock["wall"] = time.monotonic() - clock["begin"]
    for thread in running:
        thread.join()
    clock["last"] = time.monotonic()
    background.end()
    if kind == "checkpointer":
        own.close()
    clock["last"] = time.monotonic() - clock["last"]
    clock["written"] = written
    print(json.dumps(clock), flush=True)


main()
