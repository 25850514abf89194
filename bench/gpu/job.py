# SPDX-License-Identifier: Apache-2.0
"""A small training job of a kind (kinds.py) that keeps its own clock, with which diesel-analyze's report of it is compared.

    job.py KIND SECONDS [--standin LIBCUDA] [--dataset DATASET] [--profile] [--folder FOLDER]

Prints, as JSON, these seconds between the first request for a batch and the end of the last step:

    next            in next(loader)
    wait, wait_cpu  in calls that wait for the device; the part of wait in which this thread computed
    checkpoint      in checkpoints
    starved         outside of next and checkpoint without a core (schedstat), which is not in wait
    idle_in_next    in which the device was idle while the trainer was in next(), by CUDA events or the stand-in's own log

With --profile, torch.profiler measures these, and the numbers of launches and copies (trace_file.py)."""
import argparse
import contextlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent.parent.parent / "tests/integration/loader")]
import torch
import torch.utils.data
import trace_file
from devices import Gpu, StandIn
from kinds import KINDS

BATCH = 16
FEATURES = 256


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Samples(torch.utils.data.Dataset):
    """A dataset of samples from memory, each after prep_s of computing."""

    def __init__(self, floats, prep_s):
        self.memory, self.prep_s = torch.randn(floats), prep_s

    def __len__(self):
        return 1 << 30

    def __getitem__(self, _):
        spin(self.prep_s)
        return self.memory


SCHEDSTAT = os.open("/proc/thread-self/schedstat", os.O_RDONLY)  # schedstat of the main thread, which trains


def starved_s():
    return int(os.pread(SCHEDSTAT, 100, 0).split()[1]) * 1e-9


class Clock:
    def __init__(self):
        self.next = self.wait = self.wait_cpu = self.checkpoint = self.starved_excluded = 0.0
        self.nexts = []

    def waiting(self, call, *arguments):
        """Times a call that waits for the device, without the time in which this thread had no core."""
        # At the end of a system call another thread may get the core, so starved_s() is called within the timed part.
        cpu, begin, starved = time.thread_time(), time.monotonic(), starved_s()
        result = call(*arguments)
        self.wait += time.monotonic() - begin - (starved_s() - starved)
        self.wait_cpu += time.thread_time() - cpu
        return result


class Job:
    def __init__(self, kind, device, options):
        self.kind, self.device, self.options, self.clock = kind, device, options, Clock()
        self.model = torch.nn.Linear(FEATURES, 64).to(device.name)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)
        self.ballast = torch.randn(16 << 20, device=device.name) if kind.checkpoint_every else None
        if kind.graph:
            device.capture(kind.work_ms)
        self.steps, self.ahead, self.others = 0, None, []

    def batches(self):
        """Yields batches endlessly."""
        kind = self.kind
        if not kind.ours:
            dataset = Samples(kind.batch_kib * 256 // BATCH, kind.prep_ms / 1000 / BATCH)
            sampler = torch.utils.data.SequentialSampler(dataset)
            return iter(torch.utils.data.DataLoader(dataset, BATCH, sampler=sampler, num_workers=1,
                                                    pin_memory=kind.pinned and not self.device.simulated))
        import diesel_loader.torch
        loader = diesel_loader.torch.DataLoader(self.options.dataset, BATCH, shuffle=True, batches=diesel_loader.torch.Batches(device="cuda"), drop_last=True)
        return (data for _ in itertools.count() for data, _ in loader)

    def on_device(self, batch):
        kind, device = self.kind, self.device
        if kind.ours:
            return batch
        if kind.ahead:
            batch, self.ahead = self.ahead, device.to_device(batch, True, True)
            if batch is not None:
                device.copied(batch)
            return batch
        if kind.pinned:
            return device.to_device(batch, True, False)
        return self.clock.waiting(device.to_device, batch, False, False)

    def step(self, batch):
        kind, device = self.kind, self.device
        batch = self.on_device(batch)
        if batch is None:  # the first batch is fetched one step ahead
            device.step_ends()
            return
        loss = self.model(batch.reshape(-1)[:FEATURES].float()).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if kind.tiny:
            device.tiny(kind.tiny)
        elif kind.graph:
            device.graph()
        else:
            device.work(kind.work_ms)
        if kind.other_stream:
            device.work_on_other_stream(kind.work_ms)
        device.step_ends()
        self.steps += 1
        if kind.to_host:
            self.clock.waiting(device.to_host, batch)
        if self.steps % kind.every == 0:
            self.wait_for_device(loss)
        if kind.checkpoint_every and self.steps % kind.checkpoint_every == 0:
            self.save()

    def wait_for_device(self, loss):
        kind, device = self.kind, self.device
        if kind.wait == "item":
            self.clock.waiting(device.item, loss)
        elif kind.wait == "synchronize":
            self.clock.waiting(device.synchronize)
        elif kind.wait == "query":
            device.wait_event(False, True)
        else:
            self.clock.waiting(device.wait_event, kind.wait == "blocking", False)

    def save(self):
        """Saves as careful training code does: a temporary file, fsync, rename."""
        begin, starved, path = time.monotonic(), starved_s(), os.path.join(self.options.folder, "checkpoint.pt")
        with open(path + ".tmp", "wb") as file:
            torch.save({"model": self.model.state_dict(), "ballast": self.ballast}, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".tmp", path)
        self.clock.checkpoint += time.monotonic() - begin
        self.clock.starved_excluded += starved_s() - starved

    def train(self, seconds, named):
        """Trains. named: torch.profiler's context manager that names its block, or one that does nothing."""
        clock, device = self.clock, self.device
        batches = self.batches()
        if self.kind.starved:
            self.disturb()
        starved, begin = starved_s(), time.monotonic()
        while True:
            before, apart = time.monotonic(), starved_s()
            with named("next"):
                batch = next(batches)
            after = time.monotonic()
            clock.starved_excluded += starved_s() - apart
            device.step_begins()
            clock.next += after - before
            clock.nexts.append((before, after))
            with named("step"):
                self.step(batch)
            batch = None
            end = time.monotonic()
            if end - begin > seconds:
                break
        return {"wall_s": end - begin, "steps": self.steps, "next_s": clock.next, "wait_s": clock.wait, "wait_cpu_s": clock.wait_cpu,
                "checkpoint_s": clock.checkpoint, "starved_s": starved_s() - starved - clock.starved_excluded}

    def disturb(self):
        """Starts other processes on the core that the trainer is pinned to, but not its worker."""
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        self.others = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(3)]

    def idle_in_next(self):
        if not self.device.simulated:
            waits = [after - before for before, after in self.clock.nexts[1:]]
            return sum(map(min, self.device.idle_between_steps(), waits))
        return trace_file.common(self.device.idle(), self.clock.nexts)


def run(options):
    torch.set_num_threads(1)
    kind = KINDS[options.kind]
    device = StandIn(options.standin, kind.wait, os.path.join(options.folder, "standin.log")) if options.standin else Gpu(torch)
    job = Job(kind, device, options)
    time.sleep(0.3)  # the recorder attaches its probes during this pause
    try:
        if not options.profile:
            device.watch()
            truth = job.train(options.seconds, lambda _: contextlib.nullcontext())
            device.close()
            truth["idle_in_next_s"] = job.idle_in_next()
        else:
            truth = profiled(job, options)
    finally:
        for process in job.others:
            process.kill()
    return {"launches": device.launches, "to_device": device.to_device_copies, "to_host": device.to_host_copies} | truth


def profiled(job, options):
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU] if options.standin else [kinds.CPU, kinds.CUDA]) as profiler:
        clock = job.train(options.seconds, torch.profiler.record_function)
        job.device.close()
    path = os.path.join(options.folder, "trace.json")
    profiler.export_chrome_trace(path)
    found = trace_file.read(path)
    os.unlink(path)
    return clock | found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--standin")
    parser.add_argument("--dataset")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--folder", default=".")
    options = parser.parse_args()
    if options.standin and KINDS[options.kind].ours:
        from standin_cuda import StandInCuda
        with StandInCuda().installed():
            truth = run(options)
    else:
        truth = run(options)
    print(json.dumps(truth), flush=True)


if __name__ == "__main__":
    main()
