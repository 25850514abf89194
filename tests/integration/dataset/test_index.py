# SPDX-License-Identifier: Apache-2.0
"""Tests datasets over tar shards that stay where they are: `dieselctl index`."""
import io
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import unittest.mock
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
import support  # noqa: E402
from serving import Daemon  # noqa: E402

try:
    import lmdb
    import numpy

    import diesel_loader
    from diesel_loader.numpy import DataLoader
except ImportError as error:
    support.skip(f"needs {error.name}")

NOBODY, MALLORY = 65534, 12345


def member(name, data, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mtime = kind, len(data), 1000000000
    return info, io.BytesIO(data)


def write_shard(path, members, form=tarfile.USTAR_FORMAT):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=form) as archive:
        for info, data in members:
            archive.addfile(info, data)


def make_shards(folder, n_shards, n_samples, seed=1):
    """Writes shards, and returns the bytes of each field by sample path and field."""
    rng, contents = random.Random(seed), {}
    for shard in range(n_shards):
        members = []
        for i in range(n_samples):
            fields = {"jpg": rng.randbytes(rng.randrange(60000)), "txt": f"caption {i}".encode(), "cls": str(i % 10).encode()}
            contents.update({(f"train-{shard:03d}/{i:05d}", name): data for name, data in fields.items()})
            members += [member(f"{i:05d}.{name}", data) for name, data in fields.items()]
        write_shard(folder / f"train-{shard:03d}.tar", members)
    return contents


def fields_of(sample):
    """Returns the members of a sample, which is a run of tar members without an end."""
    with tarfile.open(fileobj=io.BytesIO(bytes(sample) + bytes(1024))) as archive:
        return {info.name.rpartition("/")[2].partition(".")[2]: archive.extractfile(info).read() for info in archive if info.isfile()}


def dieselctl(*arguments):
    return subprocess.run([support.program("dieselctl"), *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, "DIESEL_PYTHON": sys.executable})


class Index(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.shards, self.dataset = self.folder / "shards", self.folder / "over.diesel"

    def index(self, *arguments):
        done = dieselctl("index", *(arguments or [self.shards]), "--output", self.dataset, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refuses(self, text, *arguments):
        done = dieselctl("index", *(arguments or [self.shards]), "--output", self.dataset)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(text, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertFalse((self.dataset / "snapshot").exists())

    def daemon(self, *options):
        return self.enterContext(Daemon(self.folder, *options, log=self.folder / "log"))

    def holds(self, dataset, contents):
        found = {}
        for number in range(len(dataset)):
            path = dataset.sample_path(number)
            found.update({(path, name): data for name, data in fields_of(dataset.read(number)).items()})
        self.assertEqual(found, contents)


class Reading(Index):
    def test_a_dataset_holds_the_samples_of_its_shards_and_copies_nothing(self):
        contents = make_shards(self.shards, 3, 100)
        result = self.index()
        self.assertEqual((result["shards"], result["samples"], result["fields"]), (3, 300, {"jpg": 300, "txt": 300, "cls": 300}))
        used = sum(path.stat().st_size for path in self.dataset.rglob("*") if path.is_file())
        self.assertLess(used, 1 << 20)
        self.daemon()
        self.holds(diesel_loader.Dataset(self.dataset), contents)
        self.assertEqual(dieselctl("verify", self.dataset).returncode, 0)

    def test_a_job_gets_each_sample_once_an_epoch_from_the_daemons_cache(self):
        contents = make_shards(self.shards, 2, 200)
        self.index("--chunk-size", "4M", self.shards)
        self.daemon()
        for _epoch in range(2):
            seen = {}
            names = ("__key__", "jpg", "txt", "cls")
            for batch in DataLoader(diesel_loader.Dataset(self.dataset, fields=names), batch_size=16, shuffle=True, collate_fn=list):
                for sample in batch:
                    self.assertNotIn((sample["__key__"], "jpg"), seen)
                    seen[sample["__key__"], "jpg"] = bytes(sample["jpg"])
                    seen[sample["__key__"], "txt"] = sample["txt"].encode()
                    seen[sample["__key__"], "cls"] = str(sample["cls"]).encode()
            self.assertEqual(seen, contents)
        files = diesel_loader.status()["datasets"][0]
        self.assertEqual(files["samples"], 400)

    @unittest.skipUnless(os.access("/dev/fuse", os.W_OK) and shutil.which("fusermount3"), "needs FUSE")
    def test_a_mount_shows_each_sample_as_an_archive_of_its_members(self):
        contents = make_shards(self.shards, 1, 5)
        self.index()
        self.daemon()
        where = self.folder / "mounted"
        where.mkdir()
        done = dieselctl("mount", self.dataset, where, "--", "tar", "-xOf", where / "train-000/00003", "00003.txt")
        self.assertEqual(done.stdout.encode(), contents["train-000/00003", "txt"], done.stderr)
        done = dieselctl("mount", "--allow-other", self.dataset, where, "--", "true")
        self.assertEqual((done.returncode, "cannot enforce" in done.stderr), (1, True), done.stderr)

    def test_a_relative_path_works_from_any_folder(self):
        contents = make_shards(self.shards, 1, 5)
        self.index()
        self.daemon()
        program = f"import diesel_loader; print(len(diesel_loader.Dataset({self.dataset.name!r}).read(0)))"
        done = subprocess.run([sys.executable, "-c", program], cwd=self.folder, capture_output=True, text=True, check=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertGreater(int(done.stdout), len(contents["train-000/00000", "jpg"]))

    def test_formats_of_tar_are_read_alike(self):
        long = "d" * 90 + "/" + "k" * 150
        for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            with self.subTest(form=form):
                name = "a" if form == tarfile.USTAR_FORMAT else long
                write_shard(self.shards / f"{form}.tar", [member(f"{name}.{field}", field.encode() * 700) for field in ("bin", "txt")], form)
        (self.folder / "old.txt").write_bytes(b"text")
        (self.folder / "old.bin").write_bytes(b"x" * 2000)
        subprocess.run(["tar", "--format=v7", "-cf", self.shards / "v7.tar", "-C", self.folder, "old.txt", "old.bin"], check=True)
        self.index()
        self.daemon()
        dataset = diesel_loader.Dataset(self.dataset)
        self.assertEqual(len(dataset), 4)
        for number in range(4):
            fields = fields_of(dataset.read(number))
            self.assertEqual(set(fields), {"bin", "txt"}, dataset.sample_path(number))


class Packing(Index):
    """`dieselctl pack` of an indexed dataset copies its samples, mixed over all shards."""

    def test_a_packed_copy_has_the_same_samples_mixed_and_needs_no_shards(self):
        contents = make_shards(self.shards, 3, 120)
        self.index()
        packed = self.folder / "packed.diesel"
        self.assertEqual(dieselctl("pack", self.dataset, packed, "--zstd", "3").returncode, 0)
        for shard in self.shards.iterdir():
            shard.unlink()
        self.daemon()
        dataset = diesel_loader.Dataset(packed)
        self.holds(dataset, contents)
        self.assertEqual(dataset.fields, ("jpg", "txt", "cls"))
        shards = [dataset.sample_path(i).partition("/")[0] for i in range(60)]
        self.assertEqual(len(set(shards)), 3)
        self.assertEqual(dieselctl("verify", packed).returncode, 0)

    def test_appending_takes_samples_whose_bytes_changed_but_not_their_length(self):
        rows = self.folder / "rows"
        file = self.folder / "file"
        packed = self.folder / "packed.diesel"
        for data in (b"first!", b"second"):
            file.write_bytes(data)
            rows.write_text(f"{file}\t0\t6\ta\n")
            self.index("--rows", rows)
            self.assertEqual(dieselctl("pack", "--append", self.dataset, packed).returncode, 0)
            self.assertEqual(dieselctl("cat", packed, "a").stdout, data.decode())

    def test_a_changed_shard_ends_the_pack_with_its_name(self):
        make_shards(self.shards, 2, 20)
        self.index()
        os.utime(self.shards / "train-000.tar", (1, 1))
        done = dieselctl("pack", self.dataset, self.folder / "packed.diesel")
        self.assertEqual(done.returncode, 1)
        self.assertIn("train-000.tar has changed since it was indexed", done.stderr)
        self.assertFalse((self.folder / "packed.diesel" / "snapshot").exists())


class Changes(Index):
    def test_a_changed_shard_is_named_and_never_read(self):
        contents = make_shards(self.shards, 2, 50)
        self.index()
        self.daemon()
        dataset = diesel_loader.Dataset(self.dataset)
        shard = self.shards / "train-001.tar"
        data = bytearray(shard.read_bytes())
        data[600] ^= 1
        shard.write_bytes(data)
        os.utime(shard, (1, 1))
        good = [i for i in range(len(dataset)) if dataset.sample_path(i).startswith("train-000")]
        bad = next(i for i in range(len(dataset)) if dataset.sample_path(i).startswith("train-001"))
        self.assertEqual(fields_of(dataset.read(good[0]))["jpg"], contents[dataset.sample_path(good[0]), "jpg"])
        with self.assertRaisesRegex(OSError, "train-001.tar has changed since it was indexed"):
            dataset.read(bad)
        with self.assertRaisesRegex(OSError, "train-001.tar has changed since it was indexed"):
            for _batch in DataLoader(dataset, batch_size=8, collate_fn=list):
                pass
        verified = dieselctl("verify", self.dataset)
        self.assertEqual(verified.returncode, 1)
        self.assertIn("train-001.tar has changed", verified.stdout + verified.stderr)

    def test_a_shard_that_vanished_is_named(self):
        make_shards(self.shards, 2, 20)
        self.index()
        self.daemon()
        dataset = diesel_loader.Dataset(self.dataset)
        (self.shards / "train-000.tar").unlink()
        with self.assertRaisesRegex(OSError, "train-000.tar"):
            for _batch in DataLoader(dataset, batch_size=8, collate_fn=list):
                pass

    def test_indexing_again_takes_only_changed_shards(self):
        contents = make_shards(self.shards, 3, 40)
        self.index()
        write_shard(self.shards / "train-001.tar", [member("00000.jpg", b"new"), member("99999.jpg", b"one more")])
        result = self.index()
        self.assertEqual((result["shards"], result["unchanged_shards"], result["version"]), (1, 2, 2))
        wanted = {key: data for key, data in contents.items() if not key[0].startswith("train-001")}
        wanted["train-001/00000", "jpg"], wanted["train-001/99999", "jpg"] = b"new", b"one more"
        self.daemon()
        self.holds(diesel_loader.Dataset(self.dataset), wanted)
        self.assertEqual(dieselctl("verify", self.dataset).returncode, 0)

    def test_a_shard_put_back_to_an_earlier_state_has_its_samples_again(self):
        contents = make_shards(self.shards, 2, 30)
        shard, kept = self.shards / "train-001.tar", self.folder / "kept.tar"
        self.index()
        subprocess.run(["cp", "-p", shard, kept], check=True)
        write_shard(shard, [member("00000.jpg", b"other")])
        self.index()
        subprocess.run(["cp", "-p", kept, shard], check=True)
        self.index()
        self.daemon()
        self.holds(diesel_loader.Dataset(self.dataset), contents)

    def test_a_changed_shard_is_whole_after_a_run_that_was_killed_before_its_commit(self):
        contents = make_shards(self.shards, 1, 30)
        self.index()
        changed = make_shards(self.shards, 1, 30, seed=2)
        slow = self.shards / "zzz.tar"  # a FIFO, at which the run waits with the chunks of the others written
        os.mkfifo(slow)
        with subprocess.Popen([support.program("dieselctl"), "index", self.shards, slow, "--output", self.dataset],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            time.sleep(0.5)
            run.kill()
        slow.unlink()
        for _again in range(2):
            self.index()
        self.daemon()
        self.holds(diesel_loader.Dataset(self.dataset), {**contents, **changed})

    def test_leftovers_of_other_options_are_not_taken(self):
        contents = make_shards(self.shards, 3, 150)
        rng = random.Random(5)
        for _try in range(6):
            with subprocess.Popen([support.program("dieselctl"), "index", self.shards, "--output", self.dataset, "--chunk-size",
                                   rng.choice(["4M", "8M"])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
                time.sleep(rng.uniform(0, 0.03))
                run.kill()
        self.index()
        self.daemon()
        self.holds(diesel_loader.Dataset(self.dataset), contents)

    def test_a_flipped_byte_of_a_head_is_noticed_without_a_daemon(self):
        make_shards(self.shards, 1, 5)
        self.index()
        chunk, = (self.dataset / "chunks").glob("*.chunk")
        data = bytearray(chunk.read_bytes())
        at = struct.unpack_from("<I", data, 88)[0]
        data[at + 1] ^= 0x10  # of the range's offset
        chunk.write_bytes(data)
        done = dieselctl("cat", self.dataset, "train-000/00000")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("damaged", done.stderr)

    def test_a_killed_run_is_continued(self):
        contents = make_shards(self.shards, 60, 60)
        rng = random.Random(3)
        for _try in range(8):
            with subprocess.Popen([support.program("dieselctl"), "index", self.shards, "--output", self.dataset, "--jobs", "1"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
                time.sleep(rng.uniform(0, 0.05))
                run.send_signal(signal.SIGKILL)
        result = self.index()
        self.assertEqual(result["shards"] + result["resumed_shards"] + result["unchanged_shards"], 60)
        self.daemon()
        self.holds(diesel_loader.Dataset(self.dataset), contents)


class WrongInput(Index):
    def test_wrong_shards_are_refused_with_one_line(self):
        link, pipe = tarfile.SYMTYPE, tarfile.FIFOTYPE
        cases = {
            "are not next to one another": [("a.jpg", b"1"), ("b.jpg", b"3"), ("a.cls", b"4")],
            "occurs twice in one sample": [("a.jpg", b"1"), ("a.jpg", b"5")],
            "is a link": [("a.jpg", b"1"), ("c.jpg", b"", link)],
            "is neither a file nor a folder": [("a.jpg", b"1"), ("d.jpg", b"", pipe)],
            "no valid path": [("../a.jpg", b"1")],
            "has no members whose names have an extension": [("README", b"1")],
        }
        for text, members in cases.items():
            with self.subTest(text):
                write_shard(self.shards / "s.tar", [member(*told) for told in members])
                self.refuses(text)

    def test_damaged_archives_are_refused(self):
        make_shards(self.shards, 1, 10)
        shard = self.shards / "train-000.tar"
        whole = shard.read_bytes()
        for text, data in {"cut off": whole[:30000], "damaged": b"x" * 5000 + whole, "no uncompressed tar": b""}.items():
            with self.subTest(text):
                shard.write_bytes(data)
                done = dieselctl("index", self.shards, "--output", self.dataset)
                self.assertEqual(done.returncode, 1, text)
                self.assertIn(str(shard), done.stderr)
        subprocess.run(["gzip", "-k", "-f", shard], check=True)
        os.replace(f"{shard}.gz", shard)
        self.refuses("no uncompressed tar archive")

    def test_a_sparse_member_is_refused(self):
        hole = self.folder / "hole.bin"
        with open(hole, "wb") as file:
            file.write(b"begin")
            file.truncate(1 << 22)
        self.shards.mkdir()
        for words in (["--format=gnu"], ["--format=pax", "--sparse-version=0.1"], ["--format=pax", "--sparse-version=1.0"]):
            subprocess.run(["tar", "--sparse", *words, "-cf", self.shards / "s.tar", "-C", self.folder, "hole.bin"], check=True)
            self.refuses("sparse")

    def test_a_key_split_over_shards_is_two_samples_which_the_counts_show(self):
        write_shard(self.shards / "one.tar", [member("a.jpg", b"1")])
        write_shard(self.shards / "two.tar", [member("a.cls", b"2")])
        self.assertEqual(self.index()["fields"], {"jpg": 1, "cls": 1})
        self.assertEqual(dieselctl("ls", "-R", self.dataset).stdout.split(), ["one/a", "two/a"])

    def test_nothing_to_index_is_said(self):
        self.shards.mkdir()
        self.refuses("there are no *.tar files")
        self.refuses("cannot read", self.folder / "missing")
        (self.folder / "a.tfrecord").write_bytes(b"x")
        self.refuses("a.tfrecord is no tar archive: its samples are in TFRecord files, so import them with `dieselctl pack tfrecord:", self.folder / "a.tfrecord")

    def test_two_shards_of_one_name_are_refused(self):
        for name in ("one", "two"):
            write_shard(self.folder / name / "s.tar", [member("a.jpg", b"1")])
        self.refuses("have the same name", self.folder / "one/s.tar", self.folder / "two/s.tar")


class OtherFormats(Index):
    """Formats whose samples Python packages find."""

    def contents(self):
        self.daemon()
        dataset = diesel_loader.Dataset(self.dataset)
        return {dataset.sample_path(i): bytes(data) for i, data in enumerate(dataset.read_many(range(len(dataset))))}

    def test_an_uncompressed_zip_archive_has_its_folders_as_classes(self):
        rng = random.Random(5)
        members = {f"{'ab'[i % 2]}/{i}.jpg": rng.randbytes(rng.randrange(1, 40000)) for i in range(200)}
        with zipfile.ZipFile(self.folder / "tree.zip", "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        os.utime(self.folder / "tree.zip", (-5, -5))  # before 1970
        self.index(self.folder / "tree.zip")
        self.assertEqual(self.contents(), members)
        self.assertEqual(diesel_loader.Dataset(self.dataset).classes, ["a", "b"])

    def test_zip_archives_that_cannot_be_read_in_place_are_refused(self):
        path = self.folder / "bad.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.txt", "text " * 100)
        self.refuses("'a.txt' is compressed", path)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.txt", "text")
        data = path.read_bytes()
        path.write_bytes(data[:6] + b"\1" + data[7:].replace(b"PK\1\2\x14\3\x14\0\0", b"PK\1\2\x14\3\x14\0\1"))
        self.refuses("'a.txt' is encrypted", path)
        path.write_bytes(b"no archive")
        self.refuses("is no zip archive", path)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.txt", "text" * 1000)
        whole = path.read_bytes()
        path.write_bytes(whole[:2000])
        self.refuses("is no zip archive, or damaged", path)
        path.write_bytes(whole[:100] + whole[3000:])
        self.refuses("'a.txt' has no header", path)

    def test_a_zip_archive_written_to_a_pipe_is_read(self):
        program = f"import sys, zipfile; zipfile.ZipFile(sys.stdout.buffer, 'w').writestr('a/b', b'streamed' * 9)"
        with open(self.folder / "piped.zip", "wb") as file, subprocess.Popen(
                [sys.executable, "-c", program], stdout=subprocess.PIPE) as made:
            file.write(made.stdout.read())
        self.index(self.folder / "piped.zip")
        self.assertEqual(self.contents(), {"a/b": b"streamed" * 9})

    def write_lmdb(self, name=None, n=500, **options):
        rng, values = random.Random(7), {}
        with lmdb.open(str(self.folder / "db"), map_size=1 << 28, max_dbs=2) as env:
            database = env.open_db(name and name.encode(), **options)
            with env.begin(write=True, db=database) as transaction:
                for i in range(n):
                    values[f"{i:08d}"] = rng.randbytes(rng.randrange(1, 20000))
                    transaction.put(f"{i:08d}".encode(), values[f"{i:08d}"])
        return values

    def test_lmdb_values_have_their_keys_as_paths(self):
        values = self.write_lmdb()
        self.index(self.folder / "db")
        self.assertEqual(self.contents(), values)

    def test_an_lmdb_folder_may_have_the_ending_of_a_file(self):
        values = self.write_lmdb(n=20)
        (self.folder / "db").rename(self.folder / "db.mdb")
        self.index(self.folder / "db.mdb")
        self.assertEqual(self.contents(), values)

    def test_an_lmdb_that_is_cut_off_is_refused(self):
        self.write_lmdb()
        data = self.folder / "db/data.mdb"
        whole = data.read_bytes()
        for n_bytes in (len(whole) // 3, len(whole) - 10000, 9000, 5000):  # without its tree, a value, any page, the second head
            with self.subTest(n_bytes):
                data.write_bytes(whole[:n_bytes])
                done = dieselctl("index", self.folder / "db", "--output", self.dataset)
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), done.stderr)
                self.assertIn(str(self.folder / "db"), done.stderr)
        self.assertFalse(self.dataset.exists())

    def test_a_named_lmdb_database_must_be_chosen(self):
        values = self.write_lmdb("train")
        self.refuses("of which --db chooses one: train", self.folder / "db")
        self.index(self.folder / "db", "--db", "train")
        self.assertEqual(self.contents(), values)

    def test_lmdb_keys_of_several_values_get_numbers(self):
        with lmdb.open(str(self.folder / "db"), map_size=1 << 26, max_dbs=1) as env:
            database = env.open_db(b"many", dupsort=True)
            with env.begin(write=True, db=database) as transaction:
                for i in range(300):
                    transaction.put(b"key", b"%05d" % i)
        self.index(self.folder / "db", "--db", "many")
        found = self.contents()
        self.assertEqual(sorted(found.values()), [b"%05d" % i for i in range(300)])
        self.assertEqual(set(found), {"key", *(f"key.{i}" for i in range(1, 300))})

    def test_lmdb_keys_that_are_no_paths_become_digits(self):
        with lmdb.open(str(self.folder / "db"), map_size=1 << 26) as env, env.begin(write=True) as transaction:
            transaction.put(b"\0\0\1", b"one")
            transaction.put(b"../up", b"two")
        self.index(self.folder / "db")
        self.assertEqual(self.contents(), {"0x000001": b"one", "0x" + b"../up".hex(): b"two"})

    def test_damaged_lmdb_files_are_refused_and_crash_nothing(self):
        self.write_lmdb(n=100)
        file = self.folder / "db" / "data.mdb"
        whole = file.read_bytes()
        page = 4096
        pointed = bytearray(whole)
        for meta in (0, page):
            struct.pack_into("<Q", pointed, meta + 16 + 24 + 48 + 40, 1 << 40)  # the root of the main database
        other_pages = bytearray(whole)
        for meta in (0, page):
            struct.pack_into("<I", other_pages, meta + 16 + 24, 2 * page)
        for text, data in {"is empty": b"", "not an LMDB file": bytes(len(whole)), "is cut off: it has": whole[:len(whole) // 2], "db": bytes(pointed),
                           str(self.folder / "db"): bytes(other_pages)}.items():
            with self.subTest(text):
                file.write_bytes(data)
                self.refuses(text, self.folder / "db")
        with lmdb.open(str(self.folder / "none"), map_size=1 << 20):
            pass
        self.refuses("none/data.mdb has no samples", self.folder / "none")

    def test_a_write_to_lmdb_is_noticed(self):
        self.write_lmdb()
        self.index(self.folder / "db")
        self.daemon()
        dataset = diesel_loader.Dataset(self.dataset)
        with lmdb.open(str(self.folder / "db"), map_size=1 << 28) as env, env.begin(write=True) as transaction:
            transaction.put(b"00000000", b"changed")
        with self.assertRaisesRegex(OSError, "data.mdb has changed since it was indexed"):
            dataset.read(0)

    def write_tokens(self):
        rng = numpy.random.default_rng(2)
        lengths = [int(n) for n in rng.integers(1, 400, 50)]
        tokens = rng.integers(0, 1 << 16, sum(lengths), dtype=numpy.uint16)
        (self.folder / "text.bin").write_bytes(tokens.tobytes())
        offsets = [2 * sum(lengths[:i]) for i in range(len(lengths))]
        index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1)
        index += struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(lengths)}q", *offsets)
        (self.folder / "text.idx").write_bytes(index + struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1)))
        return tokens, lengths

    def test_token_files_are_documents_or_windows(self):
        tokens, lengths = self.write_tokens()
        self.refuses("choose a smaller number", self.folder / "text.bin", "--tokens", len(tokens))
        self.index(self.folder / "text.bin")
        documents = [tokens[sum(lengths[:i]):sum(lengths[:i + 1])].tobytes() for i in range(len(lengths))]
        found = self.contents()
        self.assertEqual([found[path] for path in sorted(found)], documents)
        self.dataset = self.folder / "windows.diesel"
        self.index(self.folder / "text.idx", "--tokens", "64")
        dataset = diesel_loader.Dataset(self.dataset)
        self.assertEqual(len(dataset), (len(tokens) - 1) // 64)
        for number in range(len(dataset)):
            i = int(dataset.sample_path(number).partition("/")[2])
            self.assertEqual(dataset.read(number), tokens[i * 64:i * 64 + 65].tobytes())

    def test_indexing_with_other_windows_replaces_the_samples(self):
        tokens, _lengths = self.write_tokens()
        for n in (16, 64):
            self.index(self.folder / "text.bin", "--tokens", n, "--chunk-size", "16M")
        self.assertEqual(len(self.contents()), (len(tokens) - 1) // 64)

    def test_a_token_file_shorter_than_its_index_is_refused(self):
        self.write_tokens()
        with open(self.folder / "text.bin", "r+b") as file:
            file.truncate(100)
        self.refuses("is shorter than its index states", self.folder / "text.bin")

    def test_rows_of_one_file_in_two_places_are_all_taken(self):
        one, two = self.folder / "one", self.folder / "two"
        one.write_bytes(b"first second")
        two.write_bytes(b"other")
        (self.folder / "rows").write_text(f"{one}\t0\t5\ta\n{two}\t0\t5\tb\n{one}\t6\t6\tc\n")
        for _again in range(2):
            self.index("--rows", self.folder / "rows")
        self.assertEqual(self.contents(), {"a": b"first", "b": b"other", "c": b"second"})

    def test_rows_of_other_programs_are_checked(self):
        make_shards(self.shards, 1, 5)
        shard = self.shards / "train-000.tar"
        for text, rows in {"lies outside": f"{shard}\t0\t999999999\ta\n", "is not an absolute path": "one\n", "occurs twice":
                           f"{shard}\t0\t5\ta\n{shard}\t5\t5\ta\n", "has no rows": "", "cut off": f"{shard}\t0\t5\ta", "no valid path": f"{shard}\t0\t5\t../a\n",
                           "missing": f"{shard}.missing\t0\t5\ta\n"}.items():
            with self.subTest(text):
                (self.folder / "rows").write_text(rows)
                self.refuses(text, "--rows", self.folder / "rows")


@unittest.skipIf(os.geteuid(), "needs root, to be two users")
class OtherUsers(Index):
    """Another user who may read the dataset gets from it only files that this user may read."""

    def read_as_nobody(self):
        program = (f"import os; os.setgid({NOBODY}); os.setuid({NOBODY}); os.environ['XDG_CACHE_HOME'] = {str(self.folder / 'cache')!r}\n"
                   f"import diesel_loader\nfrom diesel_loader.numpy import DataLoader\nd = diesel_loader.Dataset({str(self.dataset)!r})\n"
                   "n = sum(len(b) for b in DataLoader(d, batch_size=4, collate_fn=list)); print('read', n)")
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        (self.folder / "cache").mkdir()
        os.chown(self.folder / "cache", NOBODY, NOBODY)
        make_shards(self.shards, 2, 20)
        self.index()
        self.daemon()

    def test_shards_that_all_may_read_are_served_to_all(self):
        self.assertEqual(self.read_as_nobody().stdout, "read 40\n")

    def test_a_shard_of_another_user_is_not_served_even_from_the_cache(self):
        os.chmod(self.shards / "train-001.tar", 0o600)
        self.assertEqual(sum(len(batch) for batch in DataLoader(diesel_loader.Dataset(self.dataset), batch_size=4, collate_fn=list)), 40)
        done = self.read_as_nobody()
        self.assertNotIn("read 40", done.stdout)
        self.assertIn("train-001.tar", done.stderr)

    def test_a_dataset_of_another_user_is_no_way_to_the_readers_own_files(self):
        diary, secret = self.folder / "home/diary", b"only nobody may read this"
        diary.parent.mkdir()
        diary.write_bytes(secret)
        self.dataset = self.folder / "of_mallory.diesel"
        (self.folder / "rows").write_text(f"{diary}\t0\t{len(secret)}\ta\n")
        self.index("--rows", self.folder / "rows")
        chunk, = (self.dataset / "chunks").iterdir()

        def read(file_mode, folder_mode, made_by=MALLORY, chunk_mode=0o644, sources=""):
            os.chown(diary, NOBODY, NOBODY)
            os.chown(diary.parent, NOBODY, NOBODY)
            diary.chmod(file_mode)
            diary.parent.chmod(folder_mode)
            os.chown(chunk, made_by, made_by)
            chunk.chmod(chunk_mode)
            return subprocess.run([support.program("dieselctl"), "cat", self.dataset, "a"], capture_output=True, user=NOBODY, group=NOBODY,
                                  extra_groups=[], env={**os.environ, "DIESEL_SOURCES": sources})
        for case in ((0o600, 0o755), (0o644, 0o700), (0o604, 0o755), (0o600, 0o755, NOBODY, 0o664), (0o600, 0o755, MALLORY, 0o644, f"{diary}s"),
                     (0o600, 0o755, MALLORY, 0o644, f"{self.folder}/shards,relative")):
            with self.subTest(refused=case):
                done = read(*case)
                self.assertEqual((done.returncode, done.stdout), (1, b""))
                self.assertIn(f"{diary} is not read".encode(), done.stderr)
        with self.subTest("by other programs"):
            read(0o600, 0o755)
            self.assertIn("is not read", self.read_as_nobody().stderr)
            os.chown(diary, MALLORY, MALLORY)  # and root, who reads everything
            os.chown(chunk, NOBODY, NOBODY)
            for command in (("verify", self.dataset), ("copy", self.dataset, self.folder / "copy"), ("pack", self.dataset, self.folder / "copy")):
                done = dieselctl(*command)
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn("is not read", done.stdout + done.stderr)
        for case in ((0o644, 0o755), (0o600, 0o700, NOBODY), (0o600, 0o700, 0), (0o600, 0o755, MALLORY, 0o644, f"/elsewhere,{diary.parent}/")):
            with self.subTest(read=case):
                done = read(*case)
                self.assertEqual((done.returncode, done.stdout), (0, secret), done.stderr)
        with self.subTest("where all users are one"):
            os.chown(diary, NOBODY, NOBODY)
            diary.chmod(0o600)
            diary.parent.chmod(0o755)
            os.chown(chunk, MALLORY, MALLORY)
            alone = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "capture_output": True}
            if subprocess.run(["unshare", "--user", "true"], **alone).returncode == 0:
                done = subprocess.run(["unshare", "--user", support.program("dieselctl"), "cat", self.dataset, "a"], **alone)
                self.assertEqual((done.returncode, done.stdout), (1, b""))
                self.assertIn(b"is not read", done.stderr)
        with self.subTest("a file of the dataset's maker"):
            os.chown(diary, MALLORY, NOBODY)
            diary.chmod(0o640)
            os.chown(chunk, MALLORY, MALLORY)
            done = subprocess.run([support.program("dieselctl"), "cat", self.dataset, "a"], capture_output=True, user=NOBODY, group=NOBODY)
            self.assertEqual(done.stdout, secret, done.stderr)

    def test_a_link_made_later_does_not_lead_a_copy_to_the_copiers_own_files(self):
        home, secret = self.folder / "mallory", b"only nobody may read this"
        diary, shard, within = self.folder / "diary", home / "shard.bin", home / "in/shard.bin"
        within.parent.mkdir(parents=True)
        self.dataset = self.folder / "copied.diesel"
        for file in (diary, shard, within):
            file.write_bytes(secret)
            os.utime(file, ns=(5, 5))
        (self.folder / "rows").write_text("".join(f"{file}\t0\t{len(secret)}\t{name}\n" for file, name in ((shard, "a"), (within, "b"))))
        self.index("--rows", self.folder / "rows")
        for chunk in (self.dataset / "chunks").iterdir():
            os.chown(chunk, NOBODY, NOBODY)
        os.chown(diary, NOBODY, NOBODY)
        diary.chmod(0o600)

        def read(name):
            return subprocess.run([support.program("dieselctl"), "cat", self.dataset, name], capture_output=True, user=NOBODY, group=NOBODY, extra_groups=[])
        self.assertEqual([read(name).stdout for name in "ab"], [secret] * 2)
        (self.folder / "in").mkdir()
        os.link(diary, self.folder / "in/shard.bin")
        shutil.rmtree(within.parent)
        shard.unlink()
        for link, target in ((shard, diary), (within.parent, self.folder / "in")):
            link.symlink_to(target)
        for owner, is_read in ((MALLORY, False), (NOBODY, True), (0, True)):
            for link in (shard, within.parent):
                os.chown(link, owner, owner, follow_symlinks=False)
            for name in "ab":
                done = read(name)
                self.assertEqual((done.returncode, done.stdout), (0, secret) if is_read else (1, b""), done.stderr)
                self.assertEqual(b"is not read, because a link of another user leads to it" in done.stderr, not is_read, done.stderr)
        # Whoever indexes may read the target, but the dataset's readers may not, unless everybody may.
        os.chown(shard, MALLORY, MALLORY, follow_symlinks=False)
        os.utime(diary, ns=(6, 6))
        done = dieselctl("index", "--rows", self.folder / "rows", "-o", self.dataset)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("is not read, because a link of another user leads to it", done.stderr)
        with unittest.mock.patch.dict(os.environ, DIESEL_SOURCES=str(self.folder)):
            self.index("--rows", self.folder / "rows")
        diary.chmod(0o644)
        os.utime(diary, ns=(7, 7))
        self.index("--rows", self.folder / "rows")
        os.chown(max((self.dataset / "chunks").iterdir()), NOBODY, NOBODY)
        self.assertEqual([read(name).stdout for name in "a"], [secret])

    @unittest.skipUnless(os.access("/dev/fuse", os.W_OK) and shutil.which("fusermount3"), "needs FUSE")
    def test_a_mount_that_only_its_user_may_enter_is_not_public(self):
        where, over = self.folder / "mounted", self.folder / "of_mallory.diesel"
        where.mkdir()
        file = where / "train-000/00003"
        (self.folder / "rows").write_text(f"{file}\t0\t100\ta\n")
        dieselctl, script = support.program("dieselctl"), self.folder / "job"
        script.write_text(f"stat -c %a {file}\n{dieselctl} index --rows {self.folder}/rows -o {over} >&2 && chown {MALLORY} {over}/chunks/* && {dieselctl} cat {over} a")
        done = subprocess.run([dieselctl, "mount", self.dataset, where, "--", "sh", script], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, "444\n"), done.stderr)
        self.assertIn(f"{file} is not read", done.stderr)


if __name__ == "__main__":
    unittest.main()
