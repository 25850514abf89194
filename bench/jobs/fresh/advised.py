# SPDX-License-Identifier: Apache-2.0
"""Jobs that get advice, and the same jobs that follow it: advised.py KIND STEPS [OPTION=NUMBER ...]. Prints steps per
second by the job's own clock, without the first steps.

tokens      a tokenizer with threads of its own in collate_fn (workers=N)
python      samples made by Python's own computing (workers=N)
naps        samples that take time and no core, as slow storage does, and such a device (workers=N)
epochs      workers that are started again for each epoch (workers=N, persistent=0 or 1)
threads     a large tensor operation in collate_fn (workers=N)
images      JPEG photographs, decoded, cropped and resized by Pillow (workers=N)
clones      a background checkpoint by clone() every N steps (every=N)
deepcopies  the same by deepcopy() of model and optimizer

half=1: every second sample, or batch of a collate_fn, exists already, so that loading takes half as long.
"""
import copy
import io
import random
import sys
import tempfile
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

FIRST = 5
BATCH = 16


class Samples(Dataset):
    def __init__(self, n, make):
        self.n, self.make = n, make

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError(i)
        return self.make(i)


def tokenizing():
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(5000)]
    texts = [" ".join(rng.choices(words, k=800)) for _ in range(400)]
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts[:100], trainers.BpeTrainer(vocab_size=4000, special_tokens=["[UNK]", "[PAD]"]))
    tokenizer.enable_padding(pad_id=1)
    tokenizer.enable_truncation(256)

    def collate(batch):
        return torch.tensor([one.ids for one in tokenizer.encode_batch([text for text in batch for _ in range(4)])]).float()[:, :64]
    return (lambda i: texts[i % len(texts)]), collate


def constant(i):
    return torch.full((64,), float(i % 7))


def computing(i):
    total = 0
    for k in range(30000):
        total += k * i
    return constant(total)


def napping(i):
    time.sleep(0.002)
    return constant(i)


def threaded(batch):
    with torch.no_grad():
        square = torch.randn(700, 700)
        for _ in range(4):
            square = (square @ square).clamp(-1, 1)
    return torch.stack(batch) + square[0, 0]


def photographing():
    import numpy
    from PIL import Image
    draw, photographs = numpy.random.default_rng(1), []
    for _ in range(32):
        noise = Image.fromarray(draw.integers(0, 255, (30, 40, 3), dtype=numpy.uint8))
        out = io.BytesIO()
        noise.resize((480, 360), Image.BICUBIC).save(out, "JPEG", quality=90)
        photographs.append(out.getvalue())

    def make(i):
        image = Image.open(io.BytesIO(photographs[i % len(photographs)])).convert("RGB").resize((64, 64))
        return torch.from_numpy(numpy.asarray(image)[0, :, 0].copy()).float()
    return make, None


def half_of(make):
    return lambda i: make(i) if i % 2 else constant(0)


def half_of_batches(collate):
    last = []

    def collate_half(batch):
        if last:
            return last.pop()
        last.append(collate(batch))
        return last[0]
    return collate_half


def make_loader(kind, steps, options):
    make, collate = {"tokens": tokenizing, "python": lambda: (computing, None), "naps": lambda: (napping, None),
                     "epochs": lambda: (napping, None), "threads": lambda: (constant, threaded), "images": photographing,
                     "clones": lambda: (constant, None), "deepcopies": lambda: (constant, None)}[kind]()
    if options.get("half"):
        make, collate = (make, half_of_batches(collate)) if collate else (half_of(make), None)
    workers = options.get("workers", 0)
    return DataLoader(Samples(steps * BATCH, make), batch_size=BATCH, num_workers=workers, collate_fn=collate,
                      persistent_workers=bool(options.get("persistent")) and workers > 0)


def save(state):
    out = io.BytesIO()
    torch.save(state, out)
    with tempfile.NamedTemporaryFile() as file:
        file.write(out.getvalue())
        file.flush()


def main():
    kind, steps = sys.argv[1], int(sys.argv[2])
    options = {name: int(value) for name, _, value in (word.partition("=") for word in sys.argv[3:])}
    epochs = steps // 15 if kind == "epochs" else 1
    loader = make_loader(kind, steps // epochs, options)
    saves = kind in ("clones", "deepcopies")
    width = 1024 if saves else 256
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), *[torch.nn.Linear(width, width) for _ in range(6)],
                                torch.nn.Linear(width, 1))
    optimizer, saver = torch.optim.SGD(model.parameters(), 1e-6), None
    n, begin = 0, None
    for _ in range(epochs):
        for batch in loader:
            sum(model(batch).mean() for _ in range(1 if kind in ("naps", "epochs") else 8)).backward()
            if kind in ("naps", "epochs"):
                time.sleep(0.015)
            optimizer.step()
            optimizer.zero_grad()
            n += 1
            if options.get("every") and n % options["every"] == 0:
                if saver:
                    saver.join()
                state = ([{name: value.clone() for name, value in model.state_dict().items()} for _ in range(12)] if kind == "clones"
                         else [copy.deepcopy((model.state_dict(), optimizer.state_dict())) for _ in range(6)])
                saver = threading.Thread(target=save, args=(state,))
                saver.start()
            if n == FIRST:
                begin = time.perf_counter()
    print(f"{(n - FIRST) / (time.perf_counter() - begin):.3f}")


if __name__ == "__main__":
    main()
