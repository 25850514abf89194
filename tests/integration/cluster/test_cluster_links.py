# SPDX-License-Identifier: Apache-2.0
"""Tests nodes on machines of their own, as far as the network goes: namespaces, with links that are slow, one-way or cut."""
import os
import subprocess
import sys
import unittest

from cluster_support import Cluster

KIB, MIB = 1 << 10, 1 << 20


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Link:
    """Two namespaces, .1 and .2, with one link between them."""

    def __init__(self):
        self.names = [f"dslc{os.getpid() % 100000}{end}" for end in "ab"]
        self.hosts = ["10.199.7.1", "10.199.7.2"]

    def __enter__(self):
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", "eth0", "netns", self.names[0], "type", "veth", "peer", "name", "eth0", "netns", self.names[1])
        macs = []
        for name, host in zip(self.names, self.hosts):
            ip("-n", name, "addr", "add", f"{host}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
            with_mac = subprocess.check_output(["ip", "-n", name, "-br", "link", "show", "eth0"], text=True)
            macs.append(with_mac.split()[2])
        for i in (0, 1):  # so that no ARP request is lost, or answered late
            ip("-n", self.names[i], "neigh", "replace", self.hosts[1 - i], "lladdr", macs[1 - i], "dev", "eth0", "nud", "permanent")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def wrap(self, i):
        return ["ip", "netns", "exec", self.names[i]]

    def shape(self, i, *words):
        """Shapes the traffic that this end sends."""
        subprocess.run([*self.wrap(i), "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *words], check=True)

    def black_hole(self, i):
        """Drops all packets that this end sends: no packet is as short as the bucket."""
        self.shape(i, "rate", "8bit", "burst", "8", "limit", "8")

    def free(self, i):
        subprocess.run([*self.wrap(i), "tc", "qdisc", "del", "dev", "eth0", "root"], check=True)


class Links(unittest.TestCase):
    def setUp(self):
        self.link = self.enterContext(Link())
        self.cluster = self.enterContext(Cluster())

    def node(self, i, name, **options):
        return self.cluster.node(name, f"{self.link.hosts[i]}:7700", wrap=self.link.wrap(i), **options)

    def two(self):
        nodes = [self.node(i, name, key=self.cluster.key()) for i, name in enumerate("ab")]
        for node in nodes:
            node.members(2)
        return nodes

    def test_a_link_that_works_one_way_makes_both_nodes_unreachable(self):
        a, b = self.two()
        for i in (0, 1):
            numbers = a.not_ours(MIB, 2)
            self.assertEqual(a.fetch(numbers[0], MIB), 0)
            self.link.black_hole(i)
            a.ask(numbers[1], MIB, 1500)
            self.assertIn(a.wait("done", numbers[1])[2], ("-110", "-104"))
            for node in (a, b):
                node.members(1)
            self.link.free(i)
            for node in (a, b):
                node.members(2)
            self.assertEqual(a.fetch(numbers[1], MIB), 0)

    def test_a_cut_link_is_used_again(self):
        a, b = self.two()
        number, = a.not_ours(MIB)
        ip("-n", self.link.names[1], "link", "set", "eth0", "down")
        a.ask(number, MIB, 1500)
        self.assertIn(a.wait("done", number)[2], ("-110", "-104"))
        a.members(1)
        a.wait_said("node b is unreachable")
        ip("-n", self.link.names[1], "link", "set", "eth0", "up")
        a.members(2)
        self.assertEqual(a.fetch(number, MIB), 0)

    def test_a_slow_link_delays_nobody(self):
        a, b = self.two()
        small, = a.not_ours(64 * KIB)
        large = a.not_ours(8 * MIB, 3)
        self.link.shape(1, "rate", "20mbit", "burst", "32k", "latency", "50ms")
        self.assertEqual(a.fetch(small, 64 * KIB), 0)
        for number in large:  # takes some seconds each, but pings and questions do not wait for all of it
            a.ask(number, 8 * MIB, 60000)
        self.assertEqual(a.fetch(small, 64 * KIB, 30000), 0, (a.said(), b.said(), a.done))
        for number in large:
            self.assertEqual(a.wait("done", number)[2], "0")
        self.assertNotIn("unreachable", a.said())
        self.assertNotIn("unreachable", b.said())
        for number in large:  # a trainer does not wait so long
            a.ask(number, 8 * MIB, 300)
        for number in large:
            self.assertIn(a.wait("done", number)[2], ("-110", "-11"))
        a.members(1)
        a.members(2)
        self.assertEqual(a.fetch(small, 64 * KIB), 0)
        self.assertEqual(b.held(), 0)

    def test_a_node_with_another_key_is_no_peer(self):
        a = self.node(0, "a", key=self.cluster.key())
        b = self.node(1, "b", key=self.cluster.key("another key, of the same length.", "other"))
        a.wait_said("the peer has another --cluster-key")
        b.wait_said("the peer has another --cluster-key")
        for node in (a, b):
            node.members(1)
            node.say(f"ours 1 {MIB}")
            self.assertEqual(node.wait("ours", 1)[2], "1")

    def test_a_peer_without_key_is_refused(self):
        a = self.node(0, "a", key=self.cluster.key())
        for hello in (True, False):
            code = (f"import sys; sys.path[:0] = [{os.path.dirname(os.path.abspath(__file__))!r}]\nfrom cluster_support import Peer\n"
                    f"Peer('0', 7700, host={self.link.hosts[0]!r}, hello={hello}).is_closed()")
            subprocess.run([*self.link.wrap(1), sys.executable, "-c", code], check=True, timeout=60)
        a.wait_said("the peer does not use TLS")
        a.wait_said("the peer sent no hello within 2 s")


class Options(unittest.TestCase):
    def refused(self, cluster, text, address="127.0.0.1:0", key=None, advertise=None, name="a", url="file:"):
        command = [os.path.join(os.environ["DIESEL_BIN"], "cluster_node"), url + cluster.path, name, address]
        done = subprocess.run(command + ([key or ""] if key or advertise else []) + ([advertise] if advertise else []),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn(text, done.stderr)

    def test_bad_addresses_are_errors(self):
        with Cluster() as cluster:
            key = cluster.key()
            self.refused(cluster, "unless --cluster-key", "0.0.0.0:0")
            self.refused(cluster, "unless --cluster-key", "[::]:0")
            self.refused(cluster, "--cluster-advertise", "0.0.0.0:0", key)
            self.refused(cluster, "--cluster-advertise", "127.0.0.1:0", key, "0.0.0.0:1")
            self.refused(cluster, "numeric address with a port", "localhost:1")
            self.refused(cluster, "Cannot assign requested address", "203.0.113.7:0", key)
            self.refused(cluster, "valid node name", name="a b")
            self.refused(cluster, "must have at most", name="a" * 64)
            cluster.path = "nothing"
            self.refused(cluster, "not a file", url="http:")

    def test_bad_keys_are_errors(self):
        with Cluster() as cluster:
            key = cluster.key()
            for mode in (0o640, 0o604, 0o620):
                os.chmod(key, mode)
                self.refused(cluster, "chmod 600", key=key)
            self.refused(cluster, "expected a key of 16 to 4096 bytes, got 15", key=cluster.key("x" * 15, "short"))
            self.refused(cluster, "expected a key of 16 to 4096 bytes", key=cluster.key("x" * 5000, "long"))
            self.refused(cluster, "No such file", key=key + "-none")
            self.refused(cluster, "not a regular file", key="/dev/null")
            if os.geteuid() == 0:
                other = cluster.key("x" * 32, "other")
                os.chown(other, 65534, 65534)
                self.refused(cluster, "owned by user 65534", key=other)


def may_make_namespaces():
    if os.geteuid() != 0:
        return "takes root: network namespaces"
    name = f"dslc{os.getpid()}x"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "network namespaces cannot be made here"
    done = subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", "lo", "root", "tbf", "rate", "1gbit",
                           "burst", "64k", "latency", "50ms"], capture_output=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return "" if done.returncode == 0 else "this kernel has no tbf, which shapes links"


WHY = may_make_namespaces()
if WHY:
    Links = unittest.skip(WHY)(Links)

if __name__ == "__main__":
    unittest.main()
