# SPDX-License-Identifier: Apache-2.0
"""Tests which files of a source dieselctl pack makes samples, which it leaves out, and which sources it refuses."""
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import unittest


from common.commands import dieselctl
from dieseld_support import SCRATCH

ROOT = pathlib.Path(SCRATCH)
PICTURES = ["cat/1.jpg", "cat/2.PNG", "dog/1.webp", "dog/old/2.tiff"]
HIDDEN = [".DS_Store", "cat/.DS_Store", "cat/._1.jpg", ".ipynb_checkpoints/1.jpg", "dog/.ipynb_checkpoints/a/1.jpg", "dog/Thumbs.db",
          "desktop.ini", "__MACOSX/cat/._1.jpg", "cat/@eaDir/1.jpg"]


def names(dataset):
    return [entry["path"] for entry in json.loads(dieselctl("ls", "-R", "--json", dataset).stdout)]


class Source(unittest.TestCase):
    def setUp(self):
        self.root = ROOT / self.id()
        self.source, self.dataset = self.root / "source", self.root / "dataset"
        self.source.mkdir(parents=True)
        self.addCleanup(shutil.rmtree, self.root)

    def write(self, *paths):
        for path in paths:
            (self.source / path).parent.mkdir(parents=True, exist_ok=True)
            (self.source / path).write_bytes(path.encode())

    def archive(self):
        path = self.root / "archive.tar"
        subprocess.run(["tar", "-cf", path, "-C", self.source, "."], check=True)
        return path

    def each_way(self):
        """Yields the source as a folder and as an archive, each with an empty folder for the dataset."""
        for source in (self.source, self.archive()):
            with self.subTest(source.name):
                shutil.rmtree(self.dataset, ignore_errors=True)
                yield source

    def packed(self, *words, warns=""):
        done = dieselctl("pack", *words, self.dataset)
        self.assertEqual((done.returncode, done.stderr), (0, warns and f"dieselctl pack: {warns}\n"))
        return done.stdout

    def refused(self, *words, says):
        done = dieselctl("pack", *words)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), done)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, done.stderr)

    def test_hidden_files_are_left_out(self):
        self.write(*PICTURES, *HIDDEN)
        for source in self.each_way():
            said = self.packed(source)
            self.assertEqual(names(self.dataset), PICTURES)
            self.assertIn("; 9 hidden left out;", said)
            stat = json.loads(dieselctl("stat", "--json", self.dataset).stdout)
            self.assertEqual(stat["classes"], ["cat", "dog"])
        for source in self.each_way():
            self.assertEqual(json.loads(self.packed("--json", source))["hidden"], 9)
        for source in self.each_way():
            self.assertNotIn("left out", self.packed("--as-files", source))
            self.assertEqual(sorted(names(self.dataset)), sorted(PICTURES + HIDDEN))

    def test_files_that_are_no_images_of_a_class_are_left_out(self):
        self.write(*PICTURES, "cat/README.md", "dog/2.jfif", "preview.jpg", "labels.csv")
        for source in self.each_way():
            done = dieselctl("pack", source, self.dataset)
            self.assertEqual(done.returncode, 0)
            self.assertRegex(done.stderr, r"the dataset also has 3 files that are not images by their names, such as "
                             r"(cat/README.md|dog/2.jfif|labels.csv), and 1 image in no class folder \(label -1\), such as "
                             r"preview.jpg; to pack only what ImageFolder accepts, use --images\n$")
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertEqual(len(names(self.dataset)), 8)
        for source in self.each_way():
            said = self.packed("--images", source)
            self.assertEqual(names(self.dataset), PICTURES)
            self.assertIn("; 4 files left out (not images in a class folder);", said)

    def test_a_shard_of_webdataset_is_told_of_index(self):
        self.write(*(f"a/{i}.seg.png" if i % 2 else f"a/{i // 2}.jpg" for i in range(6)))
        shard, fields = self.root / "train-0000.tar", ["0.jpg", "0.cls", "1.jpg", "1.cls"]
        self.packed(self.archive())   # at most one is alike
        self.write(*fields)
        subprocess.run(["tar", "-cf", shard, "-C", self.source, *fields], check=True)
        shutil.rmtree(self.dataset)
        self.packed(shard, warns="each file is a sample of its own, but 2 of 4 have the name of the file before up to the first dot, as in a "
                                 f"shard of WebDataset. For samples with fields, use dieselctl index {shard} --output DATASET")
        done = dieselctl("index", shard, "--output", self.root / "indexed")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(names(self.root / "indexed")), 2)
        shutil.rmtree(self.dataset)
        self.packed("--as-files", shard)

    def test_files_are_samples_where_there_are_no_images(self):
        """Where there are no images, the output does not mention other files."""
        self.write("a/1.bin", "a/2.npy", "b/1.txt", "top.bin")
        for source in self.each_way():
            self.packed(source)
            self.assertEqual(len(names(self.dataset)), 4)

    def test_an_empty_class_is_refused(self):
        self.write("ant/1.jpg", "cat/1.jpg")
        (self.source / "bird").mkdir()
        for source in self.each_way():
            self.refused(source, self.dataset, says=["the class folder bird of ", "--drop-empty"])
            self.assertFalse(self.dataset.exists())
            self.packed("--drop-empty", source)
            self.assertEqual(json.loads(dieselctl("stat", "--json", self.dataset).stdout)["classes"], ["ant", "cat"])

    def test_classes_can_be_those_of_another_dataset(self):
        train = self.root / "train.diesel"
        self.write("ant/1.jpg", "bird/1.jpg", "cat/1.jpg")
        self.assertEqual(dieselctl("pack", self.source, train).returncode, 0)
        for empty in (True, False):
            shutil.rmtree(self.source / "bird")
            if empty:
                (self.source / "bird").mkdir()
            for source in self.each_way():
                done = dieselctl("pack", "--classes-of", train, source, self.dataset)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (0, 1), done)
                self.assertIn(f"class bird of {train} has no samples here: ", done.stderr)
                self.assertIn(f'.with_classes(Dataset("{train}").classes)', done.stderr)
        self.write("bird/1.jpg")
        for source in self.each_way():
            self.packed("--classes-of", train, source)
        self.write("cow/1.jpg")
        for source in self.each_way():
            self.refused("--classes-of", train, source, self.dataset, says=f"the class folder cow of {source} is not a class of {train}")
        self.refused("--classes-of", self.root / "nowhere", self.source, self.dataset, says="nowhere")

    def table(self, *lines, name="labels.csv"):
        path = self.root / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return ["--labels", path]

    def test_labels_of_a_table_are_the_classes(self):
        self.write("1.jpg", "2.jpg", "sub/3.png", "4.jpg")
        quoted = '4.jpg,"a ""b"", c\nd",'
        for table in (self.table("\ufefffile_name,label,more", f"./{self.source.name}/1.jpg,dog,1", "2,cat/x,", "", "sub/3,dog,3", quoted),
                      self.table("more\tlabel\tfile_name", "1\tdog\t1.jpg", "2\tcat/x\t2.jpg", "3\tdog\tsub/3.png", '\t"a ""b"", c\nd"\t4.jpg', name="l.tsv"),
                      self.table('{"label": "dog", "file_name": "1.jpg"}', '{"label": "cat/x", "file_name": "2"}',
                                 f'{{"label": "dog", "file_name": "{self.source}/sub/3.png"}}', '{"file_name": "4", "label": "a \\"b\\", c\\nd"}', name="l.jsonl")):
            for source in (self.source, self.archive()) if table[1].suffix == ".tsv" else [self.source]:
                shutil.rmtree(self.dataset, ignore_errors=True)
                self.packed("--images", source, *table)
                self.assertEqual(names(self.dataset), ['a "b", c\nd/4.jpg', "cat%2Fx/2.jpg", "dog/1.jpg", "dog/sub/3.png"])
                self.assertEqual(dieselctl("cat", self.dataset, "dog/sub/3.png").stdout, "sub/3.png")
                self.assertIn("; 4 unchanged", self.packed("--append", source, *table))
        chunk = next((self.dataset / "chunks").rglob("*.chunk"))
        whole = chunk.read_bytes()
        chunk.write_bytes(whole[:100])
        self.write("dog/1.jpg")  # another file at the path of a sample
        done = dieselctl("verify", "--repair", "--from", self.source, self.dataset)
        self.assertEqual((done.returncode, chunk.read_bytes()), (0, whole), done.stdout + done.stderr)

    def test_labels_that_nearly_all_differ_are_told_of_fields(self):
        self.write(*(f"{i}.jpg" for i in range(40)))
        rows = [f"{i}.jpg,a photo of {min(i, 37)}" for i in range(40)]
        table = self.table("file_name,caption", *rows, name="captions.csv")
        self.packed(self.source, *table, warns=f"38 classes for 40 files: labels of {table[1]} that nearly all differ are surely no classes. To make "
                                               f"the columns fields of each sample, use dieselctl pack csv:{table[1]} DATASET")
        shutil.rmtree(self.dataset)
        self.packed(self.source, *self.table("file_name,caption", *(f"{i}.jpg,{i % 30}" for i in range(40))))

    def test_labels_that_are_numbers_keep_their_order(self):
        self.write("1.jpg", "2.jpg", "3.jpg", "4.jpg")
        warns = " are not 0, 1, 2 and so on, so class numbers differ from the labels: the class of number k is Dataset(...).classes[k]"
        table = self.table("id,score,kind", "1,0.5,10", "2,0.5,9.0", "3,0.5,8", "4,0.5,08")
        self.packed(self.source, *table, "--label", "kind", warns=f"the classes of {self.dataset}{warns}")
        self.assertEqual(names(self.dataset), ["08/3.jpg", "08/4.jpg", "09/2.jpg", "10/1.jpg"])
        validation = self.root / "validation.diesel"
        table = self.table("id,kind", "1,8", "2,9", "3,8", "4,8")
        done = dieselctl("pack", self.source, validation, *table, "--classes-of", self.dataset)
        self.assertEqual(names(validation), ["08/1.jpg", "08/3.jpg", "08/4.jpg", "09/2.jpg"], done.stderr)
        shutil.rmtree(self.dataset)
        self.packed(self.source, *self.table("id,kind", "1,0", "2,1", "3,0", "4,2"))

    def test_added_labels_that_are_numbers_are_the_classes_that_are_there(self):
        self.write("1.jpg", "2.jpg")
        self.packed(self.source, *self.table("id,kind", *(f"{i},{i - 1}" for i in (1, 2))))
        self.write("3.jpg")
        longer = self.table("id,kind", "1,0", "2,1", "3,10", name="longer.csv")
        self.refused("--append", self.source, self.dataset, *longer, says=f"has labels of 2 digits, but the classes of {self.dataset} have 1")
        shutil.rmtree(self.dataset)
        dieselctl("pack", self.source, self.dataset, *longer)
        self.write("4.jpg")
        done = dieselctl("pack", "--append", self.source, self.dataset, *self.table("id,kind", "1,0", "2,1", "3,10", "4,1"))
        self.assertEqual(names(self.dataset), ["00/1.jpg", "01/2.jpg", "01/4.jpg", "10/3.jpg"])
        self.assertIn("class numbers differ from the labels", done.stderr)
        shutil.rmtree(self.dataset)
        for kind in "01":  # only together they are 0 and 1
            done = dieselctl("pack", "--append", self.source, self.dataset, *self.table("id,kind", f"{int(kind) + 1},{kind}"))
            self.assertEqual((done.returncode, "class numbers differ" in done.stderr), (0, False), done.stderr)

    def test_one_label_as_two_classes_is_named(self):
        """As two runs with --shared at the same time can make them."""
        self.write("1.jpg")
        self.packed(self.source, *self.table("id,kind", "1,0"))
        self.write("2.jpg")
        (self.root / "other/01").mkdir(parents=True)
        (self.root / "other/01/other.jpg").write_text("other")
        dieselctl("pack", "--append", self.root / "other", self.dataset)
        done = dieselctl("pack", "--append", self.source, self.dataset, *self.table("id,kind", "2,1"))
        self.assertEqual(done.returncode, 0)   # the version is published
        self.assertIn("the label 1 is two classes of", done.stderr)

    def test_rows_and_files_that_do_not_fit_are_named(self):
        self.write("1.jpg", "2.jpg", "2.png", "3.jpg")
        for lines, says in ((("f,l", "1,a", "9,b"), "1 of 2 rows of .* name no file of .*, such as '9' in line 3: correct the rows, or add --skip-unreadable"),
                            (("f,l", "2,a"), "line 2: '2' names several files"), (("f,l", "1,a", "1,b"), "'1' has two labels, in lines 2 and 3"),
                            (("f,l", "1,0", "3,0.5"), "line 3: '0.5' is a label below zero or with a fraction"), (("f,l", "1,-1"), "line 2: '-1' is a label below"),
                            (("f,l", "1,"), "line 2: '1' has no label"), (("f,l", "1"), "line 2: .* different numbers of cells"), (("f,l", '1,"a'), "line 2: a quote is not"),
                            (("1.jpg,a",), "begins with '1.jpg', which looks like a file"), (("f,a,b", "1,2,3"), "choose one with --label COLUMN. It has f, a, b"),
                            (("f,label,label", "1,2,3"), "has the column 'label' twice"), (("f",), "has one column, 'f'"), (("f,l",), "has no rows"), ((), "is empty")):
            done = dieselctl("pack", self.source, self.dataset, *self.table(*lines))
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done)
            self.assertRegex(done.stderr, says)
        for line, says in (('{"f": "1", "l": [1]}', "line 1: 'l' is a list"), ("[]", "line 1: the line is no JSON object"), ('{"f": "1", "l": null}', "has no label")):
            self.refused(self.source, self.dataset, *self.table(line, name="l.jsonl"), says=says)
        self.refused(self.source, self.dataset, "--labels", self.root / "l.txt", says="does not end in .csv, .tsv or .jsonl")
        self.assertFalse((self.dataset / "snapshot").exists())
        done = dieselctl("pack", self.source, self.dataset, *self.table("f,l", "1,a", "9,b"), "--skip-unreadable")
        self.assertRegex(done.stderr, "3 files left out, because .* has no row for them, such as .*\n.*1 row of .* without a file left out\n$")
        self.assertEqual(names(self.dataset), ["a/1.jpg"])
        self.refused(self.dataset, self.root / "other", *self.table("f,l", "1,a"), says="is a dataset, whose samples have their classes")

    def test_a_class_of_nothing_but_hidden_files_is_refused(self):
        self.write("ant/1.jpg", "bird/.gitkeep", "cat/1.jpg")
        for source in self.each_way():
            self.refused(source, self.dataset, says="the class folder bird of ")
        self.write("bird/notes.txt")
        for source in self.each_way():
            self.refused("--images", source, self.dataset, says="the class folder bird of ")

    def test_an_empty_folder_next_to_files_without_class_changes_nothing(self):
        """An empty folder next to files without a class changes no number."""
        self.write("1.jpg", "2.jpg")
        (self.source / "notes").mkdir()
        for source in self.each_way():
            self.packed(source)

    def test_containers_of_other_formats_are_named(self):
        for what, files in {"LMDB files": ["data.mdb", "lock.mdb"], "tar archives": ["shard-000000.tar", "shard-000001.tar"],
                            "tar archives ": ["a/shard-0.TGZ"], "Parquet files": ["train-00000-of-00002.parquet"],
                            "Arrow files": ["dataset_info.json", "data-00000-of-00001.arrow"],
                            "shards of MosaicML Streaming": ["index.json", "shard.00000.mds"],
                            "shards of MosaicML Streaming ": ["index.json", "shard.00000.jsonl"],
                            "chunks of LitData": ["index.json", "chunk-0-0.bin"], "TFRecord files": ["train.tfrecord-00000-of-00010"],
                            "FFCV datasets": ["train.beton"], "HDF5 files": ["train.h5"], "zip archives": ["train.zip"]}.items():
            shutil.rmtree(self.source)
            self.write(*files)
            for source in [self.source] if what.endswith("s") else self.each_way():
                shutil.rmtree(self.dataset, ignore_errors=True)
                self.refused(source, self.dataset, says=[f"contains {what.strip()} (", "--as-files"])
                self.assertFalse(self.dataset.exists())
                self.packed("--as-files", source)
                self.assertEqual(sorted(names(self.dataset)), sorted(files))

    def write_shards(self, ending, mode):
        path = self.root / "file"
        path.write_bytes(b"x")
        for i in range(2):
            with tarfile.open(self.source / f"shard-{i}.tar{ending}", mode) as tar:
                tar.add(path, f"cat/{i}.jpg")

    def test_the_advice_for_archives_works(self):
        """Checks the output line about archives."""
        self.write_shards("", "w")
        self.refused(self.source, self.dataset, says="index them in place with dieselctl index FOLDER --output DATASET")
        indexed = dieselctl("index", self.source, "--output", self.dataset)
        self.assertEqual(indexed.returncode, 0, indexed.stderr)
        self.assertEqual(names(self.dataset), ["shard-0/cat/0", "shard-1/cat/1"])

    def test_the_advice_for_compressed_archives_works(self):
        """Checks the output line about archives that have no random access."""
        self.write_shards(".gz", "w:gz")
        self.refused(self.source, self.dataset, says="extract them into one folder")
        extracted = self.root / "extracted"
        extracted.mkdir()
        for shard in self.source.iterdir():
            subprocess.run(["tar", "-xf", shard, "-C", extracted], check=True)
        self.packed(extracted)
        self.assertEqual(names(self.dataset), ["cat/0.jpg", "cat/1.jpg"])

    def test_a_dataset_in_a_source_is_left_out_and_as_a_source_gives_its_samples(self):
        self.write(*PICTURES)
        inside = self.source / "photos.diesel"
        done = dieselctl("pack", self.source, inside)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("; left out photos.diesel: a dataset;", done.stdout)
        self.assertEqual(names(inside), PICTURES)
        said = self.packed(self.source)
        self.assertIn("; left out photos.diesel: a dataset;", said)
        self.assertEqual(names(self.dataset), PICTURES)
        self.assertEqual(json.loads(dieselctl("stat", "--json", self.dataset).stdout)["classes"], ["cat", "dog"])
        shutil.rmtree(self.dataset)
        self.packed(inside)
        self.assertEqual(names(self.dataset), PICTURES)
        shutil.rmtree(self.dataset)
        self.packed("--as-files", inside)
        self.assertIn("snapshot", names(self.dataset))
        copy = self.root / "copy"
        subprocess.run(["cp", "-r", inside, copy], check=True)
        self.assertEqual(names(copy), PICTURES)

    def test_a_dataset_in_an_archive_is_no_source(self):
        self.write(*PICTURES)
        self.packed(self.source)
        os.rename(self.dataset, self.source / "photos.diesel")
        subprocess.run(["tar", "--hard-dereference", "-cf", self.root / "archive.tar", "-C", self.source, "."], check=True)
        self.refused(self.root / "archive.tar", self.dataset, says=["chunks of a DIESEL dataset", "--as-files"])

    def test_images_and_as_files_contradict_each_other(self):
        self.write(*PICTURES)
        self.assertEqual(dieselctl("pack", "--images", "--as-files", self.source, self.dataset).returncode, 2)


if __name__ == "__main__":
    unittest.main()
