# SPDX-License-Identifier: Apache-2.0
"""Jobs that load their data in ways of their own: run.py KIND --data FOLDER [--seconds S].

They do not use the recorder. Each has a clock of its own around the code that gets a batch. At the end it prints one JSON
line with the shares of its time, from the first batch on, in which it waited for data and in which it slept on purpose.
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
