# SPDX-License-Identifier: Apache-2.0
"""Iterates over samples as they are stored, shuffled, in batches of 2 MiB, for some epochs of one loader.

    small_memory.py WAY DATA SAMPLE_BYTES EPOCHS READER GROUP...

WAY is one of raw_peers.py. Modules are loaded first; then this process enters the control groups, and reads every byte. Prints, as JSON:
samples and sum of the bytes of an epoch, and for each epoch its seconds and the bytes read from storage by the process READER with its
descendants. READER 0 is this process."""
import contextlib
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import raw
import raw_peers
from jobs import usage


class Reads:
    """Counts the bytes read from storage by a process and its descendants. The kernel's list of children may miss one, so processes that were seen
    before are read again."""

    def __init__(self, root):
        self.root, self.seen = root, {}

    def read(self):
        for pid in {self.root, *self.seen, *usage.tree(self.root)}:
            with contextlib.suppress(OSError):  # the process ended, and its last count stays valid
                fields = dict(line.split(": ") for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines())
                self.seen[pid] = int(fields["read_bytes"])
        return sum(self.seen.values())


def epoch(loader, size):
    """Returns the number of samples, and the sum over their bytes."""
    n = total = 0
    for batch in loader:
        count, part = raw.look(batch, size)
        n, total = n + count, total + part
    return n, total % (1 << 64)


def main():
    way, data, size, epochs, reader = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
    raw_peers.imports(way)
    for group in sys.argv[6:]:
        pathlib.Path(group, "cgroup.procs").write_text(str(os.getpid()))
    seconds, reads, found = [], [], set()
    storage = Reads(reader or os.getpid())
    at = storage.read()
    loader = raw_peers.make(way, data, size)
    for _ in range(epochs):
        begin = time.perf_counter()
        found.add(epoch(loader, size))
        seconds.append(time.perf_counter() - begin)
        before, at = at, storage.read()
        reads.append(at - before)
    if len(found) > 1:
        sys.exit("the epochs did not read the same bytes")
    n, total = found.pop()
    print(json.dumps({"samples": n, "sum": total, "seconds": seconds, "read_bytes": reads}), flush=True)
    os._exit(0)  # leaves the workers running


if __name__ == "__main__":
    main()
