# SPDX-License-Identifier: Apache-2.0
"""What people are told, at any place, of the jobs of several nodes: diesel-top --nodes, dieselctl cluster status."""
import itertools
import json
import os
import subprocess
import unittest

import dieseld_support as support
from nodes import Case, wait_until


class Fleet(Case):
    n_samples = 320

    def told(self, program, *args):
        env = {k: v for k, v in os.environ.items() if not k.startswith("DIESEL_")}
        return subprocess.run([os.path.join(support.BIN, program), *args], capture_output=True, text=True, check=True, env=env).stdout

    def top(self):
        return json.loads(self.told("diesel-top", "--nodes", self.redis.url(""), "--once", "-d", "0.1"))

    def groups(self):
        return json.loads(self.told("dieselctl", "cluster", "status", "--redis", self.redis.url(""), "--json"))["groups"]

    def test_jobs_of_two_nodes(self):
        nodes = self.nodes(2)
        names = sorted(node.name for node in nodes)
        wait_until("both say that they are there", lambda: sorted(n["name"] for n in self.top().get("nodes", [])) == names)
        self.assertEqual((self.top().get("jobs", []), self.groups()), ([], []))
        loaders = self.loaders(nodes)
        iterators = [iter(loader) for loader in loaders]
        had = [list(itertools.islice(iterator, 3)) for iterator in iterators]
        self.assertTrue(all(len(batches) == 3 for batches in had))

        def jobs():
            found = self.top().get("jobs", [])
            return found if sorted(job["node"] for job in found) == names and all(job.get("dataset") for job in found) else None
        for job in wait_until("the jobs of both nodes", jobs):
            self.assertEqual((job["pid"], job["user"], job["dataset"]), (os.getpid(), str(os.getuid()), str(self.path)))
            self.assertTrue(job["name"].startswith("job"), job["name"])  # as the loaders call it
            self.assertEqual(job["state"], "running")
        (group,) = wait_until("the group", lambda: [g for g in self.groups() if len(g["members"]) == 2])
        self.assertEqual((group["job"], group["uid"], [m["node"] for m in group["members"]]), ("job", os.getuid(), names))
        self.assertTrue(all(m["path"] == str(self.path) and m["memory_bytes"] > 0 for m in group["members"]))
        self.assertAlmostEqual(sum(m["share"] for m in group["members"]), 1, places=4)
        # Their end: one stops, and is no longer there; one is killed, and is silent.
        for loader in loaders:
            loader.close()
        nodes[0].daemon.stop()
        wait_until("the other is alone", lambda: [(m["node"], g["problems"]) for g in self.groups() for m in g["members"]] == [(nodes[1].name, ["alone"])])
        wait_until("who stopped is gone", lambda: [n["name"] for n in self.top().get("nodes", [])] == [nodes[1].name])
        nodes[1].daemon.kill()
        wait_until("who was killed is silent", lambda: [n["state"] for n in self.top().get("nodes", [])] == ["silent"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
