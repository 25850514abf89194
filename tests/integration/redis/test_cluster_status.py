# SPDX-License-Identifier: Apache-2.0
"""Tests dieselctl cluster status: its output for real nodes on a real Redis server, and for foreign values there."""
import json

from common.waiting import wait_until
from registry_nodes import Node
from servers import Case, Server, dieselctl, main, temporary


class ClusterStatusTest(Case):
    @classmethod
    def setUpClass(cls):
        cls.root = cls.enterClassContext(temporary())
        cls.server = Server(cls.root)
        cls.addClassCleanup(lambda: cls.server.stop())

    def setUp(self):
        self.url = self.server.url(self._testMethodName)

    def node(self, name, address="10.0.0.1:7077"):
        node = Node(self.url, name, address)
        self.addCleanup(node.kill)
        return node

    def groups(self, n):
        wait_until("all are listed", lambda: sum(len(g["members"]) for g in self.status()["groups"]) == n)
        return self.status()["groups"]

    def status(self):
        told = json.loads(dieselctl("cluster", "status", "--redis", self.url, "--json").stdout)
        self.assertEqual(told["schema"], "diesel.cluster/1")
        return told

    def text(self):
        return dieselctl("cluster", "status", "--redis", self.url).stdout

    def test_no_group_is_said_in_words(self):
        self.assertEqual(self.text(), "no job runs on several nodes\n")
        self.assertEqual(self.status()["groups"], [])

    def test_jobs_are_shown_with_their_nodes(self):
        a, b, c = self.node("a"), self.node("b", "10.0.0.2:7077"), self.node("c", "[fd00::3]:7077")
        a.join("train", weight=1 << 30)
        b.join("train", weight=3 << 30)
        c.join("train", weight=0)
        for node in (a, b):
            node.join("well")
        c.join("alone")
        groups = self.groups(6)
        self.assertEqual([(g["job"], g["problems"]) for g in groups], [("train", ["no_memory"]), ("alone", ["alone"]), ("well", [])])
        self.assertEqual(groups[0]["members"], [
            {"node": "a", "address": "10.0.0.1:7077", "path": "/data/set", "memory_bytes": 1 << 30, "share": 0.25},
            {"node": "b", "address": "10.0.0.2:7077", "path": "/data/set", "memory_bytes": 3 << 30, "share": 0.75},
            {"node": "c", "address": "[fd00::3]:7077", "path": "/data/set", "memory_bytes": 0, "share": 0}])
        self.assertEqual([m["share"] for m in groups[2]["members"]], [0.5, 0.5])
        self.assertEqual((groups[0]["uid"], groups[0]["dataset"], groups[0]["memory_bytes"]), (1000, "010203" + 26 * "0", 4 << 30))
        lines = self.text().splitlines()
        self.assertEqual(lines[0], "job train of uid 1000: /data/set, version 01020300; 3 nodes, 4.0 GiB together")
        self.assertIn("  ! nodes without memory", lines[1])
        self.assertEqual(lines[4].split(), ["b", "10.0.0.2:7077", "3.0", "GiB", "75.0", "%"])
        env = dieselctl("cluster", "status", DIESEL_REDIS=self.url).stdout
        self.assertIn("job train of uid 1000", env)
        (self.root / "url").write_text(self.url + "\n")
        self.assertIn("job train of uid 1000", dieselctl("cluster", "status", DIESEL_REDIS_FILE=str(self.root / "url")).stdout)
        b.kill()
        wait_until("the end of a dead node", lambda: "b" not in [m["node"] for g in self.status()["groups"] for m in g["members"]])

    def test_problems_of_a_group_are_named(self):
        a, b = self.node("a"), self.node("b")
        for node in (a, b):
            node.join("one")
        self.assertEqual([g["problems"] for g in self.groups(2)], [["same_address"]])
        self.assertIn("--cluster-advertise", self.text())
        c = self.node("c", "10.0.0.3:7077")
        c.say("join 1000 one 1 4")  # the job at another version of the dataset
        c.say("join 1001 one 1 4")  # another user's
        found = {(g["uid"], g["dataset"][:6]): g["problems"] for g in self.groups(4)}
        self.assertEqual(found, {(1000, "010203"): ["same_address", "other_version"], (1000, "010204"): ["other_version", "alone"],
                                 (1001, "010204"): ["alone"]})
        self.assertTrue(self.text().startswith("job one of uid 1000: /data/set, version 01020300; 2 nodes"))
        # A value under the name of a group that is not its own.
        key = self.server.cli("keys", "test_problems_of_a_group_are_named:cluster:*:node:a").decode()
        group = "0123456789abcdef0123456789abcdef"
        self.server.ask(("zadd", "test_problems_of_a_group_are_named:cluster:groups", "9e12", group), ("zadd", f"test_problems_of_a_group_are_named:cluster:{{{group}}}:nodes", "9e12", "a"),
                        ("set", f"test_problems_of_a_group_are_named:cluster:{{{group}}}:node:a", self.server.cli("get", key) + b"\n"))
        self.assertEqual(len(self.groups(4)), 3)

    def test_hostile_names_are_escaped(self):
        a, b = self.node("a"), self.node("caf\u00e9", "10.0.0.2:7077")
        for node in (a, b):
            node.join("\x1b[2J\"\\\udcff\u202e", weight=1)
        groups = self.groups(2)
        self.assertEqual(groups[0]["job"], "\x1b[2J\"\\\\xff\u202e")
        text = self.text()
        self.assertIn("job \\x1b[2J\"\\x5c\\xff", text)
        self.assertNotIn("\x1b", text)
        self.assertIn("caf\u00e9", text)

    def test_wrong_use_is_an_error(self):
        for args, word in ((["cluster"], "status"), (["cluster", "start"], "status"), (["cluster", "status"], "DIESEL_REDIS"),
                           (["cluster", "status", "--redis"], "argument"), (["cluster", "status", "--what"], "--what")):
            done = dieselctl(*args, check=2)
            self.assertIn(word, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)
        for url, word in (("http://x", "redis://"), ("redis://127.0.0.1:1", "cannot connect"), ("redis://u:secret@127.0.0.1:1", "cannot connect")):
            done = dieselctl("cluster", "status", "--redis", url, check=1, DIESEL_REDIS_WAIT="1")
            self.assertIn(word, done.stderr)
            self.assertNotIn("secret", done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    main()
