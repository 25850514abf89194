# SPDX-License-Identifier: Apache-2.0
"""A newcomer's folder of files, without a daemon, and with the programs outside PATH; and the commands in messages."""
import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/integration/dieseld"))
from dieseld_support import CTL  # noqa: E402
from on_demand_support import OnDemand  # noqa: E402

from diesel_loader import on_demand  # noqa: E402

CTL = os.path.abspath(CTL)
BARE = "/usr/bin:/bin"  # without the programs


def commands(text):
    return re.findall("`([^`]*)`", text)


class Newcomer(OnDemand):
    photos_in = "photos"

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.dict(os.environ, PATH=BARE))
        self.enterContext(mock.patch.object(on_demand, "beside_python", lambda name="dieseld": iter([os.path.join(os.path.dirname(CTL), name)])))
        self.photos = pathlib.Path(self.top, self.photos_in)
        (self.photos / "cat").mkdir(parents=True)
        (self.photos / "cat" / "1.txt").write_bytes(b"a picture")

    def run_shell(self, command):
        return subprocess.run(command, shell=True, check=True, capture_output=True, text=True, cwd=self.top)

    def ctl(self, *words, check=0, **more):
        done = subprocess.run([CTL, *map(str, words)], capture_output=True, text=True, check=False, timeout=120, **more)
        self.assertEqual(done.returncode, check, done)
        return done
