#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests several writers of one dataset at once: in the end the dataset has the samples of each, and readers never see half of a change.

    test_writers.py folder|redis|bucket
"""
import fcntl
import io
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import threading
import time

import engines
import s3_support
from engines import SCRATCH
from test_versions import content

N = 40
# Writers that a test stops during writing need enough data for that.
LENGTH = 30_000 if sys.argv[1:] == ["bucket"] else 150_000


class RcloneBucket(engines.Bucket):
    def __init__(self):  # not juicefs
        engines.Folder.__init__(self)
        self.proxy = s3_support.Proxy(s3_support.rclone())
        self.env = s3_support.environment(self.proxy.port)

    def hold(self, is_held, method="PUT"):
        """Makes the first PUT of a path for which is_held() holds wait. Returns (reached, go on)."""
        reached, go_on = threading.Event(), threading.Event()
        handler = self.proxy.server.RequestHandlerClass
        original = handler.answer

        def answer(request):
            if is_held(request.path) and not reached.is_set():
                reached.set()
                assert go_on.wait(120)
            original(request)
        setattr(handler, "do_" + method, answer)
        return reached, go_on

    def meet(self, path_end):
        """Makes two PUTs of a path wait for each other."""
        barrier = threading.Barrier(2)
        handler = self.proxy.server.RequestHandlerClass
        original = handler.answer

        def answer(request):
            if request.path.endswith(path_end):
                barrier.wait(120)
            original(request)
        handler.do_PUT = answer


def make_half(name):
    """Makes samples in a folder of their own, and one path that both halves have."""
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
    """Makes a dataset of one sample, and two halves to append."""
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


def is_locked(dataset, byte=0):
    """Returns whether another process has the lock, by fcntl(). A publisher locks the second byte."""
    try:
        with open(f"{dataset}/.writer", "rb") as file:
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
            return struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK
    except FileNotFoundError:
        return False


class Slow:
    """A writer that gets an archive of these files, and waits for the second half of it."""

    def __init__(self, engine, source):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            for path in sorted(pathlib.Path(source).rglob("*")):
                tar.add(path, path.relative_to(source), recursive=False)
        self.process = subprocess.Popen([s3_support.DIESELCTL, "pack", "--append", "-c", "4M", "-", engine.dataset], env=engine.env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        half = len(data.getvalue()) // 2
        self.pid, self.rest = self.process.pid, data.getvalue()[half:]
        self.process.stdin.write(data.getvalue()[:half])
        self.process.stdin.flush()
        deadline = time.monotonic() + 120
        while is_locked(engine.dataset, 1) or not is_locked(engine.dataset):
            assert self.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.001)

    def end(self):
        """Returns (status, output)."""
        out, err = self.process.communicate(self.rest, timeout=300)
        return self.process.returncode, out.decode(), err.decode()


class Reader(threading.Thread):
    """Opens the newest version repeatedly."""

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
            # Each half includes the path that both have.
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
    # The second writer has replaced the path that both wrote, and the log shows it.
    assert both.removeprefix("by ") + ".src" in log[0]["command"], (both, log)
    assert [(change["added"], change["replaced"]) for change in log] == [(N, 1), (N + 1, 0), (1, 0)], log
    assert engine.ctl("verify", engine.dataset).startswith("sound:")


def test_halves(engine):
    sources = begin(engine, "halves")
    in_bucket = hasattr(engine, "meet")
    if in_bucket:
        engine.meet("fffffffffffffffd")  # the manifest of version 2
    reader = Reader(engine)
    first = append(engine, sources[0], "--wait", "100") if in_bucket else Slow(engine, sources[0])
    second = append(engine, sources[1], "--wait", "100")
    if not in_bucket:
        line = second.stderr.readline()
        assert "is being changed by " in line and re.search(r"for up to (100|9\d)\.\d s", line) and line.count("\n") == 1, line
        assert engine.json("stat", engine.dataset)["version"] == 1  # and it can be read meanwhile
        assert f"by process {first.pid};" in line, line
        status, out, err = first.end()
        assert status == 0 and err == "", (out, err)
    said = [ended(process)[1] for process in (first, second)[not in_bucket:]]
    text = "another writer has published meanwhile; continuing from its version"
    assert sum(text in err for err in said) == in_bucket and all(err.count("\n") <= 1 for err in said), said
    assert {(0, 0), (N, N)} >= reader.end() - {(N, 0), (0, N)}
    check_both(engine)


def test_held(engine):
    """The dataset's folder stays locked: a writer that does not wait long enough changes nothing, and one that does gets the lock."""
    sources = begin(engine, "held")
    engines.write("second", b"more")
    engine.pack("--append")
    holder = Slow(engine, sources[0])
    short = [engine.start(verb, "--wait", "0.3", engine.dataset, *words)
             for verb, *words in (("rm", "first"), ("purge",), ("rebuild",))]
    patient = engine.start("rm", "--wait", "5m", engine.dataset, "first")
    for process in short:
        out, err = process.communicate(timeout=300)
        lines = err.splitlines()
        assert process.returncode == 1 and out == "" and len(lines) == 2, (process.args, out, err)
        assert re.search(r"for up to \d+ ms", lines[0]) and "another dieselctl" in lines[1], lines
    assert patient.poll() is None
    assert engine.json("stat", engine.dataset)["version"] == 2
    assert holder.end()[0] == 0
    assert "removed 1 sample" in ended(patient)[0]
    assert content(engine) == {"second": "more", "both": "by left", **expected("left")}
    # Without another lock holder, nothing is printed.
    assert ended(engine.start("purge", "--wait", "5m", engine.dataset))[1] == ""
    assert "a time such as 60 or 5m" in engine.start("rm", "--wait", "soon", engine.dataset, "x").communicate()[1]
    assert engine.ctl("verify", engine.dataset).startswith("sound:")


def test_fenced(engine):
    """Others proceed without a writer that shows no sign of life. When it wakes up, it reports that, and nothing is lost."""
    engine.env["DIESEL_WRITER_LEASE"] = "1"
    sources = begin(engine, "fenced")
    sleeper = Slow(engine, sources[0])
    os.killpg(sleeper.pid, signal.SIGSTOP)
    # A command that does not wait long enough for that changes nothing.
    out, err = engine.start("rm", "--wait", "0.5", engine.dataset, "first").communicate()
    assert f"another dieselctl (process {sleeper.pid})" in err.splitlines()[1], err
    said = ended(append(engine, sources[1], "--wait", "60"))[1].splitlines()
    assert len(said) == 2 and f"no sign of life from process {sleeper.pid} for 1.0 s; continuing without that writer" in said[1], said
    state = {"first": "what was there", "both": "by right", **expected("right")}
    assert content(engine) == state
    os.killpg(sleeper.pid, signal.SIGCONT)
    status, out, err = sleeper.end()
    assert status == 1 and out == "" and err.count("\n") == 1, (status, out, err)
    assert "another dieselctl took over" in err and "This one published nothing: run the command again" in err, err
    assert content(engine) == state and engine.ctl("verify", engine.dataset).startswith("sound:")
    # Others wait for a living writer, however long it takes.
    alive = Slow(engine, sources[0])
    patient = engine.start("rm", "--wait", "60", engine.dataset, "first")
    time.sleep(2.5)
    assert patient.poll() is None
    status, out, err = alive.end()
    assert status == 0 and err == "", (out, err)
    assert "removed 1 sample" in ended(patient)[0]
    assert content(engine) == {"both": "by left", **expected("left"), **expected("right")}
    assert engine.ctl("verify", engine.dataset).startswith("sound:")
    del engine.env["DIESEL_WRITER_LEASE"]


def test_suspended(engine):
    """A writer sleeps right before it publishes, while another one publishes, a third removes its chunks, and a fourth a sample."""
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
    """The second writer keeps its packed chunks where these are newer than the published ones."""
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


NOW = ("--keep", "1", "--older-than", "0")


def test_rebuild_during_a_write(engine):
    """rebuild publishes nothing that another writer is about to publish, and that writer then continues."""
    sources = begin(engine, "rebuilt")
    reached, go_on = engine.hold(lambda path: path.endswith(".meta"))
    writer = append(engine, sources[0])
    assert reached.wait(120)
    told = engine.ctl("rebuild", engine.dataset)
    assert "rebuilt version 2: 1 sample in 1 chunk" in told and " that belong to no version" in told, told
    assert content(engine) == {"first": "what was there"}
    go_on.set()
    assert "another writer has published meanwhile" in ended(writer)[1]
    assert content(engine) == {"first": "what was there", "both": "by left", **expected("left")}
    assert engine.ctl("verify", engine.dataset).startswith("sound:")
    # Only rebuild --all-chunks adopts the chunks of a killed writer.
    reached, go_on = engine.hold(lambda path: path.endswith(".meta"))
    killed = append(engine, sources[1])
    assert reached.wait(120)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    go_on.set()
    shutil.rmtree(SCRATCH + "/tmp")  # a killed writer leaves its copy
    os.mkdir(SCRATCH + "/tmp")
    told = engine.json("rebuild", engine.dataset)
    assert told["samples"] == N + 2 and told["foreign_chunks"] >= 2, told
    assert engine.json("rebuild", "--all-chunks", engine.dataset)["samples"] == 2 * N + 2
    assert engine.ctl("verify", engine.dataset).startswith("sound:")


def test_purge_during_a_write(engine):
    """purge removes the chunks of a working writer, which packs them again. A purge that sleeps after its own commit removes nothing that a
    rebuild has published meanwhile."""
    sources = begin(engine, "purged")
    ended(append(engine, sources[0]))
    engine.ctl("rm", engine.dataset, *(f"left/{i}" for i in range(0, N, 3)))
    state = {path: data for path, data in {"first": "what was there", **expected("left")}.items()
             if path == "first" or int(path[5:]) % 3}
    reached, go_on = engine.hold(lambda path: path.endswith(".meta"))
    writer = append(engine, sources[1])
    assert reached.wait(120)
    mine = {path for method, path in engine.proxy.seen if method == "PUT" and "/chunks/" in path}
    engine.proxy.reset()
    asleep, wake_up = engine.hold(lambda path: "/chunks/" in path, "DELETE")
    purge = engine.start("purge", *NOW, engine.dataset)
    assert asleep.wait(120)
    os.killpg(purge.pid, signal.SIGSTOP)
    assert " that belong to no version" in engine.ctl("rebuild", engine.dataset)
    assert content(engine) == {**state, "both": "by left"}
    wake_up.set()
    os.killpg(purge.pid, signal.SIGCONT)
    assert "chunks removed" in ended(purge)[0]
    assert content(engine) == {**state, "both": "by left"}
    assert engine.ctl("verify", engine.dataset).startswith("sound:")
    gone = {path for method, path in engine.proxy.seen if method == "DELETE"}
    assert mine & gone, (mine, gone)
    go_on.set()
    assert "another writer has published meanwhile" in ended(writer)[1]
    assert content(engine) == {**state, "both": "by right", **expected("right")}
    assert engine.ctl("verify", engine.dataset).startswith("sound:")


def test_packed_again(engine):
    """Chunks that a purge is about to remove are not mistaken for those of an interrupted pack of the same files."""
    sources = begin(engine, "again")
    ended(append(engine, sources[0]))
    engine.ctl("rm", "-r", engine.dataset, "left", "both")
    asleep, wake_up = engine.hold(lambda path: "/chunks/" in path, "DELETE")
    purge = engine.start("purge", *NOW, engine.dataset)
    assert asleep.wait(120)
    ended(append(engine, sources[0]))
    wake_up.set()
    assert "chunks removed" in ended(purge)[0]
    assert content(engine) == {"first": "what was there", "both": "by left", **expected("left")}
    told = engine.start("verify", engine.dataset).communicate()
    assert told[0].startswith("sound:") and told[1] == "", told


def test_purge_asleep(engine):
    """Suspends a purge before it publishes, while another writer does: the purge reports that, and changes nothing."""
    sources = begin(engine, "asleep")
    ended(append(engine, sources[0]))
    engine.ctl("rm", engine.dataset, *(f"left/{i}" for i in range(0, N, 3)))
    reached, go_on = engine.hold(lambda path: path.endswith(".meta"))
    sleeper = engine.start("purge", *NOW, engine.dataset)
    assert reached.wait(120)
    os.killpg(sleeper.pid, signal.SIGSTOP)
    ended(append(engine, sources[1]))
    state = content(engine)
    go_on.set()
    os.killpg(sleeper.pid, signal.SIGCONT)
    out, err = sleeper.communicate(timeout=300)
    assert sleeper.returncode == 1 and out == "" and err.count("\n") == 1 and "changed by another" in err, (out, err)
    assert content(engine) == state and len(state) == 2 * N + 2 - len(range(0, N, 3))
    assert engine.ctl("verify", engine.dataset).startswith("sound:")
    engine.ctl("purge", *NOW, engine.dataset)
    assert content(engine) == state
    assert engine.ctl("verify", engine.dataset).startswith("sound:")


def main():
    name = sys.argv[1]
    engine = RcloneBucket() if name == "bucket" else engines.ENGINES[name]()
    try:
        test_halves(engine)
        if name == "bucket":
            test_suspended(engine)
            test_adopted(engine)
            test_rebuild_during_a_write(engine)
            test_purge_during_a_write(engine)
            test_packed_again(engine)
            test_purge_asleep(engine)
        else:
            test_held(engine)
            test_fenced(engine)
    finally:
        engine.stop()
    assert not [entry for entry in os.listdir(SCRATCH + "/tmp") if entry.startswith("dieselctl-")]


if __name__ == "__main__":
    os.makedirs(engines.SOURCE, exist_ok=True)
    main()
