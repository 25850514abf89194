# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints of several ranks in a bucket, and the storage writer and reader for torch.distributed.checkpoint there, with the
PyTorch of integration.wheel_frameworks."""
import contextlib
import gc
import os
import pathlib
import random
import signal
import sys
import time
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "integration" / "wheel"))
from wheel_support import FRAMEWORKS, TORCHTITAN, folder_with, kept_environment  # noqa: E402

PYTHON = kept_environment(*FRAMEWORKS)
if sys.prefix != str(PYTHON.parent.parent):
    os.execv(PYTHON, [PYTHON, *sys.argv])   # for PyTorch 2

import test_checkpoint_frameworks as frameworks
import test_checkpoint_ranks as shards
import test_checkpoint_s3 as s3
from checkpoint_support import saver_of

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from diesel_loader.checkpoint import Checkpointer, Reader, Writer, bucket, folder, memory, persist

REFUSED = (403, "<Error><Code>AccessDenied</Code></Error>")
SHARD = r"__\d_0-[0-9a-f]{32}\.distcp"
setUpModule = s3.setUpModule


def kill(pid):
    with contextlib.suppress(ChildProcessError):   # killed and waited for already
        if os.waitpid(pid, os.WNOHANG)[0] == 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


class Ranks(s3.Bucket):
    ranks = shards.Ranks.ranks

    def saved(self, run=lambda checkpointer, rank: None, n=1):
        """Has the ranks save n checkpoints, and then calls run in them."""
        def rank_of(rank):
            model, optimizer = shards.job(rank, shards.N_RANKS)
            with Checkpointer(self.folder, every=1000, model=model, optimizer=optimizer) as checkpointer:
                shards.train(model, optimizer, checkpointer, 1)
                for epoch in range(n):
                    checkpointer.save(epoch=epoch)
                checkpointer.wait()
                dist.barrier()
                run(checkpointer, rank)
        self.ranks(rank_of)

    def test_the_newest_whole_one_is_restored_by_as_many_ranks_and_by_one_and_the_objects_are_those_of_a_folder(self):
        def run(checkpointer, rank):
            tensors = shards.content(**checkpointer._objects)
            if rank == 0:
                torch.save(tensors, os.path.join(self.scratch, "wanted"))
                first, second, third = self.names()
                files = self.objects.checkpoints()
                for name in (first, second, third):
                    self.assertEqual(len(files[name]), 4)
                    self.assertRegex(" ".join(files[name]), rf"^\.metadata {SHARD} {SHARD} manifest.json$")
                self.objects.delete(f"{third}/manifest.json")
                shard = f"{second}/{files[second][2]}"
                with open(self.objects.read(shard, 1 << 30), "rb") as file:
                    data = os.pread(file.fileno(), 1 << 30, 0)
                self.objects.put_bytes(shard, data[:-9] + b"!" + data[-8:], replace=True)   # of which rank 1 reads it
            dist.barrier()
            self.assertEqual(checkpointer.restore().state["epoch"], 0)
            if rank == 0:
                for line, why in zip(self.lines, (f"{third} .*has no manifest.json", rf"{second} rank 1: is damaged \({SHARD}: its bytes .* do not match")):
                    self.assertRegex(line, why)
            self.assertEqual(len(self.lines), 0 if rank else 2)
        self.saved(run, 3)
        model, optimizer = shards.job(0, 1)
        with Checkpointer(self.folder, model=model, optimizer=optimizer) as checkpointer:
            self.assertEqual(checkpointer.restore().state["epoch"], 0)
        found = shards.content(model, optimizer)
        for name, tensor in torch.load(os.path.join(self.scratch, "wanted")).items():
            self.assertTrue(torch.equal(tensor, found[name]), name)
        where = os.path.join(self.scratch, "copy")   # as by aws s3 cp --recursive
        for file in self.objects.checkpoints()[self.names()[0]]:
            os.makedirs(where, exist_ok=True)
            with open(self.objects.read(f"{self.names()[0]}/{file}", 1 << 30), "rb") as source:
                pathlib.Path(where, file).write_bytes(os.pread(source.fileno(), 1 << 30, 0))
        state = {"epoch": None}
        dcp.load(state, checkpoint_id=where)
        self.assertEqual(state["epoch"], 0)

    def test_a_bucket_that_refuses_one_rank_costs_one_line_and_a_restore_fails_on_all(self):
        def refusing(checkpointer, rank):
            checkpointer.save()
            checkpointer.wait()
            self.said("rank 1 has not written its part: .*403" if rank == 0 else "__1_0-.*403 .AccessDenied.*Training goes on")
        s3.PROXY.reset(lambda method, path, *_: REFUSED if method == "PUT" and "/__1_0-" in path else None)
        self.saved(refusing, 0)
        self.assertEqual(self.names(), [])   # nothing is left
        s3.PROXY.reset()

        def without_memory(checkpointer, rank):
            with unittest.mock.patch.object(memory, "_check_free", side_effect=MemoryError("none is free") if rank == 1 else None):
                checkpointer.save()
            checkpointer.wait()
            dist.barrier()
            if rank == 0:
                self.assertEqual(self.names(), ["000001-step-1"])   # the part of this rank
            dist.barrier()
            checkpointer.save()
        self.saved(without_memory, 0)
        self.assertEqual(self.names(), ["000002-step-1"])
        self.objects.remove("000002-step-1")
        s3.PROXY.reset(lambda method, path, *_: REFUSED if method == "GET" and "/__1_0-" in path else None)

        def failing(checkpointer, rank):
            with self.assertRaisesRegex(OSError, "403" if rank else "rank 1: .*403"):
                checkpointer.restore()
        self.saved(failing)
        self.assertEqual(len(self.names()), 1)

    def test_killed_at_any_moment_no_torn_one_is_restored_and_what_was_whole_is(self):
        rng = random.Random(os.environ.get("SEED"))
        before = 0
        for kind in ("trainers", "a saver of one rank", "all"):
            place, pids = os.path.join(self.scratch, kind), []
            newest = max(map(folder.number_of, self.names()), default=0)
            for rank in range(shards.N_RANKS):
                pid = os.fork()
                if pid == 0:
                    try:
                        self.work(rank, place)
                    finally:
                        os._exit(1)
                pids.append(pid)
                self.addCleanup(kill, pid)
            while not any(folder.number_of(name) > newest and "manifest.json" in files for name, files in self.objects.checkpoints().items()):
                for pid in pids:
                    self.assertEqual(os.waitpid(pid, os.WNOHANG)[0], 0)
                time.sleep(0.05)
            time.sleep(rng.uniform(0, 0.5))
            savers = [saver_of(pid) for pid in pids]
            killed = [*(savers if kind == "all" else savers[1:] if "one" in kind else []), *pids]
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            for pid in pids:
                os.waitpid(pid, 0)
            if "one" in kind:   # the first rank's need not wait for what never comes
                os.kill(savers[0], signal.SIGKILL)
            value = s3.faults.Value()
            with Checkpointer(self.folder, value=value) as checkpointer:
                step = checkpointer.restore().step
            self.assertEqual(step, value.number())
            self.assertGreaterEqual(step, before)
            before = step
        self.assertGreater(before, 0)
        for line in self.lines:
            self.assertRegex(line, "half-written: removed|waiting until the job before")

    def work(self, rank, place):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=shards.N_RANKS)
        value = s3.faults.Value()
        checkpointer = Checkpointer(self.folder, every=3, value=value)
        checkpointer.restore()
        while True:
            value.step()
            checkpointer.step()
            time.sleep(s3.faults.STEP_S)


class Writing(s3.Bucket):
    def test_what_save_writes_is_what_the_reader_reads(self):
        writer = Writer()
        self.addCleanup(writer.close)
        state = {"model": {"weight": torch.randn(300, 200), "half": torch.randn(70).bfloat16()}, "n": 3}
        paths = [f"{self.folder}/step-{i}" for i in range(2)]
        for path in paths:
            dcp.save(state, checkpoint_id=path, storage_writer=writer)
            wanted = state["model"]["weight"].clone()
            state["model"]["weight"] += 1   # the snapshot is taken already
        writer.wait()
        found = {"model": {name: torch.zeros_like(tensor) for name, tensor in state["model"].items()}, "n": 0}
        reader = Reader(paths[0])
        for path in (*paths, None):   # None: once more
            dcp.load(found, checkpoint_id=path, storage_reader=reader)
        self.assertTrue(torch.equal(found["model"]["weight"], wanted))
        self.assertEqual(found["n"], 3)
        dcp.save(state, checkpoint_id=paths[0], storage_writer=writer)
        with self.assertRaisesRegex(OSError, "step-0 exists, and a checkpoint in a bucket is not replaced: use another name"):
            writer.wait()
        self.assertEqual([len(self.objects.keys(f"step-{i}/")) for i in range(2)], [3, 3])
        dcp.load(found, checkpoint_id=paths[0], storage_reader=reader)
        shard = next(key for key in self.objects.keys("step-0/") if "distcp" in key)
        self.objects.put_bytes(shard, b"damaged", replace=True)
        with self.assertRaisesRegex(BaseException, "step-0 cannot be read: .*it has 7 bytes"):
            dcp.load(found, storage_reader=Reader(paths[0]))
        self.objects.delete("step-0/manifest.json")
        with self.assertRaisesRegex(BaseException, "step-0 cannot be read: it has no manifest.json"):
            dcp.load(found, storage_reader=Reader(paths[0]))
        theirs = ["step-0/data/0.bin", "step-0/notes.txt"]   # of the user
        for key in theirs:
            self.objects.put_bytes(key, b"some")
        dcp.save(state, checkpoint_id=paths[0], storage_writer=writer)   # over half of one
        writer.wait()
        dcp.load(found, storage_reader=Reader(paths[0]))
        self.assertEqual([key for key in self.objects.keys("step-0/") if key in theirs], theirs)
        self.assertEqual(len(self.objects.keys("step-0/")), 3 + len(theirs))

    def test_others_get_as_long_again_as_an_upload_took(self):
        process, marks = persist.Process.__new__(persist.Process), iter([None, None, None])
        process._trainer_has_died, process.beat = lambda: True, lambda: None
        with unittest.mock.patch.object(persist, "LATER_DEAD_S", 0):
            _, error = process.others({"folder": "s3://a", "name": "b", "ranks": 1}, lambda: 1, lambda _: next(marks), 0.1, 0.15)
        self.assertEqual(error, "s3://a/b: ranks [0] have not written their part")
        self.assertEqual(list(marks), [])   # three looks in that time


class Frameworks(s3.Bucket):
    """One argument is another one than with a folder, where integration.wheel_frameworks tests them."""

    def test_accelerate(self):
        import accelerate
        weights = []
        for n_saved in (1, 0):
            accelerator = accelerate.Accelerator(cpu=True)
            model = accelerator.prepare(torch.nn.Linear(3, 2))
            with Checkpointer(self.folder, accelerator=accelerator) as checkpointer:
                restored = checkpointer.restore()
                for _ in range(n_saved):
                    checkpointer.save()
            weights.append(model.weight)
        self.assertEqual(restored.path, f"{self.folder}/000001-step-0")
        self.assertTrue(torch.equal(*weights))

    def test_the_trainer_of_hugging_face(self):
        import transformers
        from diesel_loader.checkpoint.transformers import CheckpointCallback
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters())
        now = {"model": model, "optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 5)}
        first = CheckpointCallback(self.folder, every=1)
        self.assertIsNone(first.newest())
        first.on_step_end(None, transformers.TrainerState(global_step=7), None, **now)
        first.on_train_end(None, None, None)
        second = CheckpointCallback(self.folder)
        path = second.newest()
        second.on_train_end(None, None, None)
        self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o777, 0o700)
        self.assertEqual(transformers.TrainerState.load_from_json(path + "/trainer_state.json").global_step, 7)
        self.assertTrue(torch.equal(torch.load(path + "/pytorch_model.bin")["weight"], model.weight))
        del second
        gc.collect()
        self.assertFalse(os.path.exists(path))


    def test_torchtitan(self):
        self.enterContext(unittest.mock.patch.object(sys, "path", [*sys.path, str(folder_with(PYTHON, *TORCHTITAN))]))
        from diesel_loader.checkpoint.torchtitan import CheckpointManager
        dist.init_process_group("gloo", init_method=f"file://{self.scratch}/group", rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)

        def manager(progress):
            return CheckpointManager.Config(enable=True, folder=self.folder, interval=10, keep_latest_k=2).build(
                dataloader=None, model_parts=[torch.nn.Linear(3, 2)], optimizers=frameworks.Progress(), lr_schedulers=frameworks.Progress(), sd_adapter=None,
                states={"train_state": progress})
        first, progress = manager(frameworks.Progress()), frameworks.Progress()
        self.assertFalse(first.load())   # by no file system of fsspec
        first.states["train_state"] = progress
        for progress.step in range(10, 60, 10):
            first.save(progress.step)
            first._writer.wait()
        self.assertEqual([name for name in ("step-20", "step-30", "step-40", "step-50") if self.objects.keys(name)], ["step-30", "step-40", "step-50"])
        s3.PROXY.reset(lambda method, *_: REFUSED if method == "DELETE" else None)
        progress.step = 60
        first.save(60)
        first.close()
        self.said("old checkpoints in s3://.* are not removed: .*403 .*The next save tries again")
        s3.PROXY.reset()
        self.objects.delete("step-60/manifest.json")   # as if it had been killed
        second = frameworks.Progress()
        self.assertTrue(manager(second).load())
        self.assertEqual(second.step, 50)
        third = frameworks.Progress()
        self.assertTrue(manager(third).load(40))
        self.assertEqual(third.step, 40)
        shard = next(key for key in self.objects.keys("step-50/") if key.endswith(".distcp"))
        self.objects.put_bytes(shard, b"!" * self.objects.sizes(shard)[shard], replace=True)
        fourth = manager(frameworks.Progress())
        self.assertTrue(fourth.load())
        self.assertEqual(fourth.states["train_state"].step, 40)
        self.said("checkpoint s3://.*/step-50 cannot be read: .* do not match their checksum: passed over$")
        fourth.states["train_state"].step = 50
        fourth.save(50)   # in place of the damaged one
        fourth.close()
        fifth = frameworks.Progress()
        self.assertTrue(manager(fifth).load())
        self.assertEqual((fifth.step, self.lines), (50, []))
        for key in self.objects.keys():
            if key.endswith(".metadata"):
                self.objects.put_bytes(key, b"!", replace=True)
        with self.assertRaisesRegex(OSError, "no checkpoint that can be read"):   # no training from half-read weights
            manager(frameworks.Progress()).load()
        self.assertRegex("\n".join(self.lines), r"^(checkpoint s3://\S*/step-\d0 cannot be read: .metadata: .*: passed over\n?){2,}$")


class Lightning(s3.Bucket):
    setUpClass = frameworks.Frameworks.__dict__["setUpClass"]
    check, run_in = frameworks.Frameworks.check, frameworks.Frameworks.run_in

    def setUp(self):
        super().setUp()
        import diesel_loader.checkpoint.lightning as door
        self.door, self.url = door, self.folder + "/last.ckpt"

    def test_lightning_goes_on_after_a_kill_and_older_ones_make_way(self):
        def is_whole():
            found = self.door.existing(self.url)
            return found and door.load_checkpoint(found, weights_only=False)["global_step"] == frameworks.SAVED
        door = self.door.CheckpointIO()
        self.check("lightning", self.folder, is_whole)
        self.assertIsNone(self.door.existing(self.folder + "/other.ckpt"))
        whole = bucket.Bucket(self.folder + "-whole", s3.DIESELCTL)
        self.addCleanup(whole.close)
        self.assertEqual(sorted(whole.keys()), ["last.ckpt", f"step={frameworks.STEPS}.ckpt"])

    def saves(self):
        door = self.door.CheckpointIO()
        self.addCleanup(door.teardown)
        door.save_checkpoint({"a": torch.arange(1 << 18)}, self.url)
        door.load_checkpoint(self.url)
        return door

    def test_nothing_makes_way_for_one_that_cannot_be_written_and_each_failure_is_one_line(self):
        door = self.saves()
        s3.PROXY.reset(lambda method, path, *_: REFUSED if method == "PUT" else None)
        door.save_checkpoint({"a": torch.arange(3)}, self.folder + "/new.ckpt")
        door.remove_checkpoint(self.url)
        door.teardown()
        self.said("checkpoint s3://.*/new.ckpt is not written: .*403 .*Training goes on$")
        self.assertEqual(self.objects.keys(), ["last.ckpt"])
        s3.PROXY.reset(lambda method, path, *_: REFUSED if method == "DELETE" else None)
        door.save_checkpoint({"a": torch.arange(3)}, self.folder + "/new.ckpt")
        door.remove_checkpoint(self.url)
        door.teardown()
        self.said("the old checkpoint s3://.*/last.ckpt is not removed: .*403 ")
        self.assertEqual(sorted(self.objects.keys()), ["last.ckpt", "new.ckpt"])
        with self.assertRaisesRegex(ValueError, "which is a text and no Path"):
            door.save_checkpoint({}, pathlib.Path(self.url))

    def test_a_save_whose_process_is_killed_is_one_line_and_leaves_a_whole_one(self):
        door, begun = self.saves(), []

        def fault(method, *_):
            if method == "PUT" and not begun:
                begun.append(saver_of(os.getpid()))
                os.kill(begun[0], signal.SIGKILL)
        s3.PROXY.reset(fault)
        door.save_checkpoint({"a": torch.arange(3)}, self.url)
        door.remove_checkpoint(self.folder + "/other.ckpt")
        found = door.load_checkpoint(self.url)["a"]   # dieselctl may have gone on
        self.said("last.ckpt is not written: the process that writes was killed by signal 9. Training goes on$")
        self.assertIn(len(found), (3, 1 << 18))
        door.save_checkpoint({"a": torch.arange(5)}, self.url)
        self.assertEqual(len(door.load_checkpoint(self.url)["a"]), 5)

    def test_a_damaged_one_is_refused_and_a_bucket_that_is_away_is_not_taken_for_an_empty_one(self):
        door = self.saves()
        with open(self.objects.read("last.ckpt", 1 << 30), "rb") as file:
            data = os.pread(file.fileno(), 1 << 30, 0)
        for changed, why in ((data[:1 << 20] + b"!" + data[(1 << 20) + 1:], "/data/0"), (data[:-100], "zip file")):
            self.objects.put_bytes("last.ckpt", changed, replace=True)
            with self.assertRaisesRegex(OSError, f"last.ckpt is damaged .*{why}.*: resume from an older one"):
                door.load_checkpoint(self.url)
        s3.PROXY.reset(lambda *_: REFUSED)
        for call in (self.door.existing, door.load_checkpoint):
            with self.assertRaisesRegex(OSError, "403"):
                call(self.url)


if __name__ == "__main__":
    unittest.main(verbosity=2)
