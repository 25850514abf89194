# SPDX-License-Identifier: Apache-2.0
"""Tests datasets whose metadata is on a real Redis Cluster of three masters with a replica each, while slots move and nodes die."""
import os
import signal
import subprocess
import time

from common.commands import one_line
from servers import BIN, Case, Cluster, content, dieselctl, main, make_source, temporary


class ClusterTest(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(temporary())
        cls.cluster = Cluster(cls.folder, 3, 1)
        cls.addClassCleanup(cls.cluster.stop)

    def setUp(self):
        super().setUp()
        self.source, self.dataset, self.prefix = self.root / "src", self.root / "ds", self._testMethodName
        make_source(self.source, 60)
        self.cluster.wait()

    def pack(self, *args, check=0, **env):
        """Packs by a node that the tests do not stop."""
        node = next(s for s in self.cluster.masters() if s is not self.state_node())
        return dieselctl("pack", "--meta", node.url(self.prefix), *args, self.source, self.dataset, check=check, **env)

    def appending(self, n):
        """Starts pack --append of n samples in all."""
        make_source(self.source, n, 2)
        return subprocess.Popen([BIN / "dieselctl", "pack", "--append", self.source, self.dataset], stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)

    def whole(self, n):
        names, data = content(self.dataset)
        self.assertEqual(len(names), n)
        self.assertEqual(data, b"".join((self.source / name).read_bytes() for name in names))
        self.assertEqual(dieselctl("verify", self.dataset).stderr, "")

    def state_node(self):
        return self.cluster.owner(self.cluster.slot(f"{self.prefix}:state"))

    def test_it_passes_what_every_engine_passes(self):
        """Runs the tests that every engine passes, and the writer's own."""
        env = dict(os.environ, DIESEL_TEST_REDIS=f"redis://127.0.0.1:{self.cluster.masters()[1].port}", DIESEL_REDIS_WAIT="10")
        for program in ("test_dataset_meta", "test_dataset_writer"):
            done = subprocess.run([BIN / program], env=env, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_all_nodes_have_a_part(self):
        before = [int(s.cli("dbsize")) for s in self.cluster.masters()]
        self.pack()
        for s, n in zip(self.cluster.masters(), before):
            self.assertGreater(int(s.cli("dbsize")) - n, 250)
        dieselctl("rm", self.dataset, "class0/0.bin")
        dieselctl("rebuild", self.dataset)
        dieselctl("pack", "--append", self.source, self.dataset)
        dieselctl("rebuild", "--digest", "sha256", self.dataset)
        self.whole(60)
        self.assertEqual(sum(int(s.cli("dbsize")) for s in self.cluster.masters()) - sum(before), 1041)

    def test_keys_that_move_are_followed(self):
        """ASK, then MOVED, for the key that a commit changes and for one with values."""
        self.pack()
        generation = self.state_node().cli("hget", f"{self.prefix}:state", "generation").decode()
        for key in (f"{self.prefix}:state", f"{self.prefix}:{generation}:7", f"{self.prefix}:{generation}:1030"):
            with self.cluster.moving():
                self.move(key)
            self.whole(60)

    def move(self, key):
        slot = self.cluster.slot(key)
        source = self.cluster.owner(slot)
        target = next(s for s in self.cluster.masters() if s is not source)
        target.cli("cluster", "setslot", str(slot), "importing", self.cluster.id(source))
        source.cli("cluster", "setslot", str(slot), "migrating", self.cluster.id(target))
        while keys := source.cli("cluster", "getkeysinslot", str(slot), "100").decode().split():
            self.assertEqual(source.cli("migrate", "127.0.0.1", str(target.port), "", "0", "5000", "keys", *keys), b"OK")
        self.assertIn(b"ASK", subprocess.run(["redis-cli", "-p", str(source.port), "hget", key, ""], capture_output=True).stdout)
        dieselctl("pack", "--append", self.source, self.dataset)
        os.utime(self.source / "class0" / "0.bin", (slot, slot))
        dieselctl("pack", "--append", self.source, self.dataset)
        for s in (target, source):
            s.cli("cluster", "setslot", str(slot), "node", self.cluster.id(target))
        os.utime(self.source / "class0" / "0.bin", (slot + 1, slot + 1))
        dieselctl("pack", "--append", self.source, self.dataset)

    def test_a_pack_goes_on_while_slots_move(self):
        self.pack()
        process, n_moves = self.appending(6000), 0
        with self.cluster.moving():
            while process.poll() is None or n_moves < 2:
                source, target = (self.cluster.masters()[i] for i in (n_moves % 3, (n_moves + 1) % 3))
                self.cluster.manage("reshard", f"127.0.0.1:{source.port}", "--cluster-from", self.cluster.id(source), "--cluster-to",
                                    self.cluster.id(target), "--cluster-slots", "300", "--cluster-yes")
                n_moves += 1
        self.assertEqual((process.returncode, process.communicate()[1]), (0, ""))
        self.whole(6000)

    def test_a_pack_goes_on_with_the_replica_of_a_dead_master(self):
        """A replica replaces the master. The pack continues with it, and no acknowledged commit is lost."""
        self.pack()
        for n, delay in ((2000, 0.1), (4000, 0.4)):
            process = self.appending(n)
            time.sleep(delay)
            lost = self.state_node()
            lost.stop()
            _, told = process.communicate(timeout=120)
            self.assertEqual((process.returncode, told), (0, ""))
            self.whole(n)
            lost.start()
            self.cluster.wait()
        dieselctl("rm", self.dataset, "class0/0.bin")

    def test_the_replica_of_a_hanging_master_takes_over(self):
        """The master neither answers nor closes: its replica replaces it, and gets the commands after a while."""
        self.pack()
        lost = self.state_node()
        lost.send(signal.SIGSTOP)
        try:
            dieselctl("rm", self.dataset, "class0/0.bin", DIESEL_REDIS_WAIT="20")
        finally:
            lost.send(signal.SIGCONT)
        dieselctl("verify", self.dataset)
        self.cluster.wait()

    def test_a_commit_that_no_replica_has_is_no_success(self):
        """A commit that only the master has is not acknowledged."""
        self.pack()
        master = self.state_node()
        port = master.cli("info", "replication").split(b"port=")[1].split(b",")[0]
        replica = next(s for s in self.cluster.nodes if s.port == int(port))
        replica.send(signal.SIGSTOP)
        try:
            one_line(dieselctl("rm", self.dataset, "class0/0.bin", check=1, DIESEL_REDIS_WAIT="1"))
        finally:
            replica.send(signal.SIGCONT)
        self.cluster.wait()
        dieselctl("rm", self.dataset, "class0/0.bin")
        self.assertEqual(len(content(self.dataset)[0]), 59)

    def test_zz_a_part_that_is_down_changes_nothing(self):
        """A master and its replica are down: one line of error and no change. Commands work again when they are back."""
        self.pack()
        before = content(self.dataset)
        master = self.state_node()
        port = master.cli("info", "replication").split(b"port=")[1].split(b",")[0]
        replica = next(s for s in self.cluster.nodes if s.port == int(port))
        replica.stop()
        master.stop()
        one_line(dieselctl("rm", self.dataset, "class0/0.bin", check=1, DIESEL_REDIS_WAIT="1"))
        self.assertEqual(content(self.dataset), before)
        master.start()
        replica.start()
        self.cluster.wait()
        dieselctl("rm", self.dataset, "class0/0.bin")
        self.assertEqual(len(content(self.dataset)[0]), 59)


if __name__ == "__main__":
    main()
