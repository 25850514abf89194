# SPDX-License-Identifier: Apache-2.0
"""Does a network learn as well from lanes as from a full shuffle? Two tasks, small enough for a CPU (learning/learn.py):

    digits       scikit-learn's 1,797 digits; 8 ranks on 2 nodes, 72 chunks of 20 samples
    characters   51,200 characters of 102 classes, drawn in 33 faces of Debian's fonts; 16 ranks on 4 nodes, 674 chunks of 76 samples

Ranks are simulated: slices of a global batch, each with batch normalisation of its own. The order of chunks and slices is the library's
(dataset/order), by learning/order.c. A dataset is packed fairly, as `dieselctl pack` does it, or folder by folder, as with `--order source`;
fair packing and the hashes of chunks differ for each seed.

The lanes' windows of a node have memory for 8 chunks together in most arms (one per lane where that is more), and for four times as many in some.

    served       checks that dieseld and the loader serve exactly that order, rank by rank, with the right data

    bench_accuracy.py [--seeds N] [--task NAME] [--runs FILE]     --runs: keep each run there, and skip the runs that it has
"""
import argparse
import bisect
import dataclasses
import json
import math
import pathlib
import statistics
import subprocess

import numpy
import support
import torch
import xxhash
from learning import learn
from serving import Daemon, pack

import diesel_loader.torch

WINDOW = 8  # chunks per node
ZOOM = 16   # factor by which the served digits are scaled up, so that they fill several chunks
SERVED = [(1, 0), (4, 0), (3, 2)]  # lanes and drift of the orders that the test with dieseld uses


@dataclasses.dataclass(frozen=True)
class Arm:
    lanes: int  # number of lanes; 0: full shuffle
    window: int = WINDOW
    drift: int = 0
    fair: bool = True
    together: bool = False  # batch normalisation over all ranks

    def __str__(self):
        order = f"{self.lanes} lane{'s' * (self.lanes > 1)}, window {self.window}" if self.lanes else "full shuffle"
        return (f"{order}{f', drift 1/{self.drift}' if self.drift else ''}{'' if self.fair else ', by class'}"
                f"{', SyncBatchNorm' if self.together else ''}")


FULL = Arm(0)


def arms_of(task):
    """Returns a task's arms in the order of the table."""
    node, rank = task.nodes, task.ranks
    narrow = WINDOW * node // rank  # chunks per rank, with the same memory per node
    arms = [FULL]
    for fair in (True, False):
        arms.append(Arm(1, fair=fair))
        for lanes, window in ((node, WINDOW), (rank, narrow), (rank, 1)):
            arms += [Arm(lanes, window, drift, fair) for drift in (0, 16, 4, 1)]
        for lanes in (4, 16, 64):
            arms += [Arm(lanes, max(1, WINDOW * node // lanes), drift, fair) for drift in (0, 1)]
    arms.append(Arm(1, 4 * WINDOW, fair=False))
    arms += [Arm(lanes, 4 * window, drift, fair=False) for lanes, window in ((node, WINDOW), (rank, narrow)) for drift in (0, 1)]
    arms += [Arm(0, together=True), *(Arm(*each, fair=False, together=True) for each in ((1,), (node,), (rank, narrow)))]
    return list(dict.fromkeys(arms))


class Orders:
    """Computes the library's orders, with a program that is built only from the library's sources."""

    def __init__(self, folder):
        root = support.ROOT
        self.folder = folder
        self.program = support.build(folder, root / "bench/learning/order.c", "-D_GNU_SOURCE", f"-I{root}", f"-I{root / 'lib/include'}",
                                     f"-I{root / 'dataset/include'}",
                                     *(root / f"dataset/order/{name}.c" for name in ("lanes", "random", "shuffle", "subset")))

    def of(self, chunk_samples, keys, *, seed, epochs, window, lanes, drift, world, batch):
        """Returns sample numbers, [epochs, steps, world * batch]."""
        chunks = self.folder / "chunks"
        chunks.write_text("".join(f"{n} {key}\n" for n, key in zip(chunk_samples, keys)))
        told = subprocess.run([self.program, chunks, *map(str, (seed, epochs, window, lanes, drift, world, batch))], stdout=subprocess.PIPE,
                              check=True).stdout
        return numpy.frombuffer(told, numpy.uint32).astype(numpy.int64).reshape(epochs, -1, world * batch)


# ---- learning ----

def numbers_of(orders, task, arm, seed):
    """Returns the samples of each step of a run."""
    draw, labels = numpy.random.default_rng(seed), task.train[1].numpy()
    n, step = len(labels), task.ranks * task.batch
    if not arm.lanes:
        return numpy.stack([draw.permutation(n)[:n // step * step].reshape(-1, step) for _ in range(task.epochs)])
    sizes = [min(task.chunk_samples, n - first) for first in range(0, n, task.chunk_samples)]
    keys = draw.integers(0, 1 << 63, len(sizes))
    stored = draw.permutation(n) if arm.fair else numpy.argsort(labels, kind="stable")
    return stored[orders.of(sizes, keys, seed=seed, epochs=task.epochs, window=arm.window, lanes=arm.lanes, drift=arm.drift,
                            world=task.ranks, batch=task.batch)]


def runs_read(path):
    if not path or not path.exists():
        return {}
    return {(task, arm, seed): value for task, arm, seed, value in map(json.loads, path.read_text().splitlines())}


def learn_all(orders, tasks, seeds, path):
    """Returns the accuracy by (task, arm, seed). All arms of a seed run before the next seed."""
    runs = runs_read(path)
    for seed in range(seeds):
        for task in tasks:
            for arm in arms_of(task):
                run = (task.name, str(arm), seed)
                if run in runs:
                    continue
                runs[run] = learn.accuracy_after(task, seed, numbers_of(orders, task, arm, seed), 1 if arm.together else task.ranks)
                if path:
                    with open(path, "a", encoding="ascii") as file:
                        file.write(json.dumps([*run, runs[run]]) + "\n")
            print(f"  seed {seed}, {task.name}: " + ", ".join(f"{runs[task.name, str(arm), seed]:.4f}" for arm in arms_of(task)), flush=True)
    return runs


def summary(values, full):
    """Summarises an arm's accuracies. Each is compared with the full shuffle of its seed, which began with the same weights."""
    apart = [a - b for a, b in zip(values, full)]
    error = statistics.stdev(apart) / math.sqrt(len(apart))
    return {"mean": statistics.mean(values), "sd": statistics.stdev(values), "seeds": len(values), "apart": statistics.mean(apart), "error": error,
            "errors": statistics.mean(apart) / error if error else 0.0, "runs": values}


def rows_of(task, runs, seeds):
    lists = {str(arm): [runs[task.name, str(arm), seed] for seed in range(seeds)] for arm in arms_of(task)}
    return {name: summary(values, lists[str(FULL)]) for name, values in lists.items()}


def table_print(task, rows):
    print(f"\n| {task.name} | accuracy | sd | difference from full shuffle | difference in standard errors |\n|---|---|---|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {row['mean']:.4f} | {row['sd']:.4f} | {row['apart']:+.4f} | {row['errors']:+.1f} |")
    print(flush=True)


# ---- the orders that dieseld serves ----

def write_tree(folder, images, labels):
    for i, (image, label) in enumerate(zip(images, labels)):
        group = folder / str(label)
        group.mkdir(parents=True, exist_ok=True)
        (group / f"{i:04d}.bin").write_bytes(numpy.kron(image, numpy.ones((ZOOM, ZOOM), numpy.uint8)).tobytes())


def chunks_of(dataset):
    """Returns the number of samples of each chunk, and the hash of its id."""
    def chunk(number):
        told = subprocess.run([support.program("dieselctl"), "stat", "--json", dataset.path, dataset.sample_path(number)],
                              stdout=subprocess.PIPE, check=True).stdout
        return json.loads(told)["chunk"]

    sizes, keys, first = [], [], 0
    while first < len(dataset):
        found = chunk(first)
        end = bisect.bisect_right(range(len(dataset)), found, lo=first, key=chunk)
        sizes.append(end - first)
        keys.append(xxhash.xxh3_64_intdigest(bytes.fromhex(found)))
        first = end
    return sizes, keys


def served(dataset, images, *, seed, epochs, window, lanes, drift, world, batch):
    """Returns the samples that the ranks' loaders hand out, as Orders.of() does. Each sample's pixels must be those of its file."""
    ranks = []
    for rank in range(world):
        diesel = diesel_loader.torch
        loader = diesel.DataLoader(dataset, batch_size=batch, shuffle=True, seed=seed, drop_last=True, batches=diesel.Batches(return_ids=True),
                                   order=diesel.Order(window_chunks=window, lanes=lanes, drift=drift), job=diesel.Job(rank, world))
        ranks.append([])
        for _ in range(epochs):
            steps = []
            for data, _, numbers in loader:
                names = [int(pathlib.Path(dataset.sample_path(number)).stem) for number in numbers.tolist()]
                side = images.shape[1] * ZOOM
                assert numpy.array_equal(data.numpy().reshape(-1, side, side)[:, ::ZOOM, ::ZOOM], images[names]), "other data"
                steps.append(numbers.numpy().copy())
            ranks[-1].append(steps)
    return numpy.concatenate(ranks, axis=2)


def check_served(orders, folder):
    """Checks that dieseld serves the library's orders. Returns how many it checked."""
    images, labels = learn.digits_stored()
    write_tree(folder / "raw", images, labels)
    n = 0
    packed = pack(folder / "raw", folder / "packed", "--chunk-size", "4M")
    with Daemon(folder):
        dataset = diesel_loader.torch.Dataset(packed)
        chunks = chunks_of(dataset)
        for lanes, drift in SERVED:
            for world, batch in ((1, 32), (4, 8)):
                how = {"seed": 3, "epochs": 3, "window": 2, "lanes": lanes, "drift": drift, "world": world, "batch": batch}
                if not numpy.array_equal(served(dataset, images, **how), orders.of(*chunks, **how)):
                    raise SystemExit(f"dieseld does not serve the order that dataset/order computes: {how}")
                n += 1
    return n


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds, at least 2 (default: 10)")
    parser.add_argument("--task", choices=["digits", "characters"], action="append")
    parser.add_argument("--runs", type=pathlib.Path)
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error("--seeds: at least 2")
    names = options.task or ["digits", "characters"]
    if "characters" in names and learn.missing_faces():
        support.skip("fonts are missing. To install them: apt install fonts-dejavu-core fonts-dejavu-extra fonts-liberation")
    torch.set_num_threads(1)  # small steps: a second thread would only wait
    with support.Scratch() as folder:
        orders = Orders(folder)
        figures = {"served": check_served(orders, folder)}
        tasks = [getattr(learn, name)() for name in names]
        runs = learn_all(orders, tasks, options.seeds, options.runs)
    raw = {}
    for task in tasks:
        raw[task.name] = rows = rows_of(task, runs, options.seeds)
        table_print(task, rows)
        for what, fair in (("", True), ("_by_class", False)):
            for lanes, window in ((1, WINDOW), (task.nodes, WINDOW), (task.ranks, WINDOW * task.nodes // task.ranks)):
                figures[f"{task.name}{what}_{lanes}"] = rows[str(Arm(lanes, window, fair=fair))]["mean"]
        figures[f"{task.name}_full"] = rows[str(FULL)]["mean"]
        figures[f"{task.name}_worst_errors"] = min(rows[str(arm)]["errors"] for arm in arms_of(task) if arm.fair and not arm.together)
    support.result_write("accuracy", raw, **figures)


if __name__ == "__main__":
    main()
