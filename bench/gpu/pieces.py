# SPDX-License-Identifier: Apache-2.0
"""The pieces of a GPU day (day.py): each has items, which run one after the other and return the JSON to keep."""
import contextlib
import json
import os
import re
import shutil
import subprocess

import images
import support
import waits
from jobs import apart
from kinds import KINDS
from serving import pack

HERE = support.ROOT / "bench" / "gpu"
JOBS = support.ROOT / "bench" / "jobs"
ROUNDS = 3
SAMPLED_MIN_S = 6.0  # minimum seconds of a job that is sampled instead of recorded by BPF
SAMPLE = 3 * 224 * 224 * 4  # bytes of a decoded image
N_IMAGES, N_SHORT = 1280, 160
SIZES = (4096, 110_000)
CORES = (1, 2, 4, 8, 16)
PEERS = {"litdata": "litdata", "streaming": "streaming", "webdataset": "webdataset", "grain": "grain"}  # peers of the piece `serving`: way, module


class Cannot(Exception):
    """One line that names the part that this machine or the stand-in lacks."""


class Piece:
    """at_most_s: limit per item, after which it is ended. simulated: how it runs without a GPU, or None if it needs none."""

    def __init__(self, what, items, at_most_s, simulated=None):
        self.what, self.items, self.simulated = what, items, simulated
        self.at_most_s = at_most_s if callable(at_most_s) else lambda _: at_most_s


def need(day, *modules):
    missing = [name for name in modules if name not in day.modules]
    if missing:
        raise Cannot(f"this Python has no {', no '.join(missing)}")


def plural(cores):
    return f"{cores} core{'s' if cores > 1 else ''}"


# Tests

def tests(day):
    items = {"OnAGpu": lambda: unit(day, "OnAGpu")}
    if day.simulated:
        def cannot():
            raise Cannot("torch cannot use the stand-in libcuda; WithAStandInForCuda tests the same batches with a stand-in in Python")
        items = {"OnAGpu": cannot, "WithAStandInForCuda": lambda: unit(day, "WithAStandInForCuda")}
    return items


def unit(day, name):
    need(day, "numpy", "PIL")
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if day.simulated else {})
    done = subprocess.run([day.python, "-m", "unittest", "-v", f"test_device.{name}"], cwd=day.tests, env=environment, capture_output=True,
                          text=True, check=False, timeout=100)
    ran = re.search(r"^Ran (\d+) test", done.stderr, re.MULTILINE)
    if done.returncode or not ran:
        said = (done.stderr.strip() or done.stdout.strip() or "?").splitlines()
        raise apart.Failed(f"exit status {done.returncode}: " + " / ".join(said[-12:]))
    return {"ran": int(ran[1]), "skipped": len(re.findall(r"\.\.\. skipped", done.stderr))}


# The report compared with ground truth

def recorded(day, profile):
    return {name: lambda name=name: one_kind(day, name, profile) for name in KINDS}


def one_kind(day, name, profile):
    kind = KINDS[name]
    if day.simulated and kind.other_stream:
        raise Cannot("the stand-in libcuda has only one stream")
    if day.simulated and not day.standin:
        raise Cannot("the stand-in libcuda is missing: run ./dev build")
    seconds = (1.0 if kind.tiny else 3.0) if profile else 8.0
    seconds = max(1.0, seconds / 4) if day.short else seconds
    arguments = [name, seconds if day.machine["recording"] == "exact" else max(seconds, SAMPLED_MIN_S), "--folder", day.folder]
    arguments += ["--standin", day.standin] if day.simulated else []
    arguments += ["--profile"] if profile else []
    recording, analyze = day.folder / "recording.db", support.program("diesel-analyze")
    with contextlib.ExitStack() as stack:
        if kind.ours:
            arguments += ["--dataset", day.once("samples", lambda folder: samples(folder, 512, kind.batch_kib * 1024 // 16))["packed"]]
            stack.enter_context(day.daemon("--cache", "512M"))
        truth = day.job(HERE / "job.py", *arguments, prefix=[analyze, "record", "-o", recording, "--"])
    done = subprocess.run([analyze, "report", "--format", "json", recording], capture_output=True, text=True, check=False)
    recording.unlink()
    report = json.loads(done.stdout) if done.stdout else {"insufficient": done.stderr.strip()}
    if report["insufficient"]:
        raise apart.Failed(f"no report: {report['insufficient']}")
    by = "torch.profiler" if profile else "its clock, the stand-in's log" if day.simulated else "its clock, CUDA events"
    return {"what": kind.what, "by": by, "truth": truth, "report": waits.kept(report), "window": report["wall_s"] / truth["wall_s"],
            "rows": waits.compare(kind, truth, report, profile or day.simulated)}


def samples(folder, n, size):
    support.random_files(folder / "files", n, size)
    return {"files": folder / "files", "packed": pack(folder / "files", folder / "packed")}


# To the device

def to_gpu(day):
    ways = ("pinned", "pageable", "slots", "workers", "torch")
    return {f"{way}, round {k}": lambda way=way: one_way(day, way) for k in range(1, 2 if day.short else ROUNDS + 1) for way in ways}


def one_way(day, way):
    if day.simulated and way not in ("slots", "workers"):
        raise Cannot("pinned memory and the link to the device need a GPU; the stand-in has neither")
    n = 128 if day.short else 1024
    data = day.once("images", lambda folder: samples(folder, n, SAMPLE))
    arguments = [way, data["packed" if way in ("slots", "workers") else "files"], SAMPLE, 1 if day.short else 5, workers_for(day, 64 * SAMPLE)]
    with day.daemon("--cache", "2G") if way in ("slots", "workers") else contextlib.nullcontext():
        done = day.job(HERE / "to_gpu.py", *arguments, *(["--standin"] if day.simulated else []))
    return {**done, "workers": arguments[-1]}


def workers_for(day, batch_bytes):
    """Returns the number of workers: one per core, at most 8, and no more than fit in /dev/shm, where each of PyTorch's workers has two batches
    ready."""
    space = shutil.disk_usage("/dev/shm").free // (4 * batch_bytes)
    return max(1, min(8, day.cores, space))


# Scaling over cores

def numbers_of_cores(day):
    """Returns all cores, one core, and numbers between."""
    here = sorted({n for n in CORES if n <= day.cores} | {min(day.cores, CORES[-1])})
    return [here[-1], *here[:-1]]


@contextlib.contextmanager
def held_to(cores):
    """While the block runs, new processes get only the first `cores` cores of this process."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def serving(day):
    items = {}
    for cores in numbers_of_cores(day):
        for size in SIZES:
            peers = [way for way, module in PEERS.items() if module in day.modules]
            ways = ["diesel", "torch-0", f"torch-{cores}", *(f"{way}-{cores}" for way in peers),
                    *(["spdl"] if "spdl.pipeline" in day.modules else []), *(["ffcv"] if "ffcv" in day.modules else [])]
            items |= {f"{way}, {size} bytes, {plural(cores)}": lambda a=(way, size, cores): serve(day, *a) for way in ways}
    return items


def serve(day, way, size, cores):
    need(day, "numpy")
    n_bytes = (32 if day.short else 200) << 20
    data = day.once(f"raw-{size}", lambda folder: samples(folder, n_bytes // size // 256 * 256, size))
    source, ours = data["packed" if way == "diesel" else "files"], way == "diesel"
    peer = way.partition("-")[0]
    if peer in PEERS or peer == "ffcv":
        source = day.once(f"{peer}-{size}", lambda folder: (day.job(JOBS / "raw_peers.py", f"{peer}-2" if peer in PEERS else peer, source, folder), folder)[1])
    with held_to(cores), day.daemon("--cache", "1G") if ours else contextlib.nullcontext():
        done = day.job(JOBS / "raw.py", way, source, size, 0.5 if day.short else 3, "warm")
    return {"cores": cores, "size": size, "way": way, **done["warm"], "sum": done["sum"]}


def photographs(day):
    def make(folder):
        source = day.photographs
        if not source.is_dir():  # in the source tree, which has no folder of photographs
            source = folder / "made"
            images.make(source, 1 if day.short else 16)
        images.multiply(source, folder / "files", N_SHORT if day.short else N_IMAGES)
        return {"files": folder / "files", "packed": pack(folder / "files", folder / "packed")}
    return day.once("photographs", make)


def decoding(day):
    ways = ["diesel", "torchvision", "torchvision-io"]
    ways += [way for way, module in (("spdl", "spdl.io"), ("dali", "nvidia.dali"), ("ffcv", "ffcv")) if module in day.modules]
    return {f"{way}, {plural(cores)}": lambda way=way, cores=cores: decode(day, way, cores) for cores in numbers_of_cores(day) for way in ways}


def decode(day, way, cores):
    if way.startswith("torchvision"):
        need(day, "torchvision", *(["PIL"] if way == "torchvision" else []))
    data, ours = photographs(day), way == "diesel"
    with held_to(cores), day.daemon("--cache", "1G", "--decoded-cache", "0") if ours else contextlib.nullcontext():
        try:
            done = day.job(JOBS / "decode.py", way, data["packed" if ours else "files"], 1 if day.short else 5, CUDA_VISIBLE_DEVICES="")
        except apart.Failed as failure:
            if not ours and "ImportError" in str(failure):
                raise Cannot(f"an installed module cannot be imported: {failure}") from None
            raise
    return {"cores": cores, "way": way, **done}


# Training

def resnet(day, ways):
    return {way: lambda way=way: train(day, way) for way in ways}


def train(day, way):
    if way == "torch":
        need(day, "torchvision", "PIL")
    data = photographs(day)
    seconds = min(day.resnet_s, 20) if way == "alone" or day.simulated else day.resnet_s
    seconds = min(seconds, 4) if day.short else seconds
    small = ["--small"] if day.simulated else []
    workers = min(day.cores, 16)
    with day.daemon("--cache", "2G") if way == "diesel" else contextlib.nullcontext():
        return day.job(HERE / "resnet.py", way, data["packed" if way == "diesel" else "files"], seconds, workers, *small, timeout_s=seconds + 90)


def training_s(day):
    return day.resnet_s + 120


CALLS = "launches, copies and waits are calls to a stand-in libcuda, which takes time but computes nothing"
MEMORY = "a stand-in in Python copies from memory to memory, so GB/s says nothing about a GPU"
NARROW = "a narrow net on the CPU, images of 64 x 64"
ITEM_S = 110  # including preparation; a job is ended after 80 s
PIECES = {
    "tests": Piece('tests of device="cuda"', tests, ITEM_S, "the same batches with a stand-in for CUDA in Python"),
    "waits": Piece("GPU figures of diesel-analyze compared with the job's own clock and CUDA events", lambda day: recorded(day, False), ITEM_S,
                   f"{CALLS}; its log replaces CUDA events"),
    "profiler": Piece("GPU figures of diesel-analyze compared with torch.profiler", lambda day: recorded(day, True), ITEM_S,
                      f"{CALLS}; torch.profiler does not see these calls, so it measures only data wait, and the job's own clock the rest"),
    "handoff": Piece('device="cuda" compared with pinned PyTorch', to_gpu, ITEM_S, MEMORY),
    "serving": Piece("stored samples, read without decoding, by number of cores", serving, ITEM_S),
    "decoding": Piece("JPEG images decoded and cropped, by number of cores", decoding, ITEM_S),
    "resnet-torch": Piece("ResNet-50 with PyTorch's loader, and without a loader", lambda day: resnet(day, ("alone", "torch")), training_s, NARROW),
    "resnet-ours": Piece("ResNet-50 with diesel_loader", lambda day: resnet(day, ("diesel",)), training_s, NARROW),
}
