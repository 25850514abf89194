# SPDX-License-Identifier: Apache-2.0
"""The main program of tests that record with BPF. It skips them where README does not promise that BPF works: without root, without type
information, on older kernels. Elsewhere, a recorder that does not load fails each of them."""
import importlib.util
import json
import os
import re
import subprocess
import sys
import unittest

ANALYZE = os.path.join(os.environ.get("DIESEL_BIN", "build/release/bin"), "diesel-analyze")
OLDEST = (5, 15)  # see README


def must_work(findings):
    """Returns whether only the recorder itself fails, on a kernel that README names."""
    kernel = tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", os.uname().release).groups())
    failed = {finding["name"] for finding in findings if finding["state"] == "failed"}
    return failed == {"recorder"} and os.uname().machine == "x86_64" and kernel >= OLDEST


def why_not(needs_torch=False):
    """Returns None where a job can be recorded exactly, else the reason."""
    if os.geteuid() != 0:
        return "recording needs root"
    check = subprocess.run([ANALYZE, "check", "--json"], capture_output=True, text=True, check=False)
    found = json.loads(check.stdout) if check.stdout else {}
    if found.get("mode") != "exact":
        if must_work(found.get("findings", [])):
            sys.exit("README says that jobs can be recorded on this kernel:\n" + check.stdout)
        return "this machine cannot record: " + "; ".join(
            f"{finding['name']}: {finding['detail']}" for finding in found.get("findings", [])
            if finding["state"] != "ok")
    if needs_torch and importlib.util.find_spec("torch") is None:
        return "no torch for " + sys.executable
    return None


class Apart(unittest.TestLoader):
    """Loads the tests of a file that compare clocks, which have or whose class has the mark compares_clocks, or all others."""

    def __init__(self, compare):
        super().__init__()
        self.compare = compare

    def getTestCaseNames(self, case):
        whole = getattr(case, "compares_clocks", False)
        return [name for name in super().getTestCaseNames(case) if getattr(getattr(case, name), "compares_clocks", whole) == self.compare]


def run_chosen():
    """First argument "clocks" or "others": runs only these tests of the file."""
    chosen = sys.argv.pop(1) if sys.argv[1:] and sys.argv[1] in ("clocks", "others") else None
    unittest.main(verbosity=2, testLoader=Apart(chosen == "clocks") if chosen else unittest.defaultTestLoader)


def main(needs_torch=False, also=lambda: None):
    """also: returns another reason to skip the tests."""
    reason = why_not(needs_torch) or also()
    if reason:
        print("skipped: " + reason)
        sys.exit(77)
    run_chosen()
