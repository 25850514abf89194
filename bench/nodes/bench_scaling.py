# SPDX-License-Identifier: Apache-2.0
"""What a job over 1,000 nodes and 100 million files would be held up by first: a simulation (model.py) from costs that are measured here, or
by `./dev bench cluster`. The nodes are NOT real: one machine has as many registries as are asked for, and none of their links.

    owners     finding a chunk's owner among 1,000 members (dataset/owner.h)
    registry   a real redis-server and 16 to 512 nodes of one group (dataset/registry.h, all of them in one process): until each knows all
               of them, and then the server's CPU time a second
    exchange   CPU time of both ends, for a byte and for a question: results/cluster.json

    bench_scaling.py [--table]     --table: of results/scaling.json, for docs/scaling.md
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
SNAPSHOT_BYTES = 34 + 24  # of memory a file: its path, and what snapshots have beside that (results/metadata.json)


def owner_seconds(program):
    """For each member, and for 1,000 of them."""
    return stores.told(program, "owner", 1000)["ns"] / 1000 / 1e9


def registry_round(program, folder, n):
    """The server's CPU seconds a second with n nodes, and when each knew all."""
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
    """Server seconds a second = a n + b n^2, by least squares relative to what was measured."""
    rows = [(r["nodes"] / r["server"], r["nodes"] ** 2 / r["server"]) for r in rounds]
    aa, ab, bb = (sum(x * y for x, y in pairs) for pairs in ([(p, p) for p, _ in rows], rows, [(q, q) for _, q in rows]))
    a1, b1 = sum(p for p, _ in rows), sum(q for _, q in rows)
    b = max(0.0, (aa * b1 - ab * a1) / (aa * bb - ab * ab))
    return max(0.0, (a1 - b * ab) / aa), b


def exchange():
    """Seconds of one core a byte and a question, both ends together."""
    path = support.RESULTS / "cluster.json"
    figures = json.loads(path.read_text())["figures"] if path.exists() else {}
    if "exchange_cpu_s_per_gib" not in figures:
        raise SystemExit(f"{path.name} has no figures of the exchange: run ./dev bench cluster first")
    return figures["exchange_cpu_s_per_gib"] / 2**30, figures.get("exchange_question_us", 20) / 1e6


def study(costs):
    """Rows of the table: for each number of nodes, with the read-ahead of today, and with one that grows with the nodes."""
    rows = []
    for n in NODES:
        site = model.Site()
        deep = dataclasses.replace(site, ahead=max(site.ahead, n // 2))
        cold = dataclasses.replace(site, cached=0.0)
        for name, one in (("cached", site), ("cached, ahead n/2", deep), ("first epoch", cold)):
            speed, limit = model.speed_and_limit(n, one, costs)
            rows.append({"nodes": n, "what": name, "speed": speed, "limit": limit, "redis_cores": model.redis_cores(n, costs)})
    return rows


def table(document):
    figures = document["figures"]
    print("| nodes | cached in all memories together | the same, read ahead by half as many chunks as nodes | first epoch | cores of Redis |")
    print("|---|---|---|---|---|")
    rows = document["raw"]["rows"]
    for n in NODES:
        of = {row["what"]: row for row in rows if row["nodes"] == n}
        cells = [f"{of[what]['speed']:.2f}" + (f" ({of[what]['limit']})" if of[what]["limit"] else "") for what in ("cached", "cached, ahead n/2", "first epoch")]
        print(f"| {n} | {' | '.join(cells)} | {of['cached']['redis_cores']:.3f} |")
    print()
    for name, value in figures.items():
        print(f"- {name}: {value:.4g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true")
    if parser.parse_args().table:
        table(json.loads((support.RESULTS / f"{NAME}.json").read_text()))
        return
    byte_s, question_s = exchange()
    with support.Scratch() as folder:
        program = stores.build(folder, support.ROOT / "bench/nodes/costs.c")
        with support.Steal() as steal:
            owner_s = owner_seconds(program)
            rounds = [registry_round(program, folder / str(n), n) for n in GROUPS]
        stores.tell(steal)
    member_s, pair_s = fit(rounds)
    costs = model.Costs(byte_s=byte_s, question_s=question_s, owner_s=owner_s, redis_member_s=member_s, redis_pair_s=pair_s)
    site = model.Site()
    n_chunks = site.n_files * site.sample_bytes / site.chunk_bytes
    raw = {"costs": dataclasses.asdict(costs), "site": dataclasses.asdict(site), "registry": rounds, "rows": study(costs)}
    support.result_write(NAME, raw, owner_ns_a_member=owner_s * 1e9, owners_s_1000_nodes=n_chunks * 1000 * owner_s,
                         known_s_512_nodes=rounds[-1]["known_s"], redis_cores_512_nodes=rounds[-1]["server"],
                         redis_cores_1000_nodes=model.redis_cores(1000, costs), snapshot_gb_100m=site.n_files * SNAPSHOT_BYTES / 1e9,
                         exchange_cpu_s_per_gib=byte_s * 2**30, exchange_question_us=question_s * 1e6,
                         speed_1000_cached=next(r["speed"] for r in raw["rows"] if (r["nodes"], r["what"]) == (1000, "cached")),
                         speed_1000_deep=next(r["speed"] for r in raw["rows"] if (r["nodes"], r["what"]) == (1000, "cached, ahead n/2")))


if __name__ == "__main__":
    main()
