#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several writers of one dataset at once: all that each wrote is there in the end, and readers never see half of it.

    test_writers.py folder|redis|bucket
"""
import fcntl
import os
import signal
import struct
import sys
import threading
import time

import engines
import s3_support
from engines import SCRATCH
from test_versions import content

N = 40
# Where a writer is to be stopped while it writes, it has to write for a while.
LENGTH = 30_000 if sys.argv[1:] == ["bucket"] else 150_000


class RcloneBucket(engines.Bucket):
    def __init__(self):  # not juicefs
        engines.Folder.__init__(self)
        self.proxy = s3_support.Proxy(s3_support.rclone())
        self.env = s3_support.environment(self.proxy.port)

    def hold(self, is_held):
        """The first PUT of a path that is_held() waits: (reached, go on)."""
        reached, go_on = threading.Event(), threading.Event()
        handler = self.proxy.server.RequestHandlerClass
        original = handler.answer

        def answer(request):
            if is_held(request.path) and not reached.is_set():
                reached.set()
                assert go_on.wait(120)
            original(request)
        handler.do_PUT = answer
        return reached, go_on

    def meet(self, path_end):
        """Two PUTs of a path wait for each other."""
        barrier = threading.Barrier(2)
        handler = self.proxy.server.RequestHandlerClass
        original = handler.answer

        def answer(request):
            if request.path.endswith(path_end):
                barrier.wait(120)
            original(request)
        handler.do_PUT = answer


def make_half(name):
    """In a folder of its own, and a path that both halves have."""
    root = f"{SCRATCH}/{name}.src"
    os.makedirs(f"{root}/{name}", exist_ok=True)
    for i in range(N):
        with open(f"{root}/{name}/{i}", "w") as file:
            file.write(f"{name} {i} " * LENGTH)
    with open(root + "/both", "w") as file:
        file.write("by " + name)
    return root


def expected(name):
    return {f"{name}/{i}": f"{name} {i} " * LENGTH for i in range(N)}


def begin(engine, name):
    """A dataset of one sample, and two halves to append."""
    engine.new(name)
    for path in os.listdir(engines.SOURCE):
        os.remove(f"{engines.SOURCE}/{path}")
    engines.write("first", b"what was there")
    engine.pack()
    return make_half("left"), make_half("right")


def append(engine, source, *words):
    return engine.start("pack", "--append", "-c", "4M", *words, source, engine.dataset)


def ended(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, (process.args, out, err)
    return out, err


def is_locked(dataset):
    """As fcntl() tells of another process's lock."""
    for name, start, length in (("meta.redis", 0, 0), ("meta.db", 0x40000001, 1)):
        if os.path.exists(f"{dataset}/{name}"):
            with open(f"{dataset}/{name}", "rb") as file:
                asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
                return struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK
    return False


def stop_while_it_writes(engine, process):
    deadline = time.monotonic() + 120
    while not is_locked(engine.dataset):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGSTOP)
    assert is_locked(engine.dataset), "it was done before it could be stopped"


class Reader(threading.Thread):
    """Opens the newest version again and again."""

    def __init__(self, engine):
        super().__init__(daemon=True)
        self.engine, self.stopped, self.seen, self.wrong = engine, False, set(), None
        self.start()

    def run(self):
        while not self.stopped and not self.wrong:
            done = self.engine.start("ls", "-R", self.engine.dataset)
            out, err = done.communicate(timeout=300)
            paths = out.split()
            counts = tuple(sum(path.startswith(half) for path in paths) for half in ("left/", "right/"))
            # Each half comes with the path that both have.
            if done.returncode or not {*counts} <= {0, N} or len(paths) != 1 + sum(counts) + (sum(counts) > 0):
                self.wrong = (counts, len(paths), err)
            self.seen.add(counts)

    def end(self):
        self.stopped = True
        self.join()
        assert not self.wrong, self.wrong
        return self.seen


def check_both(engine):
    state, log = content(engine), engine.json("log", engine.dataset)["changes"]
    both = state.pop("both")
    assert state == {"first": "what was there", **expected("left"), **expected("right")}
    assert [change["version"] for change in log] == [3, 2, 1], log
    # Who came second has replaced what both wrote, and the log has it.
    assert both.removeprefix("by ") + ".src" in log[0]["command"], (both, log)
    assert [(change["added"], change["replaced"]) for change in log] == [(N, 1), (N + 1, 0), (1, 0)], log
    assert engine.ctl("verify", engine.dataset).startswith("sound:")


def test_halves(engine):
    sources = begin(engine, "halves")
    in_bucket = hasattr(engine, "meet")
    if in_bucket:
        engine.meet("fffffffffffffffd")  # the manifest of version 2
    reader = Reader(engine)
    first = append(engine, sources[0], "--wait", "100")
    if not in_bucket:
        stop_while_it_writes(engine, first)
    second = append(engine, sources[1], "--wait", "100")
    if not in_bucket:
        line = second.stderr.readline()
        assert "is being changed by " in line and "waiting for it, 100.0 s at most" in line and line.count("\n") == 1, line
        assert engine.json("stat", engine.dataset)["version"] == 1  # and it can be read meanwhile
        if os.path.exists(engine.dataset + "/meta.db"):
            assert f"by process {first.pid}:" in line, line
        os.killpg(first.pid, signal.SIGCONT)
    said = [ended(process)[1] for process in (first, second)]
    text = "another writer has published meanwhile; going on from its version"
    assert sum(text in err for err in said) == in_bucket and all(err.count("\n") <= 1 for err in said), said
    assert {(0, 0), (N, N)} >= reader.end() - {(N, 0), (0, N)}
    check_both(engine)


def test_held(engine):
    """A dataset of a folder that stays held: who does not wait long enough changes nothing, who does gets it."""
    sources = begin(engine, "held")
    in_sqlite = os.path.exists(engine.dataset + "/meta.db")
    engines.write("second", b"more")
    engine.pack("--append")
    holder = append(engine, sources[0])
    stop_while_it_writes(engine, holder)
    short = [engine.start(verb, "--wait", "0.3", engine.dataset, *words)
             for verb, *words in (("rm", "first"), ("purge",), ("rebuild",))[:1 if in_sqlite else 3]]  # SQLite waits for 5 s more
    patient = engine.start("rm", "--wait", "5m", engine.dataset, "first")
    for process in short:
        out, err = process.communicate(timeout=300)
        lines = err.splitlines()
        assert process.returncode == 1 and out == "" and len(lines) == 2, (process.args, out, err)
        assert "waiting for it, 3" in lines[0] and "another dieselctl" in lines[1], lines
    assert patient.poll() is None
    assert engine.json("stat", engine.dataset)["version"] == 2
    os.killpg(holder.pid, signal.SIGCONT)
    ended(holder)
    assert "removed 1 sample" in ended(patient)[0]
    assert content(engine) == {"second": "more", "both": "by left", **expected("left")}
    # Nobody holds it: nothing is said.
    assert ended(engine.start("purge", "--wait", "5m", engine.dataset))[1] == ""
    assert "a time such as 60 or 5m" in engine.start("rm", "--wait", "soon", engine.dataset, "x").communicate()[1]
    assert engine.ctl("verify", engine.dataset).startswith("sound:")


def test_suspended(engine):
    """A writer that sleeps right before it publishes, while another one publishes, a third removes its chunks, and a fourth a
    sample."""
    sources = begin(engine, "suspended")
    reached, go_on = engine.hold(lambda path: path.endswith(".meta"))
    sleeper = append(engine, sources[0])
    assert reached.wait(120)
    os.killpg(sleeper.pid, signal.SIGSTOP)
    engine.proxy.reset()
    assert ended(append(engine, sources[1]))[1] == ""
    assert not any(method == "DELETE" and "/chunks/" in path for method, path in engine.proxy.seen)
    engine.ctl("purge", engine.dataset)
    assert any(method == "DELETE" and "/chunks/" in path for method, path in engine.proxy.seen)
    engine.ctl("rm", engine.dataset, "first")
    go_on.set()
    os.killpg(sleeper.pid, signal.SIGCONT)
    err = ended(sleeper)[1]
    assert "another writer has published meanwhile" in err and err.count("\n") == 1, err
    assert content(engine) == {"both": "by left", **expected("left"), **expected("right")}
    log = engine.json("log", engine.dataset)["changes"]
    assert [(c["version"], c["added"], c["replaced"], c["deleted"]) for c in log] == \
        [(4, N, 1, 0), (3, 0, 0, 1), (2, N + 1, 0, 0), (1, 1, 0, 0)], log
    assert engine.ctl("verify", engine.dataset).startswith("sound:")


def test_adopted(engine):
    """Who is second keeps what it has packed, where this is newer than what was published."""
    sources = begin(engine, "adopted")
    reached, first_goes_on = engine.hold(lambda path: path.endswith(".meta"))
    first = append(engine, sources[0])
    assert reached.wait(120)
    reached, second_goes_on = engine.hold(lambda path: path.endswith(".meta"))
    second = append(engine, sources[1])
    assert reached.wait(120)
    first_goes_on.set()
    assert ended(first)[1] == ""
    engine.proxy.reset()
    second_goes_on.set()
    out, err = ended(second)
    assert "another writer has published" in err and f"{N + 1} were packed before another writer published" in out, (out, err)
    assert not [path for method, path in engine.proxy.seen if method == "PUT" and "/chunks/" in path]
    check_both(engine)


def main():
    name = sys.argv[1]
    engine = RcloneBucket() if name == "bucket" else engines.ENGINES[name]()
    try:
        test_halves(engine)
        if name == "bucket":
            test_suspended(engine)
            test_adopted(engine)
        else:
            test_held(engine)
    finally:
        engine.stop()
    assert not [entry for entry in os.listdir(SCRATCH + "/tmp") if entry.startswith("dieselctl-")]


if __name__ == "__main__":
    os.makedirs(engines.SOURCE, exist_ok=True)
    main()
