# SPDX-License-Identifier: Apache-2.0
"""Jobs without autograd of PyTorch: NumPy, scikit-learn, JAX. The first and the last import no torch at all."""
import pathlib
import queue
import random
import threading
import time

import numpy

VALUES, CLASSES, BATCH = 64 * 64 * 3, 10, 8


def prepare(folder):
    values = numpy.random.default_rng(1)
    for index in range(600):
        path = folder / "arrays" / f"{index:04d}.npy"
        path.parent.mkdir(exist_ok=True)
        numpy.save(path, values.random(VALUES, dtype=numpy.float32))


def batches(folder, cpu_s):
    """A loader of the job's own: files in random order, decoded one by one, endlessly."""
    paths = sorted(pathlib.Path(folder / "arrays").glob("*.npy"))
    while True:
        random.shuffle(paths)
        for first in range(0, len(paths), BATCH):
            rows = []
            for path in paths[first:first + BATCH]:
                values, end = numpy.load(path), time.thread_time() + cpu_s
                while time.thread_time() < end:
                    values = 1 - numpy.abs(1 - 1.999 * numpy.sqrt(values * values))
                rows.append(values)
            yield numpy.stack(rows), numpy.arange(first, first + len(rows)) % CLASSES


def numpy_loop(clock, folder):
    """Two layers by hand."""
    draw = numpy.random.default_rng(2)
    first, last = draw.random((VALUES, 512), dtype=numpy.float32) - 0.5, draw.random((512, CLASSES), dtype=numpy.float32) - 0.5
    for values, labels in clock.batches(batches(folder, 0.004)):
        hidden = numpy.tanh(values @ first / VALUES)
        logits = hidden @ last
        error = numpy.exp(logits - logits.max(1, keepdims=True))
        error /= error.sum(1, keepdims=True)
        error[numpy.arange(len(labels)), labels] -= 1
        first -= 0.01 * (values.T @ ((error @ last.T) * (1 - hidden * hidden)))
        last -= 0.01 * (hidden.T @ error)
        if clock.step():
            return


def sklearn_loop(clock, _):
    """partial_fit on batches of PyTorch's DataLoader."""
    from sklearn.linear_model import SGDClassifier
    from torch.utils.data import DataLoader

    from parts import Memory

    clock.watch_torch()
    model = SGDClassifier()
    for images, labels in DataLoader(Memory(1_000_000), BATCH, shuffle=True):
        values = images.reshape(len(labels), -1).numpy()
        for _ in range(4):
            model.partial_fit(values, labels.numpy(), classes=range(CLASSES))
        if clock.step():
            return


def ahead(loader, depth=2):
    """Loads in another thread, as grain and many scripts do."""
    ready = queue.Queue(depth)

    def load():
        for batch in loader:
            ready.put(batch)

    threading.Thread(target=load, daemon=True).start()
    while True:
        yield ready.get()


def jax_loop(clock, folder):
    import jax

    def loss(weights, values, labels):
        hidden = jax.numpy.tanh(values @ weights[0] / VALUES)
        logits = jax.nn.log_softmax(hidden @ weights[1])
        return -logits[jax.numpy.arange(len(labels)), labels].mean()

    @jax.jit
    def update(weights, values, labels):
        gradients = jax.grad(loss)(weights, values, labels)
        return [w - 0.01 * g for w, g in zip(weights, gradients)]

    keys = jax.random.split(jax.random.key(1))
    weights = [jax.random.uniform(keys[0], (VALUES, 512)), jax.random.uniform(keys[1], (512, CLASSES))]
    for values, labels in clock.batches(ahead(batches(folder, 0.008))):
        weights = jax.block_until_ready(update(weights, values, labels))
        if clock.step():
            return
