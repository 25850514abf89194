# SPDX-License-Identifier: Apache-2.0
"""Simulates which resource a job over 1,000 nodes and 100 million files would wait for first (model.py).
The costs are measured here or by `./dev bench cluster`. The nodes are NOT real: one machine has as many registries as requested, and none of
their links.

    owners     finding a chunk's owner among 1,000 members (dataset/owner.h), of one order and of lanes
    registry   a real redis-server and 16 to 512 nodes of one group (dataset/registry.h, all of them in one process): until each knows all
               of them, and then the server's CPU time per second
    exchange   CPU time of both ends, per byte and per question: results/cluster.json

    bench_scaling.py [--table]     --table: prints results/scaling.json, for docs/explanation/scaling.md
"""
import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent),
                str(pathlib.Path(__file__).resolve().parent.parent / "at_rest")]
import model
import stores
import support

NAME = "scaling"
NODES = (1, 4, 16, 64, 256, 1000)
GROUPS = (16, 128, 512)
HOLD_S = 12
DRIFTS = (0, 16, 4, 1)
WANTED_CPU_S_PER_GIB = 2.0
SNAPSHOT_BYTES = 34 + 24  # bytes of memory per file: its path, and the snapshot's other bytes (results/metadata.json)


def owner_seconds(program):
    """Returns the seconds per chunk and member, of one order and of lanes."""
    told = stores.told(program, "owner", 1000)
    return told["ns"] / 1000 / 1e9, told["lanes_ns"] / 1000 / 1e9


def registry_round(program, folder, n):
    """Returns the server's CPU seconds per second with n nodes, and the time until each node knew all others."""
    folder.mkdir()
    server = stores.Redis(folder)
    try:
        process = subprocess.Popen([program, "members", f"redis://127.0.0.1:{server.port}", str(n), str(HOLD_S)], stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{n} nodes did not find each other")
        before = stores.usage.cpu_of([server.process.pid])
        cpu_s = json.loads(process.stdout.readline())["cpu_s"]
        after = stores.usage.cpu_of([server.process.pid])
        process.wait()
    finally:
        server.process.kill()
        server.process.wait()
    return {"nodes": n, "known_s": json.loads(line)["known_s"], "server": (after - before) / HOLD_S, "all_nodes": cpu_s / HOLD_S}


def fit(rounds):
    """Fits server seconds per second = a n + b n^2, by least squares relative to the measured values."""
    rows = [(r["nodes"] / r["server"], r["nodes"] ** 2 / r["server"]) for r in rounds]
    aa, ab, bb = (sum(x * y for x, y in pairs) for pairs in ([(p, p) for p, _ in rows], rows, [(q, q) for _, q in rows]))
    a1, b1 = sum(p for p, _ in rows), sum(q for _, q in rows)
    b = max(0.0, (aa * b1 - ab * a1) / (aa * bb - ab * ab))
    return max(0.0, (a1 - b * ab) / aa), b


def exchange():
    """Returns seconds of one core per byte and per question, both ends together."""
    path = support.RESULTS / "cluster.json"
    figures = json.loads(path.read_text())["figures"] if path.exists() else {}
    if "exchange_cpu_s_per_gib" not in figures:
        raise SystemExit(f"{path.name} has no figures of the exchange: run ./dev bench cluster first")
    return figures["exchange_cpu_s_per_gib"] / 2**30, figures.get("exchange_question_us", 20) / 1e6


def simulated(n, costs):
    """Yields the simulations with n nodes: the name, and the speed as a function of a resource that costs nothing."""
    site, cheap = model.Site(), dataclasses.replace(costs, byte_s=WANTED_CPU_S_PER_GIB / 2**30)
    cold = dataclasses.replace(site, cached=0.0)
    deep = dataclasses.replace(site, ahead=max(site.ahead, n // 2))
    yield "one order", lambda free: model.one_order(n, site, costs, free)
    yield "one order, ahead n/2", lambda free: model.one_order(n, deep, costs, free)
    yield "one order, whole chunks", lambda free: model.one_order(n, site, costs, free, whole=True)
    yield "one order, first epoch", lambda free: model.one_order(n, cold, costs, free)
    for m in DRIFTS if n > 1 else (0,):
        yield f"lanes, drift {m}", lambda free, m=m: model.lanes(n, site, costs, m, free)
        yield f"lanes, drift {m}, cheap", lambda free, m=m: model.lanes(n, site, cheap, m, free)
    yield "lanes, first epoch", lambda free: model.lanes(n, cold, costs, 0, free)


def study(costs):
    rows = []
    for n in NODES:
        for what, simulate in simulated(n, costs):
            speed, limit = model.speed_and_limit(simulate)
            rows.append({"nodes": n, "what": what, "speed": speed, "limit": limit, "storage_share": model.Site().storage_share(n)})
    return rows


def table(document):
    of = {(row["nodes"], row["what"]): row for row in document["raw"]["rows"]}
    costs = model.Costs(**document["raw"]["costs"])

    def cell(n, what):
        row = of.get((n, what))
        return "" if not row else f"{row['speed']:.2f}" + (f" ({row['limit']})" if row["limit"] else "")

    def both(n, m):
        return f"{cell(n, f'lanes, drift {m}')}; {cell(n, f'lanes, drift {m}, cheap')}" if n > 1 else ""

    print("| nodes | parts of chunks | parts, prefetch = nodes / 2 chunks | whole chunks | first epoch | Redis load, in cores |")
    print("|---|---|---|---|---|---|")
    for n in NODES:
        cells = [cell(n, what) for what in ("one order", "one order, ahead n/2", "one order, whole chunks", "one order, first epoch")]
        print(f"| {n} | {' | '.join(cells)} | {model.redis_cores(n, costs):.3f} |")
    print()
    print("| nodes | no drift | drift 1/16 | drift 1/4 | drift 1 | first epoch | first epoch, relative to storage |")
    print("|---|---|---|---|---|---|---|")
    for n in NODES:
        first = of[n, "lanes, first epoch"]
        print(f"| {n} | {cell(n, 'lanes, drift 0')} | {both(n, 16)} | {both(n, 4)} | {both(n, 1)} | {cell(n, 'lanes, first epoch')} | "
              f"{first['speed'] / first['storage_share']:.2f} |")
    print()
    for name, value in document["figures"].items():
        print(f"- {name}: {value:.4g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true")
    if parser.parse_args().table:
        path = support.RAW / f"{NAME}.json"
        if not path.exists():
            raise SystemExit("nothing has been measured here yet. Run ./dev bench scaling first")
        table(json.loads(path.read_text()))
        return
    byte_s, question_s = exchange()
    with support.Scratch() as folder:
        program = stores.build(folder, support.ROOT / "bench/nodes/costs.c")
        with support.Steal() as steal:
            owner_s, lane_owner_s = owner_seconds(program)
            rounds = [registry_round(program, folder / str(n), n) for n in GROUPS]
        stores.tell(steal)
    member_s, pair_s = fit(rounds)
    costs = model.Costs(byte_s=byte_s, question_s=question_s, owner_s=owner_s, redis_member_s=member_s, redis_pair_s=pair_s)
    site = model.Site()
    n_chunks = site.n_files * site.sample_bytes / site.chunk_bytes
    rows = study(costs)
    speed = {(row["nodes"], row["what"]): row["speed"] for row in rows}
    raw = {"costs": dataclasses.asdict(costs), "site": dataclasses.asdict(site), "registry": rounds, "rows": rows}
    support.result_write(NAME, raw, owner_ns_a_member=owner_s * 1e9, owners_s_1000_nodes=n_chunks * 1000 * owner_s,
                         lane_owner_ns_a_member=lane_owner_s * 1e9, lane_owners_s_1000_nodes=n_chunks * 1000 * lane_owner_s,
                         known_s_512_nodes=rounds[-1]["known_s"], redis_cores_512_nodes=rounds[-1]["server"],
                         redis_cores_1000_nodes=model.redis_cores(1000, costs), snapshot_gb_100m=site.n_files * SNAPSHOT_BYTES / 1e9,
                         exchange_cpu_s_per_gib=byte_s * 2**30, exchange_question_us=question_s * 1e6,
                         speed_1000_one_order=speed[1000, "one order"],
                         **{f"speed_1000_drift_{m}": speed[1000, f"lanes, drift {m}"] for m in DRIFTS},
                         first_epoch_of_storage=min(row["speed"] / row["storage_share"] for row in rows if row["what"] == "lanes, first epoch"))


if __name__ == "__main__":
    main()
