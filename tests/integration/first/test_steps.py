#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests a newcomer's first steps: it runs the commands in the messages."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import unittest
from unittest import mock

from first_support import BARE, CTL, Newcomer, commands
from on_demand_support import daemons_in

import diesel_loader


class FirstSteps(Newcomer):
    def test_a_folder_of_files(self):
        """The pack does not include its own dataset."""
        for path in (self.photos, f"{self.photos}/"):
            with self.assertRaises(FileNotFoundError) as caught:
                diesel_loader.Dataset(path)
        command, = commands(caught.exception.strerror)
        self.assertEqual(command, f"{CTL} pack {self.photos} {self.photos}.diesel")
        self.assertIn(f"use {self.photos}.diesel", caught.exception.strerror)
        self.run_shell(command)
        self.assertEqual(diesel_loader.Dataset(f"{self.photos}.diesel")["cat/1.txt"], b"a picture")

    def test_no_folder(self):
        with self.assertRaisesRegex(FileNotFoundError, "there is no dataset"):
            diesel_loader.Dataset(f"{self.photos}.diesel")
        with self.assertRaisesRegex(FileNotFoundError, "1.txt is a file, not a dataset folder"):
            diesel_loader.Dataset(self.photos / "cat" / "1.txt")

    def test_files_of_other_formats(self):
        """Each message names the command that reads them, and no other message leads to it."""
        for name, command in (("pq/a.parquet", "pack parquet:{0} {0}.diesel"), ("db.lmdb/data.mdb", "index {0} --output {0}.diesel"),
                              ("m/shard.00000.mds", "index {0} --output {0}.diesel"), ("x.zip", "index {0} --output {0}.diesel")):
            file = pathlib.Path(self.top, name)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"PK")
            place = pathlib.Path(self.top, name.partition("/")[0])
            with self.assertRaises(FileNotFoundError) as caught:
                diesel_loader.Dataset(place)
            self.assertEqual(commands(caught.exception.strerror), [f"{CTL} {command.format(place)}"])
        for words in (("index", f"{self.top}/pq", "--output", f"{self.top}/o"), ("pack", f"{self.top}/x.zip", f"{self.top}/o")):
            self.assertIn(".diesel`", self.ctl(*words, check=1).stderr)
        told = self.ctl("index", self.photos, "--output", f"{self.top}/o", check=1).stderr
        self.assertIn(f"pack {self.photos} DATASET`", told)

    def test_create_names_its_own_argument(self):
        for append in (False, False, True):
            try:
                with diesel_loader.create(f"{self.top}/made.diesel", append=append) as writer:
                    writer.put(f"{append}", b"1")
            except FileExistsError as error:
                self.assertIn("pass append=True to add to it", str(error))
        self.assertEqual(writer.version, 2)

    def test_a_lost_snapshot(self):
        self.ctl("pack", self.photos, f"{self.photos}.diesel")
        os.remove(f"{self.photos}.diesel/snapshot")
        with self.assertRaises(FileNotFoundError) as caught:
            diesel_loader.Dataset(f"{self.photos}.diesel")
        command, = commands(caught.exception.strerror)
        self.run_shell(command)
        self.assertEqual(len(diesel_loader.Dataset(f"{self.photos}.diesel")), 1)

    def test_dieselctl_names_itself(self):
        """Named by its path if it is not in PATH, otherwise by its name."""
        self.ctl("pack", self.photos, f"{self.photos}.diesel")
        os.remove(f"{self.photos}.diesel/meta.db")
        told = self.ctl("rm", f"{self.photos}.diesel", "cat/1.txt", check=1).stderr
        self.assertEqual(commands(told), [f"{CTL} rebuild {self.photos}.diesel"])
        self.run_shell(commands(told)[0])
        told = self.ctl("pack", check=2).stderr
        self.assertIn(f"Try '{CTL} pack --help' for more information.\n", told)
        self.run_shell(told.split("'")[1])
        with mock.patch.dict(os.environ, PATH=f"{os.path.dirname(CTL)}:{BARE}"):
            self.assertIn("Try 'dieselctl pack --help' for more information.\n", self.ctl("pack", check=2).stderr)

    def test_what_mends_a_dataset_is_said_with_its_name(self):
        """Named as it was run, by each verb that finds the damage."""
        dataset = f"{self.photos}.diesel"

        def damage_metadata():
            pathlib.Path(dataset, "meta.db").write_bytes(b"no database" * 1000)

        def freeze():
            self.ctl("snapshot", "--frozen", dataset)

        def damage_snapshot():
            path = pathlib.Path(dataset, "snapshot")
            path.write_bytes(b"\0" * path.stat().st_size)

        for damage, verb, fix in ((damage_metadata, "rm", "rebuild"), (damage_metadata, "verify", "rebuild"), (freeze, "stat", "rebuild"),
                                  (damage_snapshot, "verify", "snapshot"), (damage_snapshot, "ls", "snapshot")):
            shutil.rmtree(dataset, ignore_errors=True)
            self.ctl("pack", self.photos, dataset)
            damage()
            words = [verb, dataset, *(["cat/1.txt"] if verb == "rm" else [])]
            done = subprocess.run([CTL, *words], capture_output=True, text=True, check=False)
            command = commands(done.stdout + done.stderr)[0]
            self.assertRegex(command, f"dieselctl {fix} {dataset}$", done)
            self.run_shell(command if os.path.isabs(command) else os.path.join(os.path.dirname(CTL), command))
            self.assertEqual(self.ctl("verify", dataset).stderr, "")

    def test_warm_without_a_daemon(self):
        """warm starts the user's own daemon, which the loader finds, or finds the running one."""
        for _ in range(2):
            self.assertIn("chunk in memory", self.ctl("warm", self.dataset).stdout)
            daemon, = daemons_in(self.top)
        dataset = diesel_loader.Dataset(self.dataset)
        self.assertEqual(diesel_loader.status(dataset.socket)["pid"], daemon)
        self.assertEqual(daemons_in(self.top), [daemon])

    def test_warm_finds_the_loaders(self):
        dataset = diesel_loader.Dataset(self.dataset)
        daemon, = daemons_in(self.top)
        self.ctl("warm", self.dataset)
        self.assertEqual(daemons_in(self.top), [daemon])
        self.assertEqual(diesel_loader.status(dataset.socket)["pid"], daemon)

    @unittest.skipUnless(importlib.util.find_spec("lmdb"), "needs lmdb")
    def test_a_database(self):
        """Checks pack's message about an LMDB."""
        import lmdb
        packed = f"{self.photos}.diesel"
        with lmdb.open(f"{self.top}/lmdb") as environment, environment.begin(write=True) as transaction:
            transaction.put(b"cat/1.txt", b"a picture")
        told = self.ctl("pack", f"{self.top}/lmdb", packed, check=1).stderr
        self.assertIn("index them in place with dieselctl index FOLDER --output DATASET", told)
        self.ctl("index", f"{self.top}/lmdb", "--output", packed)
        self.assertEqual(diesel_loader.Dataset(packed)["cat/1.txt"], b"a picture")

    def test_mount_of_a_bucket(self):
        told = self.ctl("mount", "s3://bucket/photos", self.photos, check=1).stderr
        self.assertIn("no credentials for S3: set AWS_ACCESS_KEY_ID", told)
        self.assertEqual(told.count("\n"), 1)

    def test_no_program(self):
        with mock.patch.dict(os.environ, DIESEL_DAEMON="/nowhere/dieseld"):
            told = self.ctl("warm", self.dataset, check=1).stderr
        self.assertIn("/nowhere/dieseld", told)
        self.assertEqual(told.count("\n"), 1)
        self.assertFalse(os.path.exists(self.folder))

    def test_one_that_does_not_start(self):
        self.options("--cache lots")
        told = self.ctl("warm", self.dataset, check=1).stderr
        self.assertIn(f"its log is {self.folder}/dieseld.log", told)
        self.assertIn("lots", self.log())

    @unittest.skipUnless(os.path.exists("/dev/fuse") and shutil.which("fusermount3"), "needs FUSE")
    def test_mount_over(self):
        """The README's line, with files next to the pictures that pack leaves out."""
        (self.photos / ".DS_Store").write_bytes(b"of a file manager")
        packed = f"{self.photos}.diesel"
        self.ctl("pack", self.photos, packed)
        (self.photos / "cat" / "1.txt").write_bytes(b"changed")
        said = self.ctl("mount", "--over", packed, self.photos, "--", "cat", self.photos / "cat/1.txt").stdout
        self.assertEqual(said, "a picture")


if __name__ == "__main__":
    unittest.main()
