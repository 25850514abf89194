# SPDX-License-Identifier: Apache-2.0
"""Tests chunks that were changed on purpose: XXH3 does not detect it, a SHA-256 does (docs/explanation/security.md)."""
import contextlib
import json
import os
import shutil
import sqlite3
import struct
import subprocess

from dieseld_support import BIN, CTL, SCRATCH, Case, chunk_files, main, make_source, pack, probe, probe_command
from common.users import MALLORY

SAMPLES = 300
FORGED = b"these bytes were never packed, whatever the checksums say" * 10
# The secret of XXH3 with seed 0 (docs/reference/formats.md; xxHash's specification), up to the end of the first block.
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
BLOCK, STRIPE, LANES = 1024, 64, 8
LOW, ALL = (1 << 32) - 1, (1 << 64) - 1


def key(stripe, lane):
    return struct.unpack_from("<Q", SECRET, 8 * stripe + 8 * lane)[0]


def sums(block, n_stripes):
    """Returns the amounts that the first stripes add to the accumulators of XXH3."""
    total = [0] * LANES
    for stripe in range(n_stripes):
        for lane, value in enumerate(struct.unpack_from("<8Q", block, STRIPE * stripe)):
            mixed = value ^ key(stripe, lane)
            total[lane] = total[lane] + (mixed & LOW) * (mixed >> 32) & ALL
            total[lane ^ 1] = total[lane ^ 1] + value & ALL
    return total


def second_preimage(sample):
    """Returns other bytes of the same length and the same XXH3. In each lane of the last two stripes of the first block one half makes the
    product zero, and the other half is free: together they add the missing difference."""
    forged = FORGED + sample[len(FORGED):BLOCK - 2 * STRIPE]
    missing = [want - have & ALL for want, have in zip(sums(sample[:BLOCK], 16), sums(forged, 14))]
    first, last = [], []
    for lane in range(LANES):
        rest = missing[lane ^ 1] - (key(14, lane) & LOW) - (key(15, lane) >> 32 << 32) & ALL
        first.append(rest >> 32 << 32 | key(14, lane) & LOW)
        last.append(key(15, lane) >> 32 << 32 | rest & LOW)
    return forged + struct.pack("<8Q", *first) + struct.pack("<8Q", *last) + sample[BLOCK:]


def forge(path):
    """Rewrites one sample of a chunk; its head stays as it is."""
    with open(chunk_files(path)[0], "r+b") as f:
        offset, length = struct.unpack("<QI", f.read(140)[128:])
        f.seek(offset)
        sample = f.read(length)
        f.seek(offset)
        f.write(second_preimage(sample))


def verify(path):
    return subprocess.run([CTL, "verify", path], capture_output=True, text=True, timeout=60)


def formats(path):
    """Returns the formats of metadata and snapshot."""
    with contextlib.closing(sqlite3.connect(f"file:{path}/meta.db?mode=ro", uri=True)) as db, \
            open(os.path.join(path, "snapshot"), "rb") as f:
        return db.execute("PRAGMA user_version").fetchone()[0], struct.unpack("<8xI", f.read(12))[0]


def stat(path):
    return json.loads(subprocess.check_output([CTL, "stat", "--json", path]))


class Forgery(Case):
    def setUp(self):
        self.source = make_source("forgery", SAMPLES, lambda rng: 4096)

    def packed(self, name, *options):
        return pack(self.source, name, *options)

    def test_xxh3_does_not_see_it(self):
        path = self.packed("trusting")
        self.assertIsNone(stat(path)["digest"])
        self.assertEqual(formats(path), (1, 5))
        forge(path)
        self.assertEqual(verify(path).returncode, 0)
        daemon = self.daemon()
        result = probe(daemon, path)
        self.assertEqual((result["samples"], result["bad"]), (SAMPLES, 0))
        with self.assertRaises(AssertionError):
            probe(daemon, path, "--source", self.source)

    def test_sha256_sees_it(self):
        path = self.packed("checked", "--digest", "sha256")
        self.assertEqual(stat(path)["digest"], "sha256")
        self.assertEqual(formats(path), (2, 5))
        self.assertEqual(verify(path).returncode, 0)
        self.assertEqual(probe(self.daemon(), path, "--source", self.source)["samples"], SAMPLES)
        forge(path)
        found = verify(path)
        self.assertEqual(found.returncode, 1)
        self.assertIn("SHA-256", found.stdout + found.stderr)
        daemon = self.daemon()
        result = probe(daemon, path)
        self.assertEqual(result["samples"], 0)
        self.assertIn("SHA-256", result["error"])
        self.assertIn("reading it again", daemon.output())
        self.assertEqual(len(daemon.status()["datasets"][0]["quarantined"]), 1)


class Required(Case):
    def setUp(self):
        self.path = os.path.join(SCRATCH, "required")
        shutil.rmtree(self.path, ignore_errors=True)
        pack(make_source("required", SAMPLES, lambda rng: 4096), "required")

    def rebuild(self, *options):
        subprocess.run([CTL, "rebuild", *options, self.path], check=True, stdout=subprocess.DEVNULL)

    def as_another(self, daemon):
        program = os.path.join(SCRATCH, "probe")
        shutil.copy(os.path.join(BIN, "daemon_probe"), program)
        os.chmod(program, 0o755)
        return subprocess.run(["setpriv", "--reuid", str(MALLORY), "--regid", str(MALLORY), "--clear-groups",
                               *probe_command(daemon, self.path, program=program)], capture_output=True, text=True)

    def test_shared_refuses_other_users_without_digest(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        daemon = self.daemon("--require-digest", "shared")
        self.assertEqual(probe(daemon, self.path)["samples"], SAMPLES)  # its owner has been served it since
        refused = self.as_another(daemon)
        self.assertEqual(refused.returncode, 1)
        self.assertEqual(len(refused.stderr.strip().splitlines()), 1, refused.stderr)
        self.assertIn(f"dieselctl rebuild --digest sha256 {self.path}", refused.stderr)
        self.rebuild("--digest", "sha256")
        self.assertEqual(self.as_another(daemon).returncode, 0)
        self.rebuild()
        self.assertEqual(stat(self.path)["digest"], "sha256")

    def test_always_refuses_a_dataset_without_digest(self):
        daemon = self.daemon("--require-digest", "always")
        self.assertIn("--require-digest", self.refused(daemon, self.path))
        self.rebuild("--digest", "sha256")
        self.assertEqual(probe(daemon, self.path)["samples"], SAMPLES)


if __name__ == "__main__":
    main()
