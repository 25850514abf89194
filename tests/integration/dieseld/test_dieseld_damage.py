# SPDX-License-Identifier: Apache-2.0
"""Tests damaged, missing and forbidden data: the daemon names them, and never serves them."""
import os
import shutil
import subprocess

from dieseld_support import BIN, Case, SCRATCH, chunk_files, dataset, main, make_source, pack, probe


def copy_of(kind, name):
    path, source = dataset(kind)
    target = os.path.join(SCRATCH, name)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(path, target)
    return target, source


def flip(path, offset, bit=0x10):
    with open(path, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([byte ^ bit]))


class Chunks(Case):
    def spoiled(self, kind, spoil):
        path, source = copy_of(kind, "spoiled")
        chunk = chunk_files(path)[2]
        spoil(chunk)
        daemon = self.daemon()
        # The probe would stop at the first wrong byte.
        result = probe(daemon, path, "--source", source, "--batch", 16, "--window", 1)
        self.assertGreater(result["bad"], 0)
        self.assertGreater(result["batches"], 0)
        self.assertEqual(result["bad"] + result["batches"], result["n_batches"])
        self.assertIn(os.path.basename(chunk), result["error"])
        self.assertIn("needs its sample class", result["error"])
        status = daemon.status()
        self.assertEqual(len(status["datasets"][0]["quarantined"]), 1)
        self.assertIn("reading it again", daemon.output())
        return result, chunk

    def test_a_flipped_bit_in_a_sample(self):
        for kind in ("packed", "views"):
            with self.subTest(kind=kind):
                result, _ = self.spoiled(kind, lambda chunk: flip(chunk, os.path.getsize(chunk) // 2))
                self.assertRegex(result["error"], r"class\d/\d+\.bin")

    def test_a_flipped_bit_in_the_head(self):
        for offset in (0, 8, 20, 100, 200, 5000):
            with self.subTest(offset=offset):
                self.spoiled("packed", lambda chunk: flip(chunk, offset))

    def test_truncated(self):
        for size in (0, 100, 4096, -4096):
            with self.subTest(size=size):
                result, _ = self.spoiled("views", lambda chunk: os.truncate(chunk, size if size >= 0 else
                                                                          os.path.getsize(chunk) + size))
                self.assertIn("truncated", result["error"])

    def test_missing(self):
        self.spoiled("views", os.unlink)

    def test_not_a_file(self):
        def replace(make):
            def spoil(chunk):
                os.unlink(chunk)
                make(chunk)
            return spoil

        self.spoiled("views", replace(os.mkfifo))
        self.spoiled("views", replace(os.mkdir))
        self.spoiled("views", replace(lambda chunk: os.symlink("/etc/passwd", chunk)))

    def test_another_valid_chunk_in_its_place(self):
        self.spoiled("packed", lambda chunk: shutil.copyfile(os.path.join(os.path.dirname(chunk), sorted(
            os.listdir(os.path.dirname(chunk)))[0]), chunk))

    def test_repaired(self):
        path, source = copy_of("views", "repaired")
        chunk = chunk_files(path)[1]
        flip(chunk, os.path.getsize(chunk) // 2)
        daemon = self.daemon()
        self.assertGreater(probe(daemon, path)["bad"], 0)
        flip(chunk, os.path.getsize(chunk) // 2)
        self.assertEqual(probe(daemon, path, "--source", source)["bad"], 0)


class Snapshots(Case):
    def test_flipped_bits(self):
        path, _ = copy_of("views", "flipped")
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

    def test_truncated(self):
        path, _ = copy_of("views", "cut")
        snapshot = os.path.join(path, "snapshot")
        for size in (os.path.getsize(snapshot) - 1, 1000, 10, 0):
            os.truncate(snapshot, size)
            self.assertIn("cut/snapshot", self.refused(self.daemon(), path))

    def test_replaced_while_it_is_served(self):
        path, source = copy_of("views", "replaced")
        daemon = self.daemon()
        self.assertEqual(probe(daemon, path, "--source", source)["samples"], 2000)
        other = pack(make_source("other", 50, lambda rng: 100, seed=9), "other")
        shutil.rmtree(path)
        shutil.copytree(other, path)
        self.assertEqual(probe(daemon, path)["samples"], 50)


class Access(Case):
    def test_missing_dataset(self):
        daemon = self.daemon()
        self.assertIn("there is no dataset", self.refused(daemon, os.path.join(SCRATCH, "nowhere")))
        os.makedirs(os.path.join(SCRATCH, "empty"), exist_ok=True)
        self.assertIn("dieselctl pack", self.refused(daemon, os.path.join(SCRATCH, "empty")))

    def test_no_daemon(self):
        daemon = self.daemon()
        daemon.stop()
        self.assertIn("no dieseld at", self.refused(daemon, dataset("views")[0]))

    def test_no_permission(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        path, source = copy_of("views", "private")
        daemon = self.daemon()
        self.assertEqual(probe(daemon, path)["samples"], 2000)  # cached for its owner, which gives no access either
        program = os.path.join(SCRATCH, "probe")
        shutil.copy(os.path.join(BIN, "daemon_probe"), program)
        os.chmod(program, 0o755)
        as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", program, "--dataset", path,
                     "--socket", daemon.socket]
        self.assertEqual(subprocess.run(as_nobody, capture_output=True).returncode, 0)
        os.chmod(os.path.join(path, "snapshot"), 0o600)
        result = subprocess.run(as_nobody, capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("may not read", result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1)


if __name__ == "__main__":
    main()
