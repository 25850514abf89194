# SPDX-License-Identifier: Apache-2.0
"""The kinds of small training jobs (job.py) by which GPU figures of diesel-analyze are checked. Standard library only."""


class Kind:
    """A kind of job. what: description. prep_ms, work_ms: time per batch of the loader's worker, and of the device. wait: how the trainer
    waits for the device: item, synchronize, event, blocking (an event that sleeps), query (polls an event). every: the trainer waits after this many steps.
    batch_kib: size of a batch. job.py describes the other fields where it uses them."""

    def __init__(self, what, prep_ms=1.0, work_ms=5.0, wait="item", every=1, batch_kib=64, **more):
        self.what, self.prep_ms, self.work_ms, self.wait, self.every, self.batch_kib = what, prep_ms, work_ms, wait, every, batch_kib
        self.pinned = self.ahead = self.to_host = self.other_stream = self.graph = self.starved = self.ours = False
        self.checkpoint_every = self.tiny = 0
        for name, value in more.items():
            assert hasattr(self, name), name
            setattr(self, name, value)


KINDS = {
    "data-bound": Kind("a loader that takes four times as long as the device", prep_ms=8, work_ms=2),
    "compute-bound": Kind("a quick loader, .item() every 10 steps", work_ms=10, every=10),
    "item": Kind(".item() each step"),
    "synchronize": Kind("torch.cuda.synchronize() each step", wait="synchronize"),
    "event": Kind("event.synchronize() each step, spinning", wait="event"),
    "event-blocking": Kind("event.synchronize() each step, asleep", wait="blocking"),
    "event-query": Kind("polling event.query(): computing, not a wait", wait="query"),
    "pageable": Kind("copies of 4 MiB from pageable memory", work_ms=2, batch_kib=4096),
    "pinned": Kind("copies of 4 MiB from pinned memory, non_blocking", work_ms=2, batch_kib=4096, pinned=True),
    "prefetch": Kind("the next batch copied on a stream of its own", work_ms=2, batch_kib=4096, pinned=True, ahead=True),
    "to-host": Kind("4 MiB copied to the host each step", batch_kib=4096, pinned=True, to_host=True),
    "two-streams": Kind("work on two streams, one of which is waited for", other_stream=True, wait="event"),
    "tiny": Kind("2,000 kernels that do next to nothing, each step", work_ms=0, tiny=2000),
    "graph": Kind("a CUDA graph replayed each step", graph=True),
    "cpu-starved": Kind("three other processes on the trainer's core", starved=True),
    "checkpoint": Kind("torch.save of 64 MiB every 20 steps", checkpoint_every=20),
    "ours": Kind('diesel_loader with device="cuda"', batch_kib=4096, ours=True),
}
