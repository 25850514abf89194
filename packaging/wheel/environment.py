#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a virtual environment with the packages of a requirements file, from PyPI.

    packaging/wheel/environment.py FOLDER REQUIREMENTS [--system-site-packages]

Does nothing if the environment has them. Makes it again if the file or this Python changes.
One pip, in build/pip, installs for all environments: to give each its own takes as long as most of the packages."""
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PIP = ROOT / "build" / "pip"


def pip(*arguments, python=None):
    """Returns the command of pip with these arguments, for the environment of `python` (default: one that only pip is in)."""
    _keep(PIP, sys.version, lambda: _run(sys.executable, "-m", "venv", PIP))
    return [PIP / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--retries", "1", *(["--python", python] if python else []), *arguments]


def make(folder, requirements, *options):
    """Returns the Python of the environment. Raises subprocess.CalledProcessError with pip's output."""
    python = folder / "bin" / "python"

    def install():
        _run(sys.executable, "-m", "venv", "--without-pip", *options, folder)
        _run(*pip("install", "--quiet", "--only-binary", ":all:", "--no-compile", "--requirement", requirements, python=python))

    _keep(folder, f"# {sys.version}\n{requirements.read_text()}", install)
    return python


def add(python, name, packages):
    """Returns a folder in the environment of this Python with packages that only programs with the folder on their path see. Packages
    that these need are installed only if the list has them. Raises subprocess.CalledProcessError with pip's output."""
    folder = python.parents[1] / name
    _keep(folder, "\n".join(packages), lambda: _run(*pip("install", "--quiet", "--no-deps", "--only-binary", ":all:", "--no-compile", "--target",
                                                        folder, *packages, python=python)))
    return folder


def _keep(folder, wanted, install):
    """Calls install() unless it has made the folder of the same `wanted`. Other processes wait meanwhile."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made_of = folder / "installed.txt"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made_of.exists() and made_of.read_text() == wanted:
            return
        shutil.rmtree(folder, ignore_errors=True)
        try:
            install()
            made_of.write_text(wanted)
        except BaseException:  # half of it is useless, and large
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _run(*command):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True, check=True)


if __name__ == "__main__":
    try:
        make(pathlib.Path(sys.argv[1]).absolute(), pathlib.Path(sys.argv[2]), *sys.argv[3:])
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.stdout + failed.stderr)
