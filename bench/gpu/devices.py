# SPDX-License-Identifier: Apache-2.0
"""The device of job.py: a GPU through torch, or the stand-in libcuda of the tests (tests/standin), which takes time and computes
nothing. Both count their operations: launches (only those of work()), copies to the device and to the host."""
import ctypes
import os
import time

SIDE = 4096  # rows and columns of the matrices that work() multiplies


class Gpu:
    simulated = False

    def __init__(self, torch):
        self.torch, self.cuda, self.name = torch, torch.cuda, "cuda"
        self.launches = self.to_device_copies = self.to_host_copies = 0
        self.matrix = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.float16) / SIDE ** 0.5
        self.product, self.small = torch.empty_like(self.matrix), torch.zeros(32, device="cuda")
        self.other, self.copies = self.cuda.Stream(), self.cuda.Stream()
        self._multiply(20)
        self.cuda.synchronize()
        begin = time.perf_counter()
        self._multiply(100)
        self.cuda.synchronize()
        self.kernel_s = (time.perf_counter() - begin) / 100
        self.replay = self.steps = None

    def _multiply(self, n):
        for _ in range(n):
            self.torch.mm(self.matrix, self.matrix, out=self.product)

    def work(self, milliseconds):
        n = max(1, round(milliseconds / 1000 / self.kernel_s))
        self._multiply(n)
        self.launches += n

    def tiny(self, n):
        for _ in range(n):
            self.small.add_(1)
        self.launches += n

    def work_on_other_stream(self, milliseconds):
        with self.cuda.stream(self.other):
            self.work(milliseconds)

    def capture(self, milliseconds):
        n = max(1, round(milliseconds / 1000 / self.kernel_s))
        graph = self.cuda.CUDAGraph()
        with self.cuda.graph(graph):
            self._multiply(n)
        self.replay = graph.replay

    def graph(self):
        self.replay()
        self.launches += 1

    def to_device(self, tensor, pinned, ahead):
        self.to_device_copies += 1
        if not ahead:
            return tensor.to("cuda", non_blocking=pinned)
        with self.cuda.stream(self.copies):
            return tensor.to("cuda", non_blocking=True)

    def copied(self, tensor):
        self.cuda.current_stream().wait_stream(self.copies)
        tensor.record_stream(self.cuda.current_stream())

    def to_host(self, tensor):
        self.to_host_copies += 1
        tensor.cpu()

    def item(self, loss):
        self.to_host_copies += 1
        loss.item()

    def synchronize(self):
        self.cuda.synchronize()

    def wait_event(self, blocking, polls):
        event = self.cuda.Event(blocking=blocking)
        event.record()
        if not polls:
            event.synchronize()
        while polls and not event.query():
            pass

    # Records the ground truth: when the device began and ended each step, by its own clock.

    def watch(self):
        self.steps = []

    def step_begins(self):
        if self.steps is not None:
            self.steps.append((self.cuda.Event(enable_timing=True), self.cuda.Event(enable_timing=True)))
            self.steps[-1][0].record()

    def step_ends(self):
        if self.steps is not None:
            self.steps[-1][1].record()

    def idle_between_steps(self):
        """Returns the seconds from the end of each step's work to the start of the next step's."""
        self.cuda.synchronize()
        return [max(0.0, before[1].elapsed_time(after[0])) / 1000 for before, after in zip(self.steps, self.steps[1:])]

    def close(self):
        self.cuda.synchronize()


class StandIn:
    simulated = True
    kernel_s = 1e-4
    COPY_S = 4e-4  # 4 MiB at about 10 GB per second

    def __init__(self, library, wait, log):
        os.environ |= {"DIESEL_STANDIN_KERNEL_US": str(round(self.kernel_s * 1e6)), "DIESEL_STANDIN_COPY_US": str(round(self.COPY_S * 1e6)),
                       "DIESEL_STANDIN_WAIT": "block" if wait == "blocking" else "spin"}
        self.name, self.log_path = "cpu", log
        self.launches = self.to_device_copies = self.to_host_copies = 0
        self.cuda, pointer = ctypes.CDLL(library), ctypes.c_void_p
        # Pointers fill whole registers and stack slots, from which the recorder reads the stream: with an int, the upper 32 bits are undefined.
        self.cuda.cuLaunchKernel.argtypes = [pointer] + 7 * [ctypes.c_uint] + 3 * [pointer]
        self.cuda.cuGraphLaunch.argtypes = 2 * [pointer]
        for name in ("cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"):
            getattr(self.cuda, name).argtypes = [pointer, pointer, ctypes.c_size_t, pointer]
        for name in ("cuStreamSynchronize", "cuEventSynchronize", "cuEventQuery"):
            getattr(self.cuda, name).argtypes = [pointer]
        self._launch()  # so that the driver is loaded when the recorder looks for it

    def _launch(self):
        self.cuda.cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)

    def work(self, milliseconds):
        n = max(1, round(milliseconds / 1000 / self.kernel_s))
        for _ in range(n):
            self._launch()
        self.launches += n

    def tiny(self, n):
        """Launches n kernels with a length of 1 us."""
        os.environ["DIESEL_STANDIN_KERNEL_US"] = "1"
        for _ in range(n):
            self._launch()
        self.launches += n

    def capture(self, milliseconds):
        os.environ["DIESEL_STANDIN_KERNEL_US"] = str(round(milliseconds * 1000))

    def graph(self):
        self.cuda.cuGraphLaunch(0, 0)
        self.launches += 1

    def to_device(self, tensor, pinned, ahead):
        self.to_device_copies += 1
        call = self.cuda.cuMemcpyHtoDAsync_v2 if pinned or ahead else self.cuda.cuMemcpyHtoD_v2
        call(0, 0, tensor.numel() * 4, 0)
        return tensor

    def copied(self, tensor):
        pass

    def to_host(self, tensor):
        self.to_host_copies += 1
        self.cuda.cuMemcpyDtoHAsync_v2(0, 0, tensor.numel() * 4, 0)
        self.cuda.cuStreamSynchronize(0)

    def item(self, loss):
        self.to_host(loss)

    def synchronize(self):
        self.cuda.cuCtxSynchronize()

    def wait_event(self, blocking, polls):
        if not polls:
            self.cuda.cuEventSynchronize(0)
        while polls and self.cuda.cuEventQuery(0):
            pass

    def watch(self):
        pass

    step_begins = step_ends = watch

    def idle(self):
        """Returns [(begin, end)] in seconds of CLOCK_MONOTONIC, by the stand-in's own log."""
        self.cuda.standin_log(os.fsencode(self.log_path))
        with open(self.log_path, encoding="ascii") as log:
            return [(int(line.split()[-2]) * 1e-9, int(line.split()[-1]) * 1e-9) for line in log if line.startswith("idle ")]

    def close(self):
        self.cuda.cuCtxSynchronize()
