# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints of frameworks: a training that is killed, and resumed by the framework's own means, ends with the weights and the samples
of one that was not.

Each framework is skipped where it is not installed: run this with a Python that has them."""
import contextlib
import dataclasses
import fcntl
import hashlib
import importlib
import itertools
import json
import logging
import os
import pathlib
import resource
import select
import signal
import subprocess
import tempfile
import time
import traceback
import unittest
import urllib.request
import warnings
from unittest import mock

from checkpoint_support import Case, saver_of, support
import free_ports
from serving import Daemon, pack
import numpy
import torch

import diesel_loader.torch as diesel
from diesel_loader.checkpoint import Checkpointer, persister
from diesel_loader.checkpoint.bucket import is_bucket
from diesel_loader.checkpoint.files import Files

N, BYTES, STEPS, SAVED, KILLED = 96, 32, 20, 10, 13   # samples; steps of a run, before its checkpoint and before its death


class Model(torch.nn.Module):
    """Records its input. Its dropout needs the random numbers of the run before."""

    def __init__(self, dropout=0.3):
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.Sequential(torch.nn.Linear(BYTES, 16), torch.nn.Dropout(dropout), torch.nn.Linear(16, 2))
        self.seen = []

    def forward(self, inputs, labels):
        self.seen += [bytes(row.tolist()).hex() for row in inputs.to(torch.uint8)]
        return {"loss": torch.nn.functional.cross_entropy(self.layers(inputs.float() / 255), labels)}

    def told(self):
        weights = hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in self.layers.parameters()))
        return [self.seen, weights.hexdigest()]


def inputs_and_labels(samples):
    return {"inputs": torch.stack([data for data, _ in samples]), "labels": torch.tensor([label for _, label in samples])}


def die_at(step, at):
    if step == at:
        os.kill(os.getpid(), signal.SIGKILL)


def by_accelerate(loader, folder, killed):
    import accelerate
    accelerator, model = accelerate.Accelerator(cpu=True), Model()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    with Checkpointer(folder, every=SAVED, accelerator=accelerator) as checkpointer:
        restored = checkpointer.restore()
        step = restored.step if restored else 0
        while step < STEPS:
            for inputs, labels in loader:
                accelerator.backward(model(inputs, labels)["loss"])
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                step += 1
                checkpointer.step()
                die_at(step, killed)
                if step == STEPS:
                    break
    return model


def by_lightning(loader, folder, killed):
    import lightning
    from diesel_loader.checkpoint.lightning import CheckpointIO, existing

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model(dropout=0)   # Lightning itself saves no random states

        def training_step(self, batch, _):
            return self.model(*batch)["loss"]

        def on_train_batch_end(self, *_):
            die_at(self.trainer.global_step, killed)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 0.01)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    saves = lightning.pytorch.callbacks.ModelCheckpoint(folder, filename="{step}", every_n_train_steps=SAVED // 2, save_top_k=1,
                                                         save_last=True if is_bucket(folder) else "link")
    trainer = lightning.Trainer(plugins=CheckpointIO(), accelerator="cpu", max_steps=STEPS, logger=False, callbacks=[saves],
                                enable_progress_bar=False, enable_model_summary=False)
    module = Module()
    trainer.fit(module, loader, ckpt_path=existing(f"{folder}/last.ckpt"))
    return module.model


def by_transformers(loader, folder, killed):
    import transformers
    from diesel_loader.checkpoint.transformers import CheckpointCallback

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return loader

    class Death(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            die_at(state.global_step, killed)

    checkpoints = CheckpointCallback(folder, every=SAVED)
    model = Model()
    arguments = transformers.TrainingArguments(output_dir=folder + "/out", max_steps=STEPS, save_strategy="no", report_to=[], use_cpu=True,
                                               disable_tqdm=True, learning_rate=0.01)
    trainer = Trainer(model, arguments, callbacks=[checkpoints, Death()])
    trainer.train(resume_from_checkpoint=checkpoints.newest())
    return model


class Progress:
    step = 0

    def state_dict(self):
        return {"step": torch.tensor(self.step)}

    def load_state_dict(self, state):
        self.step = int(state["step"])


def by_torchtitan(loader, folder, killed):
    from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
    from diesel_loader.checkpoint.torchtitan import CheckpointManager
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}.group", rank=0, world_size=1)

    model, progress = Model(dropout=0), Progress()
    optimizers = dataclasses.replace(default_adamw(lr=0.01), implementation="foreach").build(model_parts=[model])
    schedulers = LRSchedulersContainer.Config(warmup_steps=2).build(optimizers=optimizers, training_steps=STEPS)
    manager = CheckpointManager.Config(enable=True, folder=folder, interval=SAVED, keep_latest_k=2).build(
        dataloader=loader, model_parts=[model], optimizers=optimizers, lr_schedulers=schedulers, states={"train_state": progress}, sd_adapter=None)
    manager.load()
    while progress.step < STEPS:
        for inputs, labels in loader:
            model(inputs, labels)["loss"].backward()
            optimizers.step()
            schedulers.step()
            optimizers.zero_grad()
            progress.step += 1
            manager.save(progress.step, progress.step == STEPS)
            die_at(progress.step, killed)
            if progress.step == STEPS:
                break
    manager.close()
    return model


class Frameworks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        rng = numpy.random.default_rng(6)
        for i in range(N):
            path = cls.scratch / "raw" / f"class{i % 2}" / f"{i}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(rng.bytes(BYTES))
        cls.path = pack(cls.scratch / "raw", cls.scratch / "packed")
        cls.metrics = f"127.0.0.1:{free_ports.free_port()}"
        cls.enterClassContext(Daemon(cls.scratch, "--metrics", cls.metrics))

    def run_in(self, framework, folder, killed=0):
        """Trains in a forked process, which needs no imports. Returns the samples and the weights, or None if it was killed."""
        out = pathlib.Path(self.scratch, f"{framework}.out")
        pid = os.fork()
        if pid == 0:
            try:
                torch.set_num_threads(1)
                warnings.simplefilter("ignore")
                collate = inputs_and_labels if framework == "transformers" else None
                with contextlib.closing(diesel.DataLoader(self.path, 8, True, seed=1, num_workers=0, collate_fn=collate)) as loader:
                    out.write_text(json.dumps(globals()[f"by_{framework}"](loader, str(folder), killed).told()))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.assertEqual(status, -signal.SIGKILL if killed else 0)
        return None if killed else json.loads(out.read_text())

    def check(self, framework, folder, is_whole):
        """is_whole(): the checkpoint that the killed run has begun last is written."""
        try:
            importlib.import_module(framework)   # once, for all of the forks
        except ImportError as error:
            self.skipTest(f"needs {framework}: {error}")
        whole = self.run_in(framework, f"{folder}-whole")
        self.assertEqual(len(whole[0]), 8 * STEPS)
        self.run_in(framework, folder, KILLED)
        for _ in range(1000):   # the process that writes goes on
            if is_whole():
                break
            time.sleep(0.01)
        rest = self.run_in(framework, folder)
        self.assertEqual(rest[0], whole[0][8 * SAVED:])
        self.assertEqual(rest[1], whole[1])

    def check_in_folder(self, framework, newest):
        self.check(framework, self.scratch / framework, (self.scratch / framework / newest).exists)

    def told(self, *command, **options):
        done = subprocess.run([support.program("dieselctl"), *command], capture_output=True, text=True, timeout=60, check=True, **options)
        return done.stdout

    def test_checkpoints_are_shown_from_outside(self):
        loader, model = diesel.DataLoader(self.path, 8, seed=1, num_workers=0), Model()
        self.addCleanup(loader.close)
        next(batches := iter(loader))
        self.assertEqual(self.shown(), None)
        self.assertNotIn("\ndiesel_job_checkpoints_total{", self.scraped())
        with Checkpointer(self.scratch / "shown", every=9, model=model) as checkpointer:
            for _ in range(9):
                time.sleep(0.01)
                checkpointer.step()
            checkpointer.wait()
            self.assertEqual(self.shown(), None)
            next(batches)   # tells the daemon
            shown, figures = self.shown(), checkpointer.figures()
            self.assertEqual((shown["begun"], shown["failed"], shown["interval_steps"], shown["writing"]), (1, 0, 9, False))
            for name in ("snapshot_s", "written_s", "overhead"):
                self.assertAlmostEqual(shown[name], figures[name], places=4)
            os.kill(saver_of(os.getpid()), signal.SIGKILL)
            with self.assertLogs("diesel_loader", "WARNING"):
                checkpointer.save()
                checkpointer.wait()
            next(batches)
            shown = self.shown()
            self.assertEqual((shown["begun"], shown["failed"]), (2, 1))
            self.assertGreater(shown["newest_age_s"], 0)
            why = self.told("why")
            self.assertRegex(why, r"\n          checkpoints: 2 begun, 1 failed, one every 9 steps, [\d.]+% of the time, snapshot .*; the newest on "
                                  r"disk is .* old\n")
            self.assertRegex(self.scraped(), r'\ndiesel_job_checkpoints_failed_total\{training_job="\d+",rank="0"\} 1\n')
            self.assertRegex(self.scraped(), r'\ndiesel_job_checkpoint_age_seconds\{training_job="\d+",rank="0"\} [\d.e-]+\n')
            if os.geteuid() == 0:   # another user sees nothing of it
                os.chmod(self.scratch, 0o755)
                self.assertEqual(json.loads(self.told("jobs", "--json", user=65534, group=65534, extra_groups=[]))["jobs"], [])
        del batches

    def test_files_of_frameworks_are_shown_from_outside_and_their_end_with_the_next_batch(self):
        loader, files = diesel.DataLoader(self.path, 8, seed=1, num_workers=0), Files()
        self.addCleanup(loader.close)
        self.addCleanup(files.close)
        batches, made_way = itertools.chain.from_iterable(itertools.repeat(loader)), []
        next(batches)
        files.save({"a": torch.ones(3)}, self.scratch / "shown-1.ckpt")
        files.wait()
        os.kill(saver_of(os.getpid()), signal.SIGSTOP)
        files.save({"a": torch.ones(3)}, self.scratch / "shown-2.ckpt")
        files.after_save(lambda: made_way.append(2))
        next(batches)
        shown = self.shown()
        self.assertEqual((shown["begun"], shown["failed"], shown["writing"], shown["interval_steps"], shown["overhead"]), (2, 0, True, None, None))
        os.kill(saver_of(os.getpid()), signal.SIGCONT)
        support.wait_for(lambda: select.select([files._saver._process._end], [], [], 0)[0], "the answer")
        pid = os.fork()
        if pid == 0:   # its loader takes no answer that the parent waits for
            next(iter(diesel.DataLoader(self.path, 8, seed=1, num_workers=0)))
            os._exit(len(made_way))
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        support.wait_for(lambda: next(batches) and not self.shown()["writing"], "the checkpoint's end")
        self.assertEqual(made_way, [2])
        self.assertGreater(self.shown()["newest_age_s"], 0)
        self.assertRegex(self.told("why"), r"checkpoints: 2 begun, 0 failed, snapshot .*; the newest on disk is .* old\n")

    def shown(self):
        return next(job for job in json.loads(self.told("jobs", "--json"))["jobs"] if job["pid"] == os.getpid())["checkpoints"]

    def scraped(self):
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=60) as answer:
            return answer.read().decode()

    def test_accelerate_goes_on_after_a_kill(self):
        self.check_in_folder("accelerate", f"000001-step-{SAVED}")

    def test_lightning_goes_on_after_a_kill(self):
        self.check_in_folder("lightning", f"step={SAVED}.ckpt")
        self.assertEqual(sorted(os.listdir(self.scratch / "lightning-whole")), ["last.ckpt", f"step={STEPS}.ckpt"])   # older ones made way

    def test_transformers_goes_on_after_a_kill(self):
        self.check_in_folder("transformers", f"000001-step-{SAVED}")

    def test_torchtitan_goes_on_after_a_kill(self):
        self.check_in_folder("torchtitan", f"step-{SAVED}")


class OneFile(Case):
    def setUp(self):
        super().setUp()
        self.files = Files()
        self.addCleanup(self.files.close)
        self.path = os.path.join(self.folder, "some.ckpt")

    def save(self, value, name="some.ckpt"):
        self.files.save({"tensor": torch.full((5,), float(value)), "any": Anything(value)}, os.path.join(self.folder, name))

    def test_a_file_is_what_torch_save_writes_and_replaces_the_one_before(self):
        for value in (1, 2):
            self.save(value)
            self.files.wait()
            found = torch.load(self.path, weights_only=False)   # any value that torch.save() takes
            self.assertEqual((found["tensor"].tolist(), found["any"].value), ([value] * 5, value))
        self.assertEqual(self.names(), ["some.ckpt"])

    def test_nothing_makes_way_for_a_file_that_cannot_be_written(self):
        made_way = []
        self.save(1)
        self.files.after_save(lambda: made_way.append(1))
        self.files.wait()
        self.assertEqual(made_way, [1])
        saver = saver_of(os.getpid())
        resource.prlimit(saver, resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
        self.save(2, "new.ckpt")
        self.files.after_save(lambda: made_way.append(2))
        self.files.wait()
        self.said("checkpoint .*/new.ckpt is not written: .*/new.ckpt: File too large. Training goes on$")
        self.files.after_save(lambda: made_way.append(3))
        self.assertEqual((made_way, self.names()), ([1], ["some.ckpt"]))
        os.kill(saver, signal.SIGKILL)
        self.save(3)
        self.files.wait()
        self.said("the process that writes was killed by signal 9")
        self.save(4)
        self.files.wait()
        self.assertEqual(torch.load(self.path, weights_only=False)["any"].value, 4)

    def test_an_old_file_that_cannot_be_removed_costs_one_line_and_the_others_make_way(self):
        self.save(1)
        self.files.wait()
        saver, made_way = saver_of(os.getpid()), []
        os.kill(saver, signal.SIGSTOP)
        self.save(2, "new.ckpt")
        self.files.after_save(lambda: os.unlink(self.path + ".gone"))
        self.files.after_save(lambda: made_way.append(2))
        os.kill(saver, signal.SIGCONT)
        self.files.wait()
        self.said("makes way for .*/new.ckpt is not removed: .*some.ckpt.gone")
        self.assertEqual(made_way, [2])

    def test_a_process_that_writes_and_is_stopped_holds_no_save_up_and_nothing_makes_way(self):
        self.save(1)
        self.files.wait()
        for name, value in (("SILENT_S", 0.5), ("PATIENCE_S", 0.05)):
            self.enterContext(mock.patch.object(persister, name, value))
        saver, made_way = saver_of(os.getpid()), []
        os.kill(saver, signal.SIGSTOP)
        self.save(2)
        self.save(3, "new.ckpt")
        self.said(rf"new.ckpt is not written: .*pid {saver}\) has got no further.*kill -KILL {saver}$")
        self.files.after_save(lambda: made_way.append(3))
        os.kill(saver, signal.SIGCONT)
        support.wait_for(lambda: self.files.wait() or not self.files._saver.is_writing, "the save before")
        self.assertEqual(torch.load(self.path, weights_only=False)["any"].value, 2)
        self.assertEqual((made_way, self.names()), ([], ["some.ckpt"]))
        self.save(4, "new.ckpt")
        self.files.after_save(lambda: made_way.append(4))
        self.files.wait()
        self.assertEqual((made_way, self.names()), ([4], ["new.ckpt", "some.ckpt"]))

    def test_half_written_files_of_killed_processes_are_removed_and_those_of_others_stay(self):
        os.mkdir(self.folder)
        for name in ("dead", "locked", "young", "foreign"):
            path = pathlib.Path(self.folder, f".{name}.diesel-part")
            path.touch()
            if name != "young":
                os.utime(path, (0, 0))
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
        else:
            path.unlink()
        with open(os.path.join(self.folder, ".locked.diesel-part"), "rb") as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            self.save(1)
            self.files.wait()
        stay = [".foreign.diesel-part"] if os.geteuid() == 0 else []
        self.assertEqual(self.names(), [*stay, ".locked.diesel-part", ".young.diesel-part", "some.ckpt"])

    def test_a_forked_process_leaves_the_file_alone(self):
        self.save(1)
        pid = os.fork()
        if pid == 0:
            self.save(2, "of-child.ckpt")
            self.files.close()
            os._exit(0)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.files.wait()
        self.assertEqual(self.names(), ["of-child.ckpt", "some.ckpt"])


class Anything:
    def __init__(self, value):
        self.value = value


if __name__ == "__main__":
    unittest.main()
