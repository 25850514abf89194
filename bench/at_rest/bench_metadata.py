# SPDX-License-Identifier: Apache-2.0
"""Looks up random paths in the snapshot of a dataset of a million samples, and in other stores of metadata:

    snapshot   mapped; one path after the other
    many       as snapshot, 256 paths at a time (snapshot_find_many, diesel_dataset_find_many)
    sqlite     the dataset's own meta.db, mapped, a prepared statement in one transaction
    lmdb       24 bytes per path, one read transaction
    redis      24 bytes per key, GET over a Unix socket, pipelined 256 at a time; the server's CPU time is counted
    stat       empty files of an ext4 folder (or the scratch folder's file system), fewer of them; names and inodes in the kernel's caches
    juicefs    still fewer files on a mount of JuiceFS, whose metadata are on that Redis server; the CPU time of both is
               counted. By default the kernel keeps attributes for a second

Everything is in memory. Rates are per second and per CPU second, with one process and with one per core (cores may be hardware threads).
Then the program measures opening the snapshot, making it again (seconds, memory), and its bytes per file in addition to the path. It also
measures `dieselctl pack --append` of 100 files, which updates the snapshot, and `dieselctl ls -R` against `ls -R` of the same ext4 files.

DIESEL_BENCH_SAMPLES (1,000,000), DIESEL_BENCH_FILES (100,000), DIESEL_BENCH_MOUNTED (5,000; 0: no JuiceFS), DIESEL_BENCH_SECONDS (2, per
run), DIESEL_BENCH_ROUNDS (3).

    bench_metadata.py [--keep FOLDER]
"""
import argparse
import contextlib
import os
import pathlib
import subprocess
import time

import stores
import support
from juicefs import juicefs

NAME = "metadata"
N = int(os.environ.get("DIESEL_BENCH_SAMPLES", 1_000_000))
N_FILES = int(os.environ.get("DIESEL_BENCH_FILES", 100_000))
N_MOUNTED = int(os.environ.get("DIESEL_BENCH_MOUNTED", 5_000))
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 3))
SECONDS = float(os.environ.get("DIESEL_BENCH_SECONDS", 2))
N_APPENDED = 100
BYTES, PATH_BYTES = 64, len("class0000/00000000.bin")


def make(put, path, n):
    """Makes the dataset, and measures making its snapshot again."""
    if not (path / "snapshot").exists():
        stores.told(put, "dataset", path, n, BYTES)
    began = time.monotonic()
    process = subprocess.Popen([support.program("dieselctl"), "snapshot", path], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit("dieselctl snapshot failed")
    return {"snapshot_s": time.monotonic() - began, "snapshot_cpu_s": usage.ru_utime + usage.ru_stime,
            "snapshot_peak_mib": usage.ru_maxrss / 1024, "snapshot_bytes_beside_path": (path / "snapshot").stat().st_size / n - PATH_BYTES}


def append(folder, dataset):
    """Appends files that the dataset does not have yet, in the middle of its order."""
    source = folder / "appended"
    for i in range(N_APPENDED):
        path = source / "class0500" / f"{time.time_ns()}-{i}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(BYTES))
    os.sync()
    row = stores.timed(support.program("dieselctl"), "pack", "--append", source, dataset)
    stores.shutil.rmtree(source)
    return row


def run(program, way, n_processes):
    """Returns the paths found per second by all processes, and per CPU second of the processes and servers."""
    kind, store, n, served = way
    before = sum(server.cpu_s() for server in served)
    processes = [subprocess.Popen([program, "run", kind, store, str(n), str(SECONDS), str(seed)], stdout=subprocess.PIPE, text=True)
                 for seed in range(n_processes)]
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"the look-up in {kind} failed")
    found = [stores.json.loads(text) for text in said]
    cpu_s = sum(one["cpu_s"] for one in found) + sum(server.cpu_s() for server in served) - before
    return {"per_s": sum(one["n"] / one["s"] for one in found), "per_cpu_s": sum(one["n"] for one in found) / cpu_s,
            "open_ms": support.median(one["open_ms"] for one in found)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=pathlib.Path, help="keep the dataset in this folder, or use the one that is there")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(support.Scratch())
        lmdb = pathlib.Path("/usr/include/lmdb.h").exists()
        put, program = stores.build(folder, "put.c"), stores.build(folder, "look_up.c", *(["-llmdb"] if lmdb else []))
        dataset, few = (options.keep or folder) / f"{N}", folder / "few"
        made = make(put, dataset, N)
        make(put, few, N_FILES)
        redis = stores.Redis(folder)
        stack.callback(redis.stop)
        # name: (way of look_up.c, store, number of paths, servers)
        ways = {"snapshot": ("snapshot", dataset, N, []), "many": ("snapshot-many", dataset, N, []),
                "sqlite": ("sqlite", dataset / "meta.db", N, []), "lmdb": ("lmdb", folder / "lmdb", N, []),
                "redis": ("redis", redis.socket, N, [redis]), "stat": ("stat", folder / "files", N_FILES, [])}
        if not lmdb:
            print("lmdb is left out: its header is not installed (apt install liblmdb-dev)")
            del ways["lmdb"]
        (folder / "files").mkdir()
        mounted, why = juicefs(folder, f"redis://127.0.0.1:{redis.port}/1") if N_MOUNTED else (None, "DIESEL_BENCH_MOUNTED is 0")
        if mounted:
            stack.callback(mounted.stop)
            ways["juicefs"] = ("stat", mounted.mount, N_MOUNTED, [mounted, redis])
        else:
            print(f"juicefs is left out: {why}")
        for way, (kind, store, n, _) in ways.items():
            if way not in ("snapshot", "many", "sqlite"):
                subprocess.run([program, "fill", kind, store, str(n)], check=True)
        counts, rows, lists, appends = sorted({1, os.cpu_count()}), {}, {"snapshot": [], "files": []}, []
        with support.Steal() as steal:
            for _ in range(ROUNDS):
                for name, way in ways.items():
                    for count in counts:
                        rows.setdefault(f"{name}_{count}", []).append(run(program, way, count))
                lists["snapshot"].append(stores.timed(support.program("dieselctl"), "ls", "-R", few))
                lists["files"].append(stores.timed("ls", "-R", folder / "files"))
                appends.append(append(folder, dataset))
    figures = report(ways, rows, lists, counts, steal)
    figures |= {f"append_{what}": support.median(row[what] for row in appends) for what in ("s", "cpu_s")}
    support.result_write(NAME, {"rounds": rows, "lists": lists, "appends": appends, "steal": steal.ratio, "neighbours": steal.neighbours}, **figures, **made, n=N,
                         n_files=N_FILES, n_mounted=N_MOUNTED)


def report(ways, rows, lists, counts, steal):
    figures = {f"{name}_{what}": support.median(row[what] for row in got) for name, got in rows.items() for what in ("per_s", "per_cpu_s")}
    many = counts[-1]
    print(f"{'paths found':12}{'of':>12}{'1 process':>14}{f'{many} processes':>14}{'per CPU s':>14}")
    for name, way in ways.items():
        print(f"{name:12}{way[2]:12,}{figures[f'{name}_1_per_s']:14,.0f}{figures[f'{name}_{many}_per_s']:14,.0f}{figures[f'{name}_1_per_cpu_s']:14,.0f}")
        if name not in ("snapshot", "many"):
            for ours in ("snapshot", "many"):
                figures[f"{ours}_over_{name}"] = figures[f"{ours}_1_per_cpu_s"] / figures[f"{name}_1_per_cpu_s"]
    stores.tell(steal)
    for ours in ("snapshot", "many"):
        figures[f"{ours}_processes_over_1"] = figures[f"{ours}_{many}_per_s"] / figures[f"{ours}_1_per_s"]
    figures["open_ms"] = support.median(row["open_ms"] for row in rows["snapshot_1"])
    for what in ("s", "cpu_s"):
        figures[f"ls_R_over_files_{what}"] = support.median(row[what] for row in lists["files"]) / support.median(row[what] for row in lists["snapshot"])
    return figures


if __name__ == "__main__":
    main()
