# SPDX-License-Identifier: Apache-2.0
"""Tests the folder that is carried to a machine with a GPU (bench/gpu): it is made, and runs without network and without this tree. There
is no GPU here: its measurements are simulated, and marked so. Its wheels are made from this build; packaging/wheel makes the real ones."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench" / "gpu"), str(ROOT / "bench")]
import carry  # noqa: E402
import kinds  # noqa: E402
import tables  # noqa: E402
import trace_file  # noqa: E402
import waits  # noqa: E402

BIN = pathlib.Path(os.environ.get("DIESEL_BIN", "build/release/bin"))
LIBRARY = pathlib.Path(os.environ.get("DIESEL_LIB", "build/release/lib")) / "libdiesel.so"
PYTHON = "/usr/bin/python3"  # the distribution's, which has torch


def wheels(folder):
    """Makes wheels like packaging/wheel's, with the parts that are unpacked."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "diesel_tools-0-py3-none-any.whl", "w") as archive:
        for program in ("dieseld", "dieselctl", "diesel-analyze"):
            archive.write(BIN / program, f"diesel_tools-0.data/data/bin/{program}")
    with zipfile.ZipFile(folder / "diesel_loader-0-py3-none-any.whl", "w") as archive:
        for path in (ROOT / "client/python/diesel_loader").rglob("*.py"):
            archive.write(path, path.relative_to(ROOT / "client/python"))
        for path in (LIBRARY, LIBRARY.with_name("_abi.py")):
            archive.write(path, f"diesel_loader/{path.name}")
    return folder


# The import of PyTorch takes seconds. Calls that measure nothing only need to find it.
TORCH = """
import types
__version__, version, cuda = "2.0.0", types.SimpleNamespace(cuda=None), types.SimpleNamespace(is_available=lambda: False)
"""


def light_python(folder):
    """Makes a Python that has the torch above."""
    (folder / "torch.py").write_text(TORCH)
    (folder / "python").write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {PYTHON} "$@"\n')
    (folder / "python").chmod(0o755)
    return folder / "python"


def run(folder, *arguments, name="run"):
    """Runs it like a user who has just copied the folder."""
    return subprocess.run(["unshare", "-n", "env", "-i", "PATH=/usr/bin:/bin", "TMPDIR=/var/tmp", folder / name, *map(str, arguments)], cwd="/",
                          capture_output=True, text=True, check=False, timeout=400)


class Carried(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.top = pathlib.Path(tempfile.mkdtemp(prefix="diesel-gpu-day-"))
        cls.addClassCleanup(shutil.rmtree, cls.top, ignore_errors=True)
        carry.make(cls.top / "made", wheels(cls.top / "wheels"), per_class=1)
        cls.folder = cls.top / "elsewhere"
        shutil.copytree(cls.top / "made", cls.folder)
        shutil.rmtree(cls.top / "made")
        cls.light = light_python(pathlib.Path(tempfile.mkdtemp(dir=cls.top)))

    def setUp(self):
        self.results = pathlib.Path(tempfile.mkdtemp(dir=self.top))

    def run_piece(self, *arguments, results=None, python=PYTHON):
        return run(self.folder, "--short", "--python", python, "--results", results or self.results, *arguments)

    def read(self, name):
        return json.loads((self.results / f"{name}.json").read_text())

    def works(self, *arguments, **more):
        done = self.run_piece(*arguments, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def refuses(self, why, done, status=1):
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertRegex(done.stderr, why)
        self.assertNotIn("Traceback", done.stderr)

    def test_reports_against_ground_truth(self):
        said = self.works("--piece", "waits", "--item", "item", "--item", "ours", "--item", "two-streams")
        self.assertIn("simulated", said)
        piece = self.read("waits")
        self.assertIs(piece["simulated"], True)
        self.assertIs(self.read("machine")["simulated"], True)
        self.assertEqual(piece["items"]["two-streams"]["cannot"], "the stand-in libcuda has only one stream")
        for name in ("item", "ours"):
            self.assertIs(piece["items"][name]["simulated"], True)
            self.assertEqual(set(piece["items"][name]["rows"]), set(waits.ROWS))
        item = piece["items"]["item"]
        if not item["report"]["approximate"]:
            self.assertEqual(round(item["rows"]["launches a step"][0]), 50)
            self.assertIn("standin/libcuda.so.1", item["report"]["gpu"]["library"])
        # Finished items are not repeated; failed ones are.
        said = self.works("--piece", "waits", "--item", "item", "--item", "ours", "--item", "two-streams")
        self.assertIn("2 of 3 are done", said)
        self.assertEqual(self.read("waits")["items"]["item"], item)
        table = run(self.folder, "--results", self.results, "--table").stdout
        self.assertIn("### waits (simulated)", table)
        self.assertIn("| item | ", table)
        self.assertIn("- two-streams: not possible: the stand-in libcuda has only one stream", table)

    def test_training(self):
        self.works("--piece", "resnet-ours", "--resnet-seconds", "1")
        item = self.read("resnet-ours")["items"]["diesel"]
        self.assertIs(item["simulated"], True)
        self.assertGreater(item["images"], 0)

    def test_an_item_that_fails(self):
        (self.folder / "photographs").rename(self.folder / "gone")
        self.addCleanup((self.folder / "gone").rename, self.folder / "photographs")
        (self.folder / "photographs").mkdir()
        self.addCleanup((self.folder / "photographs").rmdir)
        done = self.run_piece("--piece", "resnet-ours", python=self.light)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("diesel: FAILED: FileNotFoundError: there are no photographs in ", done.stdout)
        self.assertIn("there are no photographs", self.read("resnet-ours")["items"]["diesel"]["failed"])

    def test_damaged_results(self):
        (self.results / "waits.json").write_text("{")
        said = self.works("--piece", "waits", "--item", "two-streams", python=self.light)
        self.assertIn("waits.json is damaged: renamed to waits.json.damaged", said)
        self.assertTrue((self.results / "waits.json.damaged").exists())

    def test_interrupted(self):
        script = 'exec unshare -n "$0" --short --python "$1" --results "$2" --piece waits --item two-streams --item item --item event'
        process = subprocess.Popen(["sh", "-c", script, self.folder / "run", PYTHON, self.results], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        end = time.monotonic() + 60
        while "item" not in (json.loads((self.results / "waits.json").read_text())["items"] if (self.results / "waits.json").exists() else {}):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        process.terminate()
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 130, said)
        self.assertEqual(said.strip(), "run: interrupted. Finished items are kept, and the next run continues with the rest")
        self.assertNotIn("event", self.read("waits")["items"])

    def test_wrong_words(self):
        self.refuses("no Python with a working torch .*/bin/true.*: name one with --python", self.run_piece(python="/bin/true"))
        self.refuses("no Python with a working torch .*not found", self.run_piece(python="/no/python"))
        self.refuses("invalid choice: 'wiats'", self.run_piece("--piece", "wiats", python=self.light), status=2)
        self.refuses("no item itme in waits", self.run_piece("--piece", "waits", "--item", "itme", python=self.light))
        self.refuses("--resnet-seconds from 1 to 300", self.run_piece("--resnet-seconds", "4000"), status=2)
        self.refuses("cannot write results to /proc/results .*with --results", self.run_piece(results="/proc/results", python=self.light))
        self.refuses("there are no results in /no/results", run(self.folder, "--table", "--results", "/no/results"))

    def test_another_machine(self):
        self.works("--piece", "waits", "--item", "two-streams", python=self.light)
        machine = self.read("machine") | {"gpu": "another"}
        (self.results / "machine.json").write_text(json.dumps(machine))
        self.refuses("results of another machine .*gpu another, here None.*with --results", self.run_piece(python=self.light))

    def test_a_folder_that_is_there_is_not_written_to(self):
        with self.assertRaisesRegex(carry.Refused, "already exists"):
            carry.make(self.folder)

    def test_wheels_for_one_python_alone(self):
        folder = self.top / "abi"
        folder.mkdir()
        (folder / "diesel_loader-0-cp311-cp311-linux_x86_64.whl").touch()
        with self.assertRaisesRegex(carry.Refused, "py3-none"):
            carry.make(self.top / "half", folder)
        self.assertFalse((self.top / "half").exists())


def event(cat, name, ts, dur, tid=7):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "pid": 7}


class Trace(unittest.TestCase):
    """A trace in Kineto's layout; made by hand, since there is no GPU."""

    EVENTS = [
        event("user_annotation", "next", 0, 1000), event("user_annotation", "step", 1000, 4000),
        event("gpu_user_annotation", "next", 0, 9000, tid=0),
        event("cuda_runtime", "cudaMemcpyAsync", 1000, 30), event("cuda_runtime", "cudaLaunchKernel", 1100, 10),
        event("cuda_runtime", "cudaLaunchKernelExC", 1200, 10), event("cuda_runtime", "cudaStreamSynchronize", 1300, 1700),
        event("cuda_runtime", "cudaStreamSynchronize", 1300, 9000, tid=8),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1010, 100, tid=0), event("kernel", "gemm", 1120, 1800, tid=0),
        event("user_annotation", "next", 5000, 2000), event("user_annotation", "step", 7000, 1000),
        event("cuda_runtime", "cudaMemcpyAsync", 5100, 500), event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 5100, 400, tid=0),
        event("cuda_runtime", "cudaMemcpyAsync", 7000, 600), event("cuda_runtime", "cudaGraphLaunch", 7700, 10),
        {"ph": "i", "name": "no duration", "ts": 0},
    ]

    def read(self, document):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(document, file)
            file.flush()
            return trace_file.read(file.name)

    def test_waits_copies_launches_and_idle_time(self):
        found = self.read({"traceEvents": self.EVENTS})
        self.assertEqual(found, {"wall_s": 0.008, "next_s": 0.003, "wait_s": (1700 + 600) / 1e6, "busy_s": (100 + 1800 + 400) / 1e6,
                                 "idle_in_next_s": (3000 - 400) / 1e6, "launches": 3, "to_device": 1, "to_host": 1})

    def test_without_a_gpu(self):
        self.assertEqual(self.read([e for e in self.EVENTS if e.get("cat") == "user_annotation"]), {"wall_s": 0.008, "next_s": 0.003})


class Tables(unittest.TestCase):
    MACHINE = {"gpu": None, "torch": "2", "python": "3", "cpu": "C", "cores": 2, "memory_gib": 4, "kernel": "6", "distribution": "D", "commit": "c",
               "recording": "exact"}
    SERVED = {"samples": 1000, "seconds": 2, "own_cpu_s": 4}
    ITEMS = {
        "tests": {"OnAGpu": {"ran": 2, "skipped": 0}},
        "waits": {"item": {"rows": {row: [0.1, None, None] for row in waits.ROWS}, "report": {"verdict": "prep-bound"}, "window": 1},
                  "cut": {"rows": {row: [0.1, 0.2, True] for row in waits.ROWS}, "report": {"verdict": "prep-bound"}, "window": 0.5}},
        "handoff": {f"slots, round {k}": {"bytes": 4e9, "seconds": k, "cpu_s": 1, "sum": k} for k in (1, 2, 4)},
        "serving": {f"{way} {n}": {**served, "way": way, "cores": n, "size": 4096}
                    for served in [SERVED] for way, n in (("diesel", 1), ("diesel", 2), ("torch-2", 2), ("torch-0", 2))},
        "decoding": {"diesel": SERVED | {"way": "diesel", "cores": 2}},
        "resnet-ours": {"diesel": {"images": 100, "seconds": 2, "next_s": 1, "cpu_s": 4, "loss_first": 2, "loss_last": 1}},
    }

    def test_every_piece(self):
        documents = {piece: {"simulated": piece != "serving", "how": "by hand", "items": items | {"x": {"cannot": "no x"}, "y": {"failed": "y is wrong"}}}
                     for piece, items in self.ITEMS.items()}
        said = tables.markdown(self.MACHINE, documents)
        for line in ("| OnAGpu | 2 | 0 |", '| diesel_loader, device="cuda" | 2.00 | 0.250 | 3 |', "The ways did not read the same bytes.",
                     "| diesel | 500 (250) | 500 (250) |", "| torch, a worker per core | - | 500 (250) |", "| torch, no workers | - | 500 (250) |",
                     "| diesel | 50 | 50.0 | 25 | 2.00, 1.00 | 2 |", "### decoding (simulated)", "### serving\n", "- x: not possible: no x", "not compared: the report covers 50 % of the job's time |", "- y: failed: y is wrong"):
            self.assertIn(line, said)
        for piece, items in self.ITEMS.items():
            for item in items.values():
                self.assertNotIn("\n", tables.in_words(piece, item))


class Comparison(unittest.TestCase):
    TRUTH = {"wall_s": 10, "steps": 100, "next_s": 3, "wait_s": 4, "wait_cpu_s": 4, "checkpoint_s": 0, "starved_s": 0, "idle_in_next_s": 2,
             "launches": 1000, "to_device": 100, "to_host": 100}
    REPORT = {"wall_s": 10, "steps": 100, "shares": {"fetch_stall": 0.1, "prep_stall": 0.2, "gpu_wait": 0.4, "cpu_starved": 0, "checkpoint_stall": 0},
              "gpu": {"spin_s": 4, "starved_s": 1.5, "copies": 200, "launches": 1000, "launches_known": True}}

    def off(self, name="item", exact=True, gpu=(), **shares):
        report = self.REPORT | {"shares": self.REPORT["shares"] | shares, "gpu": gpu if gpu is None else self.REPORT["gpu"] | dict(gpu)}
        rows = waits.compare(kinds.KINDS[name], self.TRUTH, report, exact)
        return [row for row in waits.ROWS if rows[row][2]]

    def test_what_is_off(self):
        self.assertEqual(self.off(), [])
        self.assertEqual(self.off(prep_stall=0.3), ["data wait"])
        self.assertEqual(self.off(gpu_wait=0.3), ["GPU wait"])
        self.assertEqual(self.off(gpu={"starved_s": 0}), [])  # a lower bound
        self.assertEqual(self.off(gpu={"starved_s": 2.5}), ["GPU starved"])
        self.assertEqual(self.off(gpu={"copies": 100}), ["copies a step"])
        self.assertEqual(self.off(gpu={"launches": 2000}), ["launches a step"])

    def test_sampled_shares(self):
        report = self.REPORT | {"gpu": None, "approximate": True, "share_intervals": {"prep_stall": [0.1, 0.3], "fetch_stall": [0.05, 0.1]},
                                "shares": self.REPORT["shares"] | {"prep_stall": 0.15, "gpu_wait": None}}
        for next_s, wanted in ((1.1, True), (1.3, False), (4.2, False), (4.5, True)):
            self.assertIs(waits.compare(kinds.KINDS["item"], self.TRUTH | {"next_s": next_s}, report, True)["data wait"][2], wanted, next_s)

    def test_what_is_not_judged(self):
        self.assertEqual(self.off(exact=False, gpu={"launches": 2000}), [])
        self.assertEqual(self.off(gpu={"launches": 10, "launches_known": False}), [])
        self.assertEqual(self.off("checkpoint", gpu={"copies": 100}), [])
        self.assertEqual(self.off(gpu=None, gpu_wait=None), [])


if __name__ == "__main__":
    for needed in (BIN / "dieseld", LIBRARY, BIN.parent / "standin/1/libcuda.so.1"):
        if not needed.exists():
            print(f"skipped: {needed} is not built")
            sys.exit(77)
    for what, command in (("torch for " + PYTHON, [PYTHON, "-c", "import torch, numpy, PIL"]), ("namespaces for networks", ["unshare", "-n", "true"])):
        if subprocess.run(command, capture_output=True, check=False).returncode:
            print(f"skipped: no {what}")
            sys.exit(77)
    unittest.main(verbosity=2)
