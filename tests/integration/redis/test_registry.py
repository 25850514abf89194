# SPDX-License-Identifier: Apache-2.0
"""Tests membership of groups on a real Redis server: leases, and their fate when the server fails."""
import signal
import subprocess
import time

from common.waiting import wait_until
from registry_nodes import Node
from servers import BIN, Case, main
from test_tls import certify, openssl

LEASE_S = 3


class RegistryTest(Case):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def node(self, name, number=1, url=None, **env):
        node = Node(url or self.server.url("team"), name, f"10.0.0.{number}:7077", **env)
        self.addCleanup(node.kill)
        return node

    def pair(self):
        a, b = self.node("a", 1), self.node("b", 2)
        for node in (a, b):
            node.join("job")
        for node in (a, b):
            node.sees("job", "a", "b")
        return a, b

    def group(self):
        return self.server.cli("zrange", "team:cluster:groups", "0", "-1").decode().split()

    def listed(self, what="list", url=None, status=0):
        done = subprocess.run([BIN / "registry_node", what, url or self.server.url("team")], capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout.splitlines() if status == 0 else done.stderr.splitlines()

    def test_nodes_see_each_other_come_and_go(self):
        a, b = self.pair()
        self.assertEqual(a.view("job")["b"][0], "10.0.0.2:7077")
        self.assertEqual(a.view("job"), b.view("job"))
        self.assertTrue(a.server().startswith("server up"))
        c = self.node("c", 3)
        c.join("job", weight=5)
        for node in (a, b, c):
            node.sees("job", "a", "b", "c")
        self.assertEqual(a.view("job")["c"][2], "5")
        c.join("job", weight=7)
        wait_until("the new weight", lambda: a.view("job")["c"][2] == "7")
        # Another job, another user's, another dataset's: different groups.
        c.join("other")
        c.join("job", uid=1001)
        c.sees("other", "c")
        self.assertEqual(sorted(a.view("job")), ["a", "b", "c"])
        wait_until("all are listed", lambda: len(self.listed()) == 5)
        c.leave("job")
        for node in (a, b):
            node.sees("job", "a", "b")
        self.assertEqual(b.stop(), 0)
        a.sees("job", "a")
        # Each node got a view after each change, and only then.
        for node in (a, b, c):
            for job in ("job", "other"):
                views = node.views(job)
                self.assertTrue(all(x != y for x, y in zip(views, views[1:])) or node is c, views)
        self.assertEqual(a.stop(), 0)
        c.stop()
        self.assertEqual(self.listed(), [])

    def test_a_lease_decides_who_is_there(self):
        """A node that hangs leaves the group when its lease expires, and returns when it continues. A killed node comes back as a new
        member."""
        a, b = self.pair()
        n = len(a.views("job"))
        b.process.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        a.sees("job", "a")
        self.assertGreater(time.monotonic() - begin, LEASE_S - 2)  # its last renewal was at most a second ago
        b.process.send_signal(signal.SIGCONT)
        a.sees("job", "a", "b")
        b.sees("job", "a", "b")
        self.assertEqual(len(a.views("job")), n + 2)
        before = a.view("job")["b"]
        b.kill()
        b = self.node("b", 2)
        b.join("job")
        b.sees("job", "a", "b")
        wait_until("another incarnation", lambda: a.view("job").get("b", before)[1] != before[1])
        self.assertNotIn("too", " ".join(a.lines + b.lines))

    def test_a_flushed_server_is_filled_again(self):
        """The server forgets everything: no member was lost, and soon all are there again."""
        a, b = self.pair()
        views = a.views("job"), b.views("job")
        for _ in range(3):
            self.server.cli("flushall")
            wait_until("the keys are put right", lambda: len(self.listed()) == 2)
            time.sleep(LEASE_S / 2)  # each has read the other's since then
        time.sleep(LEASE_S)
        self.assertEqual((a.views("job"), b.views("job")), views)
        b.kill()
        self.server.cli("flushall")
        a.sees("job", "a")

    def test_members_stay_while_the_server_is_down(self):
        """The server dies, and comes back without its data."""
        a, b = self.pair()
        views = a.views("job"), b.views("job")
        self.server.stop()
        for node in (a, b):
            node.server_is("down")
        c = self.node("c", 3)
        c.join("job")
        c.server_is("down")
        self.assertIsNone(c.view("job"))
        time.sleep(LEASE_S + 1)
        self.assertEqual((a.views("job"), b.views("job")), views)
        self.server.start()
        for node in (a, b, c):
            node.server_is("up")
            node.sees("job", "a", "b", "c")
        for before, node in zip(views, (a, b)):
            self.assertTrue(all({"a", "b"} <= set(view) for view in node.views("job")[len(before):]), "somebody was out meanwhile")

    def test_members_stay_while_the_server_hangs(self):
        """The server neither answers nor closes: members stay, no caller waits, and a node still stops."""
        a, b = self.pair()
        views = a.views("job")
        self.server.send(signal.SIGSTOP)
        for node in (a, b):
            node.server_is("down")
        self.assertIn("127.0.0.1", a.server())
        for i in range(20):  # callers return at once
            a.join(f"more{i}")
            a.leave(f"more{i}")
        a.say("join 1 x")
        self.assertEqual(b.stop(), 0)
        self.assertEqual(a.views("job"), views)
        self.server.send(signal.SIGCONT)
        a.server_is("up")
        a.sees("job", "a")

    def test_a_member_has_a_lease_to_return_once_the_server_is_up(self):
        """The server hangs for less than a lease. Another node's lease expires, and the node that renews first does not lose it."""
        a, b = self.pair()
        views = a.views("job")
        (group,) = self.group()
        node = f"team:cluster:{{{group}}}:node:"
        b.process.send_signal(signal.SIGSTOP)
        self.server.send(signal.SIGSTOP)
        a.server_is("down")
        self.server.send(signal.SIGCONT)
        a.server_is("up")
        wait_until("the lease of b has expired", lambda: self.server.cli("exists", node + "b") == b"0")
        last = self.server.cli("zscore", f"team:cluster:{{{group}}}:nodes", "a")
        wait_until("a renews", lambda: self.server.cli("zscore", f"team:cluster:{{{group}}}:nodes", "a") != last)
        time.sleep(0.1)  # a reads the others' leases after its own
        b.process.send_signal(signal.SIGCONT)
        wait_until("b renews", lambda: self.server.cli("exists", node + "b") == b"1")
        self.assertEqual(a.views("job"), views)

    def test_two_nodes_of_one_name_are_told(self):
        a, other = self.node("a", 1), self.node("a", 2)
        for node in (a, other):
            node.join("job")
        for node in (a, other):
            node.server_is("up: another node is also named a")
        other.stop()
        wait_until("the problem is over", lambda: a.server() == "server up")
        a.sees("job", "a")

    def test_a_password_is_needed_and_never_shown(self):
        self.server.cli("config", "set", "requirepass", "a secret: 100%")
        self.server.password = "a secret: 100%"
        secret = "a%20secret%3a%20100%25"
        plain = self.node("a", 1)
        plain.join("job")
        plain.server_is("down: ")
        self.assertIn("password", plain.server())
        one = self.node("b", 2, url=f"redis://:{secret}@127.0.0.1:{self.server.port}/team")
        (self.root / "secret").write_text(f"redis://:{secret}@127.0.0.1:{self.server.port}\n")
        two = self.node("c", 3, DIESEL_REDIS_FILE=str(self.root / "secret"))
        wrong = self.node("d", 4, url=f"redis://:no@127.0.0.1:{self.server.port}/team")
        for node in (one, two, wrong):
            node.join("job")
        one.sees("job", "b", "c")
        two.sees("job", "b", "c")
        wrong.server_is("down: ")
        for node in (plain, one, two, wrong):
            node.kill()
            self.assertNotIn("secret", "".join(node.lines))

    def test_a_server_with_a_strange_certificate_is_none(self):
        """A server with a certificate from an untrusted issuer is not used."""
        certs = self.root / "certs"
        certs.mkdir()
        for name in ("ca", "stranger"):
            openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-keyout", certs / f"{name}.key", "-out", certs / f"{name}.crt")
        certify(certs, "server", "DNS:localhost")
        secured = self.serve("--tls-cert-file", str(certs / "server.crt"), "--tls-key-file", str(certs / "server.key"), "--tls-ca-cert-file",
                         str(certs / "ca.crt"), "--tls-auth-clients", "no", tls=("--tls", "--cacert", str(certs / "ca.crt"), "--insecure"))
        url = f"rediss://localhost:{secured.port}/team"
        a, b = (self.node(name, i, url, DIESEL_REDIS_CA=str(certs / "ca.crt")) for i, name in enumerate("ab", 1))
        for node in (a, b):
            node.join("job")
        for node in (a, b):
            node.sees("job", "a", "b")
        c = self.node("c", 3, url, DIESEL_REDIS_CA=str(certs / "stranger.crt"))
        d = self.node("d", 4, url.replace("rediss", "redis"))
        for node in (c, d):
            node.join("job")
            node.server_is("down: ")
        self.assertEqual(sorted(a.view("job")), ["a", "b"])

    def test_bad_settings_are_errors(self):
        for url, address, word in ((self.server.url("x y"), "10.0.0.1:1", "prefix"), ("http://x", "10.0.0.1:1", "redis://"),
                                   (self.server.url(""), "localhost:1", "IP address"), (self.server.url(""), "0.0.0.0:1", "IP address")):
            done = subprocess.run([BIN / "registry_node", url, "a", address], capture_output=True, text=True, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 1)
            self.assertIn(word, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)
        done = subprocess.run([BIN / "registry_node", self.server.url(""), "a\nb", "10.0.0.1:1"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertIn("name", done.stderr)

    def value(self, **other):
        fields = {"node": "x", "address": "10.0.0.9:1", "incarnation": "1", "weight": "1", "lanes": "4", "drift": "0", "serves": "0-1 3-3", "uid": "1000", "job": "job",
                  "dataset": "01020300000000000000000000000000", "path": "/data/set"} | other
        return "diesel-node 1\n" + "".join(f"{k}={v}\n" for k, v in fields.items())

    def test_forged_values_are_no_members(self):
        """Foreign values are no members; wrong types under our keys are replaced."""
        a, b = self.pair()
        views = a.views("job")
        (group,) = self.group()
        names, node = f"team:cluster:{{{group}}}:nodes", f"team:cluster:{{{group}}}:node:"
        now = str(int(time.time() * 1000))
        forged = {"long": self.value(node="long", path="p" * 5000), "huge": "x" * 1000000, "mail": self.value(node="mail", address="mail.example.com:25"),
                  "weight": self.value(node="weight", weight="9" * 30), "nul": self.value(node="nul", job="job%00"), "other": self.value(node="name"),
                  "user": self.value(node="user", uid="1001"), "utf": self.value(node="utf%ff"), "lanes": self.value(node="lanes", serves="0-9"), "empty": "", "line": self.value(node="line") + "more=1\n"}
        self.server.ask(*(("set", node + name, text) for name, text in forged.items()), *(("zadd", names, now, name) for name in forged),
                        ("lpush", node + "list", "x"), ("zadd", names, now, "list"), ("set", node + "good", self.value(node="good")),
                        ("zadd", names, now, "good"))
        a.sees("job", "a", "b", "good")  # this value looks like ours
        b.sees("job", "a", "b", "good")
        self.server.ask(("del", node + "good"), ("del", node + "a"), ("lpush", node + "a", "x"))
        a.sees("job", "a", "b")
        b.sees("job", "a", "b")
        wait_until("names without a node are gone", lambda: self.server.cli("zcard", names) == b"11")  # nine look like another version
        # What is no set, or none of ours.
        for wrong in (("set", names, "x"), ("lpush", names, "x"), ("sadd", names, "x"), ("zadd", names, "9e9", b"\xff\xfe\n"),
                      ("zadd", names, "1e99", "n" * 100000), ("zadd", names, "1", "")):
            self.server.ask(("del", names), wrong, ("del", "team:cluster:groups"), ("set", "team:cluster:groups", "x"))
            wait_until("the keys are put right", lambda: self.server.cli("type", names) == b"zset" and self.server.cli("zcard", names) == b"2" and
                  self.group() == [group])
        wait_until("the list", lambda: len(self.listed()) == 2)
        self.assertEqual([sorted(v) for v in a.views("job")], [sorted(v) for v in views] + [["a", "b", "good"], ["a", "b"]])

    def test_forged_names_delay_no_renewal(self):
        """Ten thousand forged names in a group, and as many groups, of megabytes: no renewal is late."""
        a, b = self.pair()
        (group,) = self.group()
        names = f"team:cluster:{{{group}}}:nodes"
        now = int(time.time() * 1000)
        self.server.ask(*(("zadd", names, str(now + 50000), f"forged{i}") for i in range(10000)),
                        *(("zadd", "team:cluster:groups", str(now), f"{i:032x}") for i in range(10000)),
                        *(("zadd", f"team:cluster:{{{i:032x}}}:nodes", str(now), "x") for i in range(10000)))
        c = self.node("c", 3)
        c.join("other", uid=1001)
        c.sees("other", "c")
        self.listed()
        # More members than a reply may hold, in one group of a user who has many.
        d, e = self.node("d", 4), self.node("e", 5)
        for node in (d, e):
            for i in range(40):
                node.join(f"of{i}", uid=1002)
            node.join("mine", uid=1003)
        for node in (d, e):
            node.sees("mine", "d", "e")
            wait_until("eight refusals", lambda: sum("refused -28" in line for line in node.lines) == 8)
        d.sees("of31", "d", "e")
        groups = self.group()
        there = self.server.ask(*(("exists", f"team:cluster:{{{g}}}:node:d") for g in groups))
        keys = [f"team:cluster:{{{g}}}:nodes" for g, is_there in zip(groups, there) if is_there == b"1"]
        self.assertEqual(len(keys), 33)
        for i in range(30):
            self.server.ask(*(("zadd", keys[i % 33], str(now + 40000), f"{i}.{k}" + "x" * 1000000) for k in range(5)))
        wait_until("surplus entries are removed", lambda: all(self.server.cli("zcard", key) == b"2" for key in keys))
        time.sleep(LEASE_S)
        for node in (a, b, d, e):
            for job in ("job", "mine", "of0", "of31"):
                views = node.views(job)
                pair = {"a", "b"} if job == "job" else {"d", "e"}
                whole = [i for i, v in enumerate(views) if pair <= set(v)]
                self.assertTrue(not views or all(pair <= set(v) for v in views[whole[0]:]), f"{node.name} lost one: {views}")
        wait_until("the forged names are gone", lambda: self.server.cli("zcard", names) == b"2")

    def test_the_number_of_groups_is_bounded(self):
        """The maximum number of groups, of eight users."""
        a, b = self.node("a", 1), self.node("b", 2)
        for node in (a, b):
            for uid in range(9):
                for i in range(32):
                    node.join(f"u{uid}j{i}", uid=uid)
        for node in (a, b):
            wait_until("32 refusals", lambda: sum("refused -28" in line for line in node.lines) == 32)
            wait_until(lambda: node.lines[-3:], lambda: sum(line.endswith("1073741824") and line.count("@") == 2 for line in node.lines) == 256)
        self.assertEqual(len(self.listed()), 512)
        a.leave("u0j0", uid=0)
        a.join("new", uid=8)
        a.sees("new", "a")
        b.kill()
        wait_until("all groups without b", lambda: sum(line.count("@") == 1 for line in a.lines) >= 256)

    def test_reports_of_nodes_are_listed(self):
        a, b = self.node("a", 1), self.node("b", 2)
        a.say('publish {"n": 1}')
        b.say('publish {"n": 2}')
        wait_until("both reports", lambda: [line.split(" ", 2)[::2] for line in self.listed("reports")] == [["a", '{"n": 1}'], ["b", '{"n": 2}']])
        a.say('publish {"n": 3}')
        wait_until("the new report", lambda: [line.split(" ", 2)[2] for line in self.listed("reports")][0] == '{"n": 3}')
        a.say("publish ")  # a node that leaves still publishes its last report
        self.assertEqual(a.stop(), 0)
        self.assertEqual([line.split()[0] for line in self.listed("reports")], ["b"])
        b.stop()
        wait_until("its age grows", lambda: int(self.listed("reports")[0].split()[1]) > 2000)
        self.server.ask(("set", "team:cluster:report:x", "y" * 100000), ("zadd", "team:cluster:reports", "1e15", "x"),
                        ("set", "team:cluster:report:z", b"a\0b"), ("zadd", "team:cluster:reports", "1e15", "z"),
                        ("lpush", "team:cluster:report:l", "y"), ("zadd", "team:cluster:reports", "1e15", "l"))
        self.assertEqual([line.split()[0] for line in self.listed("reports")], ["b"])
        self.server.ask(("del", "team:cluster:reports"), ("set", "team:cluster:reports", "x"))
        (line,) = self.listed("reports", status=1)
        self.assertIn("wrong type", line)

    def test_a_list_without_a_server_is_an_error(self):
        self.assertEqual(self.listed(), [])
        self.server.stop()
        (line,) = self.listed(status=1)
        self.assertIn("cannot connect", line)


if __name__ == "__main__":
    main()
