#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that only one thread at a time and one process use an iterator, and that Ctrl-C leaves it consistent at any moment."""
import collections
import json
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

# Imported first: adds the path of the other modules, and skips where modules are missing.
from workers_support import WorkersCase, flat, same
from forked import Script
import diesel_loader.torch as diesel
from diesel_loader import batch_log

MODES = {"none": {}, "inline": {"num_workers": 0, "transform": same}, "workers": {"num_workers": 2, "transform": same},
         "bucketed": {"num_workers": 2, "transform": same, "bucket_by_length": 4}}
ANOTHER = "in use by another thread: give each thread its own iterator"


def stuck(data):
    time.sleep(1000)
    return data


def count(batches):
    return collections.Counter(flat(batches))


class Gate:
    """A transform that waits in mid-epoch."""

    def __init__(self):
        self.reached, self.open, self.n = threading.Event(), threading.Event(), 0

    def __call__(self, data):
        self.n += 1
        if self.n == 40:
            self.reached.set()
            self.open.wait()
        return data.clone()


class Threads(WorkersCase):
    def test_one_at_a_time(self):
        """The second caller gets one line, and nothing happens to the first."""
        loader, got = self.loader(num_workers=0, transform=(gate := Gate())), []
        batches = iter(loader)
        thread = threading.Thread(target=lambda: got.extend(batches))
        thread.start()
        gate.reached.wait()
        for use in (lambda: next(batches), loader.close):
            with self.assertRaisesRegex(RuntimeError, ANOTHER):
                use()
        others = iter(loader)  # this thread's own iterator
        self.assertEqual(len(list(others)), len(loader))
        gate.open.set()
        thread.join()
        self.assertEqual(flat(got), flat(self.loader(num_workers=0, transform=same)))

    def test_all_at_once(self):
        """Threads take from one iterator, and try again: each sample comes once."""
        want = count(self.loader())
        for mode, options in MODES.items():
            with self.subTest(mode=mode):
                batches, got, said = iter(self.loader(batch_size=4, **options)), [], set()

                def take(batches=batches, got=got, said=said):
                    while True:
                        try:
                            got.append(next(batches))
                        except StopIteration:
                            return
                        except RuntimeError as error:
                            said.add(str(error))
                            time.sleep(0.0005)

                threads = [threading.Thread(target=take) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self.assertTrue(count(got) == want, mode)
                self.assertLessEqual({text.partition(":")[0] for text in said}, {"this iterator is in use by another thread"})

    def test_iterators_that_begin_at_once(self):
        """Each iterator has an epoch of its own, just as PyTorch's loader gives each an order of its own."""
        alone = self.loader()
        want = sorted(flat(alone) for _ in range(4))
        for mode in ("none", "inline", "workers"):
            with self.subTest(mode=mode):
                loader, barrier, got = self.loader(**MODES[mode]), threading.Barrier(4), []

                def iterate(loader=loader, barrier=barrier, got=got):
                    barrier.wait()
                    batches = iter(loader)
                    barrier.wait()
                    got.append(flat(batches))

                threads = [threading.Thread(target=iterate) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self.assertTrue(sorted(got) == want, mode)

    def test_an_iterator_that_begins_while_another_ends(self):
        """The stream of the one that is ending is not lent to the other."""
        want = self.loader()
        want = [flat(want) for _ in range(2)]
        for mode in MODES:
            with self.subTest(mode=mode):
                loader, ending, go_on, got = self.loader(**MODES[mode]), threading.Event(), threading.Event(), []

                def end(ending=ending, go_on=go_on):
                    ending.set()
                    go_on.wait()

                thread = threading.Thread(target=lambda loader=loader, got=got: got.append(flat(loader)))
                with mock.patch.object(loader, "_end_epoch", end):
                    thread.start()
                    ending.wait()
                    try:
                        other = iter(loader)
                    finally:
                        go_on.set()
                        thread.join()
                    got.append(flat(other))
                self.assertTrue(got == want)

    def test_iterators_of_one_loader_have_epochs_of_their_own(self):
        """This makes pairs for mixing: zip(loader, loader)."""
        want = self.loader()
        want = [flat(want) for _ in range(4)]
        for mode in MODES:
            with self.subTest(mode=mode):
                loader = self.loader(**MODES[mode])
                for epoch in (0, 2):
                    pairs = list(zip(loader, loader))
                    self.assertTrue([flat(batches) for batches in zip(*pairs)] == want[epoch:epoch + 2])

    def test_an_iterator_is_of_the_epoch_that_is_told_before_its_first_batch(self):
        want = self.loader()
        want = [flat(want) for _ in range(4)]
        state = self.loader()
        next(iter(state))
        state = state.state_dict()
        for mode in MODES:
            with self.subTest(mode=mode):
                loader = self.loader(**MODES[mode])
                batches = iter(loader)
                loader.set_epoch(2)
                self.assertEqual(loader.state_dict()["epoch"], 2)
                self.assertTrue(flat(batches) == want[2])
                batches = iter(loader)
                loader.load_state_dict(state)
                self.assertTrue(flat(batches) == want[0][16:])
                batches = iter(loader)
                next(batches)
                loader.set_epoch(3)  # the epoch has begun, so this applies to the next one
                self.assertTrue(flat(batches) == want[1][16:])
                self.assertTrue(flat(loader) == want[3])

    def test_one_that_was_left_while_others_begin(self):
        want = flat(self.loader())
        for mode in MODES:
            with self.subTest(mode=mode):
                loader = self.loader(**MODES[mode])
                for _ in range(3):
                    kept = iter(loader)
                    next(kept)
                    next(iter(loader))
                    loader.set_epoch(0)
                    got = flat(loader)
                    self.assertEqual(got if mode != "bucketed" else sorted(got), want if mode != "bucketed" else sorted(want))


class Reentrance(WorkersCase):
    def test_a_function_of_the_loader(self):
        for use in ("next", "iter"):
            calls = []

            def transform(data, use=use, calls=calls):
                calls.append(data)
                if len(calls) == 40:
                    next(batches) if use == "next" else iter(loader)
                return data.clone()

            loader = self.loader(num_workers=0, transform=transform)
            batches, got = iter(loader), []
            with self.assertRaisesRegex(RuntimeError, "the same thread" if use == "next" else r"inside next\(\) of the same loader"):
                for batch in batches:
                    got.append(batch)
            got += batches
            self.assertEqual(len(got), len(loader) - 1)

    def test_a_signal_handler(self):
        want = flat(self.loader())
        for mode in ("none", "inline", "workers"):
            with self.subTest(mode=mode):
                batches, said, taken = iter(self.loader(batch_size=4, **MODES[mode])), [], []

                def handle(*_, batches=batches, said=said, taken=taken):
                    try:
                        taken.append(next(batches))  # between two calls it is allowed
                    except RuntimeError as error:
                        said.append(str(error))
                    except StopIteration:
                        pass

                self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, handle))
                signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
                got = list(batches)
                signal.setitimer(signal.ITIMER_REAL, 0)
                self.assertEqual(sorted(flat(got) + flat(taken)), sorted(want))
                for text in said:
                    self.assertIn("the same thread", text)


    def test_a_signal_handler_that_closes(self):
        loader = self.loader(num_workers=1, transform=stuck)
        batches = iter(loader)
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, lambda *_: loader.close()))
        signal.setitimer(signal.ITIMER_REAL, 1)
        with self.assertRaisesRegex(RuntimeError, "closed the loader in the middle of next"):
            next(batches)


class Struck:
    """Raises KeyboardInterrupt once, where a signal can raise it: after the nth call into C, or at the first instruction of a Python
    function, of the loader's own files."""

    FILES = ("loader.py", "stream.py", "batch_log.py")

    def __init__(self, n):
        self.left, self.where = n, None

    def __call__(self, frame, event, _):
        if event in ("call", "c_return") and os.path.basename(frame.f_code.co_filename) in self.FILES:
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                self.where = f"{frame.f_code.co_name}:{frame.f_lineno} {event}"
                raise KeyboardInterrupt


class CtrlC(WorkersCase):
    def test_at_every_call(self):
        options = {"batch_size": 100}
        want = flat(self.loader(**options))
        for mode in ("none", "inline"):
            loader, n, struck = self.loader(**options, **MODES[mode]), 0, None
            while struck is None or struck.where:
                n, struck = n + 1, Struck(n + 1)
                loader.set_epoch(0)
                got, batches, ended = [], iter(loader), False
                sys.setprofile(struck)
                while not ended:
                    try:
                        for batch in batches:
                            got.append(batch)
                        ended = True
                    except KeyboardInterrupt:
                        pass
                sys.setprofile(None)
                self.assertTrue(flat(got) == want, f"{mode}: {struck.where}")
            self.assertGreater(n, 50)

    def test_when_the_epoch_has_just_ended(self):
        """The epoch has ended all the same, and the next one belongs to another iterator."""
        for mode, options in MODES.items():
            with self.subTest(mode=mode):
                loader = self.loader(**options)
                batches = iter(loader)
                for _ in range(len(loader)):
                    next(batches)
                real = type(loader._stream).next

                def struck(stream, real=real):
                    self.assertIsNone(real(stream))
                    raise KeyboardInterrupt
                with mock.patch.object(type(loader._stream), "next", struck), self.assertRaises(KeyboardInterrupt):
                    next(batches)
                for _ in range(2):
                    self.assertRaises(StopIteration, next, batches)
                self.assertEqual(len(list(loader)), len(loader))

    def test_the_batch_log_has_what_was_handed_out(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for goes_on in (True, False):
            n, struck = 0, None
            while struck is None or struck.where:
                n, struck = n + 1, Struck(n + 1)
                path = folder / f"{goes_on}{n}.jsonl"
                loader = diesel.DataLoader(self.sets["equal"], 100, shuffle=True, batches=diesel.Batches(record=path, return_ids=True))
                got, batches, ended = [], iter(loader), False
                with mock.patch.object(batch_log, "FLUSH_S", 0):
                    sys.setprofile(struck)
                    while not ended:
                        try:
                            for batch in batches:
                                got.append(batch[2].tolist())
                            ended = True
                        except KeyboardInterrupt:
                            ended = not goes_on
                    sys.setprofile(None)
                loader.close()
                lines = [json.loads(line)["samples"] for line in path.read_text().splitlines()]
                self.assertTrue(lines == got, f"{struck.where}: {len(lines)} lines, {len(got)} batches")
            self.assertGreater(n, 50)


FORKS = """
import os, sys
import diesel_loader.torch as diesel
from torch_support import grouped
from workers_support import flat
from test_torch_iterators import MODES

path, mode, *ways = sys.argv[1:]
loader = diesel.DataLoader(path, 4, shuffle=True, seed=3, **grouped(MODES[mode]))
batches = iter(loader)
got = [next(batches) for _ in range(5)]
for how in ways:
    child = os.fork()
    if child == 0:
        try:
            next(batches)
        except RuntimeError as error:
            print(error)
        if how == "iterates":
            loader.set_epoch(0)
            print(len(flat(loader)))
        if how == "closes":
            loader.close()
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
got += batches
loader.set_epoch(0)
print(flat(got) == flat(loader))
"""


class Processes(WorkersCase):
    def test_a_forked_child(self):
        ways = ("leaves it", "iterates", "closes")
        for mode in MODES:
            with self.subTest(mode=mode):
                script = Script(FORKS, self.sets["equal"], mode, *ways)
                out, err = script.communicate()
                self.assertEqual((script.returncode, err), (0, ""))
                lines = out.splitlines()
                for how in ways:
                    self.assertRegex(lines.pop(0), r"this iterator belongs to process \d+, which this one was forked from: call iter\(\)")
                    if how == "iterates":
                        self.assertEqual(lines.pop(0), "300")
                    self.assertEqual(lines.pop(0), "7")
                self.assertEqual(lines, ["True"])


if __name__ == "__main__":
    unittest.main()
