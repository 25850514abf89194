# SPDX-License-Identifier: Apache-2.0
"""An ordinary training job, one of many kinds, with a clock of its own (clock.py), which does not use diesel-analyze.

usage: run.py JOB FOLDER CLOCK [SECONDS]     run it, and write the clock's figures as JSON to CLOCK
       run.py JOB FOLDER --prepare           make its data
"""
import importlib
import os
import pathlib
import sys

from clock import Clock

JOBS = {  # name: module, function, function that makes its data
    "trainer": ("frameworks", "trainer", None),
    "plain": ("loops", "plain", None),
    "arrow": ("loops", "arrow", "arrow_prepare"),
    "spawn": ("loops", "spawn", None),
    "renewed": ("loops", "renewed", None),
    "compile": ("loops", "compiled", None),
    "validation": ("loops", "validation", None),
    "inference": ("loops", "inference", None),
    "numpy": ("without", "numpy_loop", "prepare"),
    "sklearn": ("without", "sklearn_loop", None),
    "jax": ("without", "jax_loop", "prepare"),
    "lightning-0": ("frameworks", "lightning_0", None),
    "lightning-2": ("frameworks", "lightning_2", None),
    "accelerate": ("frameworks", "accelerate", None),
    "safetensors": ("loops", "safetensors", None),
    "save-cloned": ("loops", "save_cloned", None),
    "dcp-thread": ("loops", "dcp_thread", None),
    "dcp-process": ("loops", "dcp_process", None),
    "save": ("loops", "save", None),
    "diesel-0": ("served", "none", "prepare"),
    "diesel-auto": ("served", "auto", "prepare"),
    "diesel-ddp": ("served", "ddp", "prepare"),
    "device": ("loops", "device", None),
    "fetch": ("loops", "fetch", None),
}
SECONDS = 12.0


def main():
    name, folder, clock_path, *seconds = sys.argv[1:]
    module, function, prepare = JOBS[name]
    module, folder = importlib.import_module(module), pathlib.Path(folder)
    if clock_path == "--prepare":
        if prepare:
            getattr(module, prepare)(folder)
        return
    clock = Clock(float(seconds[0]) if seconds else SECONDS)
    getattr(module, function)(clock, folder)
    local_rank = os.environ.get("LOCAL_RANK", "0")  # set for the ranks that Lightning starts
    clock.write(clock_path if local_rank == "0" else f"{clock_path}.{local_rank}")


if __name__ == "__main__":
    main()
