#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests misuse of a loader: Ctrl-C at any moment, an end in mid-epoch, threads, notebooks, two copies."""
import atexit
import collections
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

# Imported first: adds the path of the other modules, and skips where modules are missing.
from torch_support import ROOT, grouped
from forked import Script
from common.processes import is_alive
from workers_support import WorkersCase, flat, same, wait_until
import diesel_loader.torch as diesel

MODES = {"none": {}, "inline": {"num_workers": 0, "transform": same}, "workers": {"num_workers": 2, "transform": same}}
N_INTERRUPTS = 25


class Case(WorkersCase):
    def python(self, *arguments, seconds=120, text=""):
        """Runs Python in a process of its own. Returns (exit status, standard output, standard error)."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, *arguments], input=text, capture_output=True, text=True, env=environment,
                              timeout=seconds, start_new_session=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def script(self, *words):
        """Runs a script in a fork of Python. Returns the same."""
        script = Script(*words)
        out, err = script.communicate()
        return script.returncode, out, err

    def job(self, *arguments):
        return self.script(__file__, "job", self.sets["equal"], *arguments)


class CtrlC(Case):
    def test_each_sample_is_handed_out_once(self):
        """Whenever Ctrl-C strikes, next() raises KeyboardInterrupt or returns the batch, and iteration continues after it."""
        for mode in MODES:
            with self.subTest(mode=mode):
                status, out, err = self.job("interrupted", mode, "1")
                self.assertEqual(status, 0, err)
                result = json.loads(out)
                self.assertEqual(result["wrong"], [])
                self.assertGreaterEqual(result["interrupts"], N_INTERRUPTS)

    def test_one_ends_the_program(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                status, _, err = self.job("one", mode)
                self.assertEqual(status, -signal.SIGINT, err)
                self.assertEqual(err.count("KeyboardInterrupt"), 1, err)
                self.assertNotIn("ignored", err)


class End(Case):
    def test_in_the_middle_of_an_epoch(self):
        """The process leaves no message, process or session behind."""
        for mode in MODES:
            for how in ("falls off", "exits", "keeps a batch", "in a thread", "in busy threads", "in a cycle", "at exit", "at once"):
                with self.subTest(mode=mode, how=how):
                    status, out, err = self.job("ends", mode, how)
                    self.assertEqual((status, err), (3 if how in ("exits", "at once") else 0, ""))
                    wait_until("the end", lambda: not any(map(is_alive, map(int, out.split()))))
        wait_until("the end of the sessions", lambda: not diesel.served.status()["sessions"])

    def test_a_daemon_thread_in_the_loader_reaches_the_point_where_it_stops(self):
        """Exit waits for it longer than for a thread outside of the loader: the sleep is a busy machine."""
        status, out, err = self.script(f"""
import atexit, threading, time
entered, left = threading.Event(), []
atexit.register(lambda: print(len(left)))  # runs after the loader's own
import diesel_loader.torch
def transform(x):
    entered.set()
    time.sleep(1)
    left.append(x)
    return x
loader = diesel_loader.torch.DataLoader({str(self.sets["equal"])!r}, 1, transform=transform, num_workers=0)
threading.Thread(target=lambda: list(loader), daemon=True).start()
entered.wait()
""")
        self.assertEqual((status, out, err), (0, "1\n", ""))


class Threads(Case):
    def test_a_loader_in_each(self):
        want = collections.Counter(flat(self.loader(num_workers=0, transform=same)))
        for mode, options in MODES.items():
            got = {}

            def iterate(number, options=options, got=got):
                got[number] = collections.Counter(flat(diesel.DataLoader(self.sets["equal"], 16, shuffle=True, seed=number,
                                                                         **grouped(options))))

            threads = [threading.Thread(target=iterate, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(got, {i: want for i in range(4)}, mode)

    def test_made_in_one_and_iterated_in_another(self):
        for context in ("fork", "spawn", "forkserver"):
            loader, got = self.loader(num_workers=1, transform=same, multiprocessing_context=context), []
            thread = threading.Thread(target=lambda: got.extend(loader))
            thread.start()
            thread.join()
            self.assertEqual(len(got), len(loader), context)

    def test_another_version_was_installed_meanwhile(self):
        """Workers that are not forked would use the new version, and the trainer the old one."""
        script = ("import diesel_loader.torch, diesel_loader.native as native\n"
                  "if __name__ == '__main__':\n"
                  "    native.VERSION = '0.0.9'\n"
                  "    loader = diesel_loader.torch.DataLoader({path!r}, 16, transform=len, num_workers=1, collate_fn=list,\n"
                  "                                            multiprocessing_context={context!r})\n"
                  "    print(sum(len(batch) for batch in loader))\n")
        for context in ("fork", "spawn", "forkserver"):
            status, out, err = self.script(script.format(path=str(self.sets["equal"]), context=context))
            if context == "fork":
                self.assertEqual((status, err), (0, ""))
                continue
            self.assertEqual((status, out), (1, ""), err)
            self.assertRegex(err, r"(?m)^diesel_loader [\d.]+ was installed while this job runs with 0\.0\.9: restart the job$")
            self.assertIn("see standard error above", err)


class Notebook(Case):
    """Tests a __main__ that is no file, and cells that run in any thread."""

    CELL = """
import sys, threading
import diesel_loader.torch
def transform(x): return x[:4].clone()
class Transform:
    def __call__(self, x): return x[:4].clone()
def cell():
    for what in transform, Transform(), lambda x: x[:4].clone(), len:
        loader = diesel_loader.torch.DataLoader({path!r}, 16, transform=what, num_workers={workers!r}, collate_fn=list,
                                                multiprocessing_context={context!r})
        try:
            print(sum(len(batch) for batch in loader))
        except Exception as error:
            print(type(error).__name__, error)
thread = threading.Thread(target=cell)
thread.start()
thread.join()
"""
    NAMES = ("transform", "Transform", "<lambda>")

    def cell(self, context, workers=1):
        return self.CELL.format(path=str(self.sets["equal"]), context=context, workers=workers)

    def assert_said(self, said, context):
        """Checks for one line for each function that another Python cannot find, and none of multiprocessing's."""
        for name, line in zip(self.NAMES, said):
            self.assertRegex(line, f"{name} cannot be imported by worker processes started with '{context}', because .* put "
                                   'it in a module, or use multiprocessing_context="fork"$')

    def test_a_main_without_a_file(self):
        for context in ("fork", "spawn", "forkserver"):
            with self.subTest(context=context):
                status, out, err = self.script(self.cell(context))
                self.assertEqual((status, err), (0, ""))
                lines = out.splitlines()
                self.assertEqual(lines.pop(), "300")  # a function of a module works
                if context == "fork":
                    self.assertEqual(lines, ["300"] * 3)
                else:
                    self.assert_said([line.partition("RuntimeError ")[2] for line in lines], context)

    def test_a_number_that_is_the_daemons(self):
        status, out, err = self.script(self.cell("spawn", "auto"))
        self.assertEqual((status, out), (0, "300\n" * 4), err)
        self.assert_said([line.rpartition("cannot be started: ")[2] for line in err.splitlines()], "spawn")
        self.assertEqual(len(err.splitlines()), 3, err)

    def test_a_program_that_is_piped_in(self):
        status, out, err = self.python("-", text=self.cell("spawn"))
        self.assertEqual((status, err), (0, ""))
        for line in out.splitlines():
            self.assertRegex(line, "this program is not a file .<stdin>.. Save it to a file, or use")

    def test_what_was_typed_after_a_program(self):
        program = self.folder / "empty.py"
        program.write_text("import sys\n")
        typed = self.cell("spawn").replace("\ndef cell", "\n\ndef cell").replace("\nclass", "\n\nclass").replace("\nthread =", "\n\nthread =")
        status, out, err = self.python("-q", "-i", str(program), text=typed)
        self.assertEqual((status, len(out.splitlines())), (0, 4), err)
        self.assert_said([line.partition("RuntimeError ")[2] for line in out.splitlines()], "spawn")
        self.assertEqual(out.splitlines()[-1], "300")


class Copies(Case):
    def test_two_of_the_package_and_the_library(self):
        copies = []
        for name in ("one", "two"):
            folder = self.folder / name
            shutil.copytree(ROOT / "client/python/diesel_loader", folder / "diesel_loader", dirs_exist_ok=True)
            for file in ("libdiesel.so", "_abi.py"):
                shutil.copy(os.path.join(os.environ["DIESEL_LIB"], file), folder / "diesel_loader")
            copies.append(str(folder))
        program = f"""
import os, sys
del os.environ["DIESEL_LIB"]
loaders = []
for folder in {copies!r}:
    for name in [name for name in sys.modules if name.startswith("diesel_loader")]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    import diesel_loader.torch
    assert diesel_loader.__file__.startswith(folder)
    for options in ({{}}, {{"num_workers": 1, "transform": bytes}}):
        loaders.append(diesel_loader.torch.DataLoader({str(self.sets["equal"])!r}, 16, shuffle=True, seed=1,
                                                      collate_fn=None if not options else list, **options))
lengths = [sum(1 for _ in zip(*map(iter, loaders)))]
print(lengths, len(loaders[0]))
"""
        status, out, err = self.script(program)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out, "[19] 19\n")


def job(dataset, what, mode, *more):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    loader = diesel.DataLoader(dataset, 4, shuffle=True, seed=1, **grouped(MODES[mode]))
    if what == "interrupted":
        print(json.dumps(interrupted(loader, random.Random(int(more[0])))))
    elif what == "one":
        batches = iter(loader)
        next(batches)
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        while True:
            for _ in loader:
                pass
    elif what == "ends":
        ends(loader, *more)


def interrupted(loader, rng):
    """Runs epochs with interrupts at random moments. Returns the number of interrupts, and the epochs with other samples than all."""
    want = collections.Counter(flat(loader))
    armed, over, n, wrong = False, threading.Event(), 0, []

    def strike(number, frame):
        # Only inside the `try` below, and once in it: an interrupt in this test's own lines proves nothing about the loader.
        nonlocal armed
        if armed:
            armed = False
            signal.default_int_handler(number, frame)

    def shoot():
        while not over.is_set():
            time.sleep(rng.random() * 0.05)
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, strike)
    shooter = threading.Thread(target=shoot)
    shooter.start()
    epoch = 0
    while n < N_INTERRUPTS:
        epoch += 1
        got, batches, ended = [], iter(loader), False
        while not ended:
            try:
                armed = n < N_INTERRUPTS
                for batch in batches:
                    got.append(batch)
                ended = True
                armed = False
            except KeyboardInterrupt:
                n += 1
        if collections.Counter(flat(got)) != want:
            wrong.append(epoch)
    over.set()
    shooter.join()
    return {"interrupts": n, "wrong": wrong}


def ends(loader, how):
    batches = iter(loader)
    batch = next(batches)
    stream = loader._stream
    if stream._pool:
        wait_until("a worker", lambda: (stream._pool.collect(0), stream.n_workers)[1])
        print(stream._pool._process.pid, *[worker.pid for worker in stream._pool._workers.values() if worker.pid], flush=True)
    if how == "exits":
        sys.exit(3)
    if how == "at once":
        os._exit(3)
    if how == "at exit":
        atexit.register(lambda: list(batches))
    if how == "in a cycle":
        gc.disable()
        sys.kept = [batches, loader]
        sys.kept.append(sys.kept)
    if how == "keeps a batch":
        sys.kept = batch, batches
    if how == "in a thread":
        threading.Thread(target=lambda: [time.sleep(0.01) for _ in batches], daemon=True).start()
        time.sleep(0.05)
    if how == "in busy threads":
        for _ in range(3):
            threading.Thread(target=lambda: [None for _ in range(10000) for _ in loader], daemon=True).start()
        time.sleep(0.2)


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        job(*sys.argv[2:])
    else:
        unittest.main()
