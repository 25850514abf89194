# SPDX-License-Identifier: Apache-2.0
"""Tests DataLoader(..., batches=Batches(device="cuda")) on a real dieseld, with a stand-in for CUDA (standin_cuda.py): which bytes arrive, and
when memory is released. Class OnAGpu tests the same on a GPU, where there is one."""
import collections
import contextlib
import functools
import gc
import json
import os
import sys
import time
import unittest
from unittest import mock

# Imported first: adds the path of the other modules, and skips where modules are missing.
from workers_support import N, WorkersCase, fails, first_bytes, flat, same, wait_until
import torch

import diesel_loader.torch as diesel
from diesel_loader.device import transfer
from standin_cuda import StandInCuda

try:
    import accelerate
except ImportError:
    accelerate = None

WORK = {"plain": {}, "in the trainer": {"transform": same, "num_workers": 0}, "workers": {"transform": same, "num_workers": 2}}


def picture(data):
    return data[:24].view(2, 3, 4).clone()


class Case(WorkersCase):
    def cuda(self, **options):
        """Installs a new stand-in in place of the previous one, whose loaders end."""
        self.check()
        self.standin = self.contexts.enter_context(StandInCuda(**options).installed())
        return self.standin

    def setUp(self):
        super().setUp()
        self.standin, self.contexts = None, contextlib.ExitStack()
        self.addCleanup(self.check)

    def check(self):
        while self.loaders:
            self.loaders.pop().close()
        gc.collect()
        self.contexts.close()
        if self.standin:
            self.assertEqual((self.standin.faults, self.standin.registered), ([], {}))

    def epoch(self, loader, standin):
        """Returns all batches of an epoch, read when it is over: copies are as late as possible."""
        batches = list(loader)
        standin.synchronize()
        return flat(batches)

    def loader_at(self, epoch, name="equal", **options):
        loader = self.loader(name, **options)
        loader.set_epoch(epoch)
        return loader

    def want(self, name="equal", epoch=0, **options):
        return flat(self.loader_at(epoch, name, **options))


class WithAStandInForCuda(Case):
    def test_bytes_and_order_are_those_without_a_device(self):
        for what, work in WORK.items():
            for name in ("equal", "ragged"):
                with self.subTest(what, name=name):
                    options = {**work, **({"transform": first_bytes} if work and name == "ragged" else {})}
                    standin = self.cuda()
                    loader = self.loader(name, device="cuda", **options)
                    for epoch in range(2):
                        self.assertEqual(self.epoch(loader, standin), self.want(name, epoch, **options))
                    self.assertEqual(standin.pageable, 0)

    def test_slots_are_registered_once_and_batches_copied_in_place(self):
        standin = self.cuda()
        loader = self.loader(device="cuda:1")
        for epoch in range(3):
            self.assertEqual(self.epoch(loader, standin), self.want(epoch=epoch))
        self.assertEqual(standin.n_registered, 1)
        self.assertEqual(standin.in_place, 3 * len(loader))
        self.assertEqual(standin.staged, 3 * len(loader))  # one copy per batch for the labels
        self.assertEqual(set(standin.handed_over), {(2, torch.device("cuda", 1))})

    def test_buffers_of_workers_are_registered_when_they_come_again(self):
        standin = self.cuda()
        loader = self.loader(device="cuda", transform=same, num_workers=2)
        for epoch in range(4):
            self.assertEqual(self.epoch(loader, standin), self.want(epoch=epoch))
        self.assertGreater(standin.in_place, standin.staged)
        self.assertLess(standin.n_registered, standin.in_place)
        loader._stream._transfer.release()  # next() does the same
        self.assertTrue(standin.registered)
        self.assertTrue(all(map(loader._stream._stream.mapping_at, standin.registered)))

    def test_channels_last_stays_so(self):
        standin = self.cuda()
        options = {"transform": picture, "memory_format": torch.channels_last, "num_workers": 2}
        loader = self.loader(device="cuda", **options)
        for _ in range(4):
            batches = list(loader)
            standin.synchronize()
        self.assertTrue(all(data.is_contiguous(memory_format=torch.channels_last) for data, _ in batches))
        self.assertEqual([data.tolist() for data, _ in batches], [data.tolist() for data, _ in self.loader_at(3, **options)])
        self.assertGreater(standin.in_place, standin.staged)

    def test_what_is_registered_is_unregistered_before_it_is_unmapped(self):
        for work in ({}, {"transform": same, "num_workers": 2}, {"transform": same, "num_workers": 2, "persistent_workers": False}):
            with self.subTest(**work):
                standin = self.cuda()
                loader = self.loader(device="cuda", **work)
                for _ in range(3):
                    self.epoch(loader, standin)
                    standin.look_at_mappings()
                loader.close()
                self.assertEqual(standin.registered, {})

    def test_a_loader_that_is_dropped_leaves_nothing_registered(self):
        for batches in (3, 100):
            standin = self.cuda(late=10**9)
            loader = self.loader(device="cuda")
            for _, _ in zip(range(batches), loader):
                pass
            self.assertTrue(standin.registered)
            self.loaders.remove(loader)
            del loader, _
            gc.collect()
            self.assertEqual((standin.registered, len(standin.queue)), ({}, 0))
        wait_until("the end of the sessions", lambda: not diesel.served.status()["sessions"])

    def test_a_lease_lasts_until_the_copy_is_done(self):
        standin = self.cuda(late=10**9)
        loader = self.loader(device="cuda")
        batches = iter(loader)
        next(batches)
        self.assertGreaterEqual(loader._stream.session.n_held, 1)
        list(batches)
        self.assertLessEqual(loader._stream.session.n_held, transfer.MAX_UNDER_WAY)
        loader.close()
        self.assertEqual(len(standin.queue), 0)

    def test_leases_go_back_when_the_copies_are_done(self):
        standin = self.cuda(late=0)
        loader = self.loader(device="cuda")
        for _ in loader:
            self.assertLessEqual(loader._stream.session.n_held, transfer.MAX_UNDER_WAY)
        standin.synchronize()
        self.assertEqual(loader._stream.session.n_held, 0)

    def test_the_stand_in_notices_a_lease_that_goes_too_early(self):
        """Otherwise the tests above would prove nothing."""
        class Forgetful(transfer.Copies):
            sources = property(lambda _: [], lambda _, value: None)

        with mock.patch.object(transfer, "Copies", Forgetful):
            standin = self.cuda()
            loader, epoch, wrong = self.loader(device="cuda"), 0, False
            while not wrong and epoch < 100:
                got = []
                for batch in loader:
                    got.append(batch)
                    time.sleep(0.002)
                standin.synchronize()
                wrong = flat(got) != self.want(epoch=epoch)
                epoch += 1
        self.assertTrue(wrong)

    def test_memory_that_cannot_be_registered_is_copied_with_one_warning(self):
        for what in ("plain", "workers"):
            with self.subTest(what):
                standin = self.cuda(refuses="out of memory")
                with self.assertLogs("diesel_loader", "WARNING") as logged:
                    loader = self.loader(device="cuda", **WORK[what])
                    for epoch in range(3):
                        self.assertEqual(self.epoch(loader, standin), self.want(epoch=epoch))
                self.assertEqual(len(logged.output), 1)
                self.assertIn("(out of memory)", logged.output[0])
                self.assertEqual((standin.in_place, standin.pageable), (0, 0))

    def test_read_only_memory_alone_is_refused(self):
        standin = self.cuda(refuses=("operation not supported", None))
        with self.assertLogs("diesel_loader", "WARNING") as logged:
            self.assertEqual(self.epoch(self.loader(device="cuda"), standin), self.want())
        self.assertEqual(len(logged.output), 1)
        loader = self.loader(device="cuda", **WORK["workers"])
        for epoch in range(3):
            self.assertEqual(self.epoch(loader, standin), self.want(epoch=epoch))
        self.assertGreater(standin.in_place, 0)

    def test_without_any_memory_to_lock_the_trainer_waits(self):
        standin = self.cuda(refuses="out of memory", no_memory=True)
        with self.assertLogs("diesel_loader", "WARNING") as logged:
            self.assertEqual(self.epoch(self.loader(device="cuda"), standin), self.want())
        self.assertEqual(len(logged.output), 2)
        self.assertEqual((standin.in_place, standin.staged), (0, 0))

    def test_a_caller_that_keeps_all_batches(self):
        standin = self.cuda(late=1)
        loader = self.loader(device="cuda", batch_size=4)
        self.assertEqual(self.epoch(loader, standin), self.want(batch_size=4))

    def test_bucket_by_length_and_padding(self):
        for workers in (0, 2):
            standin = self.cuda()
            options = {"bucket_by_length": 4, "collate_fn": diesel.pad_collate, "num_workers": workers}
            got = list(self.loader("ragged", device="cuda", **options))
            standin.synchronize()
            for ours, theirs in zip(got, self.loader("ragged", **options), strict=True):
                self.assertTrue(all(map(torch.equal, ours, theirs)))

    def test_views_of_unequal_length(self):
        standin = self.cuda()
        self.assertEqual(self.epoch(self.loader("ragged", device="cuda", bucket_by_length=True), standin),
                         self.want("ragged", bucket_by_length=True))

    def test_mixture(self):
        standin = self.cuda()

        def mixed(**options):
            return diesel.Mixture([self.loader(**options), self.loader(transform=same, num_workers=1, **options)], seed=4)

        self.assertEqual(self.epoch(mixed(device="cuda"), standin), flat(mixed()))

    def test_any_structure_of_a_batch(self):
        standin = self.cuda()
        loader = self.loader(device="cuda", collate_fn=structure, num_workers=1)
        got, want = next(iter(loader)), next(iter(self.loader(collate_fn=structure, num_workers=1)))
        standin.synchronize()
        self.assertIs(type(got), Named)
        self.assertIs(type(got.packed), type(want.packed))
        self.assertIs(got.twice[0], got.twice[1])
        self.assertEqual((got.text, got.nothing, type(got.ordered)), ("text", None, collections.OrderedDict))
        self.assertTrue(torch.equal(got.ordered["deep"][0], want.ordered["deep"][0]))
        self.assertTrue(torch.equal(got.twice[0], want.twice[0]))
        self.assertTrue(torch.equal(got.turned, want.turned))
        self.assertTrue(torch.equal(got.sparse.to_dense(), want.sparse.to_dense()))


    @unittest.skipUnless(accelerate, "needs accelerate")
    def test_accelerate_leaves_what_is_there(self):
        standin = self.cuda()
        loader = accelerate.Accelerator(cpu=True).prepare(self.loader(device="cuda"))
        with mock.patch.object(StandInCuda, "hand_over", lambda self, tensors, *_: given.append([t.data_ptr() for t in tensors])):
            given, got = [], []
            for batch in loader:
                got.append(batch)
        standin.synchronize()
        self.assertEqual(given, [[t.data_ptr() for t in batch] for batch in got])
        self.assertEqual(flat(got), self.want())


class Position(Case):
    """With a stand-in for CUDA: a prefetched batch does not count as handed out."""

    def test_a_state_is_of_what_was_handed_out(self):
        want = self.want()
        for what, work in WORK.items():
            for given in (1, 2, 10, 18, 19):
                with self.subTest(what, given=given):
                    standin = self.cuda()
                    loader, got = self.loader(device="cuda", **work), []
                    for _, batch in zip(range(given), loader):
                        got.append(batch)
                    state = json.loads(json.dumps(loader.state_dict()))
                    self.assertEqual(state["samples"], sum(len(labels) for _, labels in got))
                    loader.close()
                    loader = self.loader(device="cuda", **work)
                    loader.load_state_dict(state)
                    got += loader
                    standin.synchronize()
                    self.assertEqual(flat(got), want)

    def test_an_iterator_that_is_dropped_and_set_epoch(self):
        for what, work in WORK.items():
            with self.subTest(what):
                standin = self.cuda()
                loader = self.loader(device="cuda", **work)
                for given in (1, 3, 18):
                    for _, _ in zip(range(given), loader):
                        pass
                    loader.set_epoch(0)
                    self.assertEqual(self.epoch(loader, standin), self.want())
                    self.assertEqual(self.epoch(loader, standin), self.want(epoch=1))
                    loader.set_epoch(0)

    def test_several_iterators(self):
        standin = self.cuda()
        loader = self.loader(device="cuda")
        first, second = iter(loader), iter(loader)
        batches = [[], []]
        for one, other in zip(first, second):
            batches[0].append(one)
            batches[1].append(other)
        standin.synchronize()
        host = self.loader()
        self.assertTrue([flat(some) for some in batches] == [flat(host), flat(host)])

    def test_close_in_the_middle(self):
        for what, work in WORK.items():
            with self.subTest(what):
                standin = self.cuda()
                loader = self.loader(device="cuda", **work)
                batches = iter(loader)
                got = [next(batches) for _ in range(5)]
                loader.close()
                got += batches
                standin.synchronize()
                self.assertEqual(flat(got), self.want())
                del loader, batches

    def test_close_by_a_signal_handler_in_the_middle_of_a_batch(self):
        for at in range(1, 12):
            with self.subTest(at=at):
                standin, n = self.cuda(late=10**9), 0
                loader = self.loader(device="cuda")
                batches, got = iter(loader), []

                def strike(name, at=at, loader=loader):
                    nonlocal n
                    n += name == "copy"
                    if name == "copy" and n == at:
                        loader.close()

                standin.strike = strike
                for batch in batches:
                    got.append(batch)
                    time.sleep(0.002)
                standin.synchronize()
                self.assertEqual(flat(got), self.want())
                del loader, batches, strike
                standin.strike = None

    def test_errors_come_when_their_turn_does(self):
        for workers in (0, 2):
            with self.subTest(workers=workers):
                outcomes = []
                for device in (None, "cuda"):
                    standin = self.cuda()
                    loader = self.loader(device=device, transform=functools.partial(fails_at, self.marked()), num_workers=workers)
                    outcomes.append(outcome_of(loader, standin))
                self.assertEqual(*outcomes)
                self.assertIn("ZeroDivisionError", [what for what, _ in outcomes[0]])

    def marked(self):
        """Returns the bytes of the first sample of batch 7."""
        return self.want()[7 * 16][0]

    def test_all_batches_fail(self):
        standin = self.cuda()
        loader = self.loader(device="cuda", transform=fails, num_workers=0)
        self.assertEqual({what for what, _ in outcome_of(loader, standin)}, {"ZeroDivisionError"})

    def test_no_memory_on_the_device(self):
        standin = self.cuda()
        loader, left = self.loader(device="cuda"), [7]

        def strike(name):
            left[0] -= name == "copy"
            if name == "copy" and not left[0]:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")

        standin.strike, got = strike, []
        batches, errors = iter(loader), 0
        while True:
            try:
                got.append(next(batches))
            except StopIteration:
                break
            except torch.cuda.OutOfMemoryError:
                errors += 1
        standin.synchronize()
        self.assertEqual((flat(got), errors), (self.want(), 1))

    def test_ctrl_c_at_any_line(self):
        """In the part for the device: iteration continues after the batches that were handed out."""
        for what, work in WORK.items():
            with self.subTest(what):
                standin = self.cuda()
                want, struck, at = self.want(batch_size=64, **work), True, 0
                loader = self.loader(device="cuda", batch_size=64, **work)
                while struck:
                    at += 5 if what == "plain" else 31
                    loader.set_epoch(0)
                    got, struck = interrupted(loader, at)
                    standin.synchronize()
                    self.assertTrue(flat(got) == want, f"line {at}")

    def test_the_log_has_what_was_handed_out(self):
        self.cuda()
        path = self.folder / "log.jsonl"
        loader = self.loader(device="cuda", record=path)
        for _, _ in zip(range(5), loader):
            pass
        loader.close()
        logged = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual([line["batch"] for line in logged], list(range(5)))
        self.assertEqual([len(line["samples"]) for line in logged], [16] * 5)

    def test_a_fork_leaves_the_parents_memory_alone(self):
        standin = self.cuda()
        loader = self.loader(device="cuda")
        batches = iter(loader)
        got = [next(batches) for _ in range(3)]
        pid = os.fork()
        if not pid:
            status = 1
            try:
                before = dict(standin.registered), len(standin.queue)
                loader.close()
                del batches
                gc.collect()
                status = 0 if before == (standin.registered, len(standin.queue)) else 3
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        got += batches
        standin.synchronize()
        self.assertEqual(flat(got), self.want())


class Argument(Case):
    def test_host_memory(self):
        for device in (None, "cpu", torch.device("cpu")):
            loader = self.loader(device=device)
            self.assertIsNone(loader.device)
            self.assertEqual(len(flat(loader)), N)

    def test_a_gpu(self):
        self.cuda()
        for device, want in (("cuda", "cuda"), ("cuda:1", "cuda:1"), (1, "cuda:1"), (torch.device("cuda", 0), "cuda:0")):
            self.assertEqual(self.loader(device=device).device, torch.device(want))

    def test_no_such_device(self):
        self.cuda()
        for device in ("cuda:2", 2, -1, "mps", "tpu", 1.5, True, [], torch.device("meta")):
            with self.subTest(device=device), self.assertRaisesRegex(ValueError, "^device.*$") as caught:
                self.loader(device=device)
            self.assertNotIn("\n", str(caught.exception))

    def test_no_gpu(self):
        self.cuda(devices=0)
        for device in ("cuda", 0):
            with self.assertRaisesRegex(RuntimeError, "^device=.*finds no GPU.*$"):
                self.loader(device=device)

    def test_not_with_a_sampler_of_ones_own(self):
        self.cuda()
        for options in ({"sampler": [1, 2, 3], "shuffle": None}, {"batch_size": None}):
            with self.assertRaisesRegex(ValueError, "^device applies only to batches that dieseld serves"):
                self.loader(device="cuda", **options)

    def test_pin_memory_changes_nothing(self):
        standin = self.cuda()
        self.assertEqual(self.epoch(self.loader(device="cuda", pin_memory=True), standin), self.want())

    def test_the_current_device_is_asked_for_at_each_epoch(self):
        standin = self.cuda()
        loader = self.loader(device="cuda")
        for current in (0, 1):
            standin.current = current
            self.epoch(loader, standin)
            self.assertEqual(standin.handed_over[-1][1], torch.device("cuda", current))


@unittest.skipUnless(torch.cuda.is_available(), "needs a GPU")
class OnAGpu(WorkersCase):
    """Tests without a stand-in."""

    def test_bytes_arrive(self):
        for what, work in WORK.items():
            with self.subTest(what):
                loader, plain = self.loader(device="cuda", **work), self.loader(**work)
                for _ in range(3):
                    batches = list(loader)
                    self.assertTrue(all(tensor.is_cuda for batch in batches for tensor in batch))
                    self.assertEqual(flat([tensor.cpu() for tensor in batch] for batch in batches), flat(plain))

    def test_while_the_device_is_busy(self):
        loader, plain = self.loader(device="cuda"), self.loader()
        load, sums = torch.randn(4096, 4096, device="cuda"), []
        for data, _ in loader:
            load = (load @ load).clamp(-1, 1)
            sums.append(data.long().sum())
        self.assertEqual([int(each) for each in sums], [int(data.long().sum()) for data, _ in plain])


Named = collections.namedtuple("Named", "packed twice text nothing ordered turned sparse")


def structure(samples):
    tensor = torch.stack([sample for sample, _ in samples])
    rows = [tensor[0][:3].float(), tensor[1][:2].float()]
    return Named(torch.nn.utils.rnn.pack_sequence(rows), [tensor, tensor], "text", None,
                 collections.OrderedDict(deep=(tensor[:2].clone(), 3)), tensor.t(), tensor.float().to_sparse())


def fails_at(marked, data):
    if data.numpy().tobytes() == marked:
        1 // 0
    return data.clone()


def outcome_of(loader, standin):
    """Returns [(name of an error or "batch", samples in the state then)], and the bytes of the batches at the end."""
    outcome, got, batches = [], [], iter(loader)
    for _ in range(100):
        try:
            got.append(next(batches))
            outcome.append(("batch", loader.state_dict()["samples"]))
        except StopIteration:
            break
        except Exception as error:
            outcome.append((type(error).__name__, loader.state_dict()["samples"]))
    standin.synchronize()
    return outcome + [("bytes", data) for data, _ in flat(got)]


def interrupted(loader, at):
    """Returns the batches of an epoch with Ctrl-C before the at-th line of diesel_loader.device, counted from the epoch's beginning, and
    whether it struck."""
    folder, n, got, batches = os.path.dirname(transfer.__file__), 0, [], None

    def strike(frame, event, _):
        nonlocal n
        n += event == "line"
        if event == "line" and n == at:
            raise KeyboardInterrupt
        return strike

    while True:
        sys.settrace(lambda frame, event, _: strike if os.path.dirname(frame.f_code.co_filename) == folder else None)
        try:
            batches = iter(loader) if batches is None else batches
            for batch in batches:
                got.append(batch)
            return got, n >= at
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)


if __name__ == "__main__":
    unittest.main(verbosity=2)
