# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel of diesel_loader from this tree, as pip does, and environments to install it in."""
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

from dieseld_support import SCRATCH

ROOT = pathlib.Path(__file__).resolve().parents[3]
VERSION = re.search(r"project\(diesel VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
SYSTEM_PYTHON = "/usr/bin/python3"


def run(*command, cwd=SCRATCH, **more):
    """Runs a command like a user without any settings."""
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "DIESEL_LIB", "DIESEL_BIN", "CC", "CFLAGS", "LDFLAGS",
                                "CMAKE_ARGS")}
    environment.update(more, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_RETRIES="1")
    return subprocess.run([str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True,
                          check=False)


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def must(done, python):
    """Skips if a command that needs PyPI failed, and PyPI is unreachable or lacks the package for this Python."""
    if not done.returncode:
        return
    probe = run(python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", SCRATCH + "/reached", "scikit-build-core")
    if probe.returncode:
        skip(f"PyPI is not reached: {probe.stderr.strip().splitlines()[-1]}")
    missing = re.search(r"No matching distribution found for (\S+)", done.stderr)
    if missing:
        skip(f"PyPI has no {missing[1]} for the Python of this machine")
    raise AssertionError(done.stdout + done.stderr)


def build(python):
    """Returns (the source distribution, the wheel that is built from it). Tests share one wheel of the same sources, in build/wheels: they
    run one after the other (RESOURCE_LOCK), and the first of them builds it."""
    tools, folder = SCRATCH + "/tools", SCRATCH + "/dist"
    must(run(python, "-m", "pip", "install", "--quiet", "--target", tools, "scikit-build-core"), python)
    done = run(python, "-c", f"from scikit_build_core.build import build_sdist; print(build_sdist({folder!r}))",
               cwd=ROOT, PYTHONPATH=tools)
    assert done.returncode == 0, done.stdout + done.stderr
    sources = pathlib.Path(folder, done.stdout.split()[-1])
    kept = ROOT / "build" / "wheels" / hashlib.sha256(sources.read_bytes()).hexdigest()
    if not kept.exists():
        shutil.rmtree(kept.parent, ignore_errors=True)
        must(run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", f"{kept}.new", sources), python)
        os.rename(f"{kept}.new", kept)
    wheel, = kept.glob("*.whl")
    return str(sources), str(wheel)


# Without what its trainer needs beyond its checkpoints: datasets, wandb and tensorboard.
TORCHTITAN = ("torchtitan", "torchtitan==0.3.0", "tyro==1.0.17", "docstring-parser==0.18.0", "typeguard==4.6.1", "spmd-types==0.2.3")


def kept_environment(folder, requirements):
    """Returns the Python of a virtual environment with the packages of a requirements file, from PyPI. It is made once and kept, until the
    file or the system's Python changes. No other process uses it until this one ends.

    Skips if PyPI is unreachable, or lacks a package for this Python."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fcntl.flock(os.open(f"{folder}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC), fcntl.LOCK_EX)
    python, done_with = folder / "bin" / "python", folder / "installed.txt"
    wanted = f"# {sys.version}\n{requirements.read_text()}"
    if not done_with.exists() or done_with.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            _install(folder, python, requirements)
            done_with.write_text(wanted)
        except BaseException:  # half of it is useless, and large
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return python


def folder_with(python, name, *packages):
    """Returns a folder in that environment with packages that other tests do not see."""
    folder = python.parent.parent / name
    if not folder.exists():
        must(run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", folder, *packages), python)
    return folder


def _install(folder, python, requirements):
    done = run(SYSTEM_PYTHON, "-m", "venv", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    must(run(python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--no-compile", "--requirement",
             requirements), python)
