# SPDX-License-Identifier: Apache-2.0
"""The ways in which the jobs get their batches."""
import copy
import hashlib
import http.server
import io
import itertools
import multiprocessing
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import steps

BATCH = 16
BLOCK = b"x" * (6 << 20)
KINDS = {}


def kind(function):
    KINDS[function.__name__.replace("_", "-")] = function
    return function


def decode(data):
    image = Image.open(io.BytesIO(data)).convert("RGB").resize((112, 112), Image.BICUBIC)
    return numpy.asarray(image, dtype=numpy.float32).transpose(2, 0, 1) / 255


class Data(Dataset):
    """JPEG files, as a PyTorch dataset and as a source of whole batches."""

    def __init__(self, folder):
        self.paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))

    def __len__(self):
        return 100 * len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index % len(self.paths)], "rb") as file:
            return decode(file.read())

    def batch(self, at):
        return numpy.stack([self[BATCH * at + i] for i in range(BATCH)])

    def batches(self):
        for at in itertools.count():
            yield self.batch(at)


def noise():
    return torch.rand(BATCH, 3, 112, 112)


def slow_collate(samples):
    time.sleep(0.05)  # like a download
    return torch.utils.data.default_collate(samples)


def hashing_collate(samples):
    for _ in range(8):
        hashlib.sha256(BLOCK).digest()
    return torch.utils.data.default_collate(samples)


class Noise(Dataset):
    def __init__(self, n=100_000, work=0):
        self.n, self.work, self.one = n, work, torch.rand(3, 112, 112)

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if self.work:
            hashlib.sha256(BLOCK[:self.work]).digest()
        return self.one


def in_thread(batches, space=2):
    """Starts a thread that iterates and puts batches in a queue. Returns the queue, from which the trainer gets."""
    ready = queue.Queue(space)

    def fill():
        for batch in batches:
            ready.put(batch)
        ready.put(None)

    threading.Thread(target=fill, daemon=True).start()
    return ready


class Got:
    """Turns a call that returns a batch into an iterator, for a loop that needs one."""

    def __init__(self, get):
        self.get = get

    def __iter__(self):
        return self

    def __next__(self):
        return self.get()


@kind
def thread_sleep(clock, _data):
    """A DataLoader in a thread, which waits for a remote service."""
    ready = in_thread(DataLoader(Noise(), BATCH, collate_fn=slow_collate))
    steps.train(clock, iter(ready.get, None), 4)


@kind
def thread_cpu(clock, _data):
    """A DataLoader in a thread, which computes without the interpreter lock."""
    ready = in_thread(DataLoader(Noise(), BATCH, collate_fn=hashing_collate))
    steps.train(clock, iter(ready.get, None), 8)


@kind
def thread_workers(clock, data):
    """A DataLoader with a worker, iterated in a thread."""
    ready = in_thread(DataLoader(data, BATCH, num_workers=1))
    steps.train(clock, iter(ready.get, None), 8)


@kind
def generator(clock, data):
    """A generator in the trainer's own thread: files and Pillow."""
    steps.train(clock, data.batches())


@kind
def generator_memory(clock, _data):
    """A generator in the trainer's own thread, which makes random data with NumPy."""
    def batches():
        draw = numpy.random.default_rng(1)
        while True:
            yield draw.standard_normal((BATCH, 3, 112, 112)).astype(numpy.float32)
    steps.train(clock, batches())


@kind
def plain_function(clock, data):
    """get_batch(), as in nanoGPT: neither iterator nor generator."""
    trainer, at = steps.Trainer(), 0
    while True:
        batch = clock.measure("wait", data.batch, at)
        trainer.step(batch)
        at += 1
        if not clock.goes_on():
            return


@kind
def network(clock, data):
    """Files over HTTP, in the trainer's own thread."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            time.sleep(0.002)
            super().do_GET()

    folder = os.path.dirname(data.paths[0])
    port = multiprocessing.Value("i", 0)

    def serve():
        os.chdir(folder)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
        port.value = server.server_address[1]
        server.serve_forever()

    multiprocessing.Process(target=serve, daemon=True).start()
    while not port.value:
        time.sleep(0.01)

    def one(at):
        name = os.path.basename(data.paths[at % len(data.paths)])
        with urllib.request.urlopen(f"http://127.0.0.1:{port.value}/{name}") as answer:
            return decode(answer.read())

    def batches():
        for at in itertools.count():
            yield numpy.stack([one(BATCH * at + i) for i in range(BATCH)])
    steps.train(clock, batches())


@kind
def batchgenerators(clock, data):
    """nnU-Net's way: processes fill queues, a thread drains them, the trainer polls that thread's queue."""
    from batchgenerators.dataloading.data_loader import SlimDataLoaderBase
    from batchgenerators.dataloading.multi_threaded_augmenter import MultiThreadedAugmenter

    class Loader(SlimDataLoaderBase):
        def __init__(self):
            super().__init__(data.paths, BATCH, 1)
            self.at = 0

        def set_thread_id(self, thread_id):
            self.thread_id = thread_id

        def generate_train_batch(self):
            self.at += 1
            return {"data": data.batch(self.at)}

    steps.train(clock, (batch["data"] for batch in MultiThreadedAugmenter(Loader(), None, 1)), 12)


def nodes(clock, data, method):
    from torchdata import nodes as n

    node = n.IterableWrapper(range(1_000_000))
    node = n.ParallelMapper(n.Batcher(node, BATCH), lambda batch: numpy.stack([data[i] for i in batch]),
                            num_workers=1, method=method, multiprocessing_context="fork" if method == "process" else None)
    steps.train(clock, n.Loader(n.Prefetcher(node, 2)), 12)


@kind
def nodes_thread(clock, data):
    """torchdata.nodes, mapped by a thread."""
    nodes(clock, data, "thread")


@kind
def nodes_process(clock, data):
    """torchdata.nodes, mapped by a process."""
    nodes(clock, data, "process")


@kind
def thread_buffer(clock, data):
    """MONAI's ThreadBuffer around a DataLoader without workers."""
    from monai.data import ThreadBuffer

    steps.train(clock, ThreadBuffer(DataLoader(data, BATCH), buffer_size=2))


@kind
def background_generator(clock, data):
    """prefetch_generator's BackgroundGenerator."""
    from prefetch_generator import BackgroundGenerator

    steps.train(clock, BackgroundGenerator(data.batches(), max_prefetch=2))


@kind
def polled_thread(clock, data):
    """A queue that a thread fills, polled with sleep()."""
    ready = in_thread(data.batches())

    def get():
        while True:
            try:
                return ready.get_nowait()
            except queue.Empty:
                time.sleep(0.001)
    steps.train(clock, Got(get))


def produce(data, ready, first):
    for at in itertools.count(first, 2):
        ready.put(data.batch(at))


def processes(data, n):
    ready = multiprocessing.Queue(4)
    for first in range(n):
        multiprocessing.Process(target=produce, args=(data, ready, first), daemon=True).start()
    return ready


@kind
def polled_process(clock, data):
    """A queue that a process fills, polled with sleep()."""
    ready = processes(data, 1)

    def get():
        while ready.empty():
            time.sleep(0.002)
        return ready.get()
    steps.train(clock, Got(get), 8)


@kind
def queue_process(clock, data):
    """A queue that is filled by two processes, which the job starts itself."""
    steps.train(clock, Got(processes(data, 2).get), 8)


def produce_slowly(ready):
    while True:
        time.sleep(0.05)  # like a download
        ready.put(numpy.zeros((BATCH, 3, 112, 112), dtype=numpy.float32))


@kind
def queue_process_sleep(clock, _data):
    """A queue filled by a process that waits for a remote service."""
    ready = multiprocessing.Queue(4)
    multiprocessing.Process(target=produce_slowly, args=(ready,), daemon=True).start()
    steps.train(clock, Got(ready.get), 4)


@kind
def pool(clock, data):
    """multiprocessing.Pool.imap()."""
    with multiprocessing.get_context("fork").Pool(1) as workers:
        steps.train(clock, workers.imap(data.batch, range(100_000)), 4)


@kind
def futures(clock, _data):
    """Futures of a thread pool that makes random data in memory."""
    def make(_at):
        for _ in range(8):
            hashlib.sha256(BLOCK).digest()
        return noise()

    with ThreadPoolExecutor(1) as threads:
        ahead = [threads.submit(make, at) for at in range(2)]

        def get():
            ahead.append(threads.submit(make, 0))
            return ahead.pop(0).result()
        steps.train(clock, Got(get), 8)


@kind
def validation(clock, data):
    """Training and validation, both with a worker, the last pass at the very end."""
    trainer = steps.Trainer(12)
    train, held = torch.utils.data.Subset(data, range(20 * BATCH)), torch.utils.data.Subset(data, range(10 * BATCH))
    goes_on = True
    while goes_on:
        batches = iter(DataLoader(train, BATCH, num_workers=1))
        while (batch := clock.measure("wait", next, batches, None)) is not None:
            trainer.step(batch)
            goes_on = clock.goes_on()
        batches = iter(DataLoader(held, BATCH, num_workers=1))
        with torch.no_grad():
            while (batch := clock.measure("wait", next, batches, None)) is not None:
                trainer.model(batch)


@kind
def interpreter_lock(clock, _data):
    """A loader of pure Python in a thread: the trainer must get the interpreter lock back for each of its operations."""
    def batches():
        while True:
            total = 0
            for value in range(150_000):
                total += value * value
            yield noise()
    steps.train(clock, iter(in_thread(batches()).get, None), 8)


@kind
def interpreter_lock_held(clock, _data):
    """Like interpreter_lock(), but data is ready: a monitor thread of pure Python runs all the time."""
    def monitor():
        while True:
            sum(value * value for value in range(50_000))
    threading.Thread(target=monitor, daemon=True).start()
    batch = noise()
    steps.train(clock, itertools.repeat(batch), 24)


@kind
def tokenizer(clock, _data):
    """Tokenising in the trainer's own thread, by the tokenizer's threads."""
    import tokenizers

    words = [f"w{i}" for i in range(2000)]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    texts = [" ".join(words[(i * k) % 2000] for k in range(4000)) for i in range(BATCH)]

    def batches():
        while True:
            ids = [encoded.ids for encoded in made.encode_batch(texts)]
            yield torch.tensor(ids).float()[:, :3 * 32 * 32].reshape(BATCH, 3, 32, 32)
    steps.train(clock, batches(), 64)


@kind
def sleeping_device(clock, _data):
    """A step that sleeps on purpose, with data that is ready."""
    batch = noise()
    steps.train(clock, itertools.repeat(batch), 4, lambda *_: clock.sleep(0.03))


@kind
def sleeping_loader(clock, _data):
    """Like sleeping_device(), with a DataLoader and a worker that keeps up."""
    steps.train(clock, DataLoader(Noise(), BATCH, num_workers=1), 4, lambda *_: clock.sleep(0.06))


@kind
def starved(clock, _data):
    """A trainer among many other processes that compute."""
    cores = os.cpu_count()
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * cores)]
    batch = noise()
    steps.train(clock, itertools.repeat(batch), 8)
    for other in others:
        other.kill()


@kind
def background_save(clock, data):
    """A DataLoader without workers, and checkpoints: cloned, then written by a thread."""
    ballast = torch.rand(4 << 20)
    path = os.path.join(tempfile.mkdtemp(prefix="diesel-fresh-"), "checkpoint.pt")

    def save(trainer, n):
        if n % 40 != 39:
            return
        state = clock.measure("saving", lambda: (copy.deepcopy(trainer.model.state_dict()), ballast.clone()))
        threading.Thread(target=torch.save, args=(state, path)).start()
    steps.train(clock, DataLoader(data, BATCH), 12, save)


@kind
def inference(clock, data):
    """No backward pass: a DataLoader in a thread feeds a model."""
    ready = in_thread(DataLoader(data, BATCH))
    model = steps.Trainer(24).model
    with torch.no_grad():
        while True:
            model(clock.measure("wait", ready.get))
            if not clock.goes_on():
                return


@kind
def dies_early(_clock, _data):
    """Ends before its first step."""
    import torchvision_of_another_version  # noqa: F401
