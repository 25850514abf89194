# SPDX-License-Identifier: Apache-2.0
"""A neighbour that takes memory: hog.py BYTES BYTES_PER_S FILE allocates BYTES at that pace, and prints "full". Then it reads the file again
and again until it is ended, so that processes compete for the rest of the group's memory."""
import mmap
import os
import sys
import time

STEP = 4 << 20


def main():
    wanted, pace, path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    memory = mmap.mmap(-1, wanted)
    begin = time.monotonic()
    for at in range(0, wanted, STEP):
        memory[at:at + STEP] = os.urandom(4096) * (min(STEP, wanted - at) // 4096)
        time.sleep(max(0, begin + at / pace - time.monotonic()))
    print("full", flush=True)
    with open(path, "rb", buffering=0) as file:
        while True:
            if not file.read(1 << 20):
                file.seek(0)
                time.sleep(0.01)


if __name__ == "__main__":
    main()
