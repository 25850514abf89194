# SPDX-License-Identifier: Apache-2.0
"""GPU day: the measurements for a machine with a GPU, which is at hand only for minutes (day.py), and the folder that is carried there.

    bench_gpu.py --carry FOLDER [--wheels FOLDER]     makes it: FOLDER/run needs no compiler and no network
    bench_gpu.py [OPTION ...]                         the same as FOLDER/run, here and with this build (--help)
"""
import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import carry
import day
import support


def main():
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--carry")
    parser.add_argument("--wheels")
    parser.add_argument("--photographs", type=int, default=16, help="number of photographs per class")
    options, others = parser.parse_known_args()
    if not options.carry:
        return day.main(["--results", str(support.ROOT / "build" / "gpu-results"), *others])
    try:
        n_bytes = carry.make(options.carry, options.wheels, options.photographs)
    except carry.Refused as reason:
        print(f"bench_gpu: {reason}", file=sys.stderr)
        return 1
    print(f"{options.carry}: {n_bytes / (1 << 20):.1f} MiB. There: {options.carry}/run, then {options.carry}/run --table")
    return 0


if __name__ == "__main__":
    sys.exit(main())
