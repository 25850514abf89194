# SPDX-License-Identifier: Apache-2.0
"""Tests the tuning loop as dieselctl controls and queries it (jobs, why, set, replay), and its failures."""
import concurrent.futures
import contextlib
import json
import math
import os
import re
import signal
import socket
import sqlite3
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from common.commands import dieselctl, one_line, run
from common.processes import end
from common.waiting import wait_until
from dieseld_support import BIN, SCRATCH, Case, dataset, main, probe_command

NOBODY = 65534


def ctl(daemon, *arguments, status=0, **more):
    """Returns the output. With a status other than 0, returns its one line of error."""
    done = dieselctl(*arguments, check=status, env={**os.environ, "DIESEL_SOCKET": getattr(daemon, "socket", daemon)}, **more)
    if status == 0:
        return done.stdout
    one_line(done)
    return done.stderr


def ask(daemon, verb, *arguments):
    return json.loads(ctl(daemon, verb, "--json", *arguments))


class Control(Case):
    def tuned(self, *options, **more):
        self.history = tempfile.mktemp(prefix="h", suffix=".db", dir=SCRATCH)
        return self.daemon("--history", self.history, *options, **more)

    def job(self, daemon, pause_us=2000):
        """Runs a client that reads for as long as the test runs. Yields the job as the daemon sees it."""
        client = subprocess.Popen(probe_command(daemon, dataset("packed")[0], "--batch", 64, "--epochs", 100000,
                                                "--pause-us", pause_us, "--reconnect-ms", 60000),
                                  stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(client.stdin.close)
        self.addCleanup(end, client)
        return wait_until("the job begins",
                          lambda: next((j for j in ask(daemon, "jobs")["jobs"] if j["pid"] == client.pid), None))

    def one(self, daemon, job):
        return next(j for j in ask(daemon, "jobs")["jobs"] if j["id"] == job)

    def test_each_verb_without_a_daemon_is_an_error(self):
        nowhere = os.path.join(SCRATCH, "nobody-listens")
        for verb in (["jobs"], ["why"], ["set", "workers=1"], ["status"]):
            self.assertIn("no dieseld at", ctl(nowhere, *verb, status=1))

    def assert_given_up(self, socket, says):
        """Checks that every verb with a query gives up within its own limit, which is far below subprocess's."""
        path = dataset("packed")[0]
        verbs = (["status"], ["jobs"], ["why"], ["set", "workers=1"], ["warm", path], ["mount", path, SCRATCH, "--", "true"])
        with concurrent.futures.ThreadPoolExecutor(len(verbs)) as pool:
            for said in pool.map(lambda verb: ctl(socket, verb[0], "--timeout", "1", *verb[1:], status=1), verbs):
                self.assertIn(says, said)
                self.assertIn("1 s: it is stopped, or hangs", said)

    def test_a_daemon_that_is_stopped_is_given_up(self):
        daemon = self.daemon()
        daemon.process.send_signal(signal.SIGSTOP)
        self.addCleanup(daemon.process.send_signal, signal.SIGCONT)
        self.assert_given_up(daemon, "did not answer within")
        # Without a limit by the user there is a default one.
        self.assertIn("did not answer within 5 s", ctl(daemon, "status", status=1))

    def test_a_daemon_that_takes_no_connections_is_given_up(self):
        path = os.path.join(SCRATCH, "full.sock")
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            listener.bind(path)
            listener.listen(0)
            with contextlib.suppress(BlockingIOError):
                while True:
                    waiting = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK))
                    waiting.connect(path)
            self.assert_given_up(path, "accepts no connections for")

    def test_a_daemon_that_greets_and_says_no_more_is_given_up(self):
        """The limit holds for the whole query, not for each of its steps."""
        daemon = self.daemon()
        path = os.path.join(SCRATCH, "half.sock")
        with contextlib.ExitStack() as stack:
            real = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            real.connect(daemon.socket)
            listener.bind(path)
            listener.listen(8)

            def greet():
                with contextlib.suppress(OSError):
                    client = listener.accept()[0]
                    real.send(client.recv(4096))
                    client.send(real.recv(4096))
                    client.recv(4096)
                    client.recv(4096)  # until the client gives up
                    client.close()
            thread = threading.Thread(target=greet)
            thread.start()
            self.assertIn("did not answer within 1 s", ctl(path, "status", "--timeout", "1", status=1))
            thread.join()

    def test_a_flag_that_an_older_daemon_refuses_names_the_upgrade(self):
        """A daemon of the release before refuses the whole message for an unknown flag, and the error names the program to upgrade."""
        path = os.path.join(SCRATCH, "older.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(path)
            listener.listen(8)
            listener.settimeout(60)
            asked = []

            def greet():
                client = listener.accept()[0]
                with client:
                    hello = client.recv(4096)
                    client.send(struct.pack("<I", 2) + hello[4:12] + struct.pack("<III", 7, 0, 0))
                    asked.append(client.recv(4096))
            for options, is_asked in ((["workers=1", "--until-restart"], False), (["--unset", "workers"], True)):
                thread = threading.Thread(target=greet)
                thread.start()
                said = ctl(path, "set", *options, status=1)
                thread.join()
                self.assertEqual((bool(asked.pop()), "upgrade dieseld" in said), (is_asked, not is_asked), said)

    def test_wrong_use_is_an_error(self):
        for arguments, says in ((["set"], "no value to set"), (["set", "bogus=1"], "must be cache"),
                                (["set", "workers=many"], "whole number"), (["set", "cache=lots"], "number of bytes"),
                                (["set", "workers=1", "workers=2"], "twice"), (["set", "--limit", "workers=1"], "a knob"),
                                (["set", "workers-max=1"], "a limit"), (["set", "--dry-run", "maybe"], "on or off"),
                                (["set", "--tune", "maybe"], "dry-run or auto"), (["set", "x", "workers=1"], "neither"),
                                (["why", "x"], "not a job's number"), (["why", "-n", "0"], "must be a number from"),
                                (["why", "1", "2"], "at most one job"), (["jobs", "x"], "expected no arguments"),
                                (["set", "--unset", "x"], "a knob or a limit"), (["set", "--unset", "tune", "--until-restart"], "no value to set"),
                                (["set", "--unset", "workers", "workers=1"], "twice"), (["replay"], "expected one file"),
                                (["status", "--timeout", "0"], "whole seconds from 1"), (["jobs", "--timeout", "0.5"], "whole seconds"),
                                (["set", "--timeout", "x", "workers=1"], "whole seconds"), (["why", "--timeout"], "needs an argument"), (["set", "--bogus"], "no option")):
            self.assertIn(says, ctl("/nowhere", *arguments, status=2), arguments)

    def test_settings_out_of_range_are_refused(self):
        daemon = self.tuned("--workers-max", "4")
        before = ask(daemon, "jobs")["tune"]
        for arguments, says in ((["7", "workers=1"], "no job 7"), (["workers=5"], "raise workers-max first"),
                                (["workers=0"], "from 1 to 64"), (["read-weight=200"], "applies to one job"),
                                (["cache=1G"], "raise cache-max first"),
                                (["cache=1000T"], "memory"), (["--limit", "cache-min=1G"], "more than cache-max"),
                                (["workers=2", "--limit", "workers-max=65"], "from 1 to 64")):
            self.assertIn(says, ctl(daemon, "set", *arguments, status=1), arguments)
        self.assertIn("no job 7", ctl(daemon, "why", "7", status=1))
        after = ask(daemon, "jobs")["tune"]
        self.assertEqual((before["limits"], before["pins"]), (after["limits"], after["pins"]))

    def test_a_setting_survives_a_kill(self):
        daemon = self.tuned()
        ctl(daemon, "set", "workers=1", "--limit", "cache-max=64M", "--dry-run", "on")
        tune = ask(daemon, "jobs")["tune"]
        self.assertEqual(tune["mode"], "dry-run")
        self.assertEqual(tune["pins"], [{"job": 0, "knob": "daemon-workers", "value": 1, "in_force": 1}])
        self.assertEqual(daemon.status()["cache"]["budget_bytes"], 64 << 20)
        wait_until("the settings are written", lambda: ask(daemon, "jobs")["tune"]["history"]["written"] > 0)
        daemon.kill()
        daemon.start()
        again = ask(daemon, "jobs")["tune"]
        for member in ("mode", "limits", "pins"):
            self.assertEqual(again[member], tune[member])
        ctl(daemon, "set", "workers=auto", "--limit", "cache-max=auto", "--tune", "auto")
        tune = ask(daemon, "jobs")["tune"]
        self.assertEqual((tune["mode"], tune["pins"], tune["limits"]["cache-max"]), ("on", [], 256 << 20))

    def settings(self, daemon):
        """Returns the settings by name, as status and set show them."""
        told = [ask(daemon, "status")["tune"]["settings"], ask(daemon, "jobs")["tune"]["settings"]]
        self.assertEqual(told[0], told[1])
        return {one.pop("name"): one for one in told[0]}

    def configured(self, text):
        with open(self.config, "w") as file:
            file.write("[dieseld]\n" + text)

    def test_each_value_says_where_it_comes_from(self):
        self.config = os.path.join(SCRATCH, "sources.conf")
        self.configured("cache = 128M\n\nworkers-max = 4\nprefetch = 3\n")
        daemon = self.tuned("--config", self.config, "--read-ops-limit", "7", cache=None)
        settings = self.settings(daemon)
        self.assertEqual(settings["tune"], {"value": "on", "from": "default", "job": 0})
        self.assertEqual(settings["cache-max"], {"value": 128 << 20, "from": "file", "file": self.config, "line": 2, "job": 0})
        self.assertEqual(settings["workers-max"], {"value": 4, "from": "file", "file": self.config, "line": 4, "job": 0})
        self.assertEqual(settings["prefetch"], {"value": 3, "from": "file", "file": self.config, "line": 5, "job": 0})
        self.assertEqual(settings["read-ops-limit"], {"value": 7, "from": "option", "job": 0})
        before = int(time.time())
        said = ctl(daemon, "set", "--limit", "workers-max=2", "--limit", "cache-min=16M", "--until-restart")
        ctl(daemon, "set", "workers=1", "--tune", "off")
        settings = self.settings(daemon)
        limit = settings["workers-max"]
        self.assertGreaterEqual(limit.pop("at"), before)
        self.assertEqual(limit, {"value": 2, "from": "set", "uid": os.geteuid(), "until_restart": True, "job": 0,
                                 "configured": {"value": 4, "from": "file", "file": self.config, "line": 4}})
        self.assertEqual((settings["tune"]["value"], settings["tune"]["configured"]), ("off", {"value": "on", "from": "default"}))
        self.assertEqual((settings["workers"]["value"], settings["workers"]["configured"]), (1, {"value": None, "from": "default"}))
        for text in (said, ctl(daemon, "status")):
            self.assertRegex(text, rf"(?m)^setting   workers-max: 2, set by uid {os.geteuid()} at [-0-9]+ [:0-9]+ until restart; "
                             rf"otherwise 4 \({self.config}:4\)$")
            self.assertRegex(text, rf"(?m)^setting   cache-max: 128 MiB, {self.config}:2$")
            self.assertRegex(text, r"(?m)^setting   read-limit: none, default$")
            self.assertRegex(text, r"(?m)^setting   read-ops-limit: 7, the command line$")

    def test_what_was_set_is_said_to_go_before_the_file(self):
        self.config = os.path.join(SCRATCH, "overridden.conf")
        self.configured("workers-max = 4\ncache-max = 128M\n")
        daemon = self.tuned("--config", self.config)
        ctl(daemon, "set", "--limit", "workers-max=2", "prefetch=5")
        ctl(daemon, "set", "--limit", "cache-max=64M", "workers=1", "--until-restart")
        at = self.settings(daemon)["workers-max"]["at"]
        self.configured("\nworkers-max = 8\ncache-max = 100M\n")
        daemon.process.send_signal(signal.SIGHUP)
        says = (rf"warning: workers-max=2, which was set by uid {os.geteuid()} at [-0-9]+ [:0-9]+, overrides {self.config}:3 \(8\)\. "
                "To undo that: dieselctl set --unset workers-max\n")
        wait_until("the reload says so", lambda: re.search(says, daemon.output()))
        self.assertRegex(daemon.output(), rf"cache-max=64 MiB, which was set .* overrides {self.config}:4 \(100 MiB\)")
        self.assertRegex(daemon.output(), "prefetch=5, which was set .* overrides the tuner")
        self.assertEqual(daemon.stop(), 0)
        n = len(daemon.output())
        daemon.start()
        self.assertRegex(daemon.output()[n:], says)
        settings = self.settings(daemon)
        # Only persistent settings are back, with the user who set them and the time.
        self.assertEqual((settings["workers-max"]["at"], settings["workers-max"]["uid"]), (at, os.geteuid()))
        self.assertEqual((settings["cache-max"]["from"], settings["cache-max"]["value"]), ("file", 100 << 20))
        self.assertNotIn("workers", settings)
        self.assertEqual(settings["prefetch"]["value"], 5)
        ctl(daemon, "set", "--unset", "workers-max", "--unset", "prefetch")
        settings = self.settings(daemon)
        self.assertEqual((settings["workers-max"]["from"], settings["workers-max"]["value"]), ("file", 8))
        self.assertNotIn("prefetch", settings)
        self.assertEqual(daemon.stop(), 0)
        n = len(daemon.output())
        daemon.start()
        self.assertNotIn("overrides", daemon.output()[n:])

    def test_unset_of_one_job_leaves_the_others(self):
        daemon = self.tuned()
        job = self.job(daemon)
        ctl(daemon, "set", str(job["id"]), "prefetch=5", "read-weight=200")
        self.assertEqual(self.settings(daemon)["prefetch"]["job"], job["id"])
        self.assertIn("lasts only until its job ends", ctl(daemon, "set", str(job["id"]), "read-weight=300", "--until-restart", status=1))
        self.assertIn(f"setting   prefetch of job {job['id']}: 5, set by uid", ctl(daemon, "status"))
        ctl(daemon, "set", str(job["id"]), "--unset", "prefetch", "--unset", "read-weight")
        self.assertNotIn("prefetch", self.settings(daemon))
        self.assertEqual(self.one(daemon, job["id"])["read_weight"], 100)

    def test_what_was_set_for_a_job_survives_a_stop(self):
        daemon = self.tuned()
        job = self.job(daemon)
        ctl(daemon, "set", str(job["id"]), "prefetch=5", "read-weight=200")
        for end in (daemon.stop, daemon.kill, daemon.stop):
            end()
            daemon.start()
            again = wait_until("it is back", lambda: next((j for j in ask(daemon, "jobs")["jobs"] if j["pid"] == job["pid"]), None))
            self.assertEqual((again["id"], again["read_weight"]), (job["id"], 200))
            self.assertEqual(self.settings(daemon)["prefetch"]["value"], 5)

    def test_a_limit_below_a_pin_holds(self):
        daemon = self.tuned()
        ctl(daemon, "set", "cache=200M")
        said = "pinned: cache-bytes of every job to 200 MiB, but the limit reduces it to 64 MiB"
        self.assertIn(said, ctl(daemon, "set", "--limit", "cache-max=64M"))
        wait_until("the settings are written", lambda: ask(daemon, "jobs")["tune"]["history"]["written"] > 0)
        daemon.kill()
        daemon.start()
        self.assertIn(said, ctl(daemon, "set", "--limit", "prefetch-max=64"))
        self.assertNotIn("is no longer valid", daemon.output())
        self.assertIn("to 200 MiB\n", ctl(daemon, "set", "--limit", "cache-max=auto"))

    def test_reads_are_limited(self):
        daemon = self.tuned()
        self.assertIsNone(daemon.status()["reads"]["limit_bytes_per_s"])
        self.assertIn("read-limit none", ctl(daemon, "set", "--limit", "cache-max=auto"))
        self.assertIn("read-limit none", ctl(daemon, "set", "--limit", "read-limit=none"))
        self.assertIn("read-limit 2.0 MiB", ctl(daemon, "set", "--limit", "read-limit=2M"))
        job = self.job(daemon)
        wait_until("the limit keeps reads back", lambda: daemon.status()["reads"]["limited_s"] > 0.5)
        text = ctl(daemon, "why")
        self.assertIn("reads are limited to 2.0 MiB per second, which delayed some reads by ", text)
        status = daemon.status()
        # Counted from its start: 2 MiB per second, a tenth of that ahead, and one chunk.
        self.assertLessEqual(status["cache"]["read_bytes"], (status["uptime_s"] + 0.1) * (2 << 20) + (1 << 24), job)
        ctl(daemon, "set", "--limit", "read-limit=auto")
        self.assertNotIn("limited to", ctl(daemon, "why"))

    def test_a_job_is_tuned_and_explained(self):
        daemon = self.tuned()
        job = self.job(daemon)["id"]
        wait_until("samples come", lambda: self.one(daemon, job)["now"])
        ctl(daemon, "set", str(job), "workers=1", "prefetch=3", "cache=64M")
        wait_until("the pins hold", lambda: all(self.one(daemon, job)["knobs"][knob]["value"] == value for knob, value in
                                                (("daemon-workers", 1), ("prefetch-chunks", 3), ("cache-bytes", 64 << 20))))
        self.assertEqual(self.one(daemon, job)["read_weight"], 100)
        self.assertIn("from 1 to 10000", ctl(daemon, "set", str(job), "read-weight=0", status=1))
        self.assertIn(f"read-weight of job {job}: 300\n", ctl(daemon, "set", str(job), "read-weight=300"))
        why = ask(daemon, "why", str(job))
        pins = [d for d in why["decisions"] if d["rule"] == "pin"]
        self.assertTrue(pins, why)
        for d in pins:
            self.assertTrue(d["applied"] and d["reason"] and d["sample"]["shares"], d)
        text = ctl(daemon, "why", str(job))
        self.assertIn("why: ", text)
        self.assertIn("measured: ", text)
        self.assertIn("*", ctl(daemon, "jobs"))
        top = [f"{BIN}/diesel-top", "--once", "-d", "0.2", "--daemon", "--socket", daemon.socket]
        wait_until("diesel-top shows them", lambda: "prefetch-chunks" in [d["knob"] for d in json.loads(run(*top, check=0).stdout)["decisions"]])
        status = daemon.status()
        self.assertEqual([j["id"] for j in status["jobs"]], [job])
        # After a kill and a restart it is the same job, with its number and its pins.
        wait_until("the job is written down", lambda: ask(daemon, "jobs")["tune"]["history"]["written"] > 5)
        time.sleep(1)
        daemon.kill()
        daemon.start()
        again = wait_until("the job is back", lambda: next(iter(ask(daemon, "jobs")["jobs"]), None))
        self.assertEqual(again["id"], job)
        self.assertTrue(again["knobs"]["daemon-workers"]["pinned"])
        self.assertEqual(again["read_weight"], 300)
        self.assertNotIn("read-weight", ctl(daemon, "set", str(job), "read-weight=auto"))
        self.assertTrue(ask(daemon, "why", str(job))["decisions"])
        # A replay of the recording makes the same decisions each time.
        wait_until("rounds are written", lambda: '"job"' in ctl(daemon, "replay", "--json", self.history))
        daemon.kill()
        self.assertEqual(ctl(daemon, "replay", self.history), ctl(daemon, "replay", self.history))
        advice = json.loads(ctl(daemon, "advise", "--json", self.history))
        self.assertEqual((advice["jobs_at_once"], advice["datasets"]), (1, 1))
        self.assertGreaterEqual(advice["cache_max_bytes"], advice["needed_bytes"])
        self.assertGreater(advice["stage_bytes"], 0)
        self.assertIn(f"cache-max = {math.ceil(advice['cache_max_bytes'] / 2 ** 20)}M", ctl(daemon, "advise", self.history))
        daemon.start()

    def test_three_jobs_are_replayed_as_they_were(self):
        daemon = self.tuned()
        for k in range(3):
            job = self.job(daemon, pause_us=2000 if k else 0)["id"]
            # On a busy machine the tuner may find nothing to change by itself.
            ctl(daemon, "set", str(job), "workers=1", f"prefetch={3 + k}")
            wait_until("something is decided", lambda: ask(daemon, "why", str(job))["decisions"])
            os.kill(self.one(daemon, job)["pid"], signal.SIGKILL)
            wait_until("the job is gone", lambda: not ask(daemon, "jobs")["jobs"])
        told = ask(daemon, "why", "-n", "256")["decisions"][::-1]  # the newest comes first
        daemon.stop()
        replayed = list(map(json.loads, ctl("/nowhere", "replay", "--json", self.history).splitlines()))

        def of(d):  # the cache reports the size that a knob reached, where the reason has it
            return [d[name] for name in ("job", "knob", "rule", "from")] + [d["to"]] * ("held at" not in d["reason"])

        self.assertEqual(len(told), len(replayed))
        for one, other in zip(told, replayed):
            self.assertEqual(of(one), of(other)[:len(of(one))], (one, other))

    def test_dry_run_changes_nothing(self):
        daemon = self.tuned("--tune", "dry-run")
        job = self.job(daemon)["id"]
        wait_until("samples come", lambda: self.one(daemon, job)["now"])
        time.sleep(5)
        for d in ask(daemon, "why", str(job))["decisions"]:
            self.assertFalse(d["applied"], d)

    @unittest.skipIf(os.getuid() != 0, "needs root to be somebody else")
    def test_other_users_see_and_set_nothing(self):
        daemon = self.tuned()
        job = self.job(daemon)["id"]
        self.assertIn("only root", ctl(daemon, "set", "workers=1", status=1, user=NOBODY))
        self.assertIn("no job", ctl(daemon, "why", str(job), status=1, user=NOBODY))
        self.assertIn("no jobs", ctl(daemon, "jobs", user=NOBODY))
        self.assertEqual(ask(daemon, "jobs")["tune"]["pins"], [])

    def test_a_history_that_cannot_be_written_is_told(self):
        damaged, folder = os.path.join(SCRATCH, "damaged.db"), os.path.join(SCRATCH, "folder.db")
        wrong = os.path.join(SCRATCH, "wrong.db")
        self.daemon("--history", damaged).stop()
        with open(damaged, "r+b") as f:
            f.seek(100)
            f.write(b"\xaa" * 3996)
        os.mkdir(folder)
        with open(wrong, "w") as f:
            f.write("no database " * 100)
        for history, says in ((damaged, "renamed it to"), ("/nowhere/h.db", "memory only"), (folder, "memory only"),
                              (wrong, "is not a history")):
            daemon = self.daemon("--history", history)
            self.assertIn(says, daemon.output())
            self.assertEqual(len([line for line in daemon.output().splitlines() if history in line]), 1)
            ctl(daemon, "set", "workers=1")
            daemon.stop()

    @unittest.skipIf(os.getuid() != 0, "needs root to mount a small disk")
    def test_a_full_disk_drops_records_and_serving_goes_on(self):
        disk = tempfile.mkdtemp(dir=SCRATCH)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], capture_output=True).returncode:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", disk])
        daemon = self.daemon("--history", os.path.join(disk, "h.db"))
        job = self.job(daemon)["id"]
        with open(os.path.join(disk, "fill"), "wb") as f:
            try:
                f.write(bytes(1 << 20))
            except OSError:
                pass
        for i in range(30):
            ctl(daemon, "set", f"workers={1 + i % 2}")
        dropped = wait_until("records are dropped", lambda: ask(daemon, "jobs")["tune"]["history"]["dropped"])
        self.assertGreater(dropped, 0)
        self.assertIn("full", ask(daemon, "jobs")["tune"]["history"]["problem"])
        batches = self.one(daemon, job)["batches"]
        wait_until("serving goes on", lambda: self.one(daemon, job)["batches"] > batches)

    def test_a_reload_takes_limits_and_tells_mistakes(self):
        config = os.path.join(SCRATCH, "control.conf")

        def write(text):
            with open(config, "w") as f:
                f.write("[dieseld]\n" + text)
        write("workers-max = 3\n")
        daemon = self.daemon("--config", config, "--history", "off")
        self.assertEqual(ask(daemon, "jobs")["tune"]["limits"]["workers-max"], 3)
        write("workers-max = 2\ntune = dry-run\n")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until("it is read again", lambda: ask(daemon, "jobs")["tune"]["limits"]["workers-max"] == 2)
        self.assertEqual(ask(daemon, "jobs")["tune"]["mode"], "dry-run")
        for text, says in (("workers-max = 2\ntune = sometimes\n", ":3:8:"), ("workers-max = 200\n", "from 1 to 64"),
                           ("cache-min = 10G\n", "more than cache-max")):
            write(text)
            daemon.process.send_signal(signal.SIGHUP)
            wait_until("the mistake is told", lambda: says in daemon.output())
            self.assertEqual(ask(daemon, "jobs")["tune"]["limits"]["workers-max"], 2)
            check = subprocess.run([os.path.join(BIN, "dieseld"), "--check-config", "--config", config],
                                   capture_output=True, text=True)
            self.assertEqual(check.returncode, 2)
            self.assertIn(says, check.stderr)

    def test_replay_refuses_what_is_no_history(self):
        other = os.path.join(SCRATCH, "other.txt")
        with open(other, "w") as f:
            f.write("text " * 300)
        for path in (other, "/nowhere.db"):
            self.assertIn(path, ctl("/nowhere", "replay", path, status=1))
        self.assertIn("there is no history /nowhere.db: start dieseld with --history /nowhere.db", ctl("/nowhere", "advise", "/nowhere.db", status=1))
        # SQLite files: a foreign one, a session of a newer version, an empty one, half of one.
        for application, version, says in ((0, 0, "neither a history"), (0x444c5331, 99, "or record again"),
                                           (0x444c5331, 2, "too short to decide on"), (0x444c5331, None, "neither a history")):
            path = os.path.join(SCRATCH, f"session-{application}-{version}.db")
            with contextlib.closing(sqlite3.connect(path)) as db:
                db.executescript(f"""CREATE TABLE info(key TEXT PRIMARY KEY, value TEXT);
                    CREATE TABLE events(id INTEGER PRIMARY KEY, slice, min_end_ns, max_end_ns, n, records BLOB);
                    CREATE TABLE notes(kind TEXT, key INTEGER, value BLOB);
                    PRAGMA application_id = {application}; PRAGMA user_version = {version or 2};""")
            if version is None:
                os.truncate(path, 70)
            line = ctl("/nowhere", "replay", path, status=1)
            self.assertIn(path, line)
            self.assertIn(says, line)


if __name__ == "__main__":
    main()
