# SPDX-License-Identifier: Apache-2.0
"""Makes a dataset of samples of 4 KiB, and stores the same samples in other ways for comparison.

From files that are in the page cache:

    pack               dieselctl pack: durable at its end
    from_tar           dieselctl pack of a tar archive of them
    cp, tar            cp -r to a fresh tree, tar cf to a fresh file: in the page cache at their end
    cp_sync, tar_sync  as cp and tar, and sync -f: durable, too

From memory, by one program in C (put.c) with the same bytes:

    dataset            the dataset's writer: durable, with its metadata and snapshot, at its end
    python             the same with diesel_loader.create(), whose samples another process writes; its CPU time is not reported
    redis, memcached   SET and set over a Unix socket, pipelined 256 at a time, each reply read; the server, without a log of
                       writes, keeps them only in memory; its CPU time is counted
    disk               fio's sequential write of as many bytes with O_DIRECT, 16 at a time, and fsync

Text (bench_pack.py --only text) is the documents and Python sources of this machine, DIESEL_BENCH_TEXT_MIB (100) of them, in plain chunks
and by `--zstd`. Figures are the time of packing, the ratio by which the chunks shrink, and the CPU time of decompressing: `dieselctl verify`
of compressed chunks, less that of plain ones.

The ways alternate. Dirty pages of one are written back before the next begins. DIESEL_BENCH_FILES (20,000),
DIESEL_BENCH_MIB (400, from memory), DIESEL_BENCH_ROUNDS (5).

    bench_pack.py [--only files|memory|text]
"""
import argparse
import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import sys

import stores
import support

NAME = "pack"
BYTES = 4096
N_FILES = int(os.environ.get("DIESEL_BENCH_FILES", 20_000))
MIB = int(os.environ.get("DIESEL_BENCH_MIB", 400))
N_MEMORY = (MIB << 20) // BYTES
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
TEXT_MIB = int(os.environ.get("DIESEL_BENCH_TEXT_MIB", 100))
TEXT_FROM, TEXT_ENDS = ("/usr/share/doc", "/usr/lib/python3", "/usr/include"), (".py", ".h", ".md", ".txt", ".html", "copyright")
LEVELS = (0, 1, 3, 9, 15)
PEERS = ("cp", "tar", "cp_sync", "tar_sync")


def check(dataset, n):
    found = stores.told(support.program("dieselctl"), "stat", "--json", dataset)["samples"]
    if found != n:
        raise SystemExit(f"{dataset} has {found} samples, not {n}")


def pack_files(source, target, way):
    """Times one way. The tree that cp makes is not removed, because ext4 searches long for inodes after many were freed."""
    kind = "pack" if way == "from_tar" else way.partition("_")[0]
    command = {"pack": [support.program("dieselctl"), "pack", source, target], "cp": ["cp", "-r", source, target],
               "tar": ["tar", "cf", target, "-C", source, "."]}[kind]
    if way.endswith("_sync"):
        command = ["sh", "-c", '"$@" && exec sync -f "$0"', target.parent, *command]
    os.sync()
    row = stores.timed(*command)
    if kind == "pack":
        check(target, N_FILES)
        shutil.rmtree(target)
    elif kind == "tar":
        target.unlink()
    return row


def files(folder):
    source, rows = folder / "source", {}
    for path in support.random_files(source, N_FILES, BYTES):
        path.read_bytes()
    archive = folder / "source.tar"
    subprocess.run(["tar", "cf", archive, "-C", source, "."], check=True)
    with support.Steal() as steal:
        for k in range(ROUNDS):
            for way in ("pack", "from_tar", *PEERS):
                rows.setdefault(way, []).append(pack_files(archive if way == "from_tar" else source, folder / f"{way}{k}", way))
    return rows, steal


def disk(folder):
    """Returns the seconds that fio takes. Its CPU time is not measured."""
    path = folder / "sequential"
    done = stores.told("fio", "--name=sequential", f"--filename={path}", "--rw=write", "--bs=1M", "--direct=1", "--iodepth=16", "--ioengine=io_uring",
                       f"--size={MIB}M", "--end_fsync=1", "--refill_buffers", "--output-format=json")
    path.unlink()
    return {"s": done["jobs"][0]["write"]["runtime"] / 1000}


def put(program, folder, way, server):
    store = server.socket if server else folder / "made"
    before = server.cpu_s() if server else 0
    if way == "python":
        row = stores.told(sys.executable, pathlib.Path(__file__).with_name("put_python.py"), store, N_MEMORY, BYTES)
    else:
        row = stores.told(program, way, store, N_MEMORY, BYTES)
    if server:
        row["cpu_s"] += server.cpu_s() - before
        if server.count() != N_MEMORY:
            raise SystemExit(f"{way} has {server.count()} samples, not {N_MEMORY}")
        server.clear()
    else:
        check(store, N_MEMORY)
        shutil.rmtree(store)
    return row


def memory(folder):
    program, rows = stores.build(folder, "put.c"), {}
    with contextlib.ExitStack() as stack:
        running = {"dataset": None, "python": None, "redis": stores.Redis(folder)}
        stack.callback(running["redis"].stop)
        if why := stores.Memcached.why_not():
            print(f"memcached is left out: {why}")
        else:
            running["memcached"] = stores.Memcached(folder, 2 * MIB + 1024)
            stack.callback(running["memcached"].stop)
        if not shutil.which("fio"):
            print("the disk's own rate is left out: fio is not installed (apt install fio)")
        with support.Steal() as steal:
            for _ in range(ROUNDS):
                for way, server in running.items():
                    os.sync()
                    rows.setdefault(way, []).append(put(program, folder, way, server))
                if shutil.which("fio"):
                    os.sync()
                    rows.setdefault("disk", []).append(disk(folder))
    return rows, steal


def copy_text(source):
    """Copies text files of this machine, and returns their bytes."""
    found, n = [path for top in TEXT_FROM for path in sorted(pathlib.Path(top).rglob("*")) if path.name.endswith(TEXT_ENDS) and path.is_file()], 0
    random.Random(1).shuffle(found)
    for i, path in enumerate(found):
        data = path.read_bytes()[:200_000]
        (source / str(i % 10)).mkdir(parents=True, exist_ok=True)
        (source / str(i % 10) / f"{i:06}").write_bytes(data)
        n += len(data)
        if n >= TEXT_MIB << 20:
            break
    return n


def text(folder):
    n, rows, ratios = copy_text(folder / "text"), {}, {}
    with support.Steal() as steal:
        for _ in range(ROUNDS):
            for level in LEVELS:
                target, option = folder / "text.diesel", ["--zstd", str(level)] if level else []
                os.sync()
                packed = stores.timed(support.program("dieselctl"), "pack", *option, folder / "text", target)
                stat = stores.told(support.program("dieselctl"), "stat", "--json", target)
                ratios[level] = stat["plain_bytes"] / stat["stored_bytes"]
                read = stores.timed(support.program("dieselctl"), "verify", target)
                rows.setdefault(level, []).append({"pack_s": packed["s"], "pack_cpu_s": packed["cpu_s"], "verify_cpu_s": read["cpu_s"]})
                shutil.rmtree(target)
    return n, rows, ratios, steal


def report_text(n, rows, ratios, steal):
    mib, figures = n / (1 << 20), {}
    middle = {level: {name: support.median(row[name] for row in got) for name in got[0]} for level, got in rows.items()}
    print(f"\n{mib:.0f} MiB of text\n{'level':10}{'ratio':>8}{'MiB/s':>10}{'per CPU s':>12}{'decompress, per CPU s':>24}")
    for level, row in middle.items():
        more = row["verify_cpu_s"] - middle[0]["verify_cpu_s"]
        figures |= {f"zstd{level}_ratio": ratios[level], f"zstd{level}_mib_per_s": mib / row["pack_s"], f"zstd{level}_mib_per_cpu_s": mib / row["pack_cpu_s"]}
        if level and more > 0:
            figures[f"zstd{level}_decompress_mib_per_cpu_s"] = mib / more
        decompress = f"{figures.get(f'zstd{level}_decompress_mib_per_cpu_s', 0):24,.0f}" if level else ""
        print(f"{level or 'plain':<10}{ratios[level]:8.2f}{mib / row['pack_s']:10,.0f}{mib / row['pack_cpu_s']:12,.0f}{decompress}")
    stores.tell(steal)
    return figures


def report(title, rows, n, steal):
    """Prints samples per second and per CPU second of each way."""
    print(f"\n{title}\n{'':10}{'per second':>12}{'per CPU s':>14}")
    figures = {}
    for way, got in rows.items():
        figures[f"{way}_per_s"] = n / support.median(row["s"] for row in got)
        if "cpu_s" in got[0]:
            figures[f"{way}_per_cpu_s"] = n / support.median(row["cpu_s"] for row in got)
        cpu = f"{figures[f'{way}_per_cpu_s']:14,.0f}" if "cpu_s" in got[0] else ""
        print(f"{way:10}{figures[f'{way}_per_s']:12,.0f}{cpu}")
    stores.tell(steal)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("files", "memory", "text"))
    options = parser.parse_args()
    raw, figures = {}, {}
    with support.Scratch() as folder:
        if options.only in (None, "files"):
            rows, steal = files(folder)
            raw["files"] = {"n": N_FILES, "rounds": rows, "steal": steal.ratio, "neighbours": steal.neighbours}
            figures |= report(f"{N_FILES:,} files of {BYTES} bytes from the page cache", rows, N_FILES, steal)
            figures |= {f"pack_over_{way}": figures["pack_per_s"] / figures[f"{way}_per_s"] for way in PEERS}
        if options.only in (None, "memory"):
            rows, steal = memory(folder)
            raw["memory"] = {"n": N_MEMORY, "rounds": rows, "steal": steal.ratio, "neighbours": steal.neighbours}
            figures |= report(f"{N_MEMORY:,} samples of {BYTES} bytes from memory", rows, N_MEMORY, steal)
            figures |= {f"dataset_over_{way}": figures["dataset_per_s"] / figures[f"{way}_per_s"] for way in rows if way != "dataset"}
        if options.only in (None, "text"):
            n, rows, ratios, steal = text(folder)
            raw["text"] = {"bytes": n, "rounds": rows, "ratios": ratios, "steal": steal.ratio, "neighbours": steal.neighbours}
            figures |= report_text(n, rows, ratios, steal)
    support.result_write(NAME, raw, **figures)


if __name__ == "__main__":
    main()
