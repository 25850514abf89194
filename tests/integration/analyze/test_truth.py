# SPDX-License-Identifier: Apache-2.0
"""Tests diesel-analyze truth on real PyTorch jobs, and the effect of its clock on them."""
import json
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

from common.commands import needs
import forked

needs("torch")

ANALYZE = os.path.join(os.environ.get("DIESEL_BIN", "build/release/bin"), "diesel-analyze")
SHIM = pathlib.Path(ANALYZE).parent.parent / "share/diesel/truth"

# 10 ms of preparation per sample in one worker or none, 5 ms of computing per step, 4 samples per batch
JOB = """
    import os, sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset
    folder, workers, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    class Files(Dataset):
        def __init__(self):
            self.names = sorted(os.listdir(folder))
        def __len__(self):
            return len(self.names)
        def __getitem__(self, index):
            with open(os.path.join(folder, self.names[index]), "rb") as file:
                data = file.read()
            time.sleep(0.01)
            return {"image": torch.frombuffer(bytearray(data), dtype=torch.uint8).float(), "label": index, "name": "x"}
    for epoch in range(epochs):
        for batch in DataLoader(Files(), batch_size=4, shuffle=True, num_workers=workers):
            assert batch["image"].shape == (4, 4096) and batch["image"].dtype == torch.float32
            assert batch["image"].std() > 1, "constant input"
            assert batch["image"].max() <= 255, "changed in place, and handed out so again"
            assert batch["name"] == ["x"] * 4 and len(batch["label"]) == 4
            batch["image"] *= 256
            time.sleep(0.005)
            with open(sys.argv[4], "a") as log:
                log.write(f"{epoch} {batch['label'].tolist()}\\n")
    with open(sys.argv[4], "a") as log:
        log.write("end\\n")
"""

# the same speed, from memory
MEMORY_JOB = """
import time
import torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self):
        return 80
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.ones(64)
for batch in DataLoader(Numbers(), batch_size=4):
    time.sleep(0.005)
"""

# Makes a fork that has imported torch like a Python that starts: it imports the clock, and after it the loader that the clock waits for.
START = """
import importlib, os, runpy, sys
import torch
sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
sys.modules.pop("sitecustomize", None)
import sitecustomize
del sys.modules["torch.utils.data.dataloader"]
torch.utils.data.DataLoader = importlib.import_module("torch.utils.data.dataloader").DataLoader
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def start(words, environment):
    """Returns the status, the output and the errors of a script."""
    job = forked.Script(START, *words, environment=environment, imported="torch")
    out, err = job.communicate()
    return job.returncode, out, err


class Jobs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="diesel-truth-", dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.job, self.log, self.data = self.folder / "job.py", self.folder / "log", self.folder / "data"
        self.job.write_text(textwrap.dedent(JOB))
        self.data.mkdir()
        for i in range(80):
            (self.data / f"{i:03d}.bin").write_bytes(os.urandom(4096))

    def warm(self, *words):
        """Returns the command of a script, for a fork in place of a Python that takes seconds to import torch."""
        return [sys.executable, "-I", "-S", forked.__file__, "run", "torch", "-c", START, *map(str, words)]

    def words(self, workers=1, epochs=1):
        return [str(self.job), str(self.data), str(workers), str(epochs), str(self.log)]

    def command(self, **more):
        return self.warm(*self.words(**more))

    def truth(self, *options, command=None, status=0, **more):
        done = subprocess.run([ANALYZE, "truth", *options, "--", *(command or self.command())],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240, **more)
        self.assertEqual(done.returncode, status, done.stderr)
        self.stderr = done.stderr
        return json.loads(done.stdout) if "--json" in options and not status else done.stdout


class Truth(Jobs):
    def check(self, report, n_steps, rounds=1):
        self.assertEqual(report["schema"], "diesel.truth/1")
        self.assertEqual(report["steps"], n_steps)
        # 4 x 10 ms of preparing and 5 ms of computing per step, by sleeping, so that timing is no problem
        self.assertGreater(report["seconds"]["cached"], n_steps * 0.040)
        self.assertGreater(report["shares"]["prep_stall"], 0.4)
        self.assertAlmostEqual(sum(share or 0 for name, share in report["shares"].items() if name != "wait"), 1, places=4)
        kinds = [run["kind"] for run in report["runs"]]
        self.assertEqual(kinds[:3], ["cached", "cold", "synthetic"])
        self.assertEqual(sorted(kinds), sorted(kinds[:3] * rounds))

    def test_without_workers(self):
        report = self.truth("--json", "--max-steps", "12", command=self.command(workers=0))
        self.check(report, 12)
        # the files of 12 steps, 4 samples each, and nothing else
        self.assertEqual(report["files"], 48)
        self.assertEqual(report["bytes"], 48 * 4096)
        self.assertEqual(report["cached_before_cached"], 1)
        self.assertEqual(report["cached_before_cold"], 0)

    def test_all_runs_read_the_same_files_in_the_same_order(self):
        text = self.truth("--max-steps", "10", command=self.command(workers=0))
        lines = self.log.read_text().splitlines()
        self.assertEqual(len(lines), 40)
        self.assertEqual(lines[:10], lines[10:20])
        self.assertEqual(lines[:10], lines[20:30])
        self.assertNotIn("end", lines)
        self.assertRegex(text.splitlines()[0], r"^-?[0-9.]+ % of the cold run is fetching, ")
        self.assertIn("T_synthetic", text)

    def test_a_job_that_ends_by_itself(self):
        report = self.truth("--json", "--max-steps", "1000", command=self.command(epochs=2))
        self.assertEqual(report["steps"], 40)
        lines = self.log.read_text().splitlines()
        self.assertEqual(lines.count("end"), 4)
        self.assertEqual(sum(line.startswith("1 ") for line in lines), 80)

    def test_a_named_folder_is_read_and_evicted_whole(self):
        report = self.truth("--json", "--max-steps", "6", "--data", str(self.data))
        self.assertEqual(report["files"], 80)
        self.assertEqual(report["cached_before_cold"], 0)

    def test_a_job_without_files(self):
        """No file can be cold: the two runs differ by chance, not by fetching."""
        job = self.folder / "memory.py"
        job.write_text(MEMORY_JOB)
        command = self.warm(job)
        report = self.truth("--json", "--max-steps", "12", command=command)
        self.assertEqual(report["files"], 0)
        self.assertIsNone(report["shares"]["fetch_stall"])
        self.assertIsNone(report["shares"]["prep_stall"])
        self.assertIsNone(report["cached_before_cold"])
        self.assertGreater(report["shares"]["wait"], 0.4)
        self.assertAlmostEqual(report["shares"]["wait"] + report["shares"]["device"], 1, places=4)
        text = self.truth("--max-steps", "6", command=command)
        self.assertRegex(text.splitlines()[0], r"^[0-9.]+ % of the run is loading, [0-9.]+ % device time")
        self.assertNotIn("fetch ", text)
        self.assertIn("read no files", text)

    def test_with_a_worker_and_in_rounds(self):
        report = self.truth("--json", "--max-steps", "12", "--rounds", "2")
        self.check(report, 12, rounds=2)
        self.assertGreaterEqual(report["files"], 48)  # the worker is ahead
        self.assertIn("spread", report)

    def test_without_privilege(self):
        """And with a Python that starts and imports torch, as a job's does."""
        if os.geteuid() != 0:
            self.skipTest("is without privilege already")
        user = pwd.getpwnam("nobody")
        for path in [self.folder, self.data, *self.data.iterdir()]:
            os.chown(path, user.pw_uid, user.pw_gid)
        for path in (self.folder, self.data):
            path.chmod(0o755)
        copy = self.folder / "program"  # other users may have no access to the build folder
        shutil.copytree(SHIM, copy / "share/diesel/truth")
        (copy / "bin").mkdir()
        shutil.copy(ANALYZE, copy / "bin")
        done = subprocess.run([copy / "bin/diesel-analyze", "truth", "--json", "--max-steps", "8", "--",
                               sys.executable, *self.words(workers=0)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=240, user=user.pw_uid, group=user.pw_gid, extra_groups=[], cwd="/",
                              env={**os.environ, "HOME": str(self.folder), "TMPDIR": str(self.folder)})
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.check(report, 8)
        self.assertEqual(report["files"], 32)
        self.assertEqual(report["cached_before_cold"], 0)


class Refusals(Jobs):
    def refuse(self, command, status, text, *options):
        self.truth(*options, command=command, status=status)
        self.assertIn(text, self.stderr)
        self.assertEqual(self.stderr.count("error:"), 1)

    def test_no_loader(self):
        self.refuse(["true"], 3, "does not use PyTorch's DataLoader")

    def test_isolated_python(self):
        self.refuse([sys.executable, "-E", *self.words()], 3, "ignores PYTHONPATH")

    def test_too_few_steps(self):
        self.refuse(self.command(), 3, "only 3 steps", "--max-steps", "3")

    def test_a_failing_command(self):
        self.refuse(["false"], 1, "exit status 1")

    def test_a_killed_command(self):
        self.refuse(["sh", "-c", "kill -9 $$"], 1, "signal 9")

    def test_no_command(self):
        self.refuse(["/nonexistent"], 1, "cannot run /nonexistent")

    def test_usage(self):
        for options in (["--max-steps", "0", "--", "true"], ["--rounds", "11", "--", "true"], ["-p", "1"], []):
            done = subprocess.run([ANALYZE, "truth", *options], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, options)


class Shim(Jobs):
    """Tests that the clock leaves jobs unchanged."""

    def run_with(self, code, warm=False, **environment):
        out, script = self.folder / "clock", self.folder / "script.py"
        out.unlink(missing_ok=True)
        script.write_text(textwrap.dedent(code))
        environment = {**os.environ, "DIESEL_TRUTH_OUT": str(out), "DIESEL_TRUTH_STEPS": "0", **environment,
                       "PYTHONPATH": f"{SHIM}:{self.folder}"}
        if warm:
            status, said, err = start([script], environment)
        else:
            done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=240, env=environment, check=False)
            status, said, err = done.returncode, done.stdout, done.stderr
        self.assertEqual(status, 0, err)
        return said, out.read_text() if out.exists() else ""

    def test_without_its_variables_nothing_changes(self):
        out, _ = self.run_with("""
            import sys
            print(any("Finder" in type(finder).__name__ and finder.__class__.__module__ == "sitecustomize"
                      for finder in sys.meta_path), "torch" in sys.modules)""", DIESEL_TRUTH_OUT="")
        self.assertEqual(out.split(), ["False", "False"])

    def test_the_sitecustomize_behind_it_runs(self):
        (self.folder / "sitecustomize.py").write_text("import builtins\nbuiltins.behind = 1\n")
        out, _ = self.run_with("import builtins; print(builtins.behind)")
        self.assertEqual(out.strip(), "1")

    def test_spawned_and_persistent_workers_and_several_loaders(self):
        script = """
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            if __name__ == "__main__":
                data = TensorDataset(torch.arange(40).float(), torch.arange(40))
                kept = DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True)
                other = DataLoader(data, batch_size=8, num_workers=1, multiprocessing_context="spawn")
                for _ in range(2):
                    assert len(list(kept)) == 10
                print(sum(len(values) for values, labels in other))"""
        for mode in ("learn", "synthetic"):  # to learn is to measure, too
            out, line = self.run_with(script, warm=True, DIESEL_TRUTH_MODE=mode, DIESEL_TRUTH_FILES=str(self.folder / "files"))
            self.assertEqual(out.strip(), "40", mode)
            self.assertIn("steps 25 ", line, mode)
            self.assertEqual(line.count("\n"), 1, mode)

    def test_iterable_datasets_and_empty_ones(self):
        script = """
            import torch
            from torch.utils.data import DataLoader, IterableDataset
            class Stream(IterableDataset):
                def __init__(self, n): self.n = n
                def __iter__(self): return iter(torch.arange(self.n).float())
            print(len(list(DataLoader(Stream(0), batch_size=2))))
            for batch in DataLoader(Stream(40), batch_size=2): pass
            print("end")"""
        out, line = self.run_with(script, warm=True, DIESEL_TRUTH_MODE="clock")
        self.assertEqual(out.split(), ["0", "end"])
        self.assertIn("steps 20 ", line)
        # The length of a stream is unknown, so it continues until the steps are done.
        out, line = self.run_with(script, warm=True, DIESEL_TRUTH_MODE="synthetic", DIESEL_TRUTH_STEPS="25")
        self.assertEqual(out.split(), ["0"])
        self.assertIn("steps 25 ", line)


if __name__ == "__main__":
    unittest.main()
