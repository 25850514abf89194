# SPDX-License-Identifier: Apache-2.0
"""Tests samples with fields: writing, reading by number, tar members, and damage."""
import io
import os
import pickle
import tarfile
import unittest

# Imported first: adds the path of the other modules, and skips where modules are missing.
from fields_support import N, Daemon, FieldsCase, ctl, image, path_of, same, sample, set_layout, stat, stored, write
from PIL import Image

import numpy

import diesel_loader
from diesel_loader import native
from diesel_loader.fields import decode, npy


def members(key, fields, form):
    """Returns the members of a tar archive, as Python's tarfile writes them, without the end of the archive."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name, data in fields.items():
            info = tarfile.TarInfo(f"{key}.{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        end = tar.offset
    return file.getvalue()[:end]


def read(layout, data, names=None):
    """Returns the dict of one sample in memory."""
    reader = decode.Reader(decode.Form(layout), names, "DATASET")
    return reader.samples(decode.items_of([bytearray(data)]), 1, lambda i: "path", [7], [3], lambda i: "SAMPLE")[0][0]


class Written(FieldsCase):
    def is_sample(self, found, k, names=None):
        wanted = sample(k)
        self.assertEqual(list(found), list(names or wanted))
        for name, value in found.items():
            self.assertTrue(same(value, stored(wanted[name])), (name, value))

    def test_every_kind_comes_back_as_it_was_put(self):
        dataset = self.dataset()
        self.assertEqual((len(dataset), dataset.layout, dataset.fields), (N, "fields", tuple(sample(0))))
        for i in range(N):
            self.is_sample(dataset[i], int(dataset.sample_path(i)[-3:]))
        for found, i in zip(dataset.__getitems__([5, 3, 5]), [5, 3, 5]):
            self.is_sample(found, int(dataset.sample_path(i)[-3:]))
        self.is_sample(pickle.loads(pickle.dumps(dataset))[-1], int(dataset.sample_path(N - 1)[-3:]))

    def test_only_the_chosen_fields_come_in_the_chosen_order(self):
        dataset = self.dataset("n", "__key__", "caption", "__label__", "__id__")
        found = dataset[4]
        path = dataset.sample_path(4)
        self.assertEqual(found, {"n": int(path[-3:]) - 5, "__key__": path, "caption": sample(int(path[-3:]))["caption"],
                                 "__label__": int(path[5]), "__id__": 4})
        self.assertEqual(list(found), ["n", "__key__", "caption", "__label__", "__id__"])
        self.assertEqual(self.dataset("__key__")[0], {"__key__": dataset.sample_path(0)})
        self.assertEqual(dataset[10:20].filter("class1")[0]["__label__"], 1)

    def test_stored_bytes_can_still_be_read(self):
        dataset = self.dataset("n")
        data = dataset.read_many([2])[0]
        self.is_sample(read(native.LAYOUT_FIELDS, data), int(dataset.sample_path(2)[-3:]))
        self.assertEqual(bytes(data), dataset[dataset.sample_path(2)])

    def test_storage_serves_samples_when_dieseld_is_gone(self):
        folder = self.folder / "gone"
        folder.mkdir()
        path = write(folder / "one.diesel", 9)
        with Daemon(folder, "--metrics", "off"):
            dataset = diesel_loader.Dataset(path, fields=["n", "__key__"])
        self.assertEqual(sorted(one["n"] for one in dataset.__getitems__(range(9))), [k - 5 for k in range(9)])
        child = os.fork()
        if child == 0:  # a forked process has no connection
            os._exit(0 if dataset[3]["n"] == int(dataset.sample_path(3)[-3:]) - 5 else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_a_missing_field_is_named(self):
        with self.assertRaises(KeyError) as raised:
            self.dataset("n", "mask")[0]
        for text in ("'mask'", self.dataset().sample_path(0), str(self.path), "caption"):
            self.assertIn(text, str(raised.exception))

    def test_samples_may_have_different_fields(self):
        path = write(self.folder / "ragged.diesel", 4, lambda k: {"a": k, **({"b": "x"} if k % 2 else {})})
        dataset = diesel_loader.Dataset(path)
        wanted = [{"a": k, **({"b": "x"} if k % 2 else {})} for k in (int(dataset.sample_path(i)[-3:]) for i in range(4))]
        self.assertEqual(dataset.__getitems__(range(4)), wanted)

    def test_arrays_have_any_memory_order(self):
        values = {"fortran": numpy.asfortranarray(numpy.arange(6).reshape(2, 3)), "strided": numpy.arange(10)[::2],
                  "big": numpy.arange(3, dtype=">i4"), "text": numpy.array(["a", "bc"]), "empty": numpy.empty((0, 3)),
                  "record": numpy.zeros(2, [("a", "i4"), ("b", "f8")])}
        path = write(self.folder / "arrays.diesel", 1, lambda k: values)
        found = diesel_loader.Dataset(path)[0]
        for name, value in values.items():
            self.assertEqual((found[name].dtype, found[name].shape), (value.dtype, value.shape))
            self.assertTrue((found[name] == value).all())
            self.assertTrue(found[name].flags.writeable)

    def test_pictures_and_tuples_can_be_put(self):
        picture = Image.new("L", (3, 2), 9)
        path = write(self.folder / "pictures.diesel", 1, lambda k: {"mask": picture, "pair": (1, "a")})
        found = diesel_loader.Dataset(path)[0]
        self.assertEqual(Image.open(io.BytesIO(found["mask"])).tobytes(), picture.tobytes())
        self.assertEqual(found["pair"], [1, "a"])

    def test_what_no_field_can_hold_is_refused_with_its_name(self):
        with diesel_loader.create(self.folder / "refused.diesel") as w:
            for value, error, text in ((object(), TypeError, "object"), (1 << 63, ValueError, "64 bits"), ({"a": object()}, TypeError, "JSON"),
                                       (numpy.array([None]), TypeError, "Python objects"), ("\ud800", ValueError, "surrogates")):
                with self.assertRaisesRegex(error, f"'field'.*'path'.*{text}"):
                    w.put("path", {"field": value})
            for fields, error, text in (({}, ValueError, "1 to 1024"), ({1: 2}, TypeError, "must be str"), ({"": 2}, ValueError, "1 to 255 bytes"),
                                        ({"a\0": 2}, ValueError, "NUL"), ({"x" * 256: 2}, ValueError, "255"), ({"__key__": 2}, ValueError, "__key__")):
                with self.assertRaisesRegex(error, text):
                    w.put("path", fields)
            w.put("path", {"field": 1})
        self.assertEqual(diesel_loader.Dataset(self.folder / "refused.diesel")[0], {"field": 1})

    def test_samples_of_another_layout_are_refused(self):
        plain = self.folder / "plain.diesel"
        with diesel_loader.create(plain) as w:
            w.put("a", b"bytes")
            with self.assertRaisesRegex(ValueError, "layout 'plain'.*layout 'fields'"):
                w.put("b", {"n": 1})
        with diesel_loader.create(self.path, append=True) as w:
            with self.assertRaisesRegex(ValueError, "layout 'fields'.*layout 'plain'"):
                w.put("a", b"bytes")
        (self.folder / "tree").mkdir()
        (self.folder / "tree" / "a.jpg").write_bytes(b"x")
        done = ctl("pack", "--append", self.folder / "tree", self.path)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^dieselctl[^\n]*layout 'fields'[^\n]*layout 'plain'[^\n]*\n$")
        self.assertEqual(diesel_loader.Dataset(self.path).version, 1)
        with self.assertRaisesRegex(ValueError, "no fields"):
            diesel_loader.Dataset(plain, fields=["n"])
        self.assertEqual((diesel_loader.Dataset(plain).layout, diesel_loader.Dataset(plain).fields), ("plain", None))

    def test_samples_are_added_and_replaced(self):
        path = write(self.folder / "grown.diesel", 3, lambda k: {"n": k})
        with diesel_loader.create(path, append=True) as w:
            w.put(path_of(1), {"n": 11})
            w.put("class0/new", {"n": 12})
        dataset = diesel_loader.Dataset(path)
        self.assertEqual({dataset.sample_path(i): dataset[i]["n"] for i in range(4)},
                         {path_of(0): 0, path_of(1): 11, path_of(2): 2, "class0/new": 12})
        self.assertEqual(ctl("rebuild", path).returncode, 0)
        self.assertEqual(stat(path)["layout"], "fields")
        self.assertEqual(ctl("purge", "--keep", "1", "--older-than", "0s", path).returncode, 0)
        self.assertEqual(ctl("verify", path).returncode, 0)
        self.assertEqual(diesel_loader.Dataset(path).layout, "fields")

    def test_dieselctl_shows_layout_and_fields(self):
        said = ctl("stat", self.path).stdout
        self.assertRegex(said, r"layout    fields\nfields    image \(image, .*, caption \(text, .* n \(int, 8 B\)")
        found = stat(self.path)
        self.assertEqual((found["layout"], [field["name"] for field in found["fields"]]), ("fields", list(sample(0))))
        self.assertEqual(found["fields"][2], {"name": "n", "kind": "int", "bytes": 8})
        self.assertEqual([field["name"] for field in stat(self.path, path_of(3))["fields"]], list(sample(3)))
        self.assertRegex(ctl("stat", self.path, path_of(3)).stdout, r"\nfields    image \(image, .*none \(none, 0 B\)")
        self.assertEqual(ctl("cat", "--field", "raw", self.path, path_of(2)).stdout, "\0\1\0\1")
        self.assertRegex(ctl("cat", "--field", "mask", self.path, path_of(2)).stderr, "'class2/002' has no field 'mask'")

    def test_fields_are_checked(self):
        for fields, error in (([], ValueError), (["a", "a"], ValueError), ([1], TypeError)):
            with self.assertRaises(error):
                diesel_loader.Dataset(self.path, fields=fields)


class Tar(FieldsCase):
    FIELDS = {"jpg": image(3), "seg.png": image(4), "txt": "café".encode(), "json": b'{"a": 1}', "jsonl": b'{"a": 1}\n2\n', "cls": b" 12\n",
              "npy": npy.encode(numpy.arange(3)), "bin": b"\0"}
    WANTED = {"jpg": FIELDS["jpg"], "seg.png": FIELDS["seg.png"], "txt": "café", "json": {"a": 1}, "jsonl": [{"a": 1}, 2], "cls": 12, "bin": b"\0"}

    def test_members_that_tarfile_writes_are_fields(self):
        for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            for key in ("0001", "a.b/0001", "d" * 80 + "/" + "k" * 60, *(() if form == tarfile.USTAR_FORMAT else ("k" * 300, "é" * 90))):
                found = read(native.LAYOUT_TAR, members(key, self.FIELDS, form))
                array = found.pop("npy")
                self.assertEqual((found, array.tolist()), (self.WANTED, [0, 1, 2]), (form, key))

    def test_a_dataset_of_members_has_their_fields(self):
        path = self.folder / "tar.diesel"
        with diesel_loader.create(path) as w:
            for k in range(5):
                w.put(f"{k}", members(f"a/{k}", {**self.FIELDS, "cls": str(k).encode()}, tarfile.PAX_FORMAT))
        dataset = diesel_loader.Dataset(set_layout(path, "tar"), fields=["cls", "seg.png"])
        self.assertEqual((dataset.layout, dataset.fields), ("tar", tuple(self.FIELDS)))
        self.assertEqual([s["cls"] for s in dataset.__getitems__(range(5))], [int(dataset.sample_path(i)) for i in range(5)])
        self.assertEqual(stat(path)["fields"][1]["kind"], "image")
        with self.assertRaises(diesel_loader.DamagedData):
            read(native.LAYOUT_TAR, members("k", {"txt": b"\xff"}, tarfile.PAX_FORMAT))


class Damaged(FieldsCase):
    def test_damaged_samples_raise_and_name_the_sample(self):
        path = self.folder / "hostile.diesel"
        with diesel_loader.create(path) as w:
            w.put("a", b"no fields")
            w.put("empty", b"")
        dataset = diesel_loader.Dataset(set_layout(path, "fields"))
        for read_one in (lambda: dataset[0], lambda: dataset[1], lambda: dataset.fields, lambda: dataset.__getitems__([0, 1])):
            with self.assertRaisesRegex(diesel_loader.DamagedData, f"fields of sample .* of {path}"):
                read_one()
        self.assertIsNone(stat(path)["fields"])

    def test_no_bytes_crash_the_reader(self):
        data = bytes(self.dataset().read(0))
        rng = numpy.random.default_rng(5)
        for _ in range(3000):
            hurt = bytearray(data)
            for at in rng.integers(0, 400, rng.integers(1, 4)):
                hurt[at] = rng.integers(0, 256)
            try:
                read(native.LAYOUT_FIELDS, hurt[:rng.integers(1, len(hurt) + 1)] if rng.integers(0, 4) == 0 else hurt)
            except diesel_loader.DamagedData:
                pass

    def test_arrays_that_lie_are_refused(self):
        good = npy.encode(numpy.arange(4))
        for bad in (b"", b"\x93NUMPY", good[:-1], good + b"\0", good.replace(b"(4,)", b"(5,)"), good.replace(b"<i8", b"|O "), good.replace(b"(4,)", b"(-4,"),
                    good[:8] + b"\xff\xff" + good[10:], good.replace(b"{'descr'", b"os.exit("), b"\x93NUMPY\x09\0" + good[8:]):
            with self.assertRaises(ValueError, msg=bad):
                npy.decode(bad)

    def test_a_repeated_name_gives_the_first_value(self):
        data = members("k", {"txt": b"first"}, tarfile.PAX_FORMAT) + members("k", {"txt": b"second"}, tarfile.PAX_FORMAT)
        self.assertEqual(read(native.LAYOUT_TAR, data), {"txt": "first"})
        self.assertEqual(read(native.LAYOUT_TAR, data, ["txt"]), {"txt": "first"})


if __name__ == "__main__":
    os.environ.pop("DIESEL_SOCKET", None)
    unittest.main(verbosity=2)
