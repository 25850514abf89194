# SPDX-License-Identifier: Apache-2.0
"""`dieseld --stage` with memory for a tenth of a dataset of samples of 110 KB, compared with dieseld without it.

    slow    storage that is simulated by a FUSE file system where each read takes READ_MS, over memory: bytes per second of epochs 1 to 3,
            the first of which fills staging; the same of the next daemon's first epoch; compared with fio's sequential read, with
            O_DIRECT, of the disk that staging is on
    paced   the same storage, with a trainer that takes STEP_MS per batch of 32, so that it need not wait: bytes per second of the first epoch
    disk    the dataset on the same local disk as staging, so that there is nothing to gain: the first epoch, then the second

Caches are dropped before each daemon. Ways alternate, medians of rounds; ratios are those of the rounds. For bench_cache.py --stage.
"""
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time

import support
from serving import Daemon, pack

ROUNDS = int(os.environ.get("DIESEL_BENCH_ROUNDS", 5))
DATASET_BYTES = int(os.environ.get("DIESEL_BENCH_MIB", 800)) << 20
SAMPLE_BYTES, BATCH = 110_000, 32
READ_MS, STEP_MS = 30, 40
WHATS, WAYS = ("slow", "paced", "disk"), ("plain", "stage")


def wait_for(condition, what):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise SystemExit(f"timed out after a minute: {what}")


@contextlib.contextmanager
def slow_storage(source, where):
    with subprocess.Popen([support.program("fuse_mirror"), source, where], stderr=subprocess.DEVNULL,
                          env=os.environ | {"FUSE_MIRROR_READ_MS": str(READ_MS)}):
        wait_for(lambda: os.path.ismount(where), f"{where} is mounted")
        try:
            yield where
        finally:
            subprocess.run(["umount", "-l", where], check=True)


def probe(daemon, *arguments):
    done = subprocess.run([support.program("daemon_probe"), "--socket", daemon.socket, *map(str, arguments)], check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout)


def epoch(daemon, dataset, *options):
    """Returns bytes per second, and the bytes read by source."""
    before = probe(daemon, "--status")
    found = probe(daemon, "--dataset", dataset, "--batch", BATCH, *options)
    after = probe(daemon, "--status")
    return {"bytes_per_s": found["samples"] * SAMPLE_BYTES / found["seconds"], "reads": after["cache"]["reads"] - before["cache"]["reads"],
            "hits": after["stage"]["hits"] - before["stage"]["hits"] if after["stage"] else 0}


def serve(folder, dataset, way, n_epochs, *options):
    """Returns the figures of each epoch."""
    support.drop_caches()
    arguments = ["--cache", max(DATASET_BYTES // 10, 32 << 20), "--metrics", "off", "--history", "off"]
    if way == "stage":
        arguments += ["--stage", folder / "stage", "--stage-size", 2 * DATASET_BYTES]
    with Daemon(folder, *arguments) as daemon:
        if way == "stage":
            wait_for(lambda: probe(daemon, "--status")["stage"]["open"], "the staging folder is open")
        return [epoch(daemon, dataset, *options) for _ in range(n_epochs)]


def measure(folder, where, what, way, behind, on_disk):
    shutil.rmtree(folder / "stage", ignore_errors=True)
    options = ["--pause-us", STEP_MS * 1000] if what == "paced" else []
    with contextlib.ExitStack() as stack:
        dataset = on_disk if what == "disk" else stack.enter_context(slow_storage(behind, where))
        found = serve(folder, dataset, way, {"slow": 3, "paced": 1, "disk": 2}[what], *options)
        if (what, way) == ("slow", "stage"):
            found += serve(folder, dataset, way, 1)
    return found


def figures_of(raw):
    figures = {}
    for what in WHATS:
        rows = {way: [r["epochs"] for r in raw if (r["what"], r["way"]) == (what, way)] for way in WAYS}
        if not rows["plain"]:
            continue
        for way in WAYS:
            for k in range(len(rows[way][0])):
                name = "restarted" if k == 3 else f"epoch{k + 1}"
                figures[f"{what}_{way}_{name}_mb_per_s"] = support.median(r[k]["bytes_per_s"] for r in rows[way]) / 1e6
        for k in range(len(rows["plain"][0])):
            figures[f"{what}_epoch{k + 1}_ratio"] = support.median(
                s[k]["bytes_per_s"] / p[k]["bytes_per_s"] for p, s in zip(rows["plain"], rows["stage"]))
    fio = [r["bytes_per_s"] for r in raw if r["what"] == "fio"]
    figures["fio_mb_per_s"] = support.median(fio) / 1e6
    staged = [r["epochs"] for r in raw if (r["what"], r["way"]) == ("slow", "stage")]
    if staged:
        figures["slow_epoch2_of_fio"] = support.median(s[1]["bytes_per_s"] / f for s, f in zip(staged, fio))
        figures["slow_epoch2_reads"] = max(s[1]["reads"] for s in staged)
    return figures


def run(only=WHATS):
    """Measures, and writes the result."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        support.skip("dropping caches and mounting FUSE need root and /dev/fuse")
    if not shutil.which("fio"):
        support.skip("needs fio (apt install fio)")
    raw = []
    with support.Scratch() as folder, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        n, where = DATASET_BYTES // SAMPLE_BYTES, folder / "mounted"
        where.mkdir()
        support.random_files(folder / "files", n, SAMPLE_BYTES)
        on_disk = pack(folder / "files", folder / "packed")
        behind = shutil.copytree(on_disk, os.path.join(memory, "packed"))
        shutil.rmtree(folder / "files")
        os.sync()
        for k in range(ROUNDS):
            raw.append({"what": "fio", "way": "", "round": k,
                        "bytes_per_s": support.sequential_read(folder / "sequential", DATASET_BYTES)})
            for what in only:
                for way in WAYS if k % 2 == 0 else WAYS[::-1]:
                    with support.Steal() as steal:
                        epochs = measure(folder, where, what, way, behind, on_disk)
                    raw.append({"what": what, "way": way, "round": k, "epochs": epochs, "steal": steal.ratio,
                                "load": os.getloadavg()[0]})
                    print(f"{what:6} {way:6} " + ", ".join(f"{e['bytes_per_s'] / 1e6:.0f} MB/s ({e['reads']} read, {e['hits']} staged)"
                                                           for e in epochs), flush=True)
    support.result_write("stage", raw, **figures_of(raw))
