# SPDX-License-Identifier: Apache-2.0
"""Worker processes of diesel_loader on a real dieseld: their number changes, what is delivered does not."""
import gc
import itertools
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import support  # noqa: E402
from serving import Daemon, pack  # noqa: E402

try:
    import numpy
    import torch

    import diesel_loader.torch as diesel
    from diesel_loader import DamagedData
    from diesel_loader.session import Session
except ImportError as error:
    support.skip(f"needs {error.name}")

N_CLASSES, PER_CLASS, EQUAL = 4, 75, 2048
N = N_CLASSES * PER_CLASS
CYCLE = (0, 2, 1, 3, 3, 0, 1, 0, 0, 2, 2, 2)


def make_tree(folder, sizes, seed=11):
    rng = random.Random(seed)
    for c in range(N_CLASSES):
        (folder / f"class{c}").mkdir(parents=True)
        for i in range(PER_CLASS):
            (folder / f"class{c}" / f"{i:03d}.bin").write_bytes(rng.randbytes(sizes(rng)))


def wish(*numbers):
    """The daemon's wish, another one at every look; at first, and then for ever the last."""
    left = list(numbers)
    return mock.patch.object(Session, "wanted_workers", property(lambda _: left.pop(0) if len(left) > 1 else left[0]))


def cycling(every=3):
    """A wish that changes for ever."""
    looks = itertools.count()
    return mock.patch.object(Session, "wanted_workers",
                             property(lambda _: CYCLE[next(looks) // every % len(CYCLE)]))


def flat(batches):
    return [(item.numpy().tobytes(), label) for data, labels in batches for item, label in zip(data, labels.tolist())]


def same(data):
    return data.clone()


def first_bytes(data):
    """A tensor of one shape, whatever the sample's."""
    out = torch.zeros(16, dtype=torch.uint8)
    out[:len(data)] = data[:16]
    return out


def with_pid(data):
    return torch.tensor([os.getpid(), int(data[0])])


def noisy(data):
    """Random augmentation with all three generators."""
    return torch.tensor([random.random(), numpy.random.rand(), torch.rand(()).item(), float(data[0])],
                        dtype=torch.float64)


def pids(batches):
    return {pid for data, _ in batches for pid in data[:, 0].tolist()}


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[0] != "Z"


def wait_until(what, condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen")


class WorkersCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        make_tree(cls.folder / "equal", lambda rng: EQUAL)
        make_tree(cls.folder / "ragged", lambda rng: rng.randint(1, 6000))
        cls.sets = {name: pack(cls.folder / name, cls.folder / f"{name}.diesel", "--chunk-size", "4M")
                    for name in ("equal", "ragged")}
        cls.daemon = cls.enterClassContext(Daemon(cls.folder))

    def setUp(self):
        self.loaders = []
        self.addCleanup(lambda: [loader.close() for loader in self.loaders])

    def loader(self, name="equal", **options):
        loader = diesel.DataLoader(self.sets[name], **{"batch_size": 16, "shuffle": True, "seed": 3, **options})
        self.loaders.append(loader)
        return loader


class OrderTest(WorkersCase):
    def test_a_changing_number_changes_neither_order_nor_content(self):
        for name, transform in (("equal", same), ("ragged", first_bytes)):
            for options in ({}, {"shuffle": False, "drop_last": True}, {"rank": 1, "world_size": 3}):
                with self.subTest(name=name, **options):
                    want = self.loader(name, transform=transform, num_workers=0, **options)
                    changing = self.loader(name, transform=transform, **options)
                    with cycling():
                        for _ in range(4):
                            self.assertEqual(flat(changing), flat(want))

    def test_random_augmentation_is_the_same_whoever_does_it(self):
        for mode in ("batch", "sample"):
            none = self.loader(transform=noisy, num_workers=0, random_state=mode)
            want = [[data for data, _ in none] for _ in range(2)]
            self.assertNotEqual(want[0][0].tolist(), want[1][0].tolist())
            for options in ({"num_workers": 1}, {"num_workers": 3}, {}):
                loader = self.loader(transform=noisy, random_state=mode, **options)
                with cycling(), self.subTest(mode=mode, **options):
                    for epoch in want:
                        got = [data for data, _ in loader]
                        self.assertTrue(all(map(torch.equal, got, epoch)))
                        self.assertEqual(len(got), len(epoch))

    def test_by_sample_batch_size_and_ranks_do_not_matter_either(self):
        def of(**options):
            return sorted(row for data, _ in self.loader(transform=noisy, random_state="sample", shuffle=False,
                                                         **options) for row in data.tolist())
        want = of(num_workers=0)
        self.assertEqual(of(num_workers=0, batch_size=7), want)
        self.assertEqual(sorted(of(num_workers=2, rank=0, world_size=2) + of(num_workers=0, rank=1, world_size=2)),
                         want)

    def test_the_trainers_own_generators_are_left_alone(self):
        def draw():
            return random.random(), numpy.random.rand(), torch.rand(()).item()
        for workers in (0, 2):
            random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
            want = [draw(), draw()]
            random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
            got = [draw()]
            list(self.loader(transform=noisy, num_workers=workers))
            self.assertEqual(got + [draw()], want)

    def test_resume_in_mid_epoch_while_the_number_changes(self):
        want = flat(self.loader(transform=same, num_workers=0))
        got, state = [], None
        with cycling(2):
            for stop in (4, 3, 5, 100):
                loader = self.loader(transform=same)
                if state:
                    loader.load_state_dict(pickle.loads(pickle.dumps(state)))
                for k, batch in enumerate(loader):
                    got.append(batch)
                    if k + 1 == stop:
                        break
                state = loader.state_dict()
        self.assertEqual(flat(got), want)

    def test_early_break_jump_and_next_epoch(self):
        want = self.loader(transform=same, num_workers=0)
        epochs = [flat(want) for _ in range(6)]
        loader = self.loader(transform=same)
        with cycling(1):
            next(iter(loader))
            self.assertEqual(flat(loader), epochs[1])
            loader.set_epoch(5)
            self.assertEqual(flat(loader), epochs[5])
            loader.set_epoch(3)
            batches = iter(loader)
            head = [next(batches), next(batches)]
            self.assertEqual(flat(head), epochs[3][:32])
            self.assertEqual(flat(loader), epochs[4])

    def test_a_newer_iterator_takes_over_and_the_older_says_so(self):
        loader = self.loader(transform=same, num_workers=2)
        older = iter(loader)
        next(older)
        newer = iter(loader)
        next(newer)
        with self.assertRaisesRegex(RuntimeError, "two loaders"):
            next(older)
        self.assertEqual(len(list(newer)), len(loader) - 1)

    def test_batches_that_are_kept_stay_right(self):
        for name, transform in (("equal", same), ("ragged", first_bytes)):
            want = flat(self.loader(name, transform=transform, num_workers=0))
            kept = list(self.loader(name, transform=transform, num_workers=2))
            self.assertEqual(flat(kept), want)

    def test_writing_to_a_batch_changes_nobody_elses(self):
        want = flat(self.loader(transform=same, num_workers=0))
        loader = self.loader(transform=same, num_workers=2)
        for data, _ in loader:
            data.fill_(1)
        loader.set_epoch(0)
        self.assertEqual(flat(loader), want)

    def test_a_transform_may_keep_and_write_what_it_is_given(self):
        want = [data for data, _ in self.loader(transform=same, num_workers=0)]
        loader = self.loader(transform=Keeping(), num_workers=2)
        for _ in range(2):
            loader.set_epoch(0)
            got = [data for data, _ in loader]
            self.assertTrue(all(map(torch.equal, got, want)))


class Keeping:
    """Keeps its last 60 samples, and says what they are only when they have left."""

    def __init__(self):
        self.kept = []

    def __call__(self, data):
        self.kept.append((data, data.clone()))
        for view, copy in self.kept:
            if not torch.equal(view, copy):
                raise AssertionError("a sample that was kept has changed")
        del self.kept[:-60]
        out = data.clone()
        if len(self.kept) % 2:
            self.kept.pop()
            data.fill_(7)  # its own
        return out


class NumberTest(WorkersCase):
    def test_an_integer_means_exactly_that(self):
        for n in (1, 3):
            loader = self.loader(transform=with_pid, num_workers=n, batch_size=2)
            with wish(0):
                used = pids(batch for _ in range(2) for batch in loader)
            self.assertEqual(loader.workers, n)
            self.assertLessEqual(len(used), n)
            self.assertNotIn(os.getpid(), used)

    def test_zero_is_the_trainer_whatever_the_wish(self):
        with wish(2):
            loader = self.loader(transform=with_pid, num_workers=0)
            self.assertEqual(pids(loader), {os.getpid()})
        self.assertEqual(loader.workers, 0)

    def test_the_wish_is_followed_in_mid_epoch(self):
        numbers = [0]
        with mock.patch.object(Session, "wanted_workers", property(lambda _: numbers[0])):
            loader = self.loader(transform=with_pid, batch_size=1)
            batches = iter(loader)
            self.assertEqual(pids(next(batches) for _ in range(5)), {os.getpid()})
            for numbers[0] in (2, 1, 3):
                wait_until("the new number", lambda: next(batches) and loader.workers == numbers[0])
                left = {next(batches)[0][0, 0].item() for _ in range(12)} - {os.getpid()}
                self.assertTrue(left)
            numbers[0] = 0
            wait_until("work in the trainer", lambda: pids([next(batches)]) == {os.getpid()})
            self.assertEqual(loader.workers, 0)
            self.assertEqual(pids(next(batches) for _ in range(5)), {os.getpid()})

    def test_the_operators_word_through_the_daemon(self):
        def ask(n):
            subprocess.run([support.program("dieselctl"), "set", "--socket", str(self.daemon.socket),
                            f"client-workers={n}"], check=True, stdout=subprocess.DEVNULL)
        want = self.loader(transform=same, num_workers=0, batch_size=2)
        loader = self.loader(transform=same, batch_size=2)
        self.addCleanup(ask, "auto")
        got = []
        for n in (2, 0, 1):
            ask(n)
            batches = iter(loader)
            for _ in range(6000):  # over the epoch's end, if it takes so long
                time.sleep(0.005)
                got.append(next(batches, None))
                if got[-1] is None:
                    batches = iter(loader)
                elif loader.workers == n:
                    break
            self.assertEqual(loader.workers, n)
            got += list(batches) + [None]
        epochs = [list(group) for more, group in itertools.groupby(got, lambda batch: batch is not None) if more]
        for epoch in epochs:
            self.assertEqual(flat(epoch), flat(want))

    def test_without_a_wish_there_are_as_many_as_cores(self):
        with wish(None):
            loader = self.loader(transform=with_pid)
            batches = iter(loader)
            wait_until("workers", lambda: next(batches) and loader.workers == len(os.sched_getaffinity(0)))

    def test_without_python_work_there_are_no_processes(self):
        with wish(3):
            loader = self.loader()
            list(loader)
        self.assertEqual((loader.num_workers, loader.workers, children()), (0, 0, set()))

    def test_workers_persist_or_not_as_asked(self):
        for persistent in (True, False):
            loader = self.loader(transform=with_pid, num_workers=1, persistent_workers=persistent)
            self.assertEqual(pids(loader) == pids(loader), persistent)

    def test_contexts(self):
        want = flat(self.loader(transform=same, num_workers=0))
        for context in ("fork", "spawn", "forkserver"):
            loader = self.loader(transform=same, num_workers=2, multiprocessing_context=context)
            self.assertEqual(flat(loader), want)

    def test_what_cannot_be_sent_to_a_process(self):
        local = lambda data: data.clone()  # noqa: E731
        with self.assertRaises((AttributeError, pickle.PicklingError)):
            next(iter(self.loader(transform=local, num_workers=1, multiprocessing_context="spawn")))
        with self.assertLogs("diesel_loader", "WARNING") as logs:
            loader = self.loader(transform=local, multiprocessing_context="spawn")
            self.assertEqual(len(list(loader)), len(loader))
        self.assertIn("in the trainer", logs.output[0])

    def test_what_it_cost_is_counted(self):
        for workers in (0, 2):
            loader = self.loader(transform=same, num_workers=workers)
            list(loader)
            work = loader._stream.work
            self.assertEqual((work.n_batches, work.n_samples, work.n_worked), (len(loader), N, N))
            self.assertEqual(work.n_handoffs, len(loader) if workers else 0)
            self.assertEqual((work.n_workers, work.policy), (workers, 1))
            self.assertEqual(work.inline_ns > 0, not workers)
            self.assertEqual(work.handoff_ns > 0 and work.result_bytes > N * EQUAL, workers > 0)
            self.assertGreater(work.cpu_ns, 0)
            self.assertGreaterEqual(work.next_ns, work.wait_ns + work.inline_ns)

    def test_worker_init_fn(self):
        loader = self.loader(transform=Initialised.read, worker_init_fn=Initialised.set, num_workers=2)
        self.assertLessEqual({n for data, _ in loader for n in data.flatten().tolist()}, {100, 101})
        loader = self.loader(transform=same, worker_init_fn=fails, num_workers=2)
        with self.assertRaisesRegex(ZeroDivisionError, "worker_init_fn"):
            next(iter(loader))


class Initialised:
    value = None

    @classmethod
    def set(cls, worker):
        assert torch.utils.data.get_worker_info().id == worker
        cls.value = 100 + worker

    @classmethod
    def read(cls, _):
        return torch.tensor([cls.value])


def children():
    """Processes below this one, without the ones that multiprocessing itself keeps."""
    result = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rpartition(")")[2].split()
            with open(f"/proc/{pid}/cmdline") as f:
                command = f.read()
            ours = "multiprocessing" not in command and "dieseld" not in command
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z" and ours:
            result.add(int(pid))
    return result


def fails(_):
    return 1 // 0


class Picky(Exception):
    """Cannot be made of a text alone."""

    def __init__(self, a, b):
        super().__init__(a, b)


class At:
    """Does something at the samples whose first bytes are `mark`."""

    def __init__(self, mark, what):
        self.mark, self.what = mark, what

    def __call__(self, data):
        if data[:8].tolist() == self.mark:
            self.what()
        return data.clone()


def raise_picky():
    raise Picky(1, 2)


def raise_stop():
    raise StopIteration


def raise_key():
    return {}["the key"]


class DieOnce:
    """Kills its process, but only the first time."""

    def __init__(self, path):
        self.path = path

    def __call__(self):
        if not os.path.exists(self.path):
            open(self.path, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)


def die():
    os.kill(os.getpid(), signal.SIGSEGV)


class FaultTest(WorkersCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.want = flat(cls.fresh())
        cls.at = 9 * 16 + 5  # in batch 9
        cls.mark = list(cls.want[cls.at][0][:8])

    @classmethod
    def fresh(cls, **options):
        return diesel.DataLoader(cls.sets["equal"], batch_size=16, shuffle=True, seed=3, transform=same,
                                 **{"num_workers": 0, **options})

    def run_with(self, what, **options):
        """Batches with one that fails; (what was delivered, the exception)."""
        got, caught = [], None
        batches = iter(self.loader(transform=At(self.mark, what), **options))
        while True:
            try:
                got.append(next(batches))
            except StopIteration:
                return got, caught
            except Exception as error:
                self.assertIsNone(caught)
                caught = error

    def test_exceptions_arrive_with_their_traceback_and_the_rest_goes_on(self):
        without = self.want[:9 * 16] + self.want[10 * 16:]
        for what, cls, text in ((lambda: fails(0), ZeroDivisionError, "in fails"),
                                (raise_key, KeyError, "in raise_key"), (raise_picky, RuntimeError, "Picky"),
                                (sys.exit, RuntimeError, "SystemExit"), (raise_stop, RuntimeError, "StopIteration")):
            for workers in (2, 1):
                got, error = self.run_with(what, num_workers=workers)
                self.assertIs(type(error), cls)
                self.assertIn(text, str(error))
                self.assertIn("batch 9 of epoch 0", str(error))
                self.assertIn("Traceback", str(error))
                self.assertEqual(flat(got), without)
        got, error = self.run_with(raise_stop, num_workers=0)
        self.assertEqual((type(error), flat(got)), (RuntimeError, without))

    def test_what_cannot_be_sent_back(self):
        loader = self.loader(transform=same, collate_fn=lambda samples: lambda: samples, num_workers=1)
        with self.assertRaisesRegex((AttributeError, pickle.PicklingError, RuntimeError), "hand-over of the batch"):
            next(iter(loader))

    def test_a_worker_that_dies_is_replaced_and_its_batch_done_again(self):
        for workers in (1, 3):
            path = self.folder / f"died-{workers}"
            with self.assertLogs("diesel_loader", "WARNING") as logs:
                got, error = self.run_with(DieOnce(str(path)), num_workers=workers)
            self.assertIsNone(error)
            self.assertIn("SIGKILL", logs.output[0])
            self.assertIn("batch 9 of epoch 0", logs.output[0])
            self.assertEqual(flat(got), self.want)

    def test_a_batch_that_kills_twice_is_one_error(self):
        with self.assertLogs("diesel_loader", "WARNING"):
            got, error = self.run_with(die, num_workers=2)
        self.assertIsInstance(error, RuntimeError)
        self.assertRegex(str(error), "SIGSEGV while it transformed batch 9 of epoch 0")
        self.assertEqual(flat(got), self.want[:9 * 16] + self.want[10 * 16:])

    def test_idle_workers_that_die_are_replaced(self):
        loader = self.loader(transform=with_pid, num_workers=2)
        used = pids(loader)
        with self.assertLogs("diesel_loader", "WARNING"):
            for pid in used:
                os.kill(pid, signal.SIGKILL)
            wait_until("death", lambda: not any(map(alive, used)))
            self.assertTrue(pids(loader).isdisjoint(used))

    def test_workers_that_cannot_start_are_an_error(self):
        loader = self.loader(transform=same, worker_init_fn=lambda _: die(), num_workers=1)
        with self.assertRaisesRegex(RuntimeError, "do not start.*SIGSEGV"):
            next(iter(loader))

    def test_the_nursery_dies(self):
        loader = self.loader(transform=with_pid, num_workers=2)
        batches = iter(loader)
        used = pids([next(batches)])
        os.kill(loader._stream._pool._process.pid, signal.SIGKILL)
        wait_until("the end of the workers", lambda: not any(map(alive, used)))
        with self.assertRaisesRegex(RuntimeError, "starts worker processes.*SIGKILL"):
            list(batches)

    def test_damaged_data(self):
        dataset = pack(self.folder / "ragged", self.folder / "damaged.diesel", "--chunk-size", "4M")
        chunk = next((dataset / "chunks").iterdir())
        data = bytearray(chunk.read_bytes())
        data[len(data) // 2] ^= 0x10
        chunk.chmod(0o600)
        chunk.write_bytes(data)
        loader = diesel.DataLoader(dataset, batch_size=8, transform=first_bytes, num_workers=2)
        with self.assertRaisesRegex(DamagedData, chunk.stem):
            list(loader)
        loader.close()


class EndTest(WorkersCase):
    def test_close_and_garbage_leave_no_process(self):
        for end in ("close", "garbage"):
            loader = diesel.DataLoader(self.sets["equal"], batch_size=16, transform=with_pid, num_workers=2)
            nursery_and_workers = pids(loader) | {loader._stream._pool._process.pid}
            if end == "close":
                loader.close()
                self.assertEqual(len(list(loader)), len(loader))  # starts anew
                loader.close()
            del loader
            gc.collect()
            wait_until("the end", lambda: not any(map(alive, nursery_and_workers)))
            self.assertEqual(children(), set())

    def test_batches_outlive_their_workers(self):
        loader = self.loader(transform=same, num_workers=2)
        batches = list(loader)
        want = flat(self.loader(transform=same, num_workers=0))
        loader.close()
        del loader
        gc.collect()
        self.assertEqual(flat(batches), want)

    def job(self, *arguments):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen([support.PYTHON, __file__, "job", str(self.sets["equal"]), *arguments],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                                   start_new_session=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        started = [int(pid) for pid in process.stdout.readline().split()]
        self.assertGreater(len(started), 1)
        return process, started

    def test_the_trainers_end_is_everybodys(self):
        for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            process, started = self.job("loop")
            os.killpg(process.pid, how) if how == signal.SIGINT else process.send_signal(how)
            self.assertNotEqual(process.wait(60), 0)
            wait_until("the end", lambda: not any(map(alive, started)))
            said = process.stderr.read()
            if how == signal.SIGINT:
                self.assertEqual(said.count("KeyboardInterrupt"), 1, said)
        for how in ("exit", "raise"):
            process, started = self.job(how)
            process.wait(60)
            wait_until("the end", lambda: not any(map(alive, started)))

    def test_a_restarted_daemon(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        options = {"transform": first_bytes, "batch_size": 4}
        want = {name: flat(self.loader(name, num_workers=0, **options)) for name in self.sets}
        for name in self.sets:
            with Daemon(folder) as first:
                loader = self.loader(name, num_workers=2, **options)
                batches = iter(loader)
                got = [next(batches) for _ in range(5)]
                first.process.send_signal(signal.SIGKILL)
                first.process.wait()
                with self.assertLogs("diesel_loader", "WARNING"), Daemon(folder):
                    got += list(batches)
                    loader.close()
            self.assertEqual(flat(got), want[name])


class ResultTest(WorkersCase):
    def test_results_of_any_kind(self):
        want = collate_all([(torch.arange(16, dtype=torch.uint8), 1)] * 16)
        loader = self.loader(transform=lambda data: torch.arange(16, dtype=torch.uint8), target_transform=lambda _: 1,
                             collate_fn=collate_all, num_workers=1, drop_last=True)
        for got in loader:
            self.assertEqual(list(got), list(want))
            for name, value in want.items():
                check_equal(self, got[name], value)

    def test_batches_that_grow_and_shrink(self):
        loader = self.loader("ragged", transform=same, collate_fn=join, num_workers=2, batch_size=4)
        plain = self.loader("ragged", transform=same, collate_fn=join, num_workers=0, batch_size=4)
        for _ in range(2):
            self.assertTrue(all(map(torch.equal, loader, plain)))


def join(samples):
    return torch.cat([sample for sample, _ in samples])


def collate_all(samples):
    tensor = torch.stack([sample for sample, _ in samples]).float()
    return {"tensor": tensor, "transposed": tensor.t(), "none": torch.empty(0, 3), "one": torch.tensor(4),
            "bfloat16": tensor.to(torch.bfloat16), "bool": tensor > 3, "complex": torch.complex(tensor, tensor),
            "array": tensor.numpy(), "fortran": numpy.asfortranarray(tensor.numpy()), "text": "text", "nothing": None,
            "nested": [(tensor[:1], {"deep": tensor[1:2]})], "sparse": tensor.to_sparse(), "objects":
            numpy.array([None, "x"], dtype=object), "shared": [tensor, tensor], "long": list(range(1000)),
            "parameter": torch.nn.Parameter(tensor), "bytes": b"\0" * 100_000}


def check_equal(case, got, want):
    case.assertIs(type(got), type(want))
    if isinstance(want, torch.Tensor):
        case.assertEqual((got.dtype, got.shape, got.layout, got.requires_grad),
                         (want.dtype, want.shape, want.layout, want.requires_grad))
        case.assertTrue(torch.equal(got.to_dense() if got.is_sparse else got, want.to_dense()))
    elif isinstance(want, numpy.ndarray):
        case.assertTrue(numpy.array_equal(got, want))
        case.assertTrue(got.flags.writeable)
    elif isinstance(want, (list, tuple)):
        for a, b in zip(got, want):
            check_equal(case, a, b)
    elif isinstance(want, dict):
        check_equal(case, list(got.values()), list(want.values()))
    else:
        case.assertEqual(got, want)


def job(dataset, how):
    """What the tests above end in different ways."""
    loader = diesel.DataLoader(dataset, batch_size=4, transform=with_pid, num_workers=2, timeout=1)
    print(loader_processes(loader), flush=True)
    while how == "loop":
        for _ in loader:
            time.sleep(0.01)
    if how == "raise":
        next(iter(loader))
        raise SystemError("on purpose")


def loader_processes(loader):
    used = pids(loader)
    return " ".join(map(str, [loader._stream._pool._process.pid, *used]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        job(*sys.argv[2:])
    else:
        unittest.main()
