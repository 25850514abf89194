# SPDX-License-Identifier: Apache-2.0
"""Frameworks that train with the loader of a script. Each function returns (name, batches, order) of the data that the model saw. order:
group of names whose orders can be compared, or "exact" where there is no shuffle."""
import importlib.util
import itertools
import logging
import tempfile
import warnings

import torch

FRAMEWORKS = ("lightning", "transformers", "accelerate")
PRESENT = all(importlib.util.find_spec(name) for name in FRAMEWORKS)

warnings.simplefilter("ignore")
if PRESENT:
    import accelerate
    import lightning as pl
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for noisy in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero", "lightning.fabric"):
        logging.getLogger(noisy).setLevel(logging.ERROR)


def collate(samples):
    """Returns the input of a model of transformers."""
    return {"inputs": torch.stack([data.flatten()[:8] for data, _ in samples]), "labels": torch.tensor([abs(label) % 4 for _, label in samples])}


class Model(torch.nn.Module):
    """Learns nothing, and records its input."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LazyLinear(4)
        self.seen = []

    def forward(self, inputs, labels=None):
        self.seen.append({"x": inputs.clone(), "y": labels.clone()})
        scores = self.layer(inputs.float() / 255)
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}


def model_for(make):
    model = Model()
    model(**next(iter(torch.utils.data.DataLoader([make().dataset[0]], collate_fn=collate))))
    model.seen.clear()
    return model


if PRESENT:
    class Module(pl.LightningModule):
        def __init__(self, model):
            super().__init__()
            self.model, self.epochs, self.validated, self.predicted = model, [], [], []

        def training_step(self, batch, _):
            return self.model(**batch)["loss"]

        def on_train_epoch_end(self):
            self.epochs.append(list(self.model.seen))
            self.model.seen.clear()

        def validation_step(self, batch, _):
            self.validated.append({"x": batch["inputs"].clone(), "y": batch["labels"].clone()})

        def predict_step(self, batch, _):
            self.predicted.append({"x": batch["inputs"].clone(), "y": batch["labels"].clone()})

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)


def _fit(make, folder=None, **options):
    module = Module(_model(make))
    options = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
               "enable_model_summary": False, "num_sanity_val_steps": 0, **options}
    return module, pl.Trainer(**options)


def _model(make):
    """Returns a model whose shapes are those of the first sample."""
    states = torch.get_rng_state()
    model = model_for(make)
    torch.set_rng_state(states)
    return model


def _named(epochs, order="lightning"):
    return [(f"epoch {i}", batches, order) for i, batches in enumerate(epochs)]


def lightning(make, **options):
    module, trainer = _fit(make, **options)
    trainer.fit(module, make())
    return _named(module.epochs, "exact" if options.get("overfit_batches") else "lightning")


def lightning_resumed(make):
    with tempfile.TemporaryDirectory() as folder:
        module, trainer = _fit(make, max_epochs=2)
        trainer.fit(module, make())
        trainer.save_checkpoint(f"{folder}/kept.ckpt")
        again, trainer = _fit(make, max_epochs=4)
        trainer.fit(again, make(), ckpt_path=f"{folder}/kept.ckpt", weights_only=False)
    return _named(module.epochs, "before") + _named(again.epochs, "after")


def lightning_validated(make):
    module, trainer = _fit(make, max_epochs=2, num_sanity_val_steps=2, check_val_every_n_epoch=1)
    trainer.fit(module, make(), make())
    n = len(make())
    return [*_named(module.epochs), *[(f"validated {i}", batches, f"validated {min(i, 1)}") for i, batches in
                                      enumerate([module.validated[:2], *_cut(module.validated[2:], n)])]]


def lightning_predicted(make):
    module, trainer = _fit(make)
    trainer.predict(module, make())
    return [("predicted", module.predicted, "predicted")]


def _train(make, model, folder, resume=None, **options):
    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return self.accelerator.prepare(make())

    arguments = transformers.TrainingArguments(output_dir=folder, report_to=[], use_cpu=True, disable_tqdm=True, logging_strategy="no",
                                               **{"save_strategy": "no", **options})
    Trainer(model, arguments).train(resume_from_checkpoint=resume)


def trainer(make, **options):
    with tempfile.TemporaryDirectory() as folder:
        model = _model(make)
        _train(make, model, folder, **options)
    return [(f"epoch {i}", batches, f"epoch {i}") for i, batches in enumerate(_cut(model.seen, len(make())))]


def _cut(batches, n):
    return [batches[i:i + n] for i in range(0, len(batches), n)]


def trainer_resumed(make, steps):
    with tempfile.TemporaryDirectory() as folder:
        model, again, n = _model(make), _model(make), len(make())
        _train(make, model, folder, max_steps=steps, save_strategy="steps", save_steps=steps)
        _train(make, again, folder, f"{folder}/checkpoint-{steps}", max_steps=2 * n)
    return [(f"epoch {i}", batches, f"epoch {i}") for i, batches in enumerate(_cut(model.seen + again.seen, n))]


def accelerated(make):
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    loader, found = accelerator.prepare(make()), []
    for _ in range(2):
        batches = []
        for batch in loader:
            with accelerator.accumulate():
                batches.append(batch)
        found.append(batches)
    return _named(found)


def accelerated_skips(make, tell=True):
    """Breaks an epoch off, and takes its rest by skip_first_batches()."""
    accelerator = accelerate.Accelerator(cpu=True)
    torch.manual_seed(1)
    loader = accelerator.prepare(make())
    head = list(itertools.islice(loader, 2))
    torch.manual_seed(1)
    loader = accelerator.prepare(make())
    if tell:
        loader.set_epoch(0)
    rest = list(accelerator.skip_first_batches(loader, 2))
    return [("whole", head + rest, "skips"), ("next", list(loader), "skips")]


def accelerated_state(make):
    """Runs save_state() between epochs, and load_state() as another process would."""
    with tempfile.TemporaryDirectory() as folder:
        accelerator = accelerate.Accelerator(cpu=True)
        loader = accelerator.prepare(make())
        first = list(loader)
        accelerator.save_state(folder)
        second = list(loader)
        again = accelerate.Accelerator(cpu=True)
        loader = again.prepare(make())
        again.load_state(folder)
        return [("first", first, "state"), ("second", second, "state"), ("second again", list(loader), "state")]


def accelerated_gathers(make):
    accelerator = accelerate.Accelerator(cpu=True)
    loader = accelerator.prepare(make())
    found = [{"x": inputs, "y": labels} for inputs, labels in
             (accelerator.gather_for_metrics((batch["inputs"], batch["labels"])) for batch in loader)]
    return [("gathered", found, "gathered")]
