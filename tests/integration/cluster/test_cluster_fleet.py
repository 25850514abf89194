# SPDX-License-Identifier: Apache-2.0
"""Tests the figures of jobs on several nodes, which each node shows: diesel-top --nodes, dieselctl cluster status."""
import itertools
import json
import os
import subprocess
import unittest

import dieseld_support as support
from nodes import Case, read_all, wait_until


class Fleet(Case):
    n_samples = 320

    def told(self, program, *args):
        env = {k: v for k, v in os.environ.items() if not k.startswith("DIESEL_")}
        return subprocess.run([os.path.join(support.BIN, program), *args], capture_output=True, text=True, check=True, env=env).stdout

    def top(self):
        return json.loads(self.told("diesel-top", "--nodes", self.redis.url(""), "--once", "-d", "0.1"))

    def groups(self):
        return json.loads(self.told("dieselctl", "cluster", "status", "--redis", self.redis.url(""), "--json"))["groups"]

    def test_jobs_of_two_nodes_are_shown_together(self):
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
            self.assertTrue(job["name"].startswith("job"), job["name"])  # the name that the loaders give
            self.assertEqual(job["state"], "running")
        (group,) = wait_until("the group", lambda: [g for g in self.groups() if len(g["members"]) == 2])
        self.assertEqual((group["job"], group["uid"], [m["node"] for m in group["members"]]), ("job", os.getuid(), names))
        self.assertTrue(all(m["path"] == str(self.path) and m["memory_bytes"] > 0 for m in group["members"]))
        self.assertAlmostEqual(sum(m["share"] for m in group["members"]), 1, places=4)
        # Two ends: a loader stops and disappears from the list; another is killed and becomes silent.
        for loader in loaders:
            loader.close()
        nodes[0].daemon.stop()
        wait_until("the other is alone", lambda: [(m["node"], g["problems"]) for g in self.groups() for m in g["members"]] == [(nodes[1].name, ["alone"])])
        wait_until("the stopped node is gone", lambda: [n["name"] for n in self.top().get("nodes", [])] == [nodes[1].name])
        nodes[1].daemon.kill()
        wait_until("the killed node is silent", lambda: [n["state"] for n in self.top().get("nodes", [])] == ["silent"])


class Tiers(Case):
    """Tests the shares from memory, from other nodes and from storage that one node shows."""
    n_samples = 192

    def told(self, program, node, *args):
        return subprocess.run([os.path.join(support.BIN, program), *args, "--socket", node.socket], capture_output=True, text=True, check=True).stdout

    def test_reports_say_where_chunks_come_from(self):
        nodes = self.nodes(2, "--tune", "dry-run")
        loaders = self.loaders(nodes, lanes=1)  # with a lane per rank, nothing would come from the other node

        def job():
            read_all(loaders)
            (found,) = json.loads(self.told("dieselctl", nodes[0], "jobs", "--json"))["jobs"]
            now = found["now"]
            return found if now and (now["peer_hit_ratio"] or 0) > 0 and now["tiers"]["nodes"]["latency_s"] and found["tuner"] else None
        found = wait_until("chunks of the other node are counted", job)
        now = found["now"]
        self.assertEqual(found["nodes"]["reachable"], 2)
        self.assertLessEqual(now["memory_hit_ratio"] + now["peer_hit_ratio"], 1.000001)
        self.assertGreater(now["source_bytes_per_s"], 0)
        self.assertGreater(now["tiers"]["nodes"]["bytes_per_s"], 0)
        self.assertGreater(now["tiers"]["nodes"]["chunks_per_s"], 0)

        def why():
            read_all(loaders)
            text = self.told("dieselctl", nodes[0], "why")
            return text if "tiers: memory " in text else None
        self.assertRegex(wait_until("why", why), r"tiers: memory [0-9]+ ?%, other nodes [0-9]+ ?%")

        def top():
            read_all(loaders)
            jobs = json.loads(self.told("diesel-top", nodes[0], "--once", "-d", "0.1")).get("jobs", [])
            return [job for job in jobs if job.get("node_latency_s")]
        (seen,) = wait_until("diesel-top", top)
        self.assertEqual((seen["n_reached"], seen["n_members"]), (2, 2))
        self.assertGreater(seen["node_chunks_per_s"], 0)
        # The other node is killed, and shown as unreachable.
        nodes[1].daemon.kill()

        def alone():
            jobs = json.loads(self.told("diesel-top", nodes[0], "--once", "-d", "0.1")).get("jobs", [])
            return [job for job in jobs if job.get("n_reached") == 1]
        wait_until("it is alone", alone)


if __name__ == "__main__":
    unittest.main(verbosity=2)
