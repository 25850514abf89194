# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints of several ranks, and the storage writer for torch.distributed.checkpoint."""
import concurrent.futures
import os
import pathlib
import resource
import threading
import time
import traceback
import unittest
import unittest.mock
import warnings

import checkpoint_support
from checkpoint_support import Case, saver_of, support

import torch
import torch.distributed as dist

if checkpoint_support.IS_OLD:
    support.skip("needs PyTorch 2")
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from diesel_loader.checkpoint import Checkpointer, Writer, folder, memory

warnings.filterwarnings("ignore", message="torch.distributed is disabled")
N_RANKS = 2


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def job(rank, n_ranks, n_out=3):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(30, 50), torch.nn.Linear(50, n_out))
    if n_ranks > 1:
        fully_shard(model, mesh=init_device_mesh("cpu", (n_ranks,)))
    return model, torch.optim.Adam(model.parameters())


def train(model, optimizer, checkpointer, n_steps):
    for i in range(n_steps):
        model(torch.full((4, 30), float(i))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        checkpointer.step(epoch=i)


def content(model, optimizer):
    tensors = {name: whole(tensor) for name, tensor in model.state_dict().items()}
    for key, values in optimizer.state_dict()["state"].items():
        tensors |= {(key, name): whole(value) for name, value in values.items()}
    return tensors


class Extra:
    def __init__(self, refuses=False):
        self._refuses = refuses

    def state_dict(self):
        return {"a": 1}

    def load_state_dict(self, _):
        if self._refuses:
            raise ZeroDivisionError("no")


class Ranks(Case):
    def ranks(self, run):
        """Runs run(rank) in forked ranks with a process group."""
        place = os.path.join(self.scratch, f"group{len(os.listdir(self.scratch))}")
        pids = []
        for rank in range(N_RANKS):
            pid = os.fork()
            if pid == 0:
                try:
                    torch.set_num_threads(1)
                    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=N_RANKS)
                    run(rank)
                    dist.destroy_process_group()
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                os._exit(1)
            pids.append(pid)
        for pid in pids:
            self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_shards_are_restored_by_as_many_ranks_and_by_one(self):
        def first(rank):
            model, optimizer = job(rank, N_RANKS)
            with Checkpointer(self.folder, model=model, optimizer=optimizer, extra=Extra()) as checkpointer:
                assert checkpointer.restore() is None
                train(model, optimizer, checkpointer, 40)
                assert checkpointer.figures()["checkpoints"] > 0   # at steps that the ranks agreed on, or gloo would hang here
                checkpointer.save(epoch=100)
            tensors = content(model, optimizer)
            if rank == 0:
                torch.save(tensors, os.path.join(self.scratch, "wanted"))

        def second(rank):
            model, optimizer = job(rank, N_RANKS)
            with Checkpointer(self.folder, model=model, optimizer=optimizer) as checkpointer:
                self.check(checkpointer.restore(), model, optimizer)
                train(model, optimizer, checkpointer, 3)

        def third(rank):
            model, optimizer = job(rank, N_RANKS, n_out=4)
            before = whole(model[0].weight).clone()
            with Checkpointer(self.folder, model=model, optimizer=optimizer) as checkpointer:
                with self.assertRaisesRegex(ValueError, r"/0000\d\d-step-40 does not fit: model\.1\.\w+ has the shape \(3.*\) there, and \(4"):
                    checkpointer.restore()
                self.assertTrue(torch.equal(before, whole(model[0].weight)))

        def fourth(rank):
            model, optimizer = job(rank, N_RANKS)
            weights = content(model, optimizer)
            for others, error in (({"extra": Extra(refuses=rank == 1)}, (ZeroDivisionError, "extra=Extra: no")),
                                  ({"unknown": Extra()} if rank == 1 else {}, (KeyError, "has no state of 'unknown'"))):
                with Checkpointer(self.folder, model=model, optimizer=optimizer, **others) as checkpointer:
                    with self.assertRaisesRegex(*(error if rank else (RuntimeError, "rank 1 could not restore .*: see"))):
                        checkpointer.restore()
                    found = content(model, optimizer)
                    self.assertEqual(found.keys(), weights.keys())
                    self.assertTrue(all(torch.equal(tensor, weights[name]) for name, tensor in found.items()))
                dist.barrier()
        self.ranks(first)
        self.ranks(second)
        self.ranks(third)
        self.ranks(fourth)
        model, optimizer = job(0, 1)
        with Checkpointer(self.folder, model=model, optimizer=optimizer) as checkpointer:
            self.check(checkpointer.restore(), model, optimizer)
            checkpointer.save()
        self.assertEqual(self.lines, [])

    def test_a_model_of_which_each_rank_has_all_stays_as_it_was_where_another_rank_fails(self):
        def run(rank):
            model = torch.nn.Linear(3, 2)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            with Checkpointer(self.folder, model=model, optimizer=optimizer, extra=Extra(refuses=rank == 1)) as checkpointer:
                checkpointer.save()
                checkpointer.wait()
                dist.barrier()
                torch.nn.init.ones_(model.weight)
                with self.assertRaises(ZeroDivisionError if rank == 1 else RuntimeError):
                    checkpointer.restore()
                self.assertTrue(torch.equal(model.weight, torch.ones(2, 3)))
        self.ranks(run)

    def check(self, restored, model, optimizer):
        self.assertEqual((restored.step, restored.state["epoch"]), (40, 100))
        wanted, found = torch.load(os.path.join(self.scratch, "wanted")), content(model, optimizer)
        self.assertEqual(wanted.keys(), found.keys())
        for name, tensor in wanted.items():
            self.assertTrue(torch.equal(tensor, found[name]), name)

    def test_optimizers_go_on_on_any_number_of_ranks_as_if_never_stopped(self):
        def made():
            torch.manual_seed(0)
            models = torch.nn.ModuleDict({"a": torch.nn.Linear(5, 4), "b": torch.nn.Linear(5, 4)})
            return models, {"a": torch.optim.SGD(models["a"].parameters(), 0.1, momentum=0.9), "b": torch.optim.AdamW(models["b"].parameters())}

        def go_on(models, optimizers):
            for name, optimizer in optimizers.items():
                optimizer.zero_grad()
                models[name](torch.ones(2, 5)).square().sum().backward()
                optimizer.step()
        extra = {"counts": {1: 3.5, "a": {(2, "b"): {}, None: torch.ones(1)}}, "none": {}, "list": [torch.ones(1), {}, [{3: {}}]]}

        def part(rank):
            models, optimizers = made()
            with Checkpointer(self.folder, models=models, **optimizers) as checkpointer:
                restored = checkpointer.restore()
                if restored:
                    self.assertEqual({name: restored.state[name] for name in extra}, extra)
                go_on(models, optimizers)
                checkpointer.save(**extra)
            return models, optimizers
        wanted = made()
        for run in (self.ranks, self.ranks, lambda run: run(0), self.ranks):
            run(part)
            go_on(*wanted)
        found = part(0)
        go_on(*wanted)
        self.assertEqual(self.lines, [])
        self.assertEqual(len(self.names()), 3)
        for one, other in zip((wanted[0], *wanted[1].values()), (found[0], *found[1].values())):
            self.assertEqual(repr(one.state_dict()), repr(other.state_dict()))
        state = {"counts": {"1": 0}, "a": {"state": {0: {"momentum_buffer": torch.zeros(4, 5)}}}}
        newest = os.path.join(self.folder, self.names()[1])   # of ranks
        dcp.load(state, checkpoint_id=newest)
        self.assertEqual(state["counts"]["1"], 3.5)
        self.assertNotEqual(state["a"]["state"][0]["momentum_buffer"].sum(), 0)

    def test_a_rank_that_cannot_write_its_part(self):
        def run(rank):
            model, optimizer = job(rank, N_RANKS)
            with Checkpointer(self.folder, model=model, optimizer=optimizer) as checkpointer:
                checkpointer.save()
                checkpointer.wait()
                soft = 4096 if rank == 1 else resource.RLIM_INFINITY
                resource.prlimit(saver_of(os.getpid()), resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))
                self.lines.clear()
                checkpointer.save()
                checkpointer.wait()
                self.said("rank 1 has not written its part: .*File too large" if rank == 0 else "__1_0.distcp: File too large")
                resource.prlimit(saver_of(os.getpid()), resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                if rank == 1:
                    checkpointer._saver._memory = None   # as if the state had grown
                with unittest.mock.patch.object(memory, "_check_free", side_effect=MemoryError("none is free") if rank == 1 else None):
                    checkpointer.save()
                checkpointer.wait()
                self.said("step 0 is not written: rank 1: none is free")
                checkpointer.save(best={"of": threading.Lock() if rank == 1 else 1})
                self.said(r"step 0 is not written: rank 1: best\.of of the state cannot be saved \(.*lock")
                checkpointer.save()
                checkpointer.wait()
                self.assertEqual(self.lines, [])
            class Failing:
                load_state_dict = None

                def state_dict(self):
                    if rank == 1:
                        raise ValueError("no state")
                    return {}
            with Checkpointer(self.folder + "2", failing=Failing()) as checkpointer:
                with self.assertRaisesRegex(*((ValueError, "no state") if rank == 1 else (RuntimeError, "rank 1 could not make its state"))):
                    checkpointer.save()
        self.ranks(run)
        self.assertEqual(self.names(), ["000001-step-0", "000005-step-0"])

    def test_the_newest_that_is_whole_on_all_ranks_is_restored(self):
        def run(rank):
            model, optimizer = job(rank, N_RANKS)
            with Checkpointer(self.folder, every=1000, model=model, optimizer=optimizer) as checkpointer:
                train(model, optimizer, checkpointer, 1)
                for epoch in range(3):
                    checkpointer.save(epoch=epoch)
                checkpointer.wait()
                dist.barrier()
                if rank == 0:
                    for name, file in zip(self.names()[1:], ("manifest.json", "__1_0.distcp")):   # of which rank 1 reads the latter
                        os.truncate(os.path.join(self.folder, name, file), 10)
                dist.barrier()
                assert checkpointer.restore().state["epoch"] == 0
                if rank == 0:
                    for line, why in zip(self.lines, ("/000003-step-1 rank .: is damaged .*10 bytes", "/000002.* rank 0: is damaged .*rank 1: is damaged")):
                        self.assertRegex(line, why)
                self.assertEqual(len(self.lines), 0 if rank else 2)
                with unittest.mock.patch.object(folder, "verify", side_effect=folder.Damaged("old") if rank else folder.verify):   # a stale view
                    assert checkpointer.restore() is None
        self.ranks(run)


class Writing(Case):
    def setUp(self):
        super().setUp()
        self.state = {"model": {"weight": torch.randn(300, 200), "part": torch.arange(1e6)[10:20], "half": torch.randn(70).bfloat16()}, "text": "a", "n": 3}

    def loaded(self, path):
        state = {"model": {name: torch.zeros_like(tensor) for name, tensor in self.state["model"].items()}, "text": "", "n": 0}
        dcp.load(state, checkpoint_id=path)
        return state

    def check(self, path):
        found = self.loaded(path)
        for name, tensor in self.state["model"].items():
            self.assertTrue(torch.equal(found["model"][name], tensor), name)
        self.assertEqual((found["text"], found["n"]), ("a", 3))

    def test_what_save_writes_is_what_load_reads(self):
        writer = Writer()
        self.addCleanup(writer.close)
        for i in range(3):
            self.state["model"]["weight"] += 1
            dcp.save(self.state, checkpoint_id=os.path.join(self.folder, f"step-{i}"), storage_writer=writer)
        wanted = self.state["model"]["weight"].clone()
        self.state["model"]["weight"].zero_()   # the snapshot is taken already
        writer.wait()
        self.state["model"]["weight"] = wanted
        self.check(os.path.join(self.folder, "step-2"))
        for name in ("step-2", "step-3"):   # again, over the first, and where only the user has a file
            path = pathlib.Path(self.folder, name)
            (path / "tokens").mkdir(parents=True)
            (path / "config.json").write_text("{}")
            dcp.save(self.state, checkpoint_id=path, storage_writer=writer)
            writer.wait()
            self.check(path)
            self.assertEqual(sorted(os.listdir(path)), [".metadata", "__0_0.distcp", "config.json", "manifest.json", "tokens"])
        self.assertLess(os.stat(os.path.join(self.folder, "step-2", "__0_0.distcp")).st_size, 1 << 20)   # of a part, only the part
        self.assertEqual(self.names(), ["step-0", "step-1", "step-2", "step-3"])

    def test_a_forked_process_leaves_the_parent_s_save_alone_and_waits_for_its_own(self):
        writer = Writer()
        self.addCleanup(writer.close)
        dcp.save(self.state, checkpoint_id=os.path.join(self.folder, "step-1"), storage_writer=writer)
        pid = os.fork()
        if pid == 0:
            dcp.save(self.state, checkpoint_id=os.path.join(self.folder, "step-2"), storage_writer=writer)
            writer.close()
            os._exit(0 if "step-2" in self.names() else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        writer.wait()
        self.assertEqual(self.names(), ["step-1", "step-2"])

    def test_what_a_killed_save_has_left_is_not_taken_for_this_one_s(self):
        for attempt in ("", ".0123456789abcdef0123456789abcdef"):
            part = os.path.join(self.folder, f".step-1{attempt}.part")
            os.makedirs(part)
            for name, data in (("__0_0.distcp", b"old"), (".rank-0.json", folder.manifest({"name": "__0_0.distcp", "sums": [[3, 0]]}))):
                pathlib.Path(part, name).write_bytes(data)
        writer = Writer(os.path.join(self.folder, "step-1"))
        self.addCleanup(writer.close)
        dcp.save(self.state, storage_writer=writer)
        writer.wait()
        self.check(os.path.join(self.folder, "step-1"))
        self.assertEqual(self.names(), ["step-1"])

    def test_async_save_copies_once_and_returns_after_it(self):
        writer = Writer(os.path.join(self.folder, "step-1"))
        self.addCleanup(writer.close)
        class Planner(dcp.DefaultSavePlanner):
            def resolve_data(self, item):
                time.sleep(0.1)
                return super().resolve_data(item)
        done = dcp.async_save(self.state, storage_writer=writer, planner=Planner())
        wanted = self.state["model"]["weight"].clone()
        self.state["model"]["weight"].zero_()
        getattr(done, "upload_completion", done).result()
        writer.wait()
        self.state["model"]["weight"] = wanted
        self.check(os.path.join(self.folder, "step-1"))

    def test_a_save_that_overlaps_an_async_save_does_not_take_its_name(self):
        writer = Writer()
        self.addCleanup(writer.close)
        goes_on, finish = threading.Event(), writer.finish

        def late(*arguments, **named):
            if threading.current_thread() is not threading.main_thread():
                goes_on.wait(20)
            finish(*arguments, **named)
        writer.finish = late
        done = dcp.async_save(self.state, checkpoint_id=os.path.join(self.folder, "step-1"), storage_writer=writer)
        dcp.save({"n": 4}, checkpoint_id=os.path.join(self.folder, "step-2"), storage_writer=writer)
        writer.wait()
        self.assertNotIn("step-1", self.names())
        goes_on.set()
        getattr(done, "upload_completion", done).result()
        writer.wait()
        self.check(os.path.join(self.folder, "step-1"))

    def test_async_save_that_fails_does_not_hang(self):
        class Planner(dcp.DefaultSavePlanner):
            def create_local_plan(self):
                raise RuntimeError("no plan")
        writer = Writer(os.path.join(self.folder, "step-1"))
        self.addCleanup(writer.close)
        done = dcp.async_save(self.state, storage_writer=writer, planner=Planner())
        with self.assertRaises(BaseException):
            getattr(done, "upload_completion", done).result()
        started, end = [], threading.Event()

        def submit(executor, *work, **named):
            future = real(executor, *work, **named)
            started.append(threading.Thread(target=end.wait, args=(20,)))   # as one of a loader that starts at that moment
            started[-1].start()
            return future
        real = concurrent.futures.ThreadPoolExecutor.submit
        with unittest.mock.patch.object(concurrent.futures.ThreadPoolExecutor, "submit", submit):
            done = dcp.async_save(self.state, storage_writer=writer, planner=Planner())
        self.assertTrue(started[0].is_alive())
        end.set()
        with self.assertRaises(BaseException):
            getattr(done, "upload_completion", done).result()

    def test_a_checkpoint_that_cannot_be_written_is_an_error_when_it_is_waited_for(self):
        writer = Writer(os.path.join(self.folder, "step-1"))
        self.addCleanup(writer.close)
        dcp.save(self.state, storage_writer=writer)
        writer.wait()
        os.rename(self.folder, self.folder + ".away")
        with open(self.folder, "wb"):
            pass
        with self.assertRaises(BaseException):
            dcp.save(self.state, storage_writer=writer)
        os.unlink(self.folder)
        os.rename(self.folder + ".away", self.folder)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(saver_of(os.getpid()), resource.RLIMIT_FSIZE, (4096, hard))
        dcp.save(self.state, storage_writer=writer)
        with self.assertRaisesRegex(OSError, "File too large"):
            writer.wait()
        dcp.save(self.state, storage_writer=writer)   # of which wait() says nothing after a later one
        writer._wait_for_last()
        resource.prlimit(saver_of(os.getpid()), resource.RLIMIT_FSIZE, (hard, hard))
        dcp.save(self.state, storage_writer=writer)
        writer.wait()
        self.check(os.path.join(self.folder, "step-1"))
        with self.assertRaisesRegex(BaseException, "no place for the checkpoint"):
            dcp.save(self.state, storage_writer=Writer())
        for place, why in (("gs://a/b", "cannot be in 'gs://a/b': pass a folder"), ("s3://a/", "'s3://a' has no name for a checkpoint: pass s3://BUCKET/NAME"),
                           (pathlib.Path("s3://a/b"), "cannot be in 's3:/a/b'.* as a text")):
            with self.assertRaisesRegex(ValueError, why):
                Writer(place)


if __name__ == "__main__":
    unittest.main(verbosity=2)
