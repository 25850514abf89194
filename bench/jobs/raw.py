# SPDX-License-Identifier: Apache-2.0
"""Iterates over samples as they are stored, shuffled, in batches of BATCH_BYTES or 256 samples: a cold epoch, warm ones, a new loader.

    raw.py WAY DATA SAMPLE_BYTES SECONDS [warm]

Modules are loaded first. Then this process drops the page, name and inode caches of the machine (root), unless "warm" is given. Cold is one
epoch, from the construction of the loader to the last batch. Warm is epochs of the same loader for at least SECONDS. Every byte is read.

Prints, as JSON, for both: samples, seconds, CPU seconds of the machine and of the process that started this one with all its descendants. It
also prints the time to the first batch, cold and of a new loader while all is warm, and the sum over all bytes of the cold epoch."""
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import numpy
import raw_peers
import support
from jobs import usage


class Meter:
    def __init__(self):
        self.begin, self.busy, self.own = time.perf_counter(), usage.busy_s(), usage.cpu_of([os.getppid()])

    def read(self, n):
        return {"samples": n, "seconds": time.perf_counter() - self.begin, "cpu_s": usage.busy_s() - self.busy,
                "own_cpu_s": usage.cpu_of([os.getppid()]) - self.own}


def look(batch, size):
    """Returns (number of samples, sum over their bytes)."""
    if isinstance(batch, list):
        looks = [look(sample[None], size) for sample in batch]
        return sum(n for n, _ in looks), sum(part for _, part in looks)
    data = numpy.asarray(batch)
    assert data.dtype == numpy.uint8 and data.shape[1:] == (size,), (data.dtype, data.shape)
    return len(data), int(data.view(numpy.uint64).sum())


def main():
    way, dataset, size, least_s, *warm_only = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), *sys.argv[5:]
    raw_peers.imports(way)
    if not warm_only:
        support.drop_caches()
    meter, first_s, n, total = Meter(), None, 0, 0
    loader = raw_peers.make(way, dataset, size)
    for batch in loader:
        first_s = first_s or time.perf_counter() - meter.begin
        count, part = look(batch, size)
        n, total = n + count, total + part
    cold = meter.read(n)
    meter, n = Meter(), 0
    while time.perf_counter() - meter.begin < least_s:
        for batch in loader:
            n += look(batch, size)[0]
    warm, batch, loader = meter.read(n), None, None
    begin = time.perf_counter()
    look(next(iter(raw_peers.make(way, dataset, size))), size)
    again_s = time.perf_counter() - begin
    print(json.dumps({"cold": cold, "warm": warm, "first_s": first_s, "again_s": again_s, "sum": total % (1 << 64)}), flush=True)
    os._exit(0)  # some peers do not exit cleanly in mid-epoch


if __name__ == "__main__":
    main()
