# SPDX-License-Identifier: Apache-2.0
"""Runs dieseld at its limits, through libdiesel in C (jobs/serve.c), on samples of 4 KiB and of 110 KB.
Cold reads are compared with fio's sequential read of as many bytes with O_DIRECT on the same disk. Warm samples per second, copied into
one array per batch (packed) or left in the cache (DIESEL_VIEWS), are compared with copying only (jobs/copy.c). Also measured: how long
next() takes when a batch is ready, the first batch, cold and warm, and the daemon's memory. The ways alternate, each with a dieseld and a
client process of its own."""
import argparse
import os
import pathlib
import shutil

import support
from jobs import apart, usage
from serving import Daemon, pack

DATASET_BYTES = int(os.environ.get("DIESEL_BENCH_MIB", 400)) << 20
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
SECONDS = float(os.environ.get("DIESEL_BENCH_SECONDS", 10))
SIZES = {4096: 256, 110_000: 16}  # bytes of a sample: samples per batch
BUDGET = 1 << 30
SLACK = 64 << 20


def client(folder):
    lib = pathlib.Path(os.environ.get("DIESEL_LIB", support.ROOT / "build/release/lib"))
    return support.build(folder, support.ROOT / "bench/jobs/serve.c", f"-I{support.ROOT / 'client/include'}", f"-L{lib}", "-ldiesel",
                         f"-Wl,-rpath,{lib}")


def one(folder, program, dataset, size, way):
    support.drop_caches()
    with Daemon(folder, "--cache", BUDGET, "--metrics", "off") as daemon:
        begin = usage.cpu_of([os.getpid()])
        cold = apart.run([program, dataset, SIZES[size], SECONDS, way])
        cpu_s = usage.cpu_of([os.getpid()]) - begin
        warm = apart.run([program, dataset, SIZES[size], 0.1, way])
    return {"way": way, "size": size, **cold, "cpu_s": cpu_s, "again_s": warm["first_s"], "peak_rss_bytes": daemon.peak_rss_bytes}


def copied(program, size):
    return {"way": "copy", "size": size, **apart.run([program, DATASET_BYTES >> 20, size, SIZES[size], SECONDS / 5])}


def figures_of(raw, size, n):
    figures = {f"copy_per_s_{size}": support.median(r["samples"] / r["seconds"] for r in raw if (r["way"], r["size"]) == ("copy", size))}
    figures |= {f"fio_bytes_per_s_{size}": support.median(r["bytes_per_s"] for r in raw if (r["way"], r["size"]) == ("fio", size))}
    for way in ("packed", "views"):
        mine = [r for r in raw if (r["way"], r["size"]) == (way, size)]

        def median(of, mine=mine):
            return support.median(map(of, mine))

        figures |= {
            f"{way}_cold_of_fio_{size}": median(lambda r: n * size / r["epoch_s"]) / figures[f"fio_bytes_per_s_{size}"],
            f"{way}_warm_per_s_{size}": median(lambda r: r["samples"] / r["seconds"]),
            f"{way}_warm_of_copy_{size}": median(lambda r: r["samples"] / r["seconds"]) / figures[f"copy_per_s_{size}"],
            f"{way}_per_cpu_s_{size}": median(lambda r: (r["samples"] + n) / r["cpu_s"]),
            f"{way}_ready_p50_us_{size}": median(lambda r: r["ready_p50_us"]),
            f"{way}_ready_p99_us_{size}": median(lambda r: r["ready_p99_us"]),
            f"{way}_first_cold_ms_{size}": 1e3 * median(lambda r: r["first_s"]),
            f"{way}_first_warm_ms_{size}": 1e3 * median(lambda r: r["again_s"]),
            f"{way}_memory_within_budget_{size}": int(max(r["peak_rss_bytes"] for r in mine) <= BUDGET + SLACK),
        }
    return figures


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    if os.geteuid() != 0:
        support.skip("dropping the caches for the cold runs needs root")
    if not shutil.which("fio"):
        support.skip("needs fio (apt install fio)")
    raw, figures = [], {}
    for size in SIZES:
        n = DATASET_BYTES // size
        with support.Scratch() as folder:
            program, copy = client(folder), support.build(folder, support.ROOT / "bench/jobs/copy.c", "-pthread")
            support.random_files(folder / "files", n, size)
            dataset = pack(folder / "files", folder / "packed")
            for k in range(ROUNDS):
                raw.append({"way": "fio", "size": size, "round": k, "bytes_per_s": support.sequential_read(folder / "sequential", n * size)})
                raw.append({"round": k, **copied(copy, size)})
                for way in ("packed", "views"):
                    with support.Steal() as steal:
                        raw.append({"round": k, **one(folder, program, dataset, size, way)})
                    raw[-1]["steal"] = steal.ratio
        figures |= figures_of(raw, size, n)
        for way in ("packed", "views"):
            print(f"{size:6} {way:6} " + ", ".join(f"{key[len(way) + 1:].rpartition('_')[0]} {value:.4g}" for key, value in figures.items()
                                                   if key.startswith(way) and key.endswith(f"_{size}")), flush=True)
    support.result_write("serve", raw, **figures)


if __name__ == "__main__":
    main()
