# SPDX-License-Identifier: Apache-2.0
"""Writes a dataset by diesel_loader.create(): put_python.py FOLDER N BYTES. Prints, as JSON, the seconds taken."""
import json
import os
import sys
import time

import diesel_loader

POOL = os.urandom(16 << 20)  # as in put.c, neighbouring samples differ


def main():
    folder, n, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    began = time.monotonic()
    with diesel_loader.create(folder) as w:
        for i in range(n):
            at = i * size % (len(POOL) - size)
            w.put(f"class{i % 100:02}/{i:010}.bin", POOL[at:at + size])
    print(json.dumps({"s": time.monotonic() - began}))


main()
