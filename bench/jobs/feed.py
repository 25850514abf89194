# SPDX-License-Identifier: Apache-2.0
"""Training jobs for the tuner's benchmarks: one template process with torch imported, from which each job is forked,
so that a job begins with its first batch and not with two seconds of imports.

The template reads one JSON object per line: the parameters of a Job below. A job writes a record per step to its trace
(RECORD: end of the step on CLOCK_MONOTONIC, seconds waited for the batch, samples). It reads its instructions from its dial, a file of
DIAL: transforms per sample, milliseconds of device time per step, stop. The benchmark changes the dial while the job runs: phases.

The device is simulated as MLPerf Storage does, by waiting. Where the stand-in libcuda of the tests is given, the job waits through it,
so that a tool that measures a GPU job from outside sees launches and a synchronisation. The transform is real CPU work.
"""
import ctypes
import json
import mmap
import os
import pathlib
import signal
import struct
import sys
import time

import numpy
import torch
import torch.utils.data

RECORD = struct.Struct("<ddd")
DIAL = struct.Struct("<ddd")
USED = 64 * 64 * 3       # bytes of a sample that the transform works on
KERNEL_US = 500          # kernel time of the stand-in device


class Dial:
    """Settings that the benchmark and the job's workers share. Every process that unpickles them maps their file again."""

    def __init__(self, path):
        self.path = str(path)
        with open(self.path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), DIAL.size)

    def __getstate__(self):
        return {"path": self.path}

    def __setstate__(self, state):
        self.__init__(state["path"])

    def read(self):
        return DIAL.unpack(self.map)


class Transform:
    """bytes -> float [3, 64, 64], in as many numpy passes as the dial sets, about 20 us each. Values stay random."""

    def __init__(self, dial):
        self.dial = dial

    def __call__(self, data):
        values = numpy.asarray(data)[:USED].astype(numpy.float32) / 255
        for _ in range(int(self.dial.read()[0])):
            values = 1 - numpy.abs(1 - 1.999 * numpy.sqrt(values * values))
        return torch.from_numpy(values).reshape(3, 64, 64)


class Files(torch.utils.data.Dataset):
    """The same samples as single files, for PyTorch's own DataLoader."""

    def __init__(self, folder, transform):
        self.paths = sorted(os.path.join(root, name) for root, _, names in os.walk(folder) for name in names)
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            data = numpy.frombuffer(file.read(), dtype=numpy.uint8)
        return (self.transform(data) if self.transform else torch.from_numpy(data.copy())), index % 10


class Device:
    """A device that takes as long for a step as the dial sets, and leaves the CPU free."""

    def __init__(self, library):
        self.cuda = None
        if library:
            os.environ["DIESEL_STANDIN_KERNEL_US"] = str(KERNEL_US)
            os.environ["DIESEL_STANDIN_WAIT"] = "block"
            self.cuda = ctypes.CDLL(library)
        self.weights = torch.nn.Linear(64, 10)

    def step(self, data, milliseconds):
        """Queues the device's work, does a small real step of training meanwhile, and waits for the device."""
        begin = time.monotonic()
        if self.cuda:
            for _ in range(round(milliseconds * 1000 / KERNEL_US)):
                self.cuda.cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
        first = data[0].reshape(-1)[:64].float()
        self.weights(first).sum().backward()
        self.weights.zero_grad()
        if self.cuda:
            self.cuda.cuStreamSynchronize(0)
        elif (left := begin + milliseconds / 1000 - time.monotonic()) > 0:
            time.sleep(left)


def loader_of(job, transform):
    options = {"batch_size": job["batch"], "shuffle": True, "num_workers": job["workers"]}
    if job["workers"] != 0:
        options["persistent_workers"] = True
    if job["loader"] == "torch":
        files = Files(job["data"], transform)
        return torch.utils.data.DataLoader(files, drop_last=True, **options)
    import diesel_loader.torch
    return diesel_loader.torch.DataLoader(job["data"], transform=transform, drop_last=True, seed=job.get("seed", 1),
                                          order=diesel_loader.torch.Order(window_chunks=job.get("window", 4)), **options)


def run(job):
    torch.set_num_threads(1)
    if job.get("socket"):
        os.environ["DIESEL_SOCKET"] = job["socket"]
    for group in job.get("groups", ()):
        pathlib.Path(group, "cgroup.procs").write_text(str(os.getpid()))
    dial = Dial(job["dial"])
    device = Device(job.get("cuda"))
    trace = open(job["trace"], "ab", buffering=0)
    begin = time.monotonic()
    trace.write(RECORD.pack(begin, 0, 0))
    loader = loader_of(job, Transform(dial) if job["transform"] else None)
    while True:
        before = time.monotonic()
        for data, _ in loader:
            got = time.monotonic()
            _, milliseconds, stop = dial.read()
            if stop:
                return
            device.step(data, milliseconds)
            n_samples = len(data)
            data = None  # returns the memory to the daemon before the next request
            now = time.monotonic()
            trace.write(RECORD.pack(now, got - before, n_samples))
            before = now


def serve():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the kernel
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            code = 1
            try:
                run(job)
                code = 0
            except BaseException as error:  # a forked child must never return into the template's loop
                print(f"job {job['loader']}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(code)
        print(child, flush=True)


if __name__ == "__main__":
    serve()
