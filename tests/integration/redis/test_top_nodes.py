# SPDX-License-Identifier: Apache-2.0
"""Tests diesel-top --nodes: jobs of several nodes, by a real Redis server, where some are silent, gone, or foreign."""
import json
import os
import signal
import subprocess

from common.waiting import wait_until
from registry_nodes import Node
from servers import BIN, Case, main


def job(number, stall_s, **other):
    return {"id": number, "pid": 100 + number, "uid": 1000, "name": f"python3 train{number}.py", "job": None, "dataset": "/data/set", "age_s": 100,
            "measured_s": 100, "stall_s": stall_s, "source": "client", "samples_per_s": 500.0, "steps_per_s": 5.0,
            "shares": {"fetch_stall": 0.25, "prep_stall": 0.0, "device": 0.75}} | other


class TopNodesTest(Case):
    def setUp(self):
        super().setUp()
        self.server = self.serve()
        self.url = self.server.url("team")

    def node(self, name, *jobs, **other):
        node = Node(self.url, name, "10.0.0.1:7077")
        self.addCleanup(node.kill)
        node.say("publish " + json.dumps({"schema": "diesel.node/1", "version": "1", "uptime_s": 1, "omitted": 0, "jobs": jobs} | other))
        return node

    def top(self, *args, status=0):
        env = {k: v for k, v in os.environ.items() if not k.startswith("DIESEL_REDIS")} | {"DIESEL_REDIS_WAIT": "1"}
        done = subprocess.run([BIN / "diesel-top", *args], capture_output=True, text=True, env=env, timeout=60)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def once(self):
        return json.loads(self.top("--nodes", self.url, "--once", "-d", "0.1"))

    def nodes(self):
        return {n["name"]: n["state"] for n in self.once().get("nodes", [])}

    def test_jobs_of_all_nodes_are_sorted_by_their_stalls(self):
        self.node("a", job(1, 30), job(2, 7200.5, job="4711"))
        self.node("b", job(1, 300), job(2, None, samples_per_s=None, shares={}))
        wait_until("both nodes", lambda: len(self.nodes()) == 2)
        told = self.once()
        self.assertEqual([(j["node"], j["name"], j.get("stall_s")) for j in told["jobs"]],
                         [("a", "4711 (train2.py)", 7200.5), ("b", "train1.py", 300), ("a", "train1.py", 30), ("b", "train2.py", None)])
        self.assertEqual((told["jobs"][0]["fetch_stall"], told["jobs"][0]["dataset"], told["jobs"][0]["user"]), (0.25, "/data/set", "1000"))
        self.assertNotIn("samples_per_s", told["jobs"][3])
        lines = self.top("--nodes", self.url, "-b", "-n", "1", "-d", "0.2").splitlines()
        self.assertIn("2 nodes", lines[0])
        self.assertIn("NODE", lines[1])
        self.assertEqual([line.split()[:2] for line in lines[2:6]], [["a", "102"], ["b", "101"], ["a", "101"], ["b", "102"]])
        self.assertIn("2h00", lines[2])
        self.assertIn("N/A", lines[5])
        by_pid = self.top("--nodes", self.url, "-b", "-n", "1", "-d", "0.2", "-s", "node").splitlines()
        self.assertEqual([line.split()[0] for line in by_pid[2:6]], ["a", "a", "b", "b"])
        recording = self.root / "rec"
        self.top("--nodes", self.url, "-b", "-n", "2", "-d", "0.2", "-w", str(recording))
        self.assertIn("2h00", self.top("-r", str(recording), "-b"))

    def test_a_node_that_ended_is_silent(self):
        a = self.node("a", job(1, 30))
        self.node("b", job(1, 10))
        wait_until("both nodes", lambda: self.nodes() == {"a": "up", "b": "up"})
        a.kill()
        key = "team:cluster:report:a"
        self.server.cli("pexpire", key, str(600000 - 41000))  # as 41 s later
        told = self.once()
        self.assertEqual({n["name"]: n["state"] for n in told["nodes"]}, {"a": "silent", "b": "up"})
        self.assertEqual({j["node"]: j["state"] for j in told["jobs"]}, {"a": "silent", "b": "running"})
        self.assertIn("1 silent: a for 4", told["self"]["source"])
        self.assertIn("silent", self.top("--nodes", self.url, "-b", "-n", "1", "-d", "0.2"))

    def test_forged_reports_steer_no_terminal(self):
        self.node("good", job(1, 30))
        wait_until("the node", lambda: self.nodes() == {"good": "up"})
        now = "9e14"
        self.server.ask(("set", "team:cluster:report:evil", json.dumps({"schema": "diesel.node/1", "jobs": [job(
            9, 1, name="\x1b[2J\x1b]0;x\x07\n\u202eevil", dataset="\x1b[31m", job="\n\n\x1b[H")]})), ("pexpire", "team:cluster:report:evil", "600000"),
            ("zadd", "team:cluster:reports", now, "evil"), ("zadd", "team:cluster:reports", now, b"\xff\x1b"),
            ("set", "team:cluster:report:deep", "[" * 30000), ("pexpire", "team:cluster:report:deep", "600000"),
            ("zadd", "team:cluster:reports", now, "deep"), *(("zadd", "team:cluster:reports", now, f"forged{i}") for i in range(3000)))
        told = self.once()
        self.assertIn("evil", [n["name"] for n in told["nodes"]] + ["evil"])
        text = self.top("--nodes", self.url, "-b", "-n", "1", "-d", "0.2")
        self.assertNotIn("\x1b", text)
        self.assertNotIn("\x07", text)
        self.server.cli("del", "team:cluster:reports")
        self.server.ask(("zadd", "team:cluster:reports", "1", "evil"), ("zadd", "team:cluster:reports", "1", "good"), ("zadd", "team:cluster:reports", "1", "deep"))
        self.assertEqual(self.nodes(), {"good": "up", "evil": "up", "deep": "unknown"})
        text = self.top("--nodes", self.url, "-b", "-n", "1", "-d", "0.2")
        self.assertNotIn("\x1b", text)
        self.assertEqual(len(text.splitlines()), 5)  # title, head, two jobs, an empty line

    def test_a_server_that_is_gone_is_a_problem_and_no_failure(self):
        self.assertEqual(self.once().get("jobs", []), [])
        self.server.send(signal.SIGSTOP)
        told = self.once()
        self.assertEqual(told.get("jobs", []), [])
        self.server.send(signal.SIGCONT)
        self.server.stop()
        told = self.once()
        self.assertIn("cannot connect", told["daemon"]["problem"])
        self.assertIn("cannot connect", self.top("--nodes", self.url, "-b", "-n", "2", "-d", "0.2"))

    def test_wrong_use_is_an_error(self):
        for args, word in ((["--nodes"], "argument"), (["--nodes", self.url, "-p", "1"], "--nodes"), (["--nodes", self.url, "-r", "x"], "--nodes"),
                           (["--nodes", self.url, "-s", "wrk"], "no column 'wrk'")):
            self.assertIn(word, self.top("--once", *args, status=2))
        self.assertIn("redis://", self.top("--nodes", "http://x", "--once", status=1))
        self.assertNotIn("secret", self.top("--nodes", "redis://u:secret@[::1", "--once", status=1))


if __name__ == "__main__":
    main()
