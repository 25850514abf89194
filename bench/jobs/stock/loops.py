# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch loops, as in tutorials."""
import concurrent.futures
import os
import pathlib
import socket

import torch
from torch.utils.data import DataLoader

from parts import BATCH, Files, Memory, Model, train

MANY = 1_000_000
MIB = 1 << 20
CHECKPOINT_STEPS = 10


def plain(clock, _):
    clock.watch_torch()
    train(clock, DataLoader(Memory(MANY), BATCH, shuffle=True))


def arrow_prepare(folder):
    import datasets
    import numpy

    random = numpy.random.default_rng(1)
    features = datasets.Features({"image": datasets.Array3D((3, 64, 64), "float32"), "label": datasets.Value("int64")})
    rows = {"image": list(random.random((3000, 3, 64, 64), dtype=numpy.float32)), "label": [i % 10 for i in range(3000)]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(folder / "arrow"))


def arrow(clock, folder):
    """Hugging Face's Arrow files, mapped into memory, 0 workers."""
    import datasets

    clock.watch_torch()
    rows = datasets.load_from_disk(str(folder / "arrow")).with_format("torch")
    loader = DataLoader(rows, BATCH, shuffle=True)
    train(clock, loader, Model(passes=2), batches=lambda l: ((row["image"], row["label"]) for row in l))


def spawn(clock, _):
    clock.watch_torch()
    train(clock, DataLoader(Memory(MANY, 0.012), BATCH, num_workers=2, multiprocessing_context="spawn"))


def renewed(clock, _):
    """Workers are started again each epoch, which is the default."""
    clock.watch_torch()
    train(clock, DataLoader(Memory(15 * BATCH, 0.002), BATCH, shuffle=True, num_workers=2), Model(passes=4))


def compiled(clock, _):
    clock.watch_torch()
    train(clock, DataLoader(Memory(MANY, 0.002), BATCH, shuffle=True), torch.compile(Model()))


def validation(clock, _):
    """A validation pass between two epochs, with a loader of its own."""
    clock.watch_torch()
    training = DataLoader(Memory(40 * BATCH), BATCH, shuffle=True)
    held_out = DataLoader(Memory(15 * BATCH), BATCH)

    def validate(model):
        with clock.time("validation"), torch.no_grad():
            for images, labels in held_out:
                torch.nn.functional.cross_entropy(model(images), labels)

    train(clock, training, after_epoch=validate)


def inference(clock, _):
    clock.watch_torch()
    model = Model(passes=20).eval()
    with torch.no_grad():
        for images, _ in DataLoader(Memory(MANY), BATCH):
            model(images).argmax(1)
            if clock.step():
                return


def device(clock, _):
    """A control: the model computes, and the loader is fast."""
    clock.watch_torch()
    train(clock, DataLoader(Memory(MANY, 0.0001), BATCH, shuffle=True), Model(passes=16))


def fetch(clock, folder):
    """A control: files of a slow disk. $STOCK_SLOW: the cgroup.procs of the group for which the disk is slow."""
    clock.watch_torch()
    if "STOCK_SLOW" in os.environ:
        pathlib.Path(os.environ["STOCK_SLOW"]).write_text(str(os.getpid()), encoding="ascii")
    train(clock, DataLoader(Files(folder / "files"), BATCH, shuffle=True, num_workers=2))


def ballast(mib):
    """Returns the content of a checkpoint in addition to the model."""
    return torch.randn(mib * MIB // 4)


def save(clock, folder):
    """torch.save between two steps."""
    clock.watch_torch()
    state = ballast(128)

    def after_step(model, optimizer):
        if len(clock.ends) % CHECKPOINT_STEPS == 0:
            with clock.time("checkpoint"):
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "ballast": state},
                           folder / "checkpoint.pt")

    train(clock, quick_loader(), Model(passes=16), after_step=after_step)


def safetensors(clock, folder):
    """safetensors between two steps."""
    from safetensors.torch import save_file

    clock.watch_torch()
    state = ballast(128)

    def after_step(model, _):
        if len(clock.ends) % CHECKPOINT_STEPS == 0:
            with clock.time("checkpoint"):
                save_file({"ballast": state, **model.state_dict()}, folder / "checkpoint.safetensors")

    train(clock, quick_loader(), Model(passes=16), after_step=after_step)


def save_cloned(clock, folder):
    """torch.save of a clone by a thread: a save waits for the previous one."""
    clock.watch_torch()
    state, writer, pending = ballast(256), concurrent.futures.ThreadPoolExecutor(1), []

    def after_step(model, _):
        if len(clock.ends) % CHECKPOINT_STEPS == 0:
            with clock.time("checkpoint"):
                while pending:
                    pending.pop().result()
                copy = {"model": {name: value.clone() for name, value in model.state_dict().items()}, "ballast": state.clone()}
                pending.append(writer.submit(torch.save, copy, folder / "checkpoint.pt"))

    train(clock, quick_loader(), Model(passes=16), after_step=after_step)
    writer.shutdown()


def quick_loader():
    return DataLoader(Memory(MANY, 0.0002), BATCH, shuffle=True)


def dcp_thread(clock, folder):
    dcp(clock, folder, "THREAD")


def dcp_process(clock, folder):
    dcp(clock, folder, "PROCESS")


def dcp(clock, folder, how):
    """torch.distributed.checkpoint in the background: a save waits for the previous one."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "RANK": "0", "WORLD_SIZE": "1"}
    torch.distributed.init_process_group("gloo")
    clock.watch_torch()
    state, pending = ballast(256), []

    def after_step(model, _):
        if len(clock.ends) % CHECKPOINT_STEPS == 0:
            with clock.time("checkpoint"):
                while pending:
                    pending.pop().result()
                pending.append(checkpoint.async_save(
                    {"model": model.state_dict(), "ballast": state}, checkpoint_id=str(folder / f"dcp-{len(clock.ends) // CHECKPOINT_STEPS % 2}"),
                    async_checkpointer_type=AsyncCheckpointerType[how]))

    train(clock, quick_loader(), Model(passes=16), after_step=after_step)
    while pending:
        pending.pop().result()
    torch.distributed.destroy_process_group()
