# SPDX-License-Identifier: Apache-2.0
"""Tests what-if and plan on recordings of real DataLoaders, and their messages about bad values and poor recordings."""
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import exact

BIN = os.environ.get("DIESEL_BIN", "build/release/bin")
ANALYZE = os.path.join(BIN, "diesel-analyze")

# A sample takes 4 ms of sleep, so that it is slow on any machine without using its cores. A step has four samples.
JOB = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        with open("/proc/self/cmdline", "rb") as file:
            file.read()
        time.sleep(0.004)
        return torch.ones(8)

model = torch.nn.Linear(8, 1)
for batch in DataLoader(Slow(), batch_size=4, num_workers=2):
    model(batch).sum().backward()
"""

# Other programs of the machine do not take this job's cores.
URGENT = JOB.replace("import torch\n", "import os\nimport torch\nos.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))\n")

# This one's model is slow, and needs next to no cores.
MODEST = URGENT.replace("time.sleep(0.004)", "pass").replace("sum().backward()", "sum().backward()\n    time.sleep(0.03)")

# Here each sample takes 4 ms of a core.
HUNGRY = URGENT.replace("time.sleep(0.004)", """end = time.thread_time() + 0.004
        while time.thread_time() < end:
            sum(range(100))""").replace("num_workers=2", "num_workers=1").replace("import torch\n", "import torch\ntorch.set_num_threads(1)\n")

# Two ranks of one job, which meet after each step. Rank 0 is the slower one and sleeps; rank 1 computes.
RANKS = URGENT.replace("import torch\n", "import torch\ntorch.set_num_threads(1)\nimport torch.distributed as dist\n").replace("model = torch", '''other = None if os.environ.get("RANK") else os.fork()
RANK = int(os.environ.get("RANK") or bool(other))
dist.init_process_group("gloo", init_method="file://" + os.environ["MEET"], rank=RANK, world_size=2)
model = torch''').replace("num_workers=2", "num_workers=1").replace("time.sleep(0.004)", """end = time.thread_time() + 0.006
        while RANK and time.thread_time() < end:
            sum(range(100))
        time.sleep(0 if RANK else 0.008)""").replace("sum().backward()", "sum().backward()\n    dist.all_reduce(model.weight.grad)") + """
if other:
    os.waitpid(other, 0)  # the recording ends with this process
"""

# A profile as a user writes it: hungry for cores until 6, and for memory.
PROFILE = {"schema": "diesel.profile/1", "name": "profiled", "cores": [1, 3, 6], "memory_bytes": [1 << 33, 1 << 35],
           "samples_per_s": [[10, 30], [20, 90], [25, 160]]}

# Jobs of dieseld, as dieselctl jobs --json prints them. The second is too new.
SERVED = {"schema": "diesel.jobs/1", "jobs": [
    {"id": 7, "name": "train", "tuner": {"demand": 400.0},
     "now": {"samples_per_s": 225.0, "daemon_cpu_s_per_sample": 0.0075, "client_cpu_s_per_sample": None, "dataset_bytes": 1 << 35, "need_bytes": 1 << 30,
             "cached_bytes": 0, "chunk_bytes": 1 << 22, "samples_per_chunk": 32, "source_bytes_per_s": 3e7}},
    {"id": 8, "name": "new", "tuner": None, "now": None},
    {"id": 9, "name": "disturbed", "tuner": {"demand": 400.0},  # 64 of 400 samples/s, and no figure says why
     "now": {"samples_per_s": 64.0, "daemon_cpu_s_per_sample": 0.0001, "prep_rate": 9000.0}}]}


def compares_clocks(test):
    test.compares_clocks = True
    return test


def run(*args):
    return subprocess.run([ANALYZE, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=240, check=False)


class WhatIf(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="diesel-what-if-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.recording = os.path.join(cls.folder, "s.db")
        for _ in range(4):  # the tool rightly refuses a recording with too many disturbances
            done = run("record", "-o", cls.recording, "--", sys.executable, "-c", URGENT)
            assert done.returncode == 0, done.stderr
            if run("what-if", cls.recording).returncode == 0:
                break

    def ask(self, *options):
        done = run("what-if", self.recording, "--json", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_curves_without_a_question(self):
        found = self.ask()
        self.assertEqual(found["schema"], "diesel.what-if/1")
        self.assertIsNone(found["question"])
        self.assertIsNone(found["answer"])
        for name, curve in found["predictions"]["what_if"].items():
            points = {point["x"]: point["speedup"]["value"] for point in curve["points"]}
            # The cached share can be any, so it may lie between two points.
            nearest = min(points, key=lambda x, here=curve["here"]: abs(x - here))
            self.assertAlmostEqual(nearest, curve["here"], delta=0.05, msg=name)
            self.assertAlmostEqual(points[nearest], 1, delta=0.01 if nearest == curve["here"] else 0.2, msg=name)
        text = run("what-if", self.recording)
        self.assertEqual(text.returncode, 0)
        self.assertIn("Smallest single change that ends the data wait", text.stdout)

    def test_an_answer(self):
        found = self.ask("--workers", 4, "--device-speed", "2x")
        self.assertEqual(found["question"]["workers"], 4)
        self.assertEqual(found["question"]["device_speed"], 2)
        self.assertIsNone(found["question"]["cache_ratio"])
        answer = found["answer"]
        self.assertIsNone(found["question"]["storage_speed"])
        self.assertGreater(answer["speedup"]["value"], 1)  # loading is the bottleneck, and takes no core
        self.assertLessEqual(answer["speedup"]["low"], answer["speedup"]["value"])
        self.assertGreaterEqual(answer["speedup"]["high"], answer["speedup"]["value"])
        self.assertAlmostEqual(sum(answer["shares"].values()), 1, places=6)
        fewer = self.ask("--workers", 1)["answer"]["speedup"]["value"]
        self.assertLess(fewer, 1)

    def test_fewer_cores(self):
        found = self.ask("--cores", 1.5)
        self.assertEqual(found["question"]["cores"], 1.5)
        self.assertLessEqual(self.ask("--cores", 0.05)["answer"]["speedup"]["value"], 0.9)
        self.assertTrue(run("what-if", self.recording, "--cores", 2).stdout.startswith("With 2 cores:"))

    def test_nodes_with_lanes(self):
        """Each node needs a part of the dataset, and can cache that many times more of its part."""
        found = self.ask("--nodes", 4, "--cache", "25%")
        self.assertEqual(found["question"]["nodes"], 4)
        self.assertEqual(found["answer"]["cached_ratio"], 1)
        self.assertEqual(found["answer"]["speedup"], self.ask("--cache", "100%")["answer"]["speedup"])
        self.assertEqual(self.ask("--nodes", 3, "--cache", "20%")["answer"]["cached_ratio"], 3 * 0.2)
        self.assertEqual(self.ask("--cache", "20%")["answer"]["cached_ratio"], 0.2)
        text = run("what-if", self.recording, "--nodes", 4, "--cache", "20%").stdout.splitlines()
        self.assertEqual(text[0], "With 20 % of the dataset in memory, 4 nodes, each with its own lanes:")
        self.assertIn("each node needs 1/4 of the dataset, and its memory holds 80 % of that", text[1])

    def test_bad_values(self):
        for option, value in (("--cache", "150%"), ("--cache", "-1"), ("--cache", "half"), ("--workers", "300"),
                              ("--workers", "1.5"), ("--cores", "0"), ("--cores", "many"), ("--storage-mbps", "0"), ("--device-speed", "nan"), ("--storage-speed", "-2"),
                              ("--sample-size", "0"), ("--sample-size", "2y"), ("--device-speed", "inf"),
                              ("--decoded-cache", "101%"), ("--decoded-cache", "2G"), ("--nodes", "0"), ("--nodes", "2.5")):
            done = run("what-if", self.recording, option, value)
            self.assertEqual(done.returncode, 2, (option, value))
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertIn(f"{option} {value}", done.stderr)
        done = run("what-if", self.recording, "--storage-mbps", 100, "--storage-speed", 2)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--storage-mbps and --storage-speed", done.stderr)
        self.assertEqual(run("what-if").returncode, 2)

    def test_recordings_that_do_not_say_enough(self):
        poor = os.path.join(self.folder, "poor.db")
        self.assertEqual(run("record", "-o", poor, "--", "/bin/true").returncode, 0)
        done = run("what-if", poor, "--workers", 4)
        self.assertEqual(done.returncode, 3)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertEqual(run("what-if", os.path.join(self.folder, "none.db")).returncode, 1)


class Plan(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="diesel-plan-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        for name, job in (("modest", MODEST), ("hungry", HUNGRY)):
            recording = os.path.join(cls.folder, name + ".db")
            for _ in range(4):
                done = run("record", "-o", recording, "--", sys.executable, "-c", job)
                assert done.returncode == 0, done.stderr
                # Refused, too: a recording in which other programs had the cores.
                planned = run("plan", "--json", "--cluster", "1,2,4G", recording)
                if json.loads(planned.stdout)["jobs"][0]["cores_known"]:
                    break
        for name, content in (("profile.json", PROFILE), ("served.json", SERVED)):
            with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as file:
                json.dump(content, file)

    @classmethod
    def record_ranks(cls, *names, each):
        """Records both ranks, in one recording or, as on two nodes, each in its own."""
        paths = [os.path.join(cls.folder, name) for name in names]
        for attempt in range(4):
            meet = os.path.join(cls.folder, f"meet-{names[0]}-{attempt}")
            runs = [subprocess.Popen([ANALYZE, "record", "-o", path, "--", sys.executable, "-c", RANKS], stdout=subprocess.DEVNULL,
                                     env=os.environ | {"MEET": meet, "RANK": str(rank) if each else ""}) for rank, path in enumerate(paths)]
            assert [one.wait(240) for one in runs] == [0] * len(runs)
            planned = run("plan", "--json", "--cluster", "2,2,4G", *[f"{path},job=big" for path in paths])
            if json.loads(planned.stdout)["jobs"][0]["cores_known"]:
                break
        return paths

    @classmethod
    @functools.cache
    def ranks(cls):
        """Returns the recording of both ranks."""
        return cls.record_ranks("ranks.db", each=False)[0]

    def path(self, name):
        return os.path.join(self.folder, name)

    def plan(self, *args):
        done = run("plan", "--json", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    @compares_clocks
    def test_cores_go_from_the_modest_job_to_the_hungry_one(self):
        found = self.plan("--cluster", "2,6,16G", self.path("modest.db"), self.path("hungry.db"))
        self.assertEqual(found["schema"], "diesel.plan/1")
        modest, hungry = (job["shares"]["tune"] for job in found["jobs"])
        self.assertLess(modest["cores"], hungry["cores"])
        self.assertLessEqual(modest["cores"] + hungry["cores"], 6)
        self.assertGreaterEqual(modest["of_equal"], 1)
        self.assertGreater(hungry["of_equal"], 1.1)
        self.assertLessEqual(found["plans"]["tune"]["total_of_equal"], found["bound_of_equal"] + 1e-6)
        for job in found["jobs"]:
            self.assertTrue(job["cores_known"])
            self.assertFalse(job["memory_known"])
            self.assertIn("dataset=SIZE", job["note"])
            self.assertEqual(job["shares"]["equal"]["cores"], 3)
            self.assertEqual(job["shares"]["tune"]["memory_bytes"], 8 << 30)
        text = run("plan", "--cluster", "2,6,16G", self.path("modest.db"), self.path("hungry.db") + ",name=big").stdout
        self.assertRegex(text, r"(?m)^big +--nodes=1 --gpus-per-node=1 --ntasks=1 --cpus-per-task=[45] --mem=8192M$")
        self.assertRegex(text, r'(?m)^modest.db +resources: \{requests: \{cpu: "[12]", memory: 8192Mi, nvidia.com/gpu: 1\}, limits:')
        slots = run("plan", "--cluster", "2,6,16G", "--slots", self.path("modest.db")).stdout
        self.assertNotIn("gpu", slots)

    @compares_clocks
    def test_recorded_ranks_are_one_job_with_as_many_accelerators(self):
        ranks, hungry = self.ranks(), self.path("hungry.db")
        job = self.plan("--cluster", "2,4,16G", ranks)["jobs"][0]
        self.assertEqual((job["accelerators"], job["cores_known"]), (2, True), job["note"])
        self.assertEqual([(part["accelerators"], part["cores"]) for part in job["shares"]["tune"]["parts"]], [(2, 4)])
        # Both recordings of one job: four ranks, on two nodes of two accelerators. Each rank has as many cores as above.
        both = self.plan("--cluster", "2x2,4,16G", f"{ranks},job=big", f"{ranks},job=big")["jobs"]
        self.assertEqual([(one["name"], one["accelerators"]) for one in both], [("big", 4)])
        self.assertEqual([(part["accelerators"], part["cores"]) for part in both[0]["shares"]["tune"]["parts"]], [(2, 4), (2, 4)])
        self.assertAlmostEqual(both[0]["shares"]["tune"]["speed"], job["shares"]["tune"]["speed"], delta=0.001)
        text = run("plan", "--cluster", "2x2,4,16G", f"{ranks},job=big", f"{ranks},job=big", hungry).stdout
        self.assertRegex(text, r"(?m)^big +0-1 +4 +8 ")
        self.assertRegex(text, r"(?m)^hungry.db +waits: no accelerators are left$")
        self.assertRegex(text, r"(?m)^big +--nodes=2 --gpus-per-node=2 --ntasks=2 --cpus-per-task=4 --mem=16384M$")
        self.assertRegex(text, r"(?m)^big +2 pods, each resources: \{requests: \{cpu: \"4\",")
        text = run("plan", "--cluster", "2x2,4,16G", self.path("profile.json") + ",accelerators=3", hungry).stdout
        self.assertIn("--nodes=1 --gpus-per-node=2 --ntasks=1 --cpus-per-task=4 --mem=16384M : --nodes=1 --gpus-per-node=1 ", text)
        self.refuse(1, "it has 2 accelerators, more than all nodes", "--cluster", "1,4,4G", ranks)
        self.refuse(1, "no node has the memory", "--cluster", "2,4,4G", f"{ranks},dataset=9G,resident=5G")
        self.plan("--cluster", "2x1,4,4G", f"{ranks},dataset=9G,resident=5G")
        self.refuse(1, "recorded with 2 ranks", "--cluster", "4,4,4G", f"{ranks},accelerators=3")
        self.refuse(1, "job=big is for recordings", "--cluster", "4,4,4G", self.path("profile.json") + ",job=big")

    @compares_clocks
    def test_the_slowest_rank_sets_the_pace_with_any_number_of_cores(self):
        """Rank 1, which waits for rank 0 in the recording, needs 24 ms of a core for each step."""
        ranks = self.ranks()
        each = [path + ",job=big" for path in self.record_ranks("rank0.db", "rank1.db", each=True)]
        for recordings in ([ranks], each):
            few, recorded, many = (self.plan("--core-step", 0.25, "--cluster", cluster, *recordings)["jobs"][0]
                                   for cluster in ("2,1,4G", "2,2,4G", "2,4,4G"))
            speeds = [job["shares"]["equal"]["speed"] for job in (few, recorded, many)]
            self.assertTrue(few["cores_known"], few["note"])
            self.assertLess(speeds[0], 0.8 * speeds[1])  # half a core for each rank: rank 1 becomes the slowest
            self.assertGreater(speeds[2], 1.5 * speeds[1])  # a second worker for each: not held at rank 1's pace with one
        note = self.plan("--cluster", "4,4,4G", f"{ranks},accelerators=4")["jobs"][0]["note"]
        self.assertIn("each of its 2 recorded ranks drives 2 accelerators", note)
        self.assertNotIn("assumed", self.plan("--cluster", "2,4,4G", ranks)["jobs"][0]["note"])

    def test_slurm_gets_whole_cores_that_the_node_has(self):
        def lines(*args):
            text = run("plan", "--core-step", 0.25, *args).stdout
            return text, [int(word.split("=")[1]) for word in text.split() if word.startswith("--cpus-per-task=")]
        few = [self.path(f"profile.json") + f",name={name}" for name in "abcd"]
        text, cores = lines("--cluster", "4,5,16G", *few)
        self.assertEqual(cores, [1, 1, 1, 1])
        self.assertIn("the plan has 1.25 cores, and Slurm gives whole ones", text)
        text, cores = lines("--cluster", "4,3,16G", *few)
        self.assertEqual(cores, [])
        self.assertIn("node 0 has fewer cores than jobs", text)

    def test_plans_in_which_other_jobs_wait_say_so_and_why(self):
        wide = json.dumps(PROFILE | {"cores": [1, 3], "samples_per_s": [[10, 30], [20, 90]]})
        with open(self.path("wide.json"), "w", encoding="utf-8") as file:
            file.write(wide)
        ask = ("--cluster", "2,4,64G", "--strategy", "greedy", self.path("wide.json") + ",count=2")
        text = run("plan", *ask).stdout
        self.assertIn("waits: where accelerators are left, the cores left are fewer than it can use", text)
        self.assertIn('Not the same jobs run in each plan', text)
        self.assertEqual(self.plan(*ask)["jobs"][1]["waits_for"], {"equal": None, "greedy": "cores", "tune": None})
        memory = run("plan", "--cluster", "2,8,40G", "--strategy", "greedy", self.path("wide.json") + ",count=2").stdout
        self.assertIn("the memory left is less than it can use", memory)

    def test_a_profile_and_jobs_of_dieseld(self):
        found = self.plan("--cluster", "5,25,160G", self.path("profile.json") + ",count=2", self.path("served.json"))
        first, second, train, new, disturbed = found["jobs"]
        self.assertEqual(disturbed["shares"]["tune"]["cores"], 5)
        self.assertEqual([first["name"], train["name"], new["name"]], ["profiled", "train:7", "new:8"])
        for job in (first, second):
            self.assertAlmostEqual(job["shares"]["equal"]["speed"], 90 + (160 - 90) * 2 / 3)  # 5 cores, between 3 and 6
        self.assertIn("unclear", new["note"])
        self.assertEqual(new["shares"]["tune"]["cores"], 5)
        self.assertEqual(new["shares"]["tune"]["memory_bytes"], 32 << 30)
        self.assertIsNone(new["shares"]["tune"]["speed"])
        # 10 ms of a core per sample, 7.5 of them in dieseld: 400 samples/s, the most, need 4 cores.
        self.assertAlmostEqual(train["shares"]["equal"]["speed"], 400, delta=1)
        three = self.plan("--cluster", "4,12,128G", self.path("served.json"))["jobs"][0]
        self.assertAlmostEqual(three["shares"]["equal"]["speed"], 300, delta=1)
        for job in found["jobs"]:
            self.assertGreaterEqual(job["shares"]["tune"]["of_equal"], 1)
        self.assertGreater(first["shares"]["tune"]["of_equal"] + second["shares"]["tune"]["of_equal"], 2)

    def test_what_if_for_jobs_of_dieseld(self):
        def ask(*options):
            done = run("what-if", "--json", *options, self.path("served.json"))
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["jobs"]
        train, new, disturbed = ask("--cores", 2, "--cache", "100%")
        self.assertAlmostEqual(train["samples_per_s"], 200, delta=1)  # 10 ms of a core per sample
        self.assertEqual(train["bound_by"], "prep-bound")
        self.assertIsNone(new["samples_per_s"])
        self.assertIn("ask again", new["unclear"])
        self.assertIn("do not explain its present speed", disturbed["unclear"])
        # 128 KiB per sample at 30 MB/s, all of it from storage.
        self.assertAlmostEqual(ask("--cores", 8, "--cache", "0%")[0]["samples_per_s"], 3e7 / (1 << 17), delta=1)
        self.assertAlmostEqual(ask("--cores", 8, "--cache", "0%", "--storage-speed", 9)[0]["samples_per_s"], 400, delta=1)
        self.assertEqual(ask("--cores", 80, "--cache", "50%", "--device-speed", 0.5)[0]["bound_by"], "device-bound")
        text = run("what-if", "--cores", 2, self.path("served.json"))
        self.assertIn("the job is then", text.stdout)
        for given, status, line in ((json.dumps(SERVED), 0, ""), (" " * ((64 << 20) + 1), 1, "more than 64 MiB"), ("SQLite", 1, "line 1")):
            done = subprocess.run([ANALYZE, "what-if", "--cores", "2", "/dev/stdin"], input=given, capture_output=True, text=True, timeout=240, check=False)
            self.assertEqual((done.returncode, done.stdout), (status, "" if status else text.stdout))
            self.assertIn(line, done.stderr)
        done = run("what-if", "--native", self.path("served.json"))
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1))
        self.assertIn("only --cores, --cache", done.stderr)

    def test_the_same_seed_gives_the_same_simulation(self):
        ask = ("--cluster", "2x4,12,128G", "--simulate", "--jobs", 200, "--load", 2, self.path("profile.json"))
        found = self.plan(*ask)
        self.assertTrue(found["simulated"])
        self.assertEqual(found, self.plan(*ask))
        self.assertNotEqual(found["plans"], self.plan(*ask, "--seed", 2)["plans"])
        self.assertLessEqual(found["plans"]["tune"]["mean_s"], found["plans"]["equal"]["mean_s"])
        self.assertIn("Simulated, not measured", run("plan", *ask).stdout)
        notes = self.plan(*ask, self.path("served.json"))["notes"]
        self.assertIn("unclear", next(note["note"] for note in notes if note["name"] == "new:8"))

    def test_a_recording_that_says_too_little_keeps_its_proportional_share(self):
        poor = self.path("poor.db")
        self.assertEqual(run("record", "-o", poor, "--", "/bin/true").returncode, 0)
        job, hungry = self.plan("--cluster", "2,4,16G", poor, self.path("hungry.db"))["jobs"]
        self.assertFalse(job["cores_known"])
        self.assertIn("unclear", job["note"])
        self.assertEqual(job["shares"]["tune"]["cores"], 2)
        self.assertEqual(hungry["shares"]["tune"]["cores"], 2)

    def test_bad_input_gets_one_line(self):
        broken = self.path("broken.json")
        for content, word in (("{", "line 1"), ("{}", "expected a recording"),
                              (json.dumps(PROFILE | {"cores": [3, 1, 6]}), "ascending"),
                              (json.dumps(PROFILE | {"samples_per_s": [[1, 2]]}), "samples_per_s"),
                              *((json.dumps(PROFILE | {"accelerators": n}), "from 1 to 10000") for n in (0, -1, 1.5, "1", None)),
                              (json.dumps(PROFILE | {"acelerators": 2}), 'unknown key "acelerators"'),
                              (json.dumps(PROFILE | {"memory_bytes": [8, 32]}), "memory_bytes begins with 8"),
                              (json.dumps(SERVED | {"jobs": []}), "served no job")):
            with open(broken, "w", encoding="utf-8") as file:
                file.write(content)
            self.refuse(1, word, "--cluster", "1,2,4G", broken)
        self.refuse(1, "give a smaller --core-step, such as 0.5", "--cluster", "4,2,4G", self.path("profile.json"))
        self.refuse(1, "none.db", "--cluster", "1,2,4G", self.path("none.db"))
        self.refuse(1, "it has 3 accelerators, more than all nodes", "--cluster", "2,2,4G", self.path("profile.json") + ",accelerators=3")
        self.refuse(1, "count=0", "--cluster", "1,2,4G", self.path("profile.json") + ",count=0")
        for key in ("name", "job"):
            self.refuse(1, f"{key}=: must be a name", "--cluster", "1,2,4G", self.path("profile.json") + f",{key}=")
        self.refuse(1, "give them once for the whole job", "--cluster", "4,4,4G", self.path("hungry.db") + ",job=a", self.path("hungry.db") + ",job=a,accelerators=2")
        self.refuse(1, "unknown key 'gpus'", "--cluster", "1,2,4G", self.path("profile.json") + ",gpus=1")
        self.refuse(2, "plan needs --cluster", self.path("profile.json"))
        self.refuse(2, "plan needs jobs", "--cluster", "1,2,4G")
        for cluster in ("8", "0,2,4G", "1,2,lots", "1,0,4G", "0x1,2,4G", "1,2,4G,5", "4294967297x1,2,4G", "4294967297,2,4G", "-4294967295,2,4G"):
            self.refuse(2, f"--cluster {cluster}", "--cluster", cluster, self.path("profile.json"))
        for cluster in ("4,16,128", "2x4,16,1M"):
            self.refuse(2, f"give a unit, such as --cluster {cluster.rstrip('M')}G", "--cluster", cluster, self.path("profile.json"))
        self.refuse(1, "add resident=SIZE", "--cluster", "1,2,4G", self.path("hungry.db") + ",dataset=4G")
        self.refuse(1, "at least 1M", "--cluster", "1,2,4G", self.path("hungry.db") + ",dataset=4,resident=1G")
        self.refuse(2, "1 to 1024 accelerators", "--cluster", "0,16,128G", self.path("profile.json"))
        self.refuse(2, "one of equal|greedy|tune", "--cluster", "1,2,4G", "--strategy", "best", self.path("profile.json"))
        self.refuse(2, "--trainer is an option of record or report or no verb, not of plan", "--trainer", 9, self.path("profile.json"))
        self.refuse(2, "diesel-analyze plan --help", "--cluster", "1,2,4G", "--load", 3, self.path("profile.json"))
        self.refuse(2, "--core-step 0", "--cluster", "1,2,4G", "--core-step", "0", self.path("profile.json"))

    def refuse(self, status, word, *args):
        done = run("plan", *args)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (status, 1), (args, done.stderr))
        self.assertIn(word, done.stderr)


if __name__ == "__main__":
    exact.main(needs_torch=True)
