# SPDX-License-Identifier: Apache-2.0
"""The main program of tests that record with BPF: they are skipped where this machine does not let them."""
import json
import os
import subprocess
import sys
import unittest

ANALYZE = os.path.join(os.environ.get("DIESEL_BIN", "build/release/bin"), "diesel-analyze")
PYTHON = "/usr/bin/python3"  # the distribution's: it has torch


def why_not(needs_torch=False):
    """None where a job can be recorded exactly, else the reason."""
    if os.geteuid() != 0:
        return "recording needs root"
    check = subprocess.run([ANALYZE, "check", "--json"], capture_output=True, text=True, check=False)
    found = json.loads(check.stdout) if check.stdout else {}
    if found.get("mode") != "exact":
        return "this machine cannot record: " + "; ".join(
            f"{finding['name']}: {finding['detail']}" for finding in found.get("findings", [])
            if finding["state"] != "ok")
    if needs_torch and subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode:
        return "no torch for " + PYTHON
    return None


def main(needs_torch=False, also=lambda: None):
    """also: what else can rule the tests out, as a reason."""
    reason = why_not(needs_torch) or also()
    if reason:
        print("skipped: " + reason)
        sys.exit(77)
    unittest.main(verbosity=2)
