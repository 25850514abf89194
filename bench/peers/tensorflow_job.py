# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's tf.data as a peer: an environment for it, in build/, and its job."""
import json
import os
import subprocess

from tuning import bed as testbed
import support
from peers.environments import python_of


def tensorflow_python():
    """Returns (path of a Python that has TensorFlow, "") or (None, the reason). Installs tensorflow-cpu from PyPI when it is missing;
    DIESEL_TF_PYTHON names another Python."""
    named = os.environ.get("DIESEL_TF_PYTHON")
    if not named:
        return python_of("tensorflow", ["tensorflow-cpu"], "tensorflow")
    if subprocess.run([named, "-c", "import tensorflow"], capture_output=True, check=False).returncode:
        return None, f"{named} has no tensorflow"
    return named, ""


class TensorflowJob(testbed.Job):
    """Like Job, but runs in its own process, whose imports end before its trace begins."""

    def __init__(self, bed, scenario, groups, python, in_python=False):
        super().__init__(bed, "tfdata", workers=None, transform=scenario.transform, groups=groups)
        self.python = python
        self.what |= {"ram_budget": scenario.limit_bytes, "cpu_budget": os.cpu_count(), "python": in_python}

    def __enter__(self):
        self.prepare()
        # Starts outside of the throttled groups, as the imports must not read at the throttled disk's pace.
        self.process = subprocess.Popen(
            [self.python, str(support.ROOT / "bench/jobs/tfdata.py"), json.dumps(self.what)],
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}, stderr=subprocess.PIPE)
        self.pid = self.process.pid
        return self

    @property
    def alive(self):
        return self.process.poll() is None

    def __exit__(self, *_):
        self.dial(self.passes, 0, stop=1)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
