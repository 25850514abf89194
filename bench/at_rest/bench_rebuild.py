# SPDX-License-Identifier: Apache-2.0
"""Makes the metadata of a dataset of a million samples of 64 bytes, and rebuilds them from its chunks with `dieselctl rebuild`.
They are in SQLite, on one Redis server, or on a Redis Cluster of three nodes.

    make       samples from memory to the dataset's writer (put.c), until they are durable and can be read
    rebuild    all chunks, which are in the page cache, are read and replayed; metadata and snapshot are written again

The servers run on this machine's loopback, without a log of writes, and share its cores with the writer: where these are fewer
than four, three nodes cannot show more than one. Engines alternate. DIESEL_BENCH_SAMPLES (1,000,000), DIESEL_BENCH_ROUNDS (3).

    bench_rebuild.py [--only sqlite|redis|cluster ...]
"""
import argparse
import contextlib
import os
import shutil

import stores
import support

NAME = "rebuild"
N = int(os.environ.get("DIESEL_BENCH_SAMPLES", 1_000_000))
BYTES = 64
ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 3))
ENGINES = ("sqlite", "redis", "cluster")


def cpu_s(nodes):
    return sum(stores.usage.cpu_of([node.process.pid]) for node in nodes)


def start(folder, engine):
    """Starts the servers of an engine, and returns them so that the caller can stop them."""
    (folder / engine).mkdir()
    if engine == "redis":
        return [stores.Redis(folder / engine)]
    return stores.servers.Cluster(folder / engine, 3, 0, "--appendonly", "no").nodes if engine == "cluster" else []


def one_round(program, dataset, url, nodes):
    """Makes and rebuilds the metadata. Returns the times, and the CPU time of the servers."""
    os.sync()
    before = cpu_s(nodes)
    made = stores.told(program, "dataset", dataset, N, BYTES, *filter(None, [url]))
    made["cpu_s"] += cpu_s(nodes) - before
    os.sync()
    before = cpu_s(nodes)
    rebuilt = stores.timed(support.program("dieselctl"), "rebuild", dataset)
    rebuilt["cpu_s"] += cpu_s(nodes) - before
    found = stores.told(support.program("dieselctl"), "stat", "--json", dataset)["samples"]
    if found != N:
        raise SystemExit(f"the dataset has {found} samples after rebuild, not {N}")
    shutil.rmtree(dataset)
    for node in nodes:
        node.cli("flushall", "sync")
    return {"make": made, "rebuild": rebuilt}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=ENGINES, default=ENGINES)
    engines, rows, figures = parser.parse_args().only, {}, {"n": N}
    if engines != ["sqlite"] and not shutil.which("redis-server"):
        print("redis and cluster are left out: redis-server is not installed (apt install redis-server)")
        engines = ["sqlite"]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(support.Scratch())
        program, nodes = stores.build(folder, "put.c"), {}
        for engine in engines:
            nodes[engine] = start(folder, engine)
            for node in nodes[engine]:
                stack.callback(node.stop)
        with support.Steal() as steal:
            for k in range(ROUNDS):
                for engine in engines:
                    url = nodes[engine][0].url(f"round{k}") if nodes[engine] else None
                    rows.setdefault(engine, []).append(one_round(program, folder / engine / "made", url, nodes[engine]))
    print(f"{N:,} samples of {BYTES} bytes\n{'':10}{'made/s':>12}{'rebuilt/s':>12}{'per CPU s':>14}")
    for engine, got in rows.items():
        for verb in ("make", "rebuild"):
            figures |= {f"{engine}_{verb}_per_{what}": N / support.median(row[verb][what] for row in got) for what in ("s", "cpu_s")}
        print(f"{engine:10}{figures[f'{engine}_make_per_s']:12,.0f}{figures[f'{engine}_rebuild_per_s']:12,.0f}{figures[f'{engine}_rebuild_per_cpu_s']:14,.0f}")
    stores.tell(steal)
    if "redis" in rows and "cluster" in rows:
        figures["cluster_over_redis"] = figures["cluster_rebuild_per_s"] / figures["redis_rebuild_per_s"]
    support.result_write(NAME, {"rounds": rows, "steal": steal.ratio, "neighbours": steal.neighbours}, **figures)


if __name__ == "__main__":
    main()
