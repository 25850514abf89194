# SPDX-License-Identifier: Apache-2.0
"""A training job that saves in one of many ways, as people write them. Its own clock has for each save the call, the wait for the save
before, and the end of the writing. Writes one line of JSON to CLOCK.

usage: saves.py KIND FOLDER CLOCK SECONDS [EVERY[,EVERY ...] STEPS]

With STEPS, the job takes turns: at least STEPS steps with each number of steps between two saves (0: none), until the time is over.
"""
import concurrent.futures
import contextlib
import copy
import itertools
import json
import multiprocessing
import os
import pathlib
import socket
import sys
import time

import torch

MIB = 1 << 20
STATE_MIB, LAYERS = 64, 8
EVERY = 25
KINDS = {}


def kind(function):
    KINDS[function.__name__] = function
    return function


class Clock:
    """ends: of all steps; saves: the step, and the times of each; turns: [number of steps between two saves, index of the first step]."""

    def __init__(self, seconds, every, turn):
        self.seconds, self.every, self.turn = seconds, every, turn
        self.ends, self.saves, self.turns, self.begun = [time.monotonic()], [], [[every[0], 0]], time.monotonic()

    def step(self):
        """Marks the end of a step, and returns whether the job goes on."""
        self.ends.append(time.monotonic())
        every, first = self.turns[-1]
        if self.turn and len(self.ends) - 1 - first >= (-(-self.turn // every) * every if every else self.turn):
            self.turns.append([self.every[len(self.turns) % len(self.every)], len(self.ends) - 1])
        return self.ends[-1] - self.begun < self.seconds

    def due(self):
        """Returns whether to save after this step: in a turn, in the middle of each interval, so that the save ends in the turn."""
        every, first = self.turns[-1]
        return bool(every) and (len(self.ends) - 1 - first) % every == (every // 2 if self.turn else every - 1)

    @contextlib.contextmanager
    def save(self):
        """Times a call that saves: all of it but the wait for the save before. Where a thread goes on, only the snapshot, because the
        rest of the call may have to wait for the interpreter lock that the thread has."""
        entry = {"step": len(self.ends) - 1, "begin": time.monotonic(), "wait": 0.0}
        self.saves.append(entry)
        yield entry
        if "call" not in entry:
            entry["call"] = time.monotonic() - entry["begin"] - entry["wait"]
        if not entry.pop("later", False):
            entry["end"] = time.monotonic()

    def later(self, entry, future):
        """The save ends with the future."""
        entry["later"] = True
        future.add_done_callback(lambda _: entry.update(end=time.monotonic()))

    @contextlib.contextmanager
    def part(self, entry, name):
        """Times the wait for the save before ("wait"), or the snapshot ("call")."""
        begin = time.monotonic()
        yield
        entry[name] = time.monotonic() - begin


def state_of(model):
    return model.state_dict()


class Model(torch.nn.Module):
    """A few small layers that compute, and the rest of the state as buffers."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))
        for i in range(LAYERS):
            self.register_buffer(f"rest{i}", torch.randn(STATE_MIB * MIB // 4 // LAYERS))

    def forward(self, values):
        return self.layers(values)


def train(clock, save, model=None):
    """A plain loop; save(model, entry) is called inside the clock."""
    model = Model() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    values = torch.randn(192, 512)
    while True:
        loss = model(values).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not clock.step():
            return
        if clock.due():
            with clock.save() as entry:
                save(model, entry)


@kind
def inline(clock, folder):
    """torch.save in the loop"""
    train(clock, lambda model, _: torch.save(state_of(model), folder / "state.pt"))


@kind
def synced(clock, folder):
    """torch.save to a temporary file, fsync, rename"""
    def save(model, _):
        with open(folder / "state.tmp", "wb") as file:
            torch.save(state_of(model), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(folder / "state.tmp", folder / "state.pt")
    train(clock, save)


@kind
def safetensors(clock, folder):
    """safetensors in the loop"""
    from safetensors.torch import save_file
    train(clock, lambda model, _: save_file(state_of(model), folder / "state.safetensors"))


def in_thread(clock, snapshot, write):
    """The loop copies the state, and a thread writes the copy; a save waits for the one before."""
    pool, before = concurrent.futures.ThreadPoolExecutor(1), []

    def save(model, entry):
        with clock.part(entry, "wait"):
            while before:
                before.pop().result()
        with clock.part(entry, "call"):
            taken = snapshot(state_of(model))
        before.append(pool.submit(write, taken))
        clock.later(entry, before[0])
    train(clock, save)
    pool.shutdown()


def cloned(state):
    return {name: value.clone() for name, value in state.items()}


@kind
def clone_thread(clock, folder):
    """clone(), then torch.save by a thread"""
    in_thread(clock, cloned, lambda state: torch.save(state, folder / "state.pt"))


@kind
def deepcopy_thread(clock, folder):
    """deepcopy(), then torch.save by a thread"""
    in_thread(clock, copy.deepcopy, lambda state: torch.save(state, folder / "state.pt"))


@kind
def cpu_thread(clock, folder):
    """half().cpu(), then torch.save by a thread"""
    in_thread(clock, lambda state: {name: value.half().cpu() for name, value in state.items()},
              lambda state: torch.save(state, folder / "state.pt"))


@kind
def safetensors_thread(clock, folder):
    """clone(), then safetensors by a thread"""
    from safetensors.torch import save_file
    in_thread(clock, cloned, lambda state: save_file(state, folder / "state.safetensors"))


def write_sent(pipe, path):
    while (state := pipe.recv()) is not None:
        torch.save(state, path)
        pipe.send(time.monotonic())


@kind
def process(clock, folder):
    """clone() to shared memory, then torch.save by a process"""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    child = context.Process(target=write_sent, args=(theirs, folder / "state.pt"), daemon=True)
    child.start()
    shared, open_saves = {}, []
    torch.multiprocessing.set_sharing_strategy("file_system")

    def save(model, entry):
        with clock.part(entry, "wait"):
            if open_saves:
                open_saves.pop()["end"] = mine.recv()
        for name, value in state_of(model).items():
            if name not in shared:
                shared[name] = torch.empty_like(value).share_memory_()
            shared[name].copy_(value)
        mine.send(shared)
        open_saves.append(entry)
        entry["later"] = True
    train(clock, save)
    if open_saves:
        open_saves.pop()["end"] = mine.recv()
    mine.send(None)
    child.join()


@kind
def forked(clock, folder):
    """fork(), and the child writes"""
    children = []

    def wait():
        while children:
            pid, entry = children.pop()
            os.waitpid(pid, 0)
            entry["end"] = float((folder / "ended").read_text())

    def save(model, entry):
        with clock.part(entry, "wait"):
            wait()
        entry["later"] = True
        pid = os.fork()
        if not pid:
            with open(folder / "state.bin", "wb") as file:
                for value in model.state_dict().values():
                    file.write(value.numpy())
            (folder / "ended").write_text(str(time.monotonic()))
            os._exit(0)
        children.append((pid, entry))
    train(clock, save)
    wait()


def alone():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "RANK": "0", "WORLD_SIZE": "1"}
    torch.distributed.init_process_group("gloo")


@kind
def dcp(clock, folder):
    """DCP save"""
    import torch.distributed.checkpoint as checkpoint
    alone()
    turns = itertools.cycle("01")
    train(clock, lambda model, _: checkpoint.save(state_of(model), checkpoint_id=folder / next(turns)))


def dcp_async(clock, folder, how, **stager):
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
    alone()
    turns, before = itertools.cycle("01"), []

    def save(model, entry):
        with clock.part(entry, "wait"):
            while before:
                before.pop().result()
        done = checkpoint.async_save(state_of(model), checkpoint_id=folder / next(turns),
                                     async_checkpointer_type=AsyncCheckpointerType[how], **stager)
        before.append(getattr(done, "upload_completion", done))
        clock.later(entry, before[0])
        return done
    return save


@kind
def dcp_thread(clock, folder):
    """DCP async_save by a thread"""
    train(clock, dcp_async(clock, folder, "THREAD"))


@kind
def dcp_process(clock, folder):
    """DCP async_save by a process"""
    train(clock, dcp_async(clock, folder, "PROCESS"))


@kind
def dcp_blocking(clock, folder):
    """DCP async_save by a thread, BlockingAsyncStager"""
    from torch.distributed.checkpoint.staging import BlockingAsyncStager
    train(clock, dcp_async(clock, folder, "THREAD", async_stager=BlockingAsyncStager()))


def overlapped_stager():
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    return DefaultStager(StagingOptions(use_pinned_memory=False, use_shared_memory=False, use_async_staging=True,
                                        use_non_blocking_copy=False))


@kind
def dcp_overlapped(clock, folder):
    """DCP async_save by a thread, DefaultStager overlaps the staging"""
    stager = overlapped_stager()
    train(clock, dcp_async(clock, folder, "THREAD", async_stager=stager))
    stager.close()


@kind
def dcp_awaited(clock, folder):
    """DCP async_save as before, and the loop waits for the staging"""
    stager = overlapped_stager()
    save = dcp_async(clock, folder, "THREAD", async_stager=stager)
    train(clock, lambda model, entry: save(model, entry).staging_completion.result())
    stager.close()


@kind
def orbax(clock, folder):
    """orbax, NumPy arrays, in the background"""
    import orbax.checkpoint
    checkpointer = orbax.checkpoint.StandardCheckpointer()
    turns = itertools.count()
    pool = concurrent.futures.ThreadPoolExecutor(1)

    def save(model, entry):
        with clock.part(entry, "wait"):
            checkpointer.wait_until_finished()
        state = {name: value.numpy() for name, value in state_of(model).items()}
        checkpointer.save(folder.absolute() / f"orbax-{next(turns) % 2}", state, force=True)
        clock.later(entry, pool.submit(checkpointer.wait_until_finished))
    train(clock, save)
    checkpointer.wait_until_finished()
    pool.shutdown()


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 10_000_000

    def __getitem__(self, index):
        return {"values": torch.ones(512), "labels": 0}


@kind
def lightning(clock, folder):
    """Lightning's ModelCheckpoint"""
    import lightning as framework
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(framework.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, _):
            return self.model(batch["values"]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-4)

        def on_train_batch_end(self, *_):
            if not clock.step():
                self.trainer.should_stop = True

    kept = ModelCheckpoint(dirpath=folder / "kept", every_n_train_steps=clock.every[0], save_top_k=1)
    watch(clock, kept, "_save_topk_checkpoint")
    trainer = framework.Trainer(accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
                                max_epochs=1, default_root_dir=str(folder),
                                callbacks=[kept])
    trainer.fit(Module(), torch.utils.data.DataLoader(Rows(), 192, num_workers=0))


def watch(clock, owner, name):
    """Times each call of a method, which remains the one that is called."""
    own = getattr(owner, name)

    def timed(*arguments, **options):
        with clock.save():
            return own(*arguments, **options)
    setattr(owner, name, timed)


@kind
def accelerate(clock, folder):
    """Accelerate's save_state"""
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Model())
    train(clock, lambda model, _: accelerator.save_state(folder / "accelerate"), model)


@kind
def transformers(clock, folder):
    """Transformers' Trainer"""
    import transformers as framework

    class Classifier(Model):
        def forward(self, values, labels=None):
            out = super().forward(values)
            return {"loss": out.square().mean(), "logits": out}

    class Step(framework.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = not clock.step()

    trainer = framework.Trainer(model=Classifier(), train_dataset=Rows(), callbacks=[Step()], args=framework.TrainingArguments(
        output_dir=str(folder / "trainer"), max_steps=1_000_000, per_device_train_batch_size=192, save_strategy="steps",
        save_steps=clock.every[0], save_total_limit=1, report_to=[], use_cpu=True, disable_tqdm=True, optim="sgd"))
    watch(clock, trainer, "_save_checkpoint")
    trainer.train()


def main():
    name, folder, clock_path, seconds, *more = sys.argv[1:]
    every = [int(word) for word in more[0].split(",")] if more else [EVERY]
    clock = Clock(float(seconds), every, int(more[1]) if len(more) > 1 else 0)
    torch.manual_seed(1)
    KINDS[name](clock, pathlib.Path(folder))
    pathlib.Path(clock_path).write_text(json.dumps({"pid": os.getpid(), "ends": clock.ends, "saves": clock.saves,
                                                    "turns": clock.turns}), encoding="ascii")


if __name__ == "__main__":
    main()
