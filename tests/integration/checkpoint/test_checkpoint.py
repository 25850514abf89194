# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints of one process: what is written, which one is restored, and the loader's state in them."""
import collections
import contextlib
import copy
import errno
import json
import math
import mmap
import os
import pathlib
import re
import resource
import signal
import stat
import threading
import types
import unittest
import zipfile
from unittest import mock

from checkpoint_support import IS_OLD, Case, read, saver_of, support
from common.users import MALLORY, become
from serving import Daemon, pack

import numpy
import torch

import diesel_loader.torch
from diesel_loader.checkpoint import Checkpointer, accelerated as accelerate, control_group, newest, persister, restoring, seal
from diesel_loader.checkpoint.files import Files

STEPS = 30


def trained(n_steps=1):
    torch.manual_seed(n_steps)
    model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.BatchNorm1d(200), torch.nn.Linear(200, 7))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(n_steps):
        optimizer.zero_grad()
        model(torch.randn(8, 300)).sum().backward()
        optimizer.step()
    return model, optimizer


class Tally:
    def __init__(self, n=0, refuses=None):
        self.n, self._refuses = n, refuses

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state):
        self.n = state["n"]
        if self.n == self._refuses:
            raise ZeroDivisionError("no")


class Refusing(torch.nn.Sequential):
    """Refuses a state of three steps or more, after it has loaded it."""

    def load_state_dict(self, state, *args, **options):
        super().load_state_dict(state, *args, **options)
        if state["1.num_batches_tracked"] >= 3:
            raise ZeroDivisionError("no")


def refused(door):
    try:
        door()
    except PermissionError:
        return True
    return False


class Device(Case):
    """A stand-in for CUDA: the copy ends when the test says so."""

    @unittest.skipIf(IS_OLD, "PyTorch 1 has no hook of all optimizers, so everything is copied in order")
    def test_an_optimizer_that_does_not_wait_spoils_a_snapshot_and_later_ones_are_copied_in_order(self):
        weight = torch.nn.Parameter(torch.ones(1 << 20))
        optimizer = torch.optim.SGD([weight], lr=1)
        weight.grad = torch.ones(1 << 20)
        stream, done = mock.MagicMock(), [True]
        stream.record_event().query.side_effect = lambda: done[0]
        with contextlib.ExitStack() as stack:
            for name in ("Stream", "current_stream"):
                stack.enter_context(mock.patch.object(torch.cuda, name, return_value=stream))
            stack.enter_context(mock.patch.object(torch.cuda, "stream", return_value=contextlib.nullcontext()))
            stack.enter_context(mock.patch.object(torch.Tensor, "record_stream", lambda *_: None))
            stack.enter_context(mock.patch("diesel_loader.checkpoint.snapshot.is_here", lambda _: False))
            stack.enter_context(mock.patch("diesel_loader.checkpoint.cuda.is_cuda", lambda _: True))
            scaler = torch.cuda.amp.GradScaler.__new__(torch.cuda.amp.GradScaler)
            for owner in {torch.cuda.amp.GradScaler, getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)}:
                stack.enter_context(mock.patch.object(owner, "step", lambda *_: None))   # skips the step
            graph = type("CUDAGraph", (), {"replay": lambda _: None})
            stack.enter_context(mock.patch.object(torch.cuda, "CUDAGraph", graph, create=True))
            graph = graph()
            model = mock.MagicMock(state_dict=lambda: {"weight": weight.data}, load_state_dict=None)
            checkpointer = stack.enter_context(Checkpointer(self.folder, every=1000, model=model, optimizer=optimizer))
            done[0] = False
            checkpointer.save()
            waited = stream.wait_event.call_count
            optimizer.step()   # has the hook, which lets the device wait
            self.assertEqual(stream.wait_event.call_count, waited + 1)
            checkpointer.step()
            done[0] = True
            with mock.patch.object(persister.Persister, "hurry") as hurry:
                checkpointer.wait()
            hurry.assert_called()
            self.assertTrue(torch.equal(read(newest(self.folder))["model"]["weight"], torch.ones(1 << 20)))
            for update in (lambda: scaler.step(optimizer), graph.replay):   # neither calls the optimizer's hook
                done[0] = False
                checkpointer.save()
                waited = stream.wait_event.call_count
                update()
                self.assertEqual(stream.wait_event.call_count, waited + 1)
                checkpointer.step()
                done[0] = True
                checkpointer.wait()
            self.assertEqual((self.lines, checkpointer.figures()["failed"]), ([], 0))
            done[0] = False
            checkpointer.save()
            weight.data.zero_()   # no optimizer of torch
            checkpointer.step()
            self.said("the optimizer did not wait for the copy from the GPU")
            self.assertEqual(checkpointer.figures()["failed"], 1)
            checkpointer.save()
            checkpointer.step()
            done[0] = True
            checkpointer.wait()
            self.assertTrue(torch.equal(read(newest(self.folder))["model"]["weight"], torch.zeros(1 << 20)))
            self.assertEqual(len(self.names()), 3)


    def test_a_framework_s_file_needs_no_call_after_its_save(self):
        stream, done, path = mock.MagicMock(), [], os.path.join(self.folder, "some.ckpt")
        stream.record_event().query.side_effect = lambda: bool(done)
        stream.record_event().synchronize.side_effect = lambda: done.append(True)
        files = Files()
        self.addCleanup(files.close)
        with mock.patch.object(torch.cuda, "current_stream", return_value=stream), mock.patch("diesel_loader.checkpoint.snapshot.is_here", lambda _: False), \
                mock.patch("diesel_loader.checkpoint.cuda.is_cuda", lambda _: True):
            files.save({"weight": torch.ones(1 << 20)}, path)
            support.wait_for(lambda: os.path.exists(path), "the file")


class Equal:
    """Compares states to any depth."""

    def assert_equal(self, a, b):
        self.assertIs(type(a), type(b))
        if isinstance(a, torch.Tensor):
            self.assertEqual((a.dtype, a.shape, a.stride()), (b.dtype, b.shape, b.stride()))
            self.assertTrue(torch.equal(a, b))
        elif isinstance(a, dict):
            self.assertEqual(list(a), list(b))
            for key in a:
                self.assert_equal(a[key], b[key])
        elif isinstance(a, (list, tuple)):
            self.assertEqual(len(a), len(b))
            for one, other in zip(a, b):
                self.assert_equal(one, other)
        else:
            self.assertEqual(a, b)


class Written(Equal, Case):
    def saved(self, state, **options):
        with Checkpointer(self.folder, state=lambda: state, **options) as checkpointer:
            checkpointer.save()
        return os.path.join(self.folder, self.names()[-1])

    def test_torch_load_reads_what_was_saved(self):
        model, optimizer = trained()
        whole = torch.arange(1000.)
        state = collections.OrderedDict(
            model=model.state_dict(), optimizer=optimizer.state_dict(), half=torch.randn(1000).bfloat16(), nothing=torch.empty(0, 3), view=whole[10:20],
            turned=torch.randn(3, 500).t(), one=torch.tensor(3), flags=torch.tensor([True, False]), text="epoch", none=None, many=[1, (2, 3.5), {"a": 4}],
            large=torch.randint(0, 255, (3 << 20,), dtype=torch.uint8), parameter=torch.nn.Parameter(torch.randn(40000)), twice=[whole, whole])
        path = self.saved(state)
        found = read(path)
        self.assertEqual(found.pop("step"), 0)
        self.assert_equal(found, dict(state))
        self.assertEqual(found["twice"][0].data_ptr(), found["twice"][1].data_ptr())
        with zipfile.ZipFile(os.path.join(path, "state.pt")) as archive:
            self.assertIsNone(archive.testzip())
        if not IS_OLD:
            mapped = torch.load(os.path.join(path, "state.pt"), weights_only=True, mmap=True)
            self.assert_equal(mapped["large"], state["large"])

    def test_views_of_one_memory_keep_their_types(self):
        """torch.save() refuses them, and torch.load() would give all of them the type of the first."""
        numbers, halves = torch.arange(8.) - 0.5, torch.arange(6).bfloat16()
        complexes = torch.complex(numbers, -numbers)
        state = {"a": numbers, "bits": numbers.view(torch.int32)[2:], "c": complexes, "parts": torch.view_as_real(complexes), "half": halves,
                 "conj": complexes.conj(), "bytes": halves.view(torch.uint8)[3:]}
        if hasattr(torch, "float8_e4m3fn"):
            state |= {"float8": numbers.to(torch.float8_e4m3fn), "uint16": numbers.int().to(torch.uint16)}
        found = read(self.saved(state))
        found["float8"], state["float8"] = (s.get("float8", numbers).float() for s in (found, state))
        for name, tensor in state.items():
            self.assertEqual(found[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(found[name], tensor), name)

    def test_a_state_that_cannot_be_read_safely_is_refused_at_once(self):
        for value, said in ((pathlib.Path("/"), r"a pathlib\.\w+, cannot be .*weights_only=True\) would refuse it.*pass tensors, numbers"),
                            (threading.Lock(), "a _thread.lock, cannot be pickled .*pass tensors, numbers"), (numpy.float32(3), r"pass its \.item\(\)"),
                            (numpy.ones(3), r"pass torch.as_tensor\(\) of it"), (lambda: 3, "a builtins.function, cannot be pickled")):
            with self.assertRaisesRegex(TypeError, r"^the state\['more'\]\['list'\]\[1\], .*" + said):
                self.saved({"a": torch.ones(3), "more": {"list": [3.5, value]}})
        with self.assertRaisesRegex(TypeError, r"^the key \(pathlib.* of the state\['a'\]|^the key .*Path.* of the state\['a'\], "):
            self.saved({"a": {pathlib.PurePosixPath("/"): 1}})
        with self.assertRaisesRegex(TypeError, r"^the state\['b'\], a _thread.lock, cannot be pickled"):
            self.saved({"a": pathlib.PurePosixPath("/"), "b": threading.Lock()})
        with self.assertRaisesRegex(TypeError, "state= has returned a list: return a dict"):
            self.saved([1, 2])
        with self.assertRaisesRegex(TypeError, "'step' twice"):
            self.saved({"step": 1})

    def test_a_state_that_can_later_not_be_read_safely_is_not_written(self):
        with Checkpointer(self.folder, state=lambda: {"best": torch.ones(2)}) as checkpointer:
            checkpointer.save(best_of=1.5)
            checkpointer.save(best_of=pathlib.PurePosixPath("/"))   # as a metric that became an array of NumPy
            self.said(r"checkpoint of step 0 is not written: the state\['best_of'\].*weights_only=True\) would refuse it.*Training goes on")
            for _ in range(2):
                checkpointer.step(best_of=threading.Lock())
            checkpointer.save(best_of=threading.Lock())
            self.said(r"the state\['best_of'\], a _thread.lock, cannot be pickled .*Training goes on")
            self.assertEqual(checkpointer.restore().state["best_of"], 1.5)
        self.assertEqual(len(self.names()), 1)

    def test_a_state_that_contains_itself_comes_back(self):
        state = {"a": torch.ones(3)}
        state["self"] = state
        found = read(self.saved({"state": state}))["state"]
        self.assertIs(found["self"], found)

    def test_a_first_state_of_plain_values_counts_as_checked(self):
        with Checkpointer(self.folder, state=lambda: {"a": 1}) as checkpointer:
            checkpointer.save()
            checkpointer.save(more=threading.Lock())
            self.said(r"the state\['more'\], a _thread.lock, cannot be pickled .*Training goes on")

    def test_arguments_that_cannot_work(self):
        model, _ = trained()
        for options, said in (({"every": "often"}, 'neither "auto" nor'), ({"every": 0}, "from 1 on"), ({"overhead": 3.5}, "such as 0.035"),
                              ({"keep": -1}, "no number of checkpoints"), ({"keep": 1.5}, "0 for all"), ({"keep": None}, "0 for all"),
                              ({"overhead": "3.5%"}, "such as 0.035"), ({"every": True}, 'neither "auto"'), ({"every": None}, 'neither "auto"')):
            with self.assertRaisesRegex(ValueError, said):
                Checkpointer(self.folder, model=model, **options)
        with self.assertRaisesRegex(ValueError, "folder='' is no path"):
            Checkpointer("", model=model)
        for text in ("s3://", "s3:///prefix"):
            with self.assertRaisesRegex(ValueError, "names no bucket: pass s3://BUCKET/PREFIX"):
                Checkpointer(text, model=model)
        with self.assertRaisesRegex(FileExistsError, "is a file: checkpoints need a folder"):
            Checkpointer(__file__, model=model)
        with self.assertRaisesRegex(TypeError, "state=dict is no function"):
            Checkpointer(self.folder, state={"a": 1})
        with mock.patch.dict(os.environ, WORLD_SIZE="2"), self.assertRaisesRegex(ValueError, r"2 ranks .* call torch.distributed.init_process_group"):
            Checkpointer(self.folder, model=model)
        with self.assertRaisesRegex(TypeError, r"epoch=int has no state_dict\(\)"):
            Checkpointer(self.folder, epoch=3)
        with self.assertRaisesRegex(TypeError, "pass either what to save"):
            Checkpointer(self.folder)
        self.assertEqual(self.names(), [])

    def test_files_have_the_job_s_umask_and_the_lock_is_the_job_s_own(self):
        before = os.umask(0o027)
        self.addCleanup(os.umask, before)
        path = self.saved({"a": torch.ones(3)})
        modes = {name: stat.S_IMODE(os.stat(os.path.join(path, name)).st_mode) for name in (".", "state.pt", "manifest.json", "../.lock")}
        self.assertEqual(json.loads(pathlib.Path(path, "manifest.json").read_text())["step"], 0)
        self.assertEqual(modes, {".": 0o750, "state.pt": 0o640, "manifest.json": 0o640, "../.lock": 0o600})

    def test_the_time_of_all_parts_of_a_checkpoint_counts(self):
        with Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            checkpointer.save()
            checkpointer.wait()
            saver = checkpointer._saver
            with mock.patch.object(saver, "_process") as process:
                checkpointer._writing = {"later": True, "remove": [], "name": "000002-step-0"}
                saver._open, saver.written_s = 2, 0.0
                for do, seconds in (("write", 2.0), ("commit", 3.0)):
                    process.replies.return_value = [{"do": do, "error": None, "seconds": seconds}]
                    checkpointer._poll()
            self.assertEqual(checkpointer.figures()["written_s"], 5)

    def test_a_state_that_grows_gets_more_memory(self):
        state = {"a": torch.ones(3)}
        with Checkpointer(self.folder, state=lambda: state) as checkpointer:
            checkpointer.save()
            checkpointer.wait()
            state["a"] = torch.arange(3 << 20)
            maps = pathlib.Path(f"/proc/{saver_of(os.getpid())}/maps")
            self.assertIn("diesel-checkpoint", maps.read_text())
            with mock.patch("diesel_loader.checkpoint.memory._check_free", lambda _: self.assertNotIn("diesel-checkpoint", maps.read_text())):
                checkpointer.save()
            state["a"] = torch.ones(2)
            checkpointer.save()
        self.assertEqual([len(read(os.path.join(self.folder, name))["a"]) for name in self.names()], [3, 3 << 20, 2])
        self.assertEqual(self.lines, [])

    def test_a_state_that_grows_before_the_first_checkpoint_is_written_by_the_same_process(self):
        state = {"a": torch.ones(3)}
        with Checkpointer(self.folder, every=3, state=lambda: state) as checkpointer:
            checkpointer.step()
            checkpointer.step()   # gets memory
            saver = saver_of(os.getpid())
            state["a"] = torch.arange(3 << 20)
            checkpointer.step()
            checkpointer.wait()
            self.assertEqual(saver_of(os.getpid()), saver)
        self.assertEqual((self.lines, self.names()), ([], ["000001-step-3"]))

    def test_memory_that_a_limit_of_the_job_refuses_is_one_line_and_not_its_end(self):
        before, state = resource.getrlimit(resource.RLIMIT_AS), {"a": torch.ones(3)}
        self.addCleanup(resource.setrlimit, resource.RLIMIT_AS, before)
        with Checkpointer(self.folder, state=lambda: state) as checkpointer:
            checkpointer.step()
            state["a"] = torch.ones(1 << 26)
            used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
            resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
            checkpointer.step()
            resource.setrlimit(resource.RLIMIT_AS, before)
            self.said(r"no memory for checkpoints: a snapshot needs \d+ MiB .*ulimit -v\)\. Training goes on")
            checkpointer.save()
        self.assertEqual((len(self.names()), self.lines), (1, []))

    def test_threads_and_descriptors_that_a_limit_refuses_do_not_end_the_job(self):
        tensor = torch.arange(3 << 20)
        with Checkpointer(self.folder, state=lambda: {"a": tensor}) as checkpointer:
            checkpointer.step()
            with mock.patch.object(os, "memfd_create", side_effect=OSError(errno.EMFILE, "Too many open files")):
                checkpointer.step()
            self.said("no memory for checkpoints: .*Too many open files. Training goes on")
        with Checkpointer(self.folder, state=lambda: {"a": tensor}) as checkpointer:
            with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
                for _ in range(2):
                    checkpointer.step()
                checkpointer.save()
        self.assertTrue(torch.equal(read(newest(self.folder))["a"], tensor))
        self.assertEqual(self.lines, [])

    def test_the_tightest_control_group_on_the_way_to_the_root_counts(self):
        def group(path, limit, usage, files):
            place = pathlib.Path(self.scratch, path)
            place.mkdir(parents=True)
            one = "memory/" in path
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if one else ("memory.max", "memory.current")
            for name, value in zip(names, (limit, usage)):
                (place / name).write_text(f"{value}\n")
            (place / "memory.stat").write_text(f"anon 1\n{'total_' if one else ''}inactive_file {files}\n")
        group("v2/job", 1000, 600, 100)
        group("v2/job/rank", "max", 500, 50)
        group("v1/memory/job", 800, 700, 0)
        group("v1/memory/job/rank", 1 << 62, 500, 50)
        own = pathlib.Path(self.scratch, "own")
        for text, root, free in (("0::/job/rank\n", "v2", 500), ("0::/\n", "v2", math.inf), ("4:memory:/job/rank\n0::/job\n", "v1", 100),
                                 ("4:cpu,memory:/elsewhere/job\n", "v1", math.inf)):
            own.write_text(text)
            self.assertEqual(control_group.free_bytes(os.path.join(self.scratch, root), str(own)), free, text)

    def test_snapshot_memory_is_open_to_nobody_else(self):
        with Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            checkpointer.save()
            links = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}")}
            mine = [int(fd) for fd, link in links.items() if "diesel-checkpoint" in link]
            self.assertTrue(mine)
            for fd in mine:
                self.assertEqual(stat.S_IMODE(os.fstat(fd).st_mode), 0o600)
                self.assertFalse(os.get_inheritable(fd))
                with self.assertRaises(PermissionError):   # a shorter one would kill whoever reads it
                    os.ftruncate(fd, 0)

    @unittest.skipIf(os.getuid() != 0, "needs root to become another user")
    def test_another_user_can_neither_read_nor_stop_it(self):
        os.chmod(self.scratch, 0o755)
        with Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            checkpointer.save()
            saver = saver_of(os.getpid())
            pid = os.fork()
            if pid == 0:
                become(MALLORY)
                doors = [lambda: os.listdir(f"/proc/{saver}/fd"), lambda: os.listdir(f"/proc/{saver}/map_files"), lambda: os.kill(saver, signal.SIGKILL),
                         lambda: open(f"/proc/{saver}/mem", "rb"), lambda: open(os.path.join(self.folder, ".lock"), "rb"),
                         lambda: os.mkdir(os.path.join(self.folder, ".000002-step-0.part")), lambda: os.setpriority(os.PRIO_PROCESS, saver, 19)]
                os._exit(sum(1 << i for i, door in enumerate(doors) if not refused(door)))
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
            checkpointer.save()
        self.assertEqual(len(self.names()), 2)

    def test_a_forked_process_leaves_checkpoints_alone(self):
        with Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            checkpointer.save()
            pid = os.fork()
            if pid == 0:
                try:
                    checkpointer.step()
                except RuntimeError:
                    checkpointer.close()
                    os._exit(7)
                os._exit(0)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 7)
            checkpointer.save()
        self.assertEqual(len(self.names()), 2)


class Kept(Case):
    def test_the_last_ones_stay(self):
        with Checkpointer(self.folder, every=2, keep=2, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            for _ in range(10):
                checkpointer.step()
                checkpointer.wait()
        self.assertEqual(self.names(), ["000004-step-8", "000005-step-10"])

    def test_another_run_s_checkpoints_stay_unless_they_were_restored(self):
        for keep in (1, 1):
            with Checkpointer(self.folder, keep=keep, state=lambda: {"a": torch.ones(3)}) as checkpointer:
                checkpointer.save()
        self.assertEqual(self.names(), ["000001-step-0", "000002-step-0"])
        with Checkpointer(self.folder, keep=1, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            checkpointer.restore()
            checkpointer.save()
        self.assertEqual(self.names(), ["000003-step-0"])

    def test_a_run_that_began_again_is_newer_than_one_that_came_further(self):
        for steps in (20, 5):
            with Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}) as checkpointer:
                for _ in range(steps):
                    checkpointer.step()
                checkpointer.save()
        self.assertRegex(newest(self.folder), "-step-5$")


class Restored(Equal, Case):
    def test_objects_go_on_where_they_were(self):
        model, optimizer = trained(3)
        with Checkpointer(self.folder, model=model, optimizer=optimizer) as checkpointer:
            self.assertIsNone(checkpointer.restore())
            for _ in range(STEPS):
                checkpointer.step(epoch=4)
            checkpointer.save(epoch=5)
            self.assertEqual(checkpointer.figures()["steps"], STEPS - 1)
        other, its_optimizer = trained(1)
        with Checkpointer(self.folder, model=other, optimizer=its_optimizer) as checkpointer:
            restored = checkpointer.restore()
        self.assertEqual((restored.step, restored.state["epoch"]), (STEPS, 5))
        self.assert_equal(other.state_dict(), model.state_dict())
        self.assert_equal(its_optimizer.state_dict(), optimizer.state_dict())

    def test_a_checkpoint_that_does_not_fit_leaves_models_as_they_were(self):
        model, optimizer = trained(3)
        with Checkpointer(self.folder, model=model, optimizer=optimizer, more=Tally(5), also=Tally(5)) as checkpointer:
            checkpointer.save()
        path = re.escape(newest(self.folder))
        wider = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.BatchNorm1d(200), torch.nn.Linear(200, 8))
        for objects, kind, said in (({"model": wider, "optimizer": trained(1)[1]}, RuntimeError, "model=Sequential.*size mismatch"),
                                    ({"model": trained(1)[0], "optimizer": torch.optim.Adam(list(wider.parameters())[:2])}, ValueError, "optimizer=Adam"),
                                    ({"model": trained(1)[0], "more": Tally(refuses=5)}, ZeroDivisionError, "more=Tally: no"),
                                    ({"more": Tally(), "model": Refusing(*trained(1)[0])}, ZeroDivisionError, "model=Refusing: no"),
                                    ({"more": Tally(), "optimizer": trained(1)[1], "also": Tally(refuses=5)}, ZeroDivisionError, "also=Tally: no"),
                                    ({"model": trained(1)[0], "other": wider}, KeyError, "no state of 'other'")):
            before = {name: copy.deepcopy(obj.state_dict()) for name, obj in objects.items()}
            with Checkpointer(self.folder, **objects) as checkpointer:
                with self.assertRaisesRegex(kind, f"(?s){path} .*{said}"):
                    checkpointer.restore()
            for name, obj in objects.items():
                self.assert_equal(obj.state_dict(), before[name])

    def test_a_checkpoint_that_does_not_fit_leaves_the_accelerator_s_models_as_they_were(self):
        def accelerated(n_steps, groups):
            model, _ = trained(n_steps)
            optimizer = torch.optim.SGD([{"params": [param]} for param in model.parameters()][:groups], 0.1)
            return accelerate.Accelerated(mock.Mock(_models=[model], _optimizers=[optimizer], _schedulers=[], _dataloaders=[], _custom_objects=[],
                                                    scaler=None, step=0, _save_model_state_pre_hook={}, distributed_type=types.SimpleNamespace(name="NO")))
        saved, other = accelerated(1, 1).state_dict(), accelerated(3, 2)
        before = copy.deepcopy(other.state_dict()["models"])
        with self.assertRaisesRegex(ValueError, "path does not fit accelerator=Accelerated: .*parameter group"):
            restoring.give("path", {"accelerator": other}, {"accelerator": saved}, undo := restoring.Undo())
        undo.run()
        self.assert_equal(other.state_dict()["models"], before)

    def test_checkpoints_that_hold_more_than_the_run_saves_stay(self):
        model, optimizer = trained()
        for objects, wanted in (({"model": model, "optimizer": optimizer}, "34"), ({"model": model}, "3478"), ({"model": model}, "34bc")):
            with Checkpointer(self.folder, every=1, keep=2, **objects) as checkpointer:
                checkpointer.restore()
                for epoch in range(4):
                    checkpointer.step(epoch=epoch)
                    checkpointer.wait()
            self.assertEqual(self.names(), [f"{int(digit, 16):06d}-step-{int(digit, 16)}" for digit in wanted])
            if "optimizer" not in objects:
                self.said(r"/000003-step-3 stays: .* state of optimizer, which this run does not save\..* Pass it")
        with Checkpointer(self.folder, keep=1, model=model, optimizer=trained()[1]) as checkpointer:
            with self.assertRaisesRegex(KeyError, "no state of 'optimizer'"):
                checkpointer.restore()

    def test_damaged_ones_are_named_and_passed_over(self):
        with Checkpointer(self.folder, keep=0, state=lambda: {"a": torch.arange(100000), "b": torch.ones(3)}) as checkpointer:
            for _ in range(6):
                checkpointer.save()
        good, cut, bent, bare, torn, alien = (os.path.join(self.folder, name) for name in self.names())
        os.truncate(os.path.join(cut, "state.pt"), 5000)
        with open(os.path.join(bent, "state.pt"), "r+b") as file:
            file.seek(300000)
            file.write(b"!")
        os.unlink(os.path.join(bare, "manifest.json"))
        with open(os.path.join(torn, "manifest.json"), "r+b") as file:
            file.seek(20)
            file.write(b"!")
        os.unlink(os.path.join(alien, "state.pt"))
        os.symlink(os.path.join(good, "state.pt"), os.path.join(alien, "state.pt"))
        self.assertEqual(newest(self.folder), good)
        self.assertEqual(len(self.lines), 5)
        for line, path, why in zip(self.lines, (alien, torn, bare, bent, cut), ("symbolic links", "does not match", "no manifest", "bytes .* to .* match",
                                                                                "5000 bytes instead of")):
            self.assertRegex(line, f"^checkpoint {path} is damaged .*{why}.*: passed over$")

    def test_half_written_ones_are_named_and_removed(self):
        os.makedirs(os.path.join(self.folder, ".000009-step-70.part"))
        pathlib.Path(self.folder, ".000009-step-70.part", "state.pt").write_bytes(bytes(1000))
        os.makedirs(os.path.join(self.folder, ".000008-step-60.gone"))   # of a process that was killed while it removed that one
        with Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            self.said("/000009-step-70 is half-written: removed")
            self.assertIsNone(checkpointer.restore())
            checkpointer.save()
        self.assertEqual(sorted(os.listdir(self.folder)), [".lock", "000001-step-0"])

    def test_damaged_ones_make_way_before_whole_ones(self):
        with Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            for _ in range(3):
                checkpointer.save()
        for name in self.names()[1:]:
            pathlib.Path(self.folder, name, "state.pt").write_bytes(b"damaged")
        with Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            self.assertTrue(checkpointer.restore().path.endswith("/000001-step-0"))
            checkpointer.save()
        self.assertEqual(self.names(), ["000001-step-0", "000003-step-0", "000004-step-0"])

    def test_those_that_cannot_be_read_once_stay(self):
        with Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            for _ in range(3):
                checkpointer.save()
        names = self.names()
        error = OSError(errno.EIO, "Input/output error")
        with Checkpointer(self.folder, keep=1, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            with mock.patch.object(seal, "compare", side_effect=[error, None]):
                self.assertEqual(os.path.basename(checkpointer.restore().path), names[1])
            self.said(r"cannot be read \(Input/output error\): passed over")
            checkpointer.save()
        self.assertEqual(self.names(), [names[2], "000004-step-0"])

    def test_thousands_make_way_a_part_at_a_time(self):
        with Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            checkpointer.save()
        os.rename(os.path.join(self.folder, "000001-step-0"), os.path.join(self.folder, "005000-step-0"))
        for i in range(4000):
            os.mkdir(os.path.join(self.folder, f"{i:06d}-step-1000000"))
        with Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            checkpointer.restore()
            checkpointer.save()
        self.assertEqual(self.lines, [])
        self.assertEqual(self.names()[-2:], ["005000-step-0", "005001-step-0"])
        self.assertEqual(len(self.names()), 4002 - 100)

    def test_one_job_uses_a_folder(self):
        with Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}):
            with self.assertRaisesRegex(OSError, rf"another job's checkpoints \(pid {os.getpid()}\): give this one a folder of its own"):
                Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)})
        Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}).close()

    def test_a_lock_that_others_can_open_is_not_trusted(self):
        os.makedirs(self.folder)
        pathlib.Path(self.folder, ".lock").touch(0o644)
        with self.assertRaisesRegex(OSError, r"\.lock can be opened by another user .*: remove it if no job"):
            Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)})

    @unittest.skipIf(os.getuid() != 0, "needs root to give a checkpoint away")
    def test_another_user_s_checkpoint_is_passed_over(self):
        with Checkpointer(self.folder, state=lambda: {"a": torch.ones(3)}) as checkpointer:
            checkpointer.save()
        path = newest(self.folder)
        os.chown(path, 65534, 65534)
        self.assertIsNone(newest(self.folder))
        self.said("belongs to another user than its folder: uid 65534")


class Loader(Case):
    def test_the_loader_goes_on_at_the_next_batch(self):
        tree = pathlib.Path(self.scratch, "tree")
        for i in range(60):
            (tree / f"class{i % 3}").mkdir(parents=True, exist_ok=True)
            (tree / f"class{i % 3}" / f"{i}").write_bytes(bytes([i]) * 100)
        path = pack(tree, pathlib.Path(self.scratch, "set"))
        seen = []
        with Daemon(self.scratch, "--metrics", "off", log=os.path.join(self.scratch, "dieseld.log")):
            for part in (5, 100):
                loader = diesel_loader.torch.DataLoader(path, batch_size=4, shuffle=True, seed=1)
                self.addCleanup(loader.close)
                with Checkpointer(self.folder, every=1, loader=loader) as checkpointer:
                    checkpointer.restore()
                    for step, (data, _) in enumerate(loader):
                        seen += [int(item[0]) for item in data]
                        checkpointer.step()
                        checkpointer.wait()
                        if step + 1 == part:
                            break
                    self.assertEqual(loader.epoch, 0 if part == 5 else 1)
                    checkpointer.save()
            loader.set_epoch(0)   # an epoch again, without a resumed state
            with Checkpointer(self.folder, loader=loader) as checkpointer:
                checkpointer.restore()
            self.assertEqual((loader.epoch, self.lines), (1, []))
            with self.assertWarnsRegex(RuntimeWarning, r"set_epoch\(0\) repeats epoch 0: .* for epoch in range\(loader.epoch"):
                loader.set_epoch(0)   # as in a loop that saved its own number at the end of the epoch
        self.assertEqual(sorted(seen), list(range(60)))


if __name__ == "__main__":
    support.program("dieseld")
    unittest.main(verbosity=2)
