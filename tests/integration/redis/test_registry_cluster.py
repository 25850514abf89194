# SPDX-License-Identifier: Apache-2.0
"""Tests the registry on a real Redis Cluster: a part with a group dies, with and without a replica, and all other groups continue."""
import signal
import subprocess
import time

from common.waiting import wait_until
from registry_nodes import Node
from servers import BIN, Case, Cluster, main

LEASE_S = 3


class RegistryClusterTest(Case):
    n_replicas = 1

    def start(self, n_replicas):
        self.cluster = Cluster(self.root, 3, n_replicas)
        self.addCleanup(self.cluster.stop)

    def node(self, name, number, server):
        node = Node(server.url("team"), name, f"10.0.0.{number}:7077")
        self.addCleanup(node.kill)
        return node

    def groups(self):
        """Returns, group by group, the job and the master that has it."""
        done = subprocess.run([BIN / "registry_node", "list", self.cluster.masters()[0].url("team")], capture_output=True, text=True, check=True)
        found = {}
        for line in done.stdout.splitlines():
            group, _, job, *_ = line.split()
            found[job] = self.cluster.owner(self.cluster.slot(f"team:cluster:{{{group}}}:nodes"))
        return found

    def pair(self, *servers, n_jobs=12):
        a, b = self.node("a", 1, servers[0]), self.node("b", 2, servers[1])
        for node in (a, b):
            for i in range(n_jobs):
                node.join(f"job{i}")
        for node in (a, b):
            for i in range(n_jobs):
                node.sees(f"job{i}", "a", "b")
        wait_until("all are listed", lambda: len(self.groups()) == n_jobs)
        return a, b, self.groups()

    def stayed(self, nodes, jobs):
        for node in nodes:
            for job in jobs:
                views = [sorted(v) for v in node.views(job)]
                self.assertTrue(all({"a", "b"} <= set(v) for v in views[views.index(["a", "b"]):]), f"{node.name} lost one of {job}: {views}")

    def test_members_stay_while_a_replica_takes_over(self):
        """Kills a master, then makes another one hang: the replica of each replaces it, found through the others. No member is lost
        meanwhile."""
        self.start(1)
        masters = self.cluster.masters()
        a, b, groups = self.pair(masters[0], masters[1])
        self.assertEqual(len(set(s.port for s in groups.values())), 3)
        for lost, how in ((masters[0], "kill"), (masters[1], "hang")):
            if how == "kill":
                lost.stop()
            else:
                lost.send(signal.SIGSTOP)
            wait_until("a replica in its place", lambda: lost not in self.owners(lost))
            c = self.node(how, 3, masters[2])
            for node in (a, b, c):
                for job in groups:
                    node is not c or c.join(job)
            for node in (a, b, c):
                for job in groups:
                    node.sees(job, "a", "b", how)
            c.stop()
            for node in (a, b):
                node.server_is("up")
                for job in groups:
                    node.sees(job, "a", "b")
            if how == "kill":
                lost.start()
            else:
                lost.send(signal.SIGCONT)
            self.cluster.wait()
        self.stayed((a, b), groups)

    def owners(self, lost):
        """Returns the masters that have slots, from a running one."""
        import json
        asked = next(s for s in self.cluster.nodes if s is not lost and s.process.poll() is None)
        ports = [master[1] for _, _, master, *_ in json.loads(asked.cli("--json", "cluster", "slots"))]
        return [s for s in self.cluster.nodes if s.port in ports]

    def test_groups_of_the_other_parts_go_on(self):
        """Without a replacement, the groups of that part keep their known members, and other groups continue."""
        self.start(0)
        for s in self.cluster.nodes:
            s.cli("config", "set", "cluster-require-full-coverage", "no")
        a, b, groups = self.pair(self.cluster.nodes[0], self.cluster.nodes[1])
        lost = groups["job0"]
        there = [job for job, s in groups.items() if s is lost]
        others = [job for job in groups if job not in there]
        for how in ("kill", "hang"):
            if how == "kill":
                lost.stop()
            else:
                lost.send(signal.SIGSTOP)
            for node in (a, b):
                node.server_is("down")
            c = self.node(how, 3, next(s for s in self.cluster.nodes if s is not lost))
            for job in groups:
                c.join(job)
            for node in (a, b, c):
                for job in others:
                    node.sees(job, "a", "b", how)
            time.sleep(LEASE_S + 1)
            for node in (a, b):
                for job in there:
                    self.assertEqual(sorted(node.view(job)), ["a", "b"])
                for job in others:
                    self.assertEqual(sorted(node.view(job)), sorted(["a", "b", how]))
            if how == "kill":
                lost.start()
            else:
                lost.send(signal.SIGCONT)
            for node in (a, b, c):
                node.server_is("up")
                for job in groups:
                    node.sees(job, "a", "b", how)
            c.stop()
            for node in (a, b):
                for job in groups:
                    node.sees(job, "a", "b")
            self.cluster.wait()
        for node in (a, b):
            for job in groups:
                self.assertTrue(all({"a", "b"} <= set(v) for v in node.views(job)[2:]), node.views(job))


if __name__ == "__main__":
    main()
