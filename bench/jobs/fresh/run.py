# SPDX-License-Identifier: Apache-2.0
"""Jobs that load their data in ways of their own: run.py KIND --data FOLDER [--seconds S].

They know nothing of the recorder. Each has a clock of its own around whatever gets a batch; at the end it prints one JSON
line: the shares of its time that it waited for data and that it slept on purpose, from the first batch on.
"""
import argparse
import json
import multiprocessing
import os
import time

import kinds
import steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(kinds.KINDS))
    parser.add_argument("--data", required=True, help="folder of JPEG files")
    parser.add_argument("--seconds", type=float, default=8)
    options = parser.parse_args()
    clock = steps.Clock(options.seconds)
    kinds.KINDS[options.kind](clock, kinds.Data(options.data))
    print(json.dumps(clock.shares()), flush=True)
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(0)  # pylint: disable=protected-access  # threads and processes that load go on


if __name__ == "__main__":
    main()
