# SPDX-License-Identifier: Apache-2.0
"""Tests damaged, missing and forbidden data: the daemon names them, and never serves them."""
import os
import shutil

from common.commands import one_line, run
from common.users import MALLORY, as_user, user_probe
from dieseld_support import SCRATCH, Case, chunk_files, dataset, main, make_source, pack, probe, probe_command


def flip(path, offset, bit=0x10):
    with open(path, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([byte ^ bit]))


class Chunks(Case):
    def spoiled(self, kind, spoil, failure="quarantined"):
        """Reads a dataset with one spoiled chunk, which is whole again afterwards."""
        (original, source), path = dataset(kind), os.path.join(SCRATCH, "spoiled-" + kind)
        if not os.path.exists(path):
            shutil.copytree(original, path)
        chunk, whole = chunk_files(path)[2], chunk_files(original)[2]
        spoil(chunk)
        try:
            return self.read_spoiled(path, source, chunk, failure), chunk
        finally:
            if os.path.isdir(chunk):
                os.rmdir(chunk)
            elif os.path.lexists(chunk):
                os.unlink(chunk)
            shutil.copy2(whole, chunk)

    def read_spoiled(self, path, source, chunk, failure):
        daemon = self.daemon()
        # The probe would stop at the first wrong byte.
        result = probe(daemon, path, "--source", source, "--batch", 16, "--window", 1)
        self.assertGreater(result["bad"], 0)
        self.assertGreater(result["batches"], 0)
        self.assertEqual(result["bad"] + result["batches"], result["n_batches"])
        self.assertIn(os.path.basename(chunk), result["error"])
        self.assertIn("needs its sample class", result["error"])
        found = {name: len(daemon.status()["datasets"][0][name]) for name in ("quarantined", "unread")}
        self.assertEqual(found, {"quarantined": 0, "unread": 0, failure: 1})
        self.assertIn("reading it again", daemon.output())
        return result

    def test_a_flipped_bit_in_a_sample_is_noticed(self):
        for kind in ("packed", "views"):
            with self.subTest(kind=kind):
                result, _ = self.spoiled(kind, lambda chunk: flip(chunk, os.path.getsize(chunk) // 2))
                self.assertRegex(result["error"], r"class\d/\d+\.bin")

    def test_a_flipped_bit_in_the_head_is_noticed(self):
        for offset in (0, 8, 20, 100, 200, 5000):
            with self.subTest(offset=offset):
                self.spoiled("packed", lambda chunk: flip(chunk, offset))

    def test_what_was_cut_is_refused(self):
        for size in (0, 100, 4096, -4096):
            with self.subTest(size=size):
                result, _ = self.spoiled("views", lambda chunk: os.truncate(chunk, size if size >= 0 else
                                                                          os.path.getsize(chunk) + size))
                self.assertIn("truncated", result["error"])

    def test_a_missing_or_refused_chunk_is_named_and_not_called_damaged(self):
        result, _ = self.spoiled("views", os.unlink, "unread")
        self.assertIn("restore it with `dieselctl verify --repair`", result["error"])
        self.spoiled("views", lambda chunk: os.chmod(chunk, 0o600), "unread")

    def test_a_chunk_that_is_no_file_is_refused(self):
        def replace(make):
            def spoil(chunk):
                os.unlink(chunk)
                make(chunk)
            return spoil

        self.spoiled("views", replace(os.mkfifo))
        self.spoiled("views", replace(os.mkdir))
        self.spoiled("views", replace(lambda chunk: os.symlink("/etc/passwd", chunk)))

    def test_another_valid_chunk_in_its_place_is_noticed(self):
        self.spoiled("packed", lambda chunk: shutil.copyfile(os.path.join(os.path.dirname(chunk), sorted(
            os.listdir(os.path.dirname(chunk)))[0]), chunk))

    def test_a_repaired_chunk_is_served(self):
        path, source = self.copy("views", "repaired")
        chunk = chunk_files(path)[1]
        flip(chunk, os.path.getsize(chunk) // 2)
        daemon = self.daemon()
        self.assertGreater(probe(daemon, path)["bad"], 0)
        flip(chunk, os.path.getsize(chunk) // 2)
        self.assertEqual(probe(daemon, path, "--source", source)["bad"], 0)


class Snapshots(Case):
    def test_a_snapshot_with_a_flipped_bit_is_refused(self):
        path, _ = self.copy("views", "flipped")
        snapshot = os.path.join(path, "snapshot")
        daemon = self.daemon()
        size = os.path.getsize(snapshot)
        for offset in (3, 40, size // 3, size // 2, size - 70):
            with self.subTest(offset=offset):
                flip(snapshot, offset)
                text = self.refused(daemon, path)
                self.assertIn("flipped/snapshot", text)
                flip(snapshot, offset)
                # Makes another inode, like any repair by rename: the served dataset stays as it was opened.
                shutil.copyfile(snapshot, snapshot + ".new")
                os.rename(snapshot + ".new", snapshot)
        self.assertEqual(probe(daemon, path)["samples"], 2000)

    def test_what_was_cut_is_refused(self):
        path, _ = self.copy("views", "cut")
        snapshot = os.path.join(path, "snapshot")
        for size in (os.path.getsize(snapshot) - 1, 1000, 10, 0):
            os.truncate(snapshot, size)
            self.assertIn("cut/snapshot", self.refused(self.daemon(), path))

    def test_a_dataset_that_was_replaced_is_opened_again(self):
        path, source = self.copy("views", "replaced")
        daemon = self.daemon()
        self.assertEqual(probe(daemon, path, "--source", source)["samples"], 2000)
        other = pack(make_source("other", 50, lambda rng: 100, seed=9), "other")
        shutil.rmtree(path)
        shutil.copytree(other, path)
        self.assertEqual(probe(daemon, path)["samples"], 50)


class Access(Case):
    def test_a_missing_dataset_is_an_error(self):
        daemon = self.daemon()
        self.assertIn("there is no dataset", self.refused(daemon, os.path.join(SCRATCH, "nowhere")))
        os.makedirs(os.path.join(SCRATCH, "empty"), exist_ok=True)
        self.assertIn("dieselctl pack", self.refused(daemon, os.path.join(SCRATCH, "empty")))

    def test_a_client_without_a_daemon_is_an_error(self):
        daemon = self.daemon()
        daemon.stop()
        self.assertIn("no dieseld at", self.refused(daemon, dataset("views")[0]))

    def test_a_closed_dataset_is_closed_to_clients(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        path, source = self.copy("views", "private")
        daemon = self.daemon()
        self.assertEqual(probe(daemon, path)["samples"], 2000)  # cached for its owner, which gives no access either
        command = probe_command(daemon, path, program=user_probe())
        run(*command, check=0, **as_user(MALLORY))
        os.chmod(os.path.join(path, "snapshot"), 0o600)
        one_line(run(*command, check=1, **as_user(MALLORY)), "may not read")


if __name__ == "__main__":
    main()
