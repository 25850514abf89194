# SPDX-License-Identifier: Apache-2.0
"""Tests a newcomer's first minute: both wheels in one virtual environment, used by its path, without privilege.

packaging/wheel/tools.sh makes the wheel of the programs as for a release: on Debian 12, with a compiler from PyPI."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest
import zipfile

import dieseld_support
import hardening
from dieseld_support import SCRATCH
from wheel_support import ROOT, VERSION, build, must, new_environment, pip, run, skip

ALICE = 12345
PROGRAMS = ("diesel-analyze", "diesel-top", "dieselctl", "dieseld")
IS_ROOT = os.geteuid() == 0

# Stock PyTorch, where a batch takes the worker twenty times as long as the step.
STOCK = """
import os, sys, time, torch
class Files(torch.utils.data.Dataset):
    def __init__(self, top):
        self.paths = sorted(os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names)
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, i):
        with open(self.paths[i], "rb") as file:
            data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            pass
        return data[:1000].float(), i % 7
torch.set_num_threads(1)
model = torch.nn.Linear(1000, 7)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(2):
    for data, labels in torch.utils.data.DataLoader(Files(sys.argv[1]), 8, shuffle=True, num_workers=1):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data), labels).backward()
        optimizer.step()
"""
SERVED = """
import os, sys, diesel_loader, diesel_loader.torch
loader = diesel_loader.torch.DataLoader(sys.argv[1], batch_size=8, shuffle=True, seed=1)
n = sum(len(labels) for _, labels in loader)
print(n, loader.dataset.socket, diesel_loader.status(loader.dataset.socket)["pid"])
"""


def build_tools():
    folder = SCRATCH + "/tools-dist"
    done = run(ROOT / "packaging" / "wheel" / "tools.sh", folder, cwd=ROOT)
    if "only on Debian 12" in done.stderr:
        skip(done.stderr.strip())
    must(done)
    return done.stdout.strip()


class Both(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.environment = pathlib.Path(SCRATCH) / "venv"
        cls.bin = cls.environment / "bin"
        new_environment(cls.environment)
        cls.tools = build_tools()
        cls.before = cls.installed()
        cls.wheels = [build()[1], cls.tools]
        cls.pip("install", "--no-index", *cls.wheels)
        cls.source = dieseld_support.make_source("first", 200, lambda rng: rng.randint(2000, 20000))
        cls.home = pathlib.Path(SCRATCH) / "home"
        cls.home.mkdir(mode=0o700)
        if IS_ROOT:
            os.chown(cls.home, ALICE, ALICE)

    @classmethod
    def installed(cls):
        """Returns the installed files: pip leaves the folders share/diesel and share/man behind."""
        return sorted(str(path) for path in cls.environment.rglob("*") if not path.is_dir())

    @classmethod
    def pip(cls, *arguments):
        done = pip(cls.bin / "python", "--quiet", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    def alone(self, *command, path="/usr/bin:/bin"):
        """Runs the command as a user without privilege, from a login without an activated environment."""
        drop = ["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
                "--no-new-privs"] if IS_ROOT else []
        return subprocess.run([*drop, "env", "-i", f"PATH={path}", f"HOME={self.home}", f"XDG_RUNTIME_DIR={self.home}",
                               *map(str, command)], cwd=self.home, capture_output=True, text=True, timeout=200, check=False)

    def works(self, *command, **more):
        done = self.alone(*command, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_programs_by_their_path(self):
        for program in PROGRAMS:
            self.assertEqual(self.works(self.bin / program, "--version"), f"{program} {VERSION}\n")

    def test_man_pages(self):
        pages = {path.name for path in (ROOT / "docs" / "man").iterdir()}
        self.assertEqual({path.name for path in (self.environment / "share" / "man").rglob("*.*")}, pages)

    def test_licences(self):
        wanted, texts = {"Apache-2.0", "GPL-2.0-only"}, set()
        for line in (ROOT / "packaging" / "wheel" / "linked.txt").read_text().splitlines():
            if not line.startswith("#"):
                name, *licences = line.split()
                wanted.update(licences)
                texts.add(f"licenses/{name}.txt")
        with zipfile.ZipFile(self.tools) as archive:
            top = f"diesel_tools-{VERSION}.dist-info/"
            metadata = archive.read(top + "METADATA").decode()
            self.assertEqual([text for text in sorted(texts) if not archive.read(f"{top}licenses/{text}").strip()], [])
        expression, = re.findall(r"^License-Expression: (.*)$", metadata, re.M)
        self.assertEqual(expression.split(" AND "), sorted(wanted))
        self.assertLessEqual(texts, set(re.findall(r"^License-File: (.*)$", metadata, re.M)))

    def test_programs_and_library_are_hardened(self):
        seen = set()
        for wheel in self.wheels:
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    data = archive.read(name)
                    if hardening.is_elf(data):
                        seen.add(os.path.basename(name))
                        self.assertEqual(hardening.problems(data), [], name)
        self.assertEqual(seen, {*PROGRAMS, "libdiesel.so"})

    def test_a_verdict_on_ones_own_job(self):
        (self.home / "train.py").write_text(STOCK)
        command = ["--", self.bin / "python", "train.py", self.source]
        done = self.alone(self.bin / "diesel-analyze", "--format", "json", *command)
        self.assertEqual(json.loads(done.stderr[done.stderr.index("\n{"):])["verdict"], "prep-bound", done.stderr)
        # With the environment activated, names suffice.
        done = self.alone("bash", "-c", f". {self.bin}/activate && diesel-analyze -- python train.py {self.source}")
        self.assertRegex(done.stderr, r"(?m)^prep-bound: ")
        self.assertIn(f"but {self.bin}/python3 exists. Give this path",
                      self.alone(self.bin / "diesel-analyze", "--", "python3", path="/nowhere").stderr)

    def test_the_remedy(self):
        packed = self.home / "first.diesel"
        self.assertIn("packed 200 files", self.works(self.bin / "dieselctl", "pack", self.source, packed))
        self.assertIn("sound: ", self.works(self.bin / "dieselctl", "verify", packed))
        n, socket, pid = self.works(self.bin / "python", "-c", SERVED, packed).split()
        self.addCleanup(self.end_daemon, int(pid))
        self.assertEqual((n, socket), ("200", f"{self.home}/diesel/dieseld-{VERSION}.sock"))
        if IS_ROOT:  # the process is not dumpable, so its own user cannot see this
            self.assertEqual(os.readlink(f"/proc/{pid}/exe"), str(self.bin / "dieseld"))
        said = self.works(self.bin / "dieselctl", "status")  # dieselctl looks where the loader does
        self.assertIn(f"pid {pid}", said)
        self.assertIn(str(packed), said)
        self.assertIn("diesel-top", self.works(self.bin / "diesel-top", "-b", "-n", "1"))

    def end_daemon(self, pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            while True:
                os.kill(pid, 0)
                time.sleep(0.01)

    def test_uninstalled_they_leave_nothing(self):
        self.pip("uninstall", "--yes", "diesel-loader", "diesel-tools")
        self.addCleanup(self.pip, "install", "--no-index", *self.wheels)
        self.assertEqual(self.installed(), self.before)


if __name__ == "__main__":
    dieseld_support.require(dieseld_support.CTL)
    unittest.main(verbosity=2)
