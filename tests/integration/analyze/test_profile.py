# SPDX-License-Identifier: Apache-2.0
"""Tests the profile of preparation on jobs whose answer is known."""
import glob
import importlib.util
import json
import os
import shutil
import sqlite3
import struct
import subprocess
import tempfile
import unittest
from collections import Counter

import dieseld_support
import recording_file as s
import exact
import shapes_support

BIN = os.environ.get("DIESEL_BIN", "build/release/bin")
ANALYZE = os.path.join(BIN, "diesel-analyze")
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "profile_job.py")
PYTHON = "/usr/bin/python3"
NATIVE, INTERPRETER, PYTHON_FRAME = range(3)

BURN = """
import sys, time
def burn(n):
    total = 0
    for i in range(n):
        total += i * i
    return total
def outer(end):
    while time.process_time() < end:
        burn(100000)
outer(time.process_time() + float(sys.argv[1]))
"""

SHORT_LIVES = """
import os, time
def short_life(end):
    while time.process_time() < end:
        sum(range(1000))
def parent():
    for _ in range(30):
        if os.fork() == 0:
            short_life(time.process_time() + 0.04)
            os._exit(0)
        os.wait()
short_life(time.process_time() + 0.5)
parent()
"""

SPEND = """
static volatile double sink;
#define SPEND(name) void name(int n) { double x = 0; for (int i = 0; i < n * 1000; i++) { x += i * 0.5; sink = x; } }
SPEND(spend_three)
SPEND(spend_one)
"""

STRIPPED = """
int main(void) { volatile double x = 0; for (long i = 0; i < 400000000; i++) x += i * 0.5; return x < 0; }
"""


def run(*args, **kwargs):
    return subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=200, **kwargs)


class Profile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="diesel-profile-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.path = os.path.join(self.folder, "s.db")

    def record(self, *command, options=()):
        done = run(ANALYZE, "record", "-o", self.path, *options, "--", *command)
        self.assertEqual(done.returncode, 0, done.stderr)

    def record_job(self, *words, options=()):
        """Records a job that has imported torch."""
        os.environ["DIESEL_PROFILE_FOLDER"] = self.folder
        shapes_support.recorded(self, self.path, JOB, *words, options=options)

    def compile(self, name, source, *flags):
        compiler = shutil.which("cc")
        if not compiler:
            self.skipTest("no C compiler")
        path = os.path.join(self.folder, name)
        done = run(compiler, "-O2", "-x", "c", "-", "-o", path, *flags, input=source)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def whole_report(self):
        done = run(ANALYZE, "report", self.path, "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def report(self):
        profile = self.whole_report()["profile"]
        self.assertIsNotNone(profile)
        return profile

    def actions(self, report, words):
        return [action for action in report["actions"] if words in action["text"]]

    def notes(self, kind):
        with sqlite3.connect(self.path) as db:
            rows = dict(db.execute("SELECT key, value FROM notes WHERE kind=?", (kind,)))
        db.close()
        return rows

    def frames(self):
        return {key: (value[0], *(text.decode() for text in value[1:].split(b"\0")[:2]))
                for key, value in self.notes("frame").items()}

    def stacks(self):
        """Returns (tgid, C frames, Python frames), innermost first, of each sample."""
        frames = self.frames()
        stacks = {key: [frames[k] for k in struct.unpack("<%dq" % (len(value) // 8), value)]
                  for key, value in self.notes("stack").items()}
        return [(e.tgid, stacks.get(e.native, []), stacks.get(e.python, []))
                for e in s.Recording(self.path).of(s.STACK)]


class RealJobs(Profile):
    def shares(self, items):
        total = self.profile["samples"]
        return {item["name"]: item["samples"] / total for item in items}

    def check_decode(self):
        self.profile = self.report()
        self.assertGreater(self.profile["samples"], 40)
        libraries = self.shares(self.profile["libraries"])
        self.assertGreater(libraries.get("libjpeg", 0), 0.08, libraries)
        self.assertGreater(libraries.get("_imaging", 0), 0.25, libraries)
        callers = {item["name"]: item.get("caller", "") for item in self.profile["libraries"]}
        self.assertIn("resize", callers["_imaging"])
        self.assertIn("ImageFile.py", callers["libjpeg"])
        mine = sum(stack["samples"] for stack in self.profile["stacks"]
                   if "profile_job.py:Decode.decode_and_shrink" in stack["frames"].split(";"))
        self.assertGreater(mine / self.profile["samples"], 0.6)
        self.check_native(self.whole_report())

    def check_native(self, report):
        """Checks that decoding and resizing are most of the preparation, and that dieseld could do both."""
        images, part = report["profile"]["images"], report["predictions"]["native"]["part"]
        self.assertGreater(images["decode"], 20)
        self.assertGreater(images["transform"], 20)
        self.assertEqual(images["other_transforms"], 0)
        self.assertAlmostEqual(part["value"], (images["decode"] + images["transform"]) / report["profile"]["samples"])
        self.assertTrue(0.6 < part["value"] <= part["high"] <= 1 and 0 < part["low"] < part["value"], part)
        speedup = report["predictions"]["native"]["speedup"]
        self.assertTrue(speedup["low"] < speedup["value"] < speedup["high"] and speedup["value"] > 1, speedup)  # others may use cores, too
        action, = self.actions(report, "Decode in dieseld (native)")
        self.assertIn("dieselctl pack", action["text"])
        self.assertIn(action["confidence"], ("low", "medium"))
        done = run(ANALYZE, "what-if", self.path, "--native", "--json")
        answer = json.loads(done.stdout)
        self.assertIs(answer["question"]["native"], True)
        self.assertAlmostEqual(answer["answer"]["speedup"]["value"], speedup["value"], places=6)
        self.assertLess(answer["answer"]["shares"]["prep_stall"], answer["answer"]["recorded_shares"]["prep_stall"])
        forms = json.loads(run(ANALYZE, "what-if", self.path, "--decoded-cache", "80%", "--json").stdout)
        self.assertEqual((forms["question"]["native"], forms["question"]["decoded_ratio"]), (True, 0.8))
        for end in ("low", "value", "high"):
            self.assertGreaterEqual(forms["answer"]["speedup"][end], speedup[end])
        self.assertIn("images decoded by dieseld, 80 % of them from decoded copies:\n", run(ANALYZE, "what-if", self.path, "--decoded-cache", "0.8").stdout)

    def test_jpeg_decoding_in_workers(self):
        """The recorder starts the job's Python. The text says the same."""
        self.record("env", f"DIESEL_PROFILE_FOLDER={self.folder}", PYTHON, JOB, "decode", 2, 30)
        self.check_decode()
        done = run(ANALYZE, "report", self.path)
        self.assertIn("CPU time of preparing", done.stdout)
        self.assertIn("_imaging", done.stdout)

    def test_jpeg_decoding_in_the_trainer(self):
        self.record_job("decode", 0, 30)
        self.check_decode()

    def test_numpy(self):
        self.record_job("matrix", 1, 40)
        self.profile = self.report()
        by = Counter()
        for stack in self.profile["stacks"]:
            frames = stack["frames"].split(";")
            if any(frame.endswith(":Matrix.many_cosines") for frame in frames):
                by["numpy" if frames[-1].split(":")[0] in ("_multiarray_umath", "libm", "libmvec") else "other"] += (
                    stack["samples"])
        self.assertGreater(by["numpy"], self.profile["samples"] * 0.6, by)
        report = self.whole_report()
        self.assertEqual(report["verdict"], "prep-bound")
        self.assertEqual(report["profile"]["images"], {"decode": 0, "transform": 0, "other_transforms": 0})
        self.assertEqual(self.actions(report, "native"), [])
        done = run(ANALYZE, "what-if", self.path, "--native")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        if not report["predictions"]:  # others had its cores, and the tool rightly predicts nothing
            self.assertIn(": no prediction: ", done.stderr)
            return
        self.assertIsNone(report["predictions"]["native"])
        self.assertRegex(done.stderr, "--native: the recording's stack samples show almost no decoding of JPEG, PNG or WebP images")
        self.assertRegex(run(ANALYZE, "what-if", self.path, "--decoded-cache", "1").stderr, "--decoded-cache: the recording's stack samples show almost no decoding")

    def test_three_parts_to_one(self):
        library = self.compile("spend.so", SPEND, "-shared", "-fPIC")
        self.record_job("ratio", 1, 120, library, options=["--profile-hz", "499"])
        self.profile = self.report()
        spent = {item["name"]: item["samples"] for item in self.profile["functions"]
                 if item["library"] == "spend"}
        self.assertEqual(set(spent), {"spend_three", "spend_one"})
        n = sum(spent.values())
        self.assertGreater(n, 100)
        # Samples are random: within four standard deviations of the truth.
        self.assertAlmostEqual(spent["spend_three"] / n, 0.75, delta=4 * (0.75 * 0.25 / n) ** 0.5, msg=str(spent))


class Served(Profile):
    """Jobs with dieseld, which decodes the images, or leaves that to Python."""

    def setUp(self):
        super().setUp()
        if importlib.util.find_spec("torchvision") is None:
            self.skipTest("no torchvision")
        source = os.path.join(self.folder, "photographs")
        os.mkdir(source)
        os.chmod(self.folder, 0o755)
        job = shapes_support.forked(self, JOB, "photographs", 0, 0, source)
        job.go()
        _, err = job.communicate()
        self.assertEqual(job.returncode, 0, err)
        self.dataset = os.path.join(self.folder, "photographs.diesel")
        done = run(os.path.join(BIN, "dieselctl"), "pack", source, self.dataset)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.daemon = dieseld_support.Daemon()
        self.addCleanup(self.daemon.log.close)
        self.addCleanup(self.daemon.stop)

    def serve(self, n_workers, native):
        os.environ["DIESEL_SOCKET"] = self.daemon.socket
        self.record_job("served", n_workers, 40, self.dataset, native)
        return self.whole_report()

    def test_images(self):
        report = self.serve(2, "python")
        self.assertEqual(report["loader"], "diesel")
        action, = self.actions(report, "native")
        self.assertIn("decode=Decode(native=False) or a transform that dieseld does not run", action["text"])
        self.assertEqual(action["confidence"], "low")
        # dieseld decodes each sample, so the report does not advise that, and the trainer prepares nothing itself.
        report = self.serve(0, "native")
        self.assertEqual(report["loader"], "diesel")
        self.assertEqual(self.actions(report, "native"), [])
        self.assertEqual(self.actions(report, "num_workers"), [])


class Stacks(Profile):
    def burn(self, python):
        script = os.path.join(self.folder, "burn.py")
        with open(script, "w") as file:
            file.write(BURN)
        self.record(python, script, 0.6)

    def check_burn(self):
        stacks = [python for _, _, python in self.stacks() if python]
        self.assertGreater(len(stacks), 10)
        names = [[function for _, file, function in python if file == "burn.py"] for python in stacks]
        inside = [n for n in names if n[:3] == ["burn", "outer", "<module>"]]
        self.assertGreater(len(inside), len(stacks) * 0.5, names)

    def test_python_versions(self):
        found = {"3.x (%s)" % PYTHON: PYTHON}
        for path in glob.glob("/usr/bin/python3.*[0-9]") + glob.glob(os.path.expanduser(
                "~/.pyenv/versions/*/bin/python3.*[0-9]")):
            minor = path.rpartition("python3.")[2]
            if minor.isdigit() and 8 <= int(minor) <= 13:
                found["3." + minor + " " + path] = path
        for name, path in sorted(found.items()):
            with self.subTest(name):
                self.burn(path)
                self.check_burn()

    def test_unknown_python_has_libraries_only(self):
        old = glob.glob(os.path.expanduser("~/.pyenv/versions/3.[67].*/bin/python3.[67]"))
        if not old:
            self.skipTest("no Python older than 3.8 here")
        self.burn(old[0])
        stacks = self.stacks()
        self.assertGreater(len(stacks), 10)
        self.assertFalse([python for _, _, python in stacks if python])
        self.assertTrue([native for _, native, _ in stacks if native and native[0][0] == INTERPRETER])

    def test_stripped_program(self):
        program = self.compile("stripped", STRIPPED, "-s")
        self.record(program)
        stacks = [native for _, native, _ in self.stacks()]
        self.assertGreater(len(stacks), 5)
        innermost = Counter(native[0][1:] for native in stacks if native)
        self.assertEqual(innermost.most_common(1)[0][0], ("stripped", ""))

    def test_processes_that_end_at_once(self):
        self.record(PYTHON, "-c", SHORT_LIVES, options=["--profile-hz", "499"])
        stacks = self.stacks()
        root = s.Recording(self.path).number("root_tgid")
        children = [(native, python) for tgid, native, python in stacks if tgid != root]
        self.assertGreater(len(children), 50)
        named = [1 for native, _ in children if native]
        in_python = [1 for _, python in children
                     if any(function == "short_life" for _, _, function in python)]
        self.assertGreater(len(named), len(children) * 0.9)
        self.assertGreater(len(in_python), len(children) * 0.5)

    def test_no_profile(self):
        self.record(PYTHON, "-c", BURN, 0.5, options=["--no-profile"])
        self.assertEqual(self.stacks(), [])
        self.assertEqual(s.Recording(self.path).number("profile_hz"), 0)

    def test_rate(self):
        self.record(PYTHON, "-c", BURN, 1, options=["--profile-hz", "10"])
        self.assertTrue(0 < len(self.stacks()) <= 30)
        self.assertEqual(s.Recording(self.path).number("profile_hz"), 10)

    def test_bad_rate(self):
        for rate in ("0", "-1", "100000", "often"):
            done = run(ANALYZE, "record", "-o", self.path, "--profile-hz", rate, "--", "true")
            self.assertEqual(done.returncode, 2)
            self.assertIn("--profile-hz", done.stderr)


if __name__ == "__main__":
    exact.main()
