# SPDX-License-Identifier: Apache-2.0
"""Cases of test_importing.py for formats whose packages need torch: MDS and LitData."""
import decimal
import json
import os
import pathlib
import pickle
import shutil
import unittest
from io import BytesIO

import litdata
import numpy
import torch
from litdata.streaming.serializers import JsonLeaf
from litdata.streaming.writer import BinaryWriter
from PIL import Image
from streaming import MDSWriter, StreamingDataset
from streaming.base.format.mds import encodings

import diesel_loader
import diesel_loader.torch as diesel
import formats_support as made
from diesel_loader import transforms
from formats_support import Case, run

COLUMNS = {"id": "int", "image": "jpeg", "caption": "str", "score": "float64", "embedding": "ndarray", "nested": "json", "raw": "bytes", "small": "uint8",
           "images": "list[jpeg]", "pickle": "pkl"}


def comparable(value):
    """Returns a form in which a value equals that of the format's own reader. Images that one of them leaves encoded are decoded."""
    if isinstance(value, (list, tuple)):
        return [comparable(one) for one in value]
    if isinstance(value, bytes) and value[:4] in (b"\xff\xd8\xff\xe0", b"\x89PNG"):
        value = Image.open(BytesIO(value))
    if isinstance(value, Image.Image):
        return value.mode, value.size, value.tobytes()
    if isinstance(value, torch.Tensor):
        value = value.numpy()
    if isinstance(value, numpy.generic):
        return value.item()
    return (str(value.dtype), value.shape, value.tobytes()) if isinstance(value, numpy.ndarray) else value


def picture(i):
    return Image.open(BytesIO(made.jpeg(i)))


class Mds(Case):
    def write(self, folder, **options):
        with MDSWriter(out=str(folder), columns=COLUMNS, size_limit=20_000, **options) as writer:
            for row in self.rows:
                writer.write({"id": row["id"], "image": picture(row["id"]), "caption": str(row["caption"]), "score": row["score"], "embedding": row["embedding"],
                              "nested": row["nested"], "raw": row["raw"], "small": numpy.uint8(row["id"]), "images": [picture(row["id"])] * 2, "pickle": (1, 2)})

    def imported(self, folder):
        said = self.packs(f"mds:{folder}")
        self.assertEqual([(column["column"], column["kind"]) for column in said["left_out"]], [("pickle", "pkl")])
        return made.of_dataset(self.dataset)

    def test_all_encodings_but_pickles(self):
        self.write(self.folder / "plain")
        found = self.imported(self.folder / "plain")
        for row in self.rows:
            got = found[row["id"]]
            self.assertEqual({name: got[name] for name in ("caption", "score", "embedding", "nested", "raw", "small")},
                             made.plain({"caption": str(row["caption"]), "score": row["score"], "embedding": row["embedding"], "nested": row["nested"],
                                         "raw": row["raw"], "small": row["id"]}))
            self.assertEqual([got[name][:3] for name in ("image", "images.0", "images.1")], [b"\xff\xd8\xff"] * 3)

    def test_compressed_shards_give_the_same(self):
        self.write(self.folder / "plain")
        found = self.imported(self.folder / "plain")
        self.write(self.folder / "zstd", compression="zstd")
        self.dataset = self.folder / "zstd.diesel"
        self.assertEqual(self.imported(self.folder / "zstd"), found)

    def test_damaged_and_missing_shards(self):
        self.write(self.folder / "src")
        shard = self.folder / "src/shard.00002.mds"
        whole = shard.read_bytes()
        shard.write_bytes(whole[:-1])
        self.refuses("shard.00002.mds: has .* bytes, but index.json lists", "pack", f"mds:{self.folder}/src")
        shard.write_bytes(b"\xff" * len(whole))
        self.refuses("shard.00002.mds: has .* samples, but index.json lists", "pack", f"mds:{self.folder}/src")
        shard.unlink()
        self.refuses("shard.00002.mds: No such file", "pack", f"mds:{self.folder}/src")
        (self.folder / "src/index.json").write_text("{}")
        self.refuses("is not an index of MDS shards", "pack", f"mds:{self.folder}/src")
        self.assertFalse((self.dataset / "snapshot").exists())

    def test_round_trip(self):
        with diesel_loader.create(self.dataset) as writer:
            for row in self.rows:
                writer.put(f"c{row['label']}/{row['id']}", row)
        (self.folder / "out.tmp").mkdir()
        (self.folder / "out.tmp/mine").touch()
        done = run("export", self.dataset, self.folder / "out", "--to", "mds")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["made.diesel", "out", "out.tmp"])
        self.assertTrue((self.folder / "out.tmp/mine").exists())
        self.dataset = self.folder / "back.diesel"
        self.packs(f"mds:{self.folder}/out")
        self.has_all()
        self.assertEqual(diesel_loader.Dataset(self.dataset).classes, ["c0", "c1", "c2"])


    def test_shards_are_read_in_place_as_their_own_reader_reads_them(self):
        self.write(self.folder / "src")
        self.assertEqual(run("index", self.folder / "src", "--output", self.dataset).returncode, 0)
        dataset = diesel_loader.Dataset(self.dataset)
        self.assertEqual((dataset.layout, dataset.fields), ("mds", tuple(sorted(COLUMNS.keys() - {"pickle"}))))
        theirs = StreamingDataset(local=str(self.folder / "src"), shuffle=False, batch_size=1, allow_unsafe_types=True)
        for ours, row in zip(dataset.__getitems__(range(len(dataset))), map(theirs.get_item, range(len(theirs))), strict=True):
            row.update({name: row[name].item() for name in ("score", "small")})
            self.assertEqual({name: value for name, value in made.plain(ours).items() if not name.startswith("image")},
                             {name: value for name, value in made.plain(row).items() if name not in ("image", "images", "pickle")})
            self.assertEqual(Image.open(BytesIO(ours["image"])).tobytes(), row["image"].tobytes())
            self.assertEqual([one.tobytes() for one in ours["images"]], [one.tobytes() for one in row["images"]])
        self.trains("small", "embedding")
        self.dieseld_decodes_images()
        self.commands_know_the_columns()
        self.goes_out_and_comes_back()

    def dieseld_decodes_images(self):
        stored = {row["id"]: Image.open(BytesIO(row["image"])) for row in self.all_of(self.dataset)}
        crop = transforms.Compose([transforms.Resize(16), transforms.CenterCrop(8), transforms.ToTensor()])
        for batch in diesel.DataLoader(self.dataset, 16, transform={"image": crop}, decode=diesel.Decode(native="require")):
            for i, image, caption in zip(batch["id"].tolist(), batch["image"], batch["caption"]):
                self.assertEqual(caption, str(self.rows[i]["caption"]))
                self.assertEqual(image.tolist(), (torch.from_numpy(numpy.array(stored[i]).transpose(2, 0, 1)[:, 4:12, 4:12].copy()) / 255).tolist())
        with self.assertRaisesRegex(ValueError, "field 'caption' of shard.00000/00000000, is no JPEG"):
            diesel.DataLoader(self.dataset, 16, transform={"caption": crop}, decode=diesel.Decode(native="require"))

    def commands_know_the_columns(self):
        path = diesel_loader.Dataset(self.dataset).sample_path(0)
        self.assertRegex(run("stat", self.dataset).stdout, r"layout +mds\nfields +caption \(text, .*embedding \(ndarray, .*pickle \(pkl, .*small \(uint8, 1 B\), of the first sample")
        told = {field["name"]: field for field in json.loads(run("stat", "--json", self.dataset, path).stdout)["fields"]}
        self.assertEqual((told["small"]["kind"], told["small"]["encoding"], told["image"]["kind"]), ("encoded", "uint8", "image"))
        self.assertEqual(run("cat", "--field", "caption", self.dataset, path).stdout, str(self.rows[0]["caption"]))
        self.assertRegex(run("cat", "--field", "nope", self.dataset, path).stderr, "has no field 'nope'")

    def goes_out_and_comes_back(self):
        """Pickles come back as bytes, and so do lists of images."""
        wanted = {row["id"]: made.plain(row) for row in self.all_of(self.dataset)}
        endings = {"id": "id.cls", "image": "image.jpg", "caption": "caption.txt", "score": "score.json", "embedding": "embedding.npy", "nested": "nested.json",
                   "raw": "raw.bin", "small": "small.cls"}
        for step in ("export", self.dataset, self.folder / "tar", "--to", "tar"), ("index", self.folder / "tar", "-o", self.folder / "tar.diesel"), \
                ("export", self.dataset, self.folder / "mds", "--to", "mds"), ("index", self.folder / "mds", "-o", self.folder / "mds.diesel"), \
                ("pack", self.dataset, self.folder / "packed.diesel"):
            done = run(*step)
            self.assertEqual(done.returncode, 0, done.stderr)
        for name, ending in (("mds", {}), ("packed", {}), ("tar", endings)):
            for row in self.all_of(self.folder / f"{name}.diesel"):
                row = made.plain({own: row[ending.get(own, own)] for own in endings})
                self.assertEqual(row, {one: wanted[row["id"]][one] for one in endings})
        self.assertEqual(pickle.loads(self.all_of(self.folder / "mds.diesel")[0]["pickle"]), (1, 2))

    def test_samples_of_pickles_only_are_exported_and_never_decoded(self):
        with MDSWriter(out=str(self.folder / "src"), columns={"pickle": "pkl"}) as writer:
            writer.write({"pickle": (1, 2)})
        for step in (("index", self.folder / "src", "-o", self.dataset), ("export", self.dataset, self.folder / "mds", "--to", "mds"),
                     ("index", self.folder / "mds", "-o", self.folder / "mds.diesel")):
            done = run(*step)
            self.assertEqual(done.returncode, 0, done.stderr)
        dataset = diesel_loader.Dataset(self.dataset)
        self.assertEqual((len(dataset), dataset.fields), (1, ()))
        with self.assertRaisesRegex(ValueError, "column 'pickle' of .* may hold pickles"):
            dataset[0]
        self.assertEqual(pickle.loads(self.all_of(self.folder / "mds.diesel")[0]["pickle"]), (1, 2))

    def all_of(self, path):
        dataset = diesel_loader.Dataset(path)
        return dataset.__getitems__(range(len(dataset)))

    def test_every_encoding_is_read_as_its_own_reader_reads_it(self):
        array, jpegs, pngs = numpy.arange(12, dtype="float32").reshape(3, 4), [picture(1), picture(2)], [Image.new("RGB", (3, 2), "red"), Image.new("L", (4, 4))]
        values = {"bytes": b"some", "str": "é", "int": -5, "ndarray": array, "str_int": 1 << 70, "str_float": 0.1, "str_decimal": decimal.Decimal("0.10"),
                  "pil": pngs[0], "jpeg": jpegs[0], "jpeg_array": [made.jpeg(1)], "jpegarray": [made.jpeg(2)], "png": pngs[0], "list[pil]": pngs, "list[jpeg]": jpegs,
                  "list[png]": pngs, "pkl": (1, 2), "json": {"a": [1, None]},
                  **{name: numpy.dtype(name).type(7) for name in encodings.get_mds_encodings() if name[-1].isdigit()}}
        self.assertEqual(set(values), encodings.get_mds_encodings())
        values |= {"ndarray:float32": array, "ndarray:float32:3,4": array}
        with MDSWriter(out=str(self.folder / "src"), columns={f"a {name}": name for name in values}) as writer:
            for _ in range(3):
                writer.write({f"a {name}": value for name, value in values.items()})
        self.assertEqual(run("index", self.folder / "src", "-o", self.dataset).returncode, 0)
        theirs = StreamingDataset(local=str(self.folder / "src"), shuffle=False, batch_size=1, allow_unsafe_types=True).get_item(1)
        self.is_read_alike(theirs, "a pkl")

    def is_read_alike(self, theirs, *unsafe):
        ours = self.all_of(self.dataset)[1]
        self.assertEqual(sorted(ours), sorted(theirs.keys() - set(unsafe)))
        for name, value in ours.items():
            with self.subTest(name):
                self.assertEqual(comparable(value), comparable(theirs[name]))

    def trains(self, *names):
        """A loader gives every row once, also with workers."""
        chosen = diesel_loader.Dataset(self.dataset, fields=["id", "image", *names])
        for workers in (0, 1):
            seen = []
            for batch in diesel.DataLoader(chosen, 16, shuffle=True, transform={"image": numpy.shape}, num_workers=workers):
                self.assertEqual([tuple(shape) for shape in batch["image"]], [(16, 16, 3)] * len(batch["id"]))
                self.assertEqual(batch["embedding"].flatten(1).tolist(), [self.rows[i]["embedding"].tolist() for i in batch["id"].tolist()])
                seen += batch["id"].tolist()
            self.assertEqual(sorted(seen), list(range(made.N)))

    def test_what_cannot_be_read_in_place_is_refused(self):
        self.write(self.folder / "zstd", compression="zstd")
        self.refuses("its shards are compressed or encrypted .zstd.* run `dieselctl pack mds:.*/zstd DATASET`", "index", "-o", self.dataset, self.folder / "zstd", dataset=False)
        self.write(self.folder / "src")
        self.assertEqual(run("index", self.folder / "src", "-o", self.dataset).returncode, 0)
        columns = self.folder / "src/index.json"
        for fields, says in ((["nope"], "has no column 'nope', but caption, "), (["pickle"], "column 'pickle' of .* may hold pickles")):
            with self.assertRaisesRegex(ValueError, says):
                diesel_loader.Dataset(self.dataset, fields=fields)
        index = json.loads(columns.read_text())
        n = len(COLUMNS)
        for change, says in (({"column_encodings": ["int"] * n}, "column 'small' has values of 1 bytes, which its encoding 'int' does not have"), ({"column_sizes": [-8] * n}, "json: its columns have"),
                             ({"column_names": ["a"] * n}, "column 'a' occurs twice"), ({"column_names": list(range(n))}, "json: its columns have"),
                             ({"column_sizes": [1]}, "json: its columns have"), ({"column_names": [""] * n}, "invalid column ''"), ({"column_names": ["\ud800"] * n}, "must have 1 to 255 bytes of UTF-8")):
            columns.write_text(json.dumps({"shards": [{**shard, **change} for shard in index["shards"]]}))
            self.refuses(says, "index", "-o", self.folder / "other.diesel", self.folder / "src", dataset=False)
        columns.write_text(json.dumps({"shards": [{**shard, "column_sizes": [8] * n} for shard in index["shards"]]}))
        self.refuses("has samples with other columns or encodings", "index", "-o", self.dataset, self.folder / "src", dataset=False)
        columns.write_text(json.dumps(index))
        self.no_bytes_lead_out_of_a_sample(diesel_loader.Dataset(self.dataset))
        shard = self.folder / "src/shard.00001.mds"
        whole = shard.read_bytes()
        for data in (whole[:-1], whole[:4] + b"\xff" * 8 + whole[12:], whole[:6], b"\1" + whole[1:]):
            shard.write_bytes(data)
            self.refuses("shard.00001.mds (does not have the|is damaged or cut off)", "index", "-o", self.folder / "new.diesel", self.folder / "src", dataset=False)
        (self.folder / "src/index.json").write_text("{}")
        self.refuses("index.json is no index of MDS shards or LitData chunks", "index", "-o", self.dataset, self.folder / "src", dataset=False)
        index["shards"][0]["raw_data"]["basename"] = "../../secret"
        columns.write_text(json.dumps(index))
        self.refuses("names ../../secret, which is outside of", "index", "-o", self.dataset, self.folder / "src", dataset=False)


    def no_bytes_lead_out_of_a_sample(self, dataset):
        rng, whole = numpy.random.default_rng(1), bytes(dataset.read(0))
        with self.assertRaises(ValueError):
            dataset.reader.listed(0, 0)
        for _ in range(2000):
            data = bytearray(whole[:rng.integers(0, len(whole) + 1)] if rng.integers(0, 2) else whole)
            data[:48] = rng.integers(0, 256, min(48, len(data)), "uint8").tobytes() if rng.integers(0, 2) else data[:48]
            try:
                found = dataset.reader.listed(diesel_loader.native.address_of(data), len(data))
            except ValueError:
                continue
            begin = diesel_loader.native.address_of(data)
            self.assertTrue(all(begin <= at and at + size <= begin + len(data) for _, _, at, size in found))


class LitData(Case):
    trains, all_of, is_read_alike = Mds.trains, Mds.all_of, Mds.is_read_alike

    def test_every_type_is_read_as_its_own_reader_reads_it(self):
        sample = {"str": "é", "flag": True, "int": -5, "float": 0.1, "bytes": b"some", "pil": Image.new("L", (4, 3)), "json": JsonLeaf([{"a": 1}]),
                  "vector": numpy.arange(5, dtype="int16"), "matrix": numpy.ones((2, 3)), "tensor": torch.arange(4), "tensors": torch.ones(2, 2), "pair": [7, "x"],
                  "object": decimal.Decimal(1)}
        writer = BinaryWriter(str(self.folder / "src"), chunk_size=2)
        for i in range(3):
            writer[i] = sample
        writer.done()
        writer.merge()
        self.assertEqual(run("index", self.folder / "src", "-o", self.dataset).returncode, 0)
        self.is_read_alike(litdata.StreamingDataset(str(self.folder / "src"), shuffle=False)[1], "object")

    def test_chunks_are_read_in_place_as_their_own_reader_reads_them(self):
        self.write(self.folder / "src")
        self.assertEqual(run("index", self.folder / "src", "-o", self.dataset).returncode, 0)
        dataset = diesel_loader.Dataset(self.dataset)
        self.assertEqual(dataset.layout, "litdata")
        for ours, theirs in zip(dataset.__getitems__(range(len(dataset))), litdata.StreamingDataset(str(self.folder / "src"), shuffle=False), strict=True):
            theirs["deep.raw"] = theirs.pop("deep")["raw"]
            theirs["tensor"] = theirs["tensor"].numpy()
            self.assertEqual(made.plain(ours), made.plain(theirs))
        self.trains("embedding")
        self.write(self.folder / "zstd", compression="zstd")
        self.refuses("its shards are compressed or encrypted .zstd.* run `dieselctl pack litdata:", "index", "-o", self.dataset, self.folder / "zstd", dataset=False)

    def write(self, folder, **options):
        writer = BinaryWriter(str(folder), chunk_size=30, **options)
        for i, row in enumerate(self.rows):
            writer[i] = {"id": row["id"], "image": row["image"], "caption": str(row["caption"]), "score": row["score"], "good": row["good"],
                         "embedding": row["embedding"].reshape(4, 4), "tensor": torch.arange(5) + i, "deep": {"raw": row["raw"]}}
        writer.done()
        writer.merge()

    def wanted(self):
        return [{"id": row["id"], "image": row["image"], "caption": str(row["caption"]), "score": row["score"], "good": row["good"],
                 "embedding": row["embedding"].reshape(4, 4), "tensor": numpy.arange(5) + row["id"], "deep.raw": row["raw"]} for row in self.rows]

    def test_chunks(self):
        self.write(self.folder / "src")
        self.assertEqual(self.packs(f"litdata:{self.folder}/src")["shards"], 4)
        self.has_all(self.wanted())

    def test_compressed_chunks(self):
        self.write(self.folder / "src", compression="zstd")
        self.packs(f"litdata:{self.folder}/src")
        self.has_all(self.wanted())

    def test_truncated_and_missing_chunks(self):
        self.write(self.folder / "src")
        chunk = self.folder / "src/chunk-0-2.bin"
        os.truncate(chunk, 1000)
        self.refuses("chunk-0-2.bin: is truncated", "pack", f"litdata:{self.folder}/src")
        chunk.unlink()
        self.refuses("chunk-0-2.bin: No such file", "pack", f"litdata:{self.folder}/src")
        shutil.rmtree(pathlib.Path(self.folder, "src"))
        self.refuses("index.json: No such file", "pack", f"litdata:{self.folder}/src")


class Torchdata(Case):
    """A Dataset under the nodes of torchdata, with their state and the order of ChunkShuffleSampler."""
    def test_nodes_continue_where_their_state_says(self):
        from torchdata import nodes

        from diesel_loader.torch import ChunkShuffleSampler
        dataset, values = made.packed_numbers(self.folder)

        def loader():
            batches = nodes.Batcher(nodes.SamplerWrapper(ChunkShuffleSampler(dataset, seed=5)), 64, drop_last=False)
            return nodes.Loader(nodes.ParallelMapper(batches, dataset.__getitems__, num_workers=2, method="thread"))

        def numbers(batches):
            return [[int(data) for data, _ in batch] for batch in batches]

        first = loader()
        epochs = [numbers(first), numbers(first)]
        self.assertEqual([sorted(sum(epoch, [])) for epoch in epochs], [sorted(values)] * 2)
        self.assertNotEqual(*epochs)
        stopped, again = loader(), loader()
        head = numbers(batch for _, batch in zip(range(3), iter(stopped)))
        again.load_state_dict(stopped.state_dict())
        self.assertEqual([head + numbers(again), numbers(again)], epochs)
        alone = nodes.Loader(nodes.MapStyleWrapper(dataset, ChunkShuffleSampler(dataset, seed=5)))
        self.assertEqual([int(data) for data, _ in alone], sum(epochs[0], []))


if __name__ == "__main__":
    unittest.main()
