# SPDX-License-Identifier: Apache-2.0
"""The training step of all jobs in this folder, and the clock that is their ground truth."""
import time

import torch

torch.set_num_threads(1)


class Clock:
    def __init__(self, seconds):
        self.seconds, self.begin, self.n = seconds, None, 0
        self.spent = {"wait": 0.0, "asleep": 0.0, "saving": 0.0}

    def measure(self, what, call, *arguments):
        """Calls `call`, and adds its time to `what`. The job's time begins with the first batch."""
        before = time.perf_counter()
        result = call(*arguments)
        after = time.perf_counter()
        if self.begin is not None:
            self.spent[what] += after - before
        elif what == "wait":
            self.begin = after
        return result

    def sleep(self, seconds):
        self.measure("asleep", time.sleep, seconds)

    def goes_on(self):
        self.n += 1
        return time.perf_counter() - self.begin < self.seconds

    def shares(self):
        wall = time.perf_counter() - self.begin
        return dict({what: seconds / wall for what, seconds in self.spent.items()}, steps=self.n, wall_s=wall)


class Trainer:
    """A small convolution; width sets the cost of a step."""

    def __init__(self, width=24):
        layer = torch.nn
        self.model = layer.Sequential(
            layer.Conv2d(3, width, 5, 2), layer.ReLU(), layer.Conv2d(width, width, 3, 2), layer.ReLU(),
            layer.AdaptiveAvgPool2d(1), layer.Flatten(), layer.Linear(width, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def step(self, images):
        images = torch.as_tensor(images).float()
        loss = torch.nn.functional.cross_entropy(self.model(images), torch.arange(len(images)) % 2)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def train(clock, batches, width=24, after=None):
    """An ordinary loop. after: called after each step, with the trainer and the step's number."""
    trainer = Trainer(width)
    batches = iter(batches)
    while True:
        batch = clock.measure("wait", next, batches, None)
        if batch is None:
            return
        trainer.step(batch)
        if after:
            after(trainer, clock.n)
        if not clock.goes_on():
            return
