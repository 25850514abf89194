# SPDX-License-Identifier: Apache-2.0
"""Pythons with stock packages from PyPI, for bench_stock.py and bench_handoff.py: named ones, or an environment that is made in build/."""
import json
import os
import subprocess
import sys

import support
from peers.environments import python_of

PACKAGES = ("torch", "transformers", "accelerate", "datasets", "lightning", "scikit-learn", "jax", "spdl", "orbax-checkpoint")
LOOK = """
import importlib.metadata, importlib.util, json, sys
names = {"sklearn": "scikit-learn", "orbax": "orbax-checkpoint"}
found = {n: importlib.metadata.version(names.get(n, n)) for n in sys.argv[1:] if importlib.util.find_spec(n)}
print(json.dumps({"python": "%d.%d" % sys.version_info[:2], "found": found}))
"""
MODULES = ("torch", "safetensors", "transformers", "accelerate", "datasets", "lightning", "sklearn", "jax", "numpy", "spdl", "orbax")


class Pythons:
    def __init__(self, named):
        named = named or [path for path in os.environ.get("DIESEL_STOCK_PYTHON", "").split(":") if path]
        self.known = [(path, look(path)) for path in named or [made()]]

    def for_job(self, needs):
        """Returns (path, versions in words) of the first Python that has all these modules."""
        for path, known in self.known:
            if all(module in known["found"] for module in needs.split()):
                main = "torch" if "torch" in known["found"] else needs.split()[0]
                others = [f"{module} {known['found'][module]}" for module in needs.split() if module != main]
                return path, ", ".join([f"Python {known['python']}", f"{main} {known['found'][main]}", *others])
        sys.exit(f"none of these Pythons, {', '.join(path for path, _ in self.known)}, has all of {needs}")


def look(path):
    try:
        done = subprocess.run([path, "-c", LOOK, *MODULES], capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit(f"{path} does not run: {error.strerror}")
    if done.returncode:
        sys.exit(f"{path} does not run: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return json.loads(done.stdout)


def made():
    """Makes an environment with the newest packages, and returns its Python."""
    python, why = python_of("stock", PACKAGES, "torch")
    if why:
        support.skip(f"{', '.join(PACKAGES)}: {why}. Set DIESEL_STOCK_PYTHON to a Python that has them")
    return python
