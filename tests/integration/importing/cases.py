# SPDX-License-Identifier: Apache-2.0
"""Cases of test_importing.py for formats that need no torch."""
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy
import pyarrow as pa
from array_record.python.array_record_module import ArrayRecordWriter
from pyarrow import parquet

import diesel_loader
import formats_support as made
from formats_support import N, Case, run


class HuggingFace(Case):
    def test_save_to_disk(self):
        made.table(self.rows).save_to_disk(self.folder / "saved", num_shards=4)
        said = self.packs(f"hf:{self.folder}/saved", "--threads", "3")
        self.assertEqual((said["samples"], said["shards"]), (N, 4))
        self.assertEqual(said["fields"]["image"], {"image": N})
        self.assertEqual(sorted(said["fields"]["caption"]), ["none", "text"])
        self.has_all()
        self.assertEqual(diesel_loader.Dataset(self.dataset).classes, ["a%2Fb", "cat", "dog"])

    def test_parquet_files_of_splits(self):
        (self.folder / "hub/data").mkdir(parents=True)
        table = made.table(self.rows)
        for split, part in (("train", table.select(range(80))), ("test", table.select(range(80, N)))):
            part.to_parquet(self.folder / f"hub/data/{split}-00000-of-00001.parquet")
        self.refuses("expected one split, got test, train; choose one with --split", "pack", f"hf:{self.folder}/hub")
        self.packs(f"hf:{self.folder}/hub", "--split", "train")
        self.has_all(self.rows[:80])

    def test_dict_of_splits_and_arrays(self):
        import datasets
        features = datasets.Features({"id": datasets.Value("int64"), "grid": datasets.Array2D((2, 3), "int32"),
                                      "boxes": datasets.List(datasets.List(datasets.Value("float32"), length=4)),
                                      "images": datasets.List(datasets.Image(decode=False))})
        rows = [{"id": i, "grid": [[i] * 3] * 2, "boxes": [[1., 2., 3., 4.]] * (i % 3), "images": [{"bytes": made.jpeg(i + k), "path": None} for k in range(2)]}
                for i in range(10)]
        table = datasets.Dataset.from_list(rows, features=features)
        datasets.DatasetDict({"train": table, "test": table.select([0])}).save_to_disk(self.folder / "saved")
        self.packs(f"hf:{self.folder}/saved", "--split", "train")
        self.has_all([{"id": i, "grid": numpy.full((2, 3), i, "int32"), "boxes": numpy.array([[1, 2, 3, 4]] * (i % 3), "float32").reshape(-1, 4),
                       "images.0": made.jpeg(i), "images.1": made.jpeg(i + 1)} for i in range(10)])

    def test_a_dict_of_no_splits_is_refused(self):
        (self.folder / "saved").mkdir()
        for text in ('{"splits": []}', '{"splits": {"train": 1}}', "{}"):
            (self.folder / "saved/dataset_dict.json").write_text(text)
            self.refuses("dataset_dict.json: names no splits", "pack", f"hf:{self.folder}/saved")
        (self.folder / "saved/dataset_dict.json").write_text('{"splits": ["train"]}')
        (self.folder / "saved/train").mkdir()
        (self.folder / "saved/train/state.json").write_text('{"_data_files": [{"filename": 7}]}')
        self.refuses("saved: cannot be read .TypeError: ", "pack", f"hf:{self.folder}/saved")

    def test_truncated_arrow_file(self):
        made.table(self.rows).save_to_disk(self.folder / "saved", num_shards=2)
        file = next((self.folder / "saved").glob("*.arrow"))
        os.truncate(file, file.stat().st_size - 8)
        self.refuses(f"{file.name}: is truncated", "pack", f"hf:{self.folder}/saved")
        self.assertFalse(self.dataset.exists())

    def test_an_image_outside_of_the_folder_is_refused(self):
        (self.folder / "src").mkdir()
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        parquet.write_table(pa.table({"image": pa.array([{"bytes": None, "path": "/etc/passwd"}], kind)}), self.folder / "src/a.parquet")
        self.refuses("names the file /etc/passwd outside", "pack", f"hf:{self.folder}/src")


class WebDataset(Case):
    def test_shards_in_place_are_decoded_in_dieseld(self):
        from diesel_loader import numpy as loaders
        from diesel_loader import transforms
        from webdataset import ShardWriter
        crop = transforms.Compose([transforms.RandomResizedCrop(8), transforms.ToTensor()])
        for folder in "shards", "tree":
            (self.folder / folder).mkdir()
        with ShardWriter(f"{self.folder}/shards/%03d.tar", maxcount=50, verbose=0) as writer:
            for row in self.rows:
                writer.write({"__key__": f"{row['id']:04d}", "jpg": row["image"], "txt": str(row["caption"]), "json": row["nested"]})
                (self.folder / f"tree/{row['id']:04d}.jpg").write_bytes(row["image"])
        for command in ("index", self.folder / "shards", "--output", self.dataset), ("pack", "--order", "source", self.folder / "tree", self.folder / "plain"):
            self.assertEqual(run(*command).returncode, 0)
        options = {"shuffle": True, "seed": 3, "decode": loaders.Decode(native="require"), "batches": loaders.Batches(return_ids=True)}
        images = {int(i): image for batch in loaders.DataLoader(self.folder / "plain", 16, transform=crop, **options) for image, i in zip(batch[0], batch[2])}
        for batch in loaders.DataLoader(self.dataset, 16, transform={"jpg": crop}, **options):
            for i, image, caption, nested in zip(batch["__id__"].tolist(), batch["jpg"], batch["txt"], batch["json"]):
                self.assertEqual((caption, nested), (str(self.rows[i]["caption"]), self.rows[i]["nested"]))
                self.assertEqual(image.tobytes(), images.pop(i).tobytes())
        self.assertEqual(images, {})


class Parquet(Case):
    def write(self, table, name="a.parquet", **more):
        parquet.write_table(table, self.folder / name, **more)
        return f"parquet:{self.folder / name}"

    def test_kinds_of_columns(self):
        ids = [0, 1, 2]
        table = pa.table({
            "id": ids, "null": pa.nulls(3), "word": pa.array(["a", "b", "a"]).dictionary_encode(), "large": pa.array([b"x", None, b"z"], pa.large_binary()),
            "half": pa.array(numpy.array([1, 2, 3], "float16")), "when": pa.array([0, None, 5], pa.timestamp("s")), "bits": [[True, False], [], None],
            "holes": [[1, None], [2, 3], []], "words": [["a"], None, []], "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "parts": [{"name": "a", "data": b"1"}] * 3, "blobs": [[b"1", b"2"], [b"3"], None], "deep": [[[b"1"]]] * 3,
        })
        said = self.packs(self.write(table))
        self.assertEqual([(column["column"], column["why"]) for column in said["left_out"]], [("deep", "bytes within nested lists")])
        found = made.of_dataset(self.dataset)

        def array(values, dtype):
            return made.plain({"": numpy.array(values, dtype)})[""]
        self.assertEqual(found[0], {"id": 0, "null": None, "word": "a", "large": b"x", "half": 1.0, "when": "1970-01-01 00:00:00.000", "bits": array([True, False], bool),
                                    "holes": [1, None], "words": ["a"], "map": [["k", 1]], "parts.name": "a", "parts.data": b"1", "blobs.0": b"1", "blobs.1": b"2"})
        self.assertEqual(found[1]["large"], None)
        self.assertEqual(found[1]["holes"], array([2, 3], "int64"))
        self.assertEqual((found[2]["words"], found[2]["bits"], found[2]["blobs"] if "blobs" in found[2] else None), ([], None, None))

    def test_row_groups_in_a_random_order_and_columns(self):
        source = self.write(pa.table({"id": range(1000), "other": range(1000)}), row_group_size=100)
        self.assertEqual(self.packs(source, "--columns", "id", "--seed", "5")["shards"], 10)
        order = [row["id"] for row in diesel_loader.Dataset(self.dataset).__getitems__(range(1000))]
        self.assertEqual(sorted(order), list(range(1000)))
        self.assertLess(sum(abs(a - b) == 1 for a, b in zip(order, order[1:])), 50)  # neighbours are no neighbours any more
        self.assertEqual(diesel_loader.Dataset(self.dataset).fields, ("id",))
        self.dataset = self.folder / "again.diesel"
        self.packs(source, "--columns", "id", "--seed", "5")
        self.assertEqual([row["id"] for row in diesel_loader.Dataset(self.dataset).__getitems__(range(1000))], order)

    def test_order_of_the_source(self):
        self.packs(self.write(pa.table({"id": range(1000)}), row_group_size=100), "--order", "source")
        self.assertEqual([row["id"] for row in diesel_loader.Dataset(self.dataset).__getitems__(range(1000))], list(range(1000)))

    def test_partitions_of_hive_are_columns(self):
        table = pa.table({"id": range(6), "year": [2023, 2024, 2024, 2023, 2024, 2024], "place": ["a/b", "c", None] * 2})
        parquet.write_to_dataset(table, self.folder / "src", partition_cols=["year", "place"])
        self.packs(f"parquet:{self.folder}/src", "--label", "year")
        self.has_all(table.to_pylist())
        self.assertEqual(diesel_loader.Dataset(self.dataset).classes, ["2023", "2024"])
        self.dataset = self.folder / "some.diesel"
        self.packs(f"parquet:{self.folder}/src", "--columns", "id,place")
        self.has_all([{"id": row["id"], "place": row["place"]} for row in table.to_pylist()])
        parquet.write_table(pa.table({"id": [7]}), self.folder / "src/more.parquet")
        self.refuses("its folders give the columns", "pack", f"parquet:{self.folder}/src")

    def test_a_table_with_a_log_is_refused(self):
        self.write(pa.table({"id": [1]}))
        for log, what in (("_delta_log", "Delta"), (".hoodie", "Hudi")):
            (self.folder / log).mkdir()
            for name in ("parquet", "hf"):
                self.refuses(f"is a {what} table, whose log says which of its files count", "pack", f"{name}:{self.folder}")
            (self.folder / log).rmdir()

    def test_label_of_a_column(self):
        done = run("pack", self.write(pa.table({"id": range(3), "kind": [10, 9, 8]})), self.folder / "numbers.diesel", "--label", "kind")
        self.assertIn("\nclasses: 3, numbered in the order of their names: 0 10, 1 8, 2 9\n", done.stdout)
        self.packs(self.write(pa.table({"id": [0, 1, 2], "kind": ["b", "a", ".."]})), "--label", "kind")
        self.assertEqual(diesel_loader.Dataset(self.dataset).classes, ["%2E.", "a", "b"])

    def test_wrong_files(self):
        source = self.write(pa.table({"id": range(1000)}))
        whole = (self.folder / "a.parquet").read_bytes()
        for data, pattern in ((whole[:-100], "cannot be read"), (whole[:4] + bytes(200) + whole[204:], "cannot be read"), (b"PARE" + whole[4:], "is encrypted")):
            (self.folder / "a.parquet").write_bytes(data)
            self.refuses(f"a.parquet: {pattern}", "pack", source)
            self.assertFalse(self.dataset.exists())
        (self.folder / "a.parquet").write_bytes(whole)
        self.write(pa.table({"other": [1]}), "b.parquet")
        self.refuses("its columns differ from those of", "pack", f"parquet:{self.folder}")
        self.refuses("no column 'nope'; it has id", "pack", "--columns", "nope", source)
        self.refuses("no such file", "pack", f"parquet:{self.folder}/nope.parquet")

    def test_encrypted_columns(self):
        from pyarrow.parquet import encryption

        class Client(encryption.KmsClient):
            def __init__(self, _):
                encryption.KmsClient.__init__(self)

            def wrap_key(self, key, _):
                return key.hex()

            def unwrap_key(self, key, _):
                return bytes.fromhex(key)
        factory = encryption.CryptoFactory(Client)
        for plaintext_footer in (False, True):
            config = encryption.EncryptionConfiguration(footer_key="f", column_keys={"k": ["secret"]}, plaintext_footer=plaintext_footer)
            properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
            with parquet.ParquetWriter(self.folder / "a.parquet", pa.schema([("id", pa.int64()), ("secret", pa.int64())]), encryption_properties=properties) as w:
                w.write_table(pa.table({"id": [1], "secret": [2]}))
            self.refuses("encrypted", "pack", f"parquet:{self.folder}/a.parquet")

    def test_missing_packages(self):
        source = self.write(pa.table({"id": [1]}))
        (self.folder / "hide/pyarrow").mkdir(parents=True)
        (self.folder / "hide/pyarrow/__init__.py").write_text("raise ModuleNotFoundError('hidden', name='pyarrow')")
        python = {"DIESEL_PYTHON": sys.executable}
        path = f"{self.folder}/hide:{os.environ['PYTHONPATH']}"
        self.refuses("needs the Python package pyarrow, which .* lacks; run: .* -m pip install pyarrow", "pack", source, PYTHONPATH=path, **python)
        (self.folder / "hide/pyarrow/__init__.py").write_text("raise RuntimeError('does not fit')")
        self.refuses("cannot import it .RuntimeError: does not fit.; run: .* -m pip install --upgrade pyarrow", "pack", source, PYTHONPATH=path, **python)
        self.refuses("lacks the Python package diesel_loader: run `export PYTHONPATH=/.*/client/python DIESEL_LIB=/.*/lib`", "pack", source, PYTHONPATH="", **python)
        self.refuses("cannot run /nope/python3", "pack", source, DIESEL_PYTHON="/nope/python3")


class Listed(Case):
    def setUp(self):
        super().setUp()
        (self.folder / "photos").mkdir()
        for row in self.rows:
            (self.folder / f"photos/{row['id']}.jpg").write_bytes(row["image"])

    def test_a_table_names_files_and_has_fields(self):
        import csv
        wanted = [{"id": row["id"], "image": row["image"], "caption": row["caption"] or "", "score": row["score"], "zip": f"{row['id']:03d}", "n": row["id"] or None}
                  for row in self.rows]
        with open(self.folder / "a.csv", "w", newline="", encoding="utf-8-sig") as file:
            writer = csv.writer(file)
            writer.writerow(["", "file_name", *[name for name in wanted[0] if name != "image"]])
            writer.writerows([i, f"{row['id']}.jpg", *[value for name, value in row.items() if name != "image"]] for i, row in enumerate(wanted))
        with open(self.folder / "b.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"image_file_name": f"photos/{row['id']}.jpg", **{k: v for k, v in row.items() if k != "image"}}) + "\n\n" for row in wanted)
        self.packs(f"csv:{self.folder}/a.csv", "--root", self.folder / "photos", "--label", "zip")
        self.has_all(wanted)
        self.assertEqual(diesel_loader.Dataset(self.dataset).classes, [row["zip"] for row in wanted])
        self.dataset = self.folder / "b.diesel"
        self.packs(f"jsonl:{self.folder}/b.jsonl", "--threads", "2")
        self.has_all(wanted)

    def test_tables_that_are_wrong(self):
        for name, text, says in (("a.csv", "file_name\nphotos/../../a\n", "line 2: names the file .* outside of"), ("a.csv", "file_name\n\nphotos/1.png\n", "line 3: no file photos/1.png in"),
                                 ("a.csv", "file_name,x\n1\n", "line 2: has 1 cells, but the first line has 2"), ("a.csv", "file_name\n\"a\n", "line 2: unexpected end of data"),
                                 ("a.csv", "image,file_name\n1,photos/1.jpg\n", "becomes the field 'image', but there is such a column"), ("a.csv", "x\n", "has no rows"),
                                 ("jsonl.json", '{"images": [], "annotations": []}', "one JSON object, such as annotations of COCO"),
                                 ("jsonl.json", '{\n "images": []\n}', "one JSON object, such as annotations of COCO"),
                                 ("a.jsonl", '{"x": 1}\n[]\n', "line 2: is no JSON object"), ("a.jsonl", '{"x": "\udcff"}\n', "line 1: is not UTF-8")):
            (self.folder / name).write_text(text, errors="surrogateescape")
            self.refuses(f"{name}.*{says}", "pack", f"{name[2:] if name[1] == '.' else name[:5]}:{self.folder / name}")
        self.refuses("invalid source 'csv:': must be csv:PATH", "pack", "csv:")

    def test_a_column_that_names_files_but_is_taken_as_text_is_told(self):
        (self.folder / "a.csv").write_text("image,caption\nphotos/1.jpg,one\n")
        for files, left in (([], ["image"]), (["--files", "image"], [])):
            self.dataset = self.folder / f"{len(files)}.diesel"
            told = self.packs(f"csv:{self.folder}/a.csv", *files)
            self.assertEqual([column["column"] for column in told["left_out"]], left)


class Arrays(Case):
    def test_a_dtype_that_a_file_cannot_hold_is_refused(self):
        import ml_dtypes
        with diesel_loader.create(self.dataset) as writer:
            for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4):
                with self.assertRaisesRegex(TypeError, "'x' of '1': it is an array of .*, which a .npy file cannot hold: convert it"):
                    writer.put("1", {"x": numpy.zeros(3, dtype)})
            writer.put("1", {"x": numpy.zeros(3, ml_dtypes.bfloat16).astype("float32")})


class Life(Case):
    def source(self):
        for i in range(8):
            parquet.write_table(pa.table({"id": range(100 * i, 100 * i + 100)}), self.folder / f"part-{i}.parquet")
        return f"parquet:{self.folder}/part-*.parquet"

    def ids(self):
        return sorted(row["id"] for row in diesel_loader.Dataset(self.dataset).__getitems__(range(len(diesel_loader.Dataset(self.dataset)))))

    def test_a_killed_import_continues_with_the_missing_shards(self):
        source = self.source()
        command = [made.CTL, "pack", source, str(self.dataset), "--commit", "1K", "--threads", "2"]
        environment = os.environ | {"DIESEL_PYTHON": sys.executable}
        for _ in range(2):
            process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
            before, end = self.version(), time.monotonic() + 60
            while self.version() == before and process.poll() is None and time.monotonic() < end:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            process.wait()
        self.assertLess(0, self.version())
        found = len(diesel_loader.Dataset(self.dataset))
        self.assertEqual(found % 100, 0)  # only complete shards
        said = self.packs(source)
        self.assertEqual((said["samples"], said["shards_before"]), (800 - found, found // 100))
        self.assertEqual(self.ids(), list(range(800)))
        self.assertEqual(self.packs(source)["shards"], 0)

    def version(self):
        done = run("log", self.dataset)
        return int(done.stdout.split()[1]) if done.returncode == 0 and done.stdout else 0

    def test_another_source_needs_append(self):
        self.packs(self.source())
        parquet.write_table(pa.table({"id": range(800, 900)}), self.folder / "more.parquet")
        self.refuses("has samples of another source, such as .*; add to them with --append", "pack", f"parquet:{self.folder}/more.parquet")
        self.packs(f"parquet:{self.folder}/more.parquet", "--append")
        self.assertEqual(self.ids(), list(range(900)))

    def test_a_changed_shard_is_noticed(self):
        source = self.source()
        self.packs(source)
        os.utime(self.folder / "part-3.parquet", (1, 1))
        for more in ((), ("--append",)):
            self.refuses("part-3.parquet has changed since: choose another dataset", "pack", source, *more)

    def test_files_of_one_name_are_told_apart_by_a_name(self):
        for i in range(2):
            (self.folder / f"f{i}").mkdir()
            parquet.write_table(pa.table({"id": range(10 * i, 10 * i + 10)}), self.folder / f"f{i}/a.parquet")
            os.utime(self.folder / f"f{i}/a.parquet", (i - 5, i - 5))  # before 1970
        self.packs(f"parquet:{self.folder}/f0")
        self.packs(f"parquet:{self.folder}/f1", "--append", "--name", "second")
        self.assertEqual(self.packs(f"parquet:{self.folder}/f1", "--append", "--name", "second")["shards"], 0)
        self.assertEqual(self.ids(), list(range(20)))
        self.refuses("invalid --name 'a/b'", "pack", f"parquet:{self.folder}/f1", "--append", "--name", "a/b")

    def test_a_dataset_that_cannot_be_listed_is_not_taken_for_an_empty_one(self):
        self.packs(self.source())
        os.truncate(self.dataset / "snapshot", 100)
        self.refuses("cannot list .*made.diesel: ", "pack", self.source())

    def test_damage_in_one_shard_changes_nothing(self):
        source = self.source()
        file = self.folder / "part-5.parquet"
        file.write_bytes(file.read_bytes()[:4] + bytes(100) + file.read_bytes()[104:])
        self.refuses("part-5.parquet: cannot be read", "pack", source)
        self.assertFalse((self.dataset / "snapshot").exists())


class Records(Case):
    def test_tfrecord(self):
        for k in range(3):
            made.write_tfrecord(self.folder / f"a.tfrecord-0000{k}-of-00003", self.rows[40 * k:40 * k + 40])
        self.packs(f"tfrecord:{self.folder}", "--text", "caption")
        self.has_all([{"id": row["id"], "image": row["image"], "embedding": row["embedding"], "caption": row["caption"] or ""} for row in self.rows])

    def test_feature_lists_of_a_sequence_example_are_arrays_of_steps(self):
        from diesel_loader.importing.formats.records import example

        def record(i, twice=False):
            made_of = example()()
            made_of.features.feature["id"].int64_list.value.append(i)
            lists = made_of.feature_lists.feature_list
            for step in range(i):
                lists["tokens"].feature.add().int64_list.value.append(step)
                lists["state"].feature.add().float_list.value.extend([step, i])
                lists["ragged"].feature.add().int64_list.value.extend(range(step))
                lists["frame"].feature.add().bytes_list.value.append(b"frame %d" % step)
                lists["word"].feature.add().bytes_list.value.append(b"word %d" % step)
            if twice:
                lists["id"].feature.add()
            return made_of.SerializeToString()
        made.frame_records(self.folder / "a.tfrecord", map(record, range(2, 6)))
        self.packs(f"tfrecord:{self.folder}", "--text", "word")
        self.has_all([{"id": i, "tokens": numpy.arange(i), "state": numpy.array([[step, i] for step in range(i)], "float32"), "ragged": [list(range(n)) for n in range(i)],
                       "word": [f"word {n}" for n in range(i)], **{f"frame.{n}": b"frame %d" % n for n in range(i)}} for i in range(2, 6)])
        self.dataset = self.folder / "twice.diesel"
        made.frame_records(self.folder / "a.tfrecord", [record(1, twice=True)])
        self.refuses("'id' is in the context and in the feature lists of a record", "pack", f"tfrecord:{self.folder}")

    def test_damaged_tfrecord(self):
        path = self.folder / "a.tfrecord"
        made.write_tfrecord(path, self.rows[:5])
        whole = path.read_bytes()
        for data, pattern in ((whole[:-3], "truncated within the record"), (whole[:60] + bytes([whole[60] ^ 1]) + whole[61:], "a checksum differs"),
                              (whole[:3] + b"\7" + whole[4:], "a checksum differs")):
            path.write_bytes(data)
            self.refuses(f"a.tfrecord: is .*{pattern}", "pack", f"tfrecord:{path}")

    def test_array_record(self):
        for k in range(2):
            writer = ArrayRecordWriter(str(self.folder / f"a-{k}.array_record"), "group_size:1")
            for row in self.rows[60 * k:60 * k + 60]:
                writer.write(row["image"])
            writer.close()
        self.packs(f"arrayrecord:{self.folder}")
        dataset = diesel_loader.Dataset(self.dataset)
        self.assertIsNone(dataset.fields)
        self.assertEqual(sorted(bytes(data) for data, _ in dataset.__getitems__(range(N))), sorted(row["image"] for row in self.rows))


class Export(Case):
    def exports(self, to, folder, *more):
        done = run("export", self.dataset, self.folder / folder, "--to", to, "--json", *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_parquet_round_trip(self):
        rows = [{**row, "grid": numpy.full((2, 2), row["id"], "int16")} for row in self.rows]
        with diesel_loader.create(self.dataset) as writer:
            for row in rows:
                writer.put(f"c{row['label']}/{row['id']}", row)
        self.exports("parquet", "out")
        self.dataset = self.folder / "back.diesel"
        self.packs(f"parquet:{self.folder}/out")
        self.has_all(rows)
        self.assertEqual(diesel_loader.Dataset(self.dataset).classes, ["c0", "c1", "c2"])

    def test_parquet_opens_in_datasets(self):
        import datasets
        with diesel_loader.create(self.dataset) as writer:
            for row in self.rows:
                writer.put(str(row["id"]), {"id": row["id"], "image": row["image"]})
        self.exports("parquet", "out")
        table = datasets.load_dataset("parquet", data_files=f"{self.folder}/out/*.parquet", split="train", cache_dir=str(self.folder / "cache"))
        self.assertEqual(table.features["image"], datasets.Image())
        self.assertEqual({row["id"]: row["image"]["bytes"] for row in table.cast_column("image", datasets.Image(decode=False))},
                         {row["id"]: row["image"] for row in self.rows})

    def test_tar_of_fields_has_members_of_webdataset(self):
        import tarfile
        with diesel_loader.create(self.dataset) as writer:
            for row in self.rows:
                writer.put(f"a.b/{row['id']:04d}", {name: row[name] for name in ("image", "caption", "label", "embedding")})
        said = self.exports("tar", "out", "--shard-bytes", "1M")
        self.assertEqual(said["samples"], N)
        with tarfile.open(self.folder / "out/000000.tar") as tar:
            members = {member.name: tar.extractfile(member).read() for member in tar}
        self.assertEqual(members["a.b/0001.image.jpg"], self.rows[1]["image"])
        self.assertEqual(members["a.b/0001.caption.txt"], self.rows[1]["caption"].encode())
        self.assertEqual(members["a.b/0001.label.cls"], b"1")

    def test_plain_round_trips(self):
        source = self.folder / "tree"
        for row in self.rows:
            path = source / f"c{row['label']}" / f"{row['id']}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(row["image"])
        self.assertEqual(run("pack", source, self.dataset).returncode, 0)
        self.exports("tree", "out")
        self.assertEqual(subprocess.run(["diff", "-r", source, self.folder / "out"], check=False).returncode, 0)
        self.exports("tar", "tars")
        with diesel_loader.create(self.dataset, append=True) as writer:
            for name in ("c0/b.tmp.tmp", "c0/b.tmp", "c0/b"):
                writer.put(name, name.encode())
        self.exports("tree", "names")
        self.assertEqual({path.name: path.read_bytes() for path in (self.folder / "names").rglob("b*")},
                         {name: f"c0/{name}".encode() for name in ("b", "b.tmp", "b.tmp.tmp")})
        back = self.folder / "back.diesel"
        self.assertEqual(run("pack", self.folder / "tars/000000.tar", back).returncode, 0)
        self.assertEqual(sorted(bytes(d) for d, _ in diesel_loader.Dataset(back).__getitems__(range(N))), sorted(row["image"] for row in self.rows))

    def test_an_interrupted_export_continues(self):
        with diesel_loader.create(self.dataset) as writer:
            for i in range(30):
                writer.put(str(i), numpy.random.default_rng(i).bytes(200_000))
        self.exports("tar", "whole", "--shard-bytes", "1M")
        out = self.folder / "out"
        shutil.copytree(self.folder / "whole", out)
        names = sorted(path.name for path in out.iterdir())
        for name in names[2:]:
            (out / name).unlink()
        (out / f"{names[2]}.tmp").write_bytes(b"half")
        n, end = 0, []
        import tarfile
        for name in names[:2]:
            with tarfile.open(out / name) as tar:
                n += len(tar.getmembers())
            end.append(n)
        dataset = diesel_loader.Dataset(self.dataset)
        (out / ".diesel-export.json").write_text(json.dumps({"dataset": dataset.path, "version": dataset.version, "to": "tar", "shard_bytes": 1 << 20, "ends": end}))
        told = self.exports("tar", "out", "--shard-bytes", "1M")
        self.assertEqual((told["samples"], told["samples_before"]), (30 - n, n))
        self.assertEqual(subprocess.run(["diff", "-r", self.folder / "whole", out], check=False).returncode, 0)

    def test_an_export_to_a_full_disk_names_the_folder_and_continues(self):
        with diesel_loader.create(self.dataset) as writer:
            for i in range(30):
                writer.put(str(i), {"data": numpy.random.default_rng(i).bytes(200_000)})
        for to in ("tar", "parquet"):
            disk = self.folder / f"disk-{to}"
            disk.mkdir()
            if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3M", "tmpfs", disk], stderr=subprocess.DEVNULL, check=False).returncode != 0:
                self.skipTest("may not mount")
            try:
                words = ("export", self.dataset, disk / "out", "--to", to, "--shard-bytes", "1M")
                self.refuses(f"{disk}/out.*: No space left on device", *words, dataset=False)
                subprocess.run(["mount", "-o", "remount,size=64M", disk], check=True)
                done = run(*words)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("samples exported before", done.stdout)
            finally:
                subprocess.run(["umount", disk], check=True)

    def test_formats_that_cannot_hold_the_dataset(self):
        with diesel_loader.create(self.dataset) as writer:
            writer.put("a", {"x": 1})
            writer.put("b", {"x": "text"})
        for to, pattern in (("tree", "its samples have fields"), ("parquet", "field 'x' has values of several kinds")):
            self.refuses(pattern, "export", self.dataset, self.folder / to, "--to", to, dataset=False)
        (self.folder / "full").mkdir()
        (self.folder / "full/file").touch()
        self.refuses("is not empty", "export", self.dataset, self.folder / "full", "--to", "tar", dataset=False)


def rows_of(dataset, batch):
    """A transform of Hugging Face's: columns of the samples with these numbers."""
    samples = dataset.__getitems__(batch["number"])
    return {"value": [int(data) for data, _ in samples], "label": [label for _, label in samples]}


class UnderOtherLoaders(Case):
    """A Dataset as the source of Hugging Face's library and of Grain, with their order and their state."""
    def setUp(self):
        super().setUp()
        self.numbers, self.values = made.packed_numbers(self.folder)
        self.n = len(self.values)

    def test_hugging_face_map_style(self):
        import datasets
        rows = datasets.Dataset.from_dict({"number": range(self.n)}).with_transform(functools.partial(rows_of, self.numbers))
        self.assertEqual(rows[7], {"value": self.values[7], "label": self.values[7] % 3})
        self.assertEqual(rows[[5, 3]]["value"], [self.values[5], self.values[3]])
        shuffled = rows.shuffle(seed=3).select(range(100))
        self.assertEqual(len({row["value"] for row in shuffled} & set(self.values)), 100)

    def test_hugging_face_iterable_continues_where_its_state_says(self):
        import datasets

        def stream():
            numbers = datasets.Dataset.from_dict({"number": range(self.n)}).shuffle(seed=1).to_iterable_dataset(num_shards=4)
            return numbers.map(functools.partial(rows_of, self.numbers), batched=True, batch_size=64)

        whole = [row["value"] for row in stream()]
        self.assertEqual(sorted(whole), list(range(self.n)))
        first, again = stream(), stream()
        head = [row["value"] for _, row in zip(range(150), first)]
        again.load_state_dict(first.state_dict())
        self.assertEqual(head + [row["value"] for row in again], whole)

    def test_hugging_face_generator(self):
        import datasets

        def samples(dataset, parts):
            for part in parts:
                for data, label in dataset.__getitems__(part):
                    yield {"value": int(data), "label": label}

        parts = [range(0, 200), range(200, self.n)]
        stream = datasets.IterableDataset.from_generator(samples, gen_kwargs={"dataset": self.numbers, "parts": parts})
        self.assertEqual(([row["value"] for row in stream], stream.num_shards), (self.values, 2))

    def test_grain_by_sample_and_by_batch_continues_where_its_state_says(self):
        import grain
        self.assertIsInstance(self.numbers, grain.sources.RandomAccessDataSource)

        def texts(batch):
            data, offsets = self.numbers.read_packed(batch)
            return [int(bytes(data[begin:end])) for begin, end in zip(offsets, offsets[1:])]

        order = grain.MapDataset.range(self.n).shuffle(seed=1)
        ways = {"source": grain.MapDataset.source(self.numbers).shuffle(seed=1).batch(64, batch_fn=lambda batch: [int(data) for data, _ in batch]),
                "items": order.batch(64).map(lambda batch: [int(data) for data, _ in self.numbers.__getitems__(batch)]),
                "packed": order.batch(64).map(texts)}
        for name, way in ways.items():
            with self.subTest(way=name):
                batches = way.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=2))
                whole = list(batches)
                self.assertEqual(sorted(value for batch in whole for value in batch), list(range(self.n)))
                first, again = iter(batches), iter(batches)
                head = [next(first) for _ in range(3)]
                again.set_state(first.get_state())
                self.assertEqual(head + list(again), whole)


if __name__ == "__main__":
    unittest.main()
