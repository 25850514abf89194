# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training on several ranks (torchrun, gloo on CPUs). One rank loads slower than the others, which
have to wait for it in every all-reduce. Each rank writes its own clock's result to FOLDER/RANK.json."""
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import train


class Slow(train.Samples):
    """As Samples; on the rank `slow_rank` every sample takes longer to prepare."""

    def __init__(self, options, rank, slow_rank, slow_ms):
        super().__init__(options)
        self.extra = slow_ms / 1000 if rank == slow_rank else 0

    def __getitem__(self, index):
        if self.extra:
            train.compute(self.extra)
        return super().__getitem__(index)


def main():
    folder, slow_rank, slow_ms = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    options = train.parse(sys.argv[4:])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    clock = train.Clock()
    loader = torch.utils.data.DataLoader(Slow(options, rank, slow_rank, slow_ms), batch_size=options.batch,
                                         num_workers=options.workers)
    train.train(options, lambda: loader, clock, DistributedDataParallel(train.Model()))
    with open(os.path.join(folder, "%d.json" % rank), "w", encoding="ascii") as file:
        json.dump(clock.result(), file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
