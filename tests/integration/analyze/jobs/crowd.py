# SPDX-License-Identifier: Apache-2.0
"""Trains while thousands of short-lived processes start and end; some answer over pipes, as workers do."""
import os
import subprocess
import sys

import torch

import train


class Crowd(train.Clock):
    def __init__(self, n, steps):
        super().__init__()
        self.n_a_step = n // steps

    def step(self):
        for i in range(self.n_a_step):
            if i % 40 == 0:
                subprocess.run(["cat"], input=b"x" * 100000, stdout=subprocess.PIPE, check=True)
            else:
                os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        super().step()


def main():
    options = train.parse(sys.argv[2:])
    torch.set_num_threads(1)
    clock = Crowd(int(sys.argv[1]), options.steps)
    loader = train.loader_of(options)
    train.train(options, lambda: loader, clock)
    train.report(options, clock)


if __name__ == "__main__":
    main()
