# SPDX-License-Identifier: Apache-2.0
"""Tests upgrade, rollback and downgrade under running jobs. Both sides are real programs: those of this tree, and the same with the numbers
of a later release (tests/upgrade.cmake). The service manager is a stand-in (common/service_manager.py)."""
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

from dieseld_support import BIN, CTL, SCRATCH, Case, main, make_source, pack, require, start_probe
from common.service_manager import KeptDaemon, Store

THIS = os.path.join(BIN, "dieseld")
LIBRARY = os.environ.get("DIESEL_LIB", os.path.join(os.path.dirname(BIN), "lib"))


def later(name):
    return os.path.join(BIN, "later", name)


NEXT, NEXT_FORMATS, SECOND = (os.path.join(later(name), "dieseld") for name in ("next", "next_formats", "second"))
# Runs whole epochs until told to stop; each sample must come once in each, byte for byte.
JOB = """
import json, os, sys, time
import diesel_loader.numpy as diesel
from diesel_loader import dataset as served

path, socket, enough = sys.argv[1:]
dataset = served.Dataset(path, socket=socket)
loader = diesel.DataLoader(dataset, batch_size=16, shuffle=True, seed=3, num_workers=0, order=diesel.Order(window_chunks=1),
                           batches=diesel.Batches(return_ids=True), collate_fn=lambda samples: samples)
epoch = 0
while not os.path.exists(enough):
    loader.set_epoch(epoch)
    numbers = []
    for batch in loader:
        for data, _, number in batch:
            assert bytes(data) == dataset.read(number), number
            numbers.append(number)
        time.sleep(0.002)
    assert sorted(numbers) == list(range(len(dataset))), epoch
    epoch += 1
print(json.dumps({"epochs": epoch}))
"""


class Upgrade(Case):
    @classmethod
    def setUpClass(cls):
        cls.source = make_source("samples", 2000, lambda rng: rng.randint(0, 40000))
        cls.path = pack(cls.source, "packed")

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=SCRATCH)
        self.history, self.enough = (os.path.join(self.folder, name) for name in ("history.db", "enough"))

    def start(self, program, *options):
        store = Store()
        self.addCleanup(store.close)

        def first(command):
            return [program, *command[1:]]

        daemon = KeptDaemon(store, "--history", self.history, "--stage", os.path.join(self.folder, "stage"), "--stage-when", "always",
                            *options, cache="36M", prefix=first)
        self.addCleanup(daemon.log.close)
        self.addCleanup(lambda: self.assertEqual(daemon.stop() if daemon.process.poll() is None else 0, 0, daemon.output()))
        return daemon

    def become(self, daemon, program, end="stop"):
        """Starts another program in the daemon's place. Returns its output."""
        before = len(daemon.output())
        getattr(daemon, end)()
        daemon.command[0] = program
        daemon.start()
        return daemon.output()[before:]

    def job(self, daemon, library):
        process = subprocess.Popen([sys.executable, "-c", JOB, self.path, daemon.socket, self.enough], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env={**os.environ, "DIESEL_LIB": library})
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def runs(self, daemon, clients):
        """Waits until each of the clients has had batches of this daemon."""
        def all_do(status):
            for client in clients:
                if client.poll() is not None:
                    raise AssertionError(client.communicate()[1])
            return len(status["sessions"]) == len(clients) and all(s["delivered"] > 8 for s in status["sessions"])
        return daemon.wait_for("batches for everybody", all_do)

    def set(self, daemon, *words):
        subprocess.run([CTL, "set", "--socket", daemon.socket, *words], check=True, capture_output=True, timeout=60)

    def settings(self, daemon):
        return {one["name"]: one["value"] for one in daemon.status()["tune"]["settings"] if one["from"] == "set"}

    def warnings(self, said):
        return [line for line in said.splitlines() if "warning: " in line]

    def test_jobs_go_on(self):
        daemon = self.start(THIS)
        self.set(daemon, "prefetch=3", "--limit", "workers-max=1")
        jobs = [self.job(daemon, library) for library in (LIBRARY, later("next"))]
        probe = start_probe(daemon, self.path, "--source", self.source, "--epochs", 100000, "--pause-us", 2000, "--window", 1,
                            "--reconnect-ms", 60000)
        self.addCleanup(probe.communicate)
        self.addCleanup(probe.kill)
        self.runs(daemon, [*jobs, probe])
        daemon.wait_for("staged chunks", lambda s: s["stage"]["chunks"] > 2)
        for program, version, end in ((NEXT, "0.2.0", "stop"), (THIS, None, "stop"), (NEXT, "0.2.0", "kill"), (THIS, None, "kill")):
            with self.subTest(program=program, end=end):
                said = self.become(daemon, program, end)
                status = self.runs(daemon, [*jobs, probe])
                if version:
                    self.assertEqual(status["version"], version)
                self.assertEqual(self.warnings(said), [])
                self.assertIn("restored after the restart", said)
                daemon.wait_for("staged chunks", lambda s: s["stage"]["chunks"] > 2)
                self.assertEqual(self.settings(daemon), {"prefetch": 3, "workers-max": 1})
        pathlib.Path(self.enough).touch()
        for job in jobs:
            out, said = job.communicate(timeout=120)
            self.assertEqual(job.returncode, 0, said)
            self.assertGreater(json.loads(out)["epochs"], 0)
        self.assertIsNone(probe.poll())

    def test_formats_of_a_later_release_stay_as_they_are(self):
        """Such files are not used, a line for each reports that, and the later release reads them again."""
        daemon = self.start(NEXT_FORMATS)
        self.set(daemon, "prefetch=7")
        job = self.job(daemon, LIBRARY)
        self.runs(daemon, [job])
        daemon.store.wait_for("chunks in the store", lambda chunks: len(chunks) > 2)
        daemon.stop()
        content = pathlib.Path(self.history).read_bytes()
        said = self.warnings(self.become(daemon, THIS))
        self.assertEqual(len(said), 2, said)
        self.assertRegex(said[1], r"\d+ chunks not restored after the restart: another version of dieseld stored them")
        self.assertRegex(said[0], rf"{self.history} was written by another version of dieseld \(format 2, this version reads 1\): .*"
                         "earlier settings are not in force$")
        self.runs(daemon, [job])
        self.assertEqual(self.settings(daemon), {})
        self.set(daemon, "prefetch=2")
        daemon.stop()
        self.assertEqual(pathlib.Path(self.history).read_bytes(), content)
        self.become(daemon, NEXT_FORMATS)
        self.runs(daemon, [job])
        self.assertEqual(self.settings(daemon), {"prefetch": 7})
        pathlib.Path(self.enough).touch()
        self.assertEqual((job.communicate(timeout=120)[1], job.returncode)[1], 0)

    def test_a_release_too_far_says_what_to_upgrade(self):
        daemon = self.start(THIS)
        job = self.job(daemon, LIBRARY)
        self.runs(daemon, [job])
        self.become(daemon, SECOND)
        said = job.communicate(timeout=120)[1]
        self.assertEqual(job.returncode, 1)
        self.assertRegex(said.splitlines()[-1], r"dieseld 0\.3\.0 speaks protocols 9 to 10 and the client 8: upgrade the client "
                         r".*\(the client is \d+\.\d+\.\d+\)")
        daemon.stop()
        daemon.command[0] = THIS
        daemon.start()
        too_new = self.job(daemon, later("second"))
        self.assertRegex(too_new.communicate(timeout=120)[1].splitlines()[-1], r"speaks protocols 7 to 8 and the client 10: upgrade dieseld ")

    def test_settings_of_a_later_release_are_kept_for_it(self):
        daemon = self.start(THIS)
        self.set(daemon, "prefetch=3", "--limit", "workers-max=1")
        daemon.stop()

        def saved():
            with sqlite3.connect(self.history) as database:
                return json.loads(database.execute("SELECT value FROM state WHERE key = 'settings'").fetchone()[0])

        settings = saved()
        by = {"uid": 0, "at": 1700000000}
        settings["set"]["fine-limit"], settings["by"]["fine-limit"] = 5, by
        settings["pins"] += [{"job": job, "knob": "fine-knob", "value": 1, "by": by} for job in (0, 77)]
        with sqlite3.connect(self.history) as database:
            database.execute("UPDATE state SET value = ? WHERE key = 'settings'", (json.dumps(settings).encode(),))
        said = self.warnings(self.become(daemon, THIS))
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], "fine-limit, fine-knob.*: settings of another version of dieseld")
        self.set(daemon, "prefetch=4", "--unset", "workers-max")
        daemon.stop()
        kept = saved()
        self.assertEqual((kept["set"], kept["by"]["fine-limit"]), ({"fine-limit": 5}, by))
        # Pins of a job end with it.
        self.assertEqual(sorted((pin["job"], pin["knob"], pin["value"]) for pin in kept["pins"]),
                         [(0, "fine-knob", 1), (0, "prefetch-chunks", 4)])


if __name__ == "__main__":
    for made in (NEXT, NEXT_FORMATS, SECOND):
        require(made)
    try:
        import numpy  # noqa: F401
    except ImportError:
        print("skipped: needs numpy")
        sys.exit(77)
    main()
