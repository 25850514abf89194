# SPDX-License-Identifier: Apache-2.0
"""Runs processes that print their measurements as JSON."""
import contextlib
import json
import os
import signal
import subprocess
import tempfile


class Failed(Exception):
    """A failed process: how it ended, and the last line that it wrote to standard error."""


def run(argv, timeout_s=600, **environment):
    """Returns the JSON of the last line that the process printed. Raises Failed."""
    # No pipes: a failed run may leave processes behind that hold them open.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        process = subprocess.Popen(list(map(str, argv)), stdout=out, stderr=error, start_new_session=True, env=os.environ | environment)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = f"no end within {timeout_s} s"
        finally:
            with contextlib.suppress(ProcessLookupError):  # no process is left
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        out.seek(0)
        error.seek(0)
        if status:
            raise Failed(f"{status}: {(error.read().strip().splitlines() or ['?'])[-1]}")
        return json.loads(out.read().strip().splitlines()[-1])
