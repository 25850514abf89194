# SPDX-License-Identifier: Apache-2.0
"""Jobs that get advice, and the same jobs as the advice would have them: advised.py KIND STEPS [OPTION=NUMBER ...]. Prints steps a
second by the job's own clock, without the first steps.

tokens      a tokenizer with threads of its own in collate_fn (workers=N)
python      samples made by Python's own computing (workers=N)
naps        samples that take time and no core, as slow storage does; a device that does so, too (workers=N)
epochs      workers that are started again for each epoch (workers=N, persistent=0 or 1)
threads     a tensor operation with PyTorch's threads in collate_fn (workers=N)
clones      a background checkpoint by clone() every so many steps (every=N)
"""
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


def computing(i):
    total = 0
    for k in range(30000):
        total += k * i
    return torch.full((64,), float(total % 7))


def napping(i):
    time.sleep(0.002)
    return torch.full((64,), float(i % 7))


def threaded(batch):
    with torch.no_grad():
        square = torch.randn(700, 700)
        for _ in range(4):
            square = (square @ square).clamp(-1, 1)
    return torch.stack(batch) + square[0, 0]


def make_loader(kind, steps, options):
    make, collate = {"tokens": tokenizing, "python": lambda: (computing, None), "naps": lambda: (napping, None),
                     "epochs": lambda: (napping, None), "threads": lambda: ((lambda i: torch.full((64,), float(i % 7))), threaded),
                     "clones": lambda: ((lambda i: torch.full((64,), float(i % 7))), None)}[kind]()
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
    width = 1024 if kind == "clones" else 256
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
                state = {name: value.clone() for name, value in model.state_dict().items() for _ in range(12)}
                saver = threading.Thread(target=save, args=(state,))
                saver.start()
            if n == FIRST:
                begin = time.perf_counter()
    print(f"{(n - FIRST) / (time.perf_counter() - begin):.3f}")


if __name__ == "__main__":
    main()
