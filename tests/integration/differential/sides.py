# SPDX-License-Identifier: Apache-2.0
"""Names that a script of the grammar uses, from PyTorch and from diesel_loader.torch, and records of what the script
saw.

A script records values, and epochs: the batches that an iterator gave, each a list of samples."""
import itertools
import multiprocessing
import os
import pathlib
import tempfile
import traceback

import numpy
import torch
import torch.utils.data
from PIL import Image

import diesel_loader.torch as diesel

IMAGES = (".png",)
# Errors with which a script may stop on our side: all deliberate ones.
REFUSALS = (ValueError, TypeError, RuntimeError, NotImplementedError)


class Folder(torch.utils.data.Dataset):
    """Like torchvision's ImageFolder, also for files of bytes."""

    def __init__(self, root, transform=None, target_transform=None, loader=None):
        self.root, self.transform, self.target_transform, self.loader = root, transform, target_transform, loader
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.samples = [(str(path), self.class_to_idx[path.parent.name]) for path in sorted(pathlib.Path(root).glob("*/*"))]
        self.targets = [label for _, label in self.samples]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        path, label = self.samples[i]
        data = pathlib.Path(path).read_bytes()
        sample = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if self.loader:
            sample = self.loader(sample)
        elif self.transform and path.endswith(IMAGES):
            sample = Image.open(path).convert("RGB")
        if self.transform:
            sample = self.transform(sample)
        return sample, self.target_transform(label) if self.target_transform else label


def plain(value):
    """Returns a value in comparable form: types and shapes count."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), tuple(value.flatten().tolist())
    if isinstance(value, numpy.ndarray):
        return "numpy", value.dtype.str, value.shape, tuple(value.flatten().tolist())
    if isinstance(value, dict):
        return tuple((name, plain(item)) for name, item in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        return type(value).__name__, *map(plain, value)
    return value


def samples_of(batch):
    """Returns (the kind of the batch, its samples)."""
    if isinstance(batch, dict):
        names, columns = sorted(batch), [batch[name] for name in sorted(batch)]
    elif isinstance(batch, list) and batch and isinstance(batch[0], tuple):
        return "samples", [plain(sample) for sample in batch]
    elif not isinstance(batch[1], (torch.Tensor, list)):
        return "sample", [tuple(map(plain, batch))]
    else:
        names, columns = [], batch
    kinds = (type(batch).__name__, *names, *(type(column).__name__ for column in columns))
    return kinds, [tuple(map(plain, row)) for row in zip(*columns)]


class Side:
    """The names that a script uses."""

    def __init__(self, name, roots):
        self.name, self.is_ours, self.seen = name, name == "ours", []
        self._roots = roots
        self.names = {"torch": torch, "itertools": itertools, "numpy": numpy, "Subset": torch.utils.data.Subset,
                      "DataLoader": diesel.DataLoader if self.is_ours else torch.utils.data.DataLoader,
                      "Folder": diesel.Dataset if self.is_ours else Folder, "side": self, "data_of": self.root,
                      "note": self.note, "epoch": self.epoch, "take": self.take, "ranks": self.ranks}

    def root(self, part):
        """Returns the path of the files, or of the dataset packed from them."""
        return self._roots[part] + (".diesel" if self.is_ours else "")

    def note(self, name, value):
        self.seen.append({"note": name, "value": plain(value)})

    def epoch(self, name, loader, n=None, **what):
        """Takes the batches of a new iterator: all, or the first n."""
        self.take(name, itertools.islice(loader, n), loader, **what)

    def take(self, name, batches, loader=None, shuffled=False, tag="", is_whole=None):
        """shuffled: any order is right. tag: the source of the samples, where their orders can be compared."""
        kinds, found = [], []
        for batch in batches:
            kind, samples = samples_of(batch)
            kinds.append(kind)
            found.append(samples)
        record = {"epoch": name, "kinds": sorted(set(map(str, kinds))), "batches": found, "shuffled": shuffled, "tag": tag}
        if shuffled and not self.is_ours and loader is not None:
            record["all"] = self._all(loader)
        self.seen.append(record)

    @staticmethod
    def _all(loader):
        """Returns the samples that a batch may have."""
        states = torch.get_rng_state()
        data, samples = loader.dataset, []
        several = getattr(data, "__getitems__", lambda indices: [data[i] for i in indices])
        for i in range(len(data)):
            samples += samples_of(loader.collate_fn(several([i])) if loader.batch_sampler else data[i])[1]
        torch.set_rng_state(states)
        return samples

    def ranks(self, n, function):
        """Runs function(rank) in n processes of one group. Their epochs of one name become one: the samples of each step."""
        with tempfile.TemporaryDirectory() as folder:
            told = [forked(lambda rank=rank: self._rank(rank, n, function, folder)) for rank in range(n)]
            told = [receive() for receive in told]
        for outcome in told:
            if outcome["error"]:
                raise Told(outcome)
        for rows in zip(*(outcome["seen"] for outcome in told)):
            if "note" in rows[0]:
                self.seen.append({"note": rows[0]["note"], "value": tuple(row["value"] for row in rows)})
                continue
            steps = [sum(step, []) for step in zip(*(row["batches"] for row in rows))]
            sizes = [tuple(map(len, row["batches"])) for row in rows]
            self.seen.append({**rows[0], "batches": steps if rows[0]["shuffled"] else [row["batches"] for row in rows]})
            self.seen.append({"note": f"{rows[0]['epoch']}: sizes", "value": tuple(sizes)})

    def _rank(self, rank, n, function, folder):
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(n), LOCAL_WORLD_SIZE=str(n))
        torch.distributed.init_process_group("gloo", f"file://{folder}/group", rank=rank, world_size=n)
        self.seen = []
        try:
            function(rank)
        finally:
            torch.distributed.barrier()

    def run(self, text):
        """Returns {"seen": ..., "error": None or [type, message, whether it is a refusal]}."""
        return outcome(self, lambda: exec(compile(text, "<script>", "exec"), self.names))  # noqa: S102


class Told(Exception):
    """The error with which a rank stopped."""


def outcome(side, function):
    error = None
    try:
        function()
    except Told as told:
        error = told.args[0]["error"]
    except Exception as raised:
        frames = [frame.filename for frame in traceback.extract_tb(raised.__traceback__)]
        is_refusal = isinstance(raised, REFUSALS) and "diesel_loader" in frames[-1] and "\n" not in str(raised)
        error = [type(raised).__name__, str(raised), is_refusal, traceback.format_exc()]
    return {"seen": side.seen, "error": error}


def forked(function):
    """Starts the function in a child. Returns a function that returns the child's outcome."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        try:
            sending.send(function())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)  # persistent workers of PyTorch also hold the pipe, until they see that their parent has ended
    sending.close()

    def receive():
        try:
            told = receiving.recv()
        except EOFError:
            told = {"seen": [], "error": ["died", "the process ended before it said what it saw", False, ""]}
        os.waitpid(pid, 0)
        return told
    return receive
