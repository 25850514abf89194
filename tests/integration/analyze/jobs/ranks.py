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


def main():
    folder, slow_rank, slow_ms = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    options = train.parse(sys.argv[4:])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    clock = train.Clock()
    if rank == slow_rank:
        options.prep_ms += slow_ms
    loader = train.loader_of(options)
    train.train(options, lambda: loader, clock, DistributedDataParallel(train.Model()))
    with open(os.path.join(folder, "%d.json" % rank), "w", encoding="ascii") as file:
        json.dump(clock.result(), file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
