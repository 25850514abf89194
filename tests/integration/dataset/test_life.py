#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests dieselctl copy, move and delete of whole datasets: between folders, with metadata on a Redis server, and from and to buckets.

usage: test_life.py folder | redis | bucket
"""
import json
import os
import pathlib
import pty
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

import engines
from common.users import ALICE as OTHER
from dieseld_support import SCRATCH, Case, main
from engines import DIESELCTL, ENGINES

import diesel_loader

os.environ["DIESEL_DIESELCTL"] = os.path.abspath(DIESELCTL)
KIND = sys.argv.pop()
ENGINE = ENGINES[KIND]()
unittest.addModuleCleanup(ENGINE.stop)
os.environ.update(ENGINE.env)
in_folder = unittest.skipUnless(KIND == "folder", "the same in a folder")
as_root = unittest.skipUnless(os.geteuid() == 0, "needs root")
N = 40


def run(*words, environment=None, **more):
    return subprocess.run([DIESELCTL, *words], env=environment or ENGINE.env, capture_output=True, text=True, check=False, **more)


def told(*words):
    done = run(words[0], "--json", *words[1:])
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def make(name, n=N, size=200_000):
    """Makes a dataset of three versions with digests, of which the second one lacks a sample."""
    shutil.rmtree(engines.SOURCE)
    for i in range(n):
        engines.write(f"class{i % 3}/{i}", f"{name} {i} ".encode() * (size // 10))
    ENGINE.new(name)
    ENGINE.pack("--digest", "sha256")
    ENGINE.ctl("rm", ENGINE.dataset, "class0/0")
    os.remove(engines.SOURCE + "/class0/0")
    engines.write("class0/new", b"new")
    ENGINE.pack("--append")
    return ENGINE.dataset


def state(dataset):
    """Returns everything of a dataset that a copy must have, too."""
    log = told("log", dataset)["changes"]
    versions = {change["version"]: told("ls", "-R", "--version", str(change["version"]), dataset) for change in log}
    stat = told("stat", dataset)
    return (log, versions, {key: stat[key] for key in ("version", "samples", "chunks", "digest", "classes")})


class Life(Case):
    def is_copy(self, dataset, of):
        self.assertEqual(state(dataset), of)
        self.assertTrue(run("verify", dataset).stdout.startswith("sound:"), run("verify", dataset))
        # And it can be changed.
        with diesel_loader.create(dataset, append=True) as w:
            w.put("more", b"1")
        self.assertEqual(w.version, of[2]["version"] + 1)
        self.assertTrue(run("verify", dataset).stdout.startswith("sound:"))

    def is_gone(self, dataset):
        self.assertEqual(run("ls", dataset).returncode, 1)
        if dataset.startswith("s3://"):
            self.assertEqual(ENGINE.new(dataset.removeprefix("s3://bucket/")).n_chunks(), 0)
            self.assertIn("there is no dataset", run("delete", "--yes", dataset).stderr)
        else:
            self.assertFalse(os.path.exists(dataset))

    def test_a_copy_has_versions_log_and_samples_of_the_original(self):
        dataset = make("copied")
        before = state(dataset)
        for i, to in enumerate(self.places("copy")):
            result = told("copy", dataset if i == 0 else self.places("copy")[i - 1], to)
            self.assertEqual((result["version"], result["samples"], result["snapshots"], result["resumed_chunks"]), (3, N, 3, 0))
            self.assertEqual(result["copied_bytes"] > N * 100_000, True)
            self.assertEqual(state(to), before)
            # A second run finds everything there.
            self.assertEqual(told("copy", dataset, to)["resumed_chunks"], result["chunks"])
        self.assertEqual(state(dataset), before)
        for to in self.places("copy"):
            self.is_copy(to, before)
        self.assertEqual(state(dataset), before)

    def test_a_copy_of_an_indexed_dataset_refers_to_files_that_have_not_changed(self):
        shards, dataset = f"{SCRATCH}/shards", f"{SCRATCH}/indexed.diesel"
        os.mkdir(shards)
        with tarfile.open(f"{shards}/a.tar", "w") as archive:
            for i in range(5):
                archive.addfile(tarfile.TarInfo(f"{i}.txt"))
        told("index", shards, "--output", dataset)
        first, second = self.places("refers")[:2]
        for _again in range(2):
            done = run("copy", dataset, first)
            self.assertIn("; 5 samples stay in 1 file, which has not changed;", done.stdout)
            self.assertNotIn("verified", done.stdout)
            self.assertEqual("refers to files of this machine, such as" in done.stderr, KIND == "bucket", done.stderr)
        os.utime(f"{shards}/a.tar", (1, 1))
        self.assertIn("has changed since it was indexed", run("copy", dataset, second).stderr)
        told("index", shards, "--output", dataset)  # leaves a chunk of the earlier state
        self.assertEqual(told("copy", dataset, second)["samples_outside"], 5)
        os.remove(f"{shards}/a.tar")
        done = run("copy", dataset, self.places("refers-more")[0])
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"cannot open {shards}/a.tar", done.stderr)

    @staticmethod
    def places(name):
        folders = [f"{SCRATCH}/{name}-1", f"{SCRATCH}/{name}-2"]
        return [f"s3://bucket/{name}-1", f"s3://bucket/{name}-2", *folders, f"s3://bucket/{name}-3"] if KIND == "bucket" else folders

    def test_a_move_takes_everything_along(self):
        dataset = make("moved")
        before = state(dataset)
        elsewhere = tempfile.mkdtemp(dir="/dev/shm")
        self.addCleanup(shutil.rmtree, elsewhere, ignore_errors=True)
        places = [*self.places("move"), elsewhere + "/moved", f"{SCRATCH}/back"]
        for to in places:
            result = told("move", dataset, to)
            both = {dataset.startswith("s3:"), to.startswith("s3:")}
            same = both == {False} and os.stat(os.path.dirname(dataset)).st_dev == os.stat(os.path.dirname(to)).st_dev
            self.assertEqual(result["renamed"], same, (dataset, to))
            self.assertEqual(state(to), before)
            self.is_gone(dataset)
            dataset = to
        self.is_copy(dataset, before)

    def test_a_killed_copy_is_continued_and_was_never_visible(self):
        dataset = make("killed", n=40 if KIND == "bucket" else 160, size=1_000_000)
        before = state(dataset)
        to = self.places("continued")[0]
        resumed = 0
        for turn in range(6 if KIND == "bucket" else 20):
            process = subprocess.Popen([DIESELCTL, "copy", "--threads", "2", dataset, to], env=ENGINE.env, stderr=subprocess.PIPE)
            deadline = time.monotonic() + (0.3 if KIND == "bucket" else 0.03) * (turn + 1)
            while time.monotonic() < deadline and process.poll() is None:
                listed = run("ls", to)
                if listed.returncode == 0 and listed.stdout:
                    self.assertEqual(listed.stdout.split(), ["class0/", "class1/", "class2/"])
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if process.returncode == 0:
                break
        resumed = told("copy", dataset, to)["resumed_chunks"]
        self.assertGreater(resumed, 0)
        self.is_copy(to, before)

    @unittest.skipUnless(KIND == "bucket", "a folder has a lock")
    def test_a_version_published_in_the_last_instant_of_a_move_is_not_lost(self):
        elsewhere = engines.s3_support.environment(engines.s3_support.Proxy(ENGINE.proxy.upstream).port)
        self.addCleanup(ENGINE.proxy.reset)
        for method in ("PUT", "DELETE"):
            with self.subTest(method):
                dataset, appended = make("instant" + method, n=6), []
                engines.write("class0/last", b"last")

                def append(verb, path, *_, method=method, dataset=dataset, appended=appended):
                    if verb == method and f"{dataset[4:]}/versions/" in path and not appended:
                        appended.append(run("pack", "--append", engines.SOURCE, dataset, environment=elsewhere))
                ENGINE.proxy.reset(append)
                moved = run("move", dataset, f"{SCRATCH}/instant{method}")
                ENGINE.proxy.reset()
                if method == "PUT":
                    self.assertEqual((moved.returncode, appended[0].returncode), (1, 0), (moved, appended))
                    self.assertIn("nothing was removed", moved.stderr)
                    self.assertEqual(run("cat", dataset, "class0/last").stdout, "last")
                    self.assertTrue(run("verify", dataset).stdout.startswith("sound:"))
                else:
                    self.assertEqual((moved.returncode, appended[0].returncode), (0, 1), (moved, appended))
                    self.assertIn("is being removed", appended[0].stderr)
                    self.is_gone(dataset)

    def test_deleted_is_gone_with_its_keys(self):
        dataset = make("deleted")
        if KIND == "redis":
            self.assertIn(b"deleted:state", ENGINE.server.cli("KEYS", "deleted:*"))
        result = told("delete", "--yes", dataset)["removed"]
        self.assertEqual((result["snapshots"], result["other"]), (3, None))
        self.assertGreater(result["chunks"], 2)
        self.is_gone(dataset)
        if KIND == "redis":
            self.assertEqual(ENGINE.server.cli("KEYS", "deleted:*"), b"")
            self.assertGreater(result["redis_keys"], 1000)
        # The name can be used again.
        with diesel_loader.create(dataset) as w:
            w.put("a", b"1")
        self.assertEqual(w.version, 1)

    @in_folder
    def test_a_killed_delete_is_continued(self):
        for turn in range(8):
            dataset = make("half", n=60)
            process = subprocess.Popen(["strace", "-f", "-o", "/dev/null", "-e", f"inject=unlinkat:signal=SIGKILL:when={1 + 3 * turn}",
                                        DIESELCTL, "delete", "--yes", dataset], env=ENGINE.env, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE) if shutil.which("strace") else None
            if not process:
                self.skipTest("needs strace")
            process.communicate()
            if os.path.exists(dataset):
                listed = run("ls", dataset)
                self.assertEqual(listed.returncode == 0 and not listed.stdout, False)
                self.assertEqual(run("delete", "--yes", dataset).returncode, 0)
            self.is_gone(dataset)

    @in_folder
    def test_what_is_no_dataset_stays(self):
        folder = pathlib.Path(SCRATCH, "plain")
        (folder / "chunks").mkdir(parents=True)
        (folder / "snapshot").write_bytes(b"not ours")
        (folder / "chunks/0123").write_bytes(b"x")
        for words in (["delete", "--yes", str(folder)], ["move", str(folder), f"{SCRATCH}/plain2"], ["copy", str(folder), f"{SCRATCH}/plain2"],
                      ["delete", "--yes", SCRATCH + "/missing"], ["delete", "--yes", "/"], ["delete", "--yes", "."]):
            done = run(*words)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done)
        self.assertEqual((folder / "snapshot").read_bytes(), b"not ours")
        self.assertEqual((folder / "chunks/0123").read_bytes(), b"x")
        self.assertFalse(os.path.exists(f"{SCRATCH}/plain2/snapshot"))

    @in_folder
    def test_a_newer_format_is_refused(self):
        dataset = make("newer")
        with sqlite3.connect(dataset + "/meta.db") as db:
            db.execute("PRAGMA user_version = 99")
        for words in (["delete", "--yes", dataset], ["move", dataset, f"{SCRATCH}/newer2"], ["copy", dataset, f"{SCRATCH}/newer2"]):
            done = run(*words)
            self.assertEqual(done.returncode, 1, done)
            self.assertIn("update it", done.stderr)
        self.assertEqual(len(told("ls", "-R", dataset)), N)

    def test_a_dataset_with_a_writer_at_work_is_refused(self):
        if KIND == "bucket":
            self.skipTest("writers of a bucket are not known")
        dataset = make("busy")
        for shared in (False, True):
            with diesel_loader.create(dataset, append=True, shared=shared) as w:
                w.put(f"x{shared}", b"1")
                for words in (["delete", "--yes", dataset], ["move", dataset, f"{SCRATCH}/busy2"],
                              *([["copy", dataset, f"{SCRATCH}/busy2"]] if not shared else [])):
                    done = run(*words)
                    self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done)
                    self.assertRegex(done.stderr, "is being (changed|written) by")
                if not shared:
                    waiting = subprocess.Popen([DIESELCTL, "delete", "--yes", "--wait", "60", dataset + "/../busy"], env=ENGINE.env,
                                               stderr=subprocess.PIPE, text=True)
                    self.assertIn("waiting for it to finish", waiting.stderr.readline())
                    waiting.kill()
                    waiting.communicate()
        self.assertEqual(len(told("ls", "-R", dataset)), N + 2)

    @in_folder
    def test_files_of_others_in_the_folder_stay_and_are_named(self):
        dataset = make("mixed")
        victim = pathlib.Path(SCRATCH, "victim")
        victim.mkdir()
        (victim / "file").write_text("precious")
        pathlib.Path(dataset, "notes.txt").write_text("mine")
        os.symlink(victim, dataset + "/link")
        os.symlink(victim / "file", dataset + "/chunks/0123456789abcdef0123456789abcdef.chunk")
        shutil.rmtree(dataset + "/snapshots")
        os.symlink(victim, dataset + "/snapshots")
        result = told("delete", "--yes", dataset)["removed"]
        self.assertIn(result["other"], ("notes.txt", "link", "snapshots"))
        self.assertEqual(sorted(os.listdir(dataset)), ["link", "notes.txt", "snapshots"])
        self.assertEqual((victim / "file").read_text(), "precious")

    @in_folder
    def test_a_link_is_not_followed(self):
        dataset = make("target")
        os.symlink(dataset, SCRATCH + "/alias")
        for verb in (["delete", "--yes", SCRATCH + "/alias"], ["move", SCRATCH + "/alias", SCRATCH + "/alias2"]):
            done = run(*verb)
            self.assertEqual(done.returncode, 1)
            self.assertIn("link", done.stderr)
        chunks = dataset + "/chunks"
        os.rename(chunks, SCRATCH + "/their-chunks")
        os.symlink(SCRATCH + "/their-chunks", chunks)
        n = len(os.listdir(SCRATCH + "/their-chunks"))
        run("delete", "--yes", dataset)
        self.assertEqual(len(os.listdir(SCRATCH + "/their-chunks")), n)

    @in_folder
    @as_root
    def test_a_neighbour_who_swaps_links_gains_nothing(self):
        """Another user exchanges the folder for a link to somebody's dataset while root deletes and moves."""
        theirs, precious = f"{SCRATCH}/theirs", make("precious")
        os.mkdir(theirs)
        os.chmod(SCRATCH, 0o755)
        shutil.copytree(precious, theirs + "/set")
        shutil.copytree(precious, theirs + "/keep")
        for folder, _, files in os.walk(theirs):
            for path in [folder, *(os.path.join(folder, name) for name in files)]:
                os.chown(path, OTHER, OTHER)
        keep = f"{theirs}/keep"
        swap = (f"import os\nos.setuid({OTHER})\nos.chdir('{theirs}')\n"
                f"while True:\n try:\n  os.rename('set', 'real'); os.symlink('{precious}', 'set'); os.unlink('set'); os.rename('real', 'set')\n"
                " except OSError: pass\n")
        swapper = subprocess.Popen([sys.executable, "-c", swap])
        try:
            for i in range(40):
                run("delete", "--yes", theirs + "/set")
                run("delete", "--yes", theirs + "/set/")
                run("move", theirs + "/set", f"{theirs}/away{i}")
                swapper.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, swapper.pid, os.WSTOPPED)
                if not any(os.path.isdir(path) and not os.path.islink(path) for path in (theirs + "/set", theirs + "/real")):
                    pathlib.Path(theirs, "set").unlink(missing_ok=True)
                    subprocess.run(["cp", "-a", keep, theirs + "/set"], check=True)
                swapper.send_signal(signal.SIGCONT)
        finally:
            swapper.kill()
            swapper.wait()
        self.assertTrue(run("verify", precious).stdout.startswith("sound:"))
        self.assertEqual(len(told("ls", "-R", precious)), N)

    @in_folder
    @as_root
    def test_another_user_may_not_delete_or_move(self):
        dataset = make("owned")
        os.chmod(SCRATCH, 0o755)
        for words in (["delete", "--yes", dataset], ["move", dataset, "/dev/shm/owned"]):
            done = run(*words, user=OTHER, group=OTHER, extra_groups=[])
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done)
            self.assertIn("ermi", done.stderr)
        self.assertTrue(run("verify", dataset).stdout.startswith("sound:"))

    @in_folder
    @as_root
    def test_modes_owners_and_times_are_those_of_the_original(self):
        dataset = make("dressed")
        chunk = next(iter(os.listdir(dataset + "/chunks")))
        os.chmod(dataset, 0o750)
        os.chmod(dataset + "/snapshot", 0o640)
        os.chmod(f"{dataset}/chunks/{chunk}", 0o604)
        for path in (dataset, dataset + "/snapshot", f"{dataset}/chunks/{chunk}"):
            os.chown(path, OTHER, OTHER)
        run("copy", dataset, SCRATCH + "/dressed2")
        for path in ("", "/chunks", "/snapshot", "/meta.db", f"/chunks/{chunk}", "/snapshots/1"):
            one, other = os.stat(dataset + path), os.stat(SCRATCH + "/dressed2" + path)
            self.assertEqual((one.st_mode, one.st_uid, one.st_gid, one.st_mtime_ns),
                             (other.st_mode, other.st_uid, other.st_gid, other.st_mtime_ns), path)

    @as_root
    @unittest.skipIf(KIND == "redis", "the same in a folder")
    def test_a_copy_in_the_folder_of_another_user_is_that_users(self):
        dataset = make("for_other", n=6)
        os.chmod(SCRATCH, 0o755)
        to = pathlib.Path(SCRATCH, "of_other")
        to.mkdir()
        os.chown(to, OTHER, OTHER)
        self.assertEqual(run("copy", dataset, str(to)).returncode, 0)
        self.assertEqual({(path.stat().st_uid, path.stat().st_gid) for path in [to, *to.rglob("*")]}, {(OTHER, OTHER)})
        # A file of root that this user has linked there is not given away, when the same copy runs again.
        secret = pathlib.Path(SCRATCH, "secret")
        secret.write_text("of root")
        (to / "meta.db-journal").hardlink_to(secret)
        run("copy", dataset, str(to))
        self.assertEqual(secret.stat().st_uid, 0)
        (to / "meta.db-journal").unlink()
        # Nor is one that this user has moved there out of another folder.
        secret.chmod(0o600)
        moved = secret.rename(to / "chunks" / "secret")
        run("copy", dataset, str(to))
        self.assertEqual(moved.stat().st_uid, 0)
        moved.unlink()
        ENGINE.env["TMPDIR"], before = "/tmp", ENGINE.env["TMPDIR"]
        done = run("rm", str(to), "class0/new", user=OTHER, group=OTHER, extra_groups=[])
        ENGINE.env["TMPDIR"] = before
        self.assertEqual(done.returncode, 0, done)

    @in_folder
    def test_a_damaged_chunk_ends_the_copy(self):
        dataset = make("damaged")
        chunk = pathlib.Path(dataset, "chunks", sorted(os.listdir(dataset + "/chunks"))[0])
        data = bytearray(chunk.read_bytes())
        data[-5000] ^= 1
        chunk.write_bytes(data)
        done = run("copy", dataset, SCRATCH + "/damaged2")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, f"{chunk.name}.*damaged")
        self.assertEqual(run("ls", SCRATCH + "/damaged2").stdout, "")

    @in_folder
    def test_a_frozen_dataset_stays_frozen(self):
        dataset = make("frozen")
        ENGINE.ctl("snapshot", "--frozen", dataset)
        self.assertEqual(run("copy", dataset, SCRATCH + "/frozen2").returncode, 0)
        self.assertEqual(sorted(os.listdir(SCRATCH + "/frozen2")), sorted(os.listdir(dataset)))
        self.assertEqual(told("ls", "-R", SCRATCH + "/frozen2"), told("ls", "-R", dataset))
        self.assertEqual(run("delete", "--yes", SCRATCH + "/frozen2").returncode, 0)
        self.is_gone(SCRATCH + "/frozen2")

    @in_folder
    def test_delete_asks_on_a_terminal(self):
        dataset = make("asked")
        self.assertEqual(run("delete", dataset, stdin=subprocess.DEVNULL).returncode, 2)
        for answer, status in ((b"n\n", 1), (b"\n", 1), (b"y\n", 0)):
            ours, theirs = pty.openpty()
            process = subprocess.Popen([DIESELCTL, "delete", dataset], env=ENGINE.env, stdin=theirs, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            os.close(theirs)
            os.write(ours, answer)
            out, err = process.communicate(timeout=60)
            os.close(ours)
            self.assertIn(f"delete {dataset} (version 3, {N} samples, ", err)
            self.assertEqual((process.returncode, os.path.exists(dataset)), (status, status != 0), (out, err))

    @in_folder
    def test_another_dataset_is_not_overwritten(self):
        one, other = make("one"), make("other")
        before = state(other)
        for verb in ("copy", "move"):
            done = run(verb, one, other)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, "has another dataset|exists: choose another name")
        self.assertEqual(state(other), before)
        self.assertIn("choose another folder", run("copy", one, one).stderr)
        self.assertIn("choose another folder", run("copy", one, one + "/inside").stderr)


if __name__ == "__main__":
    os.makedirs(engines.SOURCE, exist_ok=True)
    main()
