# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel of diesel_loader from this tree, as pip does, and environments to install it in."""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

from dieseld_support import SCRATCH

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "packaging" / "wheel"))
import environment  # noqa: E402

VERSION = re.search(r"project\(diesel VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
SYSTEM_PYTHON = "/usr/bin/python3"


def run(*command, cwd=SCRATCH, **more):
    """Runs a command like a user without any settings."""
    variables = {name: value for name, value in os.environ.items()
                 if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "DIESEL_LIB", "DIESEL_BIN", "CC", "CFLAGS", "LDFLAGS",
                              "CMAKE_ARGS")}
    return subprocess.run([str(word) for word in command], cwd=cwd, env=variables | more, capture_output=True, text=True, check=False)


def pip(python, *arguments):
    """Runs pip for the environment of this Python, or for none."""
    return run(*environment.pip(*arguments, python=python))


def new_environment(folder):
    """Returns the Python of a new virtual environment, which sees the system's packages, too."""
    done = run(SYSTEM_PYTHON, "-m", "venv", "--without-pip", "--system-site-packages", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "bin" / "python"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def must(done):
    """Skips if a command that needs PyPI failed, and PyPI is unreachable or lacks the package for this Python."""
    if not done.returncode:
        return
    probe = pip(None, "download", "--quiet", "--no-deps", "--dest", SCRATCH + "/reached", "scikit-build-core")
    if probe.returncode:
        skip(f"PyPI is not reached: {probe.stderr.strip().splitlines()[-1]}")
    missing = re.search(r"No matching distribution found for (\S+)", done.stderr)
    if missing:
        skip(f"PyPI has no {missing[1]} for the Python of this machine")
    raise AssertionError(done.stdout + done.stderr)


def build():
    """Returns (the source distribution, the wheel that is built from it). Tests share one wheel of the same sources, in build/wheels: they
    run one after the other (RESOURCE_LOCK), and the first of them builds it."""
    tools, folder, wheels = ROOT / "build" / "wheels-tools", SCRATCH + "/dist", ROOT / "build" / "wheels"
    if not tools.exists():
        must(pip(None, "install", "--quiet", "--target", f"{tools}.new", "scikit-build-core"))
        os.rename(f"{tools}.new", tools)
    done = run(SYSTEM_PYTHON, "-c", f"from scikit_build_core.build import build_sdist; print(build_sdist({folder!r}))", cwd=ROOT,
               PYTHONPATH=str(tools))
    assert done.returncode == 0, done.stdout + done.stderr
    sources = pathlib.Path(folder, done.stdout.split()[-1])
    kept = wheels / hashlib.sha256(sources.read_bytes()).hexdigest()
    if not kept.exists():
        shutil.rmtree(wheels, ignore_errors=True)
        must(pip(None, "wheel", "--quiet", "--no-deps", "--wheel-dir", f"{kept}.new", sources))
        os.rename(f"{kept}.new", kept)
    wheel, = kept.glob("*.whl")
    return str(sources), str(wheel)


FRAMEWORKS = ROOT / "build" / "frameworks", ROOT / "tests" / "integration" / "wheel" / "frameworks.txt"
# Without what its trainer needs beyond its checkpoints: datasets, wandb and tensorboard.
TORCHTITAN = ("torchtitan", "torchtitan==0.3.0", "tyro==1.0.17", "docstring-parser==0.18.0", "typeguard==4.6.1", "spmd-types==0.2.3")


def _of_pypi(make, *arguments):
    try:
        return make(*arguments)
    except subprocess.CalledProcessError as failed:
        must(failed)
        raise


def kept_environment(folder, requirements):
    """Returns the Python of an environment that is made once and kept. Skips if PyPI is unreachable, or lacks a package for this Python."""
    return _of_pypi(environment.make, folder, requirements)


def folder_with(python, name, *packages):
    """Returns a folder in that environment with packages that other tests do not see."""
    return _of_pypi(environment.add, python, name, packages)


def importing_torch():
    """Returns (the Python of the frameworks, the path with what writes formats of packages that need torch)."""
    folder = ROOT / "tests" / "integration" / "importing"
    packages = [line for line in (folder / "packages_torch.txt").read_text().splitlines() if not line.startswith("#")]
    python = kept_environment(*FRAMEWORKS)
    return python, f"{folder / 'site'}{os.pathsep}{folder_with(python, 'importing', *packages)}"
