# SPDX-License-Identifier: Apache-2.0
"""Describes this machine: a Python with torch, its GPU, driver and packages, cores and kernel. Standard library only."""
import json
import os
import pathlib
import platform
import shutil
import subprocess

PLACES = ("python3", "python", "/usr/bin/python3", "/usr/local/bin/python3", "/opt/conda/bin/python", "/opt/venv/bin/python")
LOOK = """
import importlib.util, json, platform, sys
import torch
found = {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda, "gpu": None}
if torch.cuda.is_available():
    torch.zeros(1, device="cuda")
    of = torch.cuda.get_device_properties(0)
    found.update(gpu=of.name, gpu_memory_gib=round(of.total_memory / 2**30, 1), compute="%d.%d" % (of.major, of.minor))
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
found["modules"] = [name for name in sys.argv[1:] if there(name)]
print(json.dumps(found))
"""
MODULES = ("numpy", "PIL", "torchvision", "spdl.io", "spdl.pipeline", "nvidia.dali", "ffcv", "litdata", "streaming", "webdataset", "grain")


def run(argv, timeout_s=120):
    """Returns (standard output, or None if it failed; last line of standard error)."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, getattr(error, "strerror", None) or f"no answer within {timeout_s} s"
    said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return (None if done.returncode else done.stdout), said


def python_with_torch(named):
    """Returns (path, output of LOOK, [reasons why others were rejected]) of a Python. The named one comes first, else the first that has
    torch and a GPU, else the first that has torch. Returns (None, None, [...]) if there is none."""
    found, why, seen = None, [], set()
    for place in [named] if named else PLACES:
        path = shutil.which(place)
        if not path or os.path.realpath(path) in seen and not named:
            why += [f"{place}: not found"] if named else []
            continue
        seen.add(os.path.realpath(path))
        said, error = run([path, "-c", LOOK, *MODULES])
        if said is None:
            why.append(f"{path}: {error}")
            continue
        try:
            look = json.loads(said.splitlines()[-1])
        except (IndexError, ValueError):
            why.append(f"{path}: is no Python")
            continue
        if look["gpu"]:
            return path, look, why
        found = found or (path, look)
    return (*(found or (None, None)), why)


def driver():
    """Returns the kernel driver's version, or None if no driver is loaded."""
    said, _ = run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], 30)
    if said:
        return said.splitlines()[0].strip()
    try:
        words = pathlib.Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return None
    return next((word for word in words if word[0].isdigit() and word.count(".") >= 1), None)


def field(path, name):
    try:
        lines = pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.split("=" if "=" in line else ":", 1)[1].strip().strip('"') for line in lines if line.startswith(name)), None)


def cores():
    """Returns the number of cores that this process may use, at most its control group's share."""
    n = len(os.sched_getaffinity(0))
    try:
        quota, period = pathlib.Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return n if quota == "max" else max(1, min(n, int(quota) // int(period)))
    except (OSError, ValueError):
        return n


def describe(look, analyze):
    """Returns the JSON of the machine. analyze: path of diesel-analyze, which reports its capabilities here."""
    said, _ = run([analyze, "check", "--json"])
    check = json.loads(said) if said else {}
    return {**look, "driver": driver(), "cpu": field("/proc/cpuinfo", "model name") or platform.machine(), "cores": cores(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30), "kernel": platform.release(),
            "distribution": field("/etc/os-release", "PRETTY_NAME"), "libc": platform.libc_ver()[1], "root": os.geteuid() == 0,
            "recording": check.get("mode"), "findings": [f for f in check.get("findings", []) if f.get("state") != "ok"
                                                         or f.get("name") in ("libcuda", "nvml", "privilege")]}


def in_words(machine):
    gpu = f"{machine['gpu']} ({machine['gpu_memory_gib']} GiB), driver {machine['driver']}, CUDA {machine['cuda']}" if machine["gpu"] else "no GPU"
    return (f"{gpu}; torch {machine['torch']}, Python {machine['python']}; {machine['cpu']}, {machine['cores']} cores, "
            f"{machine['memory_gib']} GiB; Linux {machine['kernel']}, {machine['distribution']}")
