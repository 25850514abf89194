# SPDX-License-Identifier: Apache-2.0
"""Jobs whose loop is a framework's: Hugging Face's Trainer, accelerate, Lightning."""
from torch.utils.data import DataLoader

import parts
from parts import BATCH, Memory, Model

MANY = 1_000_000


class Named(Memory):
    """Samples in the layout that Hugging Face's Trainer needs."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return {"image": image, "labels": label}


def trainer(clock, folder):
    """Hugging Face's Trainer with its defaults: no workers."""
    import torch
    import transformers

    class Classifier(Model):
        def forward(self, image, labels=None):
            logits = super().forward(image)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    class Step(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = clock.step()

    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"), max_steps=MANY, per_device_train_batch_size=BATCH, save_strategy="no",
        report_to=[], use_cpu=True, disable_tqdm=True)
    clock.watch_torch()
    transformers.Trainer(model=Classifier(), args=arguments, train_dataset=Named(MANY), callbacks=[Step()]).train()


def accelerate(clock, _):
    import torch
    from accelerate import Accelerator

    clock.watch_torch()
    accelerator, model = Accelerator(cpu=True), Model()
    model, optimizer, loader = accelerator.prepare(
        model, parts.optimizer_of(model), DataLoader(Memory(MANY), BATCH, shuffle=True))
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        if clock.step():
            return


def module(clock):
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return parts.optimizer_of(self)

        def on_train_batch_end(self, *_):
            if clock.step():
                self.trainer.should_stop = True

    return Module()


def fit(clock, folder, loader, **options):
    import lightning

    lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False, default_root_dir=str(folder), **options).fit(module(clock), loader)


def lightning_0(clock, folder):
    clock.watch_torch()
    fit(clock, folder, DataLoader(Memory(MANY), BATCH, shuffle=True), max_epochs=1, devices=1)


def lightning_2(clock, folder):
    clock.watch_torch()
    fit(clock, folder, DataLoader(Memory(MANY, 0.010), BATCH, shuffle=True, num_workers=2), max_epochs=1, devices=1)
