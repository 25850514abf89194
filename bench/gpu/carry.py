# SPDX-License-Identifier: Apache-2.0
"""Makes the folder that is carried to a machine with a GPU: wheels, scripts and tests at their places in the tree, the stand-in
libcuda, photographs, and `run`."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import images
import support

MOST_BYTES = 64 << 20
SCRIPTS = ("bench/support.py", "bench/serving.py", "bench/jobs/apart.py", "bench/jobs/usage.py", "bench/jobs/raw.py", "bench/jobs/raw_peers.py",
           "bench/jobs/decode.py", "bench/jobs/decode_peers.py", "tests/integration/loader/test_device.py",
           "tests/integration/loader/workers_support.py", "tests/integration/loader/torch_support.py",
           "tests/integration/loader/standin_cuda.py", "LICENSE")
NOT_CARRIED = ("bench_gpu.py", "carry.py")
RUN = """#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
here=$(cd "$(dirname "$0")" && pwd)
for python in python3 python /usr/bin/python3 /opt/conda/bin/python; do
	command -v "$python" >/dev/null 2>&1 && exec "$python" "$here/bench/gpu/day.py" "$@"
done
echo "run: no Python was found; start it by hand: PYTHON $here/bench/gpu/day.py" >&2
exit 1
"""


class Refused(Exception):
    pass


def make(folder, wheels=None, per_class=16):
    """Makes `folder`, which must be missing or empty. wheels: a folder with both wheels; None: builds them. Returns the folder's
    bytes."""
    folder = pathlib.Path(folder).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(f"{folder} already exists. Name a new or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return fill(folder, wheels, per_class)
    except BaseException:  # a half-made folder would block the next try
        shutil.rmtree(folder, ignore_errors=True)
        raise


def fill(folder, wheels, per_class):
    take_wheels(folder / "wheels", wheels)
    for path in (*SCRIPTS, *sorted(str(p.relative_to(support.ROOT)) for p in (support.ROOT / "bench/gpu").glob("*.py") if p.name not in NOT_CARRIED)):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(support.ROOT / path, target)
    build = pathlib.Path(support.program("dieseld")).parent.parent
    (folder / "standin").mkdir()
    shutil.copy(build / "standin/1/libcuda.so.1", folder / "standin")
    images.make(folder / "photographs", per_class)
    (folder / "commit").write_text(support.commit() + "\n")
    (folder / "run").write_text(RUN)
    (folder / "run").chmod(0o755)
    n_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if n_bytes > MOST_BYTES:
        raise Refused(f"{folder} has {n_bytes >> 20} MiB, more than {MOST_BYTES >> 20}")
    return n_bytes


def take_wheels(target, wheels):
    with tempfile.TemporaryDirectory() as made:
        if wheels is None:
            for what in ("loader", "tools"):
                done = subprocess.run([support.ROOT / f"packaging/wheel/{what}.sh", made], stdout=subprocess.DEVNULL, check=False)
                if done.returncode:
                    raise Refused(f"cannot build the wheel of the {what}. If you have both wheels, name their folder: --wheels FOLDER")
        target.mkdir()
        for name in ("diesel_loader", "diesel_tools"):
            found = sorted(pathlib.Path(wheels or made).glob(f"{name}-*.whl"))
            if len(found) != 1 or "-py3-none-" not in found[0].name:
                raise Refused(f"{wheels or made} must contain exactly one wheel {name}-*-py3-none-*.whl, which runs on any Python")
            shutil.copy(found[0], target)
