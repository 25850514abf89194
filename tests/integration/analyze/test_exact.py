# SPDX-License-Identifier: Apache-2.0
"""Tests that record must fail instead of being skipped where the recorder has to load and does not."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

TEST = "import exact; exact.main()"


@unittest.skipIf(os.geteuid() != 0 or os.uname().machine != "x86_64", "without root there is nothing to record")
class Exact(unittest.TestCase):
    def status(self, *failed):
        """Returns the exit status of a test whose diesel-analyze reports that these findings failed."""
        findings = [{"name": name, "state": "failed" if name in failed else "ok", "detail": "so it is"}
                    for name in ("btf", "privilege", "recorder", "lockdown")]
        with tempfile.TemporaryDirectory(prefix="diesel-exact-") as folder:
            program = os.path.join(folder, "diesel-analyze")
            with open(program, "w") as file:
                file.write("#!/bin/sh\ncat <<'END'\n" + json.dumps({"mode": "sampled", "findings": findings}) + "\nEND\n")
            os.chmod(program, 0o755)
            done = subprocess.run([sys.executable, "-c", TEST], env={**os.environ, "DIESEL_BIN": folder}, capture_output=True,
                                  text=True, check=False)
        return done.returncode

    def test_a_recorder_that_does_not_load_is_a_failure(self):
        self.assertEqual(self.status("recorder"), 1)

    def test_where_it_cannot_load_tests_are_skipped(self):
        for reason in ("btf", "privilege", "lockdown"):
            self.assertEqual(self.status(reason, "recorder"), 77, reason)


if __name__ == "__main__":
    unittest.main(verbosity=2)
