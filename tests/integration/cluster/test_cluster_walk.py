# SPDX-License-Identifier: Apache-2.0
"""docs/explanation/cluster.md from an empty machine: its own commands, but for the ports, and that the job has what it promises."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from nodes import had_no_answer, servers, support

try:
    import torch  # noqa: F401
except ImportError:
    print("skipped: needs torch")
    sys.exit(77)

TEXT = (pathlib.Path(__file__).resolve().parents[3] / "docs/explanation/cluster.md").read_text()
PORTS = ("6390", "7701", "7702", "29501")
N_SAMPLES, N_EPOCHS = 96, 3
# That of PyTorch 1 does not run with Python 3.11, where the flags of an Enum are without that of value 0.
TORCHRUN = """
from torch.distributed import run
from torch.distributed.elastic.multiprocessing import Std
Std.from_str = classmethod(lambda cls, text: cls(int(text)))
run.main()
"""


def block(language, having):
    """The one block of code in this language that has this text."""
    found, = [text for text in re.findall(rf"```{language}\n(.*?)```", TEXT, re.S) if having in text]
    return found


class Walk(unittest.TestCase):
    def setUp(self):
        support.require(os.path.join(support.BIN, "dieseld"))
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.ports = {port: str(servers.free_port()) for port in PORTS}
        self.env = {**os.environ, "PATH": f"{self.folder}:{support.BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        for name in ("TORCHELASTIC_RUN_ID", "LOCAL_WORLD_SIZE", "DIESEL_SOCKET"):
            self.env.pop(name, None)
        (self.folder / "torchrun").write_text(f"#!{sys.executable}\n{TORCHRUN}")
        (self.folder / "torchrun").chmod(0o755)
        self.running = []
        self.addCleanup(self.end)

    def end(self):
        for process in reversed(self.running):
            process.terminate()
            process.wait(timeout=60)
        subprocess.run(["redis-cli", "-p", self.ports["6390"], "shutdown", "nosave"], capture_output=True, check=False)

    def command(self, line):
        for port, ours in self.ports.items():
            line = re.sub(rf"\b{port}\b", ours, line)
        return line

    def run_block(self, having, **more):
        """Its commands; those that end in & go on."""
        for line in block("sh", having).strip().splitlines():
            line = self.command(line)
            if line.endswith("&"):
                self.running.append(subprocess.Popen(["sh", "-c", "exec env " + line[:-1]], cwd=self.folder, env=self.env, **more))
            else:
                subprocess.run(line, shell=True, cwd=self.folder, env=self.env, check=True, stdout=subprocess.DEVNULL)

    def status(self, node):
        return json.loads(subprocess.run([support.CTL, "status", "--json", "--socket", str(self.folder / f"node{node}.sock")], check=True,
                                         capture_output=True, text=True).stdout)

    def test_the_walk(self):
        for i in range(N_SAMPLES):
            (self.folder / "photos" / f"class{i % 3}").mkdir(parents=True, exist_ok=True)
            (self.folder / "photos" / f"class{i % 3}" / f"{i}.bin").write_bytes(os.urandom(400000))
        self.run_block("redis-server")
        self.run_block("openssl rand")
        (self.folder / "cluster.key").chmod(0o600)
        self.run_block("dieselctl pack")
        self.run_block("dieseld --socket", stderr=subprocess.DEVNULL)
        (self.folder / "train.py").write_text(block("python", "DataLoader"))
        n_daemons = len(self.running)
        for node in (1, 2):
            subprocess.run(["sh", "-c", f"for i in $(seq 600); do test -S node{node}.sock && exit; sleep 0.1; done; exit 1"], cwd=self.folder,
                           check=True)
        self.run_block("torchrun --nnodes", stdout=subprocess.PIPE, text=True)
        said = ""
        for job in self.running[n_daemons:]:
            out, _ = job.communicate(timeout=240)
            self.assertEqual(job.returncode, 0, out)
            said += out
        self.assertEqual(len(re.findall(r"rank \d, epoch \d: \d+ samples", said)), 2 * N_EPOCHS, said)
        for epoch in range(N_EPOCHS):
            self.assertEqual(sum(int(n) for n in re.findall(rf"epoch {epoch}: (\d+) samples", said)), N_SAMPLES, said)
        statuses = [self.status(node) for node in (1, 2)]
        if not any(had_no_answer(s) for s in statuses):
            self.assertEqual(sum(s["cache"]["reads"] for s in statuses), len(support.chunk_files(self.folder / "photos.diesel")), statuses)
        # The chunk that lies in both lanes comes from the other node in the first epoch; nothing does in the others.
        self.assertLessEqual(sum(s["cluster"]["chunks_in"] for s in statuses), 1, statuses)
        self.run_block("dieselctl cluster status")


if __name__ == "__main__":
    unittest.main(verbosity=2)
