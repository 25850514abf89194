# SPDX-License-Identifier: Apache-2.0
"""Tests a snapshot too large to be verified whole when it is opened: its damage is found at use."""
import os
import pathlib
import shutil
import struct
import subprocess

try:
    import diesel_loader
    import diesel_loader.numpy as diesel
except ImportError as error:
    print(f"skipped: needs {error.name}")
    raise SystemExit(77)
from dieseld_support import BIN, CTL, Case, SCRATCH, chunk_files, main

N, BYTES, CLASSES = 81_000, 224, 9
WHOLE_BYTES = 4 << 20  # below this it would be verified whole (SNAPSHOT_WHOLE_BYTES)
CHUNKS, RECORDS, HASH, TREE, PATHS = range(5)  # sections
RECORD_BYTES = 24
XXH3, STORED, PATH = 0, 8, 16  # words of a record


class Large(Case):
    @classmethod
    def setUpClass(cls):
        cls.original = pathlib.Path(SCRATCH, "original")
        subprocess.run([os.path.join(BIN, "many_samples"), cls.original, str(N), str(BYTES), str(CLASSES)], check=True)
        assert (cls.original / "snapshot").stat().st_size > WHOLE_BYTES

    def copy(self, name):
        self.path = pathlib.Path(SCRATCH, name)
        shutil.copytree(self.original, self.path)
        return self.path / "snapshot"

    def spoil(self, snapshot, section, at, bit=1):
        """Flips a bit of the byte at that place."""
        with open(snapshot, "r+b") as f:
            f.seek(96 + 24 * section)  # the header's extents
            place = struct.unpack("<Q", f.read(8))[0] + at
            f.seek(place)
            byte = f.read(1)[0]
            f.seek(place)
            f.write(bytes([byte ^ bit]))

    def epoch(self, daemon):
        """Returns how many samples come, all of them right, and the errors in place of others."""
        n, errors = 0, set()
        dataset = diesel_loader.Dataset(self.path, socket=daemon.socket)
        batches = iter(diesel.DataLoader(dataset, batch_size=500, shuffle=True, seed=1, order=diesel.Order(window_chunks=1), num_workers=0,
                                         batches=diesel.Batches(return_ids=True)))
        while True:
            try:
                data, labels, ids = next(batches)
            except StopIteration:
                return n, errors
            except diesel_loader.DamagedData as error:
                errors.add(str(error).partition("; batch")[0])
                continue
            numbers = data[:, :8].copy().view("<u8").ravel()
            self.assertEqual(numbers.tolist(), ids.tolist())
            self.assertEqual(labels.tolist(), [i * CLASSES // N for i in ids.tolist()])
            n += len(numbers)

    def test_a_wrong_record_is_noticed(self):
        """The chunk with that sample is not served, and the others are. Then the snapshot is made again."""
        first_chunk = chunk_files(self.original)[0]
        self.assertLess(N // CLASSES * len("class0000/00000003.bin"), 1 << 18)  # so a path that far on belongs to another class
        for at, bit, says in ((PATH + 2, 1 << 2, "sample class0000/00000003.bin differs from the snapshot"),
                              (XXH3, 1, "differs from the snapshot"), (STORED + 4, 1, "differs from the snapshot")):
            with self.subTest(at=at):
                snapshot = self.copy(f"record{at}")
                self.spoil(snapshot, RECORDS, 3 * RECORD_BYTES + at, bit)
                daemon = self.daemon()
                n, errors = self.epoch(daemon)
                self.assertEqual(len(errors), 1, errors)
                error = errors.pop()
                self.assertIn(os.path.basename(first_chunk), error)
                self.assertIn(says, error)
                self.assertIn("dieselctl verify", error)
                self.assertLess(0, n)
                self.assertLess(n, N)
        verified = subprocess.run([CTL, "verify", self.path], capture_output=True, text=True, timeout=60)
        self.assertEqual(verified.returncode, 1, verified.stdout)
        self.assertIn("records damaged", verified.stdout + verified.stderr)
        subprocess.run([CTL, "snapshot", self.path], check=True, stdout=subprocess.DEVNULL, timeout=60)
        self.assertEqual(self.epoch(daemon), (N, set()))

    def test_nothing_is_looked_up_in_a_damaged_snapshot(self):
        """Gives no labels, paths and classes of a snapshot with any damaged part."""
        snapshot = self.copy("lookups")
        daemon = self.daemon()
        good = diesel_loader.Dataset(self.path, socket=daemon.socket)
        self.assertEqual(good.sample_path(N - 1), "class0008/00080999.bin")
        self.assertEqual(good.targets, [i * CLASSES // N for i in range(N)])
        self.assertEqual(len(good.filter("class0004")), N // CLASSES)
        self.assertEqual(good.class_to_idx["class0008"], 8)
        for section in (RECORDS, HASH, TREE, PATHS):
            with self.subTest(section=section):
                self.spoil(snapshot, section, 64)
                shutil.copyfile(snapshot, f"{snapshot}.new")
                os.rename(f"{snapshot}.new", snapshot)  # the open snapshot stays as it is
                bad = diesel_loader.Dataset(self.path, socket=daemon.socket)
                self.assertEqual(len(bad), N)
                for look_up in (lambda: bad.targets, lambda: bad.classes, lambda: bad.sample_path(9), lambda: bad.label(9),
                                lambda: bad.filter("class0004"), lambda: bad.filter(paths="*4"),
                                lambda: bad.random_split([0.5, 0.5], by_class=True), lambda: bad.read(9)):
                    with self.assertRaisesRegex(diesel_loader.DamagedData, "lookups/snapshot is damaged: run `dieselctl snap"):
                        look_up()
                self.spoil(snapshot, section, 64)
        self.assertEqual(good.label(9), 0)

    def test_damaged_tables_are_refused(self):
        """Tables are verified when the dataset is opened."""
        snapshot = self.copy("tables")
        self.spoil(snapshot, CHUNKS, 40)
        self.assertIn("chunk table damaged (checksum mismatch); run `dieselctl snapshot`", self.refused(self.daemon(), self.path))

    def test_what_was_opened_is_served_whatever_becomes_of_the_file(self):
        """The open snapshot is served on, whatever happens to the file, and comes back after the daemon's end."""
        snapshot = self.copy("changed")
        daemon = self.daemon(cache="64M")
        good = diesel_loader.Dataset(self.path, socket=daemon.socket)
        self.assertEqual(self.epoch(daemon), (N, set()))
        os.truncate(snapshot, 300)
        self.assertEqual(self.epoch(daemon), (N, set()))
        self.assertEqual(good.label(N - 1), 8)
        os.truncate(snapshot, (self.original / "snapshot").stat().st_size)  # its tail is zeros now
        self.assertEqual(self.epoch(daemon), (N, set()))
        daemon.kill()
        daemon.start()
        self.assertIn("damaged", self.refused(daemon, self.path))
        subprocess.run([CTL, "snapshot", self.path], check=True, stdout=subprocess.DEVNULL, timeout=60)
        self.assertEqual(self.epoch(daemon), (N, set()))


if __name__ == "__main__":
    main()
