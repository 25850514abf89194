# SPDX-License-Identifier: Apache-2.0
"""Tests dieselctl warm: it loads a dataset into the cache before a job needs it, without cost to other jobs."""
import json
import os
import shutil
import signal
import subprocess
import time
import unittest
import unittest.mock

from nodes import Case, MALLORY, PATIENCE_S, read_all, support, wait_until


def warm(daemon, path, *options, code=0, **more):
    run = subprocess.run([support.CTL, "warm", path, "--json", "--socket", daemon.socket, *options], capture_output=True, text=True,
                         timeout=PATIENCE_S, **more)
    if run.returncode != code:
        raise AssertionError(f"{run.returncode}, not {code}: {run.stdout} {run.stderr}")
    return json.loads(run.stdout) if run.stdout else run.stderr


class Warm(Case):
    n_samples = 320

    def daemon(self, *options, **more):
        daemon = support.Daemon("--tune", "off", *options, **more)
        self.addCleanup(daemon.stop)
        return daemon

    def test_a_job_finds_all_that_was_warmed(self):
        node, = self.nodes(1)
        done = warm(node.daemon, self.path)
        self.assertEqual((done["chunks"], done["in_memory"], done["no_space"], done["not_reached"]), (self.n_chunks, self.n_chunks, 0, 0))
        self.assertEqual(node.reads(), self.n_chunks)
        self.check(read_all(self.loaders([node])))
        self.assertEqual(node.reads(), self.n_chunks)
        # A second run finds everything in memory.
        self.assertEqual(warm(node.daemon, self.path)["in_memory"], self.n_chunks)
        self.assertEqual(node.reads(), self.n_chunks)

    def test_what_has_no_space_is_left_out(self):
        node, = self.nodes(1, cache="24M")
        done = warm(node.daemon, self.path)
        self.assertEqual(done["in_memory"] + done["no_space"], self.n_chunks)
        self.assertGreaterEqual(done["in_memory"], 3)
        self.assertGreaterEqual(done["no_space"], 3)
        self.assertEqual(node.status()["cache"]["evictions"], 0)
        reads = node.reads()
        self.assertEqual(reads, done["in_memory"])
        # The loaded chunks stay.
        self.assertEqual(warm(node.daemon, self.path)["in_memory"], done["in_memory"])
        self.assertEqual(node.reads(), reads)

    def copy(self, name):
        """Makes another dataset with the same content."""
        path = self.folder / f"{name}.diesel"
        (self.folder / name).mkdir()
        for i in range(160):
            (self.folder / name / f"{i}.bin").write_bytes(os.urandom(128 << 10))
        subprocess.run([support.CTL, "pack", self.folder / name, path, "--chunk-size", "4M"], check=True, stdout=subprocess.DEVNULL)
        self.addCleanup(shutil.rmtree, path)
        self.addCleanup(shutil.rmtree, self.folder / name)
        return path

    def cached(self, node, path):
        return {d["path"]: d["cached_chunks"] for d in node.status()["datasets"]}.get(str(path), 0)

    def test_what_its_user_no_longer_has_open_goes_for_it(self):
        node, = self.nodes(1, cache="48M")
        other = self.copy("mine")
        had = warm(node.daemon, other)["in_memory"]
        self.assertGreater(had, 3)
        warm(node.daemon, self.path)
        self.assertLess(self.cached(node, other), had)

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_nothing_of_others_goes_for_it(self):
        node, = self.nodes(1, cache="48M")
        os.chmod(self.folder, 0o755)
        other = self.copy("others")
        had = warm(node.daemon, other)["in_memory"]
        self.assertGreater(had, 3)
        done = warm(node.daemon, self.path, user=MALLORY, group=MALLORY, extra_groups=[])
        self.assertEqual(done["in_memory"] + done["no_space"], self.n_chunks)
        self.assertGreater(done["no_space"], 0)
        self.assertEqual(self.cached(node, other), had)
        # A run loads no chunk that the user may not read.
        os.chmod(other / "snapshot", 0o600)
        reads = node.reads()
        self.assertIn("snapshot", warm(node.daemon, other, code=1, user=MALLORY, group=MALLORY, extra_groups=[]))
        self.assertEqual(node.reads(), reads)

    def test_a_warm_up_takes_nothing_from_a_job(self):
        """Runs a job that reads all the time, in a cache without space for both its chunks and the warmed ones."""
        node, = self.nodes(1, cache="64M")
        loader, = self.loaders([node])
        other = self.copy("copied")
        had = []
        batches = iter(loader)
        had.append(next(batches))
        done = warm(node.daemon, other)
        self.assertEqual(done["in_memory"] + done["no_space"], done["chunks"])
        self.assertEqual(len(had) + sum(1 for _ in batches), self.n_samples // 16)
        self.check(read_all([loader]))

    def begin(self, node, *options):
        return subprocess.Popen([support.CTL, "warm", self.path, "--socket", node.socket, *options], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def test_it_can_be_stopped(self):
        node, = self.nodes(1)
        node.daemon.process.send_signal(signal.SIGSTOP)
        try:
            run = self.begin(node)
            time.sleep(0.2)
        finally:
            node.daemon.process.send_signal(signal.SIGCONT)
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=PATIENCE_S)
        self.assertIn(run.returncode, (0, 128 + signal.SIGINT, -signal.SIGINT), out)
        wait_until("its session ends", lambda: not node.status()["sessions"])
        # A second run loads the rest.
        self.assertEqual(warm(node.daemon, self.path)["in_memory"], self.n_chunks)

    def test_a_warm_up_without_a_daemon_is_an_error(self):
        self.assertIn("dieseld", warm(unittest.mock.Mock(socket=str(self.folder / "none.sock")), self.path, code=1))

    def test_a_warm_up_waits_for_a_daemon_that_comes_back(self):
        node, = self.nodes(1)
        run = self.begin(node)
        node.daemon.kill()
        node.daemon.start()
        out, err = run.communicate(timeout=PATIENCE_S)
        # The run was done, or had not begun, or continued.
        self.assertIn(run.returncode, (0, 1), err)
        if run.returncode == 0:
            self.assertIn(f"{self.n_chunks} of {self.n_chunks} chunks in memory", out)

    def test_wrong_use_is_an_error(self):
        for words in ([], ["a", "b"], ["--job", "x", "a"], ["--nodes", "2", "a"], ["--nodes", "0", "a"], ["--job", "j", "--nodes", "2", "a"], ["--job", "j", "--nodes", "2", "--node", "2", "a"], ["--node", "x", "a"], ["--no-such", "a"]):
            run = subprocess.run([support.CTL, "warm", *words], capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stderr.count("\n")), (2, 1), run.stderr)


class Nodes(Case):
    n_samples = 640

    def test_each_node_has_the_chunks_that_it_owns(self):
        nodes = self.nodes(2)
        runs = [subprocess.Popen([support.CTL, "warm", self.path, "--json", "--job", "job", "--nodes", "2", "--node", str(i), "--socket",
                                  node.socket], stdout=subprocess.PIPE, text=True) for i, node in enumerate(nodes)]
        done = [json.loads(run.communicate(timeout=PATIENCE_S)[0]) for run in runs]
        for mine, others in (done, done[::-1]):
            self.assertEqual(mine["in_memory"], others["of_other_nodes"], done)
            self.assertEqual(mine["in_memory"] + mine["of_other_nodes"], self.n_chunks, done)
            self.assertGreater(mine["in_memory"], 0, done)
        self.assertEqual(sum(node.reads() for node in nodes), self.n_chunks)
        self.check(read_all(self.loaders(nodes, cluster="training")))
        self.assertEqual(sum(node.reads() for node in nodes), self.n_chunks, [node.status()["cluster"] for node in nodes])


if __name__ == "__main__":
    unittest.main(verbosity=2)
