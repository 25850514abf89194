# SPDX-License-Identifier: Apache-2.0
"""Tests training loops of frameworks with diesel_loader.torch.DataLoader: every sample once per epoch, with its bytes.

Each case is skipped where its framework is not installed, as in Debian's Python: run it with a Python that has them."""
import contextlib
import importlib
import importlib.util
import json
import logging
import os
import pathlib
import socket
import sys
import tempfile
import unittest
import warnings
from unittest import mock

# Imported first: skips where modules are missing.
from torch_support import Daemon, grouped, pack, support
from forked import Script
import numpy
import torch

import diesel_loader.torch as diesel
from diesel_loader.order import EpochOrder

FRAMEWORKS = ("accelerate", "lightning", "transformers", "torchdata", "torchmetrics")
if not any(importlib.util.find_spec(name) for name in FRAMEWORKS):
    support.skip(f"needs one of {', '.join(FRAMEWORKS)}, which are on PyPI")

N_CLASSES, PER_CLASS, EQUAL = 3, 41, 64
N = N_CLASSES * PER_CLASS


def framework(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise unittest.SkipTest(f"needs {name}: {error}") from None


def collate(samples):
    """Returns the input of a model of transformers."""
    return {"inputs": torch.stack([data for data, _ in samples]),
            "labels": torch.tensor([label for _, label in samples])}


def keys(data):
    return [bytes(row.tolist()).hex() for row in data.cpu().to(torch.uint8)]


class Model(torch.nn.Module):
    """Learns nothing, and records its input."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(EQUAL, N_CLASSES)
        self.seen = []

    def forward(self, inputs, labels=None):
        self.seen += keys(inputs)
        scores = self.layer(inputs.float() / 255)
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}


class FrameworkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        rng = numpy.random.default_rng(6)
        cls.all = []
        for c in range(N_CLASSES):
            (cls.folder / "raw" / f"class{c}").mkdir(parents=True)
            for i in range(PER_CLASS):
                data = rng.bytes(EQUAL)
                cls.all.append(data.hex())
                (cls.folder / "raw" / f"class{c}" / f"{i}.bin").write_bytes(data)
        cls.all.sort()
        cls.path = pack(cls.folder / "raw", cls.folder / "packed")
        cls.enterClassContext(Daemon(cls.folder))
        warnings.simplefilter("ignore")

    def loader(self, **options):
        loader = diesel.DataLoader(self.path, **grouped({"batch_size": 8, "shuffle": True, "seed": 1, **options}))
        self.addCleanup(loader.close)
        return loader

    def ranks(self, case, n=2):
        """Runs a case of this file in n processes, like torchrun. Returns the result of each."""
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as probe:
            port = probe.getsockname()[1]
        scripts = []
        for rank in range(n):
            env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n),
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
            with contextlib.chdir(self.folder):
                scripts.append(Script(__file__, case, self.path, environment=env))
            self.addCleanup(scripts[-1].end)
        results = []
        for script in scripts:
            out, err = script.communicate()
            self.assertEqual(script.returncode, 0, out + err)
            results.append(json.loads(out.strip().splitlines()[-1]))
        return results

    def epochs(self, n, **options):
        """Returns the batches of the first epochs, as keys."""
        loader = self.loader(**options)
        return [[keys(data) for data, _ in loader] for _ in range(n)]

    # Accelerate

    def test_accelerate(self):
        accelerate = framework("accelerate")
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        given = self.loader(transform=torch.clone, num_workers=1)
        model, optimizer, loader = accelerator.prepare(model, optimizer, given)
        self.assertIs(loader, given)
        for epoch in range(2):
            updates = 0
            for data, labels in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(model(data, labels)["loss"])
                    updates += accelerator.sync_gradients
                    optimizer.step()
                    optimizer.zero_grad()
            # Includes the rest at the end of the epoch.
            self.assertEqual(updates, -(-len(loader) // 4))
            self.assertEqual(sorted(model.seen), self.all)
            model.seen.clear()
        self.assertFalse(accelerate.state.GradientState().in_dataloader)

    def test_accelerate_skips_what_was_done(self):
        accelerate = framework("accelerate")
        accelerator = accelerate.Accelerator(cpu=True)
        loader = accelerator.prepare(self.loader(num_workers=0))
        whole = [keys(data) for data, _ in loader]
        loader.set_epoch(0)
        self.assertEqual([keys(data) for data, _ in accelerator.skip_first_batches(loader, 5)], whole[5:])

    def test_accelerate_skips_in_an_epoch_that_nobody_told(self):
        accelerate = framework("accelerate")
        accelerator, rests = accelerate.Accelerator(cpu=True), []
        for is_resumed in (False, True):
            torch.manual_seed(1)
            loader = accelerator.prepare(self.loader(seed=None, num_workers=0))
            batches = accelerator.skip_first_batches(loader, 5) if is_resumed else list(loader)[5:]
            rests.append([[keys(data) for data, _ in batches], [keys(data) for data, _ in loader]])
        self.assertEqual(*rests)
        self.assertNotEqual(rests[0][0], rests[0][1][5:])

    def test_accelerate_keeps_the_state(self):
        """save_state() saves the state of loaders that have one. A resumed loader can still be skipped through by number."""
        accelerate = framework("accelerate")
        whole = self.epochs(3, lanes=4)
        first = accelerate.Accelerator(cpu=True)
        batches = iter(first.prepare(self.loader(num_workers=0, lanes=4)))
        for _ in range(5):
            next(batches)
        first.save_state(str(self.folder / "accelerate"))
        for skips in (False, True):
            second = accelerate.Accelerator(cpu=True)
            loader = second.prepare(self.loader(num_workers=0, lanes=4))
            second.load_state(str(self.folder / "accelerate"))
            rest = second.skip_first_batches(loader, 5) if skips else loader
            self.assertEqual([keys(data) for data, _ in rest], whole[0][5:])
            self.assertEqual([keys(data) for data, _ in loader], whole[1])

    def test_accelerate_on_two_ranks(self):
        framework("accelerate")
        shares = self.ranks("accelerate")
        self.assertEqual(sorted(shares[0] + shares[1]), self.all)

    def test_accelerate_does_not_share_out_a_share(self):
        accelerate = framework("accelerate")
        accelerator, dataset = accelerate.Accelerator(cpu=True), diesel.Dataset(self.path)
        theirs = torch.utils.data.distributed.DistributedSampler
        for loader in (self.loader(shuffle=False, sampler=theirs(dataset, 2, 1, shuffle=False)), self.loader(batch_size=None, rank=1, world_size=2),
                       self.loader(shuffle=False, sampler=diesel.ChunkShuffleSampler(dataset, rank=1, world_size=2)),
                       self.loader(batch_size=1, shuffle=False, batch_sampler=self.loader(rank=1, world_size=2).batch_sampler)):
            with self.assertRaisesRegex(ValueError, "^this loader already reads only the share of rank 1, [^\n]*$"):
                accelerator.prepare(loader)
        for loader in (self.loader(rank=1, world_size=2), self.loader(shuffle=False, sampler=theirs(dataset, 1, 0, shuffle=False))):
            self.assertGreater(len(list(accelerator.prepare(loader))), 1)

    # Lightning

    def test_lightning(self):
        framework("lightning")
        model, trainer = lightning_trainer()
        trainer.fit(model, self.loader(), self.loader(shuffle=False))
        self.assertEqual([sorted(epoch) for epoch in model.epochs], [self.all] * 2)
        self.assertNotEqual(*model.epochs)
        self.assertEqual(sorted(set(model.validated)), self.all)

    def test_lightning_on_two_ranks(self):
        framework("lightning")
        shares = self.ranks("lightning")
        for epoch in range(2):
            self.assertEqual(sorted(shares[0][epoch] + shares[1][epoch]), self.all)

    def test_lightning_makes_the_loader_again(self):
        """Lightning does that for predict(), and for overfit_batches, with the class of the batch sampler."""
        framework("lightning")
        for options in ({}, {"drop_last": True, "batch_size": 5}, {"return_ids": True}, {"bucket_by_length": True}, {"lanes": 3, "drift": 2}):
            model, trainer = lightning_trainer()
            trainer.predict(model, self.loader(**options))
            self.assertEqual(sorted(model.predicted), self.all, options)
        model, trainer = lightning_trainer(overfit_batches=2)
        trainer.fit(model, self.loader())
        first = sum(self.epochs(1, shuffle=False)[0][:2], [])
        self.assertEqual(model.epochs, [first, first])

    def test_lightning_resumes_at_the_end_of_an_epoch(self):
        """Lightning calls set_epoch() after iter()."""
        framework("lightning")
        model, trainer = lightning_trainer()
        trainer.fit(model, self.loader())
        trainer.save_checkpoint(self.folder / "lightning.ckpt")
        model, trainer = lightning_trainer(max_epochs=4)
        trainer.fit(model, self.loader(), ckpt_path=self.folder / "lightning.ckpt")
        self.assertEqual(model.epochs, [sum(epoch, []) for epoch in self.epochs(4)[2:]])

    # Hugging Face Trainer

    def test_transformers_trainer_resumes_in_the_middle_of_an_epoch(self):
        """The trainer makes a loader to skip the finished batches, and calls its set_epoch()."""
        transformers = framework("transformers")
        framework("accelerate")

        class Trainer(transformers.Trainer):
            def get_train_dataloader(trainer):
                return self.loader(collate_fn=collate, num_workers=0)

        seen = []
        for steps, options in ((20, {}), (40, {"resume_from_checkpoint": str(self.folder / "resumed" / "checkpoint-20")})):
            model = Model()
            arguments = transformers.TrainingArguments(output_dir=str(self.folder / "resumed"), max_steps=steps, save_steps=20,
                                                       report_to=[], use_cpu=True, disable_tqdm=True)
            Trainer(model, arguments).train(**options)
            seen += model.seen
        self.assertEqual(seen, sum(sum(self.epochs(3), [])[:40], []))

    def test_transformers_trainer(self):
        transformers = framework("transformers")
        framework("accelerate")
        loader, folder = self.loader(collate_fn=collate, num_workers=0), self.folder

        class Trainer(transformers.Trainer):
            def get_train_dataloader(self):
                return loader

        model = Model()
        arguments = transformers.TrainingArguments(output_dir=str(folder / "out"), num_train_epochs=2, report_to=[],
                                                   use_cpu=True, save_strategy="no", disable_tqdm=True,
                                                   gradient_accumulation_steps=3)
        result = Trainer(model, arguments).train()
        self.assertEqual(sorted(model.seen), sorted(self.all * 2))
        self.assertEqual(result.global_step, 2 * -(-len(loader) // 3))

    def test_transformers_trainer_on_the_dataset(self):
        """The trainer's own loader, over the map-style dataset."""
        transformers = framework("transformers")
        framework("accelerate")
        model = Model()
        arguments = transformers.TrainingArguments(output_dir=str(self.folder / "out"), num_train_epochs=1, report_to=[],
                                                   use_cpu=True, save_strategy="no", disable_tqdm=True)
        transformers.Trainer(model, arguments, train_dataset=diesel.Dataset(self.path), data_collator=collate).train()
        self.assertEqual(sorted(model.seen), self.all)

    # torchdata, torchmetrics

    def test_stateful_data_loader(self):
        framework("torchdata")
        stateful = framework("torchdata.stateful_dataloader")
        dataset = diesel.Dataset(self.path)

        def loader():
            sampler = diesel.ChunkShuffleSampler(dataset, seed=2, batch_size=8)
            return stateful.StatefulDataLoader(dataset, 8, sampler=sampler, num_workers=workers)

        for workers in (0, 2):
            whole = [keys(data) for data, _ in loader()]
            first = loader()
            batches = iter(first)
            head, state = [keys(next(batches)[0]) for _ in range(5)], first.state_dict()
            resumed = loader()
            resumed.load_state_dict(state)
            with mock.patch.object(EpochOrder, "batch", autospec=True, side_effect=EpochOrder.batch) as drawn:
                self.assertEqual(head + [keys(data) for data, _ in resumed], whole)
            self.assertEqual({call.args[1] for call in drawn.mock_calls} & {1, 2, 3}, set())  # nor 4, except the values that iter() reads
            self.assertEqual(sorted(key for batch in whole for key in batch), self.all)

    def test_torchmetrics(self):
        torchmetrics = framework("torchmetrics")
        metric = torchmetrics.MeanMetric()
        for _, labels in self.loader():
            metric.update(labels.float())
        self.assertAlmostEqual(float(metric.compute()), (N_CLASSES - 1) / 2, places=5)


def lightning_trainer(**options):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.epochs, self.validated, self.predicted = Model(), [], [], []

        def training_step(self, batch, _):
            return self.model(*batch[:2])["loss"]

        def on_train_epoch_end(self):
            self.epochs.append(self.model.seen)
            self.model.seen = []

        def validation_step(self, batch, _):
            self.validated += keys(batch[0])

        def predict_step(self, batch, _):
            self.predicted += keys(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return Module(), lightning.Trainer(**{"accelerator": "cpu", "max_epochs": 2, "logger": False, "enable_checkpointing": False,
                                          "enable_progress_bar": False, "enable_model_summary": False, **options})


def accelerate_rank(path):
    import accelerate
    accelerator = accelerate.Accelerator(cpu=True)
    loader = accelerator.prepare(diesel.DataLoader(path, 8, True, seed=1))
    return [key for data, _ in loader for key in keys(data)]


def lightning_rank(path):
    model, trainer = lightning_trainer(devices=2, strategy="ddp")
    trainer.fit(model, diesel.DataLoader(path, 8, True, seed=1))
    return model.epochs


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in ("accelerate", "lightning"):
        print(json.dumps({"accelerate": accelerate_rank, "lightning": lightning_rank}[sys.argv[1]](sys.argv[2])))
        # Gloo's threads sometimes abort a process that ends before them.
        torch.distributed.destroy_process_group()
    else:
        unittest.main()
